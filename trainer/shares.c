/* Which ranks hold what of this rank's region too, as sets of equal holders.
 * All ranks walk the sets in one order (of their holder lists), so that the
 * smallest set not yet done always has all its holders waiting for it. */
#include "trainer/shares.h"

#include "base/array.h"

#include <string.h>

static uint32_t member_of(const struct dyti_layout *layout, uint32_t rank)
{
    uint32_t m = 0;

    while (m < layout->member_count && layout->desc.ranks[m] != rank) {
        m++;
    }
    dyti_require(m < layout->member_count);
    return m;
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

static int by_holders(const void *a, const void *b)
{
    const struct dyti_share_set *x = a, *y = b;

    for (uint32_t i = 0; i < x->holder_count && i < y->holder_count; i++) {
        if (x->holder[i] != y->holder[i]) {
            return x->holder[i] < y->holder[i] ? -1 : 1;
        }
    }
    return (x->holder_count > y->holder_count) -
           (x->holder_count < y->holder_count);
}

static enum dyt_status add_range(struct dyti_flat_range **range, size_t *count,
                                 size_t *cap, struct dyti_flat_range next)
{
    enum dyt_status st;

    if (*count > 0 && (*range)[*count - 1].hi == next.lo) {
        (*range)[*count - 1].hi = next.hi;
        return DYT_OK;
    }
    st = dyti_grow((void **)range, cap, *count + 1, sizeof(**range));
    if (st == DYT_OK) {
        (*range)[(*count)++] = next;
    }
    return st;
}

/* The set with these holders, made if there is none. */
static enum dyt_status find_set(struct dyti_shares *shares,
                                const struct dyti_share_set *like,
                                struct dyti_share_set **out_set)
{
    struct dyti_share_set *set;
    enum dyt_status st;

    for (size_t i = 0; i < shares->set_count; i++) {
        if (by_holders(&shares->set[i], like) == 0) {
            *out_set = &shares->set[i];
            return DYT_OK;
        }
    }
    st = DYTI_GROW(shares->set, shares->set_cap, shares->set_count + 1);
    if (st != DYT_OK) {
        return st;
    }
    set = &shares->set[shares->set_count];
    *set = *like;
    set->holder = malloc(like->holder_count * sizeof(*set->holder));
    if (set->holder == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u holders", like->holder_count);
    }
    memcpy(set->holder, like->holder,
           like->holder_count * sizeof(*set->holder));
    shares->set_count++;
    *out_set = set;
    return DYT_OK;
}

static bool is_tp_group(const struct dyti_share_set *set, uint32_t member,
                        uint32_t tp)
{
    uint32_t first = member - member % tp;

    return set->holder_count == tp && set->holder[0] == first &&
           set->holder[tp - 1] == first + tp - 1;
}

static enum dyt_status add_part(struct dyti_shares *shares,
                                const struct dyti_layout *layout,
                                uint32_t member,
                                const struct dyti_shared_part *part,
                                uint32_t *holder)
{
    struct dyti_flat_range range = {part->flat_lo, part->flat_hi};
    struct dyti_share_set like = {.holder = holder,
                                  .holder_count = part->holder_count};
    struct dyti_share_set *set = NULL;
    enum dyt_status st = DYT_OK;

    for (uint32_t i = 0; i < part->holder_count; i++) {
        holder[i] = member_of(layout, part->holder[i]);
    }
    qsort(holder, part->holder_count, sizeof(*holder), by_number);
    if (holder[0] != member) {
        st = add_range(&shares->skip, &shares->skip_count, &shares->skip_cap,
                       range);
    }
    if (st != DYT_OK || !part->grad_partial) {
        return st;
    }
    while (holder[like.own] != member) {
        like.own++;
    }
    like.is_tp = is_tp_group(&like, member, layout->desc.tp);
    st = find_set(shares, &like, &set);
    if (st == DYT_OK) {
        set->elements += range.hi - range.lo;
        st = add_range(&set->range, &set->range_count, &set->range_cap, range);
    }
    return st;
}

enum dyt_status dyti_shares_build(const struct dyti_layout *layout,
                                  uint32_t rank, struct dyti_shares *out_shares)
{
    struct dyti_shares shares = {0};
    struct dyti_shared_part *part = NULL;
    uint32_t *holder = NULL;
    size_t count = 0;
    enum dyt_status st;

    st = dyti_layout_shared(layout, rank, &part, &count);
    if (st == DYT_OK) {
        holder = malloc(layout->member_count * sizeof(*holder));
        st = holder != NULL
                 ? DYT_OK
                 : DYTI_FAIL(DYT_ERR_NOMEM, "%u holders", layout->member_count);
    }
    for (size_t i = 0; i < count && st == DYT_OK; i++) {
        st = add_part(&shares, layout, member_of(layout, rank), &part[i],
                      holder);
    }
    free(holder);
    free(part);
    if (st != DYT_OK) {
        DYTI_NOTE("listing the gradients that rank %u shares", rank);
        dyti_shares_fini(&shares);
        return st;
    }
    if (shares.set_count > 1) {
        qsort(shares.set, shares.set_count, sizeof(*shares.set), by_holders);
    }
    *out_shares = shares;
    return DYT_OK;
}

void dyti_shares_fini(struct dyti_shares *shares)
{
    for (size_t i = 0; i < shares->set_count; i++) {
        free(shares->set[i].holder);
        free(shares->set[i].range);
    }
    free(shares->set);
    free(shares->skip);
    memset(shares, 0, sizeof(*shares));
}

enum dyt_status dyti_shares_norm(const struct dyti_shares *shares,
                                 const struct dyti_kernels *kernels,
                                 const float *grad, uint64_t lo, uint64_t hi,
                                 double *out_sum)
{
    double sum = 0, some;
    size_t i = 0;

    while (lo < hi) {
        uint64_t end = hi;
        enum dyt_status st;

        while (i < shares->skip_count && shares->skip[i].hi <= lo) {
            i++;
        }
        if (i < shares->skip_count && shares->skip[i].lo <= lo) {
            lo = shares->skip[i].hi;
            continue;
        }
        if (i < shares->skip_count && shares->skip[i].lo < end) {
            end = shares->skip[i].lo;
        }
        st = kernels->ops->sum_squares(kernels->self, grad + lo,
                                       (int64_t)(end - lo), &some);
        if (st != DYT_OK) {
            return st;
        }
        sum += some;
        lo = end;
    }
    *out_sum = sum;
    return DYT_OK;
}
