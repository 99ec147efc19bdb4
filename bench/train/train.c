/* Tokens per second of a training step (forward, policy loss over the whole
 * vocabulary, backward, AdamW), ranks as processes over shared memory.
 *
 *   fp32/8x144, bf16/8x144   SmolLM2-135M's shape, 8 sequences of 144 tokens,
 * in the best world of this machine's cores …/pp2dp2                 the same
 * in four ranks, PP 2 x DP 2, ZeRO-1 tiny/pp2dp2              the quickstart's
 * step: 512 sequences of 9 tokens, ms a step
 *
 * Weights are random: the time does not depend on them. */
#include "bench.h"

#include "base/rng.h"
#include "comm/shm/shm.h"
#include "device/host/host.h"
#include "trainer/trainer.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST_RANKS 8u
#define MOST_STEPS 64u

struct world {
    const char *name;
    const struct dyti_arch *arch;
    uint32_t tp, pp, dp, zero, threads;
    enum dyti_dtype dtype;
    uint32_t prompts, samples, prompt_tokens, answer_tokens;
    uint32_t micro_tokens, steps;
};

/* What the ranks share. */
struct shared {
    struct dyti_abort_word abort;
    double seconds[MOST_STEPS];
    struct dyti_train_metrics metrics;
    int failed;
};

struct rank {
    const struct world *world;
    const struct dyti_layout *layout;
    const struct dyti_view *view;
    struct shared *shared;
    unsigned char *groups; /* memory of all groups, one after another */
    uint64_t group_bytes;
    uint32_t rank;
    struct dyti_trainer_params params;
    struct dyti_trainer *trainer;
};

static const struct dyti_arch smollm2 = {.family = DYTI_LLAMA,
                                         .vocab = 49152,
                                         .hidden = 576,
                                         .layers = 30,
                                         .q_heads = 9,
                                         .kv_heads = 3,
                                         .head_dim = 64,
                                         .ffn = 1536,
                                         .max_positions = 8192,
                                         .rms_eps = 1e-5,
                                         .init_std = 0.04,
                                         .tied = true,
                                         .rope = {.theta = 1e5}};
static const struct dyti_arch tiny = {.family = DYTI_LLAMA,
                                      .vocab = 48,
                                      .hidden = 64,
                                      .layers = 2,
                                      .q_heads = 4,
                                      .kv_heads = 4,
                                      .head_dim = 16,
                                      .ffn = 160,
                                      .max_positions = 64,
                                      .rms_eps = 1e-5,
                                      .init_std = 0.08,
                                      .tied = true,
                                      .rope = {.theta = 1e4}};

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

/* Zeroed memory, 2 MiB pages where the system has them. */
static void *memory_of(uint64_t bytes, int flags)
{
    const uint64_t page = (uint64_t)2 << 20;
    unsigned char *p = mmap(NULL, bytes + 2 * page, PROT_READ | PROT_WRITE,
                            flags | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED) {
        return NULL;
    }
    p += (page - (uintptr_t)p % page) % page;
    (void)madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

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
        .shared = r->groups + number * r->group_bytes,
        .shared_bytes = r->group_bytes,
        .abort = &r->shared->abort,
        .timeout_ns = 120000000000,
        .oversubscribed =
            (long)(r->layout->member_count * r->world->threads) > cores};

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
    uint32_t tp[MOST_RANKS], dp[MOST_RANKS];
    uint32_t line = p->pp_rank * p->dp_size + p->dp_rank;
    uint32_t column = p->pp_rank * p->tp_size + p->tp_rank;
    enum dyt_status st;

    for (uint32_t i = 0; i < p->tp_size; i++) {
        tp[i] = dyti_layout_rank(r->layout, i, p->pp_rank, p->dp_rank);
    }
    for (uint32_t i = 0; i < p->dp_size; i++) {
        dp[i] = dyti_layout_rank(r->layout, p->tp_rank, p->pp_rank, i);
    }
    st = open_group(r, "all", 0, r->layout->desc.ranks, r->rank,
                    r->layout->member_count, &r->params.all);
    st = st ? st
            : open_group(r, "tp", 1 + line, tp, p->tp_rank, p->tp_size,
                         &r->params.tp);
    return st ? st
              : open_group(r, "dp", 1 + MOST_RANKS + column, dp, p->dp_rank,
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
            ((uint16_t *)r->params.param)[i] =
                (uint16_t)(dyti_rng_u64(3, i, 0, 0) % 2 ? 0x3d00 : 0xbd00);
        } else {
            ((float *)r->params.param)[i] = x;
        }
    }
}

