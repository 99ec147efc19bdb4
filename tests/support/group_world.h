/* Ranks that have a group in common, of each backend there is: how a test calls
 * them, opens it, waits, and what they sum. */
#ifndef DYT_GROUP_WORLD_H
#define DYT_GROUP_WORLD_H

#include "dyt_ranks.h"

#include <sched.h>
#include <time.h>

#include "base/hash.h"
#include "base/rng.h"
#include "comm/shm/shm.h"

#ifdef DYT_TEST_GLOO
#include "comm/gloo/gloo.h"
#endif

#ifdef DYT_TEST_NCCL
#include "gpusim/group_staged.h"
#endif

static const struct dyti_group_ops *const group_backends[] = {
#ifdef DYT_TEST_NCCL
    &group_staged,
    &group_staged_apart,
#else
    &dyti_group_shm,
#endif
#ifdef DYT_TEST_GLOO
    &dyti_group_gloo,
#endif
};

struct group_fixture {
    const struct dyti_group_ops *ops;
    uint64_t region_bytes;
    void *region;
    struct dyti_abort_word *abort;
    _Atomic uint32_t *arrived; /* for tests of their own */
};

typedef void (*group_check_fn)(struct dyt_rank *me,
                               const struct group_fixture *fixture);

struct group_call {
    struct group_fixture fixture;
    group_check_fn check;
};

static inline void group_body(struct dyt_rank *me)
{
    const struct group_call *call = me->arg;

    call->check(me, &call->fixture);
}

/* Of a wait that is expected to end by itself: if it does not, say so. */
#define GROUP_PATIENCE_NS 60000000000 /* what takes longer hangs */

/* Until `count` members have said that they are here; not for ever. */
static inline void group_await(struct dyt_rank *me,
                               const struct group_fixture *fixture,
                               uint32_t count)
{
    struct timespec now, start;

    (void)clock_gettime(CLOCK_MONOTONIC, &start);
    while (atomic_load(fixture->arrived) < count) {
        (void)sched_yield();
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec - start.tv_sec > GROUP_PATIENCE_NS / 1000000000) {
            rank_wrong(me, "%u of %u others are here",
                       atomic_load(fixture->arrived), count);
            return;
        }
    }
}

/* A barrier that no deadline of a group ends: goes on when `count` times
 * somebody has come to one. */
static inline void group_meet(struct dyt_rank *me,
                              const struct group_fixture *fixture,
                              uint32_t count)
{
    (void)atomic_fetch_add(fixture->arrived, 1);
    group_await(me, fixture, count);
}

/* Every backend, alone and with a few sizes. */
static inline void group_each(enum dyt_ranks_kind kind, group_check_fn check)
{
    static const uint32_t sizes[] = {1, 2, 3, 4, 7};

    for (size_t b = 0; b < DYT_TEST_COUNT(group_backends); b++) {
        /* Connecting many takes a second: the sizes that differ. */
        size_t count =
            group_backends[b]->region_bytes == dyti_group_shm.region_bytes
                ? DYT_TEST_COUNT(sizes)
                : 3;

        for (size_t s = 0; s < count; s++) {
            const struct dyti_group_ops *ops = group_backends[b];
            uint64_t bytes = ops->region_bytes(sizes[s]);
            char *page = dyt_ranks_shared(4096);
            struct group_call call = {
                .fixture = {.ops = ops,
                            .region_bytes = bytes,
                            .region = dyt_ranks_shared(bytes),
                            .abort = (void *)page,
                            .arrived = (void *)(page + 64)},
                .check = check};

            dyt_ranks_run(kind, sizes[s], group_body, &call);
            munmap(call.fixture.region, bytes);
            munmap(page, 4096);
        }
    }
}

static inline enum dyt_status group_open(struct dyt_rank *me,
                                         const struct group_fixture *fixture,
                                         int64_t timeout_ns, void **out_self)
{
    uint32_t world[DYT_RANKS_MAX]; /* names differ from numbers */
    struct dyti_group_params params = {.struct_size = sizeof(params),
                                       .name = "test",
                                       .rank = me->rank,
                                       .size = me->size,
                                       .world_rank = world,
                                       .shared = fixture->region,
                                       .shared_bytes = fixture->region_bytes,
                                       .abort = fixture->abort,
                                       .timeout_ns = timeout_ns,
                                       .oversubscribed = true};

    for (uint32_t i = 0; i < me->size; i++) {
        world[i] = 10 + i;
    }
    return fixture->ops->open(&params, out_self);
}

/* What rank r has as element i of call c: sums of these round. */
static inline float group_value(uint32_t r, uint64_t c, uint64_t i)
{
    return (float)dyti_rng_unit(dyti_rng_u64(7, r, c, i)) - 0.5f;
}

static inline float group_sum(uint32_t size, uint64_t c, uint64_t i)
{
    float sum = group_value(0, c, i);

    for (uint32_t r = 1; r < size; r++) {
        sum += group_value(r, c, i);
    }
    return sum;
}

/* Is that the sum?  In member order where the backend promises it, else within
 * size * eps * the sum of magnitudes. */
static inline bool group_is_sum(const struct dyti_group_ops *ops, uint32_t size,
                                float got, uint64_t c, uint64_t i)
{
    float want = group_sum(size, c, i), most = 0;

    for (uint32_t r = 0; r < size; r++) {
        float value = group_value(r, c, i);

        most += value < 0 ? -value : value;
    }
    most *= (ops->caps & DYTI_GROUP_CAP_RANK_ORDER) != 0
                ? 0.0f
                : (float)size * 1.2e-7f;
    return got >= want - most && got <= want + most;
}

#endif /* DYT_GROUP_WORLD_H */
