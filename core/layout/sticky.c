/* Old owners give up what they have too much of, next to each other where they
 * can; those who have too little take it, in as few pieces as can be. */
#include "layout/sticky.h"

#include "base/array.h"
#include "layout/check.h"

#include <stdlib.h>
#include <string.h>

#define FREE UINT32_MAX

typedef struct dyti_zero_range range_of;

struct cutting {
    range_of *span; /* covers all, rising; owner = new position or FREE */
    size_t count, cap;
    range_of *next; /* being rebuilt */
    size_t next_count, next_cap;
    uint32_t owners;
    uint64_t *have; /* [owners] */
    uint32_t *spans_of;
};

static uint64_t share_end(uint32_t owners, uint32_t position)
{
    return DYTI_ZERO_WHOLE * ((uint64_t)position + 1) / owners;
}

static uint64_t target(uint32_t owners, uint32_t position)
{
    return share_end(owners, position) -
           (position == 0 ? 0 : share_end(owners, position - 1));
}

static uint64_t surplus(const struct cutting *c, uint32_t owner)
{
    uint64_t want = owner == FREE ? 0 : target(c->owners, owner);

    return owner != FREE && c->have[owner] > want ? c->have[owner] - want : 0;
}

static uint64_t deficit(const struct cutting *c, uint32_t owner)
{
    uint64_t want = owner == FREE ? 0 : target(c->owners, owner);

    return owner != FREE && c->have[owner] < want ? want - c->have[owner] : 0;
}

/* Append to the rebuilt list; touching spans of one owner are one. */
static enum dyt_status put(struct cutting *c, uint64_t lo, uint64_t hi,
                           uint32_t owner)
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
        c->next[c->next_count++] = (range_of){lo, hi, owner};
    }
    return st;
}

/* The rebuilt list takes the place of the old one. */
static void turn(struct cutting *c)
{
    range_of *span = c->span;
    size_t cap = c->cap;

    c->span = c->next;
    c->count = c->next_count;
    c->cap = c->next_cap;
    c->next = span;
    c->next_cap = cap;
    c->next_count = 0;
}

static void recount(struct cutting *c)
{
    memset(c->have, 0, c->owners * sizeof(*c->have));
    memset(c->spans_of, 0, c->owners * sizeof(*c->spans_of));
    for (size_t i = 0; i < c->count; i++) {
        if (c->span[i].owner != FREE) {
            c->have[c->span[i].owner] += c->span[i].hi - c->span[i].lo;
            c->spans_of[c->span[i].owner]++;
        }
    }
}

/* Give up whole spans where an owner has others: it keeps fewer pieces. */
static enum dyt_status release_whole(struct cutting *c)
{
    enum dyt_status st = DYT_OK;

    for (size_t i = 0; i < c->count && st == DYT_OK; i++) {
        range_of r = c->span[i];

        if (r.owner != FREE && c->spans_of[r.owner] > 1 &&
            r.hi - r.lo <= surplus(c, r.owner)) {
            c->have[r.owner] -= r.hi - r.lo;
            c->spans_of[r.owner]--;
            r.owner = FREE;
        }
        st = put(c, r.lo, r.hi, r.owner);
    }
    turn(c);
    return st;
}

/* Give up the rest at a border, that of a free span or of the next owner who
 * gives up something too, so that the pieces touch. */
static enum dyt_status release_borders(struct cutting *c)
{
    enum dyt_status st = DYT_OK;

    for (size_t i = 0; i < c->count && st == DYT_OK; i++) {
        range_of r = c->span[i];
        uint64_t size = r.hi - r.lo, give = surplus(c, r.owner);
        bool left =
            c->next_count > 0 && c->next[c->next_count - 1].owner == FREE;

        if (give == 0) {
            st = put(c, r.lo, r.hi, r.owner);
            continue;
        }
        give = give < size ? give : size;
        c->have[r.owner] -= give;
        if (left) {
            st = put(c, r.lo, r.lo + give, FREE);
            st = st != DYT_OK ? st : put(c, r.lo + give, r.hi, r.owner);
        } else {
            st = put(c, r.lo, r.hi - give, r.owner);
            st = st != DYT_OK ? st : put(c, r.hi - give, r.hi, FREE);
        }
    }
    turn(c);
    return st;
}

