/* Where the extents of a member are in this process. */
#include "lib/link_internal.h"

#include "base/array.h"

#include <stdlib.h>
#include <sys/mman.h>

static bool travels(const struct dyti_extent *extent, uint32_t kinds)
{
    return extent->kind < DYTI_KIND_COUNT && (kinds >> extent->kind & 1u) != 0;
}

bool dyti_reach_can(const struct dyti_memory_view *memory,
                    const struct dyti_memory_view *by, uint32_t kinds)
{
    if (memory->pid == by->pid && memory->pid_start == by->pid_start) {
        return true;
    }
    for (uint32_t i = 0; i < memory->extent_count; i++) {
        if (travels(&memory->extent[i], kinds) && memory->extent[i].fd < 0) {
            return false;
        }
    }
    return true;
}

bool dyti_memory_view_is_shared(const struct dyti_memory_view *memory)
{
    for (uint32_t i = 0; i < memory->extent_count; i++) {
        if (memory->extent[i].fd < 0) {
            return false;
        }
    }
    return true;
}

/* One mapping for all extents of the descriptor of extent `first`. */
static enum dyt_status map_fd(struct dyti_reach *reach, uint32_t first,
                              uint32_t kinds, bool writes, bool only_lost,
                              struct dyti_guard *guard)
{
    const struct dyti_memory_view *memory = reach->memory;
    const struct dyti_extent *of = &memory->extent[first];
    struct dyti_process_fd fd = {.pid = memory->pid,
                                 .pid_start = memory->pid_start,
                                 .fd = of->fd,
                                 .device = of->device,
                                 .inode = of->inode};
    uint64_t lo = UINT64_MAX, hi = 0;
    struct dyti_reach_mapping mapping = {0};
    unsigned char *at = NULL;
    enum dyt_status st =
        DYTI_GROW(reach->mapping, reach->mapping_cap, reach->mapping_count + 1);

    for (uint32_t i = first; i < memory->extent_count; i++) {
        const struct dyti_extent *e = &memory->extent[i];

        if (e->fd == of->fd && travels(e, kinds) &&
            (!only_lost || e->address == 0)) {
            lo = e->fd_offset < lo ? e->fd_offset : lo;
            hi = e->fd_offset + e->bytes > hi ? e->fd_offset + e->bytes : hi;
        }
    }
    if (st == DYT_OK) {
        st = dyti_process_map(&fd, lo, hi, writes, guard, memory, &mapping.base,
                              &mapping.bytes, &at);
    }
    if (st != DYT_OK) {
        DYTI_NOTE("reaching tensor %s",
                  dyti_guard_tensor(guard, memory, of->fd, of->fd_offset));
        return st;
    }
    reach->mapping[reach->mapping_count++] = mapping;
    for (uint32_t i = first; i < memory->extent_count; i++) {
        const struct dyti_extent *e = &memory->extent[i];

        if (e->fd == of->fd && travels(e, kinds) &&
            (!only_lost || e->address == 0)) {
            reach->here[i] = at + (e->fd_offset - lo);
        }
    }
    return DYT_OK;
}

static enum dyt_status reach_extent(struct dyti_reach *reach, uint32_t index,
                                    uint32_t kinds, bool writes, bool is_own,
                                    struct dyti_guard *guard)
{
    const struct dyti_extent *e = &reach->memory->extent[index];

    if (!travels(e, kinds) || reach->here[index] != NULL) {
        return DYT_OK;
    }
    if (is_own && e->address != 0) {
        reach->here[index] = (unsigned char *)(uintptr_t)e->address;
        return e->fd < 0
                   ? DYT_OK
                   : dyti_guard_add(guard, reach->here[index], e->bytes, e->fd,
                                    e->fd_offset, reach->memory, e->fd);
    }
    if (e->fd < 0) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "%llu bytes of %s of process %u are private to it",
                         (unsigned long long)e->bytes,
                         dyti_kind_name((enum dyti_kind)e->kind),
                         reach->memory->pid);
    }
    return map_fd(reach, index, kinds, writes, is_own, guard);
}

static enum dyt_status count_kinds(struct dyti_reach *reach)
{
    const struct dyti_memory_view *memory = reach->memory;
    uint32_t at = 0;

