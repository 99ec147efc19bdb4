/* Waits that end, and what to say of those that have ended badly. */
#include "comm/nccl/nccl_group.h"

#include <sched.h>
#include <time.h>

#define SPINS     64u
#define REST_NS   20000
#define REST_MOST 500000
#define ABORT_NS  100000000 /* in which a death is seen by others */

int64_t dyti_nccl_now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void dyti_nccl_rest(uint32_t *turn)
{
    struct timespec slice = {.tv_nsec = REST_NS};

    if (++*turn < SPINS) {
        (void)sched_yield();
        return;
    }
    slice.tv_nsec *= *turn - SPINS + 1;
    slice.tv_nsec = slice.tv_nsec > REST_MOST ? REST_MOST : slice.tv_nsec;
    (void)nanosleep(&slice, NULL);
}

int64_t dyti_nccl_deadline(const struct dyti_nccl_group *group)
{
    return group->timeout_ns > 0 ? dyti_nccl_now_ns() + group->timeout_ns : 0;
}

static void abort_comm(const struct dyti_nccl_group *group, ncclComm_t *comm)
{
    if (*comm != NULL) {
        (void)group->nccl->ncclCommAbort(*comm);
        *comm = NULL;
    }
}

enum dyt_status dyti_nccl_break(struct dyti_nccl_group *group,
                                enum dyt_status status)
{
    bool was_open = false;

    group->broken = status;
    /* In one group: what an abort gives back waits for the whole device, and so
     * for work of the others if they are not told to end first.  What is being
     * split comes before what it makes. */
    (void)group->nccl->ncclGroupStart();
    for (int lane = 0; lane < DYTI_NCCL_LANES; lane++) {
        was_open = was_open || group->comm[lane] != NULL;
        abort_comm(group, &group->comm[lane]);
    }
    for (size_t i = 0; i < group->team_count; i++) {
        abort_comm(group, &group->team[i]->comm);
    }
    (void)group->nccl->ncclGroupEnd();
    /* what was on the device ends now: buffers are the caller's */
    for (int lane = 0; lane < DYTI_NCCL_LANES && was_open; lane++) {
        (void)cudaStreamSynchronize(group->stream[lane]);
    }
    return status;
}

enum dyt_status dyti_nccl_look_at_abort(struct dyti_nccl_group *group)
{
    uint64_t value = atomic_load(&group->abort->value);

    if (value == 0) {
        return DYT_OK;
    }
    return dyti_nccl_break(
        group,
        DYTI_FAIL(DYT_ERR_PEER, "group %s: rank %u failed: %s", group->name,
                  (uint32_t)(value >> 32) - 1u,
                  dyt_status_text((enum dyt_status)(-(int)(uint32_t)value))));
}

/* NCCL says that something is wrong with the others: whoever sees a death says
 * whose soon. */
static enum dyt_status lost(struct dyti_nccl_group *group, ncclComm_t comm,
                            ncclResult_t result, const char *what)
{
    int64_t until = dyti_nccl_now_ns() + ABORT_NS;
    uint32_t turn = 0;
    enum dyt_status st;
    const char *why = group->nccl->ncclGetLastError(comm);

    while ((st = dyti_nccl_look_at_abort(group)) == DYT_OK &&
           (result == ncclRemoteError || result == ncclSystemError) &&
           dyti_nccl_now_ns() < until) {
        dyti_nccl_rest(&turn);
    }
    if (st != DYT_OK) {
        return st;
    }
    return dyti_nccl_break(
        group, DYTI_FAIL(result == ncclUnhandledCudaError ? DYT_ERR_DEVICE
                                                          : DYT_ERR_PEER,
                         "group %s: rank %u: %s: %s (%d)%s%.200s", group->name,
                         group->world_rank[group->rank], what,
                         group->nccl->ncclGetErrorString(result), (int)result,
                         why != NULL && why[0] != '\0' ? ": " : "",
                         why != NULL ? why : ""));
}

