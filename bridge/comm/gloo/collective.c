/* Every collective begins with an all-gather of what each member thinks it is,
 * so that different calls are an error and not a wait for ever. */
#include "comm/gloo/gloo_group.h"

#include <string.h>

uint64_t dyti_gloo_tag(enum dyti_gloo_call call, uint32_t detail,
                       uint64_t amount)
{
    return (uint64_t)call << 56 | (uint64_t)(detail & 0xffffu) << 40 |
           (amount & 0xffffffffffu);
}

/* All members have come to the same call. */
static enum dyt_status meet(struct dyti_gloo_group *group, uint64_t tag)
{
    int64_t start = dyti_gloo_now_ns();
    enum dyti_gloo_result result;

    group->round++;
    atomic_store(&dyti_gloo_member_at(group, group->rank)->round, group->round);
    group->tags[group->rank] = tag;
    dyti_gloo_busy(group, true);
    result = dyti_gloo_all_gather(group->gloo, &group->tags[group->rank],
                                  group->tags, group->tag_bytes, group->text,
                                  sizeof(group->text));
    dyti_gloo_busy(group, false);
    if (result != DYTI_GLOO_OK) {
        return dyti_gloo_why(group, result, start);
    }
    for (uint32_t i = 0; i < group->size; i++) {
        if (group->tags[i] != tag) {
            return dyti_gloo_broken(
                group,
                DYTI_FAIL(DYT_ERR_INVALID,
                          "group %s: rank %u is in call %016llx and rank %u in "
                          "%016llx: all members must make the same calls",
                          group->name, group->world_rank[group->rank],
                          (unsigned long long)tag, group->world_rank[i],
                          (unsigned long long)group->tags[i]));
        }
    }
    return DYT_OK;
}

enum dyt_status dyti_gloo_begin(struct dyti_gloo_group *group, uint64_t tag)
{
    enum dyt_status st = dyti_gloo_enter(group);

    return st != DYT_OK || group->size == 1 ? st : meet(group, tag);
}

enum dyt_status dyti_gloo_group_barrier(void *self)
{
    return dyti_gloo_begin(self, dyti_gloo_tag(DYTI_GLOO_BARRIER, 0, 0));
}

enum dyt_status dyti_gloo_group_broadcast(void *self, void *buf,
                                          uint64_t size_bytes, uint32_t root)
{
    struct dyti_gloo_group *group = self;
    enum dyt_status st;
    enum dyti_gloo_result result;
    int64_t start;

    if (root >= group->size) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "group %s: broadcast of member %u, there are %u",
                         group->name, root, group->size);
    }
    st = dyti_gloo_begin(group,
                         dyti_gloo_tag(DYTI_GLOO_BROADCAST, root, size_bytes));
    if (st != DYT_OK || size_bytes == 0 || group->size == 1) {
        return st;
    }
    start = dyti_gloo_now_ns();
    dyti_gloo_busy(group, true);
    result = dyti_gloo_broadcast(group->gloo, buf, size_bytes, root,
                                 group->text, sizeof(group->text));
    dyti_gloo_busy(group, false);
    *(group->rank == root ? &group->traffic.sent_bytes
                          : &group->traffic.received_bytes) += size_bytes;
    return result == DYTI_GLOO_OK ? DYT_OK
                                  : dyti_gloo_why(group, result, start);
}

enum dyt_status dyti_gloo_gather(struct dyti_gloo_group *group, const void *in,
                                 void *out, const uint64_t *counts_bytes)
{
    int64_t start = dyti_gloo_now_ns();
    uint64_t sum = 0;
    enum dyti_gloo_result result;

    for (uint32_t i = 0; i < group->size; i++) {
        sum += counts_bytes[i];
    }
    if (sum == 0) {
        return DYT_OK;
    }
    dyti_gloo_busy(group, true);
    result = dyti_gloo_all_gather(group->gloo, in, out, counts_bytes,
                                  group->text, sizeof(group->text));
    dyti_gloo_busy(group, false);
    group->traffic.sent_bytes += counts_bytes[group->rank] * (group->size - 1);
    group->traffic.received_bytes += sum - counts_bytes[group->rank];
    return result == DYTI_GLOO_OK ? DYT_OK
                                  : dyti_gloo_why(group, result, start);
}

enum dyt_status dyti_gloo_group_all_gather(void *self, const void *in,
                                           void *out,
                                           const uint64_t *counts_bytes)
{
    struct dyti_gloo_group *group = self;
    uint64_t sum = 0;
    enum dyt_status st;

    for (uint32_t i = 0; i < group->size; i++) {
        sum += counts_bytes[i];
    }
    st = dyti_gloo_begin(group, dyti_gloo_tag(DYTI_GLOO_ALL_GATHER, 0, sum));
    if (st == DYT_OK && group->size == 1) {
        if (sum > 0 && in != out) {
            memcpy(out, in, sum);
        }
        return DYT_OK;
    }
    return st == DYT_OK ? dyti_gloo_gather(group, in, out, counts_bytes) : st;
}
