/* Old owners give up what they have too much of, next to each other where they
 * can; those who have too little take it, in as few pieces as can be. */
#include "layout/sticky.h"

#include "base/array.h"
#include "layout/check.h"
#include "layout/sticky_cutting.h"

#include <stdlib.h>
#include <string.h>

static uint64_t target(uint32_t owners, uint32_t position)
{
    return dyti_share_end(owners, position) -
           (position == 0 ? 0 : dyti_share_end(owners, position - 1));
}

static uint64_t surplus(const struct dyti_cutting *c, uint32_t owner)
{
    uint64_t want = owner == DYTI_FREE ? 0 : target(c->owners, owner);

    return owner != DYTI_FREE && c->have[owner] > want ? c->have[owner] - want
                                                       : 0;
}

static uint64_t deficit(const struct dyti_cutting *c, uint32_t owner)
{
    uint64_t want = owner == DYTI_FREE ? 0 : target(c->owners, owner);

    return owner != DYTI_FREE && c->have[owner] < want ? want - c->have[owner]
                                                       : 0;
}

enum dyt_status dyti_cutting_put(struct dyti_cutting *c, uint64_t lo,
                                 uint64_t hi, uint32_t owner)
{
    enum dyt_status st;

    if (lo == hi) {
        return DYT_OK;
    }
    if (c->next_count > 0 && c->next[c->next_count - 1].owner == owner &&
        c->next[c->next_count - 1].hi == lo) {
        c->next[c->next_count - 1].hi = hi;
        return DYT_OK;
    }
    st = DYTI_GROW(c->next, c->next_cap, c->next_count + 1);
    if (st == DYT_OK) {
        c->next[c->next_count++] = (struct dyti_zero_range){lo, hi, owner};
    }
    return st;
}

void dyti_cutting_turn(struct dyti_cutting *c)
{
    struct dyti_zero_range *span = c->span;
    size_t cap = c->cap;

    c->span = c->next;
    c->count = c->next_count;
    c->cap = c->next_cap;
    c->next = span;
    c->next_cap = cap;
    c->next_count = 0;
}

static void recount(struct dyti_cutting *c)
{
    memset(c->have, 0, c->owners * sizeof(*c->have));
    memset(c->spans_of, 0, c->owners * sizeof(*c->spans_of));
    for (size_t i = 0; i < c->count; i++) {
        if (c->span[i].owner != DYTI_FREE) {
            c->have[c->span[i].owner] += c->span[i].hi - c->span[i].lo;
            c->spans_of[c->span[i].owner]++;
        }
    }
}

/* Give up whole spans where an owner has others: it keeps fewer pieces. */
static enum dyt_status release_whole(struct dyti_cutting *c)
{
    enum dyt_status st = DYT_OK;

    for (size_t i = 0; i < c->count && st == DYT_OK; i++) {
        struct dyti_zero_range r = c->span[i];

        if (r.owner != DYTI_FREE && c->spans_of[r.owner] > 1 &&
            r.hi - r.lo <= surplus(c, r.owner)) {
            c->have[r.owner] -= r.hi - r.lo;
            c->spans_of[r.owner]--;
            r.owner = DYTI_FREE;
        }
        st = dyti_cutting_put(c, r.lo, r.hi, r.owner);
    }
    dyti_cutting_turn(c);
    return st;
}

/* Give up the rest at a border, that of a free span or of the next owner who
 * gives up something too, so that the pieces touch. */
static enum dyt_status release_borders(struct dyti_cutting *c)
{
    enum dyt_status st = DYT_OK;

