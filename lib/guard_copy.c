/* Copies and hashes of memory that may be gone when it is touched: the kernel
 * touches it, between it and a small file of ours that is mapped here.
 *
 * A box is cut in halves until it fits a lane, with the bytes that lie behind
 * each other in as few runs as one call takes. */
#include "lib/guard_lane.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define DIMS       DYTI_COPY_DIMS
#define TILE_BYTES (1 << 20) /* of a box, for one thread */

struct guarded {
    const struct dyti_guard *guard;
    struct dyti_kernels inner;
    struct dyti_pool *pool;
    struct dyti_lane *lane; /* [threads], opened with the first range's copy */
};

/* ---- lanes --------------------------------------------------------------- */

static void close_lanes(struct guarded *self)
{
    uint32_t threads = dyti_pool_threads(self->pool);

    for (uint32_t i = 0; self->lane != NULL && i < threads; i++) {
        dyti_lane_close(&self->lane[i], self->inner.ops);
    }
    free(self->lane);
    self->lane = NULL;
}

static enum dyt_status open_lanes(struct guarded *self)
{
    uint32_t threads = dyti_pool_threads(self->pool);
    enum dyt_status st = DYT_OK;

    if (self->lane != NULL) {
        return DYT_OK;
    }
    self->lane = calloc(threads, sizeof(*self->lane));
    if (self->lane == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "lanes of %u threads", threads);
    }
    for (uint32_t i = 0; i < threads; i++) {
        self->lane[i].fd = -1;
    }
    for (uint32_t i = 0; i < threads && st == DYT_OK; i++) {
        st = dyti_lane_open(&self->lane[i], self->inner.ops);
    }
    if (st != DYT_OK) {
        close_lanes(self);
    }
    return st;
}

/* ---- boxes --------------------------------------------------------------- */

struct box {
    int64_t size[DIMS];
    struct dyti_guard_side side[2]; /* source, destination */
    uint32_t sides;
    uint8_t dtype[2];
    /* of a hash */
    const struct dyti_hash_box *hash;
    uint64_t index;
};

static int64_t elements_of(const int64_t *size)
{
    return size[0] * size[1] * size[2] * size[3];
}

/* The first `count` of a dimension, or the rest. */
static struct box part_of(const struct box *box, uint32_t d, int64_t from,
                          int64_t count)
{
    struct box part = *box;

    part.size[d] = count;
    for (uint32_t s = 0; s < box->sides; s++) {
        part.side[s].at += from * box->side[s].stride[d];
    }
    if (box->hash != NULL) {
        part.index += (uint64_t)(from * box->hash->index_stride[d]);
    }
    return part;
}

/* The dimension that is cut: the slowest of the end that is guarded. */
static uint32_t slowest(const struct box *box)
{
    const struct dyti_guard_side *side =
        &box->side[box->side[0].range == NULL ? 1 : 0];
    uint32_t best = DIMS;

    for (uint32_t d = 0; d < DIMS; d++) {
        if (box->size[d] > 1 &&
            (best == DIMS || side->stride[d] > side->stride[best])) {
            best = d;
        }
    }
    return best;
}

/* ---- through a lane ------------------------------------------------------ */

/* What a box's end is to the kernels: itself, or its image in the lane. */
struct end {
    void *at;
    const int64_t *stride;
};

static struct end end_of(struct dyti_lane *lane,
                         const struct dyti_guard_side *side,
                         const struct dyti_lane_image *image, bool in)
{
    if (side->range == NULL) {
        return (struct end){side->at, side->stride};
    }
    return (struct end){lane->at + (in ? 0 : DYTI_LANE_BYTES), image->stride};
}

static enum dyt_status copy_between(const struct guarded *self,
                                    struct dyti_lane *lane,
                                    const struct box *box, struct end src,
                                    struct end dst)
{
    struct dyti_copy copy = {.src = src.at,
                             .dst = dst.at,
                             .src_dtype = box->dtype[0],
                             .dst_dtype = box->dtype[1]};

