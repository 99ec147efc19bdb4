/* The manager of a session's job: the fleet (phase/fleet.h) at a hub
 * (control/hub.h).  It holds no weights.  What the fleet wants becomes
 * messages, what members say becomes the fleet's events; a death is seen by
 * pidfd where the member runs on this host, and told to all who wait in a link
 * with it.
 *
 * Threads: open, run and close by one thread; stop from any. */
#ifndef DYTI_LIB_MANAGER_H
#define DYTI_LIB_MANAGER_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

/* 31 years: what is longer is cut to it, as sums of three must not overflow. */
#define DYTI_SESSION_LONGEST_NS 1000000000000000000ll

struct dyti_manager_params {
    const char *address;
    const char *job;  /* NULL: that of the first member */
    const char *host; /* its name, as members give it; NULL: found out */
    const char *key;  /* tcp */
    const char *authorized;
    bool policy_given; /* else the trainer's rank 0 sets it */
    uint32_t policy, quorum, max_version_skew;
    /* One line for people about who came, left, got what; may be NULL. */
    void (*say)(void *arg, const char *line);
    void *say_arg;
};

struct dyti_session_manager;

/* Statuses of dyti_hub_open(). */
enum dyt_status dyti_session_manager_open(
    const struct dyti_manager_params *params,
    struct dyti_session_manager **out_manager);
/* Until stopped. */
enum dyt_status dyti_session_manager_run(struct dyti_session_manager *manager);
/* From another thread or a signal handler. */
void dyti_session_manager_stop(struct dyti_session_manager *manager);
void dyti_session_manager_close(struct dyti_session_manager *manager);

#endif /* DYTI_LIB_MANAGER_H */
