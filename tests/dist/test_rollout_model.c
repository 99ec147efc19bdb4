/* Generation with a real model, SmolLM2-135M-Instruct in f32: the greedy
 * continuation is that of transformers in every layout, from a cache shared by
 * a group and entered late.  Skipped where `make model` has not been run. */
#include "format/weights.h"
#include "rollout_world.h"

/* Its names are short: after all others. */
#include "real_model.h"

#define TOLERANCE 2e-3

static const json_t *greedy_list(const char *key, size_t *out_count)
{
    const json_t *list = json_object_get(json_object_get(refs, "greedy"), key);

    if (!json_is_array(list)) {
        fail_msg(REFS ": greedy.%s is missing", key);
    }
    *out_count = json_array_size(list);
    return list;
}

static void check(const struct dyti_sample *s)
{
    size_t count, same;
    const json_t *ids = greedy_list("output_ids", &count);
    const json_t *logprobs = greedy_list("logprobs", &same);

    assert_int_equal(count, same);
    assert_int_equal(s->count, count);
    for (size_t i = 0; i < count; i++) {
        double want = json_number_value(json_array_get(logprobs, i));

        assert_int_equal(s->ids[i], json_integer_value(json_array_get(ids, i)));
        if (!(fabs((double)s->raw[i] - want) < TOLERANCE)) {
            fail_msg("token %zu has log-probability %g, transformers says %g",
                     i, (double)s->raw[i], want);
        }
    }
}

/* Two copies of the prompt, three samples each, four at a time. */
static void generate(const struct ro_desc *desc)
{
    size_t prompt_count, new_count;
    const json_t *ids = greedy_list("prompt_ids", &prompt_count);
    struct dyti_prompt prompt[2] = {{.id = 1}, {.id = 2}};
    struct dyti_sampling s = {.top_p = 1.0, .ignore_eos = true};
    struct dyti_rollout_request q = {.prompt = prompt,
                                     .prompt_count = 2,
                                     .samples_per_prompt = 3,
                                     .sampling = &s};
    struct dyti_batch batch;
    struct ro_world w;

    (void)greedy_list("output_ids", &new_count);
    s.max_response_tokens = (uint32_t)new_count;
    for (int p = 0; p < 2; p++) {
        prompt[p].id_count = (uint32_t)prompt_count;
        prompt[p].ids = calloc(prompt_count, sizeof(int32_t));
        for (size_t i = 0; i < prompt_count; i++) {
            prompt[p].ids[i] =
                (int32_t)json_integer_value(json_array_get(ids, i));
        }
    }
    ro_world_init(&w, desc, NULL);
    for (uint32_t r = 0; r < w.size; r++) {
        assert_ok(dyti_weights_load(model_dir, model,
                                    dyti_layout_view(w.layout, r), DYTI_PARAM,
                                    w.rank[r].weights));
        dyti_rollout_set_version(w.rank[r].engine, 1);
    }
    batch = ro_generate(&w, &q);
    for (uint32_t i = 0; i < batch.sample_count; i++) {
        check(&batch.sample[i]);
    }
    dyti_batch_fini(&batch);
    ro_world_fini(&w);
    dyti_prompt_fini(&prompt[0]);
    dyti_prompt_fini(&prompt[1]);
}

static void every_layout_writes_what_transformers_writes(void **state)
{
    static const uint32_t degree[][3] = {{1, 1, 1}, {3, 1, 1}, {4, 1, 1},
                                         {1, 2, 1}, {2, 2, 1}, {2, 1, 2}};

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(degree); i++) {
        struct ro_desc desc = {.model = model,
                               .kernels = &dyti_kernels_host,
                               .tp = degree[i][0],
                               .pp = degree[i][1],
                               .dp = degree[i][2],
                               .threads = i == 0 ? 2 : 0,
                               .kv_bytes = 64u << 20,
                               .block = 16,
                               .max_sequences = 4,
                               .max_rows = 30, /* the prompt has more */
                               .max_positions = 96};

        generate(&desc);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_layout_writes_what_transformers_writes),
};

int main(void)
{
    return real_model_main(tests, DYT_TEST_COUNT(tests));
}
