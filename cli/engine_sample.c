#include "cli/engine_sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_log_probability(float x)
{
    return isfinite(x) && x <= 1e-3f; /* rounding may end just above 0 */
}

static enum dyt_status check_tokens(const struct dyt_engine_sample *from)
{
    for (uint32_t i = 0; i < from->token_count; i++) {
        if (from->token[i] < 0) {
            return DYTI_FAIL(DYT_ERR_FORMAT, "token %u is %d", i,
                             from->token[i]);
        }
        if (!is_log_probability(from->logprob[i])) {
            return DYTI_FAIL(DYT_ERR_FORMAT,
                             "the log-probability of token %u is %g", i,
                             (double)from->logprob[i]);
        }
    }
    return DYT_OK;
}

static enum dyt_status check_spans(const struct dyti_engine_generate *o,
                                   const struct dyt_engine_sample *from)
{
    if (from->span_count == 0 || from->span == NULL ||
        from->span[0].first != 0) {
        return DYTI_FAIL(DYT_ERR_FORMAT, "its first token has no version");
    }
    for (uint32_t i = 0; i < from->span_count; i++) {
        const struct dyt_engine_span *s = &from->span[i];

        if (s->first >= from->token_count ||
            (i > 0 && s->first <= from->span[i - 1].first)) {
            return DYTI_FAIL(DYT_ERR_FORMAT,
                             "version span %u begins at token %u of %u", i,
                             s->first, from->token_count);
        }
        if (s->version != o->version) {
            return DYTI_FAIL(DYT_ERR_STATE,
                             "it was made with version %llu, the engine was "
                             "told to serve %llu",
                             (unsigned long long)s->version,
                             (unsigned long long)o->version);
        }
    }
    return DYT_OK;
}

/* Of a prompt that was asked for, and for the first time. */
static enum dyt_status check_place(const struct dyti_engine_generate *o,
                                   const struct dyt_engine_sample *from,
                                   bool *seen, bool **out_seen)
{
    uint32_t at = 0;

    while (at < o->prompt_count && o->prompt[at].id != from->id) {
        at++;
    }
    if (at == o->prompt_count || from->index >= o->samples_per_prompt) {
        return DYTI_FAIL(DYT_ERR_FORMAT,
                         "sample %u of prompt %llu was not asked for",
                         from->index, (unsigned long long)from->id);
    }
    *out_seen = &seen[(size_t)at * o->samples_per_prompt + from->index];
    return !**out_seen ? DYT_OK
                       : DYTI_FAIL(DYT_ERR_FORMAT, "it has come before");
}

static enum dyt_status check_sample(const struct dyti_engine_generate *o,
                                    const struct dyt_engine_sample *from)
{
    enum dyt_status st;

    if (from->token_count == 0 || from->token == NULL ||
        from->logprob == NULL) {
        return DYTI_FAIL(DYT_ERR_FORMAT,
                         "it has no tokens, or no log-probabilities");
    }
    if (from->token_count > o->sampling->max_response_tokens) {
        return DYTI_FAIL(DYT_ERR_FORMAT, "it has %u tokens, %u were allowed",
                         from->token_count, o->sampling->max_response_tokens);
    }
    if (from->finish > DYT_ENGINE_ABORT) {
        return DYTI_FAIL(DYT_ERR_FORMAT, "finish reason %u", from->finish);
    }
    st = check_tokens(from);
    return st != DYT_OK ? st : check_spans(o, from);
}

static enum dyt_status copy_spans(const struct dyt_engine_sample *from,
                                  struct dyti_sample *to)
{
    to->span = calloc(from->span_count, sizeof(*to->span));
    if (to->span == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u version spans", from->span_count);
    }
    to->span_count = from->span_count;
    for (uint32_t i = 0; i < from->span_count; i++) {
        uint32_t end = i + 1 < from->span_count ? from->span[i + 1].first
                                                : from->token_count;

        to->span[i] = (struct dyti_version_span){from->span[i].version,
                                                 from->span[i].first,
                                                 end - from->span[i].first};
    }
    return DYT_OK;
}

static enum dyt_status copy_sample(const struct dyt_engine_sample *from,
                                   struct dyti_sample *out)
{
    static const enum dyti_finish finish[] = {
        DYTI_FINISH_STOP, DYTI_FINISH_LENGTH, DYTI_FINISH_ABORT};
    struct dyti_sample s = {.prompt = from->id,
                            .index = from->index,
                            .finish = finish[from->finish]};
    size_t n = from->token_count;
    enum dyt_status st = dyti_sample_reserve(&s, from->token_count);

    if (st == DYT_OK) {
        s.count = from->token_count;
        memcpy(s.ids, from->token, n * sizeof(*s.ids));
        memcpy(s.processed, from->logprob, n * sizeof(*s.processed));
        memcpy(s.raw, from->raw != NULL ? from->raw : from->logprob,
               n * sizeof(*s.raw));
        st = copy_spans(from, &s);
    }
    if (st != DYT_OK) {
        dyti_sample_fini(&s);
        return st;
    }
    *out = s;
    return DYT_OK;
}

enum dyt_status dyti_engine_sample(const struct dyti_engine_generate *order,
                                   const struct dyt_engine_sample *from,
                                   bool *seen, bool **out_seen,
                                   struct dyti_sample *out_sample)
{
    enum dyt_status st = check_sample(order, from);

    st = st != DYT_OK ? st : check_place(order, from, seen, out_seen);
    return st != DYT_OK ? st : copy_sample(from, out_sample);
}
