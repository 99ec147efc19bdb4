/* An engine that drives servers over HTTP: vLLM and SGLang, one or many, each
 * a replica.  Weights do not come this way: each server's own plugin is a
 * receiver of the job's session, and is told to take a version.
 *
 * Options
 *   url           base URL; given once for each server, numbered url, url2, …
 *   kind          vllm (default) or sglang
 *   model         name in requests; the job's model directory if left out
 *   retries       of a request that nobody answered, or with a 5xx; 2
 *   concurrency   requests under way at each server; 32
 *   logprobs      processed: the server is known to give them so (vLLM:
 *                 --logprobs-mode processed_logprobs).  Without it only
 *                 temperature 1 is taken, where both kinds are the same
 *   init          no: the servers have joined the session by themselves
 */
#include "engine_http.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API      __attribute__((visibility("default")))
#define PROBE_NS 30000000000ll

const struct dyt_engine_host *engine_host;

enum dyt_status engine_fail(enum dyt_status status, const char *fmt, ...)
{
    char text[1024];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return engine_host->fail(status, text);
}

/* ---- the table: samples -------------------------------------------------- */

static enum dyt_status http_submit(void *self,
                                   const struct dyt_engine_prompt *prompt,
                                   size_t count)
{
    struct engine *e = self;
    struct job **tail = &e->job;

    if (e->paused) {
        return engine_fail(DYT_ERR_STATE, "the servers are paused");
    }
    while (*tail != NULL) {
        tail = &(*tail)->next;
    }
    for (size_t i = 0; i < count; i++) {
        if (prompt[i].temperature != 1.0f && prompt[i].temperature != 0.0f &&
            !e->processed) {
            return engine_fail(
                DYT_ERR_UNSUPPORTED,
                "temperature %g: the servers may give the "
                "log-probabilities of temperature 1; start them so "
                "that they give processed ones, and say "
                "logprobs=processed",
                (double)prompt[i].temperature);
        }
        *tail = job_new(&prompt[i]);
        if (*tail == NULL) {
            return engine_fail(DYT_ERR_NOMEM, "%zu prompts", count);
        }
        tail = &(*tail)->next;
    }
    return job_send_waiting(e);
}

static void give(struct engine *e, struct job *j, struct dyt_engine_sample *out)
{
    const struct completion *c = &j->completion[j->given];

    e->span = (struct dyt_engine_span){.version = j->version};
    *out = (struct dyt_engine_sample){.struct_size = sizeof(*out),
                                      .finish = c->finish,
                                      .id = j->prompt.id,
                                      .index = j->given,
                                      .token_count = c->count,
                                      .span_count = 1,
                                      .token = c->token,
                                      .logprob = c->logprob,
                                      .span = &e->span};
    j->given++;
    e->giving = j;
}

static enum dyt_status http_collect(void *self, int64_t timeout_ns,
                                    struct dyt_engine_sample *out_sample)
{
    struct engine *e = self;
    struct job *j;

    if (e->giving != NULL && e->giving->given == e->giving->prompt.samples) {
        job_unlink(e, e->giving); /* its last sample has been looked at */
        e->giving = NULL;
    }
    while ((j = job_finished(e)) == NULL) {
        struct reply reply;
        enum dyt_status st = job_send_waiting(e);

        if (st != DYT_OK) {
            return st;
        }
        if (!client_next(e->client, timeout_ns, &reply)) {
            return DYT_PENDING;
        }
        st = job_take(e, &reply);
        if (st != DYT_OK) {
            return st;
        }
    }
    give(e, j, out_sample);
    return DYT_OK;
}

/* ---- open, close --------------------------------------------------------- */

static bool read_count(const char *text, uint32_t *out)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);

    *out = (uint32_t)value;
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && value <= 65536;
}

static enum dyt_status add_server(struct engine *e, const char *key,
                                  const char *url)
{
    size_t bytes = strlen(url);

    if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0) {
        return engine_fail(DYT_ERR_CONFIG,
                           "option %s: \"%.200s\": write http://HOST:PORT", key,
                           url);
    }
    if (e->server_count == SERVERS_MOST || bytes >= URL_BYTES) {
        return engine_fail(DYT_ERR_CONFIG,
                           "at most %u servers, with URLs of %u bytes",
                           SERVERS_MOST, URL_BYTES - 1);
    }
    snprintf(e->server[e->server_count].url, URL_BYTES, "%s", url);
    if (url[bytes - 1] == '/') {
        e->server[e->server_count].url[bytes - 1] = '\0';
    }
    e->server_count++;
    return DYT_OK;
}

