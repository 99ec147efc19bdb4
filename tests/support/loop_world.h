/* Training over recorded batches in a whole world: arenas, switches and the
 * trainer together, ranks as threads.  What a run shows, step by step, is kept,
 * so that two runs can be compared bit for bit.
 *
 *   struct lw_run a, b;
 *   lw_run(&a, &desc);                    never switches
 *   desc.trip = LW_ROLLOUT; lw_run(&b, &desc);
 *   lw_difference(&a, &b, text, sizeof(text));
 */
#ifndef LOOP_WORLD_H
#define LOOP_WORLD_H

#include "trainer_world.h"

#include "base/hash.h"
#include "device/host/clock.h"
#include "device/host/memory.h"
#include "edm/world.h"
#include "mover/direct/direct.h"

#define LW_RANKS  4u
#define LW_STEPS  20u
#define LW_TOKENS 512u /* of a step */
#define LW_KINDS  4    /* param, master and the moments */

/* Where the state goes between two steps. */
enum lw_trip {
    LW_NONE,    /* nowhere: updates are all-gathered */
    LW_ROLLOUT, /* param to the other layout and back, the rest parked */
    LW_WHOLE    /* every kind to the other layout, which trains, and back */
};

struct lw_desc {
    struct dyti_arch arch;
    struct dyti_layout_desc train, other; /* degrees and ranks */
    enum dyti_dtype dtype;                /* of param */
    enum lw_trip trip;
    uint32_t first, steps; /* steps first … first + steps - 1 */
    /* State to start with, by kind; NULL: random weights, no moments. */
    float **const *state;
    bool keep_state; /* leave the last state in lw_run.state */
    bool mistake;    /* rank 1 swaps K and V in the switches of step 5 */
};

struct lw_run {
    struct lw_desc desc;
    struct dyti_model *model;
    struct dyti_layout *layout[DYTI_ARENA_SLOT_COUNT];
    struct dyti_arena_map map[LW_RANKS];
    struct dyti_trainer_config config;
    struct dyti_batch batch[LW_STEPS];
    float **full;
    struct dyti_segment_mem control_mem, segment_mem[LW_RANKS];
    int handle[LW_RANKS + 1];
    struct dyti_world *world[LW_RANKS];

    /* What it shows. */
    double loss[LW_STEPS], norm[LW_STEPS];
    float token[LW_STEPS][LW_TOKENS];
    uint32_t token_count[LW_STEPS];
    uint64_t hash[LW_STEPS][LW_KINDS];
    uint64_t start_hash[LW_KINDS];
    float **state[DYTI_KIND_COUNT];
};

static const enum dyti_kind lw_kinds[LW_KINDS] = {
    DYTI_PARAM, DYTI_MASTER, DYTI_EXP_AVG, DYTI_EXP_AVG_SQ};

/* ---- the parts -------------------------------------------------------------
 */

static inline void lw_layouts(struct lw_run *run)
{
    struct dyti_layout_desc train = run->desc.train, other = run->desc.other;

    train.phase = "train";
    other.phase = "other";
    train.world_size = other.world_size = LW_RANKS;
    for (int k = 0; k < DYTI_KIND_COUNT; k++) {
        bool moves = run->desc.trip == LW_WHOLE;

        train.dtype[k] = other.dtype[k] = DYTI_F32;
        train.residency[k] = DYTI_HELD;
        other.residency[k] = moves ? DYTI_HELD : DYTI_PARKED;
    }
    train.dtype[DYTI_PARAM] = other.dtype[DYTI_PARAM] = run->desc.dtype;
    other.residency[DYTI_PARAM] = DYTI_HELD;
    other.residency[DYTI_GRAD] = DYTI_DROPPED;
    assert_ok(dyti_model_build(&run->desc.arch, &run->model));
    assert_ok(
        dyti_layout_build(run->model, &train, &run->layout[DYTI_ARENA_TRAIN]));
    assert_ok(dyti_layout_build(run->model, &other,
                                &run->layout[DYTI_ARENA_ROLLOUT]));
}