static enum dyt_status open_rank(struct rank *r)
{
    struct dyti_trainer_params *p = &r->params;
    const uint64_t *bytes = r->view->region_bytes;
    enum dyt_status st;

    st = open_groups(r);
    st = st ? st
            : dyti_trainer_workspace_bytes(r->layout, r->rank, &p->config,
                                           p->positions, &p->work_bytes);
    if (st != DYT_OK) {
        return st;
    }
    p->param = memory_of(bytes[DYTI_PARAM], MAP_PRIVATE);
    p->grad = memory_of(bytes[DYTI_GRAD], MAP_PRIVATE);
    p->master = memory_of(bytes[DYTI_MASTER], MAP_PRIVATE);
    p->exp_avg = memory_of(bytes[DYTI_EXP_AVG], MAP_PRIVATE);
    p->exp_avg_sq = memory_of(bytes[DYTI_EXP_AVG_SQ], MAP_PRIVATE);
    p->work = memory_of(p->work_bytes, MAP_PRIVATE | MAP_NORESERVE);
    if (p->param == NULL || p->work == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "regions of rank %u", r->rank);
    }
    random_weights(r);
    return dyti_trainer_create(p, &r->trainer);
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

static enum dyt_status run_rank(struct rank *r)
{
    const struct world *w = r->world;
    struct dyti_kernel_params kernels = {.struct_size = sizeof(kernels)};
    struct dyti_train_metrics m;
    struct dyti_batch batch;
    enum dyt_status st;

    st = dyti_pool_create(w->threads, &kernels.pool);
    r->params.kernels.ops = &dyti_kernels_host;
    st = st ? st : dyti_kernels_host.open(&kernels, &r->params.kernels.self);
    st = st ? st : open_rank(r);
    if (st == DYT_OK && !make_batch(w, &batch)) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "a batch");
    }
    for (uint32_t s = 0; s < w->steps + 1 && st == DYT_OK; s++) {
        double start = bench_seconds();

        st = dyti_trainer_step(r->trainer, &batch, s, &m);
        if (r->rank == 0 && s > 0) {
            r->shared->seconds[s - 1] = bench_seconds() - start;
            r->shared->metrics = m;
        }
    }
    return st;
}

/* ---- a world ------------------------------------------------------------ */

static void set_params(struct rank *r)
{
    const struct world *w = r->world;
    struct dyti_trainer_config *c = &r->params.config;

    dyti_trainer_config_default(c);
    c->lr = 1e-6f;
    c->micro_batch_tokens = w->micro_tokens;
    c->batch_sequences = w->prompts * w->samples;
    c->entropy_coef = 0.03f;
    r->params.layout = r->layout;
    r->params.rank = r->rank;
    r->params.positions = w->prompt_tokens + w->answer_tokens;
    r->params.gather_last = true;
    r->params.clock = &monotonic;
}

static bool start_all(struct rank *r, uint32_t size)
{
    bool good = true;
    pid_t pid[MOST_RANKS];

    (void)fflush(NULL);
    for (r->rank = 0; r->rank < size; r->rank++) {
        pid[r->rank] = fork();
        if (pid[r->rank] == 0) {
            r->view = dyti_layout_view(r->layout, r->rank);
            set_params(r);
            if (run_rank(r) != DYT_OK) {
                fprintf(stderr, "train: rank %u: %s\n", r->rank,
                        dyti_error_text());
                atomic_store(&r->shared->abort.value,
                             dyti_abort_pack(r->rank, DYT_ERR_PEER));
                _exit(1);
            }
            _exit(0);
        }
    }
    for (uint32_t i = 0; i < size; i++) {
        int code = 1;

        good = waitpid(pid[i], &code, 0) == pid[i] && code == 0 && good;
    }
    return good;
}

