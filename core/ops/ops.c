/* What the tables of ops/ speak of: its names, and what a segment has. */
#include "ops/clock.h"
#include "ops/device.h"
#include "ops/group.h"
#include "ops/kernels.h"
#include "ops/memory.h"
#include "ops/mover.h"
#include "ops/tokenizer.h"

const char *dyti_page_kind_name(enum dyti_page_kind kind)
{
    static const char *const name[DYTI_PAGES_COUNT] = {
        [DYTI_PAGES_HUGETLB] = "hugetlb 2 MiB",
        [DYTI_PAGES_THP] = "transparent 2 MiB",
        [DYTI_PAGES_4K] = "4 KiB",
        [DYTI_PAGES_VMM] = "device VMM",
        [DYTI_PAGES_IPC] = "device IPC"};

    return (uint32_t)kind < DYTI_PAGES_COUNT ? name[kind] : "?";
}

const char *dyti_memory_kind_name(enum dyti_memory_kind kind)
{
    static const char *const name[DYTI_MEMORY_KIND_COUNT] = {
        [DYTI_MEMORY_HOST] = "host",     [DYTI_MEMORY_PINNED] = "pinned",
        [DYTI_MEMORY_DEVICE] = "device", [DYTI_MEMORY_POOL] = "pool",
        [DYTI_MEMORY_MAPPED] = "mapped", [DYTI_MEMORY_MANAGED] = "managed"};

    return (uint32_t)kind < DYTI_MEMORY_KIND_COUNT ? name[kind] : "?";
}

const char *dyti_memory_way_name(enum dyti_memory_way way)
{
    switch (way) {
    case DYTI_MEMORY_WAY_FD:
        return "fd";
    case DYTI_MEMORY_WAY_IPC:
        return "ipc";
    default:
        return "none";
    }
}

const char *dyti_device_state_name(enum dyti_device_state state)
{
    static const char *const name[] = {
#define STATE_NAME(id, name) name,
        DYTI_DEVICE_STATE_MAP(STATE_NAME)
#undef STATE_NAME
    };

    return (uint32_t)state < DYTI_DEVICE_STATE_COUNT ? name[state] : "?";
}

enum dyt_status dyti_segment_has(const struct dyti_segment_mem *mem,
                                 uint64_t offset, uint64_t bytes)
{
    if (mem->base == NULL || offset > mem->bytes ||
        bytes > mem->bytes - offset) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "bytes %llu + %llu of a segment of %llu",
                         (unsigned long long)offset, (unsigned long long)bytes,
                         (unsigned long long)mem->bytes);
    }
    return DYT_OK;
}