static inline void lw_config(struct lw_run *run)
{
    dyti_trainer_config_default(&run->config);
    run->config.lr = 1e-2f;
    run->config.weight_decay = 0.1f;
    run->config.max_grad_norm = 0.5f;
    run->config.batch_sequences = 16;
    run->config.mini_batch = 8;
    run->config.micro_batch_tokens = 30;
    run->config.schedule = DYTI_LR_COSINE;
    run->config.warmup_updates = 3;
    run->config.total_updates = 2 * LW_STEPS;
    for (uint32_t s = 0; s < LW_STEPS; s++) {
        tw_batch_init(&run->batch[s],
                      &(struct tw_batch_desc){.seed = 100 + s,
                                              .prompts = 4,
                                              .samples = 4,
                                              .prompt_most = 4,
                                              .answer_most = 6,
                                              .vocab = run->desc.arch.vocab});
    }
}

static inline void lw_memory(struct lw_run *run)
{
    const struct dyti_memory_ops *ops = &dyti_memory_host;
    const struct dyti_layout *const *layout =
        (const struct dyti_layout *const *)run->layout;
    uint64_t bytes;

    assert_ok(
        dyti_world_control_bytes(layout, LW_RANKS, &dyti_group_shm, &bytes));
    for (uint32_t r = 0; r <= LW_RANKS; r++) {
        struct dyti_segment_mem *mem =
            r < LW_RANKS ? &run->segment_mem[r] : &run->control_mem;
        uint64_t work = 0;

        if (r < LW_RANKS) {
            assert_ok(dyti_trainer_workspace_bytes(
                run->layout[DYTI_ARENA_TRAIN], r, &run->config, 12, &work));
            assert_ok(dyti_arena_map_build(layout, r, work, &run->map[r]));
        }
        assert_ok(ops->create("loop", DYTI_PAGES_4K, &run->handle[r]));
        assert_ok(ops->resize(run->handle[r], DYTI_PAGES_4K,
                              r < LW_RANKS ? run->map[r].total_bytes : bytes,
                              NULL, 0));
        assert_ok(ops->map(run->handle[r], DYTI_PAGES_4K,
                           r < LW_RANKS ? run->map[r].total_bytes : bytes,
                           mem));
    }
}

/* ---- one rank -------------------------------------------------------------
 */

struct lw_rank {
    struct dyt_rank *me;
    struct lw_run *run;
    struct dyti_kernels kernels;
    struct dyti_world *world;
    struct dyti_trainer *trainer;
    uint64_t epoch;
};

static inline enum dyt_status lw_barrier(const struct lw_rank *r)
{
    struct dyti_group all = dyti_world_all(r->world);

    return all.ops->barrier(all.self);
}

static inline void *lw_region(const struct lw_rank *r, enum dyti_kind kind)
{
    return dyti_world_region(r->world, r->me->rank, DYTI_ARENA_TRAIN, kind);
}

static inline enum dyt_status lw_open_world(struct lw_rank *r)
{
    struct lw_run *run = r->run;
    struct dyti_world_params p = {.struct_size = sizeof(p),
                                  .rank = r->me->rank,
                                  .world_size = LW_RANKS,
                                  .map = run->map,
                                  .control_mem = &run->control_mem,
                                  .segment_mem = run->segment_mem,
                                  .memory = &dyti_memory_host,
                                  .group = &dyti_group_shm,
                                  .mover = &dyti_mover_direct,
                                  .wait = &dyti_wait_futex,
                                  .clock = &dyti_clock_host,
                                  .kernels = r->kernels,
                                  .timeout_ns = 20000000000,
                                  .oversubscribed = true};

    for (int s = 0; s < DYTI_ARENA_SLOT_COUNT; s++) {
        p.layout[s] = run->layout[s];
    }
    return dyti_world_open(&p, &r->world);
}

