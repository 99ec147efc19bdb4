/* Messages that have met their other end: launched together, as one group of
 * NCCL behind what the caller had queued, and ended when the device is done. */
#include "comm/nccl/nccl_group.h"

#include <string.h>

void dyti_nccl_moved(struct dyti_nccl_posts *posts)
{
    posts->moves++;
    posts->moved_ns = dyti_nccl_now_ns();
}

/* ---- ending ---------------------------------------------------------------
 */

/* What this member has given to and got from others. */
static void count_joint(struct dyti_nccl_group *group,
                        const struct dyti_joint *joint)
{
    const struct dyti_nccl_team *team = joint->team;
    uint32_t size = team == NULL ? group->size : team->size;
    bool all = joint->kind == DYTI_JOINT_ALL_GATHER;
    bool is_root =
        (team == NULL ? joint->root : team->member[joint->root]) == group->rank;

    group->traffic.sent_bytes += all || is_root ? joint->size_bytes : 0;
    group->traffic.received_bytes += all       ? (size - 1) * joint->size_bytes
                                     : is_root ? 0
                                               : joint->size_bytes;
}

static void end_post(struct dyti_nccl_group *group, uint16_t place)
{
    struct dyti_nccl_post *post = &group->posts.post[place - 1];
    const struct dyti_nccl_offer *offer =
        &group->member[group->rank].offer[place - 1];

    if (!post->message.is_send && post->message.head != NULL) {
        memcpy(post->message.head, offer->head, sizeof(offer->head));
    }
    if (post->status == DYT_OK && post->is_joint) {
        count_joint(group, &post->joint);
    } else if (post->status == DYT_OK) {
        *(post->message.is_send ? &group->traffic.sent_bytes
                                : &group->traffic.received_bytes) +=
            post->message.size_bytes;
    }
    post->ended = true;
    group->posts.open--;
    dyti_nccl_moved(&group->posts);
}

/* Of all communicators that it is on. */
static enum dyt_status health(struct dyti_nccl_group *group,
                              const struct dyti_nccl_batch *batch)
{
    enum dyt_status st =
        dyti_nccl_health(group, group->comm[DYTI_NCCL_MESSAGES]);

    for (uint32_t i = 0; i < batch->count && st == DYT_OK; i++) {
        const struct dyti_nccl_team *team =
            dyti_nccl_team_of(&group->posts.post[batch->place[i] - 1]);

        st = team == NULL ? DYT_OK : dyti_nccl_health(group, team->comm);
    }
    return st;
}

/* Batches end in order.  *out_busy: some have not. */
static enum dyt_status end_batches(struct dyti_nccl_group *group)
{
    struct dyti_nccl_posts *posts = &group->posts;

    while (posts->batch_count > 0) {
        struct dyti_nccl_batch *batch =
            &posts->batch[posts->batch_first % DYTI_NCCL_BATCHES];
        cudaError_t error = cudaEventQuery(batch->after);
        enum dyt_status st = DYT_OK;

        if (error != cudaSuccess && error != cudaErrorNotReady) {
            return dyti_nccl_break(
                group, dyti_nccl_cuda(group, error, "messages under way"));
        }
        /* An error also lets the stream go on: ask before believing. */
        st = group->size > 1 ? health(group, batch) : DYT_OK;
        if (st != DYT_OK || error == cudaErrorNotReady) {
            return st;
        }
        for (uint32_t i = 0; i < batch->count; i++) {
            end_post(group, batch->place[i]);
        }
        posts->batch_first++;
        posts->batch_count--;
    }
    return DYT_OK;
}

/* ---- launching ------------------------------------------------------------
 */

enum dyt_status dyti_nccl_event(struct dyti_nccl_group *group,
                                cudaEvent_t *event)
{
    return *event != NULL ? DYT_OK
                          : dyti_nccl_cuda(group,
                                           cudaEventCreateWithFlags(
                                               event, cudaEventDisableTiming),
                                           "an event");
}

/* A message to oneself: its send, which stands before or behind it. */
static const struct dyti_nccl_post *own_send(struct dyti_nccl_group *group,
                                             const uint16_t *place,
                                             uint32_t count, uint32_t recv)
{
    uint32_t nth = 0, found = 0;

    for (uint32_t i = 0; i < recv; i++) {
        const struct dyti_p2p *m = &group->posts.post[place[i] - 1].message;

        nth += m->peer == group->rank && !m->is_send;
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct dyti_nccl_post *post = &group->posts.post[place[i] - 1];

        if (post->message.peer == group->rank && post->message.is_send &&
            found++ == nth) {
            return post;
        }
    }
    return NULL;
}

