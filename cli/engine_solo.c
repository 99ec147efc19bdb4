/* The built-in generation as an engine behind dynatrain/engine.h: one process,
 * the whole model, its own memory, a receiver of the job's session.  Built as a
 * module of its own (libdynatrain-engine.so); `dynatrain run` drives it like
 * anybody's.
 *
 * Options: dtype = f32 | bf16, threads (0: all cores), sequences at once,
 * positions (longest prompt + response; the model's), commit = staged |
 * in_place. */
#include "cli/solo.h"

#include <dynatrain/engine.h>
#include <dynatrain/session.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

struct waiting { /* a prompt that was submitted, and not generated yet */
    struct dyti_prompt prompt;
    struct dyt_engine_prompt how; /* token and stop are not looked at */
};

struct solo_engine {
    struct dyti_solo solo;
    struct dyt_session *session;
    int64_t timeout_ns;
    uint64_t version;
    bool serves, paused;

    struct waiting *waiting; /* [waiting_count] */
    uint32_t waiting_count;
    int32_t *stop; /* of the last submit */
    uint32_t stop_count;
    struct dyti_sample *sample; /* [sample_count], given out up to `next` */
    uint32_t sample_count, next;
    struct dyt_engine_span *span; /* of the sample given out last */
};

static const struct dyt_engine_host *lent;

/* The runtime that loads us has its own text of errors. */
static enum dyt_status told(enum dyt_status st)
{
    return st == DYT_OK || st == DYT_PENDING
               ? st
               : lent->fail(st, dyti_error_message());
}

/* ... and so has libdynatrain, which holds the session. */
static enum dyt_status session_told(enum dyt_status st)
{
    return st == DYT_OK || st == DYT_PENDING ? st
                                             : lent->fail(st, dyt_error_text());
}

/* ---- open ---------------------------------------------------------------- */

struct settings {
    struct dyti_solo_params solo;
    uint32_t commit;
};

static enum dyt_status read_number(const struct dyt_engine_option *option,
                                   uint32_t *out)
{
    char *end;
    unsigned long value = strtoul(option->value, &end, 10);

    if (option->value[0] < '0' || option->value[0] > '9' || *end != '\0' ||
        value > (1u << 24)) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "option %s: \"%s\" is no number up to 16777216",
                         option->key, option->value);
    }
    *out = (uint32_t)value;
    return DYT_OK;
}

/* One of two words; *out is 0 or 1. */
static enum dyt_status read_word(const struct dyt_engine_option *option,
                                 const char *zero, const char *one,
                                 uint32_t *out)
{
    if (strcmp(option->value, zero) != 0 && strcmp(option->value, one) != 0) {
        return DYTI_FAIL(DYT_ERR_CONFIG, "option %s: \"%s\" is not %s or %s",
                         option->key, option->value, zero, one);
    }
    *out = strcmp(option->value, one) == 0;
    return DYT_OK;
}

static enum dyt_status read_option(const struct dyt_engine_option *option,
                                   struct settings *s)
{
    uint32_t word = 0;
    enum dyt_status st;

    if (strcmp(option->key, "threads") == 0) {
        return read_number(option, &s->solo.threads);
    }
    if (strcmp(option->key, "sequences") == 0) {
        return read_number(option, &s->solo.sequences);
    }
    if (strcmp(option->key, "positions") == 0) {
        return read_number(option, &s->solo.positions);
    }
    if (strcmp(option->key, "dtype") == 0) {
        st = read_word(option, "f32", "bf16", &word);
        s->solo.dtype = word != 0 ? DYTI_BF16 : DYTI_F32;
        return st;
    }
    if (strcmp(option->key, "commit") == 0) {
        st = read_word(option, "staged", "in_place", &word);
        s->commit = word != 0 ? DYT_COMMIT_IN_PLACE : DYT_COMMIT_STAGED;
        return st;
    }
    return DYTI_FAIL(DYT_ERR_CONFIG,
                     "option %s is unknown: dtype, threads, sequences, "
                     "positions or commit",
                     option->key);
}

/* Every shard of the region is a whole tensor. */
static enum dyt_status publish(struct solo_engine *e)
{
    const struct dyti_view *view = dyti_layout_view(e->solo.layout, 0);
    uint32_t count = view->kind_first[DYTI_PARAM + 1];
    struct dyt_row *row = calloc(count, sizeof(*row));
    struct dyt_view rows = {.struct_size = sizeof(rows),
                            .row_struct_size = sizeof(*row),
                            .row = row,
                            .row_count = count};
    enum dyt_status st;

    if (row == NULL) {
        return told(DYTI_FAIL(DYT_ERR_NOMEM, "%u rows", count));
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct dyti_shard *shard = &view->shard[i];
        const struct dyti_tensor *t = &e->solo.model->tensor[shard->tensor];

        row[i] = (struct dyt_row){.struct_size = sizeof(row[i]),
                                  .kind = DYT_PARAM,
                                  .dtype = shard->dtype,
                                  .name = t->name,
                                  .ndim = t->ndim,
                                  .data = (unsigned char *)e->solo.weights +
                                          shard->offset,
                                  .fd = -1};
        memcpy(row[i].shape, t->shape, sizeof(row[i].shape));
    }
    st = session_told(dyt_session_publish(e->session, &rows, NULL));
    free(row);
    return st;
}

