// Grids, blocks, warps and threads.  Every thread is a fiber that runs until it
// ends or has to meet others; a few blocks are resident at a time.
#include "sim.hpp"

#include <cstdarg>
#include <cstdio>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#endif
#ifdef WITH_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace gpusim
{

#ifdef WITH_ASAN
constexpr size_t STACK = 256u << 10;
#else
constexpr size_t STACK = 128u << 10;
#endif
constexpr uint32_t MANY = UINT32_MAX;

enum class state { ready, at_barrier, at_warp, done };

// What is known of a byte of shared memory.
struct shared_byte {
    uint32_t writer = 0, reader = 0; // thread + 1, MANY
    uint32_t writer_epoch = 0, reader_epoch = 0;
    uint32_t writer_turn = 0, reader_turn = 0; // of the warp
    bool has_value = false, is_atomic = false;
};

struct warp;
struct block;

struct fiber {
    ucontext_t context;
    unsigned char *stack = nullptr;
    block *home;
    warp *team;
    uint3 index;
    uint32_t linear, lane;
    state what;
    const char *file;
    int line;
    unsigned mask;
    meeting kind;
    uint64_t brought, got[32];
    uint32_t accesses, turns_of;
    std::vector<std::pair<std::pair<const char *, int>, uint32_t>> turns;
};

struct warp {
    uint32_t turn = 0; // exchanges of the whole warp
    std::vector<fiber *> lanes;
    std::vector<sector_access> log;
};

struct block {
    uint3 index;
    std::vector<fiber *> threads;
    std::vector<warp> warps;
    uint32_t live, waiting, epoch;
    std::vector<unsigned char> shared;
    std::vector<shared_byte> known;
    std::map<const void *, size_t> arrays;
};

struct run_state {
    const kernel *what;
    ucontext_t scheduler;
    fiber *now;
    bool is_ended; // by a fault
    std::deque<fiber *> ready;
    std::vector<fiber *> spare;
    uint64_t idle;      // yields with nothing else done
    const void *bottom; // of the scheduler's stack
    size_t bottom_bytes;
};
// Never destroyed: threads that a fault ended are in it.
static run_state &run = *new run_state();

bool in_kernel()
{
    return run.now != nullptr;
}

const char *where_text()
{
    static char text[256];

    text[0] = '\0';
    if (run.now != nullptr) {
        snprintf(text, sizeof(text), "%s block (%u,%u,%u) thread (%u,%u,%u): ",
                 run.what->name.c_str(), run.now->home->index.x,
                 run.now->home->index.y, run.now->home->index.z,
                 run.now->index.x, run.now->index.y, run.now->index.z);
    }
    return text;
}

// ---- fibers ----------------------------------------------------------------

static void to_scheduler(fiber *f, bool for_good)
{
#ifdef WITH_ASAN
    void *fake = nullptr;

    __sanitizer_start_switch_fiber(for_good ? nullptr : &fake, run.bottom,
                                   run.bottom_bytes);
    swapcontext(&f->context, &run.scheduler);
    __sanitizer_finish_switch_fiber(fake, &run.bottom, &run.bottom_bytes);
#else
    (void)for_good;
    swapcontext(&f->context, &run.scheduler);
#endif
}

void leave_kernel()
{
    run.is_ended = true;
    for (;;) {
        to_scheduler(run.now, true);
    }
}

// The stack of a thread that ends so is never unwound: nothing on it may own
// memory.
static void stick(gpusim_fault kind, cudaError_t error, const char *format,
                  va_list args)
{
    char text[400];
    int used = snprintf(text, sizeof(text), "%s", where_text());

    vsnprintf(text + used, sizeof(text) - static_cast<size_t>(used), format,
              args);
    note_and_stick(kind, error, text);
    run.is_ended = true;
}

[[noreturn]] static void stop_with(gpusim_fault kind, cudaError_t error,
                                   const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void stop_with(gpusim_fault kind, cudaError_t error, const char *format,
                      ...)
{
    va_list args;

    va_start(args, format);
    stick(kind, error, format, args);
    va_end(args);
    leave_kernel();
}

// A fault that the scheduler finds, of a thread.
static void found_at(fiber *f, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void found_at(fiber *f, const char *format, ...)
{
    va_list args;

    run.now = f;
    va_start(args, format);
    stick(GPUSIM_DIVERGENT, cudaErrorLaunchFailure, format, args);
    va_end(args);
    run.now = nullptr;
}

static void fiber_main()
{
#ifdef WITH_ASAN
    __sanitizer_finish_switch_fiber(nullptr, &run.bottom, &run.bottom_bytes);
#endif
    run.what->body();
    run.now->what = state::done;
    for (;;) {
        to_scheduler(run.now, true);
    }
}

static void resume(fiber *f)
{
    run.now = f;
    threadIdx = f->index;
    blockIdx = f->home->index;
#ifdef WITH_ASAN
    void *fake = nullptr;

    __sanitizer_start_switch_fiber(&fake, f->stack, STACK);
    swapcontext(&run.scheduler, &f->context);
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#else
    swapcontext(&run.scheduler, &f->context);
#endif
    run.now = nullptr;
}

static fiber *fiber_take()
{
    if (run.spare.empty()) {
        auto *f = new fiber();
        size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
        void *at = mmap(nullptr, STACK + page, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        if (at == MAP_FAILED) {
            fprintf(stderr, "gpusim: no memory for a thread's stack\n");
            _exit(1);
        }
        mprotect(at, page, PROT_NONE);
        f->stack = static_cast<unsigned char *>(at) + page;
        return f;
    }
    fiber *f = run.spare.back();

    run.spare.pop_back();
    return f;
}

static void fiber_start(fiber *f)
{
#ifdef WITH_ASAN
    __asan_unpoison_memory_region(f->stack, STACK);
#endif
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = STACK;
    f->context.uc_link = nullptr;
    makecontext(&f->context, fiber_main, 0);
    f->what = state::ready;
    f->accesses = f->turns_of = 0;
    f->turns.clear();
    run.ready.push_back(f);
}

// ---- blocks ----------------------------------------------------------------

static block *block_start(uint64_t number)
{
    const kernel *k = run.what;
    auto *b = new block();
    uint32_t threads = k->block.x * k->block.y * k->block.z;

    b->index = {static_cast<unsigned>(number % k->grid.x),
                static_cast<unsigned>(number / k->grid.x % k->grid.y),
                static_cast<unsigned>(number / k->grid.x / k->grid.y)};
    b->live = threads;
    b->waiting = b->epoch = 0;
    b->shared.resize(k->shared_bytes, 0xA5);
    b->known.resize(k->shared_bytes);
    b->warps.resize((threads + 31) / 32);
    for (uint32_t t = 0; t < threads; t++) {
        fiber *f = fiber_take();

        f->home = b;
        f->team = &b->warps[t / 32];
        f->team->lanes.push_back(f);
        f->index = {t % k->block.x, t / k->block.x % k->block.y,
                    t / k->block.x / k->block.y};
        f->linear = t;
        f->lane = t % 32;
        b->threads.push_back(f);
        fiber_start(f);
    }
    return b;
}

static void block_end(block *b)
{
    for (auto &w : b->warps) {
        sectors_of_warp(w.log);
    }
    run.spare.insert(run.spare.end(), b->threads.begin(), b->threads.end());
    delete b;
}

// All that are left wait: they go on, if all are here for the same.
static void barrier_end(block *b)
{
    fiber *first = nullptr;

    for (fiber *f : b->threads) {
        if (f->what == state::done) {
            found_at(b->threads[0],
                     "thread %u has ended, others wait at a barrier",
                     f->linear);
            return;
        }
        first = first == nullptr ? f : first;
        if (f->line != first->line || f->file != first->file) {
            found_at(f,
                     "at the barrier of line %d, thread %u at that of line %d",
                     f->line, first->linear, first->line);
            return;
        }
    }
    b->epoch++;
    b->waiting = 0;
    for (fiber *f : b->threads) {
        f->what = state::ready;
        run.ready.push_back(f);
    }
}

void barrier(const char *file, int line)
{
    fiber *f = run.now;

    f->what = state::at_barrier;
    f->file = file;
    f->line = line;
    f->home->waiting++;
    to_scheduler(f, false);
}

// ---- warps -----------------------------------------------------------------

unsigned lane()
{
    return run.now->lane;
}

void lane_must_take_part(unsigned of, unsigned mask, const char *file, int line)
{
    if ((mask >> of & 1u) == 0 || of >= run.now->team->lanes.size()) {
        stop_with(GPUSIM_DIVERGENT, cudaErrorLaunchFailure,
                  "%s:%d: reads from lane %u, which takes no part", file, line,
                  of);
    }
}

// True if all lanes of the mask have come, for the same.
static bool all_here(const fiber *f)
{
    for (uint32_t l = 0; l < 32; l++) {
        if ((f->mask >> l & 1u) == 0) {
            continue;
        }
        if (l >= f->team->lanes.size() ||
            f->team->lanes[l]->what == state::done) {
            stop_with(GPUSIM_DIVERGENT, cudaErrorLaunchFailure,
                      "waits for lane %u, which has ended", l);
        }
        const fiber *other = f->team->lanes[l];

        if (other->what != state::at_warp) {
            return false;
        }
        if (other->mask != f->mask || other->kind != f->kind) {
            stop_with(GPUSIM_DIVERGENT, cudaErrorLaunchFailure,
                      "lane %u meets others, or for something else, at line "
                      "%d, not %d",
                      l, other->line, f->line);
        }
    }
    return true;
}

const uint64_t *exchange(unsigned mask, meeting what, uint64_t value,
                         const char *file, int line)
{
    fiber *f = run.now;

    if ((mask >> f->lane & 1u) == 0) {
        stop_with(GPUSIM_DIVERGENT, cudaErrorLaunchFailure,
                  "%s:%d: a lane that its own mask leaves out", file, line);
    }
    f->what = state::at_warp;
    f->mask = mask;
    f->kind = what;
    f->brought = value;
    f->file = file;
    f->line = line;
    if (!all_here(f)) {
        to_scheduler(f, false);
        return f->got;
    }
    if (__builtin_popcount(mask) == static_cast<int>(f->team->lanes.size())) {
        f->team->turn++;
    }
    for (fiber *other : f->team->lanes) {
        if ((mask >> other->lane & 1u) == 0) {
            continue;
        }
        for (fiber *from : f->team->lanes) {
            other->got[from->lane] = from->brought;
        }
        other->what = state::ready;
        if (other != f) {
            run.ready.push_back(other);
        }
    }
    return f->got;
}

void yield()
{
    fiber *f = run.now;

    if (++run.idle > 1000) {
        usleep(100); // for another process
    }
    if (run.idle > 200000) {
        stop_with(GPUSIM_DIVERGENT, cudaErrorLaunchFailure,
                  "waits for ever for what nobody writes");
    }
    run.ready.push_back(f);
    to_scheduler(f, false);
}

// ---- shared memory ---------------------------------------------------------

static size_t shared_grow(block *b, size_t bytes, size_t alignment)
{
    size_t at = (b->shared.size() + alignment - 1) / alignment * alignment;

    if (at + bytes > limits_of(sim.machine.arch).shared &&
        at + bytes > sim.optin_shared) {
        stop_with(GPUSIM_LIMITS, cudaErrorLaunchOutOfResources,
                  "%zu bytes of shared memory", at + bytes);
    }
    b->shared.resize(at + bytes, 0xA5);
    b->known.resize(at + bytes);
    return at;
}

size_t shared_static(const void *key, size_t bytes, size_t alignment)
{
    block *b = run.now->home;
    auto found = b->arrays.find(key);

    if (found == b->arrays.end()) {
        found = b->arrays.emplace(key, shared_grow(b, bytes, alignment)).first;
    }
    return found->second;
}

size_t shared_dynamic(size_t *out_bytes)
{
    *out_bytes = run.what->shared_bytes;
    return 0;
}

static void race(const char *what, size_t offset, uint32_t other)
{
    if (!sim.noted_race) {
        sim.noted_race = true;
        note(GPUSIM_SHARED_RACE,
             "%sbyte %zu is %s thread %s%d, and no barrier "
             "is between",
             where_text(), offset, what, other == MANY ? "s, " : "",
             static_cast<int>(other) - 1);
    }
}

static bool ordered(uint32_t thread, uint32_t epoch, uint32_t turn)
{
    const fiber *f = run.now;

    if (thread == 0 || thread == f->linear + 1 || epoch < f->home->epoch) {
        return true;
    }
    return thread != MANY && (thread - 1) / 32 == f->linear / 32 &&
           turn < f->team->turn;
}

static void shared_look(size_t offset, access how)
{
    const fiber *f = run.now;
    shared_byte *b = &f->home->known[offset];
    bool both_atomic = b->is_atomic && how == access::atomic;

    if (!both_atomic && !ordered(b->writer, b->writer_epoch, b->writer_turn)) {
        race("written by", offset, b->writer);
    }
    if (how == access::load) {
        bool alone = ordered(b->reader, b->reader_epoch, b->reader_turn);

        b->reader = alone ? f->linear + 1 : MANY;
        b->reader_epoch = f->home->epoch;
        b->reader_turn = f->team->turn;
    } else {
        if (!ordered(b->reader, b->reader_epoch, b->reader_turn)) {
            race("read by", offset, b->reader);
        }
        b->writer = f->linear + 1;
        b->writer_epoch = f->home->epoch;
        b->writer_turn = f->team->turn;
        b->is_atomic = how == access::atomic;
    }
    if (how != access::store && !b->has_value && !sim.noted_value) {
        sim.noted_value = true;
        note(GPUSIM_UNINITIALISED, "%sshared byte %zu", where_text(), offset);
    }
    b->has_value = true;
}

unsigned char *shared_bytes(size_t offset, size_t bytes, size_t alignment,
                            access how)
{
    block *b = run.now->home;

    if (offset > b->shared.size() || b->shared.size() - offset < bytes) {
        stop_with(GPUSIM_SHARED_BOUNDS, cudaErrorIllegalAddress,
                  "an index behind the end of a shared array");
    }
    if (offset % alignment != 0) {
        stop_with(GPUSIM_MISALIGNED, cudaErrorMisalignedAddress,
                  "shared byte %zu", offset);
    }
    for (size_t i = 0; i < bytes; i++) {
        shared_look(offset + i, how);
    }
    return b->shared.data() + offset;
}

// ---- global memory ---------------------------------------------------------

static bool is_pinned(uint64_t address, size_t bytes)
{
    auto found = sim.pinned.upper_bound(address);

    if (found == sim.pinned.begin()) {
        return false;
    }
    --found;
    return address + bytes <= found->first + found->second;
}

// How often this thread has been here since its warp met last.
static uint32_t turn_of(fiber *f, const char *file, int line)
{
    if (f->turns_of != f->team->turn) {
        f->turns_of = f->team->turn;
        f->turns.clear();
    }
    for (auto &place : f->turns) {
        if (place.first.first == file && place.first.second == line) {
            return ++place.second;
        }
    }
    f->turns.push_back({{file, line}, 0});
    return 0;
}

static void keep_sectors(uint64_t address, size_t bytes, bool is_store,
                         const char *file, int line)
{
    fiber *f = run.now;
    uint32_t turn = turn_of(f, file, line);
    uint32_t order = f->accesses++;

    sectors_seen(address, bytes, is_store);
    for (uint64_t s = address / 32; s <= (address + bytes - 1) / 32; s++) {
        f->team->log.push_back(
            {file, line, f->team->turn, turn, order, s, is_store});
    }
}

void global(const void *ptr, size_t bytes, size_t alignment, access how,
            const char *file, int line)
{
    auto address = reinterpret_cast<uint64_t>(ptr);
    gpusim_fault kind = GPUSIM_OUT_OF_BOUNDS;
    const char *wrong;

    if (run.now == nullptr) {
        return;
    }
    run.idle = 0;
    if (address % alignment != 0) {
        stop_with(GPUSIM_MISALIGNED, cudaErrorMisalignedAddress,
                  "%s:%d: %zu bytes at an address that is %llu beside them",
                  file, line, bytes,
                  static_cast<unsigned long long>(address % alignment));
    }
    if (is_pinned(address, bytes)) {
        return;
    }
    wrong = wrong_with(ptr, bytes, how != access::load, &kind);
    if (wrong != nullptr) {
        stop_with(kind, cudaErrorIllegalAddress, "%s:%d: %s", file, line,
                  wrong);
    }
    if (how == access::atomic) {
        return; // of any order
    }
    touched(ptr, bytes, how == access::store, true);
    keep_sectors(address, bytes, how == access::store, file, line);
}

// ---- the grid --------------------------------------------------------------

// Nothing can go on: whoever waits, waits for ever.
static void stuck(const std::vector<block *> &resident)
{
    for (block *b : resident) {
        for (fiber *f : b->threads) {
            if (f->what != state::done) {
                found_at(f, "waits at line %d for threads that do not come",
                         f->line);
                return;
            }
        }
    }
}

static void run_fiber(fiber *f)
{
    block *b = f->home;

    resume(f);
    if (run.is_ended) {
        return;
    }
    if (f->what == state::done) {
        b->live--;
    }
    if (b->live > 0 && b->waiting == b->live) {
        barrier_end(b);
    }
}

static fiber *pick()
{
    if (sim.seed != 0) {
        size_t at = random_below(static_cast<uint32_t>(run.ready.size()));

        std::swap(run.ready[0], run.ready[at]);
    }
    fiber *f = run.ready.front();

    run.ready.pop_front();
    return f;
}

void run_kernel(const kernel &what)
{
    std::vector<block *> resident;
    uint64_t count = uint64_t{what.grid.x} * what.grid.y * what.grid.z;
    uint64_t next = 0;

    run.what = &what;
    run.is_ended = false;
    run.idle = 0;
    run.ready.clear();
    gridDim = what.grid;
    blockDim = what.block;
    catch_signals(true);
    while (!run.is_ended && (next < count || !resident.empty())) {
        while (next < count && resident.size() < sim.machine.resident) {
            resident.push_back(block_start(next++));
        }
        if (run.ready.empty()) {
            stuck(resident);
            break;
        }
        fiber *f = pick();

        run_fiber(f);
        if (!run.is_ended && f->home->live == 0) {
            for (size_t i = 0; i < resident.size(); i++) {
                if (resident[i] == f->home) {
                    resident.erase(resident.begin() +
                                   static_cast<ptrdiff_t>(i));
                    break;
                }
            }
            block_end(f->home);
        }
    }
    catch_signals(false);
    for (block *b : resident) {
        block_end(b);
    }
    sectors_end_kernel();
    sim.launches++;
}

} // namespace gpusim
