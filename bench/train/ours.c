#include "ours.h"
#include "bench.h"

#include "base/rng.h"
#include "comm/shm/shm.h"
#include "device/host/host.h"
#include "format/weights.h"
#include "trainer/trainer.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* What the ranks share. */
struct ours_shared {
    struct dyti_abort_word abort;
    struct dyti_train_metrics metrics;
};

/* One rank, in its own process. */
struct rank {
    const struct ours *ours;
    const struct world *world;
    const struct dyti_view *view;
    uint32_t rank, steps;
    struct dyti_trainer_params params;
    struct dyti_trainer *trainer;
    struct dyti_batch batch;
};

/* ---- a batch ------------------------------------------------------------ */

static void random_ids(int32_t *ids, uint32_t count, uint64_t key,
                       int64_t vocab)
{
    for (uint32_t i = 0; i < count; i++) {
        ids[i] = (int32_t)(dyti_rng_u64(1, key, i, 0) % (uint64_t)vocab);
    }
}

static bool make_sample(const struct world *w, uint32_t i,
                        struct dyti_sample *s)
{
    s->prompt = i / w->samples;
    s->index = i % w->samples;
    s->reward = (float)(i % 4) / 4;
    if (dyti_sample_reserve(s, w->answer_tokens) != DYT_OK) {
        return false;
    }
    s->count = w->answer_tokens;
    random_ids(s->ids, s->count, 1000 + i, w->arch->vocab);
    for (uint32_t t = 0; t < s->count; t++) {
        s->raw[t] = s->processed[t] = -10;
    }
    return true;
}

static bool make_batch(const struct world *w, struct dyti_batch *batch)
{
    *batch = (struct dyti_batch){.prompt_count = w->prompts,
                                 .sample_count = w->prompts * w->samples};
    batch->prompt = calloc(w->prompts, sizeof(*batch->prompt));
    batch->sample = calloc(batch->sample_count, sizeof(*batch->sample));
    if (batch->prompt == NULL || batch->sample == NULL) {
        return false;
    }
    for (uint32_t p = 0; p < w->prompts; p++) {
        batch->prompt[p].id = p;
        batch->prompt[p].id_count = w->prompt_tokens;
        batch->prompt[p].ids = calloc(w->prompt_tokens, sizeof(int32_t));
        if (batch->prompt[p].ids == NULL) {
            return false;
        }
        random_ids(batch->prompt[p].ids, w->prompt_tokens, p, w->arch->vocab);
    }
    for (uint32_t i = 0; i < batch->sample_count; i++) {
        if (!make_sample(w, i, &batch->sample[i])) {
            return false;
        }
    }
    return true;
}

/* ---- a rank ------------------------------------------------------------- */

static enum dyt_status open_group(const struct rank *r, const char *name,
                                  uint32_t number, const uint32_t *members,
                                  uint32_t rank, uint32_t size,
                                  struct dyti_group *out)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    struct dyti_group_params params = {
        .struct_size = sizeof(params),
        .name = name,
        .rank = rank,
        .size = size,
        .world_rank = members,
        .shared = r->ours->groups + number * r->ours->group_bytes,
        .shared_bytes = r->ours->group_bytes,
        .abort = &r->ours->shared->abort,
        .timeout_ns = 120000000000,
        .oversubscribed =
            (long)(r->ours->layout->member_count * r->world->threads) > cores};

    *out = (struct dyti_group){.rank = rank, .size = size};
    if (size == 1) {
        return DYT_OK;
    }
    out->ops = &dyti_group_shm;
    return dyti_group_shm.open(&params, &out->self);
}

static enum dyt_status open_groups(struct rank *r)
{
    const struct dyti_part *p = &r->view->part;
    uint32_t tp[CREW_RANKS], dp[CREW_RANKS];
    uint32_t line = p->pp_rank * p->dp_size + p->dp_rank;
    uint32_t column = p->pp_rank * p->tp_size + p->tp_rank;
    enum dyt_status st;