static enum dyt_status join(struct solo_engine *e,
                            const struct dyt_engine_open *p, uint32_t commit)
{
    struct dyt_session_params s = {.struct_size = sizeof(s),
                                   .role = DYT_ROLE_RECEIVER,
                                   .address = p->job_address,
                                   .job = p->job,
                                   .size = 1,
                                   .commit = commit,
                                   .timeout_ns = p->timeout_ns};
    enum dyt_status st = session_told(dyt_session_join(&s, &e->session));

    return st != DYT_OK ? st : publish(e);
}

static void engine_close(void *self)
{
    struct solo_engine *e = self;

    dyt_session_leave(e->session);
    for (uint32_t i = 0; i < e->waiting_count; i++) {
        dyti_prompt_fini(&e->waiting[i].prompt);
    }
    for (uint32_t i = 0; i < e->sample_count; i++) {
        dyti_sample_fini(&e->sample[i]);
    }
    free(e->waiting);
    free(e->sample);
    free(e->span);
    free(e->stop);
    dyti_solo_close(&e->solo);
    free(e);
}

static enum dyt_status engine_open(const struct dyt_engine_open *params,
                                   void **out_self)
{
    struct settings s = {.solo = {.model_dir = params->model,
                                  .dtype = DYTI_F32,
                                  .sequences = 32},
                         .commit = DYT_COMMIT_STAGED};
    struct solo_engine *e = calloc(1, sizeof(*e));
    enum dyt_status st = DYT_OK;

    if (e == NULL) {
        return told(DYTI_FAIL(DYT_ERR_NOMEM, "an engine"));
    }
    e->timeout_ns = params->timeout_ns;
    for (uint32_t i = 0; i < params->option_count && st == DYT_OK; i++) {
        st = read_option(&params->option[i], &s);
    }
    st = st != DYT_OK ? st : dyti_solo_open(&s.solo, &e->solo);
    if (st == DYT_OK) {
        dyti_rollout_invalidate(e->solo.rollout); /* until the first version */
    }
    st = told(st);
    st = st != DYT_OK ? st : join(e, params, s.commit);
    if (st != DYT_OK) {
        engine_close(e);
        return st;
    }
    *out_self = e;
    return DYT_OK;
}

/* ---- generate ------------------------------------------------------------ */

static enum dyt_status keep_stop(struct solo_engine *e,
                                 const struct dyt_engine_prompt *prompt)
{
    int32_t *stop = calloc(prompt->stop_count + 1u, sizeof(*stop));

    if (stop == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "stop ids");
    }
    if (prompt->stop_count > 0) {
        memcpy(stop, prompt->stop, prompt->stop_count * sizeof(*stop));
    }
    free(e->stop);
    e->stop = stop;
    e->stop_count = prompt->stop_count;
    return DYT_OK;
}

static enum dyt_status keep_prompt(struct solo_engine *e,
                                   const struct dyt_engine_prompt *prompt)
{
    union {
        const int32_t *in;
        int32_t *out; /* it is only copied */
    } ids = {.in = prompt->token};
    struct dyti_prompt view = {
        .id = prompt->id, .ids = ids.out, .id_count = prompt->token_count};
    struct waiting *w = &e->waiting[e->waiting_count];
    enum dyt_status st = dyti_prompt_copy(&view, &w->prompt);

    if (st == DYT_OK) {
        w->how = *prompt;
        e->waiting_count++;
    }
    return st;
}

static enum dyt_status engine_submit(void *self,
                                     const struct dyt_engine_prompt *prompt,
                                     size_t count)
{
    struct solo_engine *e = self;
    struct waiting *grown;
    enum dyt_status st = DYT_OK;

    if (!e->serves || e->paused) {
        return told(DYTI_FAIL(DYT_ERR_STATE, "no version is being served%s",
                              e->paused ? ": the engine is paused" : ""));
    }
    if (count == 0) {
        return DYT_OK;
    }
    grown = realloc(e->waiting, (e->waiting_count + count) * sizeof(*grown));
    if (grown == NULL) {
        return told(DYTI_FAIL(DYT_ERR_NOMEM, "%zu prompts", count));
    }
    e->waiting = grown;
    st = keep_stop(e, &prompt[0]);
    for (size_t i = 0; i < count && st == DYT_OK; i++) {
        st = keep_prompt(e, &prompt[i]);
    }
    return told(st);
}

/* Everything that waits, in one call of the rollout: its prompts come with the
 * settings of one job. */
