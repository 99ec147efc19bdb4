/* The files of a real model, SmolLM2-135M-Instruct: ids, texts and chat
 * template against the reference's, and its weights cut and put together.
 * Skipped where `make model` has not been run. */
#include "dyt_test.h"

#include "format/chat_template.h"
#include "format/hf_config.h"
#include "format/job.h"
#include "format/json_file.h"
#include "format/tokenizer.h"
#include "format/weights.h"

#define MODEL "smollm2-135m-instruct"
#define REFS  "tests/data/smollm2/refs_smollm2.json"

static char *model_dir;
static json_t *refs;
static struct dyti_tokenizer tokenizer;

static void check_ids(const char *text, size_t bytes, const json_t *want)
{
    int32_t *id = NULL;
    size_t count = 0;

    assert_ok(
        tokenizer.ops->encode(tokenizer.self, text, bytes, false, &id, &count));
    assert_int_equal(json_array_size(want), count);
    for (size_t i = 0; i < count; i++) {
        if (id[i] != json_integer_value(json_array_get(want, i))) {
            fail_msg("id %zu of \"%s\" is %d", i, text, id[i]);
        }
    }
    free(id);
}

static void ids_and_texts_are_the_references(void **state)
{
    const json_t *rows = json_object_get(refs, "tokenizer");

    (void)state;
    assert_true(json_array_size(rows) >= 25);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const json_t *text = json_object_get(row, "text");
        const json_t *ids = json_object_get(row, "ids");
        const json_t *decoded = json_object_get(row, "decoded");
        int32_t id[256];
        char *back = NULL;
        size_t bytes = 0;

        check_ids(json_string_value(text), json_string_length(text), ids);
        for (size_t k = 0; k < json_array_size(ids); k++) {
            id[k] = (int32_t)json_integer_value(json_array_get(ids, k));
        }
        assert_ok(tokenizer.ops->decode(
            tokenizer.self, id, json_array_size(ids), false, &back, &bytes));
        assert_string_equal(json_string_value(decoded), back);
        free(back);
    }
}

static void its_own_chat_template_is_reproduced(void **state)
{
    const json_t *rows = json_object_get(refs, "chat_template");
    struct dyti_chat_template *chat = NULL;

    (void)state;
    assert_ok(dyti_chat_template_open(model_dir, "auto", &chat));
    assert_string_equal("smollm2", dyti_chat_template_name(chat));
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const json_t *list = json_object_get(row, "messages");
        struct dyti_chat_message message[8];
        char *text = NULL;

        for (size_t k = 0; k < json_array_size(list); k++) {
            const json_t *m = json_array_get(list, k);

            message[k].role = json_string_value(json_object_get(m, "role"));
            message[k].content =
                json_string_value(json_object_get(m, "content"));
        }
        assert_ok(dyti_chat_template_render(
            chat, message, json_array_size(list), true, &text));
        assert_string_equal(json_string_value(json_object_get(row, "text")),
                            text);
        check_ids(text, strlen(text), json_object_get(row, "ids"));
        free(text);
    }
    dyti_chat_template_close(chat);
}

/* Layer 5's down_proj, which TP cuts by columns: every rank's box equals that
 * part of the file. */
static void check_columns(const struct dyti_safetensors *set,
                          const struct dyti_model *model,
                          const struct dyti_layout *layout, uint32_t rank)
{
    const struct dyti_view *view = dyti_layout_view(layout, rank);
    uint32_t t = dyti_model_find(model, 5, DYTI_SLOT_DOWN);
    const struct dyti_shard *shard = dyti_view_find(view, DYTI_PARAM, t);
    const struct dyti_safetensor *file =
        dyti_safetensors_find(set, model->tensor[t].name);
    char *base = calloc(1, view->region_bytes[DYTI_PARAM]);
    int64_t cols = model->tensor[t].shape[1];

    assert_non_null(base);
    assert_non_null(shard);
    assert_non_null(file);
    assert_ok(dyti_weights_load(model_dir, model, view, DYTI_PARAM, base));
    for (int64_t r = shard->box.lo[0]; r < shard->box.hi[0]; r++) {
        const unsigned char *want =
            file->data + 2 * (r * cols + shard->box.lo[1]);
        const char *have =
            base + shard->offset + (r - shard->box.lo[0]) * shard->stride[0];

        assert_memory_equal(
            want, have, (size_t)(2 * (shard->box.hi[1] - shard->box.lo[1])));
    }
    free(base);
}

static void weights_are_cut_as_they_lie_in_the_file(void **state)
{
    struct dyti_layout_desc desc = {
        .phase = "rollout", .world_size = 4, .tp = 4, .pp = 1, .dp = 1};
    struct dyti_safetensors *set = NULL;
    struct dyti_layout *layout = NULL;
    struct dyti_model *model = NULL;
    struct dyti_arch arch;

    (void)state;
    for (int k = 0; k < DYTI_KIND_COUNT; k++) {
        desc.dtype[k] = k == DYTI_PARAM ? DYTI_BF16 : DYTI_F32;
        desc.residency[k] = k == DYTI_PARAM ? DYTI_HELD : DYTI_DROPPED;
    }
    assert_ok(dyti_hf_config_read(model_dir, &arch));
    assert_int_equal(DYTI_BF16, arch.dtype);
    assert_ok(dyti_model_build(&arch, &model));
    assert_true(dyti_model_elements(model) == 134515008);
    assert_ok(dyti_layout_build(model, &desc, &layout));
    assert_ok(dyti_safetensors_open(model_dir, &set));
    for (uint32_t rank = 0; rank < 4; rank++) {
        check_columns(set, model, layout, rank);
    }
    dyti_safetensors_close(set);
    dyti_layout_destroy(layout);
    dyti_model_destroy(model);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(ids_and_texts_are_the_references),
    cmocka_unit_test(its_own_chat_template_is_reproduced),
    cmocka_unit_test(weights_are_cut_as_they_lie_in_the_file),
};

int main(void)
{
    int failed;

    if (dyti_model_path(MODEL, NULL, &model_dir) != DYT_OK) {
        printf("skipped: %s is not in the cache (make model)\n", MODEL);
        return 77;
    }
    if (dyti_tokenizer_open(model_dir, &tokenizer) != DYT_OK ||
        dyti_json_load(REFS, &refs) != DYT_OK) {
        printf("%s\n", dyti_error_text());
        return 1;
    }
    failed = dyt_test_verdict(
        cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL));
    dyti_tokenizer_close(&tokenizer);
    json_decref(refs);
    free(model_dir);
    return failed;
}
