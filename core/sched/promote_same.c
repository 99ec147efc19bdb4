/* Broadcasts and all-gathers: contents that go to the same ranks. */
#include "base/array.h"
#include "sched/promote_internal.h"

#include <stdlib.h>

/* The ranks of a group, rising, the root among them. */
static enum dyt_status add_group(struct dyti_promote_search *s,
                                 struct dyti_promote_group g)
{
    bool root_in = false;
    enum dyt_status st = DYTI_GROW(s->group, s->group_cap, s->group_count + 1);

    st = st != DYT_OK ? st
                      : DYTI_GROW(s->member, s->member_cap,
                                  s->member_count + g.item_count + 1);
    if (st != DYT_OK) {
        return st;
    }
    g.member_first = (uint32_t)s->member_count;
    for (uint32_t i = 0; i < g.item_count; i++) {
        uint32_t dst = s->item[s->sorted[g.item_first + i]].dst;

        if (!root_in && dst > g.root) {
            s->member[s->member_count++] = g.root;
            root_in = true;
        }
        s->member[s->member_count++] = dst;
    }
    if (!root_in) {
        s->member[s->member_count++] = g.root;
    }
    g.member_count = g.item_count + 1;
    s->group[s->group_count++] = g;
    return DYT_OK;
}

static enum dyt_status find_groups(struct dyti_promote_search *s, size_t n)
{
    enum dyt_status st = DYT_OK;
    size_t end;

    for (size_t i = 0; i < n && st == DYT_OK; i = end) {
        const struct dyti_promotable *a = &s->item[s->sorted[i]];
        struct dyti_promote_group g = {.wave = a->wave,
                                       .root = a->src,
                                       .item_first = (uint32_t)i,
                                       .bytes = a->bytes};
        bool same = true;

        for (end = i; end < n; end++) {
            const struct dyti_promotable *b = &s->item[s->sorted[end]];

            if (b->wave != a->wave || b->src != a->src ||
                b->content != a->content) {
                break;
            }
            if (end > i && s->item[s->sorted[end - 1]].dst == b->dst) {
                return DYTI_FAIL(DYT_ERR_INVALID,
                                 "rank %u sends rank %u the same content %llx "
                                 "twice",
                                 b->src, b->dst,
                                 (unsigned long long)b->content);
            }
            same = same && b->bytes == a->bytes;
        }
        g.item_count = (uint32_t)(end - i);
        if (same && g.item_count + 1 >= s->options.least &&
            g.bytes >= s->options.min_bytes) {
            st = add_group(s, g);
        }
    }
    return st;
}

static int compare_members(const struct dyti_promote_group *x,
                           const struct dyti_promote_group *y)
{
    if (x->wave != y->wave) {
        return x->wave < y->wave ? -1 : 1;
    }
    if (x->member_count != y->member_count) {
        return x->member_count < y->member_count ? -1 : 1;
    }
    for (uint32_t i = 0; i < x->member_count; i++) {
        if (x->members[i] != y->members[i]) {
            return x->members[i] < y->members[i] ? -1 : 1;
        }
    }
    return 0;
}

static int compare_group(const void *a, const void *b)
{
    const struct dyti_promote_group *x = a, *y = b;
    int c = compare_members(x, y);

    if (c != 0) {
        return c;
    }
    if (x->root != y->root) {
        return x->root < y->root ? -1 : 1;
    }
    return (x->item_first > y->item_first) - (x->item_first < y->item_first);
}

/* Groups [i, end) have the same members: is each a root, of as many bytes? */
static bool is_all_gather(const struct dyti_promote_group *g, size_t i,
                          size_t end, uint64_t *out_bytes)
{
    uint64_t first = 0, sum = 0;
    uint32_t roots = 0;

    for (size_t k = i; k < end; k++) {
        sum += g[k].bytes;
        if (k + 1 == end || g[k + 1].root != g[k].root) {
            if (roots > 0 && sum != first) {
                return false;
            }
            first = sum;
            sum = 0;
            roots++;
        }
    }
    *out_bytes = first;
    return roots == g[i].member_count;
}

static enum dyt_status emit_groups(struct dyti_promote_search *s)
{
    enum dyt_status st = DYT_OK;
    struct dyti_promote_group *g = s->group;
    size_t end;

    for (size_t i = 0; i < s->group_count; i++) {
        g[i].members = s->member + g[i].member_first;
    }
    if (s->group_count > 1) {
        qsort(g, s->group_count, sizeof(*g), compare_group);
    }
    for (size_t i = 0; i < s->group_count && st == DYT_OK; i = end) {
        uint64_t bytes = 0;
        bool all;

        for (end = i + 1;
             end < s->group_count && compare_members(&g[i], &g[end]) == 0;
             end++) {
        }
        all = dyti_promote_wants(s, DYTI_COLLECTIVE_ALL_GATHER) &&
              is_all_gather(g, i, end, &bytes);
        for (size_t k = i; k < end && st == DYT_OK; k++) {
            if (!all && !dyti_promote_wants(s, DYTI_COLLECTIVE_BROADCAST)) {
                break;
            }
            if (k == i || (!all && g[k].root != g[k - 1].root)) {
                struct dyti_promote_group head = g[k];

                head.root = all ? g[k].members[0] : g[k].root;
                st = dyti_promote_begin(s,
                                        all ? DYTI_COLLECTIVE_ALL_GATHER
                                            : DYTI_COLLECTIVE_BROADCAST,
                                        &head, all ? bytes : 0, g[k].members);
            }
            st = st != DYT_OK
                     ? st
                     : dyti_promote_take(s, g[k].item_first, g[k].item_count);
            if (st == DYT_OK && !all) {
                s->out.collective[s->out.count - 1].bytes += g[k].bytes;
            }
        }
    }
    return st;
}

/* A broadcast's bytes are added up content by content: start from none. */
enum dyt_status dyti_promote_same(struct dyti_promote_search *s)
{
    size_t n = 0;
    enum dyt_status st = dyti_promote_sort(s, DYTI_PROMOTE_BY_CONTENT, &n);

    st = st != DYT_OK ? st : find_groups(s, n);
    return st != DYT_OK ? st : emit_groups(s);
}
