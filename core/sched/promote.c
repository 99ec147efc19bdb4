/* Finds collectives among transfers: sorts them by content, then by who takes
 * part, then adds up what is left by pair. */
#include "sched/promote.h"

#include "base/array.h"

#include <stdbool.h>
#include <string.h>

#define LEAST 3u

/* Items of one content from one rank: positions in `sorted`. */
struct group {
    uint32_t wave, root;
    uint32_t item_first, item_count;     /* in search.sorted */
    uint32_t member_first, member_count; /* in search.member */
    uint64_t bytes;
    const uint32_t *members; /* for sorting */
};

/* What is left between two ranks. */
struct pair {
    uint32_t wave, hub, spoke; /* hub: who may be the root */
    uint64_t bytes;
    uint32_t item_first, item_count; /* in the order that was sorted for it */
};

struct search {
    const struct dyti_promotable *item;
    size_t count;
    struct dyti_promote_options options;
    uint32_t *sorted; /* [count] */
    bool *taken;      /* [count] by item */
    struct group *group;
    size_t group_count, group_cap;
    uint32_t *member;
    size_t member_count, member_cap;
    struct dyti_promotion out;
    size_t collective_cap, out_member_cap, out_item_cap;
};

const char *dyti_collective_kind_name(enum dyti_collective_kind kind)
{
    static const char *const name[DYTI_COLLECTIVE_KIND_COUNT] = {
        "broadcast", "all-gather", "scatter", "gather"};

    return (unsigned)kind < DYTI_COLLECTIVE_KIND_COUNT ? name[kind] : "?";
}

void dyti_promotion_fini(struct dyti_promotion *promotion)
{
    free(promotion->collective);
    free(promotion->member);
    free(promotion->item);
    free(promotion->rest);
    *promotion = (struct dyti_promotion){0};
}

static bool wanted(const struct search *s, enum dyti_collective_kind kind)
{
    return (s->options.kinds >> kind & 1u) != 0;
}

/* ---- sorting without a global ------------------------------------------- */

struct key {
    uint64_t part[5];
    uint32_t index;
};

static int compare_key(const void *a, const void *b)
{
    const struct key *x = a, *y = b;

    for (size_t i = 0; i < sizeof(x->part) / sizeof(x->part[0]); i++) {
        if (x->part[i] != y->part[i]) {
            return x->part[i] < y->part[i] ? -1 : 1;
        }
    }
    return (x->index > y->index) - (x->index < y->index);
}

enum sorting { BY_CONTENT, BY_SOURCE, BY_DESTINATION };

static struct key key_of(const struct dyti_promotable *p, enum sorting by,
                         uint32_t index)
{
    if (by == BY_CONTENT) {
        return (struct key){{p->wave, p->src, p->content, p->dst, 0}, index};
    }
    if (by == BY_SOURCE) {
        return (struct key){{p->wave, p->src, p->dst, p->content, 0}, index};
    }
    return (struct key){{p->wave, p->dst, p->src, p->content, 0}, index};
}

/* Sorts what is not taken into s->sorted. */
static enum dyt_status sort_items(struct search *s, enum sorting by,
                                  size_t *out_count)
{
    struct key *key = malloc((s->count + 1) * sizeof(*key));
    size_t n = 0;

    if (key == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu transfers", s->count);
    }
    for (size_t i = 0; i < s->count; i++) {
        if (!s->taken[i]) {
            key[n++] = key_of(&s->item[i], by, (uint32_t)i);
        }
    }
    qsort(key, n, sizeof(*key), compare_key);
    for (size_t i = 0; i < n; i++) {
        s->sorted[i] = key[i].index;
    }
    free(key);
    *out_count = n;
    return DYT_OK;
}

/* ---- results ------------------------------------------------------------ */

static enum dyt_status begin_collective(struct search *s,
                                        enum dyti_collective_kind kind,
                                        const struct group *g, uint64_t bytes,
                                        const uint32_t *member)
{
    struct dyti_promotion *o = &s->out;
    enum dyt_status st =
        DYTI_GROW(o->collective, s->collective_cap, o->count + 1);

    st = st != DYT_OK ? st
                      : DYTI_GROW(o->member, s->out_member_cap,
                                  (size_t)o->member_total + g->member_count);
    if (st != DYT_OK) {
        return st;
    }
    o->collective[o->count++] =
        (struct dyti_collective){.kind = (uint8_t)kind,
                                 .wave = g->wave,
                                 .root = g->root,
                                 .member_first = o->member_total,
                                 .member_count = g->member_count,
                                 .bytes = bytes,
                                 .item_first = o->item_total};
    memcpy(o->member + o->member_total, member,
           g->member_count * sizeof(*member));
    o->member_total += g->member_count;
    return DYT_OK;
}

/* Adds sorted[first, first + count) to the collective begun last. */
static enum dyt_status take_items(struct search *s, uint32_t first,
                                  uint32_t count)
{
    struct dyti_promotion *o = &s->out;
    enum dyt_status st =
        DYTI_GROW(o->item, s->out_item_cap, (size_t)o->item_total + count);

    for (uint32_t i = 0; i < count && st == DYT_OK; i++) {
        o->item[o->item_total++] = s->sorted[first + i];
        s->taken[s->sorted[first + i]] = true;
        o->collective[o->count - 1].item_count++;
    }
    return st;
}

/* ---- broadcasts and all-gathers ----------------------------------------- */

/* The ranks of a group, rising, the root among them. */
static enum dyt_status add_group(struct search *s, struct group g)
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

static enum dyt_status find_groups(struct search *s, size_t n)
{
    enum dyt_status st = DYT_OK;
    size_t end;

