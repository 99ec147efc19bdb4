/* Calls of all members together that only carry bytes, and how such a call
 * runs: all meet in the region, then it goes to NCCL behind what the caller has
 * queued, and is waited for. */
#include "comm/nccl/nccl_group.h"

#define LANE DYTI_NCCL_TOGETHER

enum dyt_status dyti_nccl_begin(struct dyti_nccl_group *group)
{
    cudaError_t error = cudaEventRecord(group->before, group->caller);

    if (error == cudaSuccess) {
        error = cudaStreamWaitEvent(group->stream[LANE], group->before, 0);
    }
    return error == cudaSuccess
               ? DYT_OK
               : dyti_nccl_break(group,
                                 dyti_nccl_cuda(group, error,
                                                "waiting for the caller's "
                                                "stream"));
}

enum dyt_status dyti_nccl_end(struct dyti_nccl_group *group,
                              ncclResult_t result, const char *what)
{
    enum dyt_status st = dyti_nccl_settle(group, group->comm[LANE], result,
                                          what, dyti_nccl_deadline(group));

    if (st == DYT_OK) {
        atomic_store(&group->member[group->rank].launched, group->round);
        st = dyti_nccl_cuda(
            group, cudaEventRecord(group->after, group->stream[LANE]), what);
    }
    st = st == DYT_OK ? dyti_nccl_wait_event(group, group->after) : st;
    if (st != DYT_OK) {
        DYTI_NOTE("%s of group %s", what, group->name);
    }
    return st;
}

/* All members are here, and what each has queued before is done. */
enum dyt_status dyti_nccl_barrier(void *self)
{
    struct dyti_nccl_group *group = self;
    enum dyt_status st = dyti_nccl_enter(group);

    st = st == DYT_OK
             ? dyti_nccl_cuda(group,
                              cudaEventRecord(group->before, group->caller),
                              "an event of the caller's stream")
             : st;
    st = st == DYT_OK ? dyti_nccl_wait_event(group, group->before) : st;
    return st == DYT_OK ? dyti_nccl_meet(group, DYTI_NCCL_BARRIER, 0, 0) : st;
}

enum dyt_status dyti_nccl_broadcast(void *self, void *buf, uint64_t size_bytes,
                                    uint32_t root)
{
    struct dyti_nccl_group *group = self;
    enum dyt_status st = dyti_nccl_enter(group);

    if (st == DYT_OK && root >= group->size) {
        st = DYTI_FAIL(DYT_ERR_INVALID,
                       "group %s: broadcast of member %u, there are %u",
                       group->name, root, group->size);
    }
    st = st == DYT_OK
             ? dyti_nccl_meet(group, DYTI_NCCL_BROADCAST, root, size_bytes)
             : st;
    if (st != DYT_OK || size_bytes == 0 || group->size == 1) {
        return st;
    }
    *(root == group->rank ? &group->traffic.sent_bytes
                          : &group->traffic.received_bytes) += size_bytes;
    st = dyti_nccl_begin(group);
    return st == DYT_OK
               ? dyti_nccl_end(group,
                               group->nccl->ncclBroadcast(
                                   buf, buf, size_bytes, ncclUint8, (int)root,
                                   group->comm[LANE], group->stream[LANE]),
                               "the broadcast")
               : st;
}

/* Each member's part is a broadcast of its own, if they are not all alike. */
static ncclResult_t gather_parts(struct dyti_nccl_group *group, const void *in,
                                 unsigned char *out, const uint64_t *counts)
{
    ncclResult_t result = group->nccl->ncclGroupStart(), end;

    for (uint32_t m = 0; m < group->size; m++) {
        if (counts[m] > 0 && result == ncclSuccess) {
            result = group->nccl->ncclBroadcast(
                m == group->rank ? in : out, out, counts[m], ncclUint8, (int)m,
                group->comm[LANE], group->stream[LANE]);
        }
        out += counts[m];
    }
    end = group->nccl->ncclGroupEnd();
    return result != ncclSuccess ? result : end;
}

static enum dyt_status copy_own(struct dyti_nccl_group *group, void *out,
                                const void *in, uint64_t bytes)
{
    cudaError_t error = cudaSuccess;
    enum dyt_status st = dyti_nccl_begin(group);

    if (st == DYT_OK && out != in && bytes > 0) {
        error = cudaMemcpyAsync(out, in, bytes, cudaMemcpyDefault,
                                group->stream[LANE]);
    }
    if (error == cudaSuccess) {
        error = cudaEventRecord(group->after, group->stream[LANE]);
    }
    st = st == DYT_OK ? dyti_nccl_cuda(group, error, "a copy") : st;
    return st == DYT_OK ? dyti_nccl_wait_event(group, group->after) : st;
}