    for (uint32_t i = 0; i < p->tp_size; i++) {
        tp[i] = dyti_layout_rank(r->ours->layout, i, p->pp_rank, p->dp_rank);
    }
    for (uint32_t i = 0; i < p->dp_size; i++) {
        dp[i] = dyti_layout_rank(r->ours->layout, p->tp_rank, p->pp_rank, i);
    }
    st = open_group(r, "all", 0, r->ours->layout->desc.ranks, r->rank,
                    r->ours->layout->member_count, &r->params.all);
    st = st ? st
            : open_group(r, "tp", 1 + line, tp, p->tp_rank, p->tp_size,
                         &r->params.tp);
    return st ? st
              : open_group(r, "dp", 1 + CREW_RANKS + column, dp, p->dp_rank,
                           p->dp_size, &r->params.dp);
}

static void random_weights(const struct rank *r)
{
    uint64_t count = r->view->flat_elements;

    for (uint64_t i = 0; i < count; i++) {
        uint64_t bits = dyti_rng_u64(3, i, 0, 0);
        float x = ((float)(bits >> 40) * 0x1p-24f - 0.5f) *
                  (float)r->world->arch->init_std * 3;

        if (r->world->dtype == DYTI_BF16) {
            ((uint16_t *)r->params.param)[i] = bits % 2 ? 0x3d00 : 0xbd00;
        } else {
            ((float *)r->params.param)[i] = x;
        }
    }
}

static enum dyt_status make_weights(struct rank *r)
{
    const struct world *w = r->world;

    if (w->model == NULL) {
        random_weights(r);
        return DYT_OK;
    }
    return dyti_weights_load(w->model, r->ours->model, r->view, DYTI_PARAM,
                             r->params.param);
}

static enum dyt_status open_rank(struct rank *r)
{
    struct dyti_trainer_params *p = &r->params;
    const uint64_t *bytes = r->view->region_bytes;
    enum dyt_status st = open_groups(r);

    st = st ? st
            : dyti_trainer_workspace_bytes(r->ours->layout, r->rank, &p->config,
                                           p->positions, &p->work_bytes);
    if (st != DYT_OK) {
        return st;
    }
    p->param = crew_memory(bytes[DYTI_PARAM], MAP_PRIVATE);
    p->grad = crew_memory(bytes[DYTI_GRAD], MAP_PRIVATE);
    p->master = crew_memory(bytes[DYTI_MASTER], MAP_PRIVATE);
    p->exp_avg = crew_memory(bytes[DYTI_EXP_AVG], MAP_PRIVATE);
    p->exp_avg_sq = crew_memory(bytes[DYTI_EXP_AVG_SQ], MAP_PRIVATE);
    p->work = crew_memory(p->work_bytes, MAP_PRIVATE | MAP_NORESERVE);
    if (p->param == NULL || p->work == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "regions of rank %u", r->rank);
    }
    st = make_weights(r);
    return st ? st : dyti_trainer_create(p, &r->trainer);
}

static int64_t clock_now(void *self)
{
    struct timespec t;

    (void)self;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static const struct dyti_clock_ops monotonic = {
    .struct_size = sizeof(monotonic), .name = "monotonic", .now_ns = clock_now};

static void set_params(struct rank *r)
{
    const struct world *w = r->world;
    struct dyti_trainer_config *c = &r->params.config;

    dyti_trainer_config_default(c);
    c->lr = 1e-6f;
    c->micro_batch_tokens = w->micro_tokens;
    c->batch_sequences = w->prompts * w->samples;
    c->entropy_coef = w->entropy;
    r->params.layout = r->ours->layout;
    r->params.rank = r->rank;
    r->params.positions = w->prompt_tokens + w->answer_tokens;
    r->params.gather_last = true;
    r->params.clock = &monotonic;
}

static enum dyt_status start(struct rank *r)
{
    struct dyti_kernel_params kernels = {.struct_size = sizeof(kernels)};
    enum dyt_status st = dyti_pool_create(r->world->threads, &kernels.pool);

    r->view = dyti_layout_view(r->ours->layout, r->rank);
    set_params(r);
    r->params.kernels.ops = &dyti_kernels_host;
    st = st ? st : dyti_kernels_host.open(&kernels, &r->params.kernels.self);
    st = st ? st : open_rank(r);
    if (st == DYT_OK && !make_batch(r->world, &r->batch)) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "a batch");
    }
    return st;
}

