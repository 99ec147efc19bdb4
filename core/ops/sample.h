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
    int64_t first = lo <= start ? 0 : lo - start;
    int64_t end = lo + size <= start ? 0 : lo + size - start;

    if (step != 1) { /* few have: divisions are slow */
        first = (first + step - 1) / step;
        end = (end + step - 1) / step;
    }
    end = end > count ? count : end;
    *out_at = start + first * step;
    *out_count = end - first;
    return first < end;
}

/* A sample as far as no seed changes it. */
struct dyti_sample_form {
    struct dyti_sample sample;
    struct dyti_hash_box box; /* of the elements, but for the dims that move;
                                 without data */
    int64_t offset;           /* bytes from the piece's first to the box's */
    uint32_t move[DYTI_COPY_DIMS], move_count; /* dims whose start is drawn */
    bool is_empty;                             /* whatever is drawn */
};

/* *out_form: all zero before, so that forms of equal samples are equal bytes.
 */
static inline void dyti_sample_prepare(const struct dyti_sample *sample,
                                       struct dyti_sample_form *out_form)
{
    struct dyti_sample_form *f = out_form;

    f->sample = *sample;
    f->box.index = sample->box.index;
    f->box.salt = sample->box.salt;
    f->box.dtype = sample->box.dtype;
    for (uint32_t d = 0; d < DYTI_COPY_DIMS; d++) {
        int64_t at, step = sample->step[d];

        f->box.stride[d] = sample->box.stride[d] * step;
        f->box.index_stride[d] = sample->box.index_stride[d] * step;
        if (sample->starts[d] != 1) {
            f->move[f->move_count++] = d;
            continue;
        }
        if (!dyti_sample_dim(sample->lo[d], sample->box.size[d], step,
                             sample->count[d], 0, &at, &f->box.size[d])) {
            f->is_empty = true;
            return;
        }
        f->offset += (at - sample->lo[d]) * sample->box.stride[d];
        f->box.index += (uint64_t)(at * sample->box.index_stride[d]);
    }
}

/* The lattice's elements in a piece of this form at `data`, as a box, for what
 * was drawn of its tensor (dyti_sample_bits); false: none, and *out_box is of
 * no use. */
static inline bool dyti_sample_at(const struct dyti_sample_form *form,
                                  const void *data, uint64_t bits,
                                  struct dyti_hash_box *out_box)
{
    const struct dyti_sample *s = &form->sample;
    const unsigned char *first = (const unsigned char *)data + form->offset;
    uint64_t index = form->box.index;

    if (form->is_empty) {
        return false;
    }
    *out_box = form->box;
    for (uint32_t i = 0; i < form->move_count; i++) {
        uint32_t d = form->move[i];
        uint64_t starts = (uint64_t)s->starts[d];
        int64_t start = (int64_t)(bits % starts), at;

        bits /= starts;
        if (!dyti_sample_dim(s->lo[d], s->box.size[d], s->step[d], s->count[d],
                             start, &at, &out_box->size[d])) {
            return false;
        }
        first += (at - s->lo[d]) * s->box.stride[d];
        index += (uint64_t)(at * s->box.index_stride[d]);
    }
    out_box->data = first;
    out_box->index = index;
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
    struct dyti_sample_form form = {0};

    dyti_sample_prepare(sample, &form);
    return dyti_sample_at(&form, sample->box.data,
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
