/* Tiny models of every family against transformers and PyTorch: logits,
 * log-probabilities, entropy, loss and gradients. */
#include "nn_cases.h"

#include <jansson.h>

/* The oracle is f64, we are f32. */
#define TOLERANCE      2e-5
#define GRAD_TOLERANCE 3e-5

static int64_t integer(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    if (!json_is_integer(value)) {
        fail_msg("%s is no integer", key);
    }
    return json_integer_value(value);
}

static double number(const json_t *value)
{
    if (!json_is_number(value)) {
        fail_msg("a number is missing");
    }
    return json_number_value(value);
}

static double number_of(const json_t *object, const char *key)
{
    return number(json_object_get(object, key));
}

static struct dyti_rope rope_of(const json_t *rope)
{
    const char *kind = json_string_value(json_object_get(rope, "rope_type"));
    struct dyti_rope out = {.theta = number_of(rope, "rope_theta")};

    if (strcmp(kind, "default") == 0) {
        return out;
    }
    out.factor = number_of(rope, "factor");
    out.kind = DYTI_ROPE_LINEAR;
    if (strcmp(kind, "llama3") == 0) {
        out.kind = DYTI_ROPE_LLAMA3;
        out.low_freq = number_of(rope, "low_freq_factor");
        out.high_freq = number_of(rope, "high_freq_factor");
        out.original_max = integer(rope, "original_max_position_embeddings");
    }
    return out;
}

static struct dyti_arch arch_of(const json_t *sizes, const json_t *item)
{
    const char *name = json_string_value(json_object_get(item, "name"));

    return (struct dyti_arch){
        .family = strcmp(name, "qwen2") == 0     ? DYTI_QWEN2
                  : strcmp(name, "qwen3") == 0   ? DYTI_QWEN3
                  : strcmp(name, "mistral") == 0 ? DYTI_MISTRAL
                                                 : DYTI_LLAMA,
        .vocab = integer(sizes, "vocab_size"),
        .hidden = integer(sizes, "hidden_size"),
        .layers = integer(sizes, "num_hidden_layers"),
        .q_heads = integer(sizes, "num_attention_heads"),
        .kv_heads = integer(sizes, "num_key_value_heads"),
        .head_dim = integer(sizes, "head_dim"),
        .ffn = integer(sizes, "intermediate_size"),
        .max_positions = integer(sizes, "max_position_embeddings"),
        .rms_eps = number_of(sizes, "rms_norm_eps"),
        .init_std = 0.02,
        .rope = rope_of(json_object_get(item, "rope")),
        .tied = json_is_true(json_object_get(item, "tied")),
        .qkv_bias = strcmp(name, "qwen2") == 0,
        .qk_norm = strcmp(name, "qwen3") == 0,
    };
}

/* The formula of make_tiny_refs.py. */
static float **weights_of(const struct dyti_model *model, uint64_t seed)
{
    float **full = nn_full_new(model);

    for (uint32_t t = 0; t < model->tensor_count; t++) {
        enum dyti_slot slot = model->tensor[t].slot;
        uint64_t count = dyti_tensor_elements(&model->tensor[t]);

        for (uint64_t i = 0; i < count; i++) {
            double x = 2.0 * dyti_rng_unit(dyti_rng_u64(seed, t, i, 0)) - 1.0;

            full[t][i] = (float)(nn_is_norm(slot)          ? 1.0 + 0.4 * x
                                 : slot == DYTI_SLOT_EMBED ? x
                                                           : 0.4 * x);
        }
    }
    return full;
}

static void near_list(const char *what, const float *got, const json_t *want,
                      int64_t count, double tolerance)
{
    assert_int_equal(json_array_size(want), count);
    for (int64_t i = 0; i < count; i++) {
        double expected = number(json_array_get(want, (size_t)i));

        if (!(fabs((double)got[i] - expected) <=
              tolerance * (1.0 + fabs(expected)))) {
            fail_msg("%s[%d] is %.8g, the oracle says %.8g", what, (int)i,
                     (double)got[i], expected);
        }
    }
}

static void near_grads(const struct dyti_model *model, float **grad,
                       const json_t *grads)
{
    assert_int_equal(json_object_size(grads), model->tensor_count);
    for (uint32_t t = 0; t < model->tensor_count; t++) {
        const struct dyti_tensor *tensor = &model->tensor[t];
        const json_t *want = json_object_get(grads, tensor->name);
        const json_t *at = json_object_get(want, "at");
        const json_t *values = json_object_get(want, "values");
        double l2 = number_of(want, "l2"), sum = 0.0;

        for (uint64_t i = 0; i < dyti_tensor_elements(tensor); i++) {
            sum += (double)grad[t][i] * (double)grad[t][i];
        }
        if (!(fabs(sqrt(sum) - l2) <= GRAD_TOLERANCE * (1.0 + l2))) {
            fail_msg("norm of %s is %.8g, the oracle says %.8g", tensor->name,
                     sqrt(sum), l2);
        }
        for (size_t i = 0; i < json_array_size(at); i++) {
            float got = grad[t][json_integer_value(json_array_get(at, i))];
            double expected = number(json_array_get(values, i));

            if (!(fabs((double)got - expected) <=
                  GRAD_TOLERANCE * (1.0 + l2))) {
                fail_msg("%s: gradient %.8g, the oracle says %.8g",
                         tensor->name, (double)got, expected);
            }
        }
    }
}