static inline enum dyt_status lw_open_trainer(struct lw_rank *r)
{
    struct dyti_trainer_params p = {.config = r->run->config,
                                    .layout = r->run->layout[DYTI_ARENA_TRAIN],
                                    .rank = r->me->rank,
                                    .kernels = r->kernels,
                                    .param = lw_region(r, DYTI_PARAM),
                                    .grad = lw_region(r, DYTI_GRAD),
                                    .master = lw_region(r, DYTI_MASTER),
                                    .exp_avg = lw_region(r, DYTI_EXP_AVG),
                                    .exp_avg_sq = lw_region(r, DYTI_EXP_AVG_SQ),
                                    .positions = 12,
                                    .gather_last =
                                        r->run->desc.trip == LW_NONE};
    struct dyti_trainer_state state = {r->run->desc.first,
                                       2ull * r->run->desc.first,
                                       2ull * r->run->desc.first};
    enum dyt_status st;

    p.tp = dyti_world_group(r->world, DYTI_ARENA_TRAIN, DYTI_DIM_TP);
    p.dp = dyti_world_group(r->world, DYTI_ARENA_TRAIN, DYTI_DIM_DP);
    p.all = dyti_world_group(r->world, DYTI_ARENA_TRAIN, DYTI_DIM_ALL);
    p.work = dyti_world_work(r->world, &p.work_bytes);
    st = dyti_trainer_create(&p, &r->trainer);
    if (st == DYT_OK) {
        dyti_trainer_state_set(r->trainer, &state);
    }
    return st;
}

static inline void lw_fill(struct lw_rank *r)
{
    const struct dyti_view *view =
        dyti_layout_view(r->run->layout[DYTI_ARENA_TRAIN], r->me->rank);

    for (int k = 0; k < LW_KINDS; k++) {
        enum dyti_kind kind = lw_kinds[k];
        float **full = r->run->desc.state != NULL ? r->run->desc.state[kind]
                       : k < 2                    ? r->run->full
                                                  : NULL;

        if (full != NULL) {
            nn_view_each(r->run->model, view, kind, lw_region(r, kind), full,
                         nn_put);
        }
    }
}

/* ---- what a run shows ------------------------------------------------------
 */

/* All copies say the same, or what they make does not equal anything. */
static inline void lw_take(void *region, enum dyti_dtype dtype, uint64_t offset,
                           float *whole)
{
    unsigned char *at = (unsigned char *)region + offset;
    float mine = dtype == DYTI_BF16 ? dyti_bf16_to_f32(*(uint16_t *)(void *)at)
                                    : *(float *)(void *)at;

    if (dyti_f32_bits(*whole) == dyti_f32_bits(tw_unset())) {
        *whole = mine;
    } else if (dyti_f32_bits(*whole) != dyti_f32_bits(mine)) {
        *whole = dyti_bits_f32(0x7fc0bad0);
    }
}

/* Content hash of a kind, over whole tensors; rank 0, while others wait. */
static inline uint64_t lw_hash(struct lw_rank *r, enum dyti_kind kind,
                               bool keep)
{
    struct lw_run *run = r->run;
    const struct dyti_model *model = run->model;
    float **full = nn_full_new(model);
    uint64_t sum = 0;

    for (uint32_t t = 0; t < model->tensor_count; t++) {
        for (uint64_t i = 0; i < dyti_tensor_elements(&model->tensor[t]); i++) {
            full[t][i] = tw_unset();
        }
    }
    for (uint32_t i = 0; i < LW_RANKS; i++) {
        nn_view_each(model, dyti_layout_view(run->layout[DYTI_ARENA_TRAIN], i),
                     kind,
                     dyti_world_region(r->world, i, DYTI_ARENA_TRAIN, kind),
                     full, lw_take);
    }
    for (uint32_t t = 0; t < model->tensor_count; t++) {
        for (uint64_t i = 0; i < dyti_tensor_elements(&model->tensor[t]); i++) {
            uint32_t bits = dyti_f32_bits(full[t][i]);

            if (!run->desc.mistake &&
                (bits == dyti_f32_bits(tw_unset()) || bits == 0x7fc0bad0)) {
                rank_wrong(r->me,
                           "%s of %s: an element is nowhere, or its "
                           "copies differ",
                           dyti_kind_name(kind), model->tensor[t].name);
            }
            sum += dyti_content_mix(dyti_content_salt(t, kind), i, bits);
        }
    }
    if (keep) {
        run->state[kind] = full;
    } else {
        nn_full_free(model, full);
    }
    return sum;
}

