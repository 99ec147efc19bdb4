/* A generation engine that somebody else wrote (dynatrain/engine.h), in a
 * thread of its own: a call of it may take long, and the manager goes on
 * watching its ranks meanwhile.
 *
 * Threads: all functions by one thread, the manager's. */
#ifndef DYTI_CLI_ENGINE_H
#define DYTI_CLI_ENGINE_H

#include "data/data.h"
#include "data/settings.h"

#include <dynatrain/engine.h>
#include <stdbool.h>
#include <stdint.h>

struct dyti_engine;

struct dyti_engine_params {
    const char *path;    /* of the shared object */
    char *const *option; /* [option_count] "key=value" */
    uint32_t option_count;
    const char *address, *job, *model; /* of struct dyt_engine_open */
    int64_t timeout_ns;
};

/* Loads it and starts the thread; the engine itself is opened by the first
 * call.  Statuses of dyti_engine_load(), DYT_ERR_NOMEM. */
enum dyt_status dyti_engine_start(const struct dyti_engine_params *params,
                                  struct dyti_engine **out_engine);
/* Ends the thread and closes the engine.  One that hangs is left to the end of
 * the process after `patience_ns`. */
void dyti_engine_stop(struct dyti_engine *engine, int64_t patience_ns);

/* Becomes readable when a call has ended. */
int dyti_engine_fd(const struct dyti_engine *engine);

/* What the thread is told to do, one at a time.  Arguments are borrowed until
 * the result is there. */
struct dyti_engine_generate {
    const struct dyti_prompt *prompt; /* [prompt_count] */
    uint32_t prompt_count, samples_per_prompt;
    const struct dyti_sampling *sampling;
    bool greedy;
    const int32_t *stop; /* [stop_count] ids: EOS and the job's own */
    uint32_t stop_count;
    uint64_t seed;
    uint64_t version; /* that all tokens must carry */
};
enum dyt_status dyti_engine_ask_open(struct dyti_engine *engine);
enum dyt_status dyti_engine_ask_generate(
    struct dyti_engine *engine, const struct dyti_engine_generate *order);
/* Pause, take the version, resume. */
enum dyt_status dyti_engine_ask_update(struct dyti_engine *engine,
                                       uint64_t version, int64_t timeout_ns);

/* How the last call ended; DYT_PENDING: it runs.  The text is the engine's. */
enum dyt_status dyti_engine_result(struct dyti_engine *engine);

/* Samples that have come, taken over by the caller; free() the array.
 * *out_count 0: none since the last look. */
void dyti_engine_take(struct dyti_engine *engine,
                      struct dyti_sample **out_sample, uint32_t *out_count,
                      int64_t *out_first_token_ns);
/* Of the last update. */
const struct dyt_switch_report *dyti_engine_report(
    const struct dyti_engine *engine);

#endif /* DYTI_CLI_ENGINE_H */
