/* Weights written in one layout and loaded in others: every element arrives,
 * and files that do not fit the model are refused by tensor name. */
#include "dyt_test.h"
#include "format_layout.h"

#include "format/weights.h"

#include "base/num.h"

#include <fcntl.h>

static const struct dyti_arch arch = {
    DYTI_QWEN2, 50,   48,    3,
    9,          3,    8,     100,
    64,         1e-6, 0.02,  {DYTI_ROPE_DEFAULT, 10000, 1, 0, 0, 0},
    false,      true, false, DYTI_F32,
    {0},        {0},  false};

/* Exact in bf16, so that both dtypes hold it. */
static float value_of(uint32_t tensor, uint64_t index)
{
    return (float)((int)((index * 7 + tensor * 13) % 251) - 125);
}

/* For each element of each shard: store the value, or check it. */
static void each_element(const struct dyti_model *model,
                         const struct dyti_view *view, enum dyti_kind kind,
                         unsigned char *base, bool check)
{
    for (uint32_t i = view->kind_first[kind]; i < view->kind_first[kind + 1];
         i++) {
        const struct dyti_shard *s = &view->shard[i];
        const struct dyti_tensor *t = &model->tensor[s->tensor];
        int64_t rows = s->box.ndim == 2 ? s->box.hi[0] - s->box.lo[0] : 1;
        uint32_t in = s->box.ndim - 1;

        for (int64_t r = 0; r < rows; r++) {
            for (int64_t c = 0; c < s->box.hi[in] - s->box.lo[in]; c++) {
                int64_t row = in == 1 ? s->box.lo[0] + r : 0;
                uint64_t index = (uint64_t)(row * (in == 1 ? t->shape[1] : 0) +
                                            s->box.lo[in] + c);
                float x = value_of(s->tensor, index);
                unsigned char *at = base + s->offset +
                                    (in == 1 ? r * s->stride[0] : 0) +
                                    c * s->stride[in];
                uint16_t half = dyti_f32_to_bf16(x);
                bool wide = s->dtype == DYTI_F32;

                if (!check) {
                    memcpy(at, wide ? (void *)&x : (void *)&half, wide ? 4 : 2);
                } else if (memcmp(at, wide ? (void *)&x : (void *)&half,
                                  wide ? 4 : 2) != 0) {
                    fail_msg("%s element %llu", t->name,
                             (unsigned long long)index);
                }
            }
        }
    }
}

static void write_all(const char *dir, const struct dyti_model *model,
                      const struct dyti_layout *layout, enum dyti_kind kind,
                      enum dyti_dtype dtype)
{
    struct dyti_safetensors_plan plan;
    char path[512];
    int fd = -1;

    snprintf(path, sizeof(path), "%s/model.safetensors", dir);
    assert_ok(dyti_weights_plan(model, dtype, &plan));
    assert_ok(dyti_safetensors_create(path, &plan, &fd));
    for (uint32_t r = 0; r < layout->desc.world_size; r++) {
        const struct dyti_view *view = dyti_layout_view(layout, r);
        unsigned char *base = calloc(1, view->region_bytes[kind] + 1);

        each_element(model, view, kind, base, false);
        assert_ok(
            dyti_weights_write(fd, path, &plan, view, kind, base, NULL, NULL));
        free(base);
    }
    close(fd);
    dyti_safetensors_plan_fini(&plan);
}

static void load_all(const char *dir, const struct dyti_model *model,
                     const struct dyti_layout *layout, enum dyti_kind kind)
{
    for (uint32_t r = 0; r < layout->desc.world_size; r++) {
        const struct dyti_view *view = dyti_layout_view(layout, r);
        unsigned char *base = calloc(1, view->region_bytes[kind] + 1);

        assert_ok(dyti_weights_load(dir, model, view, kind, base));
        each_element(model, view, kind, base, true);
        free(base);
    }
}

static void any_layout_writes_and_any_loads(void **state)
{
    static const struct {
        uint32_t tp, pp, dp, zero;
        enum dyti_kind kind;
        enum dyti_dtype dtype;
    } row[] = {
        {1, 1, 1, 0, DYTI_PARAM, DYTI_F32},
        {4, 1, 1, 0, DYTI_PARAM, DYTI_BF16},
        {2, 2, 1, 0, DYTI_PARAM, DYTI_F32},
        {1, 2, 2, 1, DYTI_MASTER, DYTI_F32},
        {1, 3, 3, 1, DYTI_EXP_AVG, DYTI_F32},
        {6, 1, 1, 0, DYTI_PARAM, DYTI_BF16},
    };
    struct dyti_model *model = NULL;
    const char *dir = dyt_test_dir();

    (void)state;
    assert_ok(dyti_model_build(&arch, &model));
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        struct dyti_layout *from = layout_of(
            model, row[i].tp, row[i].pp, row[i].dp, row[i].zero, row[i].dtype);

        write_all(dir, model, from, row[i].kind,
                  i % 2 == 0 ? DYTI_F32 : DYTI_BF16);
        for (size_t j = 0; j < DYT_TEST_COUNT(row); j++) {
            struct dyti_layout *to =
                layout_of(model, row[j].tp, row[j].pp, row[j].dp, row[j].zero,
                          row[j].dtype);

            load_all(dir, model, to, row[j].kind);
            dyti_layout_destroy(to);
        }
        dyti_layout_destroy(from);
    }
    dyti_model_destroy(model);
}

