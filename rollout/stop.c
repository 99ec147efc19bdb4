/* When a sequence ends: EOS and stop ids, stop strings across token borders,
 * the length. */
#include "rollout/internal.h"

#include <string.h>

static bool listed(const int32_t *list, uint32_t count, int32_t id)
{
    for (uint32_t i = 0; i < count; i++) {
        if (list[i] == id) {
            return true;
        }
    }
    return false;
}

static bool stops(const struct dyti_sampling *sampling, int32_t id)
{
    for (uint32_t i = 0; i < sampling->stop_token_id_count; i++) {
        if ((int64_t)sampling->stop_token_id[i] == id) {
            return true;
        }
    }
    return false;
}

/* Append the token's bytes to the sequence's tail and look for any stop
 * string; the tail keeps what a string that is not finished could need.  One
 * that is complete before the minimum length ends nothing. */
static bool stop_string(struct dyti_rollout *r, struct dyti_sequence *s,
                        const struct dyti_sampling *sampling, int32_t token)
{
    const struct dyti_tokenizer *tok = r->params.tokenizer;
    unsigned char *tail = s->tail;
    uint32_t least = sampling->min_response_tokens;
    const char *bytes;
    size_t count;

    if (tok->ops->token_bytes(tok->self, token, &bytes, &count) != DYT_OK) {
        return false; /* an id without text ends no string */
    }
    for (size_t i = 0; i < count; i++) {
        if (s->match == DYTI_ROLLOUT_TAIL) {
            memmove(tail, tail + 1, --s->match);
        }
        tail[s->match++] = (unsigned char)bytes[i];
        for (uint32_t k = 0; k < sampling->stop_count; k++) {
            size_t len = strlen(sampling->stop[k]);

            if (len <= s->match && s->sample->count > least &&
                memcmp(tail + s->match - len, sampling->stop[k], len) == 0) {
                return true;
            }
        }
    }
    return false;
}

bool dyti_stop_reached(struct dyti_rollout *r, uint32_t running_index,
                       const struct dyti_rollout_request *request)
{
    const struct dyti_sampling *sampling = request->sampling;
    struct dyti_sequence *s = &r->running[running_index];
    struct dyti_sample *sample = s->sample;
    int32_t token = sample->ids[sample->count - 1];

    if ((!sampling->ignore_eos &&
         listed(request->eos, request->eos_count, token)) ||
        stops(sampling, token)) {
        sample->finish = DYTI_FINISH_STOP;
        return true;
    }
    if (sampling->stop_count > 0 && r->params.tokenizer != NULL &&
        stop_string(r, s, sampling, token)) {
        sample->finish = DYTI_FINISH_STOP;
        return true;
    }
    if (sample->count >= sampling->max_response_tokens) {
        sample->finish = DYTI_FINISH_LENGTH;
        return true;
    }
    return false;
}
