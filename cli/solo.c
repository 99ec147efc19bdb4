#include "cli/solo.h"

#include "base/env.h"
#include "cli/backends.h"
#include "format/weights.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BLOCK          16u
#define POSITIONS_MOST 4096u

static enum dyt_status open_kernels(struct dyti_solo *s, uint32_t threads)
{
    const struct dyti_kernel_ops *ops = dyti_backends_host()->kernels;
    struct dyti_kernel_params p = {.struct_size = sizeof(p),
                                   .isa = dyti_env_text(DYTI_ENV_ISA)};
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    enum dyt_status st = dyti_pool_create(
        threads > 0 ? threads : (uint32_t)(cores > 0 ? cores : 1), &s->pool);

    p.pool = s->pool;
    st = st != DYT_OK ? st : ops->open(&p, &s->kernels.self);
    if (st == DYT_OK) {
        s->kernels.ops = ops;
    }
    return st;
}

/* Zeroed, 2 MiB aligned, in large pages where the system has them. */
static enum dyt_status take_memory(uint64_t bytes, const char *what, void **out)
{
    void *p = aligned_alloc(2u << 20, (bytes + (2u << 20) - 1) &
                                          ~(uint64_t)((2u << 20) - 1));

    if (p == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%llu bytes for %s",
                         (unsigned long long)bytes, what);
    }
    madvise(p, bytes, MADV_HUGEPAGE);
    memset(p, 0, bytes);
    *out = p;
    return DYT_OK;
}

static enum dyt_status make_layout(struct dyti_solo *s,
                                   struct dyti_solo_params *p)
{
    struct dyti_layout_desc d = {
        .phase = "generate", .world_size = 1, .tp = 1, .pp = 1, .dp = 1};
    struct dyti_arch arch;
    enum dyt_status st = dyti_hf_config_read(p->model_dir, &arch);

    for (int k = 0; k < DYTI_KIND_COUNT; k++) {
        d.residency[k] = k == DYTI_PARAM ? DYTI_HELD : DYTI_DROPPED;
        d.dtype[k] = DYTI_F32;
    }
    d.dtype[DYTI_PARAM] = p->dtype;
    st = st != DYT_OK ? st : dyti_arch_check_runs(&arch);
    st = st != DYT_OK
             ? st
             : dyti_generation_config_read(p->model_dir, &s->generation);
    st = st != DYT_OK ? st : dyti_model_build(&arch, &s->model);
    if (st == DYT_OK && p->positions == 0) {
        p->positions = arch.max_positions < POSITIONS_MOST
                           ? (uint32_t)arch.max_positions
                           : POSITIONS_MOST;
    }
    if (st == DYT_OK && (int64_t)p->positions > arch.max_positions) {
        st = DYTI_FAIL(DYT_ERR_INVALID,
                       "prompt and answer may take %u tokens, the model has "
                       "%lld positions",
                       p->positions, (long long)arch.max_positions);
    }
    return st != DYT_OK ? st : dyti_layout_build(s->model, &d, &s->layout);
}

static enum dyt_status make_rollout(struct dyti_solo *s,
                                    const struct dyti_solo_params *p)
{
    const struct dyti_arch *a = &s->model->arch;
    uint64_t blocks =
        (uint64_t)p->sequences * ((p->positions + BLOCK - 1) / BLOCK + 1);
    uint64_t kv = 2 * blocks * BLOCK *
                  (uint64_t)(a->layers * a->kv_heads * a->head_dim) *
                  dyti_dtype_bytes(p->dtype);
    uint32_t rows = p->sequences > 512 ? p->sequences : 512;
    struct dyti_rollout_params r = {.layout = s->layout,
                                    .kernels = s->kernels,
                                    .tp = {.size = 1},
                                    .pp = {.size = 1},
                                    .weights = s->weights,
                                    .kv_dtype = p->dtype,
                                    .kv_bytes = kv,
                                    .block = BLOCK,
                                    .max_sequences = p->sequences,
                                    .max_rows = rows,
                                    .max_positions = p->positions,
                                    .tokenizer = p->tokenizer};
    uint64_t bytes;
    enum dyt_status st = dyti_rollout_workspace_bytes(&r, &bytes);

    st = st != DYT_OK ? st : take_memory(bytes, "the KV cache", &s->work);
    st = st != DYT_OK ? st
                      : dyti_rollout_create(&r, s->work, bytes, &s->rollout);
    if (st == DYT_OK) {
        dyti_rollout_set_version(s->rollout, 0);
    }
    return st;
}

enum dyt_status dyti_solo_open(const struct dyti_solo_params *params,
                               struct dyti_solo *out)
{
    struct dyti_solo s = {0};
    struct dyti_solo_params p = *params;
    const struct dyti_view *view;
    enum dyt_status st = make_layout(&s, &p);

    if (st == DYT_OK) {
        view = dyti_layout_view(s.layout, 0);
        st = take_memory(view->region_bytes[DYTI_PARAM], "the weights",
                         &s.weights);
        st = st != DYT_OK ? st
                          : dyti_weights_load(params->model_dir, s.model, view,
                                              DYTI_PARAM, s.weights);
    }
    st = st != DYT_OK ? st : open_kernels(&s, p.threads);
    st = st != DYT_OK ? st : make_rollout(&s, &p);
    if (st != DYT_OK) {
        DYTI_NOTE("opening the model %s", params->model_dir);
        dyti_solo_close(&s);
        return st;
    }
    *out = s;
    return DYT_OK;
}

void dyti_solo_close(struct dyti_solo *s)
{
    dyti_rollout_destroy(s->rollout);
    if (s->kernels.ops != NULL) {
        s->kernels.ops->close(s->kernels.self);
    }
    dyti_pool_destroy(s->pool);
    dyti_layout_destroy(s->layout);
    dyti_model_destroy(s->model);
    free(s->weights);
    free(s->work);
    memset(s, 0, sizeof(*s));
}