static void run_rank(void *arg, uint32_t rank, struct crew *crew)
{
    const struct ours *o = arg;
    struct rank r = {.ours = o, .world = &o->world, .rank = rank};
    enum dyt_status st = start(&r);

    while (crew_wait(crew, rank)) {
        struct dyti_train_metrics m = {0};
        double begin = bench_seconds(), seconds;

        st = st ? st : dyti_trainer_step(r.trainer, &r.batch, r.steps++, &m);
        seconds = bench_seconds() - begin;
        if (st != DYT_OK) {
            fprintf(stderr, "train: rank %u: %s\n", rank, dyti_error_text());
            atomic_store(&o->shared->abort.value,
                         dyti_abort_pack(rank, DYT_ERR_PEER));
        }
        if (rank == 0) {
            o->shared->metrics = m;
        }
        crew_done(crew, rank, seconds, st == DYT_OK);
    }
}

/* Room for every group that a layout of CREW_RANKS may have. */
static void make_groups(struct ours *o)
{
    for (uint32_t size = 2; size <= CREW_RANKS; size++) {
        uint64_t bytes = dyti_group_shm.region_bytes(size);

        o->group_bytes = bytes > o->group_bytes ? bytes : o->group_bytes;
    }
    o->group_bytes = (o->group_bytes + 4095) & ~(uint64_t)4095;
    o->groups = crew_memory(o->group_bytes * (1 + 2 * CREW_RANKS), MAP_SHARED);
}

bool ours_open(const struct world *world, struct ours *out)
{
    struct dyti_layout_desc desc = {.phase = "train",
                                    .world_size =
                                        world->tp * world->pp * world->dp,
                                    .tp = world->tp,
                                    .pp = world->pp,
                                    .dp = world->dp,
                                    .zero = world->zero,
                                    .dtype = {[DYTI_PARAM] = world->dtype}};

    *out = (struct ours){.world = *world};
    if (dyti_model_build(world->arch, &out->model) != DYT_OK ||
        dyti_layout_build(out->model, &desc, &out->layout) != DYT_OK) {
        fprintf(stderr, "train: %s: %s\n", world->name, dyti_error_text());
        ours_close(out);
        return false;
    }
    out->shared = crew_memory(sizeof(*out->shared), MAP_SHARED);
    make_groups(out);
    if (out->shared != NULL && out->groups != NULL) {
        out->crew = crew_start(desc.world_size, run_rank, out);
    }
    if (out->crew == NULL) {
        fprintf(stderr, "train: %s: it cannot start\n", world->name);
        ours_close(out);
        return false;
    }
    return true;
}

uint32_t ours_turn(void *arg, double *out_values, uint32_t most)
{
    struct ours *o = arg;

    return most > 0 && o->crew != NULL && crew_turn(o->crew, out_values);
}

void ours_print(const struct ours *ours, double seconds)
{
    const struct dyti_train_metrics *m = &ours->shared->metrics;

    printf("  %s: %.4f s a step (pipeline %.4f, reduce %.4f, optimizer %.4f, "
           "gather %.4f), %u micro-batches on rank 0, loss %.6f\n",
           ours->world.name, seconds, (double)m->time_pipeline_ns * 1e-9,
           (double)m->time_reduce_ns * 1e-9,
           (double)m->time_optimizer_ns * 1e-9,
           (double)m->time_gather_ns * 1e-9, m->micro_batches, m->loss);
}

void ours_close(struct ours *ours)
{
    crew_stop(ours->crew);
    dyti_layout_destroy(ours->layout);
    dyti_model_destroy(ours->model);
    *ours = (struct ours){0};
}
