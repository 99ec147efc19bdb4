/* Segments of host memory: answers "where do a rank's bytes live, so that its
 * peers can map them?"  A segment is a memfd, in reserved 2 MiB pages if the
 * system has enough of them, else in shmem with huge pages asked for, else in
 * 4 KiB pages.  Hugetlb memory is reserved when a segment gets its size, so a
 * page fault can never kill a process later. */
#include "device/host/memory.h"

#include "device/host/loan.h"

#include "base/checked.h"
#include "base/errno_text.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define HUGE_BYTES (2u << 20)
#define MIB        (1u << 20)

#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21u << 26)
#endif

/* ---- what the system has to give --------------------------------------- */

/* "key: 123 kB" of /proc/meminfo or a bare number of a cgroup file; false: not
 * there, or no limit. */
static bool read_number(const char *path, const char *key, uint64_t *out_value)
{
    char line[256];
    bool found = false;
    FILE *file = fopen(path, "re");

    if (file == NULL) {
        return false;
    }
    while (!found && fgets(line, sizeof(line), file) != NULL) {
        size_t skip = key == NULL ? 0 : strlen(key);
        char *end = NULL;
        unsigned long long value;

        if (skip > 0 && strncmp(line, key, skip) != 0) {
            continue;
        }
        errno = 0;
        value = strtoull(line + skip, &end, 10);
        if (errno == 0 && end != line + skip) {
            *out_value = value;
            found = true;
        } else if (key == NULL) {
            break;
        }
    }
    (void)fclose(file);
    return found;
}

/* Bytes that can still be touched, as far as the system tells. */
static uint64_t available_bytes(void)
{
    uint64_t host = UINT64_MAX, limit = 0, used = 0;

    if (read_number("/proc/meminfo", "MemAvailable:", &host)) {
        host *= 1024u;
    }
    if (read_number("/sys/fs/cgroup/memory.max", NULL, &limit) &&
        read_number("/sys/fs/cgroup/memory.current", NULL, &used)) {
        uint64_t left = limit > used ? limit - used : 0;

        host = left < host ? left : host;
    }
    return host;
}

static uint64_t host_available(enum dyti_page_kind pages)
{
    uint64_t free_pages = 0;

    if (!dyti_pages_are_host(pages)) {
        return 0;
    }
    if (pages != DYTI_PAGES_HUGETLB) {
        return available_bytes();
    }
    (void)read_number("/proc/meminfo", "HugePages_Free:", &free_pages);
    return free_pages * HUGE_BYTES;
}

/* ---- segments ------------------------------------------------------------ */

static enum dyt_status host_create(const char *name, enum dyti_page_kind pages,
                                   int *out_handle)
{
    unsigned flags =
        MFD_ALLOW_SEALING |
        (pages == DYTI_PAGES_HUGETLB ? MFD_HUGETLB | MFD_HUGE_2MB : 0);
    int handle;

    if (!dyti_pages_are_host(pages)) {
        return DYTI_FAIL(DYT_ERR_INVALID, "segment %s: page kind %d", name,
                         (int)pages);
    }
    /* Not close-on-exec: workers inherit the segments of their host. */
    handle = memfd_create(name, flags);
    if (handle < 0) {
        return DYTI_FAIL(errno == ENOMEM ? DYT_ERR_NOMEM : DYT_ERR_IO,
                         "segment %s in pages of %s: %s", name,
                         dyti_page_kind_name(pages), dyti_errno_text(errno));
    }
    *out_handle = handle;
    return DYT_OK;
}

/* Reserved pages belong to the file once it has been mapped, and stay after
 * munmap: mapping fails here, or no fault fails later. */
static enum dyt_status reserve_huge(int handle, uint64_t offset, uint64_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, handle,
                    (off_t)offset);
    uint64_t free_pages = 0;

    if (at != MAP_FAILED) {
        (void)munmap(at, bytes);
        return DYT_OK;
    }
    (void)read_number("/proc/meminfo", "HugePages_Free:", &free_pages);
    return DYTI_FAIL(DYT_ERR_NOMEM,
                     "%llu MiB in reserved 2 MiB pages, %llu MiB are free: "
                     "raise vm.nr_hugepages, or use other pages",
                     (unsigned long long)(bytes / MIB),
                     (unsigned long long)(free_pages * 2u));
}

