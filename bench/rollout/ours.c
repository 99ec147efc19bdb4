#include "ours.h"
#include "bench.h"

#include "base/num.h"
#include "base/rng.h"
#include "comm/shm/shm.h"
#include "device/host/host.h"
#include "format/weights.h"
#include "rollout/engine.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define KV_BYTES ((uint64_t)1 << 30)

/* What the ranks share. */
struct ours_shared {
    struct dyti_abort_word abort;
    struct dyti_rollout_stats stats;
};

/* One rank, in its own process. */
struct rank {
    const struct ours *ours;
    const struct world *world;
    struct dyti_rollout_params params;
    struct dyti_rollout *engine;
    struct dyti_prompt *prompt; /* [world->prompts] */
};

static void random_weights(void *memory, uint64_t bytes, enum dyti_dtype dtype)
{
    uint64_t count = bytes / dyti_dtype_bytes(dtype);

    for (uint64_t i = 0; i < count; i++) {
        float x = (float)(dyti_rng_unit(dyti_mix64(i)) - 0.5) * 0.14f;

        if (dtype == DYTI_BF16) {
            ((uint16_t *)memory)[i] = dyti_f32_to_bf16(x);
        } else {
            ((float *)memory)[i] = x;
        }
    }
}

static enum dyt_status make_weights(struct rank *r,
                                    const struct dyti_view *view)
{
    uint64_t bytes = view->region_bytes[DYTI_PARAM];

    r->params.weights = crew_memory(bytes, MAP_PRIVATE);
    if (r->params.weights == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%llu bytes of weights",
                         (unsigned long long)bytes);
    }
    if (r->world->model != NULL) {
        return dyti_weights_load(r->world->model, r->ours->model, view,
                                 DYTI_PARAM, r->params.weights);
    }
    random_weights(r->params.weights, bytes, r->world->dtype);
    return DYT_OK;
}

static enum dyt_status make_prompts(struct rank *r)
{
    const struct world *w = r->world;

    r->prompt = calloc(w->prompts, sizeof(*r->prompt));
    for (uint32_t p = 0; r->prompt != NULL && p < w->prompts; p++) {
        struct dyti_prompt *prompt = &r->prompt[p];

        prompt->id = p;
        prompt->id_count = w->prompt_tokens;
        prompt->ids = calloc(w->prompt_tokens, sizeof(int32_t));
        if (prompt->ids == NULL) {
            return DYTI_FAIL(DYT_ERR_NOMEM, "a prompt");
        }
        for (uint32_t i = 0; i < w->prompt_tokens; i++) {
            prompt->ids[i] =
                (int32_t)(dyti_rng_u64(1, p, i, 0) % (uint64_t)w->arch->vocab);
        }
    }
    return r->prompt != NULL ? DYT_OK : DYTI_FAIL(DYT_ERR_NOMEM, "prompts");
}

static enum dyt_status open_group(struct rank *r)
{
    const struct world *w = r->world;
    const struct ours *o = r->ours;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    struct dyti_group_params params = {.struct_size = sizeof(params),
                                       .name = "tp",
                                       .rank = r->params.rank,
                                       .size = w->tp,
                                       .world_rank = o->layout->desc.ranks,
                                       .shared = o->group,
                                       .shared_bytes = o->group_bytes,
                                       .abort = &o->shared->abort,
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

static enum dyt_status open_engine(struct rank *r)
{
    const struct world *w = r->world;
    uint32_t sequences = w->prompts * w->samples;
    uint64_t bytes = 0;
    void *work;
    enum dyt_status st;

    r->params.layout = r->ours->layout;
    r->params.kv_dtype = w->dtype;
    r->params.kv_bytes = KV_BYTES;
    r->params.block = 16;
    r->params.max_sequences = sequences;
    r->params.max_rows = sequences < 512 ? 512 : sequences;
    r->params.max_positions = w->prompt_tokens + w->new_tokens;
    st = dyti_rollout_workspace_bytes(&r->params, &bytes);
    if (st != DYT_OK) {
        return st;
    }
    work = crew_memory(bytes, MAP_PRIVATE);
    if (work == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%llu bytes of workspace",
                         (unsigned long long)bytes);
    }
    st = dyti_rollout_create(&r->params, work, bytes, &r->engine);
    if (st == DYT_OK) {
        dyti_rollout_set_version(r->engine, 1);
    }
    return st;
}

static enum dyt_status open_rank(struct rank *r)
{
    const struct dyti_view *view =
        dyti_layout_view(r->ours->layout, r->params.rank);
    struct dyti_kernel_params kernels = {.struct_size = sizeof(kernels)};
    enum dyt_status st = dyti_pool_create(r->world->threads, &kernels.pool);