    for (size_t i = 0; i < c->count && st == DYT_OK; i++) {
        struct dyti_zero_range r = c->span[i];
        uint64_t size = r.hi - r.lo, give = surplus(c, r.owner);
        bool left =
            c->next_count > 0 && c->next[c->next_count - 1].owner == DYTI_FREE;

        if (give == 0) {
            st = dyti_cutting_put(c, r.lo, r.hi, r.owner);
            continue;
        }
        give = give < size ? give : size;
        c->have[r.owner] -= give;
        if (left) {
            st = dyti_cutting_put(c, r.lo, r.lo + give, DYTI_FREE);
            st = st != DYT_OK ? st
                              : dyti_cutting_put(c, r.lo + give, r.hi, r.owner);
        } else {
            st = dyti_cutting_put(c, r.lo, r.hi - give, r.owner);
            st = st != DYT_OK
                     ? st
                     : dyti_cutting_put(c, r.hi - give, r.hi, DYTI_FREE);
        }
    }
    dyti_cutting_turn(c);
    return st;
}

/* Neighbours of a free span who have too little take of it first. */
static enum dyt_status extend(struct dyti_cutting *c)
{
    enum dyt_status st = DYT_OK;

    for (size_t i = 0; i < c->count && st == DYT_OK; i++) {
        struct dyti_zero_range r = c->span[i];
        uint32_t left = i > 0 ? c->span[i - 1].owner : DYTI_FREE;
        uint32_t right = i + 1 < c->count ? c->span[i + 1].owner : DYTI_FREE;
        uint64_t take;

        if (r.owner != DYTI_FREE) {
            st = dyti_cutting_put(c, r.lo, r.hi, r.owner);
            continue;
        }
        take = deficit(c, left);
        take = take < r.hi - r.lo ? take : r.hi - r.lo;
        if (take > 0) {
            st = dyti_cutting_put(c, r.lo, r.lo + take, left);
            c->have[left] += take;
            r.lo += take;
        }
        take = deficit(c, right);
        take = take < r.hi - r.lo ? take : r.hi - r.lo;
        st = st != DYT_OK ? st
                          : dyti_cutting_put(c, r.lo, r.hi - take, DYTI_FREE);
        if (take > 0 && st == DYT_OK) {
            st = dyti_cutting_put(c, r.hi - take, r.hi, right);
            c->have[right] += take;
        }
    }
    dyti_cutting_turn(c);
    return st;
}

static int by_lo(const void *a, const void *b)
{
    const struct dyti_zero_range *x = a, *y = b;

    return (x->lo > y->lo) - (x->lo < y->lo);
}

/* Free spans from the left to the right, to those who have too little in order:
 * an owner gets parts of neighbours. */
static enum dyt_status deal_in_order(struct dyti_cutting *c)
{
    enum dyt_status st = DYT_OK;
    uint32_t who = 0;

    for (size_t i = 0; i < c->count && st == DYT_OK; i++) {
        struct dyti_zero_range r = c->span[i];

        while (r.owner == DYTI_FREE && r.lo < r.hi && st == DYT_OK) {
            uint64_t take;

            while (deficit(c, who) == 0) {
                who++; /* what is free is what is missing: there is one */
            }
            take = deficit(c, who);
            take = take < r.hi - r.lo ? take : r.hi - r.lo;
            st = dyti_cutting_put(c, r.lo, r.lo + take, who);
            c->have[who] += take;
            r.lo += take;
        }
        st = st != DYT_OK ? st : dyti_cutting_put(c, r.lo, r.hi, r.owner);
    }
    dyti_cutting_turn(c);
    return st;
}

/* The largest free span goes to whom the most is missing, until none is left:
 * so nobody collects all the small ones. */
static enum dyt_status deal_by_size(struct dyti_cutting *c)
{
    enum dyt_status st = DYT_OK;