static enum dyt_status host_resize(int handle, enum dyti_page_kind pages,
                                   uint64_t bytes, const uint64_t *part,
                                   uint32_t count)
{
    uint64_t have;
    struct stat info;
    enum dyt_status st;

    (void)part; /* pages come and go one by one */
    (void)count;
    if (!dyti_pages_are_host(pages) || bytes == 0 ||
        bytes > INT64_MAX - HUGE_BYTES) {
        return DYTI_FAIL(DYT_ERR_INVALID, "segment of %llu bytes, page kind %d",
                         (unsigned long long)bytes, (int)pages);
    }
    bytes = dyti_align_up(bytes, HUGE_BYTES);
    if (fstat(handle, &info) != 0) {
        return DYTI_FAIL(DYT_ERR_IO, "segment handle %d: %s", handle,
                         strerror(errno));
    }
    if (info.st_size != 0) {
        return DYTI_FAIL(DYT_ERR_STATE,
                         "segment handle %d already has its size of %llu MiB",
                         handle, (unsigned long long)info.st_size / MIB);
    }
    if (pages != DYTI_PAGES_HUGETLB) {
        have = available_bytes();
        if (bytes > have) {
            return DYTI_FAIL(DYT_ERR_NOMEM,
                             "segment of %llu MiB, %llu MiB are available",
                             (unsigned long long)(bytes / MIB),
                             (unsigned long long)(have / MIB));
        }
    }
    if (ftruncate(handle, (off_t)bytes) != 0) {
        return DYTI_FAIL(errno == EINVAL ? DYT_ERR_IO : DYT_ERR_NOMEM,
                         "segment of %llu MiB: %s",
                         (unsigned long long)(bytes / MIB),
                         dyti_errno_text(errno));
    }
    if (pages == DYTI_PAGES_HUGETLB) {
        st = reserve_huge(handle, 0, bytes);
        if (st != DYT_OK) {
            (void)ftruncate(handle, 0);
            return st;
        }
    }
    /* For ever: who maps it never meets SIGBUS, whatever others do.  Pages are
     * given back by holes. */
    return fcntl(handle, F_ADD_SEALS, F_SEAL_SHRINK) == 0
               ? DYT_OK
               : DYTI_FAIL(DYT_ERR_IO, "keeping the size of segment %d: %s",
                           handle, strerror(errno));
}

/* Room for `bytes` at a multiple of 2 MiB: take more, cut off the ends. */
static void *reserve_addresses(uint64_t bytes)
{
    uint64_t wide = bytes + HUGE_BYTES, head;
    unsigned char *raw =
        mmap(NULL, wide, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
             -1, 0);

    if (raw == MAP_FAILED) {
        return NULL;
    }
    head = (HUGE_BYTES - (uintptr_t)raw % HUGE_BYTES) % HUGE_BYTES;
    if (head > 0) {
        (void)munmap(raw, head);
    }
    (void)munmap(raw + head + bytes, HUGE_BYTES - head);
    return raw + head;
}

static enum dyt_status host_map(int handle, enum dyti_page_kind pages,
                                uint64_t bytes,
                                struct dyti_segment_mem *out_mem)
{
    struct stat info;
    void *room, *base;

