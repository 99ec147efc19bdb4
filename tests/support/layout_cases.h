/* Random architectures, degrees and rank lists from a fixed seed, and the slow
 * way to address an element of a shard: for layout, plan and exec tests. */
#ifndef DYT_LAYOUT_CASES_H
#define DYT_LAYOUT_CASES_H

#include "dyt_test.h"

#include "arch_cases.h"
#include "base/rng.h"
#include "layout/layout.h"

#define DYT_CASE_RANKS 32u

#define DYT_CASE_SLOTS 256u

struct dyt_case_desc {
    struct dyti_layout_desc desc;
    uint32_t ranks[DYT_CASE_RANKS];
    uint32_t pp_layers[DYT_CASE_RANKS];
    int32_t expert_slot[DYT_CASE_SLOTS];
    struct dyti_zero_range zero_range[2][DYT_CASE_RANKS];
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

/* ---- every family, every degree ------------------------------------------ */

/* A small architecture of any family: dense, MoE, MLA, GPT-2. */
static inline struct dyti_arch dyt_case_any_arch(uint64_t seed, uint64_t trial)
{
    static const struct dyti_arch more[] = {
        DYT_ARCH_TINY_MOE, DYT_ARCH_TINY_MIXTRAL, DYT_ARCH_TINY_MLA,
        DYT_ARCH_TINY_MLA_DIRECT, DYT_ARCH_TINY_GPT2};
    uint64_t family = dyt_case_pick(seed, trial, 201, 8);
    struct dyti_arch a;

    if (family >= DYT_TEST_COUNT(more)) {
        return dyt_case_arch(seed, trial);
    }
    a = more[family];
    a.layers = 1 + (int64_t)dyt_case_pick(seed, trial, 202, 6);
    a.vocab = 12 + (int64_t)dyt_case_pick(seed, trial, 203, 50);
    a.hidden = 1 + (int64_t)dyt_case_pick(seed, trial, 204, 14);
    if (a.family == DYTI_GPT2) {
        a.head_dim = 1 + (int64_t)dyt_case_pick(seed, trial, 205, 4);
        a.hidden = a.q_heads * a.head_dim;
        a.ffn = 12 + (int64_t)dyt_case_pick(seed, trial, 206, 30);
    }
    if (a.moe.count > 0) {
        a.moe.count = 2 + (int64_t)dyt_case_pick(seed, trial, 207, 7);
        a.moe.ffn = 4 + (int64_t)dyt_case_pick(seed, trial, 208, 12);
        a.moe.first_layer = (int64_t)dyt_case_pick(seed, trial, 209, 2);
    }
    return a;
}

/* Extras of every rule: the first three belong to no tensor, the others are
 * sharded with one that dyt_case_scale() chooses. */
#define DYT_CASE_EXTRAS 5

static inline void dyt_case_extras(int64_t streams, struct dyti_extra_desc *out)
{
    const struct dyti_extra_desc extra[DYT_CASE_EXTRAS] = {
        {.name = "step",
         .rule = DYTI_EXTRA_EVERY,
         .dtype = DYTI_I64,
         .ndim = 1,
         .shape = {1}},
        {.name = "cursor",
         .rule = DYTI_EXTRA_OWNER,
         .dtype = DYTI_I64,
         .ndim = 1,
         .shape = {3}},
        {.name = "rng",
         .rule = DYTI_EXTRA_PER_RANK,
         .dtype = DYTI_I32,
         .ndim = 2,
         .shape = {streams, 3}},
        {.name = "scale", .rule = DYTI_EXTRA_SHARDED, .dtype = DYTI_F32},
        {.name = "scale2", .rule = DYTI_EXTRA_SHARDED, .dtype = DYTI_F32}};

    memcpy(out, extra, sizeof(extra));
}

/* One of a tensor's scales, a number for each block. */
static inline void dyt_case_scale(struct dyti_extra_desc *extra,
                                  const struct dyti_tensor *of,
                                  const int64_t *block)
{
    extra->of = of->name;
    extra->ndim = of->ndim;
    for (uint32_t d = 0; d < of->ndim; d++) {
        extra->block[d] = block[d];
        extra->shape[d] = (of->shape[d] + block[d] - 1) / block[d];
    }
}

/* A model of it, in two of three cases with extras of every rule. */
static inline struct dyti_model *dyt_case_any_model(uint64_t seed,
                                                    uint64_t trial)
{
    struct dyti_arch arch = dyt_case_any_arch(seed, trial);
    struct dyti_model *plain = NULL, *model = NULL;
    const struct dyti_tensor *of;
    struct dyti_extra_desc extra[DYT_CASE_EXTRAS];
    int64_t block[DYT_MAX_DIMS];

    assert_ok(dyti_model_build(&arch, &plain));
    if (dyt_case_pick(seed, trial, 210, 3) == 0) {
        return plain;
    }
    dyt_case_extras(1 + (int64_t)dyt_case_pick(seed, trial, 211, 20), extra);
    for (uint32_t i = 3; i < DYT_TEST_COUNT(extra); i++) {
        of = &plain->tensor[dyt_case_pick(seed, trial, 212 + i,
                                          plain->tensor_count)];
        for (uint32_t d = 0; d < of->ndim; d++) {
            block[d] =
                1 + (int64_t)dyt_case_pick(seed, trial, 220 + i * 8 + d, 9);
        }
        dyt_case_scale(&extra[i], of, block);
    }
    assert_ok(
        dyti_model_build_with(&arch, extra, DYT_TEST_COUNT(extra), &model));
    dyti_model_destroy(plain);
    return model;
}

/* A divisor of n. */
static inline uint32_t dyt_case_divisor(uint64_t seed, uint64_t a, uint64_t b,
                                        uint32_t n)
{
    uint32_t d = 1 + (uint32_t)dyt_case_pick(seed, a, b, n);

    while (n % d != 0) {
        d--;
    }
    return d;
}

/* Expert slots of each ep rank: the even map, some experts twice. */
static inline void dyt_case_slots(uint64_t seed, uint64_t trial,
                                  int64_t experts, struct dyt_case_desc *out)
{
    struct dyti_layout_desc *d = &out->desc;
    uint32_t slots = (uint32_t)experts / d->ep + 2;

    if (slots * d->ep > DYT_CASE_SLOTS) {
        return;
    }
    d->experts = DYTI_EXPERTS_EXPLICIT;
    d->expert_slots = slots;
    d->expert_slot = out->expert_slot;
    for (uint32_t i = 0; i < slots * d->ep; i++) {
        out->expert_slot[i] = -1;
    }
    for (int64_t e = 0; e < experts; e++) {
        out->expert_slot[(uint32_t)e % d->ep * slots + (uint32_t)e / d->ep] =
            (int32_t)e;
    }
    for (uint32_t r = 0; r < d->ep; r++) { /* a redundant copy in the last */
        out->expert_slot[(r + 1) * slots - 1] =
            (int32_t)dyt_case_pick(seed, trial, 240 + r, (uint64_t)experts);
    }
}

/* An explicit cut between `owners`, some of which may own nothing. */
static inline uint32_t dyt_case_cut(uint64_t seed, uint64_t trial,
                                    uint32_t owners,
                                    struct dyti_zero_range *range)
{
    uint32_t count = 1 + (uint32_t)dyt_case_pick(seed, trial, 260, 9);
    uint64_t at = 0;

