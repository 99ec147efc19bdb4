/* Generation: is the request one that can be answered, and the loop over passes
 * until every sample has ended. */
#include "rollout/engine.h"

#include "rollout/internal.h"

#include <stdlib.h>
#include <string.h>

static enum dyt_status check_sampling(const struct dyti_sampling *s)
{
    if (s->max_response_tokens == 0 || !(s->temperature >= 0.0) ||
        !(s->top_p > 0.0 && s->top_p <= 1.0) ||
        !(s->min_p >= 0.0 && s->min_p < 1.0)) {
        return DYTI_FAIL(
            DYT_ERR_INVALID,
            "sampling: max_response_tokens %u temperature %g top_k %u "
            "top_p %g min_p %g",
            s->max_response_tokens, s->temperature, s->top_k, s->top_p,
            s->min_p);
    }
    for (uint32_t i = 0; i < s->stop_count; i++) {
        if (s->stop[i][0] == '\0' || strlen(s->stop[i]) > DYTI_ROLLOUT_TAIL) {
            return DYTI_FAIL(DYT_ERR_INVALID,
                             "stop string %u has %zu bytes; 1 to %u can be "
                             "looked for",
                             i, strlen(s->stop[i]), DYTI_ROLLOUT_TAIL);
        }
    }
    return DYT_OK;
}

/* Its prompts, and that their samples can be counted. */
static enum dyt_status check_prompts(const struct dyti_rollout *r,
                                     const struct dyti_rollout_request *q)
{
    if (q->samples_per_prompt == 0 ||
        (uint64_t)q->prompt_count * q->samples_per_prompt >= UINT32_MAX) {
        return DYTI_FAIL(DYT_ERR_INVALID, "%u samples of each of %u prompts",
                         q->samples_per_prompt, q->prompt_count);
    }
    for (uint32_t i = 0; i < q->prompt_count; i++) {
        const struct dyti_prompt *p = &q->prompt[i];
        uint64_t whole =
            (uint64_t)p->id_count + q->sampling->max_response_tokens;
        enum dyt_status st;

        if (p->id_count == 0) {
            return DYTI_FAIL(DYT_ERR_INVALID,
                             "prompt %llu is empty: there is nothing to go on "
                             "from",
                             (unsigned long long)p->id);
        }
        if (whole > r->params.max_positions) {
            return DYTI_FAIL(DYT_ERR_INVALID,
                             "prompt %llu has %u tokens; with %u of response "
                             "at most %u positions are there",
                             (unsigned long long)p->id, p->id_count,
                             q->sampling->max_response_tokens,
                             r->params.max_positions);
        }
        st = dyti_admit_check(r, p, q->sampling->max_response_tokens);
        if (st != DYT_OK) {
            return st;
        }
        for (uint32_t k = 0; k < p->id_count; k++) {
            if (p->ids[k] < 0 || p->ids[k] >= r->model->arch.vocab) {
                return DYTI_FAIL(
                    DYT_ERR_INVALID,
                    "prompt %llu has id %d at position %u, outside "
                    "the vocabulary of %lld",
                    (unsigned long long)p->id, p->ids[k], k,
                    (long long)r->model->arch.vocab);
            }
        }
    }
    return DYT_OK;
}

static enum dyt_status check_request(const struct dyti_rollout *r,
                                     const struct dyti_rollout_request *q)
{
    enum dyt_status st;

    if (!r->serving) {
        return DYTI_FAIL(DYT_ERR_STATE,
                         "rank %u has no committed weights to generate from; "
                         "commit a switch first",
                         r->params.rank);
    }
    if (q->sampling->stop_count > 0 && r->params.tokenizer == NULL) {
        return DYTI_FAIL(DYT_ERR_INVALID, "stop strings need a tokenizer");
    }
    st = check_sampling(q->sampling);
    return st != DYT_OK ? st : check_prompts(r, q);
}

/* This replica's samples, empty, in order. */
static enum dyt_status lay_out_samples(const struct dyti_rollout *r,
                                       const struct dyti_rollout_request *q,
                                       struct dyti_waiting *w,
                                       uint32_t **out_prompt_of)
{
    const struct dyti_part *part = &r->nn->part;
    uint32_t total = 0, n = 0, *prompt_of;

    for (uint32_t i = part->dp_rank; i < q->prompt_count; i += part->dp_size) {
        total += q->samples_per_prompt;
    }
    w->sample = calloc(total + 1u, sizeof(*w->sample));
    prompt_of = calloc(total + 1u, sizeof(*prompt_of));
    if (w->sample == NULL || prompt_of == NULL) {
        free(prompt_of);
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u samples", total);
    }
    *out_prompt_of = prompt_of;
    w->prompt_of = prompt_of;
    w->request = q;
    for (uint32_t i = part->dp_rank; i < q->prompt_count; i += part->dp_size) {
        for (uint32_t k = 0; k < q->samples_per_prompt; k++) {
            struct dyti_sample *s = &w->sample[n];
            enum dyt_status st =
                dyti_sample_reserve(s, q->sampling->max_response_tokens);

            s->prompt = q->prompt[i].id;
            s->index = k;
            prompt_of[n++] = i;
            w->total = n;
            if (st != DYT_OK) {
                return st;
            }
        }
    }
    return DYT_OK;
}