static inline enum dyt_status lw_show(struct lw_rank *r, uint64_t *hash,
                                      bool keep)
{
    enum dyt_status st = lw_barrier(r);

    for (int k = 0; st == DYT_OK && r->me->rank == 0 && k < LW_KINDS; k++) {
        hash[k] = lw_hash(r, lw_kinds[k], keep);
    }
    return st == DYT_OK ? lw_barrier(r) : st;
}

/* Log-probabilities of the tokens that this rank knows: one rank a sample. */
static inline void lw_tokens(struct lw_rank *r, uint32_t step)
{
    struct lw_run *run = r->run;
    const struct dyti_batch *batch = &run->batch[step];
    uint32_t at = 0;

    for (uint32_t s = 0; s < batch->sample_count; s++) {
        const float *value =
            dyti_trainer_token_values(r->trainer, s, DYTI_LOGPROB_CURRENT);
        const struct dyti_view *view =
            dyti_layout_view(run->layout[DYTI_ARENA_TRAIN], r->me->rank);

        if (value != NULL && view->part.tp_rank == 0) {
            memcpy(run->token[step] + at, value,
                   batch->sample[s].count * sizeof(*value));
        }
        at += batch->sample[s].count;
    }
    if (r->me->rank == 0) {
        run->token_count[step] = at;
    }
}

/* ---- the loop --------------------------------------------------------------
 */

static inline enum dyt_status lw_switch(struct lw_rank *r,
                                        enum dyti_arena_slot from,
                                        enum dyti_arena_slot to,
                                        uint64_t version)
{
    struct dyti_switch_order order = {.epoch = ++r->epoch,
                                      .version = version,
                                      .verify = DYTI_VERIFY_FULL,
                                      .unmanaged = true};
    struct dyti_switch_report report;
    struct dyti_switch *self;
    enum dyt_status st;

#ifdef DYT_TEST_HOOKS
    if (r->run->desc.mistake) {
        order.verify = DYTI_VERIFY_OFF;
        order.fault = r->me->rank == 1 && (r->epoch + 1) / 2 == 5
                          ? DYTI_FAULT_SWAP_KV
                          : DYTI_FAULT_NONE;
    }
#endif
    st = dyti_world_prepare(r->world, from, to, NULL, &self, NULL);

    return st != DYT_OK ? st : dyti_switch_run(self, &order, &report);
}

static inline enum dyt_status lw_step(struct lw_rank *r, uint32_t step)
{
    struct lw_run *run = r->run;
    struct dyti_train_metrics m;
    bool last = step + 1 == run->desc.first + run->desc.steps;
    enum dyt_status st =
        dyti_trainer_step(r->trainer, &run->batch[step], step + 1, &m);

    if (st != DYT_OK) {
        return st;
    }
    if (r->me->rank == 0) {
        run->loss[step] = m.loss;
        run->norm[step] = m.grad_norm;
    }
    lw_tokens(r, step);
    if (run->desc.trip != LW_NONE) {
        st = lw_switch(r, DYTI_ARENA_TRAIN, DYTI_ARENA_ROLLOUT, m.version);
        st = st != DYT_OK ? st
                          : lw_switch(r, DYTI_ARENA_ROLLOUT, DYTI_ARENA_TRAIN,
                                      m.version);
    }
    return st != DYT_OK
               ? st
               : lw_show(r, run->hash[step], last && run->desc.keep_state);
}