#define MAX_ROWS 32

struct rows {
    int32_t ids[MAX_ROWS], position[MAX_ROWS], target[MAX_ROWS], first[3];
    float dlogprob[MAX_ROWS], dentropy[MAX_ROWS];
    float logprob[MAX_ROWS], entropy[MAX_ROWS];
    struct dyti_nn_micro micro;
};

static void rows_of(const json_t *item, struct rows *out)
{
    const json_t *ids = json_object_get(item, "ids");
    int32_t at = 0;

    for (size_t s = 0; s < 2; s++) {
        const json_t *seq = json_array_get(ids, s);
        size_t n = json_array_size(seq);

        out->first[s] = at;
        for (size_t i = 0; i < n; i++, at++) {
            assert_true(at < MAX_ROWS);
            out->ids[at] = (int32_t)json_integer_value(json_array_get(seq, i));
            out->target[at] =
                (int32_t)json_integer_value(json_array_get(seq, (i + 1) % n));
            out->position[at] = (int32_t)i;
            out->dlogprob[at] = (float)number_of(item, "dlogprob");
            out->dentropy[at] = (float)number_of(item, "dentropy");
        }
    }
    out->first[2] = at;
    out->micro = (struct dyti_nn_micro){.packed = {2, at, out->first, NULL},
                                        .ids = out->ids,
                                        .position = out->position};
}

static double loss_of(const struct rows *rows)
{
    double loss = 0.0;

    for (int64_t r = 0; r < rows->micro.packed.row_count; r++) {
        loss += (double)rows->dlogprob[r] * (double)rows->logprob[r] +
                (double)rows->dentropy[r] * (double)rows->entropy[r];
    }
    return loss;
}

static void check_case(const json_t *sizes, const json_t *item, uint32_t tp,
                       uint32_t pp, const struct dyti_kernel_ops *kernels)
{
    struct dyti_arch arch = arch_of(sizes, item);
    struct dyti_model *model;
    struct nn_world w;
    struct rows rows;
    struct nn_step step = {.micro = &rows.micro,
                           .target = rows.target,
                           .scale = (float)number_of(item, "scale"),
                           .dlogprob = rows.dlogprob,
                           .dentropy = rows.dentropy,
                           .head_rows = 6,
                           .logprob = rows.logprob,
                           .entropy = rows.entropy};
    float **full, **grad;
    int64_t count;

    rows_of(item, &rows);
    count = rows.micro.packed.row_count;
    assert_ok(dyti_model_build(&arch, &model));
    full = weights_of(model, (uint64_t)integer(item, "seed"));
    step.logits = calloc((size_t)(count * arch.vocab), sizeof(float));
    nn_world_init(&w,
                  &(struct nn_world_desc){.model = model,
                                          .tp = tp,
                                          .pp = pp,
                                          .kernels = kernels,
                                          .positions = 16},
                  full);
    nn_world_step(&w, &step);
    near_list("logit", step.logits, json_object_get(item, "logits"),
              count * arch.vocab, TOLERANCE);
    near_list("logprob", rows.logprob, json_object_get(item, "logprob"), count,
              TOLERANCE);
    near_list("entropy", rows.entropy, json_object_get(item, "entropy"), count,
              TOLERANCE);
    assert_true(fabs(loss_of(&rows) - number_of(item, "loss")) < 1e-4);
    grad = nn_world_grads(&w);
    near_grads(model, grad, json_object_get(item, "grads"));
    nn_full_free(model, grad);
    nn_world_fini(&w);
    nn_full_free(model, full);
    free(step.logits);
    dyti_model_destroy(model);
}

static void families_match_transformers(void **state)
{
    (void)state;
    json_error_t error;
    json_t *refs = json_load_file("tests/data/nn/tiny_refs.json", 0, &error);
    json_t *cases;

    if (refs == NULL) {
        fail_msg("tests/data/nn/tiny_refs.json: %s", error.text);
    }
    cases = json_object_get(refs, "cases");
    assert_int_equal(json_array_size(cases), 5);
    for (size_t i = 0; i < 5; i++) {
        const json_t *sizes = json_object_get(refs, "sizes");
        const json_t *item = json_array_get(cases, i);

        print_message("  %s\n",
                      json_string_value(json_object_get(item, "name")));
        check_case(sizes, item, 1, 1, &dyti_kernels_reference);
        check_case(sizes, item, 4, 2, &dyti_kernels_reference);
        check_case(sizes, item, 1, 1, &dyti_kernels_host);
    }
    json_decref(refs);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(families_match_transformers),
};
DYT_TEST_MAIN(tests)