    for (;;) {
        struct dyti_zero_range *most = NULL;
        uint32_t who = 0;
        uint64_t take;

        for (size_t i = 0; i < c->count; i++) {
            struct dyti_zero_range *r = &c->span[i];

            if (r->owner == DYTI_FREE &&
                (most == NULL || r->hi - r->lo > most->hi - most->lo)) {
                most = r;
            }
        }
        if (most == NULL) {
            break;
        }
        for (uint32_t o = 1; o < c->owners; o++) {
            who = deficit(c, o) > deficit(c, who) ? o : who;
        }
        take = deficit(c, who);
        if (take < most->hi - most->lo) {
            struct dyti_zero_range rest = {most->lo + take, most->hi,
                                           DYTI_FREE};

            most->hi = rest.lo;
            most->owner = who;
            c->have[who] += take;
            st = DYTI_GROW(c->span, c->cap, c->count + 1);
            if (st != DYT_OK) {
                return st;
            }
            c->span[c->count++] = rest;
        } else {
            c->have[who] += most->hi - most->lo;
            most->owner = who;
        }
    }
    qsort(c->span, c->count, sizeof(*c->span), by_lo);
    for (size_t i = 0; i < c->count && st == DYT_OK; i++) {
        st =
            dyti_cutting_put(c, c->span[i].lo, c->span[i].hi, c->span[i].owner);
    }
    dyti_cutting_turn(c);
    return st;
}

static uint32_t most_spans(const struct dyti_cutting *c)
{
    uint32_t most = 0;

    for (uint32_t o = 0; o < c->owners; o++) {
        most = c->spans_of[o] > most ? c->spans_of[o] : most;
    }
    return most;
}

/* Whichever way leaves the fewest ranges with whom has the most. */
static enum dyt_status deal(struct dyti_cutting *c)
{
    size_t count = c->count;
    struct dyti_zero_range *span = malloc((count + 1) * sizeof(*span));
    struct dyti_zero_range *ordered = NULL;
    size_t ordered_count = 0;
    uint32_t most = 0;
    enum dyt_status st = DYT_OK;

    if (span == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu ranges", count);
    }
    memcpy(span, c->span, count * sizeof(*span));
    st = deal_in_order(c);
    if (st == DYT_OK) {
        recount(c);
        most = most_spans(c);
        ordered_count = c->count;
        ordered = malloc((ordered_count + 1) * sizeof(*ordered));
        if (ordered == NULL) {
            st = DYTI_FAIL(DYT_ERR_NOMEM, "%zu ranges", ordered_count);
        }
    }
    if (st == DYT_OK) {
        memcpy(ordered, c->span, ordered_count * sizeof(*ordered));
        st = DYTI_GROW(c->span, c->cap, count);
    }
    if (st == DYT_OK) {
        memcpy(c->span, span, count * sizeof(*span));
        c->count = count;
        recount(c);
        st = deal_by_size(c);
    }
    if (st == DYT_OK) {
        recount(c);
        if (most <= most_spans(c)) {
            st = DYTI_GROW(c->span, c->cap, ordered_count);
            if (st == DYT_OK) {
                memcpy(c->span, ordered, ordered_count * sizeof(*ordered));
                c->count = ordered_count;
            }
        }
    }
    free(span);
    free(ordered);
    return st;
}

/* ---- the whole ----------------------------------------------------------- */

/* The old cut in new positions. */
static enum dyt_status relabel(struct dyti_cutting *c,
                               const struct dyti_zero_range *old,
                               uint32_t old_count, uint32_t old_owners,
                               const int32_t *old_of_new)
{
    uint32_t *new_of_old = malloc(old_owners * sizeof(*new_of_old));
    uint32_t count = old_count == 0 ? old_owners : old_count;
    enum dyt_status st = DYT_OK;

    if (new_of_old == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u owners", old_owners);
    }
    memset(new_of_old, 0xff, old_owners * sizeof(*new_of_old));
    for (uint32_t i = 0; i < c->owners && st == DYT_OK; i++) {
        int64_t was = old_of_new != NULL ? old_of_new[i] : (int64_t)i;

        if (was < 0 || (old_of_new == NULL && was >= old_owners)) {
            continue;
        }
        if (was >= old_owners || new_of_old[was] != DYTI_FREE) {
            st = DYTI_FAIL(DYT_ERR_INVALID,
                           "position %u was %lld of %u: each old position "
                           "stays one at most",
                           i, (long long)was, old_owners);
        } else {
            new_of_old[was] = i;
        }
    }
    for (uint32_t i = 0; i < count && st == DYT_OK; i++) {
        const struct dyti_zero_range even = {
            i == 0 ? 0 : dyti_share_end(old_owners, i - 1),
            dyti_share_end(old_owners, i), i};
        const struct dyti_zero_range *r = old_count == 0 ? &even : &old[i];

        st = dyti_cutting_put(c, r->lo, r->hi, new_of_old[r->owner]);
    }
    dyti_cutting_turn(c);
    free(new_of_old);
    return st;
}

