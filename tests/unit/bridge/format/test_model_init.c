/* Random models: every preset is a directory that reads back, its weights do
 * not depend on the layout they are loaded in, and its tokenizer knows its
 * characters. */
#include "dyt_test.h"

#include "format/hf_config.h"
#include "format/model_init.h"
#include "format/tokenizer.h"
#include "format/weights.h"

#include <math.h>
#include <sys/stat.h>

static struct dyti_layout *one_kind(const struct dyti_model *model, uint32_t tp,
                                    uint32_t pp)
{
    struct dyti_layout_desc desc = {
        .phase = "rollout", .world_size = tp * pp, .tp = tp, .pp = pp, .dp = 1};
    struct dyti_layout *layout = NULL;

    for (int k = 0; k < DYTI_KIND_COUNT; k++) {
        desc.dtype[k] = DYTI_F32;
        desc.residency[k] = k == DYTI_PARAM ? DYTI_HELD : DYTI_DROPPED;
    }
    assert_ok(dyti_layout_build(model, &desc, &layout));
    return layout;
}

static void check_shard(const struct dyti_model *model,
                        const struct dyti_shard *s, const char *base,
                        uint64_t seed)
{
    const struct dyti_tensor *t = &model->tensor[s->tensor];
    bool flat = t->ndim == 1;
    int64_t cols = flat ? 0 : t->shape[1];

    for (int64_t r = flat ? 0 : s->box.lo[0]; r < (flat ? 1 : s->box.hi[0]);
         r++) {
        for (int64_t c = s->box.lo[t->ndim - 1]; c < s->box.hi[t->ndim - 1];
             c++) {
            const char *at =
                base + s->offset +
                (flat ? 0 : (r - s->box.lo[0]) * s->stride[0]) +
                (c - s->box.lo[t->ndim - 1]) * s->stride[t->ndim - 1];
            float have, want = dyti_model_init_value(
                            model, s->tensor, (uint64_t)(r * cols + c), seed);

            memcpy(&have, at, sizeof(have));
            if (memcmp(&have, &want, sizeof(have)) != 0) {
                fail_msg("%s [%lld, %lld]", t->name, (long long)r,
                         (long long)c);
            }
        }
    }
}

static void check_layout(const char *dir, const struct dyti_model *model,
                         uint32_t tp, uint32_t pp, uint64_t seed)
{
    struct dyti_layout *layout = one_kind(model, tp, pp);

    for (uint32_t r = 0; r < tp * pp; r++) {
        const struct dyti_view *view = dyti_layout_view(layout, r);
        char *base = calloc(1, view->region_bytes[DYTI_PARAM] + 1);

        assert_ok(dyti_weights_load(dir, model, view, DYTI_PARAM, base));
        for (uint32_t i = 0; i < view->kind_first[DYTI_PARAM + 1]; i++) {
            check_shard(model, &view->shard[i], base, seed);
        }
        free(base);
    }
    dyti_layout_destroy(layout);
}

static void every_preset_reads_back_in_any_layout(void **state)
{
    (void)state;
    for (size_t i = 0; dyti_model_preset_at(i) != NULL; i++) {
        const struct dyti_model_preset *preset = dyti_model_preset_at(i);
        const char *dir = dyt_test_dir();
        struct dyti_model *model = NULL;
        struct dyti_arch arch;

        assert_ok(dyti_model_init(dir, preset, 3, false));
        assert_ok(dyti_hf_config_read(dir, &arch));
        assert_ok(dyti_model_build(&arch, &model));
        assert_int_equal(preset->arch.family, arch.family);
        assert_int_equal(preset->arch.head_dim, arch.head_dim);
        check_layout(dir, model, 1, 1, 3);
        check_layout(dir, model, 2, 2, 3);
        check_layout(dir, model, 4, 1, 3);
        dyti_model_destroy(model);
    }
}

