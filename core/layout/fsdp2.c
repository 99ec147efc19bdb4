/* FSDP2: every parameter is a dtensor cut along dimension 0 between the ranks
 * of the data-parallel group: ceil(n / ranks) rows each, the last ranks fewer
 * or none; storage is padded to the first rank's rows.  Tensor parallelism cuts
 * first: where it cuts dimension 0 too, a rank's rows are a part of its TP
 * shard (what PyTorch calls strided shards).  Gradients and optimizer state
 * are cut like the parameter; buffers, such as the bias of a router, are not
 * cut. */
#include "layout/local.h"

#include "base/checked.h"

static enum dyt_status check(const struct dyti_layout *layout)
{
    const struct dyti_layout_desc *d = &layout->desc;

    if (d->zero != 0 && d->zero != 3) {
        return DYTI_FAIL(DYT_ERR_LAYOUT,
                         "fsdp2: zero %u: FSDP2 cuts every kind; the nearest "
                         "that works is zero 3",
                         d->zero);
    }
    return dyti_hf_check_tp(layout, "fsdp2");
}

static bool is_cut(const struct dyti_layout *layout, enum dyti_kind kind)
{
    (void)layout;
    (void)kind;
    return true;
}

/* Rows [lo, hi) of dimension 0 are the part's; the storage has `rows`. */
static void rows_of(const struct dyti_part *part, const struct dyti_local *l,
                    int64_t *out_lo, int64_t *out_hi, int64_t *out_rows)
{
    uint32_t size = 1, rank = 0;
    int64_t first;

    if (dyti_local_is_trained(l)) {
        dyti_hf_group(part, l, &size, &rank);
    }
    dyti_chunk(l->shape[0], size, rank, out_lo, out_hi);
    dyti_chunk(l->shape[0], size, 0, &first, out_rows);
}

/* The buffer has the padded rows, the shards only those that are there. */
static enum dyt_status place_one(const struct dyti_placer *p,
                                 const struct dyti_local *l, uint64_t *offset)
{
    enum dyti_dtype dtype = dyti_local_dtype(p, l);
    uint64_t element = dyti_dtype_bytes(dtype), row;
    int64_t lo, hi, rows;
    enum dyt_status st = DYT_OK;
    struct dyti_view_buffer b = {.name = l->name,
                                 .kind = (uint8_t)p->kind,
                                 .dtype = (uint8_t)dtype,
                                 .ndim = l->ndim};

    rows_of(p->list->part, l, &lo, &hi, &rows);
    row = l->shape[0] > 0 ? l->elements / (uint64_t)l->shape[0] : 0;
    for (uint32_t d = 0; d < l->ndim; d++) {
        b.shape[d] = d == 0 ? rows : l->shape[d];
    }
    *offset = dyti_align_up(*offset, DYTI_REGION_ALIGN * element);
    b.offset = *offset;
    b.bytes = (uint64_t)rows * row * element;
    if (p->sink->buffer != NULL) {
        st = p->sink->buffer(p->sink->self, &b);
    }
    *offset += b.bytes;
    return st != DYT_OK ? st
                        : dyti_place_range(p, l, (uint64_t)lo * row,
                                           (uint64_t)hi * row, b.offset);
}

static enum dyt_status place(const struct dyti_placer *p,
                             struct dyti_locals *list, uint64_t *offset)
{
    enum dyt_status st = DYT_OK;

    for (size_t i = 0; i < list->count && st == DYT_OK; i++) {
        if ((list->local[i].kinds >> p->kind & 1u) != 0) {
            st = place_one(p, &list->local[i], offset);
        }
    }
    return st;
}

const struct dyti_dialect_ops dyti_dialect_fsdp2 = {
    .name = "fsdp2",
    .check = check,
    DYTI_FRAME,
    .is_cut = is_cut,
    .list = dyti_hf_list,
    .place = place,
};
