/* A generation engine that misbehaves on request, for tests of who drives it.
 * ENTRY (at build): 0 a table, 1 none and a reason, 2 one that lacks a
 * function, 3 one that is too short, 4 a crash.  Option fault=WORD: see
 * `wrong`. */
#include <dynatrain/engine.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifndef ENTRY
#define ENTRY 0
#endif

struct engine {
    char fault[32];
    uint64_t version;
    struct dyt_engine_prompt prompt[16];
    size_t prompts, next; /* sample to come: prompt-major */
    int32_t token[8];
    float logprob[8];
    struct dyt_engine_span span[2];
};

static const struct dyt_engine_host *host;

static int is(const struct engine *e, const char *fault)
{
    return strcmp(e->fault, fault) == 0;
}

static enum dyt_status engine_open(const struct dyt_engine_open *params,
                                   void **out_self)
{
    struct engine *e = calloc(1, sizeof(*e));

    if (e == NULL) {
        return host->fail(DYT_ERR_NOMEM, "an engine");
    }
    for (uint32_t i = 0; i < params->option_count; i++) {
        size_t n = strlen(params->option[i].value);

        memcpy(e->fault, params->option[i].value, n < 31 ? n : 31);
    }
    if (is(e, "open")) {
        free(e);
        return host->fail(DYT_ERR_DEVICE, "no such server");
    }
    *out_self = e;
    return DYT_OK;
}

static void engine_close(void *self)
{
    free(self);
}

static enum dyt_status engine_submit(void *self,
                                     const struct dyt_engine_prompt *prompt,
                                     size_t count)
{
    struct engine *e = self;

    if (e->version == 0) {
        return host->fail(DYT_ERR_STATE, "no version yet");
    }
    memcpy(e->prompt, prompt, count * sizeof(*prompt));
    e->prompts = count;
    e->next = 0;
    return DYT_OK;
}

/* What can be wrong with a sample, by the word that asks for it. */
static void spoil(struct engine *e, struct dyt_engine_sample *s)
{
    s->token_count = is(e, "long") ? 7 : is(e, "empty") ? 0 : s->token_count;
    s->logprob = is(e, "no-logprob") ? NULL : s->logprob;
    s->token = is(e, "no-token") ? NULL : s->token;
    e->logprob[1] = is(e, "nan")        ? NAN
                    : is(e, "inf")      ? -INFINITY
                    : is(e, "positive") ? 0.5f
                                        : e->logprob[1];
    e->token[1] = is(e, "negative") ? -1 : e->token[1];
    s->finish = is(e, "finish") ? 9 : s->finish;
    s->index = is(e, "index") ? 2 : is(e, "twice") ? 0 : s->index;
    s->id = is(e, "stranger") ? 999 : s->id;
    s->span_count = is(e, "no-span")                      ? 0
                    : is(e, "spans") || is(e, "straddle") ? 2
                                                          : 1;
    e->span[0].first = is(e, "late-span") ? 1 : 0;
    e->span[0].version = e->version - (is(e, "old") || is(e, "straddle"));
    e->span[1].version = e->version;
    e->span[1].first = is(e, "straddle") ? 2 : 0; /* 0 does not rise */
}

static enum dyt_status engine_collect(void *self, int64_t timeout_ns,
                                      struct dyt_engine_sample *out_sample)
{
    struct engine *e = self;
    const struct dyt_engine_prompt *p;

    (void)timeout_ns;
    if (is(e, "silent") || e->prompts == 0 ||
        e->next >= e->prompts * e->prompt[0].samples) {
        return DYT_PENDING;
    }
    p = &e->prompt[e->next / e->prompt[0].samples];
    for (int i = 0; i < 8; i++) {
        e->token[i] = 10 + i;
        e->logprob[i] = -0.25f * (float)(i + 1);
    }
    *out_sample =
        (struct dyt_engine_sample){.struct_size = sizeof(*out_sample),
                                   .finish = DYT_ENGINE_STOP,
                                   .id = p->id,
                                   .index = (uint32_t)(e->next % p->samples),
                                   .token_count = 3,
                                   .token = e->token,
                                   .logprob = e->logprob,
                                   .span = e->span};
    spoil(e, out_sample);
    e->next++;
    return DYT_OK;
}

static enum dyt_status engine_pause(void *self, uint32_t in_flight)
{
    (void)in_flight;
    return is(self, "pause") ? host->fail(DYT_ERR_PEER, "it goes on") : DYT_OK;
}

static enum dyt_status engine_update(void *self, uint64_t version,
                                     int64_t timeout_ns,
                                     struct dyt_switch_report *out_report)
{
    struct engine *e = self;

    (void)timeout_ns;
    if (is(e, "update")) {
        return host->fail(DYT_ERR_VERIFY, "the weights are not whole");
    }
    e->version = is(e, "lower") ? version - 1 : version;
    out_report->version = e->version;
    return DYT_OK;
}

static enum dyt_status engine_resume(void *self)
{
    return is(self, "resume") ? host->fail(DYT_ERR_PEER, "it sleeps") : DYT_OK;
}

static struct dyt_engine_ops table = {.struct_size = sizeof(table),
                                      .name = "wrong",
                                      .version = "1",
                                      .open = engine_open,
                                      .close = engine_close,
                                      .submit = engine_submit,
                                      .collect = engine_collect,
                                      .pause = engine_pause,
                                      .update = engine_update,
                                      .resume = engine_resume};

const struct dyt_engine_ops *dynatrain_engine_v1(
    const struct dyt_engine_host *lent);

const struct dyt_engine_ops *dynatrain_engine_v1(
    const struct dyt_engine_host *lent)
{
    host = lent;
    if (ENTRY == 1) {
        (void)lent->fail(DYT_ERR_DEVICE, "the driver is too old");
        return NULL;
    }
    if (ENTRY == 2) {
        table.update = NULL;
    }
    if (ENTRY == 3) {
        table.struct_size = 24;
    }
    if (ENTRY == 4) {
        abort();
    }
    return &table;
}