    for (uint32_t kind = 0; kind < DYTI_KIND_COUNT; kind++) {
        reach->first[kind] = at;
        while (at < memory->extent_count && memory->extent[at].kind == kind) {
            at++;
        }
    }
    reach->first[DYTI_KIND_COUNT] = at;
    for (uint32_t i = 0; i + 1 < memory->extent_count; i++) {
        const struct dyti_extent *a = &memory->extent[i], *b = a + 1;

        if (a->kind == b->kind && a->offset + a->bytes > b->offset) {
            return DYTI_FAIL(DYT_ERR_INVALID,
                             "extents %u and %u of process %u overlap", i,
                             i + 1, memory->pid);
        }
    }
    return at == memory->extent_count
               ? DYT_OK
               : DYTI_FAIL(DYT_ERR_INVALID,
                           "extent %u of process %u is out of order", at,
                           memory->pid);
}

enum dyt_status dyti_reach_init(struct dyti_reach *reach,
                                const struct dyti_memory_view *memory,
                                uint32_t kinds, bool writes,
                                struct dyti_guard *guard)
{
    bool is_own = dyti_process_is_self(memory->pid, memory->pid_start);
    enum dyt_status st;

    *reach = (struct dyti_reach){.memory = memory};
    reach->here =
        calloc((size_t)memory->extent_count + 1, sizeof(*reach->here));
    st = reach->here == NULL
             ? DYTI_FAIL(DYT_ERR_NOMEM, "%u extents", memory->extent_count)
             : count_kinds(reach);
    for (uint32_t i = 0; i < memory->extent_count && st == DYT_OK; i++) {
        st = reach_extent(reach, i, kinds, writes, is_own, guard);
    }
    if (st != DYT_OK) {
        dyti_reach_fini(reach);
    }
    return st;
}

enum dyt_status dyti_reach_borrow(struct dyti_reach *reach,
                                  const struct dyti_memory_view *memory,
                                  uint32_t kinds,
                                  const struct dyti_memory_ops *lender,
                                  const struct dyti_memory_loan *loan)
{
    size_t room = (size_t)memory->extent_count + 1;
    enum dyt_status st;

    *reach = (struct dyti_reach){.memory = memory, .lender = lender};
    reach->here = calloc(room, sizeof(*reach->here));
    reach->borrowed = calloc(room, sizeof(*reach->borrowed));
    st = reach->here == NULL || reach->borrowed == NULL
             ? DYTI_FAIL(DYT_ERR_NOMEM, "%u extents", memory->extent_count)
             : count_kinds(reach);
    for (uint32_t i = 0; i < memory->extent_count && st == DYT_OK; i++) {
        if (travels(&memory->extent[i], kinds)) {
            st = lender->borrow(&loan[i], &reach->borrowed[i]);
            reach->here[i] = reach->borrowed[i].ptr;
        }
    }
    if (st != DYT_OK) {
        dyti_reach_fini(reach);
    }
    return st;
}

void dyti_reach_fini(struct dyti_reach *reach)
{
    for (uint32_t i = 0;
         reach->borrowed != NULL && i < reach->memory->extent_count; i++) {
        reach->lender->give_back(&reach->borrowed[i]);
    }
    free(reach->borrowed);
    for (size_t i = 0; i < reach->mapping_count; i++) {
        (void)munmap(reach->mapping[i].base, reach->mapping[i].bytes);
    }
    free(reach->mapping);
    free(reach->here);
    *reach = (struct dyti_reach){0};
}

unsigned char *dyti_reach_address(const struct dyti_reach *reach, uint32_t kind,
                                  uint64_t offset)
{
    const struct dyti_extent *extent;
    uint32_t lo, hi;

    if (reach->memory == NULL || reach->first[kind] == reach->first[kind + 1]) {
        return NULL;
    }
    extent = reach->memory->extent;
    lo = reach->first[kind];
    hi = reach->first[kind + 1];
    while (hi - lo > 1) {
        uint32_t mid = lo + (hi - lo) / 2;

        if (extent[mid].offset <= offset) {
            lo = mid;
        } else {
            hi = mid;
        }
    }
    if (reach->here[lo] == NULL || offset < extent[lo].offset ||
        offset - extent[lo].offset > extent[lo].bytes) {
        return NULL;
    }
    return reach->here[lo] + (offset - extent[lo].offset);
}
