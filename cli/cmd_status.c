/* dynatrain status: who is in a session's job, and what they hold. */
#include "cli/commands.h"
#include "cli/exit.h"
#include "format/session_status.h"

#include <argp.h>
#include <dynatrain/layout.h>
#include <dynatrain/session.h>
#include <stdbool.h>
#include <stdio.h>

enum { OPT_KEY = 256, OPT_MANAGER };

static const struct argp_option options[] = {
    {"json", 'j', NULL, 0, "As the manager gives it (docs/session.md)", 0},
    {"key", OPT_KEY, "FILE", 0, "tcp: this side's secret key", 0},
    {"manager-key", OPT_MANAGER, "FILE", 0, "tcp: the manager's public key", 0},
    {0},
};

struct status {
    const char *address, *key, *manager_key;
    bool json;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct status *s = state->input;

    switch (key) {
    case 'j':
        s->json = true;
        return 0;
    case OPT_KEY:
        s->key = arg;
        return 0;
    case OPT_MANAGER:
        s->manager_key = arg;
        return 0;
    case ARGP_KEY_ARG:
        if (s->address != NULL) {
            argp_error(state, "one address, not also %s", arg);
        }
        s->address = arg;
        return 0;
    case ARGP_KEY_END:
        if (s->address == NULL) {
            argp_error(state, "no address: unix:PATH or tcp:HOST:PORT");
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    options,
    parse,
    "ADDRESS",
    "Asks a session's manager who is in its job: each replica's version, "
    "state, bytes that went into it, and its last error.\v"
    "Examples:\n"
    "  dynatrain status unix:/run/user/0/job/job.sock\n"
    "  dynatrain status unix:/run/user/0/job/job.sock --json | jq .replicas\n",
    NULL,
    NULL,
    NULL};

int dyti_cmd_status(int argc, char **argv)
{
    struct status s = {0};
    char *text = NULL;
    enum dyt_status st;
    int code;

    argp_err_exit_status = DYTI_EXIT_CALLER;
    argp_parse(&argp, argc, argv, 0, NULL, &s);
    st = dyt_job_status(s.address, s.key, s.manager_key, 0, &text);
    if (st != DYT_OK) {
        return dyti_exit_fail("status", st);
    }
    if (s.json) {
        puts(text);
        code = DYTI_EXIT_OK;
    } else {
        st = dyti_session_status_print(text, stdout);
        code = st == DYT_OK ? DYTI_EXIT_OK : dyti_exit_fail("status", st);
    }
    dyt_text_free(text);
    return code;
}
