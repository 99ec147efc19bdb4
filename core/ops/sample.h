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

/* The lattice's elements in the piece, as a box; false: none. */
static inline bool dyti_sample_draw(const struct dyti_sample *sample,
                                    uint64_t seed,
                                    struct dyti_hash_box *out_box)
{
    uint64_t bits = dyti_rng_u64(seed, sample->key, 0, 0);
    struct dyti_hash_box box = sample->box;

    for (uint32_t d = 0; d < DYTI_COPY_DIMS; d++) {
        int64_t step = sample->step[d], lo = sample->lo[d];
        int64_t hi = lo + box.size[d], first, end;
        int64_t start = (int64_t)(bits % (uint64_t)sample->starts[d]);

        bits /= (uint64_t)sample->starts[d];
        first = lo <= start ? 0 : (lo - start + step - 1) / step;
        end = hi <= start ? 0 : (hi - start + step - 1) / step;
        end = end > sample->count[d] ? sample->count[d] : end;
        if (first >= end) {
            return false;
        }
        start += first * step;
        box.data =
            (const unsigned char *)box.data + (start - lo) * box.stride[d];
        box.index += (uint64_t)(start * box.index_stride[d]);
        box.size[d] = end - first;
        box.stride[d] *= step;
        box.index_stride[d] *= step;
    }
    *out_box = box;
    return true;
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
