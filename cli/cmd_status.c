/* dynatrain status: who is in a session's job, and what they hold. */
#include "cli/commands.h"
#include "cli/exit.h"

#include <argp.h>
#include <dynatrain/layout.h>
#include <dynatrain/session.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

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

static const char *text_of(const json_t *group, const char *key)
{
    const char *text = json_string_value(json_object_get(group, key));

    return text != NULL ? text : "-";
}

static void print_replica(const json_t *r)
{
    const json_t *version = json_object_get(r, "version");
    char number[24] = "-", name[96];

    if (json_is_integer(version)) {
        snprintf(number, sizeof(number), "%" PRId64,
                 (int64_t)json_integer_value(version));
    }
    snprintf(name, sizeof(name), "%s/%" PRId64, text_of(r, "pool"),
             (int64_t)json_integer_value(json_object_get(r, "replica")));
    printf("%-16s %8s  %-10s %14" PRId64 "  %s\n", name, number,
           text_of(r, "state"),
           (int64_t)json_integer_value(json_object_get(r, "bytes")),
           text_of(r, "last_error"));
}

static int print_text(const char *text)
{
    json_error_t where;
    json_t *all = json_loads(text, 0, &where);
    const json_t *trainer = json_object_get(all, "trainer");
    const json_t *replica;
    size_t i;

    if (all == NULL) {
        return dyti_exit_fail(
            "status",
            DYTI_FAIL(DYT_ERR_FORMAT, "the manager's answer: %s", where.text));
    }
    printf("job      %s\n", text_of(all, "job"));
    if (json_is_object(trainer)) {
        printf("trainer  %s, %" PRId64 " ranks\n", text_of(trainer, "state"),
               (int64_t)json_integer_value(json_object_get(trainer, "size")));
    } else {
        printf("trainer  none\n");
    }
    printf("%-16s %8s  %-10s %14s  %s\n", "replica", "version", "state",
           "bytes", "last error");
    json_array_foreach(json_object_get(all, "replicas"), i, replica)
    {
        print_replica(replica);
    }
    json_decref(all);
    return DYTI_EXIT_OK;
}

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
        code = print_text(text);
    }
    dyt_text_free(text);
    return code;
}
