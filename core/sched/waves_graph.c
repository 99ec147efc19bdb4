/* Who waits for whom: an item may write when all others that read there have
 * read. */
#include "sched/waves_internal.h"

#include "base/array.h"

#include <stdlib.h>

void dyti_wave_graph_fini(struct dyti_wave_graph *g)
{
    free(g->reader);
    free(g->reader_first);
    free(g->first);
    free(g->waits);
    free(g->follow_first);
    free(g->follow);
    free(g->self);
    *g = (struct dyti_wave_graph){0};
}

static int by_lo(const void *a, const void *b)
{
    const struct dyti_wave_reader *x = a, *y = b;

    if (x->lo != y->lo) {
        return x->lo < y->lo ? -1 : 1;
    }
    return (x->item > y->item) - (x->item < y->item);
}

static enum dyt_status check_items(const struct dyti_wave_graph *g)
{
    for (size_t i = 0; i < g->count; i++) {
        const struct dyti_wave_item *it = &g->item[i];

        if (it->src_rank >= g->world_size || it->dst_rank >= g->world_size ||
            it->src_lo >= it->src_hi || it->dst_lo >= it->dst_hi ||
            it->staged_bytes == 0) {
            return DYTI_FAIL(DYT_ERR_INVALID,
                             "item %zu of rank %u to rank %u in a world of %u",
                             i, it->src_rank, it->dst_rank, g->world_size);
        }
    }
    return DYT_OK;
}

static void sort_readers(struct dyti_wave_graph *g)
{
    size_t at[2];

    for (size_t i = 0; i < g->count; i++) {
        g->reader_first[g->item[i].src_rank + 1]++;
    }
    for (uint32_t r = 0; r < g->world_size; r++) {
        g->reader_first[r + 1] += g->reader_first[r];
    }
    for (size_t i = g->count; i-- > 0;) { /* fills each rank from its end */
        const struct dyti_wave_item *it = &g->item[i];

        g->reader[--g->reader_first[it->src_rank + 1]] =
            (struct dyti_wave_reader){
                .lo = it->src_lo, .hi = it->src_hi, .item = (uint32_t)i};
    }
    /* now reader_first[r + 1] is where rank r begins */
    for (uint32_t r = 0; r < g->world_size; r++) {
        g->reader_first[r] = g->reader_first[r + 1];
    }
    g->reader_first[g->world_size] = g->count;
    for (uint32_t r = 0; r < g->world_size; r++) {
        uint64_t reach = 0;

        at[0] = g->reader_first[r];
        at[1] = g->reader_first[r + 1];
        qsort(g->reader + at[0], at[1] - at[0], sizeof(*g->reader), by_lo);
        for (size_t i = at[0]; i < at[1]; i++) {
            reach = g->reader[i].hi > reach ? g->reader[i].hi : reach;
            g->reader[i].reach = reach;
        }
    }
}

/* First reader of [from, to) whose lo is not below `lo`. */
static size_t lower(const struct dyti_wave_graph *g, size_t from, size_t to,
                    uint64_t lo)
{
    while (from < to) {
        size_t mid = from + (to - from) / 2;

        if (g->reader[mid].lo < lo) {
            from = mid + 1;
        } else {
            to = mid;
        }
    }
    return from;
}

static enum dyt_status add_waits(struct dyti_wave_graph *g, uint32_t i)
{
    const struct dyti_wave_item *it = &g->item[i];
    size_t lo = g->reader_first[it->dst_rank];
    size_t at = lower(g, lo, g->reader_first[it->dst_rank + 1], it->dst_hi);

    g->first[i] = g->edge_count;
    while (at-- > lo && g->reader[at].reach > it->dst_lo) {
        enum dyt_status st;

        if (g->reader[at].hi <= it->dst_lo) {
            continue;
        }
        if (g->reader[at].item == i) {
            g->self[i] = true;
            continue;
        }
        st = DYTI_GROW(g->waits, g->edge_cap, g->edge_count + 1);
        if (st != DYT_OK) {
            return st;
        }
        g->waits[g->edge_count++] = g->reader[at].item;
    }
    return DYT_OK;
}

static enum dyt_status add_followers(struct dyti_wave_graph *g)
{
    g->follow = calloc(g->edge_count + 1, sizeof(*g->follow));
    if (g->follow == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu waits", g->edge_count);
    }
    for (size_t e = 0; e < g->edge_count; e++) {
        g->follow_first[g->waits[e] + 1]++;
    }
    for (size_t i = 0; i < g->count; i++) {
        g->follow_first[i + 1] += g->follow_first[i];
    }
    for (size_t i = g->count; i-- > 0;) {
        for (size_t e = g->first[i]; e < g->first[i + 1]; e++) {
            g->follow[--g->follow_first[g->waits[e] + 1]] = (uint32_t)i;
        }
    }
    for (size_t i = 0; i < g->count; i++) {
        g->follow_first[i] = g->follow_first[i + 1];
    }
    g->follow_first[g->count] = g->edge_count;
    return DYT_OK;
}

enum dyt_status dyti_wave_graph_init(struct dyti_wave_graph *g,
                                     const struct dyti_wave_item *item,
                                     size_t count, uint32_t world_size)
{
    enum dyt_status st;

    *g = (struct dyti_wave_graph){
        .item = item, .count = count, .world_size = world_size};
    g->reader = calloc(count + 1, sizeof(*g->reader));
    g->reader_first = calloc((size_t)world_size + 1, sizeof(size_t));
    g->first = calloc(count + 1, sizeof(*g->first));
    g->follow_first = calloc(count + 1, sizeof(*g->follow_first));
    g->self = calloc(count + 1, sizeof(*g->self));
    if (g->reader == NULL || g->reader_first == NULL || g->first == NULL ||
        g->follow_first == NULL || g->self == NULL || count > UINT32_MAX) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "waves of %zu items", count);
        goto out;
    }
    st = check_items(g);
    if (st != DYT_OK) {
        goto out;
    }
    sort_readers(g);
    for (uint32_t i = 0; i < count && st == DYT_OK; i++) {
        st = add_waits(g, i);
    }
    g->first[count] = g->edge_count;
    st = st != DYT_OK ? st : add_followers(g);
out:
    if (st != DYT_OK) {
        dyti_wave_graph_fini(g);
    }
    return st;
}