    r->params.kernels.ops = &dyti_kernels_host;
    st = st ? st : dyti_kernels_host.open(&kernels, &r->params.kernels.self);
    st = st ? st : open_group(r);
    st = st ? st : make_weights(r, view);
    st = st ? st : make_prompts(r);
    return st ? st : open_engine(r);
}

/* One call.  The clock of rank 0 starts when all ranks are there. */
static enum dyt_status generate(struct rank *r, double *out_seconds)
{
    const struct world *w = r->world;
    struct dyti_sampling sampling = {.temperature = 1.0,
                                     .top_p = 1.0,
                                     .max_response_tokens = w->new_tokens,
                                     .ignore_eos = true};
    struct dyti_rollout_request q = {.prompt = r->prompt,
                                     .prompt_count = w->prompts,
                                     .samples_per_prompt = w->samples,
                                     .sampling = &sampling};
    struct dyti_rollout_stats stats = {0};
    struct dyti_batch out = {0};
    enum dyt_status st =
        w->tp > 1 ? r->params.tp.ops->barrier(r->params.tp.self) : DYT_OK;
    double start = bench_seconds();

    st = st ? st
            : dyti_rollout_generate(r->engine, &q, &out.sample,
                                    &out.sample_count, &stats);
    *out_seconds = bench_seconds() - start;
    if (r->params.rank == 0) {
        r->ours->shared->stats = stats;
    }
    dyti_batch_fini(&out);
    return st;
}

static void run_rank(void *arg, uint32_t rank, struct crew *crew)
{
    const struct ours *o = arg;
    struct rank r = {.ours = o, .world = &o->world, .params.rank = rank};
    enum dyt_status st = open_rank(&r);

    while (crew_wait(crew, rank)) {
        double seconds = 0;

        st = st ? st : generate(&r, &seconds);
        if (st != DYT_OK) {
            fprintf(stderr, "rollout: rank %u: %s\n", rank, dyti_error_text());
            atomic_store(&o->shared->abort.value,
                         dyti_abort_pack(rank, DYT_ERR_PEER));
        }
        crew_done(crew, rank, seconds, st == DYT_OK);
    }
}

bool ours_open(const struct world *world, struct ours *out)
{
    struct dyti_layout_desc desc = {.phase = "rollout",
                                    .world_size = world->tp,
                                    .tp = world->tp,
                                    .pp = 1,
                                    .dp = 1,
                                    .dtype = {[DYTI_PARAM] = world->dtype}};

    *out = (struct ours){.world = *world};
    if (dyti_model_build(world->arch, &out->model) != DYT_OK ||
        dyti_layout_build(out->model, &desc, &out->layout) != DYT_OK) {
        fprintf(stderr, "rollout: %s: %s\n", world->name, dyti_error_text());
        ours_close(out);
        return false;
    }
    out->group_bytes = dyti_group_shm.region_bytes(world->tp);
    out->shared = crew_memory(sizeof(*out->shared), MAP_SHARED);
    out->group = crew_memory(out->group_bytes, MAP_SHARED);
    if (out->shared != NULL && out->group != NULL) {
        out->crew = crew_start(world->tp, run_rank, out);
    }
    if (out->crew == NULL) {
        fprintf(stderr, "rollout: %s: it cannot start\n", world->name);
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
    const struct dyti_rollout_stats *s = &ours->shared->stats;

    printf("  %s, %u sequences: %.4f s a call, %llu passes, %llu prefill and "
           "%llu decode rows\n",
           ours->world.name, ours->world.prompts * ours->world.samples, seconds,
           (unsigned long long)s->passes, (unsigned long long)s->prefill_rows,
           (unsigned long long)s->decode_rows);
}

void ours_close(struct ours *ours)
{
    crew_stop(ours->crew);
    dyti_layout_destroy(ours->layout);
    dyti_model_destroy(ours->model);
    *ours = (struct ours){0};
}
