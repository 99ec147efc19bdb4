/* Flat ranges of row-major arrays as boxes, and boxes as shards. */
#include "base/checked.h"
#include "layout/native.h"

static void add_box(uint32_t ndim, const int64_t *shape, uint32_t axis,
                    uint64_t row, uint64_t first, uint64_t end,
                    struct dyt_box *out)
{
    /* row: index of the outer dims [0, axis), row-major. */
    *out = (struct dyt_box){.ndim = ndim};
    for (uint32_t d = axis; d-- > 0;) {
        out->lo[d] = (int64_t)(row % (uint64_t)shape[d]);
        out->hi[d] = out->lo[d] + 1;
        row /= (uint64_t)shape[d];
    }
    out->lo[axis] = (int64_t)first;
    out->hi[axis] = (int64_t)end;
    for (uint32_t d = axis + 1; d < ndim; d++) {
        out->lo[d] = 0;
        out->hi[d] = shape[d];
    }
}

/* Leading parts from the innermost axis outwards, whole rows of the outermost
 * axis that both ends share, then trailing parts back inwards: 2*ndim - 1. */
uint32_t dyti_native_flat_boxes(uint32_t ndim, const int64_t *shape,
                                uint64_t lo, uint64_t hi,
                                struct dyt_box out_box[DYTI_FLAT_BOXES])
{
    uint64_t unit[DYT_MAX_DIMS]; /* elements of one step along each axis */
    uint32_t count = 0, axis = ndim - 1;

    unit[ndim - 1] = 1;
    for (uint32_t d = ndim - 1; d-- > 0;) {
        unit[d] = unit[d + 1] * (uint64_t)shape[d + 1];
    }
    while (lo < hi) {
        uint64_t block = unit[axis] * (uint64_t)shape[axis];
        uint64_t stop = (lo / block + 1) * block; /* end of this block */

        if (axis > 0 && lo % block == 0 && hi - lo >= block) {
            axis--; /* whole blocks of this axis: go outwards */
        } else if (hi - lo < unit[axis]) {
            axis++; /* less than one step is left: go inwards */
        } else {
            uint64_t end = hi < stop ? hi / unit[axis] * unit[axis] : stop;

            add_box(ndim, shape, axis, lo / block, lo % block / unit[axis],
                    lo % block / unit[axis] + (end - lo) / unit[axis],
                    &out_box[count++]);
            lo = end;
        }
    }
    return count;
}

/* The part of `local`, a box in local coordinates, that lies in one range of
 * the axis; `at`: local element where that range begins. */
static enum dyt_status emit_box(const struct dyti_shard_sink *sink,
                                const struct dyti_flat_piece *p,
                                const struct dyt_box *local,
                                const struct dyti_native_range *range,
                                int64_t at, int64_t offset)
{
    struct dyti_shard shard = {.tensor = p->tensor,
                               .kind = (uint8_t)p->kind,
                               .dtype = (uint8_t)p->dtype,
                               .box = *local};
    struct dyt_box *box = &shard.box;
    int64_t stride = dyti_dtype_bytes(p->dtype);
    int64_t end = at + (range->hi - range->lo);

    box->lo[p->axis] = box->lo[p->axis] > at ? box->lo[p->axis] : at;
    box->hi[p->axis] = box->hi[p->axis] < end ? box->hi[p->axis] : end;
    if (box->lo[p->axis] >= box->hi[p->axis]) {
        return DYT_OK;
    }
    for (uint32_t d = p->ndim; d-- > 0;) {
        int64_t shift = d == p->axis ? range->lo - at : p->origin[d];

        shard.stride[d] = stride;
        offset += box->lo[d] * stride;
        stride *= p->local[d];
        box->lo[d] += shift;
        box->hi[d] += shift;
    }
    shard.offset = (uint64_t)offset;
    return sink->shard(sink->self, &shard);
}

enum dyt_status dyti_emit_piece(const struct dyti_shard_sink *sink,
                                const struct dyti_flat_piece *piece,
                                uint64_t lo, uint64_t hi, uint64_t offset)
{
    struct dyt_box box[DYTI_FLAT_BOXES];
    uint32_t count =
        dyti_native_flat_boxes(piece->ndim, piece->local, lo, hi, box);
    /* Where local element 0 would lie: may be before the region. */
    int64_t base =
        (int64_t)offset - (int64_t)(lo * dyti_dtype_bytes(piece->dtype));

    for (uint32_t i = 0; i < count; i++) {
        int64_t at = 0;

        for (uint32_t r = 0; r < piece->range_count; r++) {
            enum dyt_status st =
                emit_box(sink, piece, &box[i], &piece->range[r], at, base);

            if (st != DYT_OK) {
                return st;
            }
            at += piece->range[r].hi - piece->range[r].lo;
        }
    }
    return DYT_OK;
}
