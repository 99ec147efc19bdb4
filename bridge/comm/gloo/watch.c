/* Waits that end: a thread watches the abort word and the connections while a
 * call blocks; and what to say of a call that has ended badly. */
#include "comm/gloo/gloo_group.h"

#include <time.h>

#define ABORT_NS 100000000 /* in which a death is seen by others */

/* While a call blocks, an abort must end it. */
void *dyti_gloo_watch(void *arg)
{
    struct dyti_gloo_group *group = arg;

    (void)pthread_mutex_lock(&group->lock);
    while (!group->closing) {
        if (!group->busy) {
            (void)pthread_cond_wait(&group->changed, &group->lock);
            continue;
        }
        if (!group->interrupted && atomic_load(&group->abort->value) != 0) {
            group->interrupted = true;
            (void)pthread_mutex_unlock(&group->lock);
            dyti_gloo_interrupt(group->gloo);
            (void)pthread_mutex_lock(&group->lock);
        } else {
            struct timespec slice;

            /* gloo leaves some to wait; looking must not hold up the call */
            (void)pthread_mutex_unlock(&group->lock);
            dyti_gloo_finish_lost(group->gloo);
            (void)pthread_mutex_lock(&group->lock);
            if (group->closing || !group->busy) {
                continue;
            }
            (void)clock_gettime(CLOCK_REALTIME, &slice);
            slice.tv_nsec += DYTI_GLOO_SLICE_MS * 1000000;
            slice.tv_sec += slice.tv_nsec / 1000000000;
            slice.tv_nsec %= 1000000000;
            (void)pthread_cond_timedwait(&group->changed, &group->lock, &slice);
        }
    }
    (void)pthread_mutex_unlock(&group->lock);
    return NULL;
}

void dyti_gloo_busy(struct dyti_gloo_group *group, bool busy)
{
    (void)pthread_mutex_lock(&group->lock);
    group->busy = busy;
    (void)pthread_cond_signal(&group->changed);
    (void)pthread_mutex_unlock(&group->lock);
}

/* ---- statuses ------------------------------------------------------------ */

enum dyt_status dyti_gloo_broken(struct dyti_gloo_group *group,
                                 enum dyt_status status)
{
    group->broken = status;
    return status;
}

enum dyt_status dyti_gloo_look_at_abort(struct dyti_gloo_group *group)
{
    uint64_t value = atomic_load(&group->abort->value);

    if (value == 0) {
        return DYT_OK;
    }
    return dyti_gloo_broken(
        group,
        DYTI_FAIL(DYT_ERR_PEER, "group %s: rank %u failed: %s", group->name,
                  (uint32_t)(value >> 32) - 1u,
                  dyt_status_text((enum dyt_status)(-(int)(uint32_t)value))));
}

int64_t dyti_gloo_now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Who has not come as far as this member, or `size`. */
static uint32_t who_is_behind(const struct dyti_gloo_group *group)
{
    uint32_t i = 0;

    if (group->apart) { /* their words are not seen here */
        return group->size;
    }
    while (i < group->size &&
           (int32_t)(atomic_load(&dyti_gloo_member_at(group, i)->round) -
                     group->round) >= 0) {
        i++;
    }
    return i;
}

static enum dyt_status too_late(struct dyti_gloo_group *group, uint32_t behind)
{
    uint32_t me = group->world_rank[group->rank];
    long long ms = (long long)(group->timeout_ns / 1000000);

    return dyti_gloo_broken(
        group,
        behind < group->size
            ? DYTI_FAIL(DYT_ERR_TIMEOUT,
                        "group %s: rank %u waited %lld ms, rank %u "
                        "is missing",
                        group->name, me, ms, group->world_rank[behind])
            : DYTI_FAIL(DYT_ERR_TIMEOUT, "group %s: rank %u waited %lld ms",
                        group->name, me, ms));
}

/* A call of the shim has ended badly: why?  A connection also ends because a
 * peer gave up waiting, or died: whoever sees the death says so in the abort
 * word soon, and until the deadline somebody may only be late. */
enum dyt_status dyti_gloo_why(struct dyti_gloo_group *group,
                              enum dyti_gloo_result result, int64_t start)
{
    bool has_deadline =
        group->timeout_ns > 0 &&
        !(group->apart && dyti_gloo_now_ns() - start < group->timeout_ns);
    int64_t until = has_deadline ? start + group->timeout_ns
                                 : dyti_gloo_now_ns() + ABORT_NS;
    const struct timespec slice = {.tv_nsec = 2000000};
    enum dyt_status st;

    while ((st = dyti_gloo_look_at_abort(group)) == DYT_OK &&
           result == DYTI_GLOO_BROKEN && dyti_gloo_now_ns() < until) {
        (void)nanosleep(&slice, NULL);
    }
    if (st != DYT_OK) {
        return st;
    }
    if (has_deadline && result == DYTI_GLOO_BROKEN) {
        return too_late(group, who_is_behind(group));
    }
    return dyti_gloo_broken(
        group,
        DYTI_FAIL(result == DYTI_GLOO_NOMEM ? DYT_ERR_NOMEM : DYT_ERR_PEER,
                  "group %s: rank %u lost a peer: %s", group->name,
                  group->world_rank[group->rank], group->text));
}

enum dyt_status dyti_gloo_enter(struct dyti_gloo_group *group)
{
    group->traffic.calls++;
    if (group->broken != DYT_OK) {
        return DYTI_FAIL(group->broken,
                         "group %s cannot be used after a failed call",
                         group->name);
    }
    return dyti_gloo_look_at_abort(group);
}
