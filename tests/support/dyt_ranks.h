/* Ranks for tests: one function run by several ranks at once, as threads of
 * this process or as processes.  CMocka's asserts jump, so a rank says what
 * went wrong in words, and the caller asserts.
 *
 *   static void body(struct dyt_rank *me) { rank_ok(me, ops->barrier(g)); }
 *   dyt_ranks_run(DYT_RANKS_THREADS, 4, body, &arg);
 *
 * Processes are forked: call it while this process has no other thread. */
#ifndef DYT_RANKS_H
#define DYT_RANKS_H

#include "dyt_test.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define DYT_RANKS_MAX 16u

/* With a device that is none of the simulator's, ranks are processes: threads
 * would start its driver in this one, whose children could not use it then. */
#ifdef DYT_GPU_REAL
enum dyt_ranks_kind {
    DYT_RANKS_PROCESSES,
    DYT_RANKS_THREADS = DYT_RANKS_PROCESSES
};
#else
enum dyt_ranks_kind { DYT_RANKS_THREADS, DYT_RANKS_PROCESSES };
#endif

struct dyt_rank {
    uint32_t rank, size;
    enum dyt_ranks_kind kind;
    void *arg;         /* the caller's; its own copy in a process */
    bool expect_death; /* this rank kills itself: set before it does */
    char wrong[1024];  /* "" = all well */
};

#define rank_wrong(me, ...)                                                    \
    do {                                                                       \
        if ((me)->wrong[0] == '\0') {                                          \
            snprintf((me)->wrong, sizeof((me)->wrong), __VA_ARGS__);           \
        }                                                                      \
    } while (0)

/* More about what went wrong, behind it: which of many cases it was. */
#define rank_where(me, ...)                                                    \
    do {                                                                       \
        size_t rank_used = strlen((me)->wrong);                                \
        if (rank_used > 0) {                                                   \
            snprintf((me)->wrong + rank_used, sizeof((me)->wrong) - rank_used, \
                     __VA_ARGS__);                                             \
        }                                                                      \
    } while (0)

/* Give up on a failure: only in functions that return void. */
#define rank_true(me, cond)                                                    \
    do {                                                                       \
        if (!(cond)) {                                                         \
            rank_wrong((me), "%s:%d: %s", __FILE__, __LINE__, #cond);          \
            return;                                                            \
        }                                                                      \
    } while (0)

#define rank_status(me, want, expr)                                            \
    do {                                                                       \
        enum dyt_status rank_got = (expr);                                     \
        if (rank_got != (want)) {                                              \
            rank_wrong((me), "%s:%d: %s is %s: %s", __FILE__, __LINE__, #expr, \
                       dyt_status_name(rank_got), dyti_error_text());          \
            return;                                                            \
        }                                                                      \
    } while (0)

#define rank_ok(me, expr) rank_status(me, DYT_OK, expr)

typedef void (*dyt_rank_fn)(struct dyt_rank *me);

/* Called in this process when a rank's process has died by a signal: what a
 * manager does.  NULL: nothing. */
static void (*dyt_ranks_on_death)(uint32_t rank, void *arg);

struct dyt_rank_start {
    struct dyt_rank *me;
    dyt_rank_fn fn;
};

static inline void *dyt_rank_thread(void *arg)
{
    struct dyt_rank_start *start = arg;

    start->fn(start->me);
    return NULL;
}

static inline void dyt_ranks_threads(struct dyt_rank *rank, uint32_t size,
                                     dyt_rank_fn fn)
{
    struct dyt_rank_start start[DYT_RANKS_MAX];
    pthread_t thread[DYT_RANKS_MAX];

    for (uint32_t i = 0; i < size; i++) {
        start[i] = (struct dyt_rank_start){&rank[i], fn};
        if (pthread_create(&thread[i], NULL, dyt_rank_thread, &start[i]) != 0) {
            fail_msg("cannot start a thread");
        }
    }
    for (uint32_t i = 0; i < size; i++) {
        (void)pthread_join(thread[i], NULL);
    }
}

static inline void dyt_ranks_processes(struct dyt_rank *rank, uint32_t size,
                                       dyt_rank_fn fn)
{
    pid_t pid[DYT_RANKS_MAX];

    (void)fflush(NULL);
    for (uint32_t i = 0; i < size; i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            fn(&rank[i]);
            _exit(0);
        }
        if (pid[i] < 0) {
            fail_msg("cannot fork");
        }
    }
    for (uint32_t left = size; left > 0; left--) {
        int code = 0;
        pid_t ended = waitpid(-1, &code, 0);
        uint32_t i = 0;

        while (i < size && pid[i] != ended) {
            i++;
        }
        if (i == size) {
            fail_msg("waiting for a rank");
        }
        if (WIFSIGNALED(code) && dyt_ranks_on_death != NULL) {
            dyt_ranks_on_death(i, rank[i].arg);
        }
        if (code != 0 && !rank[i].expect_death) {
            rank_wrong(&rank[i], "process ended with %s %d",
                       WIFSIGNALED(code) ? "signal" : "code",
                       WIFSIGNALED(code) ? WTERMSIG(code) : WEXITSTATUS(code));
        }
    }
}

#define DYT_RANKS_WORDS 1100u

/* Run fn on all ranks; the first rank's words if something went wrong. */
static inline void dyt_ranks_try(enum dyt_ranks_kind kind, uint32_t size,
                                 dyt_rank_fn fn, void *arg,
                                 char wrong[DYT_RANKS_WORDS])
{
    size_t bytes = DYT_RANKS_MAX * sizeof(struct dyt_rank);
    struct dyt_rank *rank = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    wrong[0] = '\0';
    if (rank == MAP_FAILED || size > DYT_RANKS_MAX) {
        fail_msg("no memory for %u ranks", size);
    }
    for (uint32_t i = 0; i < size; i++) {
        rank[i] = (struct dyt_rank){
            .rank = i, .size = size, .kind = kind, .arg = arg};
    }
    if (kind != DYT_RANKS_PROCESSES) {
        dyt_ranks_threads(rank, size, fn);
    } else {
        dyt_ranks_processes(rank, size, fn);
    }
    for (uint32_t i = 0; i < size && wrong[0] == '\0'; i++) {
        if (rank[i].wrong[0] != '\0') {
            snprintf(wrong, DYT_RANKS_WORDS, "rank %u of %u: %s", i, size,
                     rank[i].wrong);
        }
    }
    (void)munmap(rank, bytes);
}

/* … the test fails with them. */
static inline void dyt_ranks_run(enum dyt_ranks_kind kind, uint32_t size,
                                 dyt_rank_fn fn, void *arg)
{
    char wrong[DYT_RANKS_WORDS];

    dyt_ranks_try(kind, size, fn, arg, wrong);
    if (wrong[0] != '\0') {
        fail_msg("%s", wrong);
    }
}

/* Memory that ranks of both kinds share, zeroed. */
static inline void *dyt_ranks_shared(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED) {
        fail_msg("no %zu bytes of shared memory", bytes);
    }
    return memory;
}

#endif /* DYT_RANKS_H */