    for (uint32_t i = 0; i < count; i++) {
        range[i].lo = at;
        at += 1 + dyt_case_pick(seed, trial, 261 + i, DYTI_ZERO_WHOLE / 10);
        range[i].hi = at = i + 1 == count ? DYTI_ZERO_WHOLE : at;
        range[i].owner = (uint32_t)dyt_case_pick(seed, trial, 280 + i, owners);
    }
    return count;
}

static inline void dyt_case_residency(uint64_t seed, uint64_t trial,
                                      struct dyti_layout_desc *d)
{
    static const enum dyti_dtype narrow[] = {DYTI_F32, DYTI_BF16, DYTI_F16};

    d->dtype[DYTI_PARAM] = narrow[dyt_case_pick(seed, trial, 300, 3)];
    for (int kind = DYTI_GRAD; kind < DYTI_KIND_COUNT; kind++) {
        if (dyt_case_pick(seed, trial, 301 + (uint64_t)kind, 4) == 0) {
            d->residency[kind] = DYTI_DROPPED;
        }
    }
}

/* Random degrees of every kind that fit `world` ranks.  The dialect may still
 * refuse them: dyt_case_build() draws until it does not. */
static inline void dyt_case_any_layout(uint64_t seed, uint64_t trial,
                                       const struct dyti_model *model,
                                       uint32_t world,
                                       enum dyti_dialect dialect,
                                       const char *phase,
                                       struct dyt_case_desc *out)
{
    const struct dyti_arch *arch = &model->arch;
    struct dyti_layout_desc *d = &out->desc;
    uint32_t group, left;

