/* A group's communicators: made by an id that the first member leaves in the
 * region, or split from those of a group that has all members; and given back.
 * Nothing is asked of NCCL before all members have come. */
#include "comm/nccl/nccl_group.h"

#include <stdlib.h>
#include <string.h>

#define OPEN_NS  5000000000 /* at least: connecting takes seconds */
#define CLOSE_NS 200000000

/* ---- steps of opening -----------------------------------------------------
 */

static enum dyt_status check(const struct dyti_group_params *params)
{
    if (params->size == 0 || params->rank >= params->size) {
        return DYTI_FAIL(DYT_ERR_INVALID, "group %s: member %u of %u",
                         params->name, params->rank, params->size);
    }
    if (params->shared == NULL || params->abort == NULL ||
        params->shared_bytes < dyti_nccl_region_bytes(params->size)) {
        return DYTI_FAIL(
            DYT_ERR_INVALID,
            "group %s of %u needs an abort word and %llu shared bytes, got "
            "%llu",
            params->name, params->size,
            (unsigned long long)dyti_nccl_region_bytes(params->size),
            (unsigned long long)params->shared_bytes);
    }
    if (params->apart &&
        (params->carrier == NULL || params->carrier->ops->post == NULL ||
         params->carrier->size != params->size ||
         params->carrier->rank != params->rank)) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "group %s: over NCCL members meet in memory that they "
                         "share, or over a group of their hosts that carries "
                         "messages (of gloo), and there is none",
                         params->name);
    }
    if (params->apart && params->parent != NULL) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "group %s: of members on several hosts is made on its "
                         "own, or is a team",
                         params->name);
    }
    return DYT_OK;
}

static enum dyt_status make(const struct dyti_group_params *params,
                            struct dyti_nccl_group **out_group)
{
    struct dyti_nccl_group *group = calloc(1, sizeof(*group));

    if (group != NULL) {
        group->world_rank =
            calloc(2 * (size_t)params->size, sizeof(*group->world_rank));
    }
    if (group == NULL || group->world_rank == NULL) {
        free(group);
        return DYTI_FAIL(DYT_ERR_NOMEM, "group %s of %u", params->name,
                         params->size);
    }
    group->name = params->name;
    group->rank = params->rank;
    group->size = params->size;
    group->everybody = group->world_rank + params->size;
    for (uint32_t i = 0; i < params->size; i++) {
        group->everybody[i] = i;
        group->world_rank[i] =
            params->world_rank == NULL ? i : params->world_rank[i];
    }
    group->shared = params->shared;
    group->abort = params->abort;
    group->timeout_ns = params->timeout_ns;
    group->caller = params->stream;
    if (params->apart) { /* nobody else has it */
        memset(params->shared, 0, dyti_nccl_region_bytes(params->size));
    }
    dyti_nccl_find_region(group);
    /* A handle that is opened again goes on where the last one stopped. */
    group->round = atomic_load(&group->member[group->rank].round);
    dyti_nccl_posts_init(group);
    *out_group = group;
    return DYT_OK;
}

static enum dyt_status open_streams(struct dyti_nccl_group *group)
{
    cudaError_t error =
        cudaEventCreateWithFlags(&group->before, cudaEventDisableTiming);

    if (error == cudaSuccess) {
        error = cudaEventCreateWithFlags(&group->after, cudaEventDisableTiming);
    }
    for (int lane = 0; lane < DYTI_NCCL_LANES && error == cudaSuccess; lane++) {
        error = cudaStreamCreateWithFlags(&group->stream[lane],
                                          cudaStreamNonBlocking);
    }
    return dyti_nccl_cuda(group, error, "streams of its own");
}

int64_t dyti_nccl_open_deadline(const struct dyti_nccl_group *group)
{
    int64_t ns = group->timeout_ns > OPEN_NS ? group->timeout_ns : OPEN_NS;

    return group->timeout_ns <= 0 ? 0 : dyti_nccl_now_ns() + ns;
}

/* ---- by an id -------------------------------------------------------------
 */

