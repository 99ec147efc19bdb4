/* Tokens per second of generation (temperature 1, EOS ignored), ranks as
 * processes over shared memory.
 *
 *   fp32/N, bf16/N   SmolLM2-135M's shape, N sequences with prompts of 14
 *                    tokens and 64 new ones, in the best world of this machine
 *   …/tp4            the same in four ranks, TP 4
 *   tiny/tp4         the quickstart's rollout, TP 4: 32 prompts of 5 tokens, 16
 *                    samples of 4 tokens each, ms a call
 *
 * Weights are random: the time does not depend on them. */
#include "bench.h"

#include "base/num.h"
#include "base/rng.h"
#include "comm/shm/shm.h"
#include "device/host/host.h"
#include "rollout/engine.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_RANKS 8u
#define MOST_CALLS 64u

struct world {
    const char *name;
    const struct dyti_arch *arch;
    uint32_t tp, threads;
    enum dyti_dtype dtype;
    uint32_t prompts, samples, prompt_tokens, new_tokens, calls;
};

/* What the ranks share. */
struct shared {
    struct dyti_abort_word abort;
    double seconds[MOST_CALLS];
    struct dyti_rollout_stats stats;
};

struct rank {
    const struct world *world;
    const struct dyti_layout *layout;
    struct shared *shared;
    void *group; /* the TP group's memory */
    uint64_t group_bytes;
    struct dyti_rollout_params params;
    struct dyti_rollout *engine;
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

/* ---- a rank -------------------------------------------------------------- */

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

static void *random_weights(uint64_t bytes, enum dyti_dtype dtype)
{
    uint64_t count = bytes / dyti_dtype_bytes(dtype);
    void *memory = memory_of(bytes, MAP_PRIVATE);

    for (uint64_t i = 0; memory != NULL && i < count; i++) {
        float x = (float)(dyti_rng_unit(dyti_mix64(i)) - 0.5) * 0.14f;

        if (dtype == DYTI_BF16) {
            ((uint16_t *)memory)[i] = dyti_f32_to_bf16(x);
        } else {
            ((float *)memory)[i] = x;
        }
    }
    return memory;
}

static struct dyti_prompt *random_prompts(const struct world *w)
{
    struct dyti_prompt *prompt = calloc(w->prompts, sizeof(*prompt));

    for (uint32_t p = 0; prompt != NULL && p < w->prompts; p++) {
        prompt[p].id = p;
        prompt[p].id_count = w->prompt_tokens;
        prompt[p].ids = calloc(w->prompt_tokens, sizeof(int32_t));
        for (uint32_t i = 0; prompt[p].ids != NULL && i < w->prompt_tokens;
             i++) {
            prompt[p].ids[i] =
                (int32_t)(dyti_rng_u64(1, p, i, 0) % (uint64_t)w->arch->vocab);
        }
    }
    return prompt;
}

static enum dyt_status open_group(struct rank *r)
{
    const struct world *w = r->world;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    struct dyti_group_params params = {.struct_size = sizeof(params),
                                       .name = "tp",
                                       .rank = r->params.rank,
                                       .size = w->tp,
                                       .world_rank = r->layout->desc.ranks,
                                       .shared = r->group,
                                       .shared_bytes = r->group_bytes,
                                       .abort = &r->shared->abort,
                                       .timeout_ns = 120000000000,
                                       .oversubscribed =
                                           (long)(w->tp * w->threads) > cores};

    r->params.pp = (struct dyti_group){.size = 1};
    r->params.tp = (struct dyti_group){.rank = r->params.rank, .size = w->tp};
    if (w->tp == 1) {
        return DYT_OK;
    }
    r->params.tp.ops = &dyti_group_shm;
    return dyti_group_shm.open(&params, &r->params.tp.self);
}

static enum dyt_status open_rank(struct rank *r)
{
    const struct world *w = r->world;
    const struct dyti_view *view = dyti_layout_view(r->layout, r->params.rank);
    struct dyti_kernel_params kernels = {.struct_size = sizeof(kernels)};
    uint32_t sequences = w->prompts * w->samples;
    uint64_t bytes = 0;
    void *work = NULL;
    enum dyt_status st = dyti_pool_create(w->threads, &kernels.pool);

    r->params.kernels.ops = &dyti_kernels_host;
    st = st ? st : dyti_kernels_host.open(&kernels, &r->params.kernels.self);
    st = st ? st : open_group(r);
    r->params.layout = r->layout;
    r->params.kv_dtype = w->dtype;
    r->params.kv_bytes = (uint64_t)1 << 30;
    r->params.block = 16;
    r->params.max_sequences = sequences;
    r->params.max_rows = sequences < 512 ? 512 : sequences;
    r->params.max_positions = w->prompt_tokens + w->new_tokens;
    r->params.weights =
        random_weights(view->region_bytes[DYTI_PARAM], w->dtype);
    st = st ? st : dyti_rollout_workspace_bytes(&r->params, &bytes);
    if (st == DYT_OK) {
        work = memory_of(bytes, MAP_PRIVATE);
    }
    if (st == DYT_OK && (r->params.weights == NULL || work == NULL)) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "weights and workspace");
    }
    st = st ? st : dyti_rollout_create(&r->params, work, bytes, &r->engine);
    if (st == DYT_OK) {
        dyti_rollout_set_version(r->engine, 1);
    }
    return st;
}

