/* Waiting: answers "have the others come?"  Spin for a moment where every rank
 * has a core, then sleep on a futex, in slices so short that an abort or a
 * deadline is seen in time whoever fails to wake us. */
#include "comm/shm/shm_group.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SLICE_NS 40000000 /* an abort is seen within 100 ms */
#define SPINS    500u     /* some 20 us */

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static int64_t now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Shared, not private: the waker may be another process. */
static void futex_wait(_Atomic uint32_t *word, uint32_t seen, int64_t max_ns)
{
    struct timespec slice = {.tv_sec = (time_t)(max_ns / 1000000000),
                             .tv_nsec = (long)(max_ns % 1000000000)};

    (void)syscall(SYS_futex, (void *)word, FUTEX_WAIT, seen, &slice, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word)
{
    (void)syscall(SYS_futex, (void *)word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

const struct dyti_wait_ops dyti_wait_futex = {
    .struct_size = sizeof(struct dyti_wait_ops),
    .name = "futex",
    .wait = futex_wait,
    .wake = futex_wake,
};

void dyti_shm_wake(_Atomic uint32_t *word, _Atomic uint32_t *sleeping)
{
    if (atomic_load(sleeping) != 0) {
        futex_wake(word);
    }
}

static enum dyt_status broken(struct dyti_shm_group *group,
                              enum dyt_status status)
{
    group->broken = status;
    return status;
}

static enum dyt_status look_at_abort(struct dyti_shm_group *group)
{
    uint64_t value =
        atomic_load_explicit(&group->abort->value, memory_order_acquire);
    enum dyt_status cause = (enum dyt_status)(-(int)(uint32_t)value);

    if (value == 0) {
        return DYT_OK;
    }
    return broken(group, DYTI_FAIL(DYT_ERR_PEER, "group %s: rank %u failed: %s",
                                   group->name, (uint32_t)(value >> 32) - 1u,
                                   dyt_status_text(cause)));
}

/* Who is missing, for the message: the first that is behind, if any. */
static enum dyt_status too_late(struct dyti_shm_group *group)
{
    long long waited_ms = (long long)(group->timeout_ns / 1000000);
    uint32_t me = group->world_rank[group->rank];

    for (uint32_t i = 0; i < group->size; i++) {
        uint32_t round = atomic_load(&group->member[i].round);

        if ((int32_t)(round - group->round) < 0) {
            return broken(group, DYTI_FAIL(DYT_ERR_TIMEOUT,
                                           "group %s: rank %u waited %lld ms, "
                                           "rank %u is missing",
                                           group->name, me, waited_ms,
                                           group->world_rank[i]));
        }
    }
    return broken(group,
                  DYTI_FAIL(DYT_ERR_TIMEOUT, "group %s: rank %u waited %lld ms",
                            group->name, me, waited_ms));
}

enum dyt_status dyti_shm_enter(struct dyti_shm_group *group)
{
    group->traffic.calls++;
    if (group->broken != DYT_OK) {
        return DYTI_FAIL(group->broken,
                         "group %s cannot be used after a failed call",
                         group->name);
    }
    return look_at_abort(group);
}

enum dyt_status dyti_shm_wait_word(struct dyti_shm_group *group,
                                   struct dyti_shm_patience *patience,
                                   _Atomic uint32_t *word, uint32_t seen,
                                   _Atomic uint32_t *sleeping)
{
    int64_t slice = SLICE_NS, now = 0;
    enum dyt_status st;

    while (!group->oversubscribed && patience->spins < SPINS) {
        patience->spins++;
        if (atomic_load_explicit(word, memory_order_acquire) != seen) {
            return DYT_OK;
        }
        relax();
    }
    st = look_at_abort(group);
    if (st != DYT_OK) {
        return st;
    }
    if (group->timeout_ns > 0) {
        now = now_ns();
        if (patience->deadline_ns == 0) {
            patience->deadline_ns = now + group->timeout_ns;
        }
        if (now >= patience->deadline_ns) {
            return too_late(group);
        }
        slice = patience->deadline_ns - now < slice
                    ? patience->deadline_ns - now
                    : slice;
    }
    /* The waker changes the word, then looks whether anybody sleeps. */
    (void)atomic_fetch_add(sleeping, 1);
    if (atomic_load(word) == seen) {
        futex_wait(word, seen, slice);
    }
    (void)atomic_fetch_sub(sleeping, 1);
    return DYT_OK;
}

unsigned char *dyti_shm_publish(const struct dyti_shm_group *group)
{
    return dyti_shm_slot(group, group->rank, (group->round + 1u) & 1u);
}

const unsigned char *dyti_shm_published(const struct dyti_shm_group *group,
                                        uint32_t member)
{
    return dyti_shm_slot(group, member, group->round & 1u);
}

static enum dyt_status check_tags(struct dyti_shm_group *group, uint64_t tag)
{
    for (uint32_t i = 0; i < group->size; i++) {
        uint64_t theirs = group->member[i].tag[group->round & 1u];

        if (theirs != tag) {
            return broken(
                group,
                DYTI_FAIL(DYT_ERR_INVALID,
                          "group %s: rank %u is in call %016llx and rank %u in "
                          "%016llx: all members must make the same calls",
                          group->name, group->world_rank[group->rank],
                          (unsigned long long)tag, group->world_rank[i],
                          (unsigned long long)theirs));
        }
    }
    return DYT_OK;
}

enum dyt_status dyti_shm_rendezvous(struct dyti_shm_group *group, uint64_t tag)
{
    struct dyti_shm_rendezvous *meet = group->rendezvous;
    struct dyti_shm_member *me = &group->member[group->rank];
    struct dyti_shm_patience patience = {0};
    uint32_t round = ++group->round, seen;

    me->tag[round & 1u] = tag;
    atomic_store_explicit(&me->round, round, memory_order_release);
    if (atomic_fetch_add(&meet->arrived, 1) + 1u == round * group->size) {
        atomic_store(&meet->round, round);
        dyti_shm_wake(&meet->round, &meet->sleepers);
        return check_tags(group, tag);
    }
    while ((seen = atomic_load_explicit(&meet->round, memory_order_acquire)) !=
           round) {
        enum dyt_status st = dyti_shm_wait_word(group, &patience, &meet->round,
                                                seen, &meet->sleepers);

        if (st != DYT_OK) {
            return st;
        }
    }
    return check_tags(group, tag);
}