uint32_t dyti_nccl_who_has_not_opened(const struct dyti_nccl_group *group,
                                      uint32_t opens)
{
    uint32_t i = 0;

    while (i < group->size &&
           (int32_t)(atomic_load(&group->member[i].opened) - opens) >= 0) {
        i++;
    }
    return i;
}

static enum dyt_status look_who_opens(struct dyti_nccl_group *group,
                                      uint32_t opens, uint32_t *out_who)
{
    if (group->desk != NULL) {
        return dyti_nccl_desk_open(group, opens, out_who);
    }
    *out_who = dyti_nccl_who_has_not_opened(group, opens);
    return DYT_OK;
}

/* All have come to open, and the first has left the id. */
static enum dyt_status wait_for_opens(struct dyti_nccl_group *group,
                                      uint32_t opens, int64_t deadline)
{
    uint32_t turn = 0, who = 0;
    enum dyt_status st;

    while ((st = look_who_opens(group, opens, &who)) == DYT_OK &&
           (who < group->size ||
            (int32_t)(atomic_load(&group->home->id_of) - opens) < 0)) {
        st = dyti_nccl_look_at_abort(group);
        if (st != DYT_OK) {
            return st;
        }
        if (deadline > 0 && dyti_nccl_now_ns() > deadline) {
            return DYTI_FAIL(DYT_ERR_TIMEOUT,
                             "group %s: rank %u waited for rank %u to open it",
                             group->name, group->world_rank[group->rank],
                             group->world_rank[who < group->size ? who : 0]);
        }
        dyti_nccl_rest(&turn);
    }
    return st;
}

static enum dyt_status leave_id(struct dyti_nccl_group *group, uint32_t opens)
{
    ncclUniqueId id;
    ncclResult_t result = group->nccl->ncclGetUniqueId(&id);

    if (result != ncclSuccess) {
        return DYTI_FAIL(DYT_ERR_DEVICE, "group %s: rank %u: an id of NCCL: %s",
                         group->name, group->world_rank[group->rank],
                         group->nccl->ncclGetErrorString(result));
    }
    memcpy(group->home->id, &id, sizeof(id));
    atomic_store(&group->home->id_of, opens);
    return DYT_OK;
}

/* The fields of 2.18, whatever the header has: older libraries know no more. */
ncclConfig_t dyti_nccl_config(void)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;

    config.size = offsetof(ncclConfig_t, splitShare) + sizeof(int);
    config.version = DYTI_NCCL_MIN;
    config.blocking = 0;
    return config;
}

/* The parent is done with the split before the new one is there for certain. */
static enum dyt_status wait_for_made(struct dyti_nccl_group *from,
                                     ncclComm_t *comm, int64_t deadline)
{
    uint32_t turn = 0;

    while (__atomic_load_n(comm, __ATOMIC_ACQUIRE) == NULL) {
        enum dyt_status st = dyti_nccl_look_at_abort(from);

        if (st != DYT_OK) {
            return st;
        }
        if (deadline > 0 && dyti_nccl_now_ns() > deadline) {
            return dyti_nccl_break(
                from, DYTI_FAIL(DYT_ERR_TIMEOUT,
                                "group %s: rank %u: NCCL has split a "
                                "communicator, and made none",
                                from->name, from->world_rank[from->rank]));
        }
        dyti_nccl_rest(&turn);
    }
    return DYT_OK;
}

enum dyt_status dyti_nccl_split(struct dyti_nccl_group *from, int color,
                                uint32_t place, struct dyti_nccl_group *owner,
                                ncclComm_t *out_comm, int64_t deadline_ns)
{
    ncclConfig_t config = dyti_nccl_config();
    ncclComm_t parent = from->comm[DYTI_NCCL_TOGETHER];
    ncclResult_t result = from->nccl->ncclCommSplit(
        parent, color, (int)place, out_comm != NULL ? out_comm : &from->none,
        &config);
    enum dyt_status st = dyti_nccl_settle(
        from, parent, result, "splitting a communicator", deadline_ns);

    if (st != DYT_OK || out_comm == NULL) {
        return st;
    }
    st = wait_for_made(from, out_comm, deadline_ns);
    return st == DYT_OK
               ? dyti_nccl_settle(owner, *out_comm, ncclInProgress,
                                  "a communicator that is split", deadline_ns)
               : st;
}