    assert_true(world <= DYT_CASE_RANKS);
    dyt_case_layout(seed, trial, arch, world, phase, out);
    d->dialect = dialect;
    d->pp_layers = NULL;
    left = world / (d->tp * d->pp);
    d->cp = 1 + (uint32_t)dyt_case_pick(seed, trial, 90, left < 3 ? left : 3);
    d->dp = 1 + (uint32_t)dyt_case_pick(seed, trial, 91, left / d->cp);
    d->vpp = 1 + (uint32_t)dyt_case_pick(seed, trial, 92,
                                         (uint64_t)arch->layers / d->pp);
    d->zero = (uint32_t)dyt_case_pick(seed, trial, 93, 4);
    for (uint32_t i = 0; i < DYTI_AXIS_COUNT; i++) { /* any order */
        uint32_t at = (uint32_t)dyt_case_pick(seed, trial, 94 + i, i + 1);

        d->order[i] = d->order[at];
        d->order[at] = (uint8_t)i;
    }
    group = d->tp * d->cp * d->dp;
    if (arch->moe.count > 0) {
        d->ep = dyt_case_divisor(seed, trial, 100, group);
        d->etp = dyt_case_divisor(seed, trial, 101, group / d->ep);
        while (d->ep > (uint32_t)arch->moe.count) {
            d->ep = dyt_case_divisor(seed, trial, 102 + d->ep, d->ep - 1);
            d->ep = group % (d->ep * d->etp) == 0 ? d->ep : 1;
        }
        d->experts = (enum dyti_expert_map)dyt_case_pick(seed, trial, 103, 2);
        if (dyt_case_pick(seed, trial, 104, 3) == 0) {
            dyt_case_slots(seed, trial, arch->moe.count, out);
        }
    }
    if (dialect == DYTI_DIALECT_NATIVE &&
        dyt_case_pick(seed, trial, 105, 3) == 0) {
        d->zero_range = out->zero_range[0];
        d->zero_range_count =
            dyt_case_cut(seed, trial, d->dp * d->cp, out->zero_range[0]);
        d->expert_zero_range = out->zero_range[1];
        d->expert_zero_range_count =
            dyt_case_cut(seed, trial + 1,
                         group / ((d->ep ? d->ep : 1) * (d->etp ? d->etp : 1)),
                         out->zero_range[1]);
    }
    dyt_case_residency(seed, trial, d);
}

/* A random layout of the dialect, drawn until the dialect takes it; out_desc
 * (may be NULL) is what it was built from. */
static inline struct dyti_layout *dyt_case_build(uint64_t seed, uint64_t trial,
                                                 const struct dyti_model *model,
                                                 uint32_t world,
                                                 enum dyti_dialect dialect,
                                                 struct dyt_case_desc *out_desc)
{
    struct dyt_case_desc own, *desc = out_desc == NULL ? &own : out_desc;
    struct dyti_layout *layout = NULL;

    for (uint64_t attempt = 0; layout == NULL && attempt < 200; attempt++) {
        enum dyt_status st;

        dyt_case_any_layout(seed + attempt * 7919, trial, model, world, dialect,
                            "train", desc);
        st = dyti_layout_build(model, &desc->desc, &layout);
        if (st != DYT_OK) {
            assert_true(st == DYT_ERR_LAYOUT || st == DYT_ERR_UNSUPPORTED);
            assert_null(layout);
        }
    }
    assert_non_null(layout);
    return layout;
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