enum dyt_status dyti_nccl_all_gather(void *self, const void *in, void *out,
                                     const uint64_t *counts_bytes)
{
    struct dyti_nccl_group *group = self;
    uint64_t mine = counts_bytes[group->rank], sum = 0;
    bool are_alike = true;
    ncclResult_t result;
    enum dyt_status st = dyti_nccl_enter(group);

    for (uint32_t m = 0; m < group->size; m++) {
        sum += counts_bytes[m];
        are_alike = are_alike && counts_bytes[m] == mine;
    }
    st =
        st == DYT_OK ? dyti_nccl_meet(group, DYTI_NCCL_ALL_GATHER, 0, sum) : st;
    if (st != DYT_OK || sum == 0) {
        return st;
    }
    if (group->size == 1) {
        return copy_own(group, out, in, mine);
    }
    group->traffic.sent_bytes += mine;
    group->traffic.received_bytes += sum - mine;
    st = dyti_nccl_begin(group);
    if (st != DYT_OK) {
        return st;
    }
    result = are_alike ? group->nccl->ncclAllGather(in, out, mine, ncclUint8,
                                                    group->comm[LANE],
                                                    group->stream[LANE])
                       : gather_parts(group, in, out, counts_bytes);
    return dyti_nccl_end(group, result, "the all-gather");
}

/* ---- exchange ------------------------------------------------------------ */

static enum dyt_status copy_to_oneself(void *arg, void *to, const void *from,
                                       uint64_t size_bytes)
{
    struct dyti_nccl_group *group = arg;

    return dyti_nccl_cuda(group,
                          cudaMemcpyAsync(to, from, size_bytes,
                                          cudaMemcpyDefault,
                                          group->stream[LANE]),
                          "a message to itself");
}

static ncclResult_t exchange_others(struct dyti_nccl_group *group,
                                    const struct dyti_p2p *message,
                                    size_t count)
{
    const struct dyti_nccl_calls *nccl = group->nccl;
    ncclResult_t result = nccl->ncclGroupStart(), end;

    for (size_t i = 0; i < count && result == ncclSuccess; i++) {
        const struct dyti_p2p *m = &message[i];

        if (m->peer == group->rank || m->size_bytes == 0) {
            continue;
        }
        *(m->is_send ? &group->traffic.sent_bytes
                     : &group->traffic.received_bytes) += m->size_bytes;
        result =
            m->is_send
                ? nccl->ncclSend(m->buf, m->size_bytes, ncclUint8, (int)m->peer,
                                 group->comm[LANE], group->stream[LANE])
                : nccl->ncclRecv(m->buf, m->size_bytes, ncclUint8, (int)m->peer,
                                 group->comm[LANE], group->stream[LANE]);
    }
    end = nccl->ncclGroupEnd();
    return result != ncclSuccess ? result : end;
}

enum dyt_status dyti_nccl_exchange(void *self, const struct dyti_p2p *message,
                                   size_t count)
{
    struct dyti_nccl_group *group = self;
    bool has_others = false;
    enum dyt_status st = dyti_nccl_enter(group);

    for (size_t i = 0; i < count && st == DYT_OK; i++) {
        if (message[i].peer >= group->size) {
            st = DYTI_FAIL(DYT_ERR_INVALID,
                           "group %s: message %zu is for member %u of %u",
                           group->name, i, message[i].peer, group->size);
        }
        has_others = has_others || (message[i].peer != group->rank &&
                                    message[i].size_bytes > 0);
    }
    st = st == DYT_OK ? dyti_nccl_meet(group, DYTI_NCCL_EXCHANGE, 0, 0) : st;
    st = st == DYT_OK ? dyti_nccl_begin(group) : st;
    st = st == DYT_OK
             ? dyti_group_own_messages(group->name, group->rank, message, count,
                                       copy_to_oneself, group)
             : st;
    if (st != DYT_OK) {
        return st;
    }
    return dyti_nccl_end(group,
                         has_others ? exchange_others(group, message, count)
                                    : ncclSuccess,
                         "the exchange");
}
