/* A thread that says every now and then what the command is at. */
#include "cli/tell.h"

#include <stdio.h>
#include <unistd.h>

#define QUIET_S 2 /* until then nothing is told */
#define AGAIN_S 5 /* between lines where there is no terminal */

static void print(const struct dyti_tell *t, long seconds)
{
    fprintf(stderr,
            t->terminal ? "\rdynatrain %s: %s, %ld s\033[K"
                        : "dynatrain %s: %s, %ld s\n",
            t->command, t->stage, seconds);
}

static void *tell(void *self)
{
    struct dyti_tell *t = self;
    long step = t->terminal ? 1 : AGAIN_S, at = QUIET_S;
    bool told = false;

    (void)pthread_mutex_lock(&t->lock);
    while (!t->ended) {
        struct timespec until = t->began, now;

        until.tv_sec += at;
        (void)pthread_cond_timedwait(&t->change, &t->lock, &until);
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        if (!t->ended &&
            (now.tv_sec > until.tv_sec ||
             (now.tv_sec == until.tv_sec && now.tv_nsec >= until.tv_nsec))) {
            print(t, at);
            told = true;
            at += step;
        }
    }
    if (told && t->terminal) {
        fputs("\r\033[K", stderr);
    }
    (void)pthread_mutex_unlock(&t->lock);
    return NULL;
}

void dyti_tell_start(struct dyti_tell *t, const char *command)
{
    pthread_condattr_t attr;

    *t = (struct dyti_tell){.command = command,
                            .stage = "reading",
                            .terminal = isatty(STDERR_FILENO) == 1};
    (void)clock_gettime(CLOCK_MONOTONIC, &t->began);
    if (pthread_condattr_init(&attr) != 0) {
        return;
    }
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    if (pthread_mutex_init(&t->lock, NULL) == 0) {
        if (pthread_cond_init(&t->change, &attr) == 0) {
            t->running = pthread_create(&t->thread, NULL, tell, t) == 0;
            if (!t->running) {
                (void)pthread_cond_destroy(&t->change);
            }
        }
        if (!t->running) {
            (void)pthread_mutex_destroy(&t->lock);
        }
    }
    (void)pthread_condattr_destroy(&attr);
}

void dyti_tell_stage(void *self, const char *what)
{
    struct dyti_tell *t = self;

    if (t->running) {
        (void)pthread_mutex_lock(&t->lock);
        t->stage = what;
        (void)pthread_mutex_unlock(&t->lock);
    }
}

void dyti_tell_stop(struct dyti_tell *t)
{
    if (!t->running) {
        return;
    }
    (void)pthread_mutex_lock(&t->lock);
    t->ended = true;
    (void)pthread_cond_signal(&t->change);
    (void)pthread_mutex_unlock(&t->lock);
    (void)pthread_join(t->thread, NULL);
    (void)pthread_cond_destroy(&t->change);
    (void)pthread_mutex_destroy(&t->lock);
    t->running = false;
}
