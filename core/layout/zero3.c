/* DeepSpeed ZeRO-3: every parameter is flattened, padded to a multiple of the
 * data-parallel ranks, and rank k keeps elements [k * p, (k + 1) * p) of it.
 * What lies behind the parameter's end is uninitialised memory: it is in the
 * buffer and in no shard.  Master and moments are one flat buffer: the
 * parameters' parts, one behind the other. */
#include "layout/local.h"

#include "base/checked.h"

static enum dyt_status check(const struct dyti_layout *layout)
{
    const struct dyti_layout_desc *d = &layout->desc;

    if (d->zero != 0 && d->zero != 3) {
        return DYTI_FAIL(DYT_ERR_LAYOUT,
                         "zero3: zero %u: the nearest that works is zero 3; "
                         "dialect zero12 has 1 and 2",
                         d->zero);
    }
    if (d->pp > 1) {
        return DYTI_FAIL(DYT_ERR_LAYOUT,
                         "zero3: pp %u: DeepSpeed has no pipeline with ZeRO-3; "
                         "the nearest degree that works is pp 1",
                         d->pp);
    }
    return dyti_hf_check_tp(layout, "zero3");
}

static bool is_cut(const struct dyti_layout *layout, enum dyti_kind kind)
{
    (void)layout;
    (void)kind;
    return true;
}

/* Elements [lo, hi) are the part's, in a buffer of `each`. */
static void share(const struct dyti_part *part, const struct dyti_local *l,
                  int64_t *out_lo, int64_t *out_hi, int64_t *out_each)
{
    uint32_t size, rank;
    int64_t first;

    dyti_hf_group(part, l, &size, &rank);
    dyti_chunk((int64_t)l->elements, size, rank, out_lo, out_hi);
    dyti_chunk((int64_t)l->elements, size, 0, &first, out_each);
}

/* The parts of all trained parameters from *offset on. */
static enum dyt_status place_parts(const struct dyti_placer *p,
                                   uint64_t *offset)
{
    bool apart = p->kind == DYTI_PARAM; /* tensors of their own */

    for (size_t i = 0; i < p->list->count; i++) {
        const struct dyti_local *l = &p->list->local[i];
        enum dyti_dtype dtype = dyti_local_dtype(p, l);
        int64_t lo, hi, each;
        enum dyt_status st = DYT_OK;

        if (!dyti_local_is_trained(l) || (l->kinds >> p->kind & 1u) == 0) {
            continue;
        }
        share(p->list->part, l, &lo, &hi, &each);
        if (apart) {
            *offset = dyti_align_up(*offset, (uint64_t)DYTI_REGION_ALIGN *
                                                 dyti_dtype_bytes(dtype));
            st = dyti_place_flat_buffer(p, dtype, (uint64_t)each, *offset,
                                        "%s.ds_tensor", l->name);
        }
        if (st == DYT_OK) {
            st = dyti_place_range(p, l, (uint64_t)lo, (uint64_t)hi, *offset);
        }
        if (st != DYT_OK) {
            return st;
        }
        *offset += (uint64_t)each * dyti_dtype_bytes(dtype);
    }
    return DYT_OK;
}

static enum dyt_status place(const struct dyti_placer *p,
                             struct dyti_locals *list, uint64_t *offset)
{
    static const char *const flat_name[DYTI_KIND_COUNT] = {
        [DYTI_GRAD] = "grad_partitions_flat_buffer",
        [DYTI_MASTER] = "fp32_partitioned_groups_flat.0",
        [DYTI_EXP_AVG] = "fp32_partitioned_groups_flat.0.exp_avg",
        [DYTI_EXP_AVG_SQ] = "fp32_partitioned_groups_flat.0.exp_avg_sq",
    };
    enum dyti_dtype dtype = list->layout->desc.dtype[p->kind];
    enum dyt_status st = place_parts(p, offset);

    if (st == DYT_OK && flat_name[p->kind] != NULL) {
        st = dyti_place_flat_buffer(p, dtype, *offset / dyti_dtype_bytes(dtype),
                                    0, "%s", flat_name[p->kind]);
    }
    return st != DYT_OK ? st : dyti_place_apart(p, dyti_local_is_fixed, offset);
}

const struct dyti_dialect_ops dyti_dialect_zero3 = {
    .name = "zero3",
    .check = check,
    DYTI_FRAME,
    .is_cut = is_cut,
    .list = dyti_hf_list,
    .place = place,
};
