// Device memory: one span of addresses that are never used twice, so that
// memory which was given back is known for ever; and what is known of each
// byte.
#include "sim.hpp"

#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef WITH_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace gpusim
{

uint64_t up(uint64_t value, uint64_t to)
{
    return (value + to - 1) / to * to;
}

void *must(void *at, const char *what)
{
    if (at == MAP_FAILED) {
        perror(what);
        _exit(1);
    }
    return at;
}

static int span_file(const char *name)
{
    int fd = memfd_create(name, MFD_CLOEXEC);

    if (fd < 0 || ftruncate(fd, static_cast<off_t>(ARENA_BYTES)) != 0) {
        perror(name);
        _exit(1);
    }
    return fd;
}

// A child of fork() has the forking thread only: nobody else may be in the
// middle of anything.
static void before_fork()
{
    sim.lock.lock();
}

static void in_parent()
{
    sim.lock.unlock();
}

// A child of fork() allocates in files of its own: what was there before it
// shares with its parent, as memory of a device that both have mapped.
static void in_child()
{
    arena *m = &sim.memory;
    const int shared = MAP_SHARED | MAP_NORESERVE | MAP_FIXED;
    uint64_t from = up(m->next, PAGE);

    sim.lock.renew();
    m->data_fd = span_file("gpusim.data");
    m->written_fd = span_file("gpusim.written");
    m->alive_fd = span_file("gpusim.alive");
    must(mmap(m->base + from, ARENA_BYTES - from, PROT_NONE, shared, m->data_fd,
              static_cast<off_t>(from)),
         "data");
    must(mmap(m->written + from, ARENA_BYTES - from, PROT_READ | PROT_WRITE,
              shared, m->written_fd, static_cast<off_t>(from)),
         "written");
}

void open_arena()
{
    arena *m = &sim.memory;
    const int shared = MAP_SHARED | MAP_NORESERVE;
    const int own = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    const uint64_t grains = ARENA_BYTES / GRAIN * sizeof(work_id);

    m->data_fd = span_file("gpusim.data");
    m->written_fd = span_file("gpusim.written");
    m->alive_fd = span_file("gpusim.alive");
    m->base = static_cast<unsigned char *>(must(
        mmap(nullptr, ARENA_BYTES, PROT_NONE, shared, m->data_fd, 0), "data"));
    m->written = static_cast<unsigned char *>(
        must(mmap(nullptr, ARENA_BYTES, PROT_READ | PROT_WRITE, shared,
                  m->written_fd, 0),
             "written"));
    m->writer = static_cast<work_id *>(must(
        mmap(nullptr, grains, PROT_READ | PROT_WRITE, own, -1, 0), "writer"));
    m->reader = static_cast<work_id *>(must(
        mmap(nullptr, grains, PROT_READ | PROT_WRITE, own, -1, 0), "reader"));
    m->next = GUARD;
    pthread_atfork(before_fork, in_parent, in_child);
}

bool in_arena(const void *ptr)
{
    const auto *p = static_cast<const unsigned char *>(ptr);

    return sim.memory.base != nullptr && p >= sim.memory.base &&
           p < sim.memory.base + ARENA_BYTES;
}

void poison(const void *ptr, uint64_t bytes, bool on)
{
#ifdef WITH_ASAN
    if (on) {
        __asan_poison_memory_region(ptr, bytes);
    } else {
        __asan_unpoison_memory_region(ptr, bytes);
    }
#else
    (void)ptr;
    (void)bytes;
    (void)on;
#endif
}

unsigned char *take_addresses(uint64_t bytes, uint64_t alignment)
{
    arena *m = &sim.memory;
    auto base = reinterpret_cast<uint64_t>(m->base);
    uint64_t at = up(base + m->next, alignment) - base;

    if (bytes > ARENA_BYTES || at + up(bytes, PAGE) + GUARD > ARENA_BYTES) {
        return nullptr;
    }
    m->next = at + up(bytes, PAGE) + GUARD;
    return m->base + at;
}

// ---- what is known of each byte --------------------------------------------

uint64_t offset_of(const void *ptr)
{
    return static_cast<uint64_t>(static_cast<const unsigned char *>(ptr) -
                                 sim.memory.base);
}

// Zero, and whole pages of it go back to the system: addresses are never used
// twice.  advice: MADV_REMOVE for what a file has, else MADV_DONTNEED.
static void clear(void *ptr, uint64_t bytes, int advice)
{
    auto *lo = static_cast<unsigned char *>(ptr), *hi = lo + bytes;
    auto *from = reinterpret_cast<unsigned char *>(
        up(reinterpret_cast<uint64_t>(lo), PAGE));
    auto *to = reinterpret_cast<unsigned char *>(
        reinterpret_cast<uint64_t>(hi) / PAGE * PAGE);

    if (from >= to ||
        madvise(from, static_cast<size_t>(to - from), advice) != 0) {
        memset(lo, 0, bytes);
        return;
    }
    memset(lo, 0, static_cast<size_t>(from - lo));
    memset(to, 0, static_cast<size_t>(hi - to));
}

void forget(const void *ptr, uint64_t bytes)
{
    uint64_t at = offset_of(ptr), first = at / GRAIN;
    uint64_t count = (at + bytes + GRAIN - 1) / GRAIN - first;

    clear(sim.memory.written + at, bytes, MADV_REMOVE);
    clear(sim.memory.writer + first, count * sizeof(work_id), MADV_DONTNEED);
    clear(sim.memory.reader + first, count * sizeof(work_id), MADV_DONTNEED);
}

// Had the other work to end before the one that runs?
static bool waited_for(work_id other)
{
    size_t stream = other >> 24;
    uint32_t number = other & 0xffffffu;

    return other == 0 || other == sim.running_id ||
           (stream < sim.running->needs.size() &&
            sim.running->needs[stream] >= number);
}

static void not_waited(const void *ptr, work_id other, const char *did)
{
    if (!sim.noted_order) {
        sim.noted_order = true;
        note(GPUSIM_MISSING_WAIT,
             "%s%s in stream %u touches %p, which number %u of stream %u %s; "
             "nothing orders the two",
             where_text(), sim.running->name.c_str(), sim.running_id >> 24, ptr,
             other & 0xffffffu, other >> 24, did);
    }
}

void touched(const void *ptr, uint64_t bytes, bool store, bool check_values)
{
    arena *m = &sim.memory;
    uint64_t at = offset_of(ptr);
    work_id last = 0;

    for (uint64_t g = at / GRAIN; g * GRAIN < at + bytes; g++) {
        if (m->writer[g] != last && !waited_for(m->writer[g])) {
            not_waited(ptr, m->writer[g], "writes");
        }
        last = m->writer[g];
        if (store) {
            if (!waited_for(m->reader[g])) {
                not_waited(ptr, m->reader[g], "reads");
            }
            m->writer[g] = sim.running_id;
        } else if (waited_for(m->reader[g])) {
            m->reader[g] = sim.running_id;
        }
    }
    if (store) {
        memset(m->written + at, 1, bytes);
    } else if (check_values && memchr(m->written + at, 0, bytes) != nullptr &&
               !sim.noted_value) {
        sim.noted_value = true;
        note(GPUSIM_UNINITIALISED, "%s%s reads %p", where_text(),
             sim.running->name.c_str(), ptr);
    }
}

// ---- what is where ---------------------------------------------------------

bool reachable(const range &r)
{
    int of = sim.running == nullptr ? r.device : sim.running->device;

    return r.kind == RANGE_MAPPED ? (r.opened_to >> of & 1u) != 0
                                  : of == r.device || r.kind == RANGE_MANAGED ||
                                        sim.peers[of][r.device];
}

const char *wrong_with(const void *ptr, uint64_t bytes, bool store,
                       gpusim_fault *out_kind)
{
    static char text[160];
    auto address = reinterpret_cast<uint64_t>(ptr);
    auto live = below(sim.live, address);
    auto dead = below(sim.dead, address);
    auto held = below(sim.reserved, address);

    if (live != sim.live.end() &&
        address + bytes <= live->first + live->second.bytes) {
        if (store ? live->second.is_writable : live->second.readable) {
            return nullptr;
        }
        *out_kind = GPUSIM_UNMAPPED;
        return "memory is mapped there, but without this access";
    }
    // Mappings behind each other are one range of addresses.
    if (live != sim.live.end() && live->second.kind == RANGE_MAPPED &&
        address < live->first + live->second.bytes) {
        uint64_t here = live->first + live->second.bytes - address;
        const char *wrong = wrong_with(ptr, here, store, out_kind);

        return wrong != nullptr
                   ? wrong
                   : wrong_with(static_cast<const char *>(ptr) + here,
                                bytes - here, store, out_kind);
    }
    if (dead != sim.dead.end() && address < dead->first + dead->second.bytes) {
        *out_kind =
            dead->second.kind == RANGE_MAPPED ? GPUSIM_UNMAPPED : GPUSIM_FREED;
        return dead->second.kind == RANGE_MAPPED
                   ? "the memory that was here is unmapped"
                   : "the allocation was given back";
    }
    if (held != sim.reserved.end() &&
        address < held->first + held->second.bytes) {
        *out_kind = GPUSIM_UNMAPPED;
        return "addresses that are reserved, without memory";
    }
    *out_kind = GPUSIM_OUT_OF_BOUNDS;
    if (live == sim.live.end() || !in_arena(ptr)) {
        return "no device memory";
    }
    snprintf(text, sizeof(text),
             "%llu bytes at offset %llu of an allocation of %llu bytes",
             static_cast<unsigned long long>(bytes),
             static_cast<unsigned long long>(address - live->first),
             static_cast<unsigned long long>(live->second.bytes));
    return text;
}

} // namespace gpusim
