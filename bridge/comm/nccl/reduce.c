/* Reductions: NCCL's own, whose result is the same on all members. */
#include "comm/nccl/nccl_group.h"

#define LANE DYTI_NCCL_TOGETHER

struct form {
    ncclDataType_t type;
    ncclRedOp_t op;
    uint32_t bytes;
};

static struct form form_of(enum dyti_reduce op)
{
    switch (op) {
    case DYTI_SUM_F64:
        return (struct form){ncclFloat64, ncclSum, 8};
    case DYTI_MAX_F32:
        return (struct form){ncclFloat32, ncclMax, 4};
    case DYTI_MAX_U64:
        return (struct form){ncclUint64, ncclMax, 8};
    default:
        return (struct form){ncclFloat32, ncclSum, 4};
    }
}

enum dyt_status dyti_nccl_all_reduce(void *self, void *buf, uint64_t count,
                                     enum dyti_reduce op)
{
    struct dyti_nccl_group *group = self;
    struct form form = form_of(op);
    uint64_t share;
    enum dyt_status st = dyti_nccl_enter(group);

    st = st == DYT_OK
             ? dyti_nccl_meet(group, DYTI_NCCL_ALL_REDUCE, (uint32_t)op, count)
             : st;
    if (st != DYT_OK || count == 0 || group->size == 1) {
        return st;
    }
    /* as NCCL's rings: what each gives on, twice but for its own part */
    share = 2 * count * form.bytes * (group->size - 1) / group->size;
    group->traffic.sent_bytes += share;
    group->traffic.received_bytes += share;
    st = dyti_nccl_begin(group);
    return st == DYT_OK
               ? dyti_nccl_end(group,
                               group->nccl->ncclAllReduce(
                                   buf, buf, count, form.type, form.op,
                                   group->comm[LANE], group->stream[LANE]),
                               "the all-reduce")
               : st;
}

/* Each member's part is a reduction of its own, if they are not all alike. */
static ncclResult_t reduce_parts(struct dyti_nccl_group *group,
                                 const unsigned char *in, void *out,
                                 const uint64_t *counts, struct form form)
{
    ncclResult_t result = group->nccl->ncclGroupStart(), end;

    for (uint32_t m = 0; m < group->size; m++) {
        if (counts[m] > 0 && result == ncclSuccess) {
            result = group->nccl->ncclReduce(
                in, m == group->rank ? out : NULL, counts[m], form.type,
                form.op, (int)m, group->comm[LANE], group->stream[LANE]);
        }
        in += counts[m] * form.bytes;
    }
    end = group->nccl->ncclGroupEnd();
    return result != ncclSuccess ? result : end;
}

static enum dyt_status copy_alone(struct dyti_nccl_group *group, void *out,
                                  const void *in, uint64_t bytes)
{
    uint64_t counts[1] = {bytes};

    return group->size == 1 ? dyti_nccl_all_gather(group, in, out, counts)
                            : DYT_OK;
}

enum dyt_status dyti_nccl_reduce_scatter(void *self, const void *in, void *out,
                                         const uint64_t *counts,
                                         enum dyti_reduce op)
{
    struct dyti_nccl_group *group = self;
    struct form form = form_of(op);
    uint64_t mine = counts[group->rank], sum = 0;
    bool are_alike = true;
    ncclResult_t result;
    enum dyt_status st;

    if (group->size == 1) {
        return copy_alone(group, out, in, mine * form.bytes);
    }
    for (uint32_t m = 0; m < group->size; m++) {
        sum += counts[m];
        are_alike = are_alike && counts[m] == mine;
    }
    st = dyti_nccl_enter(group);
    st = st == DYT_OK ? dyti_nccl_meet(group, DYTI_NCCL_REDUCE_SCATTER,
                                       (uint32_t)op, sum)
                      : st;
    if (st != DYT_OK || sum == 0) {
        return st;
    }
    group->traffic.sent_bytes += (sum - mine) * form.bytes;
    group->traffic.received_bytes += mine * form.bytes * (group->size - 1);
    st = dyti_nccl_begin(group);
    if (st != DYT_OK) {
        return st;
    }
    result = are_alike
                 ? group->nccl->ncclReduceScatter(in, out, mine, form.type,
                                                  form.op, group->comm[LANE],
                                                  group->stream[LANE])
                 : reduce_parts(group, in, out, counts, form);
    return dyti_nccl_end(group, result, "the reduce-scatter");
}