static enum dyt_status generate(struct solo_engine *e)
{
    const struct dyt_engine_prompt *how = &e->waiting[0].how;
    struct dyti_prompt *prompt = calloc(e->waiting_count, sizeof(*prompt));
    struct dyti_sampling sampling = {.temperature = (double)how->temperature,
                                     .top_k = (uint32_t)how->top_k,
                                     .top_p = (double)how->top_p,
                                     .min_p = (double)how->min_p,
                                     .max_response_tokens = how->max_tokens,
                                     .min_response_tokens = how->min_tokens};
    struct dyti_rollout_request request = {.prompt = prompt,
                                           .prompt_count = e->waiting_count,
                                           .samples_per_prompt = how->samples,
                                           .sampling = &sampling,
                                           .eos = e->stop,
                                           .eos_count = e->stop_count,
                                           .seed = how->seed};
    struct dyti_rollout_stats stats;
    enum dyt_status st;

    if (prompt == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u prompts", e->waiting_count);
    }
    for (uint32_t i = 0; i < e->waiting_count; i++) {
        prompt[i] = e->waiting[i].prompt;
    }
    free(e->sample);
    e->sample = NULL;
    e->sample_count = e->next = 0;
    st = dyti_rollout_generate(e->solo.rollout, &request, &e->sample,
                               &e->sample_count, &stats);
    for (uint32_t i = 0; i < e->waiting_count; i++) {
        dyti_prompt_fini(&e->waiting[i].prompt);
    }
    e->waiting_count = 0;
    free(prompt);
    return st;
}

static enum dyt_status give(struct solo_engine *e,
                            struct dyt_engine_sample *out)
{
    const struct dyti_sample *s = &e->sample[e->next];
    struct dyt_engine_span *span = calloc(s->span_count + 1u, sizeof(*span));

    if (span == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "version spans");
    }
    for (uint32_t i = 0; i < s->span_count; i++) {
        span[i] = (struct dyt_engine_span){.version = s->span[i].version,
                                           .first = s->span[i].first};
    }
    free(e->span);
    e->span = span;
    e->next++;
    *out = (struct dyt_engine_sample){
        .struct_size = sizeof(*out),
        .finish = s->finish == DYTI_FINISH_STOP     ? DYT_ENGINE_STOP
                  : s->finish == DYTI_FINISH_LENGTH ? DYT_ENGINE_LENGTH
                                                    : DYT_ENGINE_ABORT,
        .id = s->prompt,
        .index = s->index,
        .token_count = s->count,
        .span_count = s->span_count,
        .token = s->ids,
        .logprob = s->processed,
        .raw = s->raw,
        .span = span};
    return DYT_OK;
}

static enum dyt_status engine_collect(void *self, int64_t timeout_ns,
                                      struct dyt_engine_sample *out_sample)
{
    struct solo_engine *e = self;
    enum dyt_status st = DYT_OK;

    (void)timeout_ns; /* a batch is generated whole */
    if (e->next == e->sample_count && e->waiting_count > 0) {
        for (uint32_t i = 0; i < e->sample_count; i++) {
            dyti_sample_fini(&e->sample[i]);
        }
        st = generate(e);
    }
    if (st == DYT_OK && e->next == e->sample_count) {
        return DYT_PENDING;
    }
    return told(st != DYT_OK ? st : give(e, out_sample));
}

/* ---- versions ------------------------------------------------------------ */

static enum dyt_status engine_pause(void *self, uint32_t in_flight)
{
    struct solo_engine *e = self;

    (void)in_flight; /* nothing is ever in flight between two calls */
    e->paused = true;
    return DYT_OK;
}

static enum dyt_status engine_resume(void *self)
{
    struct solo_engine *e = self;

    if (!e->serves) {
        return told(DYTI_FAIL(DYT_ERR_STATE, "there is no whole version"));
    }
    e->paused = false;
    return DYT_OK;
}

static enum dyt_status engine_update(void *self, uint64_t version,
                                     int64_t timeout_ns,
                                     struct dyt_switch_report *out_report)
{
    struct solo_engine *e = self;
    enum dyt_status st =
        dyt_session_receive(e->session, version, timeout_ns, out_report);
    uint64_t holds;

    if (st == DYT_OK) {
        e->version = out_report->version;
        e->serves = true;
        dyti_rollout_set_version(e->solo.rollout, e->version);
        return DYT_OK;
    }
    st = session_told(st);
    if (dyt_session_valid(e->session, &holds) != DYT_OK) {
        e->serves = false;
        dyti_rollout_invalidate(e->solo.rollout);
    }
    return st;
}

/* ---- the table ----------------------------------------------------------- */

static const struct dyt_engine_ops table = {.struct_size = sizeof(table),
                                            .name = "builtin",
                                            .version = DYTI_VERSION,
                                            .open = engine_open,
                                            .close = engine_close,
                                            .submit = engine_submit,
                                            .collect = engine_collect,
                                            .pause = engine_pause,
                                            .update = engine_update,
                                            .resume = engine_resume};

API const struct dyt_engine_ops *dynatrain_engine_v1(
    const struct dyt_engine_host *host);

API const struct dyt_engine_ops *dynatrain_engine_v1(
    const struct dyt_engine_host *host)
{
    lent = host;
    return &table;
}