static enum dyt_status read_option(struct engine *e, const char *key,
                                   const char *value)
{
    bool ok = true;

    if (strncmp(key, "url", 3) == 0) {
        return add_server(e, key, value);
    }
    if (strcmp(key, "kind") == 0) {
        e->kind = server_kind_find(value);
        ok = e->kind != NULL;
    } else if (strcmp(key, "model") == 0) {
        ok = strlen(value) < sizeof(e->model);
        snprintf(e->model, sizeof(e->model), "%s", value);
    } else if (strcmp(key, "retries") == 0) {
        ok = read_count(value, &e->retries);
    } else if (strcmp(key, "concurrency") == 0) {
        ok = read_count(value, &e->concurrency) && e->concurrency > 0;
    } else if (strcmp(key, "logprobs") == 0) {
        e->processed = strcmp(value, "processed") == 0;
        ok = e->processed;
    } else if (strcmp(key, "init") == 0) {
        e->init = strcmp(value, "no") != 0;
    } else {
        return engine_fail(DYT_ERR_CONFIG,
                           "option %s is unknown: url, kind, model, retries, "
                           "concurrency, logprobs or init",
                           key);
    }
    return ok ? DYT_OK
              : engine_fail(DYT_ERR_CONFIG,
                            "option %s: \"%.200s\" is not right", key, value);
}

/* One token of one prompt: does it give ids and log-probabilities? */
static enum dyt_status probe(struct engine *e, struct server *s)
{
    int32_t token = 1;
    struct dyt_engine_prompt prompt = {.struct_size = sizeof(prompt),
                                       .token_count = 1,
                                       .token = &token,
                                       .samples = 1,
                                       .max_tokens = 1,
                                       .temperature = 1.0f,
                                       .top_p = 1.0f};
    struct job *j = job_new(&prompt);
    struct reply r = {0};
    enum dyt_status st =
        j == NULL ? engine_fail(DYT_ERR_NOMEM, "a probe") : job_send(e, j, s);

    if (st == DYT_OK && !client_next(e->client, PROBE_NS, &r)) {
        st = engine_fail(DYT_ERR_TIMEOUT, "%s: no answer within %g s", s->url,
                         (double)PROBE_NS * 1e-9);
    } else if (st == DYT_OK && r.status != 200) {
        st = engine_fail(DYT_ERR_PEER, "%s%s: HTTP %ld %s%.300s", s->url,
                         e->kind->generate_path, r.status, r.why,
                         r.body == NULL ? "" : r.body);
    } else if (st == DYT_OK) {
        st = job_parse(e, j, &r);
    }
    s->in_flight = 0;
    free(r.body);
    if (j != NULL) {
        job_free(j);
    }
    return st;
}

static void http_close(void *self)
{
    struct engine *e = self;

    client_close(e->client);
    while (e->job != NULL) {
        job_unlink(e, e->job);
    }
    free(e);
}

static enum dyt_status http_open(const struct dyt_engine_open *params,
                                 void **out_self)
{
    struct engine *e = calloc(1, sizeof(*e));
    enum dyt_status st = DYT_OK;

    if (e == NULL || !client_open(&e->client)) {
        free(e);
        return engine_fail(DYT_ERR_NOMEM, "an HTTP client");
    }
    e->kind = server_kind_find("vllm");
    e->retries = 2;
    e->concurrency = 32;
    e->init = true;
    e->timeout_ns = params->timeout_ns;
    snprintf(e->model, sizeof(e->model), "%s", params->model);
    for (uint32_t i = 0; i < params->option_count && st == DYT_OK; i++) {
        st = read_option(e, params->option[i].key, params->option[i].value);
    }
    if (st == DYT_OK && e->server_count == 0) {
        st =
            engine_fail(DYT_ERR_CONFIG, "no server: give url=http://HOST:PORT");
    }
    for (uint32_t i = 0; i < e->server_count && st == DYT_OK; i++) {
        st = probe(e, &e->server[i]);
        st = st == DYT_OK && e->init ? versions_init(e, i, params) : st;
    }
    if (st != DYT_OK) {
        http_close(e);
        return st;
    }
    *out_self = e;
    return DYT_OK;
}

static const struct dyt_engine_ops table = {.struct_size = sizeof(table),
                                            .name = "http",
                                            .version = "1",
                                            .open = http_open,
                                            .close = http_close,
                                            .submit = http_submit,
                                            .collect = http_collect,
                                            .pause = versions_pause,
                                            .update = versions_update,
                                            .resume = versions_resume};

API const struct dyt_engine_ops *dynatrain_engine_v1(
    const struct dyt_engine_host *lent);

API const struct dyt_engine_ops *dynatrain_engine_v1(
    const struct dyt_engine_host *lent)
{
    engine_host = lent;
    return &table;
}
