/* A job in miniature whose checkpoints are saved and loaded. */
#ifndef CHECKPOINT_RUN_H
#define CHECKPOINT_RUN_H

#include "dyt_test.h"
#include "format_layout.h"

#include "format/checkpoint.h"
#include "format/hf_config.h"
#include "format/model_init.h"
#include "format/weights.h"

#include "base/num.h"

#include <math.h>
#include <sys/stat.h>

struct run {
    struct dyti_model *model;
    struct dyti_layout *layout;
    struct dyti_checkpoint_spec spec;
    const char *model_dir, *root;
    char root_buf[300];
};

static const struct dyti_arch small = {
    DYTI_LLAMA, 43,    24,    2,
    3,          1,     8,     20,
    64,         1e-6,  0.02,  {DYTI_ROPE_DEFAULT, 10000, 1, 0, 0, 0},
    true,       false, false, DYTI_F32,
    {0},        {0},   false};

static void run_start(struct run *run, enum dyti_dtype dtype, uint32_t tp,
                      uint32_t pp, uint32_t dp, uint32_t zero)
{
    const struct dyti_model_preset preset = {"x", "x", small};

    memset(run, 0, sizeof(*run));
    run->model_dir = dyt_test_dir();
    snprintf(run->root_buf, sizeof(run->root_buf), "%s/checkpoints",
             dyt_test_dir());
    run->root = run->root_buf;
    assert_ok(dyti_model_init(run->model_dir, &preset, 1, false));
    assert_ok(dyti_model_build(&small, &run->model));
    run->layout = layout_of(run->model, tp, pp, dp, zero, dtype);
    run->spec = (struct dyti_checkpoint_spec){
        .model = run->model, .dtype = dtype, .optimizer = true};
}

static void run_stop(struct run *run)
{
    dyti_layout_destroy(run->layout);
    dyti_model_destroy(run->model);
}

/* Not exact in bf16, so that rounding is seen. */
static float value_of(enum dyti_kind kind, uint64_t salt, uint32_t tensor,
                      uint64_t index)
{
    uint64_t k = kind == DYTI_PARAM ? DYTI_MASTER : (uint64_t)kind;

    return (float)((index * 7919 + tensor * 131 + k * 17 + salt * 1009) %
                   100003) /
           777.0f;
}

/* Store (or check) all elements of one kind of a rank's region. */
static bool each(const struct run *run, const struct dyti_view *view,
                 enum dyti_kind kind, uint64_t salt, char *base, bool check)
{
    for (uint32_t i = view->kind_first[kind]; i < view->kind_first[kind + 1];
         i++) {
        const struct dyti_shard *s = &view->shard[i];
        const struct dyti_tensor *t = &run->model->tensor[s->tensor];
        uint32_t in = t->ndim - 1;
        int64_t rows = in == 1 ? s->box.hi[0] - s->box.lo[0] : 1;

        for (int64_t r = 0; r < rows; r++) {
            for (int64_t c = s->box.lo[in]; c < s->box.hi[in]; c++) {
                int64_t row = in == 1 ? s->box.lo[0] + r : 0;
                float x = value_of(kind, salt, s->tensor,
                                   (uint64_t)(row * t->shape[in] + c));
                uint16_t half = dyti_f32_to_bf16(x);
                bool wide = s->dtype == DYTI_F32;
                const void *from = wide ? (void *)&x : (void *)&half;
                char *at = base + s->offset + r * (in == 1 ? s->stride[0] : 0) +
                           (c - s->box.lo[in]) * s->stride[in];

                if (check && memcmp(at, from, wide ? 4 : 2) != 0) {
                    return false;
                }
                if (!check) {
                    memcpy(at, from, wide ? 4 : 2);
                }
            }
        }
    }
    return true;
}

static enum dyt_status write_rank(const struct run *run, const char *path,
                                  uint32_t rank, uint64_t salt)
{
    const struct dyti_view *view = dyti_layout_view(run->layout, rank);
    char *base[DYTI_KIND_COUNT];
    enum dyt_status st;

    for (int k = 0; k < DYTI_KIND_COUNT; k++) {
        base[k] = calloc(1, view->region_bytes[k] + 1);
        assert_non_null(base[k]);
        each(run, view, (enum dyti_kind)k, salt, base[k], false);
    }
    st = dyti_checkpoint_write(path, &run->spec, run->layout, rank,
                               (const void *const *)base);
    for (int k = 0; k < DYTI_KIND_COUNT; k++) {
        free(base[k]);
    }
    return st;
}

static enum dyt_status save(const struct run *run, uint64_t step, double score,
                            uint32_t keep_last, uint32_t keep_best)
{
    double reward[2] = {0.1, 1.0};
    struct dyti_checkpoint_state state = {.step = step,
                                          .version = step + 1,
                                          .updates = step + 2,
                                          .seed = UINT64_MAX - step,
                                          .data_epoch = 2,
                                          .data_position = 77,
                                          .score = score,
                                          .isa = "avx2",
                                          .layout = "tp 1 pp 2 dp 2 zero 1",
                                          .job = (char *)(uintptr_t) "name = 1",
                                          .reward = reward,
                                          .reward_count = 2};
    char path[DYTI_PATH_BYTES], whole[DYTI_PATH_BYTES];
    enum dyt_status st;

    st = dyti_checkpoint_prepare(run->root, step, run->model_dir, &run->spec,
                                 path);
    if (st != DYT_OK) {
        return st;
    }
    for (uint32_t r = 0; r < run->layout->desc.world_size && st == DYT_OK;
         r++) {
        st = write_rank(run, path, r, step);
    }
    if (st == DYT_OK) {
        st = dyti_checkpoint_finish(path, &state, keep_last, keep_best, whole);
    }
    if (st != DYT_OK) {
        dyti_checkpoint_abort(path);
    }
    return st;
}

/* All kinds of a checkpoint hold what step `salt` wrote, in that layout. */
static void check_loaded(const struct run *run, const char *path,
                         const struct dyti_layout *layout, uint64_t salt)
{
    for (uint32_t r = 0; r < layout->desc.world_size; r++) {
        const struct dyti_view *view = dyti_layout_view(layout, r);
        void *base[DYTI_KIND_COUNT];

        for (int k = 0; k < DYTI_KIND_COUNT; k++) {
            base[k] = calloc(1, view->region_bytes[k] + 1);
        }
        assert_ok(dyti_checkpoint_load(path, run->model, view, base));
        for (int k = 0; k < DYTI_KIND_COUNT; k++) {
            if (k != DYTI_GRAD &&
                !each(run, view, (enum dyti_kind)k, salt, base[k], true)) {
                fail_msg("rank %u: %s is not that of step %llu", r,
                         dyti_kind_name((enum dyti_kind)k),
                         (unsigned long long)salt);
            }
            free(base[k]);
        }
    }
}

#endif /* CHECKPOINT_RUN_H */