    memcpy(copy.size, box->size, sizeof(copy.size));
    memcpy(copy.src_stride, src.stride, sizeof(copy.src_stride));
    memcpy(copy.dst_stride, dst.stride, sizeof(copy.dst_stride));
    return self->inner.ops->copy(lane->kernels, &copy, 1);
}

static enum dyt_status hash_of(const struct guarded *self,
                               struct dyti_lane *lane, const struct box *box,
                               struct end src, uint64_t *sum)
{
    struct dyti_hash_box hash = *box->hash;

    hash.data = src.at;
    hash.index = box->index;
    memcpy(hash.size, box->size, sizeof(hash.size));
    memcpy(hash.stride, src.stride, sizeof(hash.stride));
    return self->inner.ops->hash(lane->kernels, &hash, 1, sum);
}

/* A call for all tiles of a box. */
struct work {
    struct guarded *self;
    const struct box *box;
    uint32_t dim, tiles;
    _Atomic uint64_t sum;    /* hashes */
    _Atomic uint64_t bad[2]; /* address that went wrong, of each side */
    _Atomic int status;      /* of the kernels */
};

/* Its status, and whether the work goes on. */
static bool note(struct work *work, enum dyt_status st)
{
    if (st != DYT_OK) {
        atomic_store(&work->status, (int)st);
    }
    return st == DYT_OK;
}

/* A box that fits.  false: an end is gone. */
static bool do_box(struct work *work, struct dyti_lane *lane,
                   const struct box *box, const struct dyti_lane_image image[2])
{
    const struct guarded *self = work->self;
    struct end src = end_of(lane, &box->side[0], &image[0], true), dst;
    uint64_t bad = 0, sum = 0;
    enum dyt_status st;

    if (box->side[0].range != NULL &&
        !dyti_lane_pass(lane, self->guard, &image[0], box->size, &box->side[0],
                        true, &bad)) {
        atomic_store(&work->bad[0], bad);
        return false;
    }
    if (box->hash != NULL) {
        st = hash_of(self, lane, box, src, &sum);
        (void)atomic_fetch_add(&work->sum, sum);
        return note(work, st);
    }
    dst = end_of(lane, &box->side[1], &image[1], false);
    if (!note(work, copy_between(self, lane, box, src, dst))) {
        return false;
    }
    if (box->side[1].range != NULL &&
        !dyti_lane_pass(lane, self->guard, &image[1], box->size, &box->side[1],
                        false, &bad)) {
        atomic_store(&work->bad[1], bad);
        return false;
    }
    return true;
}

static bool cut_box(struct work *work, struct dyti_lane *lane,
                    const struct box *box)
{
    struct dyti_lane_image image[2] = {{.bytes = 0}, {.bytes = 0}};
    bool whole = true;

    for (uint32_t s = 0; s < box->sides; s++) {
        if (box->side[s].range != NULL) {
            image[s] = dyti_lane_image(box->size, &box->side[s]);
            whole &= dyti_lane_fits(&image[s]);
        }
    }
    if (!whole) {
        uint32_t d = slowest(box);
        int64_t half = box->size[d] / 2;
        struct box first = part_of(box, d, 0, half);
        struct box rest = part_of(box, d, half, box->size[d] - half);

        return cut_box(work, lane, &first) && cut_box(work, lane, &rest);
    }
    return do_box(work, lane, box, image);
}

static void do_tile(void *arg, size_t index, uint32_t thread)
{
    struct work *work = arg;
    int64_t n = work->box->size[work->dim], tiles = work->tiles;
    int64_t lo = n * (int64_t)index / tiles;
    int64_t hi = n * ((int64_t)index + 1) / tiles;
    struct box part = part_of(work->box, work->dim, lo, hi - lo);

    if (atomic_load(&work->bad[0]) == 0 && atomic_load(&work->bad[1]) == 0 &&
        atomic_load(&work->status) == 0) {
        (void)cut_box(work, &work->self->lane[thread], &part);
    }
}

