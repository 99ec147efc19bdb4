/* Strided copies and the content hash.  All boxes of a call lie one after the
 * other on one axis of elements, which is cut into equal tiles: many small
 * boxes make one tile, a large one makes many. */
#include "device/host/kernels.h"
#include "device/host/strided.h"

#include "base/hash.h"

#include <string.h>

#define PER_TILE     131072       /* elements */
#define STREAM_BYTES (16ll << 20) /* of a call; below, caches win */
#define ROWS_BYTES   (64ll << 20) /* likewise, of short rows */
#define AHEAD        12           /* boxes whose first line is fetched */
#define STREAM_ROW   512          /* bytes; shorter rows lose by it */
#define LINE_BYTES   64
#define SHORT_ROW    256 /* bytes: many of them go at once */

struct job {
    struct host *host;
    const struct dyti_copy *copy;
    const struct dyti_hash_box *box;
    size_t count;
    int64_t *first; /* [count + 1] where box i begins on the axis */
    bool stream, stream_rows;
    uint64_t *out_hash;
};

/* Elements [lo, hi) of box `i` that a tile covers. */
struct cut {
    size_t i;
    int64_t lo, hi;
};

/* The box of the axis that holds element `at`. */
static size_t box_at(const struct job *j, int64_t at)
{
    size_t lo = 0, hi = j->count;

    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;

        if (j->first[mid] <= at) {
            lo = mid;
        } else {
            hi = mid;
        }
    }
    return lo;
}

/* Handed on by address: copied by vectors right after it was written by words,
 * it would wait for every store before it (strided.h). */
static struct cut cut_of(const struct job *j, size_t i, int64_t lo, int64_t hi)
{
    return (struct cut){i, host_max(lo, j->first[i]) - j->first[i],
                        host_min(hi, j->first[i + 1]) - j->first[i]};
}

static int64_t elements(const int64_t *size)
{
    return size[0] * size[1] * size[2] * size[3];
}

static void run(struct job *j, dyti_tile_fn fn)
{
    dyti_pool_run(j->host->pool,
                  (size_t)host_parts(j->first[j->count], PER_TILE), fn, j);
}

/* ---- copy ---- */

static void copy_element(const char *src, enum dyti_dtype from, char *dst,
                         enum dyti_dtype to, const struct host_simd *simd)
{
    if (from == to) {
        memcpy(dst, src, dyti_dtype_bytes(from));
    } else {
        simd->convert(src, from, dst, to, 1);
    }
}

/* `count` elements whose strides are not their sizes. */
static void copy_scattered(const struct host_simd *simd, const char *src,
                           int64_t src_stride, enum dyti_dtype from, char *dst,
                           int64_t dst_stride, enum dyti_dtype to,
                           int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        copy_element(src + i * src_stride, from, dst + i * dst_stride, to,
                     simd);
    }
}

/* All rows of a box, of a few bytes each; past the caches where they are whole
 * lines. */
static void copy_rows(const struct job *j, const struct strided *s,
                      const char *src, char *dst, int64_t bytes)
{
    const struct host_simd *simd = j->host->simd;
    bool lines = j->stream_rows &&
                 (((uintptr_t)dst | (uintptr_t)bytes | (uintptr_t)s->b[0] |
                   (uintptr_t)s->b[1] | (uintptr_t)s->b[2]) %
                  LINE_BYTES) == 0;

    for (int64_t x = 0; x < s->size[0]; x++) {
        for (int64_t y = 0; y < s->size[1]; y++) {
            (lines ? simd->stream_rows : simd->rows)(
                src + x * s->a[0] + y * s->a[1], s->a[2],
                dst + x * s->b[0] + y * s->b[1], s->b[2], bytes, s->size[2]);
        }
    }
}

static void copy_cut(const struct job *j, const struct cut *cut)
{
    const struct dyti_copy *c = &j->copy[cut->i];
    const struct host_simd *simd = j->host->simd;
    enum dyti_dtype from = (enum dyti_dtype)c->src_dtype;
    enum dyti_dtype to = (enum dyti_dtype)c->dst_dtype;
    int64_t in = dyti_dtype_bytes(from), out = dyti_dtype_bytes(to);
    struct strided s;
    struct strided_walk w;
    struct strided_row row;
    bool dense;

    strided_make(c->size, c->src_stride, c->dst_stride, &s);
    dense = s.size[3] == 1 || (s.a[3] == in && s.b[3] == out);
    if (dense && from == to && s.size[3] * in <= SHORT_ROW &&
        cut->hi - cut->lo == strided_count(&s)) {
        copy_rows(j, &s, c->src, c->dst, s.size[3] * in);
        return;
    }
    strided_begin(&s, cut->lo, cut->hi, &w);
    while (strided_next(&w, &row)) {
        const char *src = (const char *)c->src + row.a;
        char *dst = (char *)c->dst + row.b;

        if (!dense) {
            copy_scattered(simd, src, s.a[3], from, dst, s.b[3], to, row.count);
        } else if (from != to) {
            simd->convert(src, from, dst, to, row.count);
        } else if (j->stream && row.count * in >= STREAM_ROW) {
            simd->stream(src, dst, row.count * in);
        } else {
            memcpy(dst, src, (size_t)(row.count * in));
        }
    }
}