    for (size_t i = 0; i < n && st == DYT_OK; i = end) {
        const struct dyti_promotable *a = &s->item[s->sorted[i]];
        struct group g = {.wave = a->wave,
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

static int compare_members(const struct group *x, const struct group *y)
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
    const struct group *x = a, *y = b;
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
static bool is_all_gather(const struct group *g, size_t i, size_t end,
                          uint64_t *out_bytes)
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

static enum dyt_status emit_groups(struct search *s)
{
    enum dyt_status st = DYT_OK;
    struct group *g = s->group;
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
        all = wanted(s, DYTI_COLLECTIVE_ALL_GATHER) &&
              is_all_gather(g, i, end, &bytes);
        for (size_t k = i; k < end && st == DYT_OK; k++) {
            if (!all && !wanted(s, DYTI_COLLECTIVE_BROADCAST)) {
                break;
            }
            if (k == i || (!all && g[k].root != g[k - 1].root)) {
                struct group head = g[k];

                head.root = all ? g[k].members[0] : g[k].root;
                st = begin_collective(s,
                                      all ? DYTI_COLLECTIVE_ALL_GATHER
                                          : DYTI_COLLECTIVE_BROADCAST,
                                      &head, all ? bytes : 0, g[k].members);
            }
            st = st != DYT_OK ? st
                              : take_items(s, g[k].item_first, g[k].item_count);
            if (st == DYT_OK && !all) {
                s->out.collective[s->out.count - 1].bytes += g[k].bytes;
            }
        }
    }
    return st;
}

/* A broadcast's bytes are added up content by content: start from none. */
static enum dyt_status find_same(struct search *s)
{
    size_t n = 0;
    enum dyt_status st = sort_items(s, BY_CONTENT, &n);

    st = st != DYT_OK ? st : find_groups(s, n);
    return st != DYT_OK ? st : emit_groups(s);
}

/* ---- scatters and gathers ----------------------------------------------- */

/* Pairs of what is left; spokes: how many hubs each spoke has. */
static enum dyt_status find_pairs(const struct search *s, bool scatter,
                                  size_t n, struct pair *pair,
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
static enum dyt_status emit_star(struct search *s,
                                 enum dyti_collective_kind kind,
                                 const struct pair *pair, size_t count)
{
    struct group g = {.wave = pair[0].wave,
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
    st = begin_collective(s, kind, &g, pair[0].bytes, member);
    for (size_t i = 0; i < count && st == DYT_OK; i++) {
        st = take_items(s, pair[i].item_first, pair[i].item_count);
    }
    free(member);
    return st;
}

static enum dyt_status find_stars(struct search *s,
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
    st = sort_items(s, scatter ? BY_SOURCE : BY_DESTINATION, &n);
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

/* ---- the whole ---------------------------------------------------------- */

static enum dyt_status search_init(struct search *s)
{
    if (s->count >= UINT32_MAX / 2) {
        return DYTI_FAIL(DYT_ERR_OVERFLOW, "%zu transfers", s->count);
    }
    s->options.kinds = s->options.kinds == 0 ? UINT32_MAX : s->options.kinds;
    s->options.least = s->options.least < 2 ? LEAST : s->options.least;
    for (size_t i = 0; i < s->count; i++) {
        if (s->item[i].src == s->item[i].dst) {
            return DYTI_FAIL(DYT_ERR_INVALID,
                             "transfer %zu goes from rank %u to itself", i,
                             s->item[i].src);
        }
    }
    s->sorted = malloc((s->count + 1) * sizeof(*s->sorted));
    s->taken = calloc(s->count + 1, sizeof(*s->taken));
    s->out.rest = malloc((s->count + 1) * sizeof(*s->out.rest));
    if (s->sorted == NULL || s->taken == NULL || s->out.rest == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu transfers", s->count);
    }
    return DYT_OK;
}

static int compare_collective(const void *a, const void *b)
{
    const struct dyti_collective *x = a, *y = b;

    if (x->wave != y->wave) {
        return x->wave < y->wave ? -1 : 1;
    }
    if (x->kind != y->kind) {
        return x->kind < y->kind ? -1 : 1;
    }
    if (x->root != y->root) {
        return x->root < y->root ? -1 : 1;
    }
    return (x->member_first > y->member_first) -
           (x->member_first < y->member_first);
}

enum dyt_status dyti_promote(const struct dyti_promotable *item, size_t count,
                             const struct dyti_promote_options *options,
                             struct dyti_promotion *out_promotion)
{
    struct search s = {.item = item, .count = count};
    enum dyt_status st;

    if (options != NULL) {
        s.options = *options;
    }
    st = search_init(&s);
    st = st != DYT_OK ? st : find_same(&s);
    if (st == DYT_OK && wanted(&s, DYTI_COLLECTIVE_SCATTER)) {
        st = find_stars(&s, DYTI_COLLECTIVE_SCATTER);
    }
    if (st == DYT_OK && wanted(&s, DYTI_COLLECTIVE_GATHER)) {
        st = find_stars(&s, DYTI_COLLECTIVE_GATHER);
    }
    if (st == DYT_OK) {
        for (size_t i = 0; i < count; i++) {
            if (!s.taken[i]) {
                s.out.rest[s.out.rest_count++] = (uint32_t)i;
            }
        }
        if (s.out.count > 1) {
            qsort(s.out.collective, s.out.count, sizeof(*s.out.collective),
                  compare_collective);
        }
        *out_promotion = s.out;
        s.out = (struct dyti_promotion){0};
    } else {
        DYTI_NOTE("looking for collectives in %zu transfers", count);
    }
    dyti_promotion_fini(&s.out);
    free(s.sorted);
    free(s.taken);
    free(s.group);
    free(s.member);
    return st;
}