static ncclResult_t launch_one(struct dyti_nccl_group *group,
                               const struct dyti_p2p *m)
{
    ncclComm_t comm = group->comm[DYTI_NCCL_MESSAGES];
    cudaStream_t stream = group->stream[DYTI_NCCL_MESSAGES];

    return m->is_send ? group->nccl->ncclSend(m->buf, m->size_bytes, ncclUint8,
                                              (int)m->peer, comm, stream)
                      : group->nccl->ncclRecv(m->buf, m->size_bytes, ncclUint8,
                                              (int)m->peer, comm, stream);
}

/* All of these go to NCCL as one group, those to oneself beside it. */
static enum dyt_status launch_messages(struct dyti_nccl_group *group,
                                       const uint16_t *place, uint32_t count)
{
    ncclResult_t result = ncclSuccess, end = ncclSuccess;
    cudaError_t error = cudaSuccess;
    uint32_t others = 0;
    enum dyt_status st;

    for (uint32_t i = 0; i < count; i++) {
        const struct dyti_p2p *m = &group->posts.post[place[i] - 1].message;

        others += m->peer != group->rank;
        if (m->peer == group->rank && !m->is_send && error == cudaSuccess) {
            error = cudaMemcpyAsync(
                m->buf, own_send(group, place, count, i)->message.buf,
                m->size_bytes, cudaMemcpyDefault,
                group->stream[DYTI_NCCL_MESSAGES]);
        }
    }
    st = dyti_nccl_cuda(group, error, "a message to itself");
    if (st != DYT_OK || others == 0) {
        return st == DYT_OK ? st : dyti_nccl_break(group, st);
    }
    (void)group->nccl->ncclGroupStart();
    for (uint32_t i = 0; i < count && result == ncclSuccess; i++) {
        const struct dyti_p2p *m = &group->posts.post[place[i] - 1].message;

        result = m->peer == group->rank ? ncclSuccess : launch_one(group, m);
    }
    end = group->nccl->ncclGroupEnd();
    return dyti_nccl_settle(group, group->comm[DYTI_NCCL_MESSAGES],
                            result != ncclSuccess ? result : end,
                            "messages that begin", dyti_nccl_deadline(group));
}

/* A joint message is a call of its own: its members have other messages
 * beside it. */
static enum dyt_status launch_joint(struct dyti_nccl_group *group,
                                    const struct dyti_nccl_post *post)
{
    const struct dyti_joint *j = &post->joint;
    const struct dyti_nccl_team *team = j->team;
    cudaStream_t stream = group->stream[DYTI_NCCL_MESSAGES];
    ncclComm_t comm =
        team == NULL ? group->comm[DYTI_NCCL_MESSAGES] : team->comm;
    uint32_t place = group->rank;
    ncclResult_t result;

    if (comm == NULL) { /* alone: all of it is in the buffer already */
        return DYT_OK;
    }
    for (uint32_t i = 0; team != NULL && i < team->size; i++) {
        place = team->member[i] == group->rank ? i : place;
    }
    result =
        j->kind == DYTI_JOINT_BROADCAST
            ? group->nccl->ncclBroadcast(j->buf, j->buf, j->size_bytes,
                                         ncclUint8, (int)j->root, comm, stream)
            : group->nccl->ncclAllGather(
                  (unsigned char *)j->buf + place * j->size_bytes, j->buf,
                  j->size_bytes, ncclUint8, comm, stream);
    return dyti_nccl_settle(group, comm, result, "a joint message that begins",
                            dyti_nccl_deadline(group));
}

/* In their order; what stands between two joint ones goes together. */
static enum dyt_status launch_all(struct dyti_nccl_group *group,
                                  const uint16_t *place, uint32_t count)
{
    enum dyt_status st = DYT_OK;
    uint32_t i = 0;

    while (i < count && st == DYT_OK) {
        uint32_t end = i;

        while (end < count && !group->posts.post[place[end] - 1].is_joint) {
            end++;
        }
        if (end > i) {
            st = launch_messages(group, place + i, end - i);
            i = end;
        } else {
            st = launch_joint(group, &group->posts.post[place[i++] - 1]);
        }
    }
    return st;
}

