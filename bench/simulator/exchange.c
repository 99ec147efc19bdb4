#include "exchange.h"

#include "bench.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SLOT  ((size_t)256 << 10)
#define SLOTS 2u
#define MEMORY                                                                 \
    ((size_t)64 << 20) /* of a rank, each way: read round and round */
#define HUGE_PAGE ((size_t)2 << 20)

/* Staging between two ranks. */
struct pipe {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    char *slot;
    uint64_t put, taken;
};

struct exchange {
    char *memory, *staging;
    struct pipe pipe[EXCHANGE_RANKS][EXCHANGE_RANKS];
    /* of the run */
    uint32_t ranks;
    const struct dyti_piece *piece;
    size_t count;
    pthread_mutex_t lock; /* of `arrived` */
    pthread_cond_t changed;
    unsigned char *arrived; /* [count] */
    pthread_barrier_t start;
    double begun, ended[EXCHANGE_RANKS * 2];
};

struct worker {
    struct exchange *x;
    uint32_t rank;
    bool sends;
};

static char *map(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED) {
        return NULL;
    }
    madvise(p, bytes, MADV_HUGEPAGE);
    memset(p, 1, bytes);
    return p;
}

#define MEMORY_ALL  (2 * EXCHANGE_RANKS * MEMORY)
#define STAGING_ALL (EXCHANGE_RANKS * EXCHANGE_RANKS * SLOTS * SLOT)

struct exchange *exchange_open(void)
{
    struct exchange *x = calloc(1, sizeof(*x));

    if (x == NULL) {
        return NULL;
    }
    x->memory = map(MEMORY_ALL);
    x->staging = map(STAGING_ALL);
    if (x->memory == NULL || x->staging == NULL) {
        exchange_close(x);
        return NULL;
    }
    pthread_mutex_init(&x->lock, NULL);
    pthread_cond_init(&x->changed, NULL);
    for (size_t i = 0; i < (size_t)EXCHANGE_RANKS * EXCHANGE_RANKS; i++) {
        struct pipe *p = &x->pipe[i / EXCHANGE_RANKS][i % EXCHANGE_RANKS];

        pthread_mutex_init(&p->lock, NULL);
        pthread_cond_init(&p->changed, NULL);
        p->slot = x->staging + i * SLOTS * SLOT;
    }
    return x;
}

void exchange_close(struct exchange *exchange)
{
    if (exchange != NULL) {
        if (exchange->memory != NULL) {
            munmap(exchange->memory, MEMORY_ALL);
        }
        if (exchange->staging != NULL) {
            munmap(exchange->staging, STAGING_ALL);
        }
        free(exchange);
    }
}

static char *place(struct exchange *x, uint32_t rank, bool sends, uint64_t at)
{
    return x->memory + (rank * 2u + (sends ? 0u : 1u)) * MEMORY + at % MEMORY;
}

/* The hop before has brought these bytes here. */
static void wait_for_hop(struct exchange *x, const struct dyti_piece *p)
{
    size_t before = x->count;

    for (size_t i = 0; p->hop > 0 && i < x->count; i++) {
        const struct dyti_piece *q = &x->piece[i];

        if (q->src == p->src && q->dst == p->dst && q->wave == p->wave &&
            q->lo == p->lo && q->hop + 1 == p->hop) {
            before = i;
        }
    }
    if (before == x->count) {
        return;
    }
    pthread_mutex_lock(&x->lock);
    while (!x->arrived[before]) {
        pthread_cond_wait(&x->changed, &x->lock);
    }
    pthread_mutex_unlock(&x->lock);
}

/* One piece through the pipe, a slot at a time. */
static void carry(struct exchange *x, const struct dyti_piece *p, bool sends)
{
    struct pipe *pipe = &x->pipe[p->from][p->to];
    uint64_t size = p->hi - p->lo;

    for (uint64_t at = 0; at < size;) {
        uint64_t offset = p->lo + at;
        size_t bytes = size - at < SLOT ? (size_t)(size - at) : SLOT;
        size_t left = MEMORY - (size_t)(offset % MEMORY);
        char *slot;

        bytes = bytes < left ? bytes : left;
        pthread_mutex_lock(&pipe->lock);
        while (sends ? pipe->put - pipe->taken == SLOTS
                     : pipe->put == pipe->taken) {
            pthread_cond_wait(&pipe->changed, &pipe->lock);
        }
        slot = pipe->slot + (sends ? pipe->put : pipe->taken) % SLOTS * SLOT;
        pthread_mutex_unlock(&pipe->lock);
        if (sends) {
            memcpy(slot, place(x, p->from, true, offset), bytes);
        } else {
            memcpy(place(x, p->to, false, offset), slot, bytes);
        }
        pthread_mutex_lock(&pipe->lock);
        if (sends) {
            pipe->put++;
        } else {
            pipe->taken++;
        }
        pthread_cond_broadcast(&pipe->changed);
        pthread_mutex_unlock(&pipe->lock);
        at += bytes;
    }
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct exchange *x = w->x;

    pthread_barrier_wait(&x->start);
    for (size_t i = 0; i < x->count; i++) {
        const struct dyti_piece *p = &x->piece[i];

        if ((w->sends ? p->from : p->to) != w->rank) {
            continue;
        }
        if (w->sends) {
            wait_for_hop(x, p);
        }
        carry(x, p, w->sends);
        if (!w->sends) {
            pthread_mutex_lock(&x->lock);
            x->arrived[i] = 1;
            pthread_cond_broadcast(&x->changed);
            pthread_mutex_unlock(&x->lock);
        }
    }
    x->ended[w->rank * 2 + (w->sends ? 0 : 1)] = bench_seconds();
    return NULL;
}

double exchange_run(struct exchange *exchange, uint32_t ranks,
                    const struct dyti_piece *piece, size_t count)
{
    struct exchange *x = exchange;
    struct worker worker[EXCHANGE_RANKS * 2];
    pthread_t thread[EXCHANGE_RANKS * 2];
    uint32_t n = ranks * 2;
    double begun, last = 0.0;

    x->ranks = ranks;
    x->piece = piece;
    x->count = count;
    x->arrived = calloc(count + 1, 1);
    if (x->arrived == NULL || ranks > EXCHANGE_RANKS) {
        free(x->arrived);
        return -1.0;
    }
    pthread_barrier_init(&x->start, NULL, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        worker[i] = (struct worker){x, i / 2, i % 2 == 0};
        if (pthread_create(&thread[i], NULL, work, &worker[i]) != 0) {
            fprintf(stderr, "simulator: no thread for rank %u\n", i / 2);
            exit(1); /* the others wait at the barrier */
        }
    }
    begun = bench_seconds();
    pthread_barrier_wait(&x->start);
    for (uint32_t i = 0; i < n; i++) {
        pthread_join(thread[i], NULL);
        last = x->ended[i] > last ? x->ended[i] : last;
    }
    pthread_barrier_destroy(&x->start);
    free(x->arrived);
    return last - begun;
}
