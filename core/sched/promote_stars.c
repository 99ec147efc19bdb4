/* Scatters and gathers: one hub whose spokes deal with nobody else. */
#include "sched/promote_internal.h"

#include <stdlib.h>

/* What is left between two ranks. */
struct pair {
    uint32_t wave, hub, spoke; /* hub: who may be the root */
    uint64_t bytes;
    uint32_t item_first, item_count; /* in the order that was sorted for it */
};

/* Pairs of what is left; spokes: how many hubs each spoke has. */
static enum dyt_status find_pairs(const struct dyti_promote_search *s,
                                  bool scatter, size_t n, struct pair *pair,
                                  size_t *out_count)
{
    size_t count = 0;

    for (size_t i = 0; i < n; i++) {
        const struct dyti_promotable *p = &s->item[s->sorted[i]];
        uint32_t hub = scatter ? p->src : p->dst;
        uint32_t spoke = scatter ? p->dst : p->src;
        struct pair *last = count > 0 ? &pair[count - 1] : NULL;

        if (last == NULL || last->wave != p->wave || last->hub != hub ||
            last->spoke != spoke) {
            last = &pair[count++];
            *last = (struct pair){.wave = p->wave,
                                  .hub = hub,
                                  .spoke = spoke,
                                  .item_first = (uint32_t)i};
        }
        last->bytes += p->bytes;
        last->item_count++;
    }
    *out_count = count;
    return DYT_OK;
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* Does the spoke deal with this hub alone, in this wave? `ends`: wave << 32 |
 * spoke of all pairs, sorted. */
static bool lonely(const uint64_t *ends, size_t count, const struct pair *p)
{
    uint64_t key = (uint64_t)p->wave << 32 | p->spoke;
    size_t lo = 0, hi = count;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (ends[mid] < key) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo + 1 >= count || ends[lo + 1] != key;
}

/* Pairs [i, end) of one hub: a collective of all of them, if they are equal. */
static enum dyt_status emit_star(struct dyti_promote_search *s,
                                 enum dyti_collective_kind kind,
                                 const struct pair *pair, size_t count)
{
    struct dyti_promote_group g = {.wave = pair[0].wave,
                                   .root = pair[0].hub,
                                   .member_count = (uint32_t)count + 1};
    uint32_t *member = malloc((count + 1) * sizeof(*member));
    bool root_in = false;
    size_t n = 0;
    enum dyt_status st;

    if (member == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu ranks", count);
    }
    for (size_t i = 0; i < count; i++) {
        if (!root_in && pair[i].spoke > g.root) {
            member[n++] = g.root;
            root_in = true;
        }
        member[n++] = pair[i].spoke;
    }
    if (!root_in) {
        member[n++] = g.root;
    }
    st = dyti_promote_begin(s, kind, &g, pair[0].bytes, member);
    for (size_t i = 0; i < count && st == DYT_OK; i++) {
        st = dyti_promote_take(s, pair[i].item_first, pair[i].item_count);
    }
    free(member);
    return st;
}

enum dyt_status dyti_promote_stars(struct dyti_promote_search *s,
                                   enum dyti_collective_kind kind)
{
    bool scatter = kind == DYTI_COLLECTIVE_SCATTER;
    struct pair *pair = malloc((s->count + 1) * sizeof(*pair));
    uint64_t *ends = malloc((s->count + 1) * sizeof(*ends));
    size_t n = 0, pairs = 0, end;
    enum dyt_status st = DYT_OK;

    if (pair == NULL || ends == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "%zu transfers", s->count);
        goto out;
    }
    st = dyti_promote_sort(
        s, scatter ? DYTI_PROMOTE_BY_SOURCE : DYTI_PROMOTE_BY_DESTINATION, &n);
    st = st != DYT_OK ? st : find_pairs(s, scatter, n, pair, &pairs);
    for (size_t i = 0; i < pairs; i++) {
        ends[i] = (uint64_t)pair[i].wave << 32 | pair[i].spoke;
    }
    if (pairs > 1) {
        qsort(ends, pairs, sizeof(*ends), compare_u64);
    }
    for (size_t i = 0; i < pairs && st == DYT_OK; i = end) {
        bool equal = pair[i].bytes >= s->options.min_bytes;

        for (end = i; end < pairs && pair[end].wave == pair[i].wave &&
                      pair[end].hub == pair[i].hub;
             end++) {
            equal = equal && pair[end].bytes == pair[i].bytes &&
                    lonely(ends, pairs, &pair[end]);
        }
        if (equal && end - i + 1 >= s->options.least) {
            st = emit_star(s, kind, &pair[i], end - i);
        }
    }
out:
    free(pair);
    free(ends);
    return st;
}
