#include "cli/signals.h"

#include "cli/exit.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define GRACE_MS 3000 /* that the main thread has to look */

static void ring(int fd)
{
    const uint64_t one = 1;

    while (write(fd, &one, sizeof(one)) < 0 && errno == EINTR) {
    }
}

static void empty(int fd)
{
    uint64_t count;

    while (read(fd, &count, sizeof(count)) < 0 && errno == EINTR) {
    }
}

static bool at_once(struct dyti_signals *s)
{
    unsigned count = atomic_load(&s->count);

    return count > 1 || (count == 1 && !atomic_load(&s->under_way));
}

static void heard(struct dyti_signals *s)
{
    bool before = at_once(s);

    atomic_fetch_add(&s->count, 1);
    if (!before && !at_once(s)) {
        fprintf(stderr, "%sstopping after this step (once more: at once)\n",
                s->tty ? "\n" : "");
    }
    ring(s->fd);
}

static void *listen(void *arg)
{
    struct dyti_signals *s = arg;
    struct pollfd fds[2] = {{.fd = s->signal_fd, .events = POLLIN},
                            {.fd = s->told_fd, .events = POLLIN}};

    while (!atomic_load(&s->closing)) {
        bool patient = !at_once(s) || atomic_load(&s->seen);
        int ready = poll(fds, 2, patient ? -1 : GRACE_MS);
        struct signalfd_siginfo info;

        if (ready == 0 && !atomic_load(&s->seen)) {
            fprintf(stderr, "dynatrain run: stopped on request\n");
            _exit(DYTI_EXIT_STOPPED);
        }
        if (ready > 0 && fds[1].revents != 0) {
            empty(s->told_fd);
        }
        if (ready > 0 && fds[0].revents != 0 &&
            read(s->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
            heard(s);
        }
    }
    return NULL;
}

/* A terminal that is closed, unless the caller said that it does not matter
 * (nohup): what is blocked would come even so. */
static bool hears_hangup(void)
{
    struct sigaction now;

    return sigaction(SIGHUP, NULL, &now) == 0 && now.sa_handler != SIG_IGN;
}

enum dyt_status dyti_signals_open(bool tty, struct dyti_signals *s)
{
    sigset_t set;
    int failed;

    *s = (struct dyti_signals){.tty = tty};
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    if (hears_hangup()) {
        sigaddset(&set, SIGHUP);
    }
    failed = pthread_sigmask(SIG_BLOCK, &set, NULL);
    s->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->told_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (failed != 0 || s->fd < 0 || s->told_fd < 0 || s->signal_fd < 0) {
        enum dyt_status st = DYTI_FAIL(DYT_ERR_IO, "listening to signals: %s",
                                       strerror(failed != 0 ? failed : errno));

        dyti_signals_close(s);
        return st;
    }
    failed = pthread_create(&s->thread, NULL, listen, s);
    s->running = failed == 0;
    if (failed != 0) {
        dyti_signals_close(s);
        return DYTI_FAIL(DYT_ERR_NOMEM,
                         "the thread that listens to signals: %s",
                         strerror(failed));
    }
    return DYT_OK;
}

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
    }
    *fd = -1;
}

void dyti_signals_close(struct dyti_signals *s)
{
    if (s->running) {
        atomic_store(&s->closing, true);
        ring(s->told_fd);
        pthread_join(s->thread, NULL);
        s->running = false;
    }
    close_fd(&s->fd);
    close_fd(&s->told_fd);
    close_fd(&s->signal_fd);
}

void dyti_signals_under_way(struct dyti_signals *s)
{
    atomic_store(&s->under_way, true);
}

unsigned dyti_signals_count(struct dyti_signals *s)
{
    if (s->running) {
        empty(s->fd);
    }
    return atomic_load(&s->count);
}

bool dyti_signals_at_once(struct dyti_signals *s)
{
    if (!at_once(s)) {
        return false;
    }
    if (!atomic_exchange(&s->seen, true)) {
        ring(s->told_fd);
    }
    return true;
}
