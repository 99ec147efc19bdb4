/* Ctrl-C, SIGTERM and a closed terminal (SIGHUP) of a run.  A thread of its own
 * hears them, so that each is counted and acknowledged at once, whatever the
 * main thread is doing: a signal that is pending takes in a second one of its
 * kind.
 *
 * The first lets the step end, the second stops at once; before the run is
 * under way the first stops at once.  A main thread that does not look within a
 * moment of "at once" is not waited for: the process ends, and with it, through
 * their pipes, all that it has started. */
#ifndef DYTI_CLI_SIGNALS_H
#define DYTI_CLI_SIGNALS_H

#include "base/error.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct dyti_signals {
    int fd; /* readable when one has come since dyti_signals_look; -1: closed */
    int signal_fd,
        told_fd; /* the thread's: signals, words of the main thread */
    _Atomic unsigned count;
    _Atomic bool under_way, seen, closing;
    bool tty, running;
    pthread_t thread;
};

/* Blocks SIGINT, SIGTERM and SIGHUP in this thread and all that it starts. */
enum dyt_status dyti_signals_open(bool tty, struct dyti_signals *signals);
void dyti_signals_close(struct dyti_signals *signals);

/* From now on the first one lets the step end. */
void dyti_signals_under_way(struct dyti_signals *signals);
/* How many there were.  Empties fd. */
unsigned dyti_signals_count(struct dyti_signals *signals);
/* True if the run must end at once, which the caller then sees to. */
bool dyti_signals_at_once(struct dyti_signals *signals);

#endif /* DYTI_CLI_SIGNALS_H */