static inline void lw_body(struct dyt_rank *me)
{
    struct lw_run *run = me->arg;
    struct lw_rank r = {
        .me = me, .run = run, .kernels = {.ops = &dyti_kernels_host}};
    struct dyti_kernel_params params = {.struct_size = sizeof(params)};
    enum dyt_status st = r.kernels.ops->open(&params, &r.kernels.self);

    st = st != DYT_OK ? st : lw_open_world(&r);
    st = st != DYT_OK ? st : lw_open_trainer(&r);
    if (st == DYT_OK) {
        lw_fill(&r);
        st = lw_show(&r, run->start_hash, false);
    }
    for (uint32_t s = 0; st == DYT_OK && s < run->desc.steps; s++) {
        st = lw_step(&r, run->desc.first + s);
    }
    if (st != DYT_OK) {
        rank_wrong(me, "%s", dyti_error_text());
    }
    dyti_trainer_destroy(r.trainer);
    dyti_world_close(r.world);
    if (r.kernels.self != NULL) {
        r.kernels.ops->close(r.kernels.self);
    }
}

static inline void lw_run(struct lw_run *run, const struct lw_desc *desc)
{
    *run = (struct lw_run){.desc = *desc};
    lw_layouts(run);
    lw_config(run);
    lw_memory(run);
    run->full = nn_full_random(run->model, 5);
    dyt_ranks_run(DYT_RANKS_THREADS, LW_RANKS, lw_body, run);
}

static inline void lw_fini(struct lw_run *run)
{
    for (int k = 0; k < DYTI_KIND_COUNT; k++) {
        if (run->state[k] != NULL) {
            nn_full_free(run->model, run->state[k]);
        }
    }
    for (uint32_t r = 0; r <= LW_RANKS; r++) {
        dyti_memory_host.unmap(r < LW_RANKS ? &run->segment_mem[r]
                                            : &run->control_mem);
        dyti_memory_host.close(run->handle[r]);
    }
    for (uint32_t s = 0; s < LW_STEPS; s++) {
        dyti_batch_fini(&run->batch[s]);
    }
    nn_full_free(run->model, run->full);
    dyti_layout_destroy(run->layout[DYTI_ARENA_TRAIN]);
    dyti_layout_destroy(run->layout[DYTI_ARENA_ROLLOUT]);
    dyti_model_destroy(run->model);
}

/* What is not equal bit for bit, in words; "" if nothing. */
static inline void lw_difference(const struct lw_run *a, const struct lw_run *b,
                                 char *out, size_t out_bytes)
{
    out[0] = '\0';
    for (uint32_t s = a->desc.first; s < a->desc.first + a->desc.steps; s++) {
        if (memcmp(&a->loss[s], &b->loss[s], sizeof(double)) != 0 ||
            memcmp(&a->norm[s], &b->norm[s], sizeof(double)) != 0) {
            snprintf(out, out_bytes,
                     "step %u: loss %.17g and %.17g, norm %.17g and %.17g", s,
                     a->loss[s], b->loss[s], a->norm[s], b->norm[s]);
            return;
        }
        if (a->token_count[s] != b->token_count[s] ||
            memcmp(a->token[s], b->token[s],
                   a->token_count[s] * sizeof(float)) != 0) {
            snprintf(out, out_bytes, "step %u: log-probabilities", s);
            return;
        }
        for (int k = 0; k < LW_KINDS; k++) {
            if (a->hash[s][k] != b->hash[s][k]) {
                snprintf(out, out_bytes,
                         "step %u: %s hashes to %016" PRIx64 " and %016" PRIx64,
                         s, dyti_kind_name(lw_kinds[k]), a->hash[s][k],
                         b->hash[s][k]);
                return;
            }
        }
    }
}

#endif /* LOOP_WORLD_H */
