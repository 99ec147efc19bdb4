#include "server.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void completion_fini(struct completion *c)
{
    free(c->token);
    free(c->logprob);
    memset(c, 0, sizeof(*c));
}

static bool reserve(struct completion *c, size_t count)
{
    c->token = calloc(count + 1, sizeof(*c->token));
    c->logprob = calloc(count + 1, sizeof(*c->logprob));
    c->count = (uint32_t)count;
    return c->token != NULL && c->logprob != NULL;
}

static json_t *integers(const int32_t *value, uint32_t count)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < count; i++) {
        json_array_append_new(list, json_integer(value[i]));
    }
    return list;
}

/* Both servers derive a generator from it; two samples of a prompt differ. */
static json_int_t seed_of(const struct dyt_engine_prompt *prompt)
{
    uint64_t x = (prompt->seed + 1) * 0x9e3779b97f4a7c15u ^ prompt->id;

    return (json_int_t)(x >> 34);
}

/* ---- vLLM: POST /v1/completions ------------------------------------------ */

static json_t *vllm_request(const struct dyt_engine_prompt *p,
                            const char *model)
{
    return json_pack(
        "{s:s, s:o, s:i, s:i, s:i, s:f, s:f, s:f, s:i, s:I, s:b, s:o, s:i, "
        "s:b}",
        "model", model, "prompt", integers(p->token, p->token_count), "n",
        (int)p->samples, "max_tokens", (int)p->max_tokens, "min_tokens",
        (int)p->min_tokens, "temperature", (double)p->temperature, "top_p",
        (double)p->top_p, "min_p", (double)p->min_p, "top_k",
        p->top_k > 0 ? (int)p->top_k : -1, "seed", seed_of(p), "ignore_eos",
        (int)p->ignore_eos, "stop_token_ids", integers(p->stop, p->stop_count),
        "logprobs", 0, "return_token_ids", 1);
}

static bool finish_of(const json_t *word, uint32_t *out)
{
    const char *text = json_string_value(word);

    if (text == NULL) {
        return false;
    }
    *out = strcmp(text, "stop") == 0     ? DYT_ENGINE_STOP
           : strcmp(text, "length") == 0 ? DYT_ENGINE_LENGTH
                                         : DYT_ENGINE_ABORT;
    return true;
}

static bool vllm_choice(const json_t *choice, struct completion *c,
                        const char **out_why)
{
    const json_t *ids = json_object_get(choice, "token_ids");
    const json_t *logprobs =
        json_object_get(json_object_get(choice, "logprobs"), "token_logprobs");
    size_t count = json_array_size(ids);

    if (!json_is_array(ids)) {
        *out_why = "no choices[].token_ids: it does not know return_token_ids "
                   "(vLLM 0.10.2 and later do)";
        return false;
    }
    if (json_array_size(logprobs) != count) {
        *out_why = "choices[].logprobs.token_logprobs are not one for each "
                   "token id";
        return false;
    }
    if (!finish_of(json_object_get(choice, "finish_reason"), &c->finish)) {
        *out_why = "no choices[].finish_reason";
        return false;
    }
    if (!reserve(c, count)) {
        *out_why = "out of memory";
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *id = json_array_get(ids, i);
        const json_t *logprob = json_array_get(logprobs, i);

        if (!json_is_integer(id) || !json_is_number(logprob)) {
            *out_why = "a token id or log-probability is no number";
            return false;
        }
        c->token[i] = (int32_t)json_integer_value(id);
        c->logprob[i] = (float)json_number_value(logprob);
    }
    return true;
}

static bool vllm_answer(const json_t *body, uint32_t samples,
                        struct completion *completion, const char **out_why)
{
    const json_t *choices = json_object_get(body, "choices");
    size_t i;
    const json_t *choice;

    if (json_array_size(choices) != samples) {
        *out_why = "not as many choices as samples were asked for";
        return false;
    }
    json_array_foreach(choices, i, choice)
    {
        json_int_t index = json_integer_value(json_object_get(choice, "index"));

        if (index < 0 || index >= (json_int_t)samples ||
            completion[index].token != NULL) {
            *out_why = "choices[].index is out of range, or there twice";
            return false;
        }
        if (!vllm_choice(choice, &completion[index], out_why)) {
            return false;
        }
    }
    return true;
}

/* ---- SGLang: POST /generate ---------------------------------------------- */

static json_t *sglang_request(const struct dyt_engine_prompt *p,
                              const char *model)
{
    (void)model; /* one server, one model */
    return json_pack(
        "{s:o, s:{s:i, s:i, s:i, s:f, s:f, s:f, s:i, s:b, s:o}, s:b}",
        "input_ids", integers(p->token, p->token_count), "sampling_params", "n",
        (int)p->samples, "max_new_tokens", (int)p->max_tokens, "min_new_tokens",
        (int)p->min_tokens, "temperature", (double)p->temperature, "top_p",
        (double)p->top_p, "min_p", (double)p->min_p, "top_k",
        p->top_k > 0 ? (int)p->top_k : -1, "ignore_eos", (int)p->ignore_eos,
        "stop_token_ids", integers(p->stop, p->stop_count), "return_logprob",
        1);
}

/* meta_info.output_token_logprobs: [[log-probability, id, text], …] */
static bool sglang_one(const json_t *one, struct completion *c,
                       const char **out_why)
{
    const json_t *meta = json_object_get(one, "meta_info");
    const json_t *list = json_object_get(meta, "output_token_logprobs");
    const json_t *reason = json_object_get(meta, "finish_reason");
    size_t i;
    const json_t *entry;

    if (!json_is_array(list)) {
        *out_why = "no meta_info.output_token_logprobs: it does not know "
                   "return_logprob";
        return false;
    }
    if (!finish_of(json_object_get(reason, "type"), &c->finish)) {
        *out_why = "no meta_info.finish_reason.type";
        return false;
    }
    if (!reserve(c, json_array_size(list))) {
        *out_why = "out of memory";
        return false;
    }
    json_array_foreach(list, i, entry)
    {
        const json_t *logprob = json_array_get(entry, 0);
        const json_t *id = json_array_get(entry, 1);

        if (!json_is_integer(id) || !json_is_number(logprob)) {
            *out_why = "an entry of output_token_logprobs is not "
                       "[log-probability, id, text]";
            return false;
        }
        c->token[i] = (int32_t)json_integer_value(id);
        c->logprob[i] = (float)json_number_value(logprob);
    }
    return true;
}

static bool sglang_answer(const json_t *body, uint32_t samples,
                          struct completion *completion, const char **out_why)
{
    if (json_is_object(body) && samples == 1) {
        return sglang_one(body, &completion[0], out_why);
    }
    if (json_array_size(body) != samples) {
        *out_why = "not as many answers as samples were asked for";
        return false;
    }
    for (uint32_t i = 0; i < samples; i++) {
        if (!sglang_one(json_array_get(body, i), &completion[i], out_why)) {
            return false;
        }
    }
    return true;
}

/* ---- the kinds ----------------------------------------------------------- */

static const struct server_kind kinds[] = {
    {"vllm", "/v1/completions", vllm_request, vllm_answer},
    {"sglang", "/generate", sglang_request, sglang_answer},
};

const struct server_kind *server_kind_find(const char *name)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(kinds[i].name, name) == 0) {
            return &kinds[i];
        }
    }
    return NULL;
}
