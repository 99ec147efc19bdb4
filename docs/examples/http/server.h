/* What one kind of server says over HTTP.  Answers "how are prompt ids asked,
 * and where in the answer are token ids and log-probabilities?"
 *
 * A server that cannot take ids, or gives text instead of ids, or no
 * log-probabilities, is of no use for training and is refused when the engine
 * opens. */
#ifndef SERVER_H
#define SERVER_H

#include <dynatrain/engine.h>
#include <jansson.h>

#include <stdbool.h>

/* One completion, as the answer has it. */
struct completion {
    int32_t *token; /* [count], owned */
    float *logprob; /* [count], owned */
    uint32_t count;
    uint32_t finish; /* enum dyt_engine_finish */
};
void completion_fini(struct completion *c);

struct server_kind {
    const char *name; /* "vllm", "sglang" */
    const char *generate_path;
    /* The body of a request for all samples of a prompt. */
    json_t *(*request)(const struct dyt_engine_prompt *prompt,
                       const char *model);
    /* completion[samples] from the answer; false: *out_why says what is
     * missing (static text). */
    bool (*answer)(const json_t *body, uint32_t samples,
                   struct completion *completion, const char **out_why);
};

const struct server_kind *server_kind_find(const char *name);

#endif /* SERVER_H */
