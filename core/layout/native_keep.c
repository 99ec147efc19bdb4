/* Which ranges of its flat buffers a member owns under ZeRO. */
#include "layout/native_keep.h"

#include "layout/index.h"

#include <stdlib.h>
#include <string.h>

bool dyti_native_is_cut(uint32_t zero, enum dyti_kind kind)
{
    switch (kind) {
    case DYTI_PARAM:
        return zero >= 3;
    case DYTI_GRAD:
        return zero >= 2;
    case DYTI_EXTRA:
        return false;
    default:
        return zero >= 1;
    }
}

/* Where a border at `fraction` of DYTI_ZERO_WHOLE falls in a buffer. */
static uint64_t border(uint64_t elements, uint64_t fraction)
{
    uint64_t units = elements / DYTI_ZERO_ALIGN;

    return ((units >> 32) * fraction +
            ((units & 0xffffffffu) * fraction >> 32)) *
           DYTI_ZERO_ALIGN;
}

static enum dyt_status keep_owned(const struct dyti_layout *layout, int b,
                                  uint64_t elements, uint32_t owner,
                                  struct dyti_keeping *k)
{
    const struct dyti_zero_range *range = b == DYTI_DENSE
                                              ? layout->desc.zero_range
                                              : layout->desc.expert_zero_range;
    const uint32_t *first = layout->index->cut[b].owner_first;
    uint32_t count = first[owner + 1] - first[owner];

    if (count > 1) {
        k->range[b] = malloc(count * sizeof(*k->range[b]));
        if (k->range[b] == NULL) {
            return DYTI_FAIL(DYT_ERR_NOMEM, "%u ZeRO ranges", count);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = layout->index->cut[b].range[first[owner] + i];
        struct dyti_kept r = {.lo = border(elements, range[at].lo),
                              .hi = border(elements, range[at].hi)};

        if (r.lo < r.hi) {
            k->range[b][k->count[b]++] = r;
        }
    }
    return DYT_OK;
}

/* What the member's region of a kind keeps of its flat buffers. */
enum dyt_status dyti_keeping_init(const struct dyti_layout *layout,
                                  const struct dyti_part *part, bool cut,
                                  const uint64_t elements[DYTI_NATIVE_BUFFERS],
                                  struct dyti_keeping *k)
{
    const uint32_t owner[] = {dyti_layout_zero_rank(part), part->edp_rank};
    const uint32_t owners[] = {part->dp_size * part->cp_size, part->edp_size};

    memset(k, 0, sizeof(*k));
    for (int b = 0; b < DYTI_NATIVE_BUFFERS; b++) {
        k->range[b] = &k->one[b];
        if (cut && layout->index->cut[b].owner_first != NULL) {
            enum dyt_status st =
                keep_owned(layout, b, elements[b], owner[b], k);

            if (st != DYT_OK) {
                return st;
            }
        } else if (elements[b] > 0) {
            int64_t lo = 0, hi = (int64_t)(elements[b] / DYTI_ZERO_ALIGN);

            if (cut) {
                dyti_native_share(hi, owners[b], owner[b], &lo, &hi);
            }
            k->one[b].lo = (uint64_t)lo * DYTI_ZERO_ALIGN;
            k->one[b].hi = (uint64_t)hi * DYTI_ZERO_ALIGN;
            k->count[b] = 1;
        }
        for (uint32_t i = 0; i < k->count[b]; i++) {
            k->range[b][i].at = k->elements;
            k->elements += k->range[b][i].hi - k->range[b][i].lo;
        }
    }
    return DYT_OK;
}

void dyti_keeping_fini(struct dyti_keeping *k)
{
    for (int b = 0; b < DYTI_NATIVE_BUFFERS; b++) {
        if (k->range[b] != &k->one[b]) {
            free(k->range[b]);
        }
    }
}

/* First range of a buffer that ends behind x. */
uint32_t dyti_keeping_first(const struct dyti_keeping *k, int b, uint64_t x)
{
    uint32_t lo = 0, hi = k->count[b];

    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;

        if (k->range[b][mid].hi <= x) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

bool dyti_keeping_meets(const struct dyti_keeping *k, int b, uint64_t lo,
                        uint64_t hi)
{
    uint32_t i = dyti_keeping_first(k, b, lo);

    return lo < hi && i < k->count[b] && k->range[b][i].lo < hi;
}
