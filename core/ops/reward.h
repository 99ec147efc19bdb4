/* What score needs from outside: patterns, and a command that judges.
 * Implemented by bridge/reward, handed in by cli/.
 * Threads: one handle by one thread at a time. */
#ifndef DYTI_OPS_REWARD_H
#define DYTI_OPS_REWARD_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What else to watch while a command thinks: when `fd` is readable, `look` says
 * whether to go on waiting; what it says instead of DYT_OK is the answer. */
struct dyti_reward_watch {
    int fd;
    enum dyt_status (*look)(void *arg);
    void *arg;
};

struct dyti_reward_command {
    char *const *argv; /* [argc] program (looked up in PATH) and arguments;
                          borrowed until close */
    uint32_t argc;
    double deadline; /* seconds for the answer to one batch */
    const struct dyti_reward_watch *watch; /* borrowed until close; or NULL */
};

/* One completion as a command sees it.  All borrowed for the call. */
struct dyti_reward_item {
    uint64_t id; /* unique within the call; the reply names it */
    uint64_t group;
    const char *prompt, *completion; /* UTF-8, NUL-terminated */
    const int32_t *ids;              /* [id_count] of the completion */
    uint32_t id_count;
    const char *finish_reason;
    uint64_t version, step;
    const char *row_json; /* the data row: a JSON object in one line */
};

struct dyti_reward_value {
    char *name; /* owned by the reply */
    double value;
};

/* A command's answer for one item. */
struct dyti_reward_reply {
    bool dropped; /* null: the sample is not used; reward is 0 */
    double reward;
    struct dyti_reward_value *component, *metric; /* owned */
    uint32_t component_count, metric_count;
};

void dyti_reward_reply_fini(struct dyti_reward_reply *reply);

struct dyti_reward_ops {
    uint32_t struct_size;
    const char *name;

    /* DYT_ERR_CONFIG: the pattern is wrong; the text says where. */
    enum dyt_status (*pattern_open)(const char *pattern, bool ignore_case,
                                    void **out_pattern);
    void (*pattern_close)(void *pattern);
    /* First match in a text.  *out_lo, *out_hi: bytes of the first group, of
     * the whole match where the pattern has none.  A pattern that takes too
     * long on a text counts as no match. */
    enum dyt_status (*pattern_search)(void *pattern, const char *text,
                                      size_t text_bytes, bool *out_found,
                                      size_t *out_lo, size_t *out_hi);

    /* Start the command.  DYT_ERR_CONFIG: there is no such program. */
    enum dyt_status (*command_open)(const struct dyti_reward_command *params,
                                    void **out_command);
    /* Its input is closed, and what does not end by itself is killed: nothing
     * is left behind.  NULL is fine. */
    void (*command_close)(void *command);
    /* Judge a batch; may block up to the deadline.  reply [count] in the order
     * of the items, filled only on DYT_OK.  A command that dies, hangs or
     * prints rubbish is started again once and asked again; then
     *   DYT_ERR_TIMEOUT  no answer within the deadline
     *   DYT_ERR_FORMAT   the answer is not what was asked for
     *   DYT_ERR_IO       it ended; the text says how */
    enum dyt_status (*command_judge)(void *command,
                                     const struct dyti_reward_item *item,
                                     size_t count,
                                     struct dyti_reward_reply *reply);
};

#endif /* DYTI_OPS_REWARD_H */
