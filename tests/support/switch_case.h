/* What the two phases of a switch test look like: models and layouts, drawn
 * from a seed or as a shape says. */
#ifndef DYT_SWITCH_CASE_H
#define DYT_SWITCH_CASE_H

#include "dyt_test.h"

#include "base/rng.h"
#include "layout/arena.h"

#define SW_RANKS_MAX 6u

/* What both phases look like.  Built by each rank alone from the seed. */
struct sw_case {
    uint64_t seed;
    uint32_t world_size;
    bool moves_optimizer; /* both layouts train: every kind travels */
    struct dyti_model *model;
    struct dyti_layout *layout[DYTI_ARENA_SLOT_COUNT];
    struct dyti_arena_options options;
    struct dyti_arena_map map[SW_RANKS_MAX];
};

/* Not drawn, but as this says; NULL: drawn. */
struct sw_shape {
    struct dyti_arch arch;
    uint32_t rollout[3], train[3]; /* tp, pp, dp */
    uint32_t rollout_ranks[SW_RANKS_MAX], train_ranks[SW_RANKS_MAX];
    uint32_t zero; /* of training */
};
static const struct sw_shape *sw_shape;

static inline uint32_t sw_draw(uint64_t seed, uint64_t what, uint32_t below)
{
    return (uint32_t)(dyti_rng_u64(seed, what, 0, 0) % below);
}

static inline struct dyti_arch sw_arch(uint64_t seed)
{
    struct dyti_arch arch = {.family = DYTI_LLAMA,
                             .vocab = 50,
                             .hidden = 16,
                             .layers = 3,
                             .q_heads = 8,
                             .kv_heads = 2,
                             .head_dim = 2,
                             .ffn = 24,
                             .max_positions = 64,
                             .rms_eps = 1e-5,
                             .init_std = 0.1,
                             .rope = {.theta = 10000},
                             .dtype = DYTI_F32};

    arch.tied = sw_draw(seed, 1, 2) == 0;
    if (sw_draw(seed, 2, 3) == 0) { /* nothing divides */
        arch.vocab = 131;
        arch.q_heads = 9;
        arch.kv_heads = 3;
        arch.head_dim = 6;
        arch.hidden = 54;
        arch.ffn = 130;
    }
    if (sw_draw(seed, 3, 3) == 0) {
        arch.family = DYTI_QWEN2;
        arch.qkv_bias = true;
    }
    return arch;
}

/* Degrees with tp * pp * dp <= world, ranks in a drawn order. */
static inline void sw_desc(uint64_t seed, uint32_t world_size, bool trains,
                           uint32_t *ranks, struct dyti_layout_desc *out)
{
    static const uint32_t degrees[][3] = {
        {1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {3, 1, 1}, {1, 3, 1},
        {1, 1, 3}, {4, 1, 1}, {2, 2, 1}, {2, 1, 2}, {1, 2, 2}, {1, 1, 4}};
    struct dyti_layout_desc desc = {.phase = trains ? "train" : "rollout",
                                    .world_size = world_size,
                                    .ranks = ranks};
    uint32_t i = 0, count = (uint32_t)DYT_TEST_COUNT(degrees);

    do {
        const uint32_t *d = degrees[sw_draw(seed, 10 + i++, count)];

        desc.tp = d[0];
        desc.pp = d[1];
        desc.dp = d[2];
    } while (desc.tp * desc.pp * desc.dp > world_size);
    for (uint32_t r = 0; r < world_size; r++) { /* a random permutation */
        uint32_t at = sw_draw(seed, 100 + r, r + 1);

        ranks[r] = ranks[at];
        ranks[at] = r;
    }
    desc.zero = trains ? sw_draw(seed, 5, 2) : 0;
    for (int k = 0; k < DYTI_KIND_COUNT; k++) {
        desc.dtype[k] = DYTI_F32;
        desc.residency[k] = trains ? DYTI_HELD : DYTI_PARKED;
    }
    desc.residency[DYTI_PARAM] = DYTI_HELD;
    desc.dtype[DYTI_PARAM] = (enum dyti_dtype)sw_draw(seed, 6, 3);
    if (!trains) {
        desc.residency[DYTI_GRAD] = DYTI_DROPPED;
    }
    *out = desc;
}

/* A drawn layout as sw_shape has it: all in f32, nothing but weights moves. */
static inline void sw_use_shape(bool trains, struct dyti_layout_desc *desc)
{
    const uint32_t *degree = trains ? sw_shape->train : sw_shape->rollout;

    desc->phase = trains ? "train" : "rollout";
    desc->tp = degree[0];
    desc->pp = degree[1];
    desc->dp = degree[2];
    desc->zero = trains ? sw_shape->zero : 0;
    desc->ranks = trains ? sw_shape->train_ranks : sw_shape->rollout_ranks;
    desc->dtype[DYTI_PARAM] = DYTI_F32;
    for (int k = 0; k < DYTI_KIND_COUNT; k++) {
        desc->residency[k] = trains || k == DYTI_PARAM ? DYTI_HELD
                             : k == DYTI_GRAD          ? DYTI_DROPPED
                                                       : DYTI_PARKED;
    }
}

#define SW_WORK_BYTES 100000u

static inline enum dyt_status sw_case_init_mode(
    struct sw_case *c, uint64_t seed, uint32_t world_size,
    const struct dyti_arena_options *options)
{
    struct dyti_arch arch = sw_arch(seed);
    uint32_t ranks[2][SW_RANKS_MAX] = {{0}};
    struct dyti_layout_desc desc;
    enum dyt_status st;

    *c = (struct sw_case){.seed = seed,
                          .world_size = world_size,
                          .options = *options,
                          .moves_optimizer =
                              sw_shape == NULL && sw_draw(seed, 7, 3) == 0};
    if (sw_shape != NULL) {
        arch = sw_shape->arch;
    }
    st = dyti_model_build(&arch, &c->model);
    if (st == DYT_OK) {
        sw_desc(seed * 2, world_size, c->moves_optimizer, ranks[0], &desc);
        if (sw_shape != NULL) {
            sw_use_shape(false, &desc);
        }
        st = dyti_layout_build(c->model, &desc, &c->layout[DYTI_ARENA_ROLLOUT]);
    }
    if (st == DYT_OK) {
        sw_desc(seed * 2 + 1, world_size, true, ranks[1], &desc);
        if (sw_shape != NULL) {
            sw_use_shape(true, &desc);
        }
        st = dyti_layout_build(c->model, &desc, &c->layout[DYTI_ARENA_TRAIN]);
    }
    for (uint32_t r = 0; r < world_size && st == DYT_OK; r++) {
        st = dyti_arena_map_build_mode(
            (const struct dyti_layout *const *)c->layout, r, options,
            &c->map[r]);
    }
    return st;
}

static inline enum dyt_status sw_case_init(struct sw_case *c, uint64_t seed,
                                           uint32_t world_size)
{
    struct dyti_arena_options options = {.work_bytes = SW_WORK_BYTES};

    return sw_case_init_mode(c, seed, world_size, &options);
}

static inline void sw_case_fini(struct sw_case *c)
{
    dyti_layout_destroy(c->layout[DYTI_ARENA_ROLLOUT]);
    dyti_layout_destroy(c->layout[DYTI_ARENA_TRAIN]);
    dyti_model_destroy(c->model);
}

#endif /* DYT_SWITCH_CASE_H */
