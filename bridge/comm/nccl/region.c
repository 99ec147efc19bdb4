/* The group's region: where what is of whom, and meeting there. */
#include "comm/nccl/nccl_group.h"

#include "base/checked.h"

static uint64_t members_bytes(uint32_t size)
{
    return size * (uint64_t)sizeof(struct dyti_nccl_member);
}

uint64_t dyti_nccl_region_bytes(uint32_t size)
{
    return dyti_align_up(sizeof(struct dyti_nccl_home) + members_bytes(size) +
                             (uint64_t)size * size *
                                 sizeof(struct dyti_nccl_pair),
                         LINE_BYTES);
}

void dyti_nccl_find_region(struct dyti_nccl_group *group)
{
    unsigned char *at = group->shared;

    group->home = (struct dyti_nccl_home *)(void *)at;
    at += sizeof(struct dyti_nccl_home);
    group->member = (struct dyti_nccl_member *)(void *)at;
    at += members_bytes(group->size);
    group->pair = (struct dyti_nccl_pair *)(void *)at;
}

enum dyt_status dyti_nccl_enter(struct dyti_nccl_group *group)
{
    group->traffic.calls++;
    if (group->broken != DYT_OK) {
        return DYTI_FAIL(group->broken,
                         "group %s cannot be used after a failed call",
                         group->name);
    }
    return dyti_nccl_look_at_abort(group);
}

uint32_t dyti_nccl_who_is_behind(const struct dyti_nccl_group *group)
{
    uint32_t i = 0;

    while (i < group->size && (int32_t)(atomic_load(&group->member[i].round) -
                                        group->round) >= 0) {
        i++;
    }
    return i;
}

/* One look: *out_behind has not come, *out_wrong has come to another call. */
static enum dyt_status look_at_all(struct dyti_nccl_group *group, uint64_t tag,
                                   uint32_t *out_behind, uint32_t *out_wrong)
{
    uint32_t parity = group->round & 1u;

    if (group->desk != NULL) {
        return dyti_nccl_desk_meet(group, tag, out_behind, out_wrong);
    }
    *out_behind = dyti_nccl_who_is_behind(group);
    *out_wrong = 0;
    while (*out_behind == group->size && *out_wrong < group->size &&
           group->member[*out_wrong].tag[parity] == tag) {
        (*out_wrong)++;
    }
    return DYT_OK;
}

static enum dyt_status too_late(struct dyti_nccl_group *group, uint32_t behind)
{
    return dyti_nccl_break(
        group, DYTI_FAIL(DYT_ERR_TIMEOUT,
                         "group %s: rank %u waited %lld ms, rank %u is missing",
                         group->name, group->world_rank[group->rank],
                         (long long)(group->timeout_ns / 1000000),
                         group->world_rank[behind]));
}

/* A member writes its tag of a round again two rounds later, when all have come
 * to the one between, and so have read it. */
enum dyt_status dyti_nccl_meet(struct dyti_nccl_group *group,
                               enum dyti_nccl_call call, uint32_t detail,
                               uint64_t amount)
{
    uint64_t tag = (uint64_t)call << 56 | (uint64_t)(detail & 0xffffu) << 40 |
                   (amount & 0xffffffffffu);
    struct dyti_nccl_member *me = &group->member[group->rank];
    int64_t deadline = dyti_nccl_deadline(group);
    uint32_t turn = 0, behind = 0, wrong = 0;
    enum dyt_status st;

    group->round++;
    me->tag[group->round & 1u] = tag;
    atomic_store(&me->round, group->round);
    while ((st = look_at_all(group, tag, &behind, &wrong)) == DYT_OK &&
           behind < group->size) {
        st = dyti_nccl_look_at_abort(group);
        st = st == DYT_OK && group->posts.open > 0 ? dyti_nccl_look(group) : st;
        if (st != DYT_OK) {
            return st;
        }
        if (deadline > 0 && dyti_nccl_now_ns() > deadline) {
            return too_late(group, behind);
        }
        dyti_nccl_rest(&turn);
    }
    if (st == DYT_OK && wrong < group->size) {
        st = dyti_nccl_break(
            group,
            DYTI_FAIL(DYT_ERR_INVALID,
                      "group %s: rank %u is in another call than rank "
                      "%u (%llx)",
                      group->name, group->world_rank[wrong],
                      group->world_rank[group->rank], (unsigned long long)tag));
    }
    return st;
}
