/* Finds collectives among transfers: sorts them by content, then by who takes
 * part, then adds up what is left by pair. */
#include "base/array.h"
#include "base/sort.h"
#include "sched/promote_internal.h"

#include <stdlib.h>
#include <string.h>

#define LEAST 3u

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

/* Wave and rank. */
static uint64_t place_of_key(const void *item)
{
    const struct key *k = item;

    return k->part[0] << 32 | k->part[1];
}

static struct key key_of(const struct dyti_promotable *p,
                         enum dyti_promote_order by, uint32_t index)
{
    if (by == DYTI_PROMOTE_BY_CONTENT) {
        return (struct key){{p->wave, p->src, p->content, p->dst, 0}, index};
    }
    if (by == DYTI_PROMOTE_BY_SOURCE) {
        return (struct key){{p->wave, p->src, p->dst, p->content, 0}, index};
    }
    return (struct key){{p->wave, p->dst, p->src, p->content, 0}, index};
}

/* Sorts what is not taken into s->sorted. */
enum dyt_status dyti_promote_sort(struct dyti_promote_search *s,
                                  enum dyti_promote_order by, size_t *out_count)
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
    dyti_sort(key, n, sizeof(*key), place_of_key, compare_key);
    for (size_t i = 0; i < n; i++) {
        s->sorted[i] = key[i].index;
    }
    free(key);
    *out_count = n;
    return DYT_OK;
}

/* ---- results ------------------------------------------------------------ */

enum dyt_status dyti_promote_begin(struct dyti_promote_search *s,
                                   enum dyti_collective_kind kind,
                                   const struct dyti_promote_group *g,
                                   uint64_t bytes, const uint32_t *member)
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
enum dyt_status dyti_promote_take(struct dyti_promote_search *s, uint32_t first,
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

/* ---- the whole ---------------------------------------------------------- */

static enum dyt_status search_init(struct dyti_promote_search *s)
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
    struct dyti_promote_search s = {.item = item, .count = count};
    enum dyt_status st;

    if (options != NULL) {
        s.options = *options;
    }
    st = search_init(&s);
    st = st != DYT_OK ? st : dyti_promote_same(&s);
    if (st == DYT_OK && dyti_promote_wants(&s, DYTI_COLLECTIVE_SCATTER)) {
        st = dyti_promote_stars(&s, DYTI_COLLECTIVE_SCATTER);
    }
    if (st == DYT_OK && dyti_promote_wants(&s, DYTI_COLLECTIVE_GATHER)) {
        st = dyti_promote_stars(&s, DYTI_COLLECTIVE_GATHER);
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