/* ---- files that do not fit ---------------------------------------------- */

/* The model's entries, changed by `edit`, as an empty file. */
static enum dyt_status check_edited(const struct dyti_model *model,
                                    const char *drop, const char *add,
                                    const char *reshape, enum dyti_dtype dtype)
{
    struct dyti_safetensors_entry entry[128];
    struct dyti_safetensors_plan plan;
    struct dyti_safetensors *set = NULL;
    const char *dir = dyt_test_dir();
    size_t count = 0;
    char path[512];
    int fd = -1;
    enum dyt_status st;

    for (uint32_t i = 0; i < model->tensor_count; i++) {
        const struct dyti_tensor *t = &model->tensor[i];

        if (drop != NULL && strcmp(t->name, drop) == 0) {
            continue;
        }
        entry[count].name = t->name;
        entry[count].dtype = dtype;
        entry[count].ndim = t->ndim;
        memcpy(entry[count].shape, t->shape, sizeof(t->shape));
        entry[count].shape[0] +=
            reshape != NULL && strcmp(t->name, reshape) == 0;
        count++;
    }
    if (add != NULL) {
        entry[count].dtype = dtype;
        entry[count].ndim = 2;
        memcpy(entry[count].shape, model->tensor[0].shape,
               sizeof(entry[count].shape));
        entry[count++].name = add;
    }
    snprintf(path, sizeof(path), "%s/model.safetensors", dir);
    assert_ok(dyti_safetensors_plan_build(entry, count, NULL, &plan));
    assert_ok(dyti_safetensors_create(path, &plan, &fd));
    close(fd);
    assert_ok(dyti_safetensors_open(dir, &set));
    st = dyti_weights_check(set, model);
    dyti_safetensors_close(set);
    dyti_safetensors_plan_fini(&plan);
    return st;
}

static void files_that_do_not_fit_are_named(void **state)
{
    const char *norm = "model.layers.1.input_layernorm.weight";
    struct dyti_arch tied = arch;
    struct dyti_model *model = NULL, *shared = NULL;

    (void)state;
    tied.tied = true;
    assert_ok(dyti_model_build(&arch, &model));
    assert_ok(dyti_model_build(&tied, &shared));
    assert_ok(check_edited(model, NULL, NULL, NULL, DYTI_F16));
    assert_ok(check_edited(model, NULL,
                           "model.layers.0.self_attn.rotary_emb.inv_freq", NULL,
                           DYTI_F32));
    assert_status(DYT_ERR_FORMAT,
                  check_edited(model, norm, NULL, NULL, DYTI_F32));
    assert_error_has(norm);
    assert_error_has("1 of 39 tensors are missing");
    assert_status(DYT_ERR_FORMAT,
                  check_edited(model, NULL, "x.weight", NULL, DYTI_F32));
    assert_error_has("x.weight");
    assert_status(DYT_ERR_FORMAT,
                  check_edited(model, NULL, NULL, norm, DYTI_F32));
    assert_error_has("has shape [49], config.json asks for [48]");
    assert_status(DYT_ERR_UNSUPPORTED,
                  check_edited(model, NULL, NULL, NULL, DYTI_I32));
    assert_error_has("is I32");

    /* Tied: a head beside the embedding, or in its place. */
    assert_ok(check_edited(shared, NULL, "lm_head.weight", NULL, DYTI_F32));
    assert_status(DYT_ERR_FORMAT,
                  check_edited(shared, "model.embed_tokens.weight", NULL, NULL,
                               DYTI_F32));
    assert_status(DYT_ERR_FORMAT,
                  check_edited(model, "lm_head.weight", NULL, NULL, DYTI_F32));
    dyti_model_destroy(model);
    dyti_model_destroy(shared);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(any_layout_writes_and_any_loads),
    cmocka_unit_test(files_that_do_not_fit_are_named),
};
DYT_TEST_MAIN(tests)
