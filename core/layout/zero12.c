/* DeepSpeed ZeRO-1 and ZeRO-2 (BF16_Optimizer too): the parameters of a group
 * are one flat tensor, in their order and without gaps, padded only at the end
 * to a multiple of twice the data-parallel ranks, and cut into equal contiguous
 * partitions that do not care where a parameter ends.  Parameters themselves
 * stay whole; the master is the partition.  ZeRO-2 cuts gradients likewise.
 * Groups: by type of the parameters; routed experts, which other ranks share,
 * in groups of their own. */
#include "layout/local.h"

#include "base/checked.h"

/* One flat tensor. */
struct group {
    bool expert;
    enum dyti_dtype dtype; /* of its parameters */
    uint32_t number;       /* in the buffers' names */
};

static enum dyt_status check(const struct dyti_layout *layout)
{
    const struct dyti_layout_desc *d = &layout->desc;

    if (d->zero == 3) {
        return DYTI_FAIL(DYT_ERR_LAYOUT,
                         "zero12: zero 3: the nearest that works is zero 2; "
                         "dialect zero3 has 3");
    }
    if (d->zero == 2 && d->pp > 1) {
        return DYTI_FAIL(DYT_ERR_LAYOUT,
                         "zero12: DeepSpeed has no pipeline (pp %u) with "
                         "ZeRO-2; the nearest that works is zero 1",
                         d->pp);
    }
    return dyti_hf_check_tp(layout, "zero12");
}

static bool is_cut(const struct dyti_layout *layout, enum dyti_kind kind)
{
    return kind == DYTI_MASTER || kind == DYTI_EXP_AVG ||
           kind == DYTI_EXP_AVG_SQ ||
           (kind == DYTI_GRAD && layout->desc.zero == 2);
}

static uint32_t representative(const struct dyti_layout *layout,
                               uint32_t member, enum dyti_kind kind)
{
    return dyti_local_representative(layout, member,
                                     kind == DYTI_EXTRA
                                         ? dyti_local_has_own_extras(layout)
                                         : is_cut(layout, kind));
}

static enum dyti_dtype param_dtype(const struct dyti_layout *layout,
                                   const struct dyti_local *l)
{
    return l->fixed_dtype ? l->dtype : layout->desc.dtype[DYTI_PARAM];
}

static bool in_group(const struct dyti_placer *p, const struct group *g,
                     const struct dyti_local *l)
{
    return dyti_local_is_trained(l) && l->expert == g->expert &&
           param_dtype(p->list->layout, l) == g->dtype &&
           (l->kinds >> p->kind & 1u) != 0;
}

/* Whole tensors, which lie in the flat tensor one behind the other. */
static enum dyt_status place_full(const struct dyti_placer *p,
                                  const struct group *g, uint64_t offset,
                                  uint64_t element)
{
    for (size_t i = 0; i < p->list->count; i++) {
        const struct dyti_local *l = &p->list->local[i];

        if (in_group(p, g, l)) {
            enum dyt_status st = dyti_place_whole(p, l, offset);

            if (st != DYT_OK) {
                return st;
            }
            offset += l->elements * element;
        }
    }
    return DYT_OK;
}

/* Elements [lo, hi) of the flat tensor, one buffer at `offset`. */
static enum dyt_status place_cut(const struct dyti_placer *p,
                                 const struct group *g, uint64_t lo,
                                 uint64_t hi, uint64_t offset, uint64_t element)
{
    static const char *const name[DYTI_KIND_COUNT] = {
        [DYTI_GRAD] = "averaged_gradients",
        [DYTI_MASTER] = "single_partition_of_fp32_groups",
        [DYTI_EXP_AVG] = "state.exp_avg",
        [DYTI_EXP_AVG_SQ] = "state.exp_avg_sq",
    };
    uint64_t at = 0;
    enum dyt_status st =
        dyti_place_flat_buffer(p, p->list->layout->desc.dtype[p->kind], hi - lo,
                               offset, "%s.%u", name[p->kind], g->number);

    for (size_t i = 0; i < p->list->count && st == DYT_OK; i++) {
        const struct dyti_local *l = &p->list->local[i];
        uint64_t end = at + l->elements;

        if (!in_group(p, g, l)) {
            continue;
        }
        if (at < hi && end > lo) {
            uint64_t first = at > lo ? at : lo, stop = end < hi ? end : hi;

            st = dyti_place_range(p, l, first - at, stop - at,
                                  offset + (first - lo) * element);
        }
        at = end;
    }
    return st;
}

static enum dyt_status place_group(const struct dyti_placer *p,
                                   const struct group *g, uint64_t *offset,
                                   bool *out_any)
{
    const struct dyti_part *part = p->list->part;
    uint64_t element = 1, total = 0, align, start;
    uint32_t size = 1, rank = 0;
    enum dyt_status st;

    for (size_t i = 0; i < p->list->count; i++) {
        const struct dyti_local *l = &p->list->local[i];

        if (in_group(p, g, l)) {
            total += l->elements;
            element = dyti_dtype_bytes(dyti_local_dtype(p, l));
            dyti_hf_group(part, l, &size, &rank);
            *out_any = true;
        }
    }
    if (total == 0) {
        return DYT_OK;
    }
    align = 2u * (uint64_t)size;
    total = (total + align - 1) / align * align;
    start = dyti_align_up(*offset, DYTI_REGION_ALIGN * element);
    if (is_cut(p->list->layout, p->kind)) {
        uint64_t each = total / size;

        st = place_cut(p, g, rank * each, (rank + 1u) * each, start, element);
        total = each;
    } else {
        st = place_full(p, g, start, element);
    }
    *offset = start + total * element;
    return st;
}

static enum dyt_status emit(const struct dyti_layout *layout,
                            const struct dyti_part *part, enum dyti_kind kind,
                            const struct dyti_shard_sink *sink,
                            uint64_t *out_region_bytes)
{
    struct dyti_locals list;
    struct dyti_placer placer = {&list, kind, sink};
    struct group g = {.number = 0};
    enum dyt_status st;
    uint64_t offset = 0;

    if (kind == DYTI_EXTRA) {
        return dyti_local_extras(layout, part, &dyti_dialect_zero12, sink,
                                 out_region_bytes);
    }
    dyti_locals_init(&list, layout, part, sink->buffer != NULL);
    dyti_hf_list(&list);
    st = list.status;
    for (int expert = 0; expert < 2; expert++) {
        for (int dtype = 0; dtype < DYTI_DTYPE_COUNT; dtype++) {
            bool any = false;

            g.expert = expert == 1;
            g.dtype = (enum dyti_dtype)dtype;
            st = st != DYT_OK ? st : place_group(&placer, &g, &offset, &any);
            g.number += any;
        }
    }
    st = st != DYT_OK ? st
                      : dyti_place_apart(&placer, dyti_local_is_fixed, &offset);
    if (st == DYT_OK) {
        *out_region_bytes = offset;
    }
    dyti_locals_fini(&list);
    return st;
}

const struct dyti_dialect_ops dyti_dialect_zero12 = {
    .name = "zero12",
    .check = check,
    .representative = representative,
    .emit = emit,
};
