/* A reward command: asked, started again once when it fails, ended. */
#include "reward/child.h"
#include "reward/codec.h"
#include "reward/pattern.h"
#include "reward/reward.h"

#include "base/banned.h"
#include "base/log.h"

#define GRACE_MS  2000 /* to end by itself when its input is closed */
#define ENDING_MS 500  /* between closing its output and its end */

struct command {
    struct dyti_reward_command params;
    struct dyti_child child;
};

static enum dyt_status command_open(const struct dyti_reward_command *params,
                                    void **out_command)
{
    struct command *command = calloc(1, sizeof(*command));
    enum dyt_status st;

    if (command == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "the command %s", params->argv[0]);
    }
    command->params = *params;
    st = dyti_child_start(params->argv, params->argc, &command->child);
    if (st != DYT_OK) {
        free(command);
        return st;
    }
    *out_command = command;
    return DYT_OK;
}

static void command_close(void *opaque)
{
    struct command *command = opaque;

    if (command == NULL) {
        return;
    }
    dyti_child_stop(&command->child, GRACE_MS, NULL, 0);
    free(command);
}

static int64_t deadline_of(double seconds)
{
    double most = 1e9; /* 30 years: also what inf means */

    return dyti_child_now_ns() +
           (int64_t)((seconds < most ? seconds : most) * 1e9);
}

/* Ask once.  After a failure the child is ended, and the text says how. */
static enum dyt_status ask(struct command *command, const char *line,
                           size_t line_bytes, size_t count,
                           struct dyti_reward_reply *reply)
{
    const char *program = command->params.argv[0];
    char *answer = NULL, how[64] = "";
    size_t bytes = 0;
    enum dyt_status st = DYT_OK;

    if (command->child.pid == 0) {
        st = dyti_child_start(command->params.argv, command->params.argc,
                              &command->child);
    }
    command->child.watch = command->params.watch;
    if (st == DYT_OK) {
        st = dyti_child_ask(&command->child, line, line_bytes,
                            deadline_of(command->params.deadline), &answer,
                            &bytes);
    }
    if (st == DYT_OK) {
        st = dyti_reward_answer(answer, bytes, count, reply);
        free(answer);
    }
    if (st != DYT_OK) {
        /* One that has closed its output is ending; others are not asked. */
        dyti_child_stop(&command->child, st == DYT_ERR_IO ? ENDING_MS : 0, how,
                        sizeof(how));
        DYTI_NOTE("asking the command %s about %zu samples within %g s (it %s)",
                  program, count, command->params.deadline,
                  how[0] == '\0' ? "did not start" : how);
    }
    return st;
}

static enum dyt_status command_judge(void *opaque,
                                     const struct dyti_reward_item *item,
                                     size_t count,
                                     struct dyti_reward_reply *reply)
{
    struct command *command = opaque;
    char *line = NULL;
    size_t bytes = 0;
    enum dyt_status st;

    if (count == 0) {
        return DYT_OK;
    }
    st = dyti_reward_request(item, count, &line, &bytes);
    if (st != DYT_OK) {
        return st;
    }
    st = ask(command, line, bytes, count, reply);
    if (st == DYT_ERR_TIMEOUT || st == DYT_ERR_FORMAT || st == DYT_ERR_IO) {
        DYTI_LOG(DYTI_LOG_INFO, "score", "starting the command again: %s",
                 dyti_error_message());
        st = ask(command, line, bytes, count, reply);
        if (st != DYT_OK) {
            DYTI_NOTE("having started it again once");
        }
    }
    free(line);
    return st;
}

const struct dyti_reward_ops dyti_reward_native = {
    .struct_size = sizeof(struct dyti_reward_ops),
    .name = "native",
    .pattern_open = dyti_pattern_open,
    .pattern_close = dyti_pattern_close,
    .pattern_search = dyti_pattern_search,
    .command_open = command_open,
    .command_close = command_close,
    .command_judge = command_judge,
};