/* Neighbours of a free span who have too little take of it first. */
static enum dyt_status extend(struct cutting *c)
{
    enum dyt_status st = DYT_OK;

    for (size_t i = 0; i < c->count && st == DYT_OK; i++) {
        range_of r = c->span[i];
        uint32_t left = i > 0 ? c->span[i - 1].owner : FREE;
        uint32_t right = i + 1 < c->count ? c->span[i + 1].owner : FREE;
        uint64_t take;

        if (r.owner != FREE) {
            st = put(c, r.lo, r.hi, r.owner);
            continue;
        }
        take = deficit(c, left);
        take = take < r.hi - r.lo ? take : r.hi - r.lo;
        if (take > 0) {
            st = put(c, r.lo, r.lo + take, left);
            c->have[left] += take;
            r.lo += take;
        }
        take = deficit(c, right);
        take = take < r.hi - r.lo ? take : r.hi - r.lo;
        st = st != DYT_OK ? st : put(c, r.lo, r.hi - take, FREE);
        if (take > 0 && st == DYT_OK) {
            st = put(c, r.hi - take, r.hi, right);
            c->have[right] += take;
        }
    }
    turn(c);
    return st;
}

static int by_lo(const void *a, const void *b)
{
    const range_of *x = a, *y = b;

    return (x->lo > y->lo) - (x->lo < y->lo);
}

/* Free spans from the left to the right, to those who have too little in order:
 * an owner gets parts of neighbours. */
static enum dyt_status deal_in_order(struct cutting *c)
{
    enum dyt_status st = DYT_OK;
    uint32_t who = 0;

    for (size_t i = 0; i < c->count && st == DYT_OK; i++) {
        range_of r = c->span[i];

        while (r.owner == FREE && r.lo < r.hi && st == DYT_OK) {
            uint64_t take;

            while (deficit(c, who) == 0) {
                who++; /* what is free is what is missing: there is one */
            }
            take = deficit(c, who);
            take = take < r.hi - r.lo ? take : r.hi - r.lo;
            st = put(c, r.lo, r.lo + take, who);
            c->have[who] += take;
            r.lo += take;
        }
        st = st != DYT_OK ? st : put(c, r.lo, r.hi, r.owner);
    }
    turn(c);
    return st;
}

/* The largest free span goes to whom the most is missing, until none is left:
 * so nobody collects all the small ones. */
static enum dyt_status deal_by_size(struct cutting *c)
{
    enum dyt_status st = DYT_OK;