static enum dyt_status do_work(struct guarded *self, const struct box *box,
                               uint64_t *out_sum)
{
    int64_t elements = elements_of(box->size);
    struct work work = {.self = self, .box = box, .dim = slowest(box)};
    enum dyt_status st = elements == 0 ? DYT_OK : open_lanes(self);

    if (st != DYT_OK || elements == 0) {
        return st;
    }
    if (work.dim == DIMS) { /* one element */
        (void)cut_box(&work, &self->lane[0], box);
    } else {
        int64_t tiles = elements * box->side[0].element / TILE_BYTES;
        int64_t most = box->size[work.dim];

        work.tiles = (uint32_t)(tiles < 1 ? 1 : tiles < most ? tiles : most);
        if (work.tiles == 1) {
            do_tile(&work, 0, 0);
        } else {
            dyti_pool_run(self->pool, work.tiles, do_tile, &work);
        }
    }
    for (uint32_t s = 0; s < box->sides; s++) {
        uint64_t bad = atomic_load(&work.bad[s]);

        if (bad != 0) {
            return dyti_guard_fail(self->guard, box->side[s].range, bad);
        }
    }
    if (atomic_load(&work.status) != 0) { /* said in a thread of the pool */
        return DYTI_FAIL((enum dyt_status)atomic_load(&work.status),
                         "copying through a lane");
    }
    *out_sum += atomic_load(&work.sum);
    return DYT_OK;
}

/* ---- the table ----------------------------------------------------------- */

static struct dyti_guard_side side_at(const struct guarded *self,
                                      const void *at, const int64_t *stride,
                                      uint8_t dtype)
{
    struct dyti_guard_side side = {
        .at = (unsigned char *)(uintptr_t)at,
        .range = dyti_guard_find(self->guard, at),
        .element = dyti_dtype_bytes((enum dyti_dtype)dtype)};

    memcpy(side.stride, stride, sizeof(side.stride));
    return side;
}

static enum dyt_status copy_one(struct guarded *self,
                                const struct dyti_copy *copy)
{
    struct box box = {
        .sides = 2,
        .dtype = {copy->src_dtype, copy->dst_dtype},
        .side = {side_at(self, copy->src, copy->src_stride, copy->src_dtype),
                 side_at(self, copy->dst, copy->dst_stride, copy->dst_dtype)}};
    uint64_t none = 0;

    memcpy(box.size, copy->size, sizeof(box.size));
    return do_work(self, &box, &none);
}

static enum dyt_status guarded_copy(void *of, const struct dyti_copy *copy,
                                    size_t count)
{
    struct guarded *self = of;
    enum dyt_status st = DYT_OK;

    for (size_t i = 0; i < count && st == DYT_OK;) {
        size_t free_ones = i;

        while (free_ones < count &&
               (self->guard->count == 0 ||
                (dyti_guard_find(self->guard, copy[free_ones].src) == NULL &&
                 dyti_guard_find(self->guard, copy[free_ones].dst) == NULL))) {
            free_ones = self->guard->count == 0 ? count : free_ones + 1;
        }
        if (free_ones > i) {
            st = self->inner.ops->copy(self->inner.self, copy + i,
                                       free_ones - i);
            i = free_ones;
        } else {
            st = copy_one(self, &copy[i++]);
        }
    }
    return st;
}

static enum dyt_status hash_one(struct guarded *self,
                                const struct dyti_hash_box *hash, uint64_t *sum)
{
    struct box box = {
        .sides = 1,
        .hash = hash,
        .index = hash->index,
        .side = {side_at(self, hash->data, hash->stride, hash->dtype)}};

    memcpy(box.size, hash->size, sizeof(box.size));
    return do_work(self, &box, sum);
}

static enum dyt_status guarded_hash(void *of, const struct dyti_hash_box *box,
                                    size_t count, uint64_t *out_hash)
{
    struct guarded *self = of;
    enum dyt_status st = DYT_OK;

    for (size_t i = 0; i < count && st == DYT_OK;) {
        size_t free_ones = i;

        while (free_ones < count &&
               (self->guard->count == 0 ||
                dyti_guard_find(self->guard, box[free_ones].data) == NULL)) {
            free_ones = self->guard->count == 0 ? count : free_ones + 1;
        }
        if (free_ones > i) {
            st = self->inner.ops->hash(self->inner.self, box + i, free_ones - i,
                                       out_hash + i);
            i = free_ones;
        } else {
            st = hash_one(self, &box[i], &out_hash[i]);
            i++;
        }
    }
    return st;
}

