/* Random architectures, degrees and rank lists from a fixed seed, and the slow
 * way to address an element of a shard: for layout, plan and exec tests. */
#ifndef DYT_LAYOUT_CASES_H
#define DYT_LAYOUT_CASES_H

#include "dyt_test.h"

#include "arch_cases.h"
#include "base/rng.h"
#include "layout/layout.h"

#define DYT_CASE_RANKS 32u

struct dyt_case_desc {
    struct dyti_layout_desc desc;
    uint32_t ranks[DYT_CASE_RANKS];
    uint32_t pp_layers[DYT_CASE_RANKS];
};

static inline uint64_t dyt_case_pick(uint64_t seed, uint64_t a, uint64_t b,
                                     uint64_t count)
{
    return dyti_rng_u64(seed, a, b, 0xca5e) % count;
}

static inline struct dyti_arch dyt_case_arch(uint64_t seed, uint64_t trial)
{
    static const struct dyti_arch fixed[] = {
        DYT_ARCH_TINY_9_3, DYT_ARCH_TINY_8_2, DYT_ARCH_TINY_QWEN2,
        DYT_ARCH_TINY_QWEN3};
    struct dyti_arch arch;
    int64_t group;

    if (trial < DYT_TEST_COUNT(fixed)) {
        return fixed[trial];
    }
    arch = fixed[dyt_case_pick(seed, trial, 1, DYT_TEST_COUNT(fixed))];
    group = 1 + (int64_t)dyt_case_pick(seed, trial, 2, 4);
    arch.kv_heads = 1 + (int64_t)dyt_case_pick(seed, trial, 3, 3);
    arch.q_heads = group * arch.kv_heads;
    arch.head_dim = 1 + (int64_t)dyt_case_pick(seed, trial, 4, 3);
    arch.hidden = 1 + (int64_t)dyt_case_pick(seed, trial, 5, 14);
    arch.layers = 1 + (int64_t)dyt_case_pick(seed, trial, 6, 4);
    arch.ffn = 12 + (int64_t)dyt_case_pick(seed, trial, 7, 20);
    arch.vocab = 12 + (int64_t)dyt_case_pick(seed, trial, 8, 50);
    arch.tied = dyt_case_pick(seed, trial, 9, 2) == 0;
    return arch;
}

/* Random degrees that fit the architecture and `world` ranks, some ranks left
 * out, in random order. */
static inline void dyt_case_layout(uint64_t seed, uint64_t trial,
                                   const struct dyti_arch *arch, uint32_t world,
                                   const char *phase, struct dyt_case_desc *out)
{
    struct dyti_layout_desc *d = &out->desc;
    uint64_t left;

    memset(out, 0, sizeof(*out));
    d->phase = phase;
    d->world_size = world;
    left = (uint64_t)arch->q_heads < world ? (uint64_t)arch->q_heads : world;
    d->tp = 1 + (uint32_t)dyt_case_pick(seed, trial, 21, left);
    left = world / d->tp;
    left = left < (uint64_t)arch->layers ? left : (uint64_t)arch->layers;
    d->pp = 1 + (uint32_t)dyt_case_pick(seed, trial, 22, left);
    d->dp = 1 + (uint32_t)dyt_case_pick(seed, trial, 23, world / d->tp / d->pp);
    d->zero = (uint32_t)dyt_case_pick(seed, trial, 24, 2);
    for (uint32_t r = 0; r < world; r++) { /* a random permutation */
        uint32_t at = (uint32_t)dyt_case_pick(seed, trial, 30 + r, r + 1);

        out->ranks[r] = out->ranks[at];
        out->ranks[at] = r;
    }
    d->ranks = dyt_case_pick(seed, trial, 25, 3) == 0 ? NULL : out->ranks;
    if (dyt_case_pick(seed, trial, 26, 2) == 0) { /* uneven stages */
        uint32_t more = (uint32_t)arch->layers - d->pp;

        for (uint32_t s = 0; s < d->pp; s++) {
            out->pp_layers[s] = 1;
        }
        for (uint32_t i = 0; i < more; i++) {
            out->pp_layers[dyt_case_pick(seed, trial, 70 + i, d->pp)]++;
        }
        d->pp_layers = out->pp_layers;
    }
}

/* Visit the elements of a box: coordinates `at` to the next, row-major.  Start
 * with box->lo; false after the last. */
static inline bool dyt_case_next(const struct dyt_box *box, int64_t *at)
{
    for (uint32_t d = box->ndim; d-- > 0;) {
        if (++at[d] < box->hi[d]) {
            return true;
        }
        at[d] = box->lo[d];
    }
    return false;
}

static inline bool dyt_case_same_box(const struct dyt_box *a,
                                     const struct dyt_box *b)
{
    return a->ndim == b->ndim && memcmp(a->lo, b->lo, sizeof(a->lo)) == 0 &&
           memcmp(a->hi, b->hi, sizeof(a->hi)) == 0;
}

/* Row-major index of an element in the whole tensor. */
static inline uint64_t dyt_case_index(const struct dyti_tensor *t,
                                      const int64_t *at)
{
    uint64_t index = 0;

    for (uint32_t d = 0; d < t->ndim; d++) {
        index = index * (uint64_t)t->shape[d] + (uint64_t)at[d];
    }
    return index;
}

/* Byte offset of an element of a shard in its region. */
static inline uint64_t dyt_case_offset(const struct dyti_shard *s,
                                       const int64_t *at)
{
    int64_t offset = (int64_t)s->offset;

    for (uint32_t d = 0; d < s->box.ndim; d++) {
        offset += (at[d] - s->box.lo[d]) * s->stride[d];
    }
    return (uint64_t)offset;
}

#endif /* DYT_LAYOUT_CASES_H */
