#include "crew.h"

#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Shared between the ranks and who leads them. */
struct crew {
    sem_t go[CREW_RANKS], done;
    atomic_bool stop, failed;
    double seconds;
    uint32_t size;
    pid_t pid[CREW_RANKS]; /* of those that run; 0: waited for */
};

void *crew_memory(uint64_t bytes, int flags)
{
    const uint64_t page = (uint64_t)2 << 20;
    unsigned char *p = mmap(NULL, bytes + 2 * page, PROT_READ | PROT_WRITE,
                            flags | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED) {
        return NULL;
    }
    p += (page - (uintptr_t)p % page) % page;
    (void)madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

struct crew *crew_start(uint32_t size, crew_rank_fn rank, void *arg)
{
    struct crew *c = crew_memory(sizeof(*c), MAP_SHARED);
    pid_t leader = getpid();

    if (c == NULL || size > CREW_RANKS || sem_init(&c->done, 1, 0) != 0) {
        fprintf(stderr, "cannot start %u ranks\n", size);
        return NULL;
    }
    c->size = size;
    (void)fflush(NULL);
    for (uint32_t i = 0; i < size; i++) {
        pid_t pid; /* not straight into what is shared: a child reads 0 */

        (void)sem_init(&c->go[i], 1, 0);
        pid = fork();
        if (pid == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() == leader) {
                rank(arg, i, c);
            }
            _exit(0);
        }
        if (pid < 0) {
            fprintf(stderr, "cannot start rank %u: %s\n", i, strerror(errno));
            crew_stop(c);
            return NULL;
        }
        c->pid[i] = pid;
    }
    return c;
}

/* Has a rank ended that should not? */
static bool lost_one(struct crew *c)
{
    bool lost = false;

    for (uint32_t i = 0; i < c->size; i++) {
        if (c->pid[i] == 0 || waitpid(c->pid[i], NULL, WNOHANG) != 0) {
            c->pid[i] = 0;
            lost = true;
        }
    }
    return lost;
}

/* Waits for one rank's word. */
static bool wait_done(struct crew *c)
{
    for (;;) {
        struct timespec until;

        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        if (sem_timedwait(&c->done, &until) == 0) {
            return true;
        }
        if ((errno != EINTR && errno != ETIMEDOUT) || lost_one(c)) {
            return false;
        }
    }
}

bool crew_turn(struct crew *crew, double *out_seconds)
{
    for (uint32_t i = 0; i < crew->size; i++) {
        (void)sem_post(&crew->go[i]);
    }
    for (uint32_t i = 0; i < crew->size; i++) {
        if (!wait_done(crew)) {
            return false;
        }
    }
    *out_seconds = crew->seconds;
    return !atomic_load(&crew->failed);
}

/* Ranks that wait for a turn end by themselves; one that hangs in the middle of
 * a turn that another gave up is not waited for. */
void crew_stop(struct crew *crew)
{
    bool kill_them = crew == NULL || atomic_load(&crew->failed);

    if (crew == NULL) {
        return;
    }
    kill_them = lost_one(crew) || kill_them;
    atomic_store(&crew->stop, true);
    for (uint32_t i = 0; i < crew->size; i++) {
        if (kill_them && crew->pid[i] > 0) {
            (void)kill(crew->pid[i], SIGKILL);
        }
        (void)sem_post(&crew->go[i]);
    }
    for (uint32_t i = 0; i < crew->size; i++) {
        if (crew->pid[i] > 0) {
            (void)waitpid(crew->pid[i], NULL, 0);
        }
    }
}

bool crew_wait(struct crew *crew, uint32_t rank)
{
    while (sem_wait(&crew->go[rank]) != 0) {
        if (errno != EINTR) {
            return false;
        }
    }
    return !atomic_load(&crew->stop);
}

void crew_done(struct crew *crew, uint32_t rank, double seconds, bool good)
{
    if (rank == 0) {
        crew->seconds = seconds;
    }
    if (!good) {
        atomic_store(&crew->failed, true);
    }
    (void)sem_post(&crew->done);
}