/* The stream goes on when the caller's work before each message is done. */
static enum dyt_status wait_for_callers(struct dyti_nccl_group *group,
                                        const struct dyti_nccl_batch *batch)
{
    cudaError_t error = cudaSuccess;

    for (uint32_t i = 0; i < batch->count && error == cudaSuccess; i++) {
        error = cudaStreamWaitEvent(
            group->stream[DYTI_NCCL_MESSAGES],
            group->posts.post[batch->place[i] - 1].before, 0);
    }
    return dyti_nccl_cuda(group, error, "waiting for the caller's stream");
}

static enum dyt_status launch(struct dyti_nccl_group *group,
                              struct dyti_nccl_batch *batch)
{
    struct dyti_nccl_posts *posts = &group->posts;
    enum dyt_status st = dyti_nccl_event(group, &batch->after);

    st = st == DYT_OK ? wait_for_callers(group, batch) : st;
    st = st == DYT_OK ? launch_all(group, batch->place, batch->count) : st;
    st =
        st == DYT_OK
            ? dyti_nccl_cuda(group,
                             cudaEventRecord(batch->after,
                                             group->stream[DYTI_NCCL_MESSAGES]),
                             "an event")
            : st;
    if (st != DYT_OK) { /* others count on it: it cannot be taken back */
        return dyti_nccl_break(group, st);
    }
    for (uint32_t i = 0; i < batch->count; i++) {
        posts->post[batch->place[i] - 1].is_launched = true;
    }
    posts->batch_count++;
    dyti_nccl_moved(posts);
    return DYT_OK;
}

/* Of another size than its other end: both hear of it. */
static enum dyt_status end_wrong(struct dyti_nccl_group *group, uint16_t place)
{
    const struct dyti_nccl_offer *offer =
        &group->member[group->rank].offer[place - 1];
    uint32_t me = group->world_rank[group->rank];
    struct dyti_nccl_post *post = &group->posts.post[place - 1];
    uint32_t peer = post->is_joint ? 0 : group->world_rank[offer->peer];

    post->status = DYT_ERR_INVALID;
    end_post(group, place);
    if (post->is_joint) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "group %s: joint message %llu is another on rank %u "
                         "than on others",
                         group->name, (unsigned long long)offer->number, me);
    }
    return DYTI_FAIL(DYT_ERR_INVALID,
                     "group %s: rank %u sends %llu bytes, rank %u waits for "
                     "%llu",
                     group->name, offer->is_send ? me : peer,
                     (unsigned long long)(offer->is_send ? offer->bytes
                                                         : offer->other_bytes),
                     offer->is_send ? peer : me,
                     (unsigned long long)(offer->is_send ? offer->other_bytes
                                                         : offer->bytes));
}

static enum dyt_status launch_met(struct dyti_nccl_group *group)
{
    struct dyti_nccl_posts *posts = &group->posts;
    struct dyti_nccl_batch *batch =
        &posts->batch[(posts->batch_first + posts->batch_count) %
                      DYTI_NCCL_BATCHES];
    uint32_t count = 0;
    enum dyt_status st, wrong = DYT_OK;

    if (posts->batch_count == DYTI_NCCL_BATCHES) {
        return DYT_OK;
    }
    st = dyti_nccl_take_met(group, batch->place, &count);
    batch->count = 0;
    for (uint32_t i = 0; i < count && st == DYT_OK; i++) {
        uint16_t place = batch->place[i];

        if (group->member[group->rank].offer[place - 1].is_wrong) {
            wrong = end_wrong(group, place);
        } else if (posts->post[place - 1].message.size_bytes == 0) {
            end_post(group, place);
        } else {
            batch->place[batch->count++] = place;
        }
    }
    if (st == DYT_OK && batch->count > 0) {
        st = launch(group, batch);
    }
    return st != DYT_OK ? st : wrong;
}

enum dyt_status dyti_nccl_look(struct dyti_nccl_group *group)
{
    enum dyt_status st = group->broken != DYT_OK
                             ? DYTI_FAIL(group->broken,
                                         "group %s cannot be used after a "
                                         "failed call",
                                         group->name)
                             : dyti_nccl_look_at_abort(group);

    st = st == DYT_OK ? launch_met(group) : st;
    return st == DYT_OK ? end_batches(group) : st;
}
