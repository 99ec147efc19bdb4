/* A generation engine that somebody else wrote, driven by the manager of
 * `dynatrain run` in place of the built-in one.  A shared object with one entry
 * symbol that gives a table.
 *
 * The manager calls it from one thread.  It submits prompts, collects finished
 * samples, and asks for a new version between steps; the engine takes part in
 * the job's session (session.h) by itself, or through its own servers.
 */
#ifndef DYNATRAIN_ENGINE_H
#define DYNATRAIN_ENGINE_H

#include <dynatrain/switch.h>

#include <stddef.h>

DYT_BEGIN_DECLS

#define DYT_ENGINE_ENTRY_NAME "dynatrain_engine_v1"

/* What the runtime lends; lives as long as the process. */
struct dyt_engine_host {
    uint32_t struct_size;
    uint32_t reserved;
    void (*log)(int level, const char *line); /* 0 error … 3 debug */
    enum dyt_status (*fail)(enum dyt_status status, const char *text);
};

struct dyt_engine_option { /* of [engine] in the job file, as text */
    const char *key, *value;
};

struct dyt_engine_open {
    uint32_t struct_size;
    uint32_t option_count;
    const struct dyt_engine_option *option; /* borrowed for the call */
    const char *job_address, *job;          /* of the session to join */
    const char *model;                      /* directory of the job's model */
    int64_t timeout_ns;
};

struct dyt_engine_prompt {
    uint32_t struct_size;
    uint32_t token_count;
    const int32_t *token; /* [token_count], borrowed for the call */
    uint64_t id;          /* given back with each of its samples */
    uint64_t seed;        /* of the job */
    uint32_t samples;     /* that are wanted, >= 1: they share the prefill */
    uint32_t reserved;
    uint32_t max_tokens, min_tokens;
    float temperature, top_p, min_p;
    int32_t top_k; /* 0: off */
    uint32_t ignore_eos;
    uint32_t stop_count;
    const int32_t *stop; /* [stop_count] token ids; borrowed for the call */
};

/* Tokens [first, next span's first) were made by this version. */
struct dyt_engine_span {
    uint64_t version;
    uint32_t first;
    uint32_t reserved;
};

enum dyt_engine_finish {
    DYT_ENGINE_STOP = 0,
    DYT_ENGINE_LENGTH = 1,
    DYT_ENGINE_ABORT = 2
};

/* A finished sample; arrays are the engine's until the next call. */
struct dyt_engine_sample {
    uint32_t struct_size;
    uint32_t finish; /* enum dyt_engine_finish */
    uint64_t id;
    uint32_t index; /* among the samples of its prompt: each number once */
    uint32_t reserved;
    int64_t first_token_ns; /* from submit; 0: not known */
    uint32_t token_count, span_count;
    const int32_t *token; /* [token_count] */
    const float *logprob; /* [token_count], processed: of softmax(logits /
                             temperature) before truncation */
    const float *raw;     /* [token_count] of softmax(logits); NULL where the
                             engine does not know it */
    const struct dyt_engine_span *span; /* [span_count], rising */
};

struct dyt_engine_ops {
    uint32_t struct_size;
    uint32_t reserved;
    const char *name, *version; /* static */
    enum dyt_status (*open)(const struct dyt_engine_open *params,
                            void **out_self);
    void (*close)(void *self);
    /* Take prompts; DYT_ERR_STATE before the first version. */
    enum dyt_status (*submit)(void *self,
                              const struct dyt_engine_prompt *prompt,
                              size_t count);
    /* The next finished sample; DYT_PENDING after timeout_ns without one. */
    enum dyt_status (*collect)(void *self, int64_t timeout_ns,
                               struct dyt_engine_sample *out_sample);
    /* in_flight: 0 wait, 1 abort, 2 continue */
    enum dyt_status (*pause)(void *self, uint32_t in_flight);
    /* Receive this version (an offer is open), then say which it serves. */
    enum dyt_status (*update)(void *self, uint64_t version, int64_t timeout_ns,
                              struct dyt_switch_report *out_report);
    enum dyt_status (*resume)(void *self);
    /* Optional (NULL): physical memory, tags of session.h. */
    enum dyt_status (*release)(void *self, uint32_t tags);
    enum dyt_status (*restore)(void *self, uint32_t tags);
};

/* NULL: cannot work here; the reason went through host->fail. */
typedef const struct dyt_engine_ops *(*dyt_engine_entry_fn)(
    const struct dyt_engine_host *host);

DYT_END_DECLS

#endif /* DYNATRAIN_ENGINE_H */