static void append_token(struct dyti_sequence *s, const struct dyti_draw *d)
{
    struct dyti_sample *sample = s->sample;

    sample->ids[sample->count] = d->token;
    sample->raw[sample->count] = d->raw;
    sample->processed[sample->count] = d->processed;
    sample->count++;
    s->next = d->token;
}

static void release(struct dyti_rollout *r, struct dyti_sequence *s)
{
    for (uint32_t b = 0; b < s->table_count; b++) {
        dyti_blocks_put(&r->blocks, s->table[b]);
    }
    dyti_table_put(r, s->table);
}

/* draw[i] belongs to running[i].  Finished sequences leave, order is kept. */
static uint32_t take_draws(struct dyti_rollout *r,
                           const struct dyti_rollout_request *request)
{
    uint32_t kept = 0, finished = 0;

    dyti_require(r->draw_count == r->running_count);
    for (uint32_t i = 0; i < r->running_count; i++) {
        append_token(&r->running[i], &r->draw[i]);
        if (dyti_stop_reached(r, i, request)) {
            release(r, &r->running[i]);
            finished++;
        } else {
            r->running[kept++] = r->running[i];
        }
    }
    r->running_count = kept;
    return finished;
}

static enum dyt_status stamp_versions(struct dyti_waiting *w, uint64_t version)
{
    for (uint32_t i = 0; i < w->total; i++) {
        struct dyti_sample *s = &w->sample[i];

        s->span = calloc(1, sizeof(*s->span));
        if (s->span == NULL) {
            return DYTI_FAIL(DYT_ERR_NOMEM, "version span");
        }
        s->span[0] = (struct dyti_version_span){version, 0, s->count};
        s->span_count = 1;
    }
    return DYT_OK;
}

static enum dyt_status run(struct dyti_rollout *r, struct dyti_waiting *w,
                           struct dyti_rollout_stats *stats)
{
    const struct dyti_rollout_request *q = w->request;
    uint32_t finished = 0;
    bool first = true;

    dyti_tables_clear(r);
    while (finished < w->total) {
        enum dyt_status st;

        dyti_admit(r, w);
        st = dyti_pass_run(r, stats);
        st = st != DYT_OK ? st : dyti_draw_all(r, q);
        if (st != DYT_OK) {
            return st;
        }
        stats->sampled += r->draw_count;
        if (r->running_count > stats->most_sequences) {
            stats->most_sequences = r->running_count;
        }
        if (first && r->draw_count > 0) {
            first = false;
            if (q->first_token != NULL) {
                q->first_token(q->arg);
            }
        }
        finished += take_draws(r, q);
        if (q->progress != NULL) {
            q->progress(q->arg, finished, w->total);
        }
    }
    stats->most_blocks = r->blocks.most_used;
    stats->kv_bytes = stats->most_blocks * dyti_block_bytes(&r->params);
#ifdef DYT_TEST_HOOKS
    r->generated = true;
#endif
    return DYT_OK;
}

enum dyt_status dyti_rollout_generate(
    struct dyti_rollout *rollout, const struct dyti_rollout_request *request,
    struct dyti_sample **out_sample, uint32_t *out_count,
    struct dyti_rollout_stats *out_stats)
{
    struct dyti_rollout_stats stats = {0};
    struct dyti_waiting w = {0};
    uint32_t *prompt_of = NULL;
    enum dyt_status st = check_request(rollout, request);

    if (st != DYT_OK) {
        return st;
    }
    st = lay_out_samples(rollout, request, &w, &prompt_of);
    st = st != DYT_OK ? st : run(rollout, &w, &stats);
    st = st != DYT_OK ? st : stamp_versions(&w, rollout->version);
    if (st != DYT_OK) {
        DYTI_NOTE("generating %u samples of %u prompts",
                  request->samples_per_prompt, request->prompt_count);
        goto out;
    }
    *out_sample = w.sample;
    *out_count = w.total;
    w.sample = NULL;
    if (out_stats != NULL) {
        *out_stats = stats;
    }
out:
    for (uint32_t i = 0; w.sample != NULL && i < w.total; i++) {
        dyti_sample_fini(&w.sample[i]);
    }
    free(w.sample);
    free(prompt_of);
    return st;
}
