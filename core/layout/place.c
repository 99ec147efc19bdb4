/* From a framework's tensors to shards: a flat range of a local, row-major, is
 * cut into boxes, and each box is met with the pieces that lie there. */
#include "layout/local.h"

#include "base/checked.h"
#include "layout/native.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum dyti_dtype dyti_local_dtype(const struct dyti_placer *p,
                                 const struct dyti_local *local)
{
    return p->kind == DYTI_PARAM && local->fixed_dtype
               ? local->dtype
               : p->list->layout->desc.dtype[p->kind];
}

/* A flat range of a local that lies densely at `offset`. */
struct range {
    const struct dyti_placer *placer;
    const struct dyti_local *local;
    enum dyti_dtype dtype;
    int64_t stride[DYT_MAX_DIMS]; /* of the local, bytes */
    uint64_t lo, offset;
};

/* The part of a piece that lies in `box`, a box in local coordinates. */
static enum dyt_status meet(const struct range *r,
                            const struct dyti_piece *piece,
                            const struct dyt_box *box)
{
    int64_t element = dyti_dtype_bytes(r->dtype);
    int64_t where[DYT_MAX_DIMS]; /* local place of the shard's first element */
    bool mapped[DYT_MAX_DIMS] = {false};
    int64_t place = 0; /* bytes from the local's start */
    struct dyti_shard s = {.tensor = piece->tensor,
                           .kind = (uint8_t)r->placer->kind,
                           .dtype = (uint8_t)r->dtype};

    memcpy(where, piece->at, sizeof(where));
    s.box.ndim = piece->box.ndim;
    for (uint32_t d = 0; d < piece->box.ndim; d++) {
        uint32_t a = piece->axis[d];
        int64_t end = piece->at[a] + (piece->box.hi[d] - piece->box.lo[d]);
        int64_t lo = piece->at[a] > box->lo[a] ? piece->at[a] : box->lo[a];
        int64_t hi = end < box->hi[a] ? end : box->hi[a];

        if (lo >= hi) {
            return DYT_OK;
        }
        mapped[a] = true;
        where[a] = lo;
        s.box.lo[d] = piece->box.lo[d] + (lo - piece->at[a]);
        s.box.hi[d] = s.box.lo[d] + (hi - lo);
        s.stride[d] = r->stride[a];
    }
    for (uint32_t a = 0; a < r->local->ndim; a++) {
        if (!mapped[a] && (where[a] < box->lo[a] || where[a] >= box->hi[a])) {
            return DYT_OK;
        }
        place += where[a] * r->stride[a];
    }
    s.offset = r->offset + (uint64_t)(place - (int64_t)r->lo * element);
    return r->placer->sink->shard(r->placer->sink->self, &s);
}

enum dyt_status dyti_place_range(const struct dyti_placer *p,
                                 const struct dyti_local *local, uint64_t lo,
                                 uint64_t hi, uint64_t offset)
{
    struct range r = {.placer = p,
                      .local = local,
                      .dtype = dyti_local_dtype(p, local),
                      .lo = lo,
                      .offset = offset};
    struct dyt_box box[DYTI_FLAT_BOXES];
    int64_t stride = dyti_dtype_bytes(r.dtype);
    uint32_t count;

    if (lo >= hi) {
        return DYT_OK;
    }
    for (uint32_t a = local->ndim; a-- > 0;) {
        r.stride[a] = stride;
        stride *= local->shape[a];
    }
    count = dyti_native_flat_boxes(local->ndim, local->shape, lo, hi, box);
    for (uint32_t b = 0; b < count; b++) {
        for (size_t i = 0; i < local->piece_count; i++) {
            enum dyt_status st =
                meet(&r, &p->list->piece[local->piece_first + i], &box[b]);

            if (st != DYT_OK) {
                return st;
            }
        }
    }
    return DYT_OK;
}

enum dyt_status dyti_place_whole(const struct dyti_placer *p,
                                 const struct dyti_local *local,
                                 uint64_t offset)
{
    enum dyti_dtype dtype = dyti_local_dtype(p, local);
    struct dyti_view_buffer b = {.name = local->name,
                                 .kind = (uint8_t)p->kind,
                                 .dtype = (uint8_t)dtype,
                                 .ndim = local->ndim,
                                 .offset = offset,
                                 .bytes =
                                     local->elements * dyti_dtype_bytes(dtype)};
    enum dyt_status st = DYT_OK;

    memcpy(b.shape, local->shape, sizeof(b.shape));
    if (p->sink->buffer != NULL) {
        st = p->sink->buffer(p->sink->self, &b);
    }
    return st != DYT_OK
               ? st
               : dyti_place_range(p, local, 0, local->elements, offset);
}

enum dyt_status dyti_place_flat_buffer(const struct dyti_placer *p,
                                       enum dyti_dtype dtype, uint64_t elements,
                                       uint64_t offset, const char *fmt, ...)
{
    char name[DYTI_LOCAL_NAME];
    struct dyti_view_buffer b = {.name = name,
                                 .kind = (uint8_t)p->kind,
                                 .dtype = (uint8_t)dtype,
                                 .ndim = 1,
                                 .shape = {(int64_t)elements},
                                 .offset = offset,
                                 .bytes = elements * dyti_dtype_bytes(dtype)};
    va_list args;

    if (p->sink->buffer == NULL) {
        return DYT_OK;
    }
    va_start(args, fmt);
    (void)vsnprintf(name, sizeof(name), fmt, args);
    va_end(args);
    return p->sink->buffer(p->sink->self, &b);
}

enum dyt_status dyti_place_apart(const struct dyti_placer *p,
                                 bool (*wanted)(const struct dyti_local *local),
                                 uint64_t *offset)
{
    for (size_t i = 0; i < p->list->count; i++) {
        const struct dyti_local *l = &p->list->local[i];
        uint64_t element = dyti_dtype_bytes(dyti_local_dtype(p, l));
        enum dyt_status st;

        if ((l->kinds >> p->kind & 1u) == 0 || (wanted != NULL && !wanted(l))) {
            continue;
        }
        *offset = dyti_align_up(*offset, DYTI_REGION_ALIGN * element);
        st = dyti_place_whole(p, l, *offset);
        if (st != DYT_OK) {
            return st;
        }
        *offset += l->elements * element;
    }
    return DYT_OK;
}

bool dyti_local_is_trained(const struct dyti_local *local)
{
    return (local->kinds >> DYTI_MASTER & 1u) != 0;
}

bool dyti_local_is_fixed(const struct dyti_local *local)
{
    return !dyti_local_is_trained(local);
}
