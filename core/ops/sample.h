/* Samples: which elements of a piece of a tensor a seed draws.  The same on all
 * ranks and devices, whatever the pieces are: the elements of a tensor that are
 * drawn are a lattice, of which each piece has its part.
 *
 * Terms
 *   lattice   along each dim `count` coordinates: start, start + step, …; only
 *             the starts are drawn
 *   all       step 1, from 0 on: every element, whatever the seed */
#ifndef DYTI_OPS_SAMPLE_H
#define DYTI_OPS_SAMPLE_H

#include "base/rng.h"
#include "ops/kernels.h"

struct dyti_sample {
    /* The whole piece; `index` is that of the tensor's element 0. */
    struct dyti_hash_box box;
    uint8_t as; /* enum dyti_dtype: its elements are hashed as they would be
                   stored in this one */
    int64_t lo[DYTI_COPY_DIMS]; /* of the piece, in the tensor; elements */
    int64_t step[DYTI_COPY_DIMS], count[DYTI_COPY_DIMS]; /* of the lattice */
    int64_t starts[DYTI_COPY_DIMS]; /* >= 1: so many starts are drawn from */
    uint64_t key;                   /* of the tensor, for the draw */
};

/* One dim of a draw: how many of the lattice's coordinates are in the piece,
 * and the first of them; false: none. */
static inline bool dyti_sample_dim(int64_t lo, int64_t size, int64_t step,
                                   int64_t count, int64_t start,
                                   int64_t *out_at, int64_t *out_count)
{
    int64_t hi = lo + size, first = lo, end = hi;

    if (step != 1 || start != 0) { /* few have: divisions are slow */
        first = lo <= start ? 0 : (lo - start + step - 1) / step;
        end = hi <= start ? 0 : (hi - start + step - 1) / step;
    }
    end = end > count ? count : end;
    *out_at = start + first * step;
    *out_count = end - first;
    return first < end;
}

/* The elements of a lattice (step, count, starts of a dyti_sample) in a piece,
 * as a box; false: none, and *out_box is of no use.  It is written in place,
 * word by word: what is copied as vectors right after that is slow. */
static inline bool dyti_lattice_draw(const struct dyti_hash_box *piece,
                                     const int64_t *lo, const int64_t *step,
                                     const int64_t *count,
                                     const int64_t *starts, uint64_t bits,
                                     struct dyti_hash_box *out_box)
{
    const unsigned char *data = (const unsigned char *)piece->data;
    uint64_t index = piece->index;

    for (uint32_t d = 0; d < DYTI_COPY_DIMS; d++) {
        int64_t start = 0, at;

        if (starts[d] != 1) {
            start = (int64_t)(bits % (uint64_t)starts[d]);
            bits /= (uint64_t)starts[d];
        }
        if (!dyti_sample_dim(lo[d], piece->size[d], step[d], count[d], start,
                             &at, &out_box->size[d])) {
            return false;
        }
        data += (at - lo[d]) * piece->stride[d];
        index += (uint64_t)(at * piece->index_stride[d]);
        out_box->stride[d] = piece->stride[d] * step[d];
        out_box->index_stride[d] = piece->index_stride[d] * step[d];
    }
    out_box->data = data;
    out_box->index = index;
    out_box->salt = piece->salt;
    out_box->dtype = piece->dtype;
    return true;
}

/* What a seed draws of a tensor. */
static inline uint64_t dyti_sample_bits(uint64_t seed, uint64_t key)
{
    return dyti_rng_u64(seed, key, 0, 0);
}

/* The lattice's elements in the piece, as a box; false: none. */
static inline bool dyti_sample_draw(const struct dyti_sample *sample,
                                    uint64_t seed,
                                    struct dyti_hash_box *out_box)
{
    return dyti_lattice_draw(&sample->box, sample->lo, sample->step,
                             sample->count, sample->starts,
                             dyti_sample_bits(seed, sample->key), out_box);
}

/* The most elements that any seed draws of it. */
static inline uint64_t dyti_sample_most(const struct dyti_sample *sample)
{
    uint64_t most = 1;

    for (uint32_t d = 0; d < DYTI_COPY_DIMS; d++) {
        int64_t step = sample->step[d];
        int64_t there = (sample->box.size[d] + step - 1) / step;

        most *= (uint64_t)(there < sample->count[d] ? there : sample->count[d]);
    }
    return most;
}

#endif /* DYTI_OPS_SAMPLE_H */
