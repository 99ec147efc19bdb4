/* Prompts between submit and collect: which server, how often, with what
 * answer. */
#include "engine_http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void job_free(struct job *j)
{
    for (uint32_t i = 0; j->completion != NULL && i < j->prompt.samples; i++) {
        completion_fini(&j->completion[i]);
    }
    free(j->completion);
    free(j->token);
    free(j->stop);
    free(j);
}

struct job *job_new(const struct dyt_engine_prompt *prompt)
{
    struct job *j = calloc(1, sizeof(*j));

    if (j == NULL) {
        return NULL;
    }
    j->prompt = *prompt;
    j->token = calloc(prompt->token_count + 1u, sizeof(*j->token));
    j->stop = calloc(prompt->stop_count + 1u, sizeof(*j->stop));
    if (j->token == NULL || j->stop == NULL) {
        job_free(j);
        return NULL;
    }
    memcpy(j->token, prompt->token, prompt->token_count * sizeof(*j->token));
    if (prompt->stop_count > 0) {
        memcpy(j->stop, prompt->stop, prompt->stop_count * sizeof(*j->stop));
    }
    j->prompt.token = j->token;
    j->prompt.stop = j->stop;
    return j;
}

void job_unlink(struct engine *e, struct job *j)
{
    struct job **at = &e->job;

    while (*at != j) {
        at = &(*at)->next;
    }
    *at = j->next;
    job_free(j);
}

/* The living server with the fewest requests; NULL: all are full or dead. */
static struct server *choose(struct engine *e, uint64_t *out_living)
{
    struct server *best = NULL;

    *out_living = 0;
    for (uint32_t i = 0; i < e->server_count; i++) {
        struct server *s = &e->server[i];

        if (s->dead || !s->serves) {
            continue;
        }
        ++*out_living;
        if (s->in_flight < e->concurrency &&
            (best == NULL || s->in_flight < best->in_flight)) {
            best = s;
        }
    }
    return best;
}

enum dyt_status job_send(struct engine *e, struct job *j, struct server *s)
{
    char url[URL_BYTES + 64];
    json_t *body = e->kind->request(&j->prompt, e->model);
    char *text = body == NULL ? NULL : json_dumps(body, JSON_COMPACT);
    bool sent;

    snprintf(url, sizeof(url), "%s%s", s->url, e->kind->generate_path);
    sent = text != NULL && client_post(e->client, url, text, e->timeout_ns, j);
    free(text);
    json_decref(body);
    if (!sent) {
        return engine_fail(DYT_ERR_NOMEM, "a request to %s", url);
    }
    j->at = s;
    j->version = s->version;
    s->in_flight++;
    return DYT_OK;
}

enum dyt_status job_send_waiting(struct engine *e)
{
    for (struct job *j = e->job; j != NULL; j = j->next) {
        uint64_t living;
        struct server *s;
        enum dyt_status st;

        if (j->at != NULL || j->completion != NULL) {
            continue;
        }
        s = choose(e, &living);
        if (living == 0) {
            return engine_fail(DYT_ERR_PEER,
                               "no server is left that serves a "
                               "version: %u were given",
                               e->server_count);
        }
        if (s == NULL) {
            return DYT_OK;
        }
        st = job_send(e, j, s);
        if (st != DYT_OK) {
            return st;
        }
    }
    return DYT_OK;
}

/* ---- answers ------------------------------------------------------------- */

/* Nobody answered, or with a fault of its own: another server may do better. */
static enum dyt_status try_again(struct engine *e, struct job *j,
                                 const struct reply *r)
{
    char line[URL_BYTES + 512];

    snprintf(line, sizeof(line),
             "%s: %s, HTTP %ld; prompt %llu is tried "
             "again",
             j->at->url, r->status == 0 ? r->why : "a fault of the server",
             r->status, (unsigned long long)j->prompt.id);
    engine_host->log(1, line);
    if (r->status == 0) {
        j->at->dead = true; /* until it takes a version again */
    }
    if (j->tries++ >= e->retries) {
        return engine_fail(
            DYT_ERR_PEER,
            "%s: prompt %llu failed %u times, the last with HTTP %ld "
            "%s %.200s",
            j->at->url, (unsigned long long)j->prompt.id, j->tries, r->status,
            r->why, r->body == NULL ? "" : r->body);
    }
    j->at = NULL;
    return DYT_OK;
}

enum dyt_status job_parse(struct engine *e, struct job *j,
                          const struct reply *r)
{
    json_error_t where;
    json_t *body =
        json_loadb(r->body == NULL ? "" : r->body, r->bytes, 0, &where);
    const char *why = "its answer is no JSON";
    bool ok = false;

    j->completion = calloc(j->prompt.samples, sizeof(*j->completion));
    if (j->completion == NULL) {
        json_decref(body);
        return engine_fail(DYT_ERR_NOMEM, "%u samples", j->prompt.samples);
    }
    ok = body != NULL &&
         e->kind->answer(body, j->prompt.samples, j->completion, &why);
    json_decref(body);
    return ok ? DYT_OK
              : engine_fail(DYT_ERR_UNSUPPORTED,
                            "%s%s: %s: this engine needs token ids and "
                            "log-probabilities",
                            j->at->url, e->kind->generate_path, why);
}

enum dyt_status job_take(struct engine *e, struct reply *r)
{
    struct job *j = r->tag;
    enum dyt_status st;

    j->at->in_flight--;
    if (r->status == 200) {
        st = job_parse(e, j, r);
    } else if (r->status == 0 || r->status >= 500) {
        st = try_again(e, j, r);
    } else {
        st = engine_fail(DYT_ERR_INVALID,
                         "%s refuses prompt %llu: HTTP %ld %.300s", j->at->url,
                         (unsigned long long)j->prompt.id, r->status,
                         r->body == NULL ? "" : r->body);
    }
    free(r->body);
    return st;
}

/* An answer does not say which of its tokens another version made: none may be
 * under way when the servers take one. */
enum dyt_status job_settle(struct engine *e, bool wait)
{
    enum dyt_status st = DYT_OK;
    struct reply reply;

    while (wait && st == DYT_OK &&
           client_next(e->client, e->timeout_ns, &reply)) {
        st = job_take(e, &reply);
    }
    client_drop(e->client);
    for (struct job *j = e->job; j != NULL; j = j->next) {
        j->at = j->completion == NULL ? NULL : j->at;
    }
    for (uint32_t i = 0; i < e->server_count; i++) {
        e->server[i].in_flight = 0;
    }
    return st;
}

struct job *job_finished(const struct engine *e)
{
    struct job *j = e->job;

    while (j != NULL && j->completion == NULL) {
        j = j->next;
    }
    return j;
}