enum dyt_status dyti_nccl_settle(struct dyti_nccl_group *group, ncclComm_t comm,
                                 ncclResult_t result, const char *what,
                                 int64_t deadline_ns)
{
    uint32_t turn = 0;

    while (result == ncclInProgress) {
        enum dyt_status st = dyti_nccl_look_at_abort(group);

        if (st != DYT_OK) {
            return st;
        }
        if (group->nccl->ncclCommGetAsyncError(comm, &result) != ncclSuccess) {
            result = ncclInternalError;
        }
        if (result != ncclInProgress) {
            break;
        }
        if (deadline_ns > 0 && dyti_nccl_now_ns() > deadline_ns) {
            return dyti_nccl_break(
                group,
                DYTI_FAIL(DYT_ERR_TIMEOUT,
                          "group %s: rank %u: %s has not ended within "
                          "the deadline",
                          group->name, group->world_rank[group->rank], what));
        }
        dyti_nccl_rest(&turn);
    }
    return result == ncclSuccess ? DYT_OK : lost(group, comm, result, what);
}

enum dyt_status dyti_nccl_cuda(struct dyti_nccl_group *group, cudaError_t error,
                               const char *what)
{
    if (error == cudaSuccess) {
        return DYT_OK;
    }
    (void)cudaGetLastError(); /* told here */
    return DYTI_FAIL(
        error == cudaErrorMemoryAllocation ? DYT_ERR_NOMEM : DYT_ERR_DEVICE,
        "group %s: rank %u: %s: %s", group->name,
        group->world_rank[group->rank], what, cudaGetErrorName(error));
}

enum dyt_status dyti_nccl_health(struct dyti_nccl_group *group, ncclComm_t comm)
{
    ncclResult_t now = ncclSuccess;
    ncclResult_t asked = group->nccl->ncclCommGetAsyncError(comm, &now);

    now = asked != ncclSuccess ? asked : now;
    return now == ncclSuccess || now == ncclInProgress
               ? DYT_OK
               : lost(group, comm, now, "under way");
}

/* Who has not given this call to NCCL, or `size`: nobody, or not known. */
static uint32_t who_has_not(const struct dyti_nccl_group *group)
{
    uint32_t i = group->desk != NULL || group->server != NULL ? group->size : 0;

    while (i < group->size &&
           (int32_t)(atomic_load(&group->member[i].launched) - group->round) >=
               0) {
        i++;
    }
    return i;
}

static enum dyt_status too_late(struct dyti_nccl_group *group)
{
    uint32_t who = who_has_not(group);
    uint32_t me = group->world_rank[group->rank];
    long long ms = (long long)(group->timeout_ns / 1000000);

    return dyti_nccl_break(
        group,
        who < group->size
            ? DYTI_FAIL(DYT_ERR_TIMEOUT,
                        "group %s: rank %u waited %lld ms, rank %u is missing",
                        group->name, me, ms, group->world_rank[who])
            : DYTI_FAIL(DYT_ERR_TIMEOUT,
                        "group %s: rank %u waited %lld ms for what all have "
                        "begun",
                        group->name, me, ms));
}

enum dyt_status dyti_nccl_wait_event(struct dyti_nccl_group *group,
                                     cudaEvent_t event)
{
    int64_t deadline = dyti_nccl_deadline(group);
    uint32_t turn = 0;
    cudaError_t error;

    while ((error = cudaEventQuery(event)) == cudaErrorNotReady) {
        enum dyt_status st = dyti_nccl_look_at_abort(group);

        if (st == DYT_OK && group->comm[DYTI_NCCL_TOGETHER] != NULL) {
            st = dyti_nccl_health(group, group->comm[DYTI_NCCL_TOGETHER]);
        }
        if (st == DYT_OK && group->posts.open > 0) {
            st = dyti_nccl_look(group);
        }
        if (st != DYT_OK) {
            return st;
        }
        if (deadline > 0 && dyti_nccl_now_ns() > deadline) {
            return too_late(group);
        }
        dyti_nccl_rest(&turn);
    }
    if (error != cudaSuccess) {
        return dyti_nccl_break(group, dyti_nccl_cuda(group, error, "waiting"));
    }
    /* An error also lets the stream go on. */
    return group->comm[DYTI_NCCL_TOGETHER] == NULL
               ? DYT_OK
               : dyti_nccl_health(group, group->comm[DYTI_NCCL_TOGETHER]);
}
