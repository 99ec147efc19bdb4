/* What a command that prints nothing for a while is at, on stderr: on a
 * terminal one line that is written over each second, else a line now and then.
 * Nothing in the first two seconds.  A thread of its own writes, so that what
 * computes need not stop by.
 *
 *   dyti_tell_start(&tell, "plan");
 *   dyti_tell_stage(&tell, "laying out");
 *   ...
 *   dyti_tell_stop(&tell);  before anything else is printed
 *
 * A thread that cannot be started: nothing is told, all calls are fine. */
#ifndef DYTI_CLI_TELL_H
#define DYTI_CLI_TELL_H

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

struct dyti_tell {
    const char *command;
    pthread_mutex_t lock; /* guards stage and ended */
    pthread_cond_t change;
    pthread_t thread;
    const char *stage; /* of static life */
    struct timespec began;
    bool running, ended, terminal;
};

void dyti_tell_start(struct dyti_tell *tell, const char *command);
/* self: a struct dyti_tell; what lives as long as the program. */
void dyti_tell_stage(void *self, const char *what);
/* Twice is fine. */
void dyti_tell_stop(struct dyti_tell *tell);

#endif /* DYTI_CLI_TELL_H */