static void values_are_normal_and_seeded(void **state)
{
    const struct dyti_model_preset *preset = NULL;
    struct dyti_model *model = NULL;
    double sum = 0, squares = 0;
    uint32_t t;
    uint64_t count;

    (void)state;
    assert_ok(dyti_model_preset_find("tiny", &preset));
    assert_ok(dyti_model_build(&preset->arch, &model));
    assert_true(dyti_model_elements(model) == 97280);
    t = dyti_model_find(model, 0, DYTI_SLOT_GATE);
    count = dyti_tensor_elements(&model->tensor[t]);
    for (uint64_t i = 0; i < count; i++) {
        double x = dyti_model_init_value(model, t, i, 1);

        sum += x;
        squares += x * x;
    }
    assert_true(fabs(sum / (double)count) < 0.004);
    assert_true(fabs(sqrt(squares / (double)count) - 0.08) < 0.004);
    assert_true(dyti_model_init_value(model, t, 5, 1) !=
                dyti_model_init_value(model, t, 5, 2));
    assert_true(dyti_model_init_value(
                    model, dyti_model_find(model, 1, DYTI_SLOT_POST_NORM), 5,
                    1) == 1.0f);
    dyti_model_destroy(model);
}

static void the_tokenizer_has_one_token_a_character(void **state)
{
    const struct dyti_model_preset *preset = NULL;
    const char *dir = dyt_test_dir();
    struct dyti_tokenizer t = {NULL, NULL};
    struct dyti_generation_config gen;
    int32_t *id = NULL;
    size_t count = 0, bytes = 0;
    char *text = NULL;

    (void)state;
    assert_ok(dyti_model_preset_find("tiny", &preset));
    assert_ok(dyti_model_init(dir, preset, 1, false));
    assert_ok(dyti_tokenizer_open(dir, &t));
    assert_int_equal(43, t.ops->vocab_size(t.self));
    assert_ok(t.ops->encode(t.self, DYTI_INIT_CHARS,
                            sizeof(DYTI_INIT_CHARS) - 1, true, &id, &count));
    assert_int_equal(43, count);
    for (int32_t i = 0; i < 43; i++) {
        assert_int_equal(i, id[i]);
    }
    assert_ok(t.ops->decode(t.self, id, count, true, &text, &bytes));
    assert_string_equal(DYTI_INIT_CHARS, text);
    free(id);
    free(text);
    id = NULL;
    assert_status(DYT_ERR_INVALID,
                  t.ops->encode(t.self, "Z", 1, false, &id, &count));
    assert_ok(dyti_generation_config_read(dir, &gen));
    assert_int_equal(1, gen.eos_count);
    assert_int_equal(0, gen.eos[0]);
    dyti_tokenizer_close(&t);
}

static void models_are_not_overwritten_unasked(void **state)
{
    const struct dyti_model_preset *preset = NULL;
    const char *dir = dyt_test_dir();
    char path[512];
    struct stat before, after;

    (void)state;
    assert_status(DYT_ERR_INVALID, dyti_model_preset_find("huge", &preset));
    assert_error_has("there are tiny, small");
    assert_ok(dyti_model_preset_find("tiny", &preset));
    assert_ok(dyti_model_init(dir, preset, 1, false));
    assert_status(DYT_ERR_STATE, dyti_model_init(dir, preset, 1, false));
    snprintf(path, sizeof(path), "%s/model.safetensors", dir);
    assert_int_equal(0, stat(path, &before));
    assert_ok(dyti_model_init(dir, preset, 2, true));
    assert_int_equal(0, stat(path, &after));
    assert_int_equal(before.st_size, after.st_size);
    assert_status(DYT_ERR_IO,
                  dyti_model_init("/nonexistent/x", preset, 1, true));
    assert_error_has("making a tiny model in /nonexistent/x");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_preset_reads_back_in_any_layout),
    cmocka_unit_test(values_are_normal_and_seeded),
    cmocka_unit_test(the_tokenizer_has_one_token_a_character),
    cmocka_unit_test(models_are_not_overwritten_unasked),
};
DYT_TEST_MAIN(tests)
