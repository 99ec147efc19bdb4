/* The engine over HTTP: servers, and prompts between submit and collect. */
#ifndef ENGINE_HTTP_H
#define ENGINE_HTTP_H

#include "client.h"
#include "server.h"

#include <dynatrain/engine.h>

#define SERVERS_MOST 64u
#define URL_BYTES    512u
#define WHY_BYTES    1024u

struct server {
    char url[URL_BYTES];
    uint64_t version;
    bool serves;        /* has a whole version */
    bool dead;          /* left out until the next update succeeds */
    uint32_t in_flight; /* requests */
    uint32_t workers;   /* SGLang's, tensor parallel; 0: not asked yet */
    bool sessionless;   /* SGLang: updates need no begin and end */
};

/* A prompt from submit() until its last sample is given out. */
struct job {
    struct job *next;
    struct dyt_engine_prompt prompt; /* token and stop are owned copies */
    int32_t *token, *stop;
    struct server *at; /* where it runs, NULL: it waits */
    uint32_t tries;
    uint64_t version;
    struct completion *completion; /* [samples] when it is done */
    uint32_t given;
};

struct engine {
    const struct server_kind *kind;
    struct server server[SERVERS_MOST];
    uint32_t server_count;
    char model[URL_BYTES];
    uint32_t retries, concurrency;
    bool processed, init;
    int64_t timeout_ns;
    struct client *client;
    struct job *job; /* all, oldest first */
    struct job *giving;
    struct dyt_engine_span span;
    bool paused;
    uint32_t in_flight; /* what the last pause said of requests that run */
};

/* What the runtime lent; set once, by the entry. */
extern const struct dyt_engine_host *engine_host;

enum dyt_status engine_fail(enum dyt_status status, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- jobs.c: prompts, on their way -------------------------------------- */

struct job *job_new(const struct dyt_engine_prompt *prompt);
void job_free(struct job *j);
/* Out of the engine's list, and free. */
void job_unlink(struct engine *e, struct job *j);
/* The oldest that is done; NULL: none. */
struct job *job_finished(const struct engine *e);
enum dyt_status job_send(struct engine *e, struct job *j, struct server *s);
/* As many of those that wait as the servers take. */
enum dyt_status job_send_waiting(struct engine *e);
/* What a reply makes of its job. */
enum dyt_status job_take(struct engine *e, struct reply *r);
/* Nothing is under way any more: replies are waited for (`wait`), and whatever
 * has none is taken back, to be sent again. */
enum dyt_status job_settle(struct engine *e, bool wait);
enum dyt_status job_parse(struct engine *e, struct job *j,
                          const struct reply *r);

/* ---- versions.c: what servers are told about weights --------------------- */

enum dyt_status versions_init(struct engine *e, uint32_t server,
                              const struct dyt_engine_open *params);
enum dyt_status versions_pause(void *self, uint32_t in_flight);
enum dyt_status versions_update(void *self, uint64_t version,
                                int64_t timeout_ns,
                                struct dyt_switch_report *out_report);
enum dyt_status versions_resume(void *self);

#endif /* ENGINE_HTTP_H */