static enum dyt_status split_lane(struct dyti_nccl_group *from, int color,
                                  struct dyti_nccl_group *to, int lane,
                                  int64_t deadline)
{
    return dyti_nccl_split(from, color, to == NULL ? 0 : to->rank, to,
                           to == NULL ? NULL : &to->comm[lane], deadline);
}

static enum dyt_status connect_all(struct dyti_nccl_group *group)
{
    struct dyti_nccl_member *me = &group->member[group->rank];
    uint32_t opens = atomic_load(&me->opened) + 1;
    int64_t deadline = dyti_nccl_open_deadline(group);
    ncclConfig_t config = dyti_nccl_config();
    ncclUniqueId id;
    ncclResult_t result;
    enum dyt_status st = DYT_OK;

    if (group->rank == 0) {
        st = leave_id(group, opens);
    }
    atomic_store(&me->opened, opens);
    st = st == DYT_OK ? wait_for_opens(group, opens, deadline) : st;
    if (st != DYT_OK) {
        return st;
    }
    memcpy(&id, group->home->id, sizeof(id));
    result = group->nccl->ncclCommInitRankConfig(
        &group->comm[DYTI_NCCL_TOGETHER], (int)group->size, id,
        (int)group->rank, &config);
    st = dyti_nccl_settle(group, group->comm[DYTI_NCCL_TOGETHER], result,
                          "opening a communicator", deadline);
    return st == DYT_OK
               ? split_lane(group, 0, group, DYTI_NCCL_MESSAGES, deadline)
               : st;
}

/* ---- from a parent --------------------------------------------------------
 */

static enum dyt_status split_from(struct dyti_nccl_group *parent, int color,
                                  struct dyti_nccl_group *group)
{
    int64_t deadline = dyti_nccl_open_deadline(parent);
    enum dyt_status st = dyti_nccl_enter(parent);

    st = st == DYT_OK ? dyti_nccl_meet(parent, DYTI_NCCL_SPLIT, 0, 0) : st;
    for (int lane = 0;
         lane < DYTI_NCCL_LANES && st == DYT_OK && parent->size > 1; lane++) {
        st = split_lane(parent, color, group, lane, deadline);
    }
    return st;
}

enum dyt_status dyti_nccl_stand_by(void *parent)
{
    return split_from(parent, NCCL_SPLIT_NOCOLOR, NULL);
}

/* ---- open and close -------------------------------------------------------
 */

static enum dyt_status connect_group(struct dyti_nccl_group *group,
                                     const struct dyti_group_params *params)
{
    struct dyti_nccl_group *parent = params->parent;
    bool is_split = parent != NULL && group->size > 1;
    enum dyt_status st =
        parent != NULL
            ? split_from(parent,
                         is_split ? (int)params->color : NCCL_SPLIT_NOCOLOR,
                         is_split ? group : NULL)
        : group->size > 1 ? connect_all(group)
                          : DYT_OK;

    if (st == DYT_OK) { /* what a handle of before left */
        bool is_met[DYTI_GROUP_POSTS];

        st = dyti_nccl_withdraw(group, is_met);
        group->member[group->rank].taken =
            atomic_load(&group->member[group->rank].queued);
    }
    return st;
}

enum dyt_status dyti_nccl_group_open(const struct dyti_group_params *params,
                                     void **out_self)
{
    const struct dyti_nccl_calls *calls;
    struct dyti_nccl_group *group = NULL;
    enum dyt_status st = check(params);

    st = st == DYT_OK ? dyti_nccl_calls(&calls) : st;
    st = st == DYT_OK ? make(params, &group) : st;
    if (st != DYT_OK) {
        return st;
    }
    group->nccl = calls;
    st = params->apart ? dyti_nccl_desk_init(group, params->carrier) : DYT_OK;
    st = st == DYT_OK ? open_streams(group) : st;
    st = st == DYT_OK ? connect_group(group, params) : st;
    if (st != DYT_OK) {
        (void)dyti_nccl_break(group, st);
        dyti_nccl_group_close(group);
        return st;
    }
    *out_self = group;
    return DYT_OK;
}

