/* dynatrain worker ENDPOINT RANK WORLD JOB LIFE CONTROL:PAGES SEGMENT:PAGES…
 * Started by the manager, which passes the descriptors on. */
#include "cli/commands.h"
#include "cli/exit.h"
#include "cli/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

static bool number(const char *text, int base, unsigned long long max,
                   unsigned long long *out)
{
    char *end;

    errno = 0;
    *out = strtoull(text, &end, base);
    return errno == 0 && end != text && *end == '\0' && *out <= max;
}

/* "FD:PAGES" of an open descriptor. */
static bool segment(const char *text, int *fd, enum dyti_page_kind *pages)
{
    int kind;
    char rest;

    if (sscanf(text, "%d:%d%c", fd, &kind, &rest) != 2 ||
        !dyti_pages_are_host((enum dyti_page_kind)kind) ||
        fcntl(*fd, F_GETFD) < 0) {
        return false;
    }
    fcntl(*fd, F_SETFD, FD_CLOEXEC);
    *pages = (enum dyti_page_kind)kind;
    return true;
}

static bool parse(int argc, char **argv, struct dyti_worker_args *a)
{
    unsigned long long rank, world, job, life;

    if (argc < 8 || !number(argv[2], 10, DYTI_RANKS_MAX - 1, &rank) ||
        !number(argv[3], 10, DYTI_RANKS_MAX, &world) || rank >= world ||
        !number(argv[4], 16, UINT64_MAX, &job) ||
        !number(argv[5], 10, INT32_MAX, &life) || argc != 7 + (int)world ||
        fcntl((int)life, F_GETFD) < 0 ||
        !segment(argv[6], &a->control_fd, &a->control_pages)) {
        return false;
    }
    fcntl((int)life, F_SETFD, FD_CLOEXEC);
    a->endpoint = argv[1];
    a->rank = (uint32_t)rank;
    a->world_size = (uint32_t)world;
    a->job = job;
    a->life_fd = (int)life;
    for (uint32_t r = 0; r < a->world_size; r++) {
        if (!segment(argv[7 + r], &a->segment_fd[r], &a->segment_pages[r])) {
            return false;
        }
    }
    return true;
}

int dyti_cmd_worker(int argc, char **argv)
{
    struct dyti_worker_args args = {0};

    if (!parse(argc, argv, &args)) {
        fprintf(stderr, "dynatrain worker: started by `dynatrain run`, not by "
                        "hand\n");
        return DYTI_EXIT_CALLER;
    }
    return dyti_worker_main(&args);
}