    for (;;) {
        range_of *most = NULL;
        uint32_t who = 0;
        uint64_t take;

        for (size_t i = 0; i < c->count; i++) {
            range_of *r = &c->span[i];

            if (r->owner == FREE &&
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
            range_of rest = {most->lo + take, most->hi, FREE};

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
        st = put(c, c->span[i].lo, c->span[i].hi, c->span[i].owner);
    }
    turn(c);
    return st;
}

static uint32_t most_spans(const struct cutting *c)
{
    uint32_t most = 0;

    for (uint32_t o = 0; o < c->owners; o++) {
        most = c->spans_of[o] > most ? c->spans_of[o] : most;
    }
    return most;
}

/* Whichever way leaves the fewest ranges with whom has the most. */
static enum dyt_status deal(struct cutting *c)
{
    size_t count = c->count;
    range_of *span = malloc((count + 1) * sizeof(*span));
    range_of *ordered = NULL;
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

/* ---- anew ---------------------------------------------------------------- */

struct overlap {
    uint64_t size;
    uint32_t slot, owner;
};

static int by_size(const void *a, const void *b)
{
    const struct overlap *x = a, *y = b;

    if (x->size != y->size) {
        return x->size > y->size ? -1 : 1;
    }
    if (x->slot != y->slot) {
        return x->slot < y->slot ? -1 : 1;
    }
    return (x->owner > y->owner) - (x->owner < y->owner);
}

/* What each slot of an even cut shares with each span of the kept owners. */
static enum dyt_status list_overlaps(const range_of *span, size_t count,
                                     uint32_t owners, struct overlap **out,
                                     size_t *out_count)
{
    size_t cap = 0, i = 0;
    uint32_t slot = 0;

    while (i < count && slot < owners) {
        uint64_t end = share_end(owners, slot);
        uint64_t begin = slot == 0 ? 0 : share_end(owners, slot - 1);
        uint64_t lo = span[i].lo > begin ? span[i].lo : begin;
        uint64_t hi = span[i].hi < end ? span[i].hi : end;

        if (lo < hi && span[i].owner != FREE) {
            enum dyt_status st = DYTI_GROW(*out, cap, *out_count + 1);

            if (st != DYT_OK) {
                return st;
            }
            (*out)[(*out_count)++] =
                (struct overlap){hi - lo, slot, span[i].owner};
        }
        if (span[i].hi <= end) {
            i++;
        } else {
            slot++;
        }
    }
    if (*out_count > 1) {
        qsort(*out, *out_count, sizeof(**out), by_size);
    }
    return DYT_OK;
}

/* One even range each: the largest overlaps say who gets which.  `old`: the
 * spans as they were, in new positions. */
static enum dyt_status cut_anew(struct cutting *c, const range_of *old,
                                size_t old_count)
{
    struct overlap *overlap = NULL;
    size_t count = 0;
    uint32_t *slot_of = malloc(c->owners * sizeof(*slot_of));
    uint32_t *owner_of = malloc(c->owners * sizeof(*owner_of));
    uint32_t next = 0;
    enum dyt_status st =
        slot_of != NULL && owner_of != NULL
            ? list_overlaps(old, old_count, c->owners, &overlap, &count)
            : DYTI_FAIL(DYT_ERR_NOMEM, "a cut between %u owners", c->owners);

    if (st == DYT_OK) {
        memset(slot_of, 0xff, c->owners * sizeof(*slot_of));
        memset(owner_of, 0xff, c->owners * sizeof(*owner_of));
    }
    for (size_t i = 0; i < count && st == DYT_OK; i++) {
        if (slot_of[overlap[i].owner] == FREE &&
            owner_of[overlap[i].slot] == FREE) {
            slot_of[overlap[i].owner] = overlap[i].slot;
            owner_of[overlap[i].slot] = overlap[i].owner;
        }
    }
    c->next_count = 0;
    for (uint32_t slot = 0; slot < c->owners && st == DYT_OK; slot++) {
        while (owner_of[slot] == FREE && slot_of[next] != FREE) {
            next++;
        }
        if (owner_of[slot] == FREE) {
            owner_of[slot] = next;
            slot_of[next] = slot;
        }
        st = put(c, slot == 0 ? 0 : share_end(c->owners, slot - 1),
                 share_end(c->owners, slot), owner_of[slot]);
    }
    turn(c);
    free(overlap);
    free(slot_of);
    free(owner_of);
    return st;
}

/* ---- the whole ----------------------------------------------------------- */

/* The old cut in new positions. */
static enum dyt_status relabel(struct cutting *c, const range_of *old,
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
        if (was >= old_owners || new_of_old[was] != FREE) {
            st = DYTI_FAIL(DYT_ERR_INVALID,
                           "position %u was %lld of %u: each old position "
                           "stays one at most",
                           i, (long long)was, old_owners);
        } else {
            new_of_old[was] = i;
        }
    }
    for (uint32_t i = 0; i < count && st == DYT_OK; i++) {
        const range_of even = {i == 0 ? 0 : share_end(old_owners, i - 1),
                               share_end(old_owners, i), i};
        const range_of *r = old_count == 0 ? &even : &old[i];

        st = put(c, r->lo, r->hi, new_of_old[r->owner]);
    }
    turn(c);
    free(new_of_old);
    return st;
}

/* What of the new cut the same owner did not have before. */
static uint64_t moved_between(const range_of *a, size_t a_count,
                              const range_of *b, size_t b_count)
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

static enum dyt_status resize(struct cutting *c, uint32_t resizes,
                              struct dyti_sticky_cut *out)
{
    range_of *old = malloc((c->count + 1) * sizeof(*old));
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
            st = cut_anew(c, old, old_count);
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
    struct cutting c = {.owners = owners};
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