/* What of the new cut the same owner did not have before. */
static uint64_t moved_between(const struct dyti_zero_range *a, size_t a_count,
                              const struct dyti_zero_range *b, size_t b_count)
{
    uint64_t kept = 0;
    size_t i = 0, j = 0;

    while (i < a_count && j < b_count) {
        uint64_t lo = a[i].lo > b[j].lo ? a[i].lo : b[j].lo;
        uint64_t hi = a[i].hi < b[j].hi ? a[i].hi : b[j].hi;

        kept += lo < hi && a[i].owner == b[j].owner ? hi - lo : 0;
        if (a[i].hi <= b[j].hi) {
            i++;
        } else {
            j++;
        }
    }
    return DYTI_ZERO_WHOLE - kept;
}

static enum dyt_status resize(struct dyti_cutting *c, uint32_t resizes,
                              struct dyti_sticky_cut *out)
{
    struct dyti_zero_range *old = malloc((c->count + 1) * sizeof(*old));
    size_t old_count = c->count;
    enum dyt_status st = DYT_OK;

    if (old == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu ranges", c->count);
    }
    memcpy(old, c->span, c->count * sizeof(*old));
    recount(c);
    st = release_whole(c);
    st = st != DYT_OK ? st : release_borders(c);
    st = st != DYT_OK ? st : extend(c);
    st = st != DYT_OK ? st : deal(c);
    out->resizes = resizes + 1;
    if (st == DYT_OK) {
        recount(c);
        if (most_spans(c) > 2u * out->resizes + 1u) {
            out->resizes = 0;
            st = dyti_cut_anew(c, old, old_count);
        }
    }
    if (st == DYT_OK) {
        out->moved = moved_between(old, old_count, c->span, c->count);
    }
    free(old);
    return st;
}

enum dyt_status dyti_sticky_resize(const struct dyti_zero_range *old,
                                   uint32_t old_count, uint32_t old_owners,
                                   uint32_t resizes, const int32_t *old_of_new,
                                   uint32_t owners,
                                   struct dyti_sticky_cut *out_cut)
{
    struct dyti_cutting c = {.owners = owners};
    struct dyti_sticky_cut cut = {0};
    enum dyt_status st;

    if (owners == 0 || old_owners == 0) {
        return DYTI_FAIL(DYT_ERR_INVALID, "a ZeRO cut from %u to %u owners",
                         old_owners, owners);
    }
    st = dyti_zero_ranges_check("the old cut", old, old_count, old_owners);
    if (st != DYT_OK) {
        return st;
    }
    c.have = calloc(owners, sizeof(*c.have));
    c.spans_of = calloc(owners, sizeof(*c.spans_of));
    st = c.have != NULL && c.spans_of != NULL
             ? relabel(&c, old, old_count, old_owners, old_of_new)
             : DYTI_FAIL(DYT_ERR_NOMEM, "%u owners", owners);
    st = st != DYT_OK ? st : resize(&c, resizes, &cut);
    if (st == DYT_OK) {
        cut.range = c.span;
        cut.range_count = (uint32_t)c.count;
        c.span = NULL;
        *out_cut = cut;
    } else {
        DYTI_NOTE("resizing a ZeRO cut from %u to %u owners", old_owners,
                  owners);
    }
    free(c.span);
    free(c.next);
    free(c.have);
    free(c.spans_of);
    return st;
}

void dyti_sticky_fini(struct dyti_sticky_cut *cut)
{
    free(cut->range);
    memset(cut, 0, sizeof(*cut));
}