static void copy_tile(void *arg, size_t index, uint32_t thread)
{
    const struct job *j = arg;
    int64_t lo = (int64_t)index * PER_TILE;
    int64_t hi = host_min(lo + PER_TILE, j->first[j->count]);

    (void)thread;
    for (size_t i = box_at(j, lo); i < j->count && j->first[i] < hi; i++) {
        const struct cut cut = cut_of(j, i, lo, hi);

        copy_cut(j, &cut);
    }
    if (j->stream) { /* streamed stores are not ordered by the pool's locks */
        j->host->simd->fence();
    }
}

static enum dyt_status copy_all(void *self, const struct dyti_copy *copy,
                                size_t count, bool past)
{
    struct job j = {.host = self, .copy = copy, .count = count};
    enum dyt_status st = dyti_host_shared(self, (count + 1) * sizeof(*j.first));
    int64_t bytes = 0;

    if (st != DYT_OK) {
        return st;
    }
    j.first = j.host->shared;
    j.first[0] = 0;
    for (size_t i = 0; i < count; i++) {
        int64_t n = elements(copy[i].size);

        dyti_assert(
            copy[i].src_dtype == copy[i].dst_dtype ||
            (copy[i].src_dtype <= DYTI_F16 && copy[i].dst_dtype <= DYTI_F16));
        j.first[i + 1] = j.first[i] + n;
        bytes += n * dyti_dtype_bytes((enum dyti_dtype)copy[i].dst_dtype);
    }
    j.stream = past || bytes >= STREAM_BYTES;
    j.stream_rows = past || bytes >= ROWS_BYTES;
    run(&j, copy_tile);
    return DYT_OK;
}

enum dyt_status dyti_host_copy(void *self, const struct dyti_copy *copy,
                               size_t count)
{
    return copy_all(self, copy, count, false);
}

enum dyt_status dyti_host_copy_past(void *self, const struct dyti_copy *copy,
                                    size_t count)
{
    return copy_all(self, copy, count, true);
}

/* ---- hash ---- */

static inline uint64_t hash_apart(const char *p, int64_t stride,
                                  const size_t bytes, int64_t count,
                                  uint64_t salt, uint64_t index, uint64_t step)
{
    uint64_t sum = 0;

    for (int64_t i = 0; i < count; i++) {
        uint64_t bits = 0;

        memcpy(&bits, p + i * stride, bytes);
        sum += dyti_content_mix(salt, index + (uint64_t)i * step, bits);
    }
    return sum;
}

/* Sizes that elements have are known here: no call for each. */
static uint64_t hash_scattered(const char *p, int64_t stride, int64_t bytes,
                               int64_t count, uint64_t salt, uint64_t index,
                               uint64_t step)
{
    switch (bytes) {
    case 2:
        return hash_apart(p, stride, 2, count, salt, index, step);
    case 4:
        return hash_apart(p, stride, 4, count, salt, index, step);
    default:
        return hash_apart(p, stride, (size_t)bytes, count, salt, index, step);
    }
}

static uint64_t hash_cut(const struct job *j, const struct cut *cut)
{
    const struct dyti_hash_box *b = &j->box[cut->i];
    int64_t bytes = dyti_dtype_bytes((enum dyti_dtype)b->dtype);
    struct strided s;
    struct strided_walk w;
    struct strided_row row;
    uint64_t sum = 0;

    strided_make(b->size, b->stride, b->index_stride, &s);
    strided_begin(&s, cut->lo, cut->hi, &w);
    while (strided_next(&w, &row)) {
        const char *p = (const char *)b->data + row.a;
        uint64_t index = b->index + (uint64_t)row.b, step = (uint64_t)s.b[3];

        sum +=
            s.size[3] == 1 || s.a[3] == bytes
                ? j->host->simd->hash(p, bytes, row.count, b->salt, index, step)
                : hash_scattered(p, s.a[3], bytes, row.count, b->salt, index,
                                 step);
    }
    return sum;
}

/* Sums mod 2^64 do not depend on who adds first; a box that lies in one tile
 * has no other that adds. */
static void hash_tile(void *arg, size_t index, uint32_t thread)
{
    const struct job *j = arg;
    int64_t lo = (int64_t)index * PER_TILE;
    int64_t hi = host_min(lo + PER_TILE, j->first[j->count]);

    (void)thread;
    for (size_t i = box_at(j, lo); i < j->count && j->first[i] < hi; i++) {
        struct cut cut;

        if (i + AHEAD < j->count) { /* small boxes lie far from each other */
            __builtin_prefetch(j->box[i + AHEAD].data);
        }
        cut = cut_of(j, i, lo, hi);
        if (cut.hi - cut.lo == j->first[i + 1] - j->first[i]) {
            j->out_hash[i] += hash_cut(j, &cut);
        } else {
            __atomic_fetch_add(&j->out_hash[i], hash_cut(j, &cut),
                               __ATOMIC_RELAXED);
        }
    }
}

enum dyt_status dyti_host_hash(void *self, const struct dyti_hash_box *box,
                               size_t count, uint64_t *out_hash)
{
    struct job j = {
        .host = self, .box = box, .count = count, .out_hash = out_hash};
    enum dyt_status st = dyti_host_shared(self, (count + 1) * sizeof(*j.first));

    if (st != DYT_OK) {
        return st;
    }
    j.first = j.host->shared;
    j.first[0] = 0;
    for (size_t i = 0; i < count; i++) {
        j.first[i + 1] = j.first[i] + elements(box[i].size);
    }
    run(&j, hash_tile);
    return DYT_OK;
}