/* Bytes have no dtype: they pass one lane, of the calling thread. */
static enum dyt_status carry_some(struct guarded *self, void *dst,
                                  const void *src, const uint64_t bytes)
{
    struct dyti_lane *lane = &self->lane[0];
    const int64_t size[DIMS] = {1, 1, 1, 1};
    const int64_t stride[DIMS] = {0};
    struct dyti_guard_side from = side_at(self, src, stride, 0);
    struct dyti_guard_side to = side_at(self, dst, stride, 0);
    struct dyti_lane_image image;
    uint64_t bad = 0;

    from.element = to.element = (int64_t)bytes;
    image = dyti_lane_image(size, &from);
    if (from.range != NULL) {
        if (!dyti_lane_pass(lane, self->guard, &image, size, &from, true,
                            &bad)) {
            return dyti_guard_fail(self->guard, from.range, bad);
        }
        src = lane->at;
    }
    if (to.range == NULL) {
        memmove(dst, src, bytes);
        return DYT_OK;
    }
    memmove(lane->at + DYTI_LANE_BYTES, src, bytes);
    return dyti_lane_pass(lane, self->guard, &image, size, &to, false, &bad)
               ? DYT_OK
               : dyti_guard_fail(self->guard, to.range, bad);
}

static enum dyt_status guarded_carry(void *of, void *dst, const void *src,
                                     uint64_t bytes)
{
    struct guarded *self = of;
    enum dyt_status st = DYT_OK;

    if (dyti_guard_find(self->guard, src) == NULL &&
        dyti_guard_find(self->guard, dst) == NULL) {
        memmove(dst, src, bytes);
        return DYT_OK;
    }
    st = open_lanes(self);
    for (uint64_t at = 0; at < bytes && st == DYT_OK; at += DYTI_LANE_BYTES) {
        st = carry_some(
            self, (unsigned char *)dst + at, (const unsigned char *)src + at,
            bytes - at < DYTI_LANE_BYTES ? bytes - at : DYTI_LANE_BYTES);
    }
    return st;
}

static enum dyt_status guarded_fill(void *of, void *ptr, uint64_t bytes,
                                    uint8_t value)
{
    unsigned char some[4096];
    enum dyt_status st = DYT_OK;

    memset(some, value, sizeof(some));
    for (uint64_t at = 0; at < bytes && st == DYT_OK; at += sizeof(some)) {
        st = guarded_carry(of, (unsigned char *)ptr + at, some,
                           bytes - at < sizeof(some) ? bytes - at
                                                     : sizeof(some));
    }
    return st;
}

static void guarded_close(void *of)
{
    struct guarded *self = of;

    if (self != NULL) {
        close_lanes(self);
        self->inner.ops->close(self->inner.self);
        free(self);
    }
}

static const char *guarded_isa(void *of)
{
    struct guarded *self = of;

    return self->inner.ops->isa(self->inner.self);
}

static const struct dyti_kernel_ops table = {
    .struct_size = sizeof(struct dyti_kernel_ops),
    .name = "host copy, guarded",
    .close = guarded_close,
    .isa = guarded_isa,
    .copy = guarded_copy,
    .hash = guarded_hash,
    .carry = guarded_carry,
    .fill = guarded_fill,
    .caps = DYTI_KERNELS_ANY_MEMORY,
};

enum dyt_status dyti_guard_kernels(const struct dyti_guard *guard,
                                   struct dyti_pool *pool,
                                   const struct dyti_kernels *inner,
                                   struct dyti_kernels *out_kernels)
{
    struct guarded *self = calloc(1, sizeof(*self));

    if (self == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "guarded kernels");
    }
    self->guard = guard;
    self->pool = pool;
    self->inner = *inner;
    *out_kernels = (struct dyti_kernels){.ops = &table, .self = self};
    return DYT_OK;
}