/* Median seconds of a step; 0 = it failed. */
static double run_world(const struct world *w)
{
    struct dyti_layout_desc desc = {.phase = "train",
                                    .world_size = w->tp * w->pp * w->dp,
                                    .tp = w->tp,
                                    .pp = w->pp,
                                    .dp = w->dp,
                                    .zero = w->zero,
                                    .dtype = {[DYTI_PARAM] = w->dtype}};
    struct rank r = {.world = w};
    struct dyti_model *model = NULL;
    struct dyti_layout *layout = NULL;
    double seconds = 0;

    if (dyti_model_build(w->arch, &model) != DYT_OK ||
        dyti_layout_build(model, &desc, &layout) != DYT_OK) {
        fprintf(stderr, "train: %s\n", dyti_error_text());
        goto out;
    }
    r.layout = layout;
    for (uint32_t size = 2; size <= MOST_RANKS; size++) {
        uint64_t bytes = dyti_group_shm.region_bytes(size);

        r.group_bytes = bytes > r.group_bytes ? bytes : r.group_bytes;
    }
    r.group_bytes = (r.group_bytes + 4095) & ~(uint64_t)4095;
    r.shared = memory_of(sizeof(*r.shared), MAP_SHARED);
    r.groups = memory_of(r.group_bytes * (1 + 2 * MOST_RANKS), MAP_SHARED);
    if (r.shared != NULL && r.groups != NULL &&
        start_all(&r, desc.world_size)) {
        const struct dyti_train_metrics *m = &r.shared->metrics;

        seconds = bench_median(r.shared->seconds, w->steps);
        printf("  %s: %.4f s a step (pipeline %.4f, reduce %.4f, optimizer "
               "%.4f, gather %.4f), %u micro-batches on rank 0, loss %.6f\n",
               w->name, seconds, (double)m->time_pipeline_ns * 1e-9,
               (double)m->time_reduce_ns * 1e-9,
               (double)m->time_optimizer_ns * 1e-9,
               (double)m->time_gather_ns * 1e-9, m->micro_batches, m->loss);
    }
out:
    dyti_layout_destroy(layout);
    dyti_model_destroy(model);
    return seconds;
}

/* Tokens a second, as torch's program counts them. */
static double tokens_per_second(const struct world *w)
{
    double seconds = run_world(w);
    double tokens =
        (double)w->prompts * w->samples * (w->prompt_tokens + w->answer_tokens);

    return seconds > 0 ? tokens / seconds : 0;
}

static void big(struct bench *bench, const char *name, enum dyti_dtype dtype,
                uint32_t steps)
{
    uint32_t cores = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    struct world w = {.arch = &smollm2,
                      .tp = 1,
                      .pp = 1,
                      .dp = 1,
                      .threads = cores,
                      .dtype = dtype,
                      .prompts = 2,
                      .samples = 4,
                      .prompt_tokens = 1,
                      .answer_tokens = 143,
                      .micro_tokens = 1152,
                      .steps = steps};
    char text[64];
    double one, each;

    w.name = "one rank, all cores";
    one = tokens_per_second(&w);
    w.name = "one rank a core";
    w.dp = cores < MOST_RANKS ? cores : MOST_RANKS;
    w.zero = w.threads = 1;
    each = tokens_per_second(&w);
    if (one > 0 || each > 0) {
        bench_record(bench, name, one > each ? one : each, NULL, 0, 1.0,
                     "tokens/s");
    }
    w.name = "pp 2 x dp 2";
    w.pp = w.dp = 2;
    w.micro_tokens = 288;
    each = tokens_per_second(&w);
    snprintf(text, sizeof(text), "%s/pp2dp2", name);
    if (each > 0) {
        bench_record(bench, text, each, NULL, 0, 0, "tokens/s");
    }
}

static void small(struct bench *bench, uint32_t steps)
{
    struct world w = {.name = "tiny, pp 2 x dp 2",
                      .arch = &tiny,
                      .tp = 1,
                      .pp = 2,
                      .dp = 2,
                      .zero = 1,
                      .threads = 1,
                      .prompts = 32,
                      .samples = 16,
                      .prompt_tokens = 5,
                      .answer_tokens = 4,
                      .micro_tokens = 4096,
                      .steps = steps};
    double seconds = run_world(&w);

    if (seconds > 0) {
        bench_record(bench, "tiny/pp2dp2", 1e3 * seconds, NULL, 0, 0, "ms");
    }
}

int main(int argc, char **argv)
{
    struct bench bench;

    if (!bench_open(&bench, "train", argc, argv)) {
        return bench.exit_code;
    }
    small(&bench, bench_steps(&bench, bench.quick ? 3 : 50, MOST_STEPS));
    if (!bench.quick) {
        uint32_t steps = bench_steps(&bench, 3, MOST_STEPS);

        big(&bench, "fp32/8x144", DYTI_F32, steps);
        big(&bench, "bf16/8x144", DYTI_BF16, steps);
    }
    return bench_close(&bench);
}