void dyti_nccl_give_back(struct dyti_nccl_group *group, ncclComm_t comm,
                         int64_t until)
{
    const struct dyti_nccl_calls *nccl = group->nccl;
    ncclResult_t now = nccl->ncclCommFinalize(comm);
    uint32_t turn = 0;

    while (now == ncclInProgress && dyti_nccl_now_ns() < until &&
           atomic_load(&group->abort->value) == 0) {
        if (nccl->ncclCommGetAsyncError(comm, &now) != ncclSuccess) {
            now = ncclInternalError;
        }
        if (now == ncclInProgress) {
            dyti_nccl_rest(&turn);
        }
    }
    if (now == ncclSuccess) {
        (void)nccl->ncclCommDestroy(comm);
    } else {
        (void)nccl->ncclCommAbort(comm);
    }
}

/* Of teams first: they were split from the group's. */
static void give_all_back(struct dyti_nccl_group *group)
{
    int64_t until = dyti_nccl_now_ns() + CLOSE_NS;

    for (size_t i = 0; i < group->team_count; i++) {
        if (group->team[i]->comm != NULL) {
            dyti_nccl_give_back(group, group->team[i]->comm, until);
            group->team[i]->comm = NULL;
        }
    }
    for (int lane = 0; lane < DYTI_NCCL_LANES; lane++) {
        if (group->comm[lane] != NULL) {
            dyti_nccl_give_back(group, group->comm[lane], until);
            group->comm[lane] = NULL;
        }
    }
}

void dyti_nccl_group_close(void *self)
{
    struct dyti_nccl_group *group = self;

    if (group == NULL) {
        return;
    }
    if (group->posts.open > 0) {
        dyti_nccl_cancel(group);
    }
    dyti_nccl_detach_all(group);
    give_all_back(group);
    dyti_nccl_free_teams(group);
    dyti_nccl_desk_fini(group);
    dyti_nccl_posts_fini(group);
    for (int lane = 0; lane < DYTI_NCCL_LANES; lane++) {
        if (group->stream[lane] != NULL) {
            (void)cudaStreamDestroy(group->stream[lane]);
        }
    }
    if (group->before != NULL) {
        (void)cudaEventDestroy(group->before);
    }
    if (group->after != NULL) {
        (void)cudaEventDestroy(group->after);
    }
    free(group->attached);
    free(group->world_rank);
    free(group);
}

/* ---- the rest of the table ------------------------------------------------
 */

static void group_traffic(void *self, struct dyti_group_traffic *out_traffic)
{
    const struct dyti_nccl_group *group = self;

    *out_traffic = group->traffic;
}

static void group_probe(struct dyti_group_report *out_report)
{
    struct dyti_nccl_calls calls;

    (void)dyti_nccl_open(DYTI_NCCL_LIBRARY, &calls, out_report);
}

const struct dyti_group_ops dyti_group_nccl = {
    .struct_size = sizeof(struct dyti_group_ops),
    .name = "nccl",
    .caps = DYTI_GROUP_CAP_DEVICE,
    .region_bytes = dyti_nccl_region_bytes,
    .open = dyti_nccl_group_open,
    .close = dyti_nccl_group_close,
    .barrier = dyti_nccl_barrier,
    .broadcast = dyti_nccl_broadcast,
    .all_gather = dyti_nccl_all_gather,
    .reduce_scatter = dyti_nccl_reduce_scatter,
    .all_reduce = dyti_nccl_all_reduce,
    .exchange = dyti_nccl_exchange,
    .traffic = group_traffic,
    .post = dyti_nccl_post,
    .poll = dyti_nccl_poll,
    .wait = dyti_nccl_wait,
    .cancel = dyti_nccl_cancel,
    .landed = dyti_nccl_landed,
    .stand_by = dyti_nccl_stand_by,
    .attach = dyti_nccl_attach,
    .detach = dyti_nccl_detach,
    .probe = group_probe,
    .make_team = dyti_nccl_make_team,
    .post_joint = dyti_nccl_post_joint,
};
