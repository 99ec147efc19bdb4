/* dynatrain serve: the manager of a job of foreign trainers and servers. */
#include "cli/commands.h"
#include "cli/exit.h"
#include "lib/manager.h"

#include <argp.h>
#include <dynatrain/switch.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OPT_POLICY = 256, OPT_SKEW, OPT_KEY, OPT_AUTHORIZED, OPT_JOB };

static const struct argp_option options[] = {
    {"job", OPT_JOB, "NAME", 0,
     "Only members of this job (default: the job of the first that joins)", 0},
    {"policy", OPT_POLICY, "POLICY", 0,
     "When a version is out: all, rolling (one replica after the other) or "
     "quorum:K (default: what the trainer says)",
     0},
    {"max-version-skew", OPT_SKEW, "N", 0,
     "Most versions between two replicas (default: no limit)", 0},
    {"key", OPT_KEY, "FILE", 0, "tcp: the manager's secret key", 0},
    {"authorized", OPT_AUTHORIZED, "FOLDER", 0,
     "tcp: public keys of who may join (default: the folder of --key)", 0},
    {"quiet", 'q', NULL, 0, "Say nothing but errors", 0},
    {0},
};

struct serve {
    struct dyti_manager_params params;
    bool quiet;
    uint64_t unsaid; /* lines for which the pipe was full */
};

static bool read_count(const char *text, uint32_t *out)
{
    char *end;
    unsigned long value;

    errno = 0;
    value = strtoul(text, &end, 10);
    *out = (uint32_t)value;
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0 &&
           value >= 1 && value <= 65536;
}

static bool read_policy(const char *text, struct dyti_manager_params *p)
{
    p->policy_given = true;
    if (strcmp(text, "all") == 0) {
        p->policy = DYT_POLICY_ALL;
        return true;
    }
    if (strcmp(text, "rolling") == 0) {
        p->policy = DYT_POLICY_ROLLING;
        return true;
    }
    p->policy = DYT_POLICY_QUORUM;
    return strncmp(text, "quorum:", 7) == 0 && read_count(text + 7, &p->quorum);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct serve *s = state->input;

    switch (key) {
    case OPT_JOB:
        s->params.job = arg;
        return 0;
    case OPT_POLICY:
        if (!read_policy(arg, &s->params)) {
            argp_error(state, "--policy %s: all, rolling or quorum:K", arg);
        }
        return 0;
    case OPT_SKEW:
        if (!read_count(arg, &s->params.max_version_skew)) {
            argp_error(state, "--max-version-skew %s: a number from 1 on", arg);
        }
        return 0;
    case OPT_KEY:
        s->params.key = arg;
        return 0;
    case OPT_AUTHORIZED:
        s->params.authorized = arg;
        return 0;
    case 'q':
        s->quiet = true;
        return 0;
    case ARGP_KEY_ARG:
        if (s->params.address != NULL) {
            argp_error(state, "one address, not also %s", arg);
        }
        s->params.address = arg;
        return 0;
    case ARGP_KEY_END:
        if (s->params.address == NULL) {
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
    "Serves a job: a trainer and servers join it, and every version that the "
    "trainer offers goes into the servers' own tensors.  It holds no "
    "weights.\v"
    "ADDRESS is unix:PATH, in a folder of this user's alone (mode 0700, made "
    "if "
    "it is not there), or tcp:HOST:PORT with keys (`dynatrain keys`).  A "
    "trainer's rank 0 does the same by itself where nobody serves.\n\n"
    "Examples:\n"
    "  dynatrain serve unix:/run/user/0/job/job.sock\n"
    "  dynatrain serve tcp:10.0.0.1:7070 --key keys/manager.secret\n"
    "  dynatrain serve unix:/tmp/job/job.sock --policy quorum:2\n",
    NULL,
    NULL,
    NULL};

/* A pipe that takes a whole line; a job does not wait for who reads about it.
 */
static bool is_read(void)
{
    struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};

    return poll(&p, 1, 0) != 0;
}

static void say(void *arg, const char *line)
{
    uint64_t *unsaid = arg;
    char now[16];
    time_t t = time(NULL);
    struct tm parts;

    if (!is_read()) {
        ++*unsaid;
        return;
    }
    localtime_r(&t, &parts);
    strftime(now, sizeof(now), "%H:%M:%S", &parts);
    if (*unsaid > 0) {
        printf("%s (%llu lines that nobody read are left out)\n", now,
               (unsigned long long)*unsaid);
        *unsaid = 0;
    }
    printf("%s %s\n", now, line);
    fflush(stdout);
}

static struct dyti_session_manager *serving; /* for the handler alone */

static void on_signal(int number)
{
    (void)number;
    dyti_session_manager_stop(serving);
}

int dyti_cmd_serve(int argc, char **argv)
{
    struct serve s = {0};
    struct sigaction action = {.sa_handler = on_signal}, hangup = action;
    struct dyti_session_manager *manager = NULL;
    enum dyt_status st;

    argp_err_exit_status = DYTI_EXIT_CALLER;
    argp_parse(&argp, argc, argv, 0, NULL, &s);
    s.params.say = s.quiet ? NULL : say;
    s.params.say_arg = &s.unsaid;
    st = dyti_session_manager_open(&s.params, &manager);
    if (st != DYT_OK) {
        return dyti_exit_fail("serve", st);
    }
    serving = manager;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN) {
        sigaction(SIGHUP, &action, NULL); /* not where it is to stay (nohup) */
    }
    signal(SIGPIPE, SIG_IGN);
    if (!s.quiet) {
        say(&s.unsaid, "serving; Ctrl-C ends it");
    }
    st = dyti_session_manager_run(manager);
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    dyti_session_manager_close(manager);
    return st == DYT_OK ? DYTI_EXIT_OK : dyti_exit_fail("serve", st);
}
