#include "base/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

/* How often a helper looks for work before it sleeps: about 20 us, the time in
 * which the next kernel of a forward pass usually arrives. */
#define SPIN_ROUNDS 2000

struct dyti_pool {
    pthread_mutex_t lock;
    pthread_cond_t wake, idle;
    pthread_t *helper; /* [threads - 1] */
    uint32_t threads, started;

    /* One job.  `epoch` goes up when a job is published. */
    atomic_uint epoch;
    atomic_size_t next;
    atomic_uint busy; /* helpers that have not finished this job */
    size_t count;
    dyti_tile_fn fn;
    void *arg;
    atomic_bool stop;
};

struct helper_arg {
    struct dyti_pool *pool;
    uint32_t thread;
};

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static void work(struct dyti_pool *pool, uint32_t thread)
{
    for (;;) {
        size_t i = atomic_fetch_add(&pool->next, 1);

        if (i >= pool->count) {
            return;
        }
        pool->fn(pool->arg, i, thread);
    }
}

/* Wait until a job newer than `seen` is there; false = stop. */
static bool await_job(struct dyti_pool *pool, unsigned seen)
{
    for (int i = 0; i < SPIN_ROUNDS; i++) {
        if (atomic_load(&pool->stop)) {
            return false;
        }
        if (atomic_load(&pool->epoch) != seen) {
            return true;
        }
        relax();
    }
    pthread_mutex_lock(&pool->lock);
    while (atomic_load(&pool->epoch) == seen && !atomic_load(&pool->stop)) {
        pthread_cond_wait(&pool->wake, &pool->lock);
    }
    pthread_mutex_unlock(&pool->lock);
    return !atomic_load(&pool->stop);
}

static void *helper_main(void *arg)
{
    struct helper_arg self = *(struct helper_arg *)arg;
    struct dyti_pool *pool = self.pool;
    unsigned seen = 0;

    free(arg);
    while (await_job(pool, seen)) {
        seen++;
        work(pool, self.thread);
        if (atomic_fetch_sub(&pool->busy, 1) == 1) {
            pthread_mutex_lock(&pool->lock);
            pthread_cond_signal(&pool->idle);
            pthread_mutex_unlock(&pool->lock);
        }
    }
    return NULL;
}

static enum dyt_status start_helper(struct dyti_pool *pool, uint32_t thread)
{
    struct helper_arg *arg = malloc(sizeof(*arg));

    if (arg == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "thread %u of a pool", thread);
    }
    *arg = (struct helper_arg){pool, thread};
    if (pthread_create(&pool->helper[thread - 1], NULL, helper_main, arg) !=
        0) {
        free(arg);
        return DYTI_FAIL(DYT_ERR_NOMEM, "cannot start thread %u of %u", thread,
                         pool->threads);
    }
    pool->started++;
    return DYT_OK;
}

enum dyt_status dyti_pool_create(uint32_t threads, struct dyti_pool **out_pool)
{
    struct dyti_pool *pool = NULL;
    enum dyt_status st = DYT_OK;

    if (threads == 0) {
        return DYTI_FAIL(DYT_ERR_INVALID, "a pool needs at least one thread");
    }
    pool = calloc(1, sizeof(*pool));
    if (pool == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "thread pool");
    }
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->idle, NULL);
    pool->threads = threads;
    pool->helper = calloc(threads, sizeof(*pool->helper));
    if (pool->helper == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "%u threads", threads);
        goto out;
    }
    for (uint32_t t = 1; t < threads; t++) {
        st = start_helper(pool, t);
        if (st != DYT_OK) {
            goto out;
        }
    }
    *out_pool = pool;
    pool = NULL;
out:
    dyti_pool_destroy(pool);
    return st;
}

void dyti_pool_destroy(struct dyti_pool *pool)
{
    if (pool == NULL) {
        return;
    }
    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->stop, true);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < pool->started; i++) {
        pthread_join(pool->helper[i], NULL);
    }
    pthread_cond_destroy(&pool->idle);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->lock);
    free(pool->helper);
    free(pool);
}

uint32_t dyti_pool_threads(const struct dyti_pool *pool)
{
    return pool != NULL ? pool->threads : 1;
}

void dyti_pool_run(struct dyti_pool *pool, size_t count, dyti_tile_fn fn,
                   void *arg)
{
    if (pool == NULL || pool->threads == 1 || count < 2) {
        for (size_t i = 0; i < count; i++) {
            fn(arg, i, 0);
        }
        return;
    }
    pool->fn = fn;
    pool->arg = arg;
    pool->count = count;
    atomic_store(&pool->next, 0);
    atomic_store(&pool->busy, pool->threads - 1);
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add(&pool->epoch, 1);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    work(pool, 0);
    for (int i = 0; i < SPIN_ROUNDS && atomic_load(&pool->busy) != 0; i++) {
        relax();
    }
    pthread_mutex_lock(&pool->lock);
    while (atomic_load(&pool->busy) != 0) {
        pthread_cond_wait(&pool->idle, &pool->lock);
    }
    pthread_mutex_unlock(&pool->lock);
}
