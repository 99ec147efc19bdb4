/* The catalogue as a table; layers that are all alike are one line each. */
#include "explain/explain.h"
#include "explain/words.h"

#include <inttypes.h>
#include <string.h>

static void print_tensor(const struct dyti_model *model,
                         const struct dyti_tensor *t, FILE *out)
{
    const char *prefix = "model.layers.0.";
    char cut[32];

    if (t->segment[0].cut == DYTI_CUT_NONE) {
        (void)snprintf(cut, sizeof(cut), "%s", dyti_words_cut(DYTI_CUT_NONE));
    } else {
        (void)snprintf(cut, sizeof(cut), "%s on axis %u",
                       dyti_words_cut(t->segment[0].cut), t->cut_axis);
    }
    if (t->layer < 0 || dyti_model_is_listed(model)) {
        fprintf(out, "  %-46s %-16s %s%s\n", t->name,
                dyti_words_shape(t->ndim, t->shape).text, cut,
                t->on_first && t->on_last && !dyti_model_is_listed(model)
                    ? ", also the head"
                    : "");
        return;
    }
    fprintf(out, "  model.layers.*.%-31s %-16s %s, %" PRId64 " layers\n",
            t->name + strlen(prefix), dyti_words_shape(t->ndim, t->shape).text,
            cut, model->arch.layers);
}

enum dyt_status dyti_explain_model(const struct dyti_model *model, FILE *out)
{
    const struct dyti_arch *a = &model->arch;

    fprintf(
        out, "model %s: %u tensors, %" PRIu64 " parameters, fingerprint %s\n",
        dyti_family_name(a->family), model->tensor_count,
        dyti_model_elements(model), dyti_words_hex(model->fingerprint).text);
    if (!dyti_model_is_listed(model)) {
        fprintf(out,
                "  vocab %" PRId64 ", hidden %" PRId64 ", layers %" PRId64
                ", query heads %" PRId64 ", KV heads %" PRId64
                ", head dim %" PRId64 ", ffn %" PRId64 "%s%s%s\n",
                a->vocab, a->hidden, a->layers, a->q_heads, a->kv_heads,
                a->head_dim, a->ffn, a->tied ? ", tied" : "",
                a->qkv_bias ? ", qkv bias" : "", a->qk_norm ? ", qk norm" : "");
    }
    fprintf(out, "  %-46s %-16s %s\n", "tensor", "shape", "cut by");
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        if (model->tensor[i].layer <= 0 || dyti_model_is_listed(model)) {
            print_tensor(model, &model->tensor[i], out);
        }
    }
    return dyti_words_done(out, "the model");
}

static void tensor_json(const struct dyti_tensor *t, struct dyti_json *json)
{
    dyti_json_begin_object(json, NULL);
    dyti_json_text(json, "name", t->name);
    dyti_json_begin_array(json, "shape");
    for (uint32_t d = 0; d < t->ndim; d++) {
        dyti_json_i64(json, NULL, t->shape[d]);
    }
    dyti_json_end(json);
    dyti_json_i64(json, "layer", t->layer);
    dyti_json_u64(json, "cut_axis", t->cut_axis);
    dyti_json_text(json, "cut", dyti_words_cut(t->segment[0].cut));
    dyti_json_end(json);
}

void dyti_explain_model_json(const struct dyti_model *model,
                             struct dyti_json *json, const char *key)
{
    const struct dyti_arch *a = &model->arch;

    dyti_json_begin_object(json, key);
    dyti_json_text(json, "family", dyti_family_name(a->family));
    dyti_json_u64(json, "parameters", dyti_model_elements(model));
    dyti_words_hex_json(json, "fingerprint", model->fingerprint);
    dyti_json_i64(json, "vocab", a->vocab);
    dyti_json_i64(json, "hidden", a->hidden);
    dyti_json_i64(json, "layers", a->layers);
    dyti_json_i64(json, "q_heads", a->q_heads);
    dyti_json_i64(json, "kv_heads", a->kv_heads);
    dyti_json_i64(json, "head_dim", a->head_dim);
    dyti_json_i64(json, "ffn", a->ffn);
    dyti_json_bool(json, "tied", a->tied);
    dyti_json_bool(json, "qkv_bias", a->qkv_bias);
    dyti_json_bool(json, "qk_norm", a->qk_norm);
    dyti_json_begin_array(json, "tensors");
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        tensor_json(&model->tensor[i], json);
    }
    dyti_json_end(json);
    dyti_json_end(json);
}
