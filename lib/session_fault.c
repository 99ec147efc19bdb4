/* Test builds only: a member of a session stops or dies at a point of an update
 * that somebody names while it runs.
 *
 * DYNATRAIN_FAULT_FILE is a path.  Where a file with the line "transferred
 * stop" lies there when a member gets to that point, the member takes it, so
 * that one of all who watch the path does, and stops or kills its process.  The
 * file is then called PATH.taken.PID. */
#include "lib/session_internal.h"

#ifdef DYT_TEST_HOOKS

#include "base/env.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const point_name[DYTI_AT_COUNT] = {
    [DYTI_AT_START] = "start",
    [DYTI_AT_PREPARED] = "prepared",
    [DYTI_AT_WAVE] = "wave",
    [DYTI_AT_TRANSFERRED] = "transferred",
    [DYTI_AT_VERIFIED] = "verified",
    [DYTI_AT_VOTED] = "voted",
    [DYTI_AT_COMMITTING] = "committing",
    [DYTI_AT_DECIDED] = "decided"};

static bool read_order(const char *path, char out_point[16], char out_how[16])
{
    FILE *file = fopen(path, "re");
    bool whole;

    if (file == NULL) {
        return false;
    }
    whole = fscanf(file, "%15s %15s", out_point, out_how) == 2;
    (void)fclose(file);
    return whole;
}

static bool take(const char *path)
{
    char taken[4096];
    int bytes =
        snprintf(taken, sizeof(taken), "%s.taken.%ld", path, (long)getpid());

    return bytes > 0 && (size_t)bytes < sizeof(taken) &&
           rename(path, taken) == 0; /* or another one was faster */
}

static void at(void *arg, enum dyti_switch_point point)
{
    const char *path = arg;
    char name[16], how[16];

    if (read_order(path, name, how) && strcmp(name, point_name[point]) == 0 &&
        take(path)) {
        (void)kill(getpid(), strcmp(how, "kill") == 0 ? SIGKILL : SIGSTOP);
    }
}

void dyti_session_watch_faults(struct dyti_link *link)
{
    const char *path = dyti_env_text(DYTI_ENV_FAULT_FILE);

    if (path != NULL) {
        dyti_link_set_fault(link, DYTI_FAULT_NONE, at, (void *)(uintptr_t)path);
    }
}

#endif /* DYT_TEST_HOOKS */