static enum dyt_status run_rank(struct rank *r)
{
    const struct world *w = r->world;
    struct dyti_sampling sampling = {.temperature = 1.0,
                                     .top_p = 1.0,
                                     .max_response_tokens = w->new_tokens,
                                     .ignore_eos = true};
    struct dyti_rollout_request q = {.prompt = random_prompts(w),
                                     .prompt_count = w->prompts,
                                     .samples_per_prompt = w->samples,
                                     .sampling = &sampling};
    enum dyt_status st = open_rank(r);

    for (uint32_t i = 0; i < w->calls + 1 && st == DYT_OK; i++) {
        struct dyti_batch out = {0};
        double start;

        st = w->tp > 1 ? r->params.tp.ops->barrier(r->params.tp.self) : DYT_OK;
        start = bench_seconds();
        st = st ? st
                : dyti_rollout_generate(r->engine, &q, &out.sample,
                                        &out.sample_count, &r->shared->stats);
        if (r->params.rank == 0 && i > 0) {
            r->shared->seconds[i - 1] = bench_seconds() - start;
        }
        dyti_batch_fini(&out);
    }
    return st;
}

/* ---- a world ------------------------------------------------------------- */

static bool start_all(struct rank *r, uint32_t size)
{
    bool good = true;
    pid_t pid[MOST_RANKS];

    (void)fflush(NULL);
    for (uint32_t i = 0; i < size; i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            r->params.rank = i;
            if (run_rank(r) != DYT_OK) {
                fprintf(stderr, "rollout: rank %u: %s\n", i, dyti_error_text());
                atomic_store(&r->shared->abort.value,
                             dyti_abort_pack(i, DYT_ERR_PEER));
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

/* Median seconds of a call; 0 = it failed. */
static double run_world(const struct world *w)
{
    struct dyti_layout_desc desc = {.phase = "rollout",
                                    .world_size = w->tp,
                                    .tp = w->tp,
                                    .pp = 1,
                                    .dp = 1,
                                    .dtype = {[DYTI_PARAM] = w->dtype}};
    struct rank r = {.world = w};
    struct dyti_model *model = NULL;
    struct dyti_layout *layout = NULL;
    double seconds = 0;

    if (dyti_model_build(w->arch, &model) != DYT_OK ||
        dyti_layout_build(model, &desc, &layout) != DYT_OK) {
        fprintf(stderr, "rollout: %s\n", dyti_error_text());
        goto out;
    }
    r.layout = layout;
    r.group_bytes = dyti_group_shm.region_bytes(w->tp);
    r.shared = memory_of(sizeof(*r.shared), MAP_SHARED);
    r.group = memory_of(r.group_bytes, MAP_SHARED);
    if (r.shared != NULL && r.group != NULL && start_all(&r, w->tp)) {
        const struct dyti_rollout_stats *s = &r.shared->stats;

        seconds = bench_median(r.shared->seconds, w->calls);
        printf("  %s, %u sequences: %.4f s a call, %llu passes, %llu prefill "
               "and %llu decode rows\n",
               w->name, w->prompts * w->samples, seconds,
               (unsigned long long)s->passes,
               (unsigned long long)s->prefill_rows,
               (unsigned long long)s->decode_rows);
    }
out:
    dyti_layout_destroy(layout);
    dyti_model_destroy(model);
    return seconds;
}

static void big(struct bench *bench, const char *type, enum dyti_dtype dtype,
                uint32_t sequences)
{
    uint32_t cores = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    struct world w = {.name = "one rank, all cores",
                      .arch = &smollm2,
                      .tp = 1,
                      .threads = cores,
                      .dtype = dtype,
                      .prompts = sequences,
                      .samples = 1,
                      .prompt_tokens = 14,
                      .new_tokens = 64,
                      .calls = 3};
    double tokens = (double)sequences * w.new_tokens, seconds, best;
    char text[64];

    best = run_world(&w);
    w.name = "one rank a core";
    w.tp = cores < MOST_RANKS ? cores : MOST_RANKS;
    w.threads = 1;
    seconds = w.tp > 1 ? run_world(&w) : 0;
    best = seconds > 0 && (best <= 0 || seconds < best) ? seconds : best;
    snprintf(text, sizeof(text), "%s/%u", type, sequences);
    if (best > 0) {
        bench_record(bench, text, tokens / best, NULL, 0, 1.0, "tokens/s");
    }
    w.name = "tp 4";
    w.tp = 4;
    seconds = run_world(&w);
    snprintf(text, sizeof(text), "%s/%u/tp4", type, sequences);
    if (seconds > 0) {
        bench_record(bench, text, tokens / seconds, NULL, 0, 0, "tokens/s");
    }
}

static void small(struct bench *bench, uint32_t calls)
{
    struct world w = {.name = "tiny, tp 4",
                      .arch = &tiny,
                      .tp = 4,
                      .threads = 1,
                      .prompts = 32,
                      .samples = 16,
                      .prompt_tokens = 5,
                      .new_tokens = 4,
                      .calls = calls};
    double seconds = run_world(&w);

    if (seconds > 0) {
        bench_record(bench, "tiny/tp4", 1e3 * seconds, NULL, 0, 0, "ms");
    }
}

int main(int argc, char **argv)
{
    static const uint32_t sequences[] = {1, 8, 32};
    struct bench bench;

    if (!bench_open(&bench, "rollout", argc, argv)) {
        return bench.exit_code;
    }
    small(&bench, bench_steps(&bench, bench.quick ? 3 : 50, MOST_CALLS));
    for (uint32_t i = 0; i < 3 && !bench.quick; i++) {
        big(&bench, "fp32", DYTI_F32, sequences[i]);
        big(&bench, "bf16", DYTI_BF16, sequences[i]);
    }
    return bench_close(&bench);
}