    if (!dyti_pages_are_host(pages) || bytes == 0 ||
        bytes > INT64_MAX - HUGE_BYTES) {
        return DYTI_FAIL(DYT_ERR_INVALID, "mapping %llu bytes, page kind %d",
                         (unsigned long long)bytes, (int)pages);
    }
    bytes = dyti_align_up(bytes, HUGE_BYTES);
    if (fstat(handle, &info) != 0) {
        return DYTI_FAIL(DYT_ERR_IO, "segment handle %d: %s", handle,
                         strerror(errno));
    }
    if ((uint64_t)info.st_size < bytes) { /* touching it would be SIGBUS */
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "segment handle %d has %llu MiB, %llu MiB wanted",
                         handle, (unsigned long long)info.st_size / MIB,
                         (unsigned long long)(bytes / MIB));
    }
    room = reserve_addresses(bytes);
    if (room == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "addresses for %llu MiB: %s",
                         (unsigned long long)(bytes / MIB), strerror(errno));
    }
    base = mmap(room, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                handle, 0);
    if (base == MAP_FAILED) {
        enum dyt_status st =
            DYTI_FAIL(DYT_ERR_NOMEM, "mapping %llu MiB in pages of %s: %s",
                      (unsigned long long)(bytes / MIB),
                      dyti_page_kind_name(pages), strerror(errno));

        (void)munmap(room, bytes);
        return st;
    }
    if (pages != DYTI_PAGES_HUGETLB) { /* a wish: 4 KiB pages work as well */
        (void)madvise(base, bytes,
                      pages == DYTI_PAGES_THP ? MADV_HUGEPAGE
                                              : MADV_NOHUGEPAGE);
    }
    *out_mem = (struct dyti_segment_mem){
        .base = base, .bytes = bytes, .handle = handle, .pages = pages};
    return DYT_OK;
}

static void host_unmap(struct dyti_segment_mem *mem)
{
    if (mem->base != NULL) {
        (void)munmap(mem->base, mem->bytes);
        mem->base = NULL;
    }
}

static void host_close(int handle)
{
    if (handle >= 0) {
        (void)close(handle);
    }
}

static enum dyt_status host_touched(const struct dyti_segment_mem *mem,
                                    uint64_t offset, uint64_t bytes,
                                    uint64_t *out_bytes)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    unsigned char resident[4096];
    uint64_t lo, hi, sum = 0;
    enum dyt_status st = dyti_segment_has(mem, offset, bytes);

    if (st != DYT_OK) {
        return st;
    }
    lo = offset / page * page;
    hi = bytes == 0 ? lo : dyti_align_up(offset + bytes, page);
    while (lo < hi) {
        uint64_t pages = (hi - lo) / page;

        pages = pages < sizeof(resident) ? pages : sizeof(resident);
        if (mincore((unsigned char *)mem->base + lo, pages * page, resident) !=
            0) {
            return DYTI_FAIL(DYT_ERR_IO, "asking which pages are resident: %s",
                             strerror(errno));
        }
        for (uint64_t i = 0; i < pages; i++) {
            sum += (resident[i] & 1u) ? page : 0;
        }
        lo += pages * page;
    }
    *out_bytes = sum < bytes ? sum : bytes;
    return DYT_OK;
}

/* Pages that are partly in the range keep their memory and are zeroed there. */
static enum dyt_status host_drop(struct dyti_segment_mem *mem, uint64_t offset,
                                 uint64_t bytes)
{
    enum dyt_status st = dyti_segment_has(mem, offset, bytes);
    uint64_t lo, hi;

    if (st != DYT_OK || bytes == 0) {
        return st;
    }
    if (fallocate(mem->handle, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  (off_t)offset, (off_t)bytes) != 0) {
        return DYTI_FAIL(DYT_ERR_IO, "giving %llu MiB of a segment back: %s",
                         (unsigned long long)(bytes / MIB), strerror(errno));
    }
    /* A hole takes the reservation with it: without it the next touch could be
     * SIGBUS. */
    lo = dyti_align_up(offset, HUGE_BYTES);
    hi = (offset + bytes) / HUGE_BYTES * HUGE_BYTES;
    if (mem->pages == DYTI_PAGES_HUGETLB && lo < hi) {
        return reserve_huge(mem->handle, lo, hi - lo);
    }
    return DYT_OK;
}

/* What slept is there as it is touched. */
static enum dyt_status host_wake(struct dyti_segment_mem *mem, uint64_t offset,
                                 uint64_t bytes)
{
    return dyti_segment_has(mem, offset, bytes);
}

static enum dyt_status host_refresh(struct dyti_segment_mem *mem)
{
    (void)mem;
    return DYT_OK;
}

/* ---- what devices have more of -------------------------------------------
 */

static enum dyt_status host_alloc(uint64_t bytes, void **out_ptr)
{
    void *at = bytes == 0 || bytes > INT64_MAX - HUGE_BYTES
                   ? NULL
                   : aligned_alloc(4096, dyti_align_up(bytes, 4096));

    if (at == NULL) {
        return DYTI_FAIL(bytes == 0 ? DYT_ERR_INVALID : DYT_ERR_NOMEM,
                         "%llu bytes of host memory",
                         (unsigned long long)bytes);
    }
    *out_ptr = at;
    return DYT_OK;
}

static void host_free(void *ptr)
{
    free(ptr);
}

/* Everything is in reach. */
static enum dyt_status host_pin(void *ptr, uint64_t bytes)
{
    return ptr == NULL || bytes == 0
               ? DYTI_FAIL(DYT_ERR_INVALID, "pinning %llu bytes at %p",
                           (unsigned long long)bytes, ptr)
               : DYT_OK;
}

static void host_unpin(void *ptr)
{
    (void)ptr;
}

static enum dyt_status host_use(const char *device)
{
    (void)device;
    return DYT_OK;
}

static enum dyt_status host_look(const void *ptr, uint64_t bytes,
                                 struct dyti_memory_look *out_look)
{
    if (ptr == NULL || bytes == 0) {
        return DYTI_FAIL(DYT_ERR_INVALID, "looking at %llu bytes at %p",
                         (unsigned long long)bytes, ptr);
    }
    *out_look = (struct dyti_memory_look){
        .kind = DYTI_MEMORY_HOST,
        .why = "memory of the host is shared by its own means"};
    return DYT_OK;
}

/* ---- which pages --------------------------------------------------------- */

/* Touch one byte: a huge page makes its neighbours resident too. */
static bool thp_works(void)
{
    struct dyti_segment_mem mem = {0};
    uint64_t touched = 0;
    int handle = -1;
    bool works = false;

    if (host_create("dynatrain-probe", DYTI_PAGES_THP, &handle) != DYT_OK) {
        return false;
    }
    if (host_resize(handle, DYTI_PAGES_THP, HUGE_BYTES, NULL, 0) == DYT_OK &&
        host_map(handle, DYTI_PAGES_THP, HUGE_BYTES, &mem) == DYT_OK) {
        *(volatile unsigned char *)mem.base = 1;
        works = host_touched(&mem, 0, HUGE_BYTES, &touched) == DYT_OK &&
                touched == HUGE_BYTES;
    }
    host_unmap(&mem);
    host_close(handle);
    return works;
}

static bool hugetlb_works(uint64_t bytes)
{
    int handle = -1;
    bool works;

    if (host_create("dynatrain-probe", DYTI_PAGES_HUGETLB, &handle) != DYT_OK) {
        return false;
    }
    works = host_resize(handle, DYTI_PAGES_HUGETLB, bytes, NULL, 0) == DYT_OK;
    host_close(handle);
    return works;
}

static enum dyti_page_kind host_probe(uint64_t bytes)
{
    uint64_t want = bytes == 0 ? HUGE_BYTES : bytes;

    if (hugetlb_works(want)) {
        return DYTI_PAGES_HUGETLB;
    }
    return thp_works() ? DYTI_PAGES_THP : DYTI_PAGES_4K;
}

/* How many reserved ones are left is another question. */
static bool host_has(enum dyti_page_kind pages)
{
    int handle = -1;

    if (!dyti_pages_are_host(pages) ||
        host_create("dynatrain-probe", pages, &handle) != DYT_OK) {
        return false;
    }
    host_close(handle);
    return true;
}

const struct dyti_memory_ops dyti_memory_host = {
    .struct_size = sizeof(struct dyti_memory_ops),
    .name = "host",
    .probe = host_probe,
    .has = host_has,
    .create = host_create,
    .resize = host_resize,
    .map = host_map,
    .unmap = host_unmap,
    .close = host_close,
    .touched = host_touched,
    .drop = host_drop,
    .wake = host_wake,
    .refresh = host_refresh,
    .available = host_available,
    .host_alloc = host_alloc,
    .host_free = host_free,
    .use = host_use,
    .look = host_look,
    .host_pin = host_pin,
    .host_unpin = host_unpin,
    .lend = dyti_host_lend,
    .lend_piece = dyti_host_lend_piece,
    .borrow = dyti_host_borrow,
    .borrow_piece = dyti_host_borrow_piece,
    .give_back = dyti_host_give_back,
    .reaches = dyti_host_reaches,
};
