/* Which messages have met: an offer of one end waits in its pair's list for
 * that of the other; when it comes, both stand in the queues of both members.
 * All under one lock, so that the queues agree on what is first. */
#include "comm/nccl/nccl_group.h"

#include <string.h>

/* Who holds it may have died: the abort word says so. */
static enum dyt_status take_lock(struct dyti_nccl_group *group)
{
    int64_t deadline = dyti_nccl_deadline(group);
    uint32_t turn = 0, nobody = 0;

    while (!atomic_compare_exchange_weak(&group->home->lock, &nobody,
                                         group->rank + 1)) {
        uint32_t who = nobody;
        enum dyt_status st = dyti_nccl_look_at_abort(group);

        nobody = 0;
        if (st != DYT_OK) {
            return st;
        }
        if (deadline > 0 && who > 0 && dyti_nccl_now_ns() > deadline) {
            return dyti_nccl_break(
                group, DYTI_FAIL(DYT_ERR_TIMEOUT,
                                 "group %s: rank %u waited %lld ms for rank %u "
                                 "to let go of the list of messages",
                                 group->name, group->world_rank[group->rank],
                                 (long long)(group->timeout_ns / 1000000),
                                 group->world_rank[who - 1]));
        }
        dyti_nccl_rest(&turn);
    }
    return DYT_OK;
}

static void let_go(struct dyti_nccl_group *group)
{
    atomic_store(&group->home->lock, 0);
}

static void queue(struct dyti_nccl_group *group, uint32_t member,
                  uint16_t place)
{
    struct dyti_nccl_member *m = &group->member[member];
    uint32_t at = atomic_load(&m->queued);

    m->queue[at % DYTI_GROUP_POSTS] = place;
    atomic_store(&m->queued, at + 1);
}

/* Two ends of one message. */
static void meet(struct dyti_nccl_group *group, uint32_t source, uint16_t from,
                 uint32_t dest, uint16_t to)
{
    struct dyti_nccl_offer *send = &group->member[source].offer[from - 1];
    struct dyti_nccl_offer *recv = &group->member[dest].offer[to - 1];

    memcpy(recv->head, send->head, sizeof(recv->head));
    send->is_wrong = recv->is_wrong = send->bytes != recv->bytes;
    send->other_bytes = recv->bytes;
    recv->other_bytes = send->bytes;
    queue(group, source, from);
    queue(group, dest, to);
}

static enum dyt_status offer_here(struct dyti_nccl_group *group, uint16_t place)
{
    struct dyti_nccl_offer *mine = &group->member[group->rank].offer[place - 1];
    uint32_t source = mine->is_send ? group->rank : mine->peer;
    uint32_t dest = mine->is_send ? mine->peer : group->rank;
    struct dyti_nccl_pair *pair = &group->pair[source * group->size + dest];
    enum dyt_status st = take_lock(group);

    if (st != DYT_OK) {
        return st;
    }
    if (pair->first != 0 && pair->are_sends != mine->is_send) {
        uint16_t other = pair->first;

        pair->first = group->member[mine->peer].offer[other - 1].next;
        pair->last = pair->first == 0 ? 0 : pair->last;
        meet(group, source, mine->is_send ? place : other, dest,
             mine->is_send ? other : place);
    } else {
        mine->next = 0;
        if (pair->first == 0) {
            pair->first = place;
        } else {
            group->member[group->rank].offer[pair->last - 1].next = place;
        }
        pair->last = place;
        pair->are_sends = mine->is_send;
    }
    let_go(group);
    return DYT_OK;
}

enum dyt_status dyti_nccl_offer(struct dyti_nccl_group *group, uint16_t place)
{
    return group->desk != NULL ? dyti_nccl_desk_offer(group, place, NULL, 0)
                               : offer_here(group, place);
}

/* ---- joint messages -------------------------------------------------------
 */

/* A member's part in the one of `like`, among those that wait; 0: none. */
static uint16_t part_of(struct dyti_nccl_group *group, uint32_t member,
                        const struct dyti_nccl_offer *like)
{
    uint16_t at = group->member[member].joints;

    while (at != 0) {
        const struct dyti_nccl_offer *offer =
            &group->member[member].offer[at - 1];

        if (offer->epoch == like->epoch && offer->number == like->number) {
            break;
        }
        at = offer->next;
    }
    return at;
}

static void unlink_part(struct dyti_nccl_member *member, uint16_t place)
{
    uint16_t *at = &member->joints;

    while (*at != place) {
        at = &member->offer[*at - 1].next;
    }
    *at = member->offer[place - 1].next;
}

/* All of them are here: into all their queues. */
static void meet_jointly(struct dyti_nccl_group *group,
                         const struct dyti_nccl_offer *mine,
                         const uint32_t *member, uint32_t size)
{
    bool is_wrong = false;

    for (uint32_t i = 0; i < size; i++) {
        uint16_t place = part_of(group, member[i], mine);

        is_wrong = is_wrong ||
                   group->member[member[i]].offer[place - 1].form != mine->form;
    }
    for (uint32_t i = 0; i < size; i++) {
        struct dyti_nccl_member *m = &group->member[member[i]];
        uint16_t place = part_of(group, member[i], mine);

        unlink_part(m, place);
        m->offer[place - 1].is_wrong = is_wrong;
        queue(group, member[i], place);
    }
}

enum dyt_status dyti_nccl_offer_joint(struct dyti_nccl_group *group,
                                      uint16_t place, const uint32_t *member,
                                      uint32_t size)
{
    struct dyti_nccl_member *me = &group->member[group->rank];
    struct dyti_nccl_offer *mine = &me->offer[place - 1];
    uint32_t here = 0;
    enum dyt_status st;

    if (group->desk != NULL) {
        return dyti_nccl_desk_offer(group, place, member, size);
    }
    st = take_lock(group);

    if (st != DYT_OK) {
        return st;
    }
    if (part_of(group, group->rank, mine) != 0) {
        let_go(group);
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "group %s: rank %u posts joint message %llu twice",
                         group->name, group->world_rank[group->rank],
                         (unsigned long long)mine->number);
    }
    mine->next = me->joints;
    me->joints = place;
    while (here < size && part_of(group, member[here], mine) != 0) {
        here++;
    }
    if (here == size) {
        meet_jointly(group, mine, member, size);
    }
    let_go(group);
    return DYT_OK;
}

uint32_t dyti_nccl_who_lacks(struct dyti_nccl_group *group, uint16_t place,
                             const uint32_t *member, uint32_t size)
{
    const struct dyti_nccl_offer *mine =
        &group->member[group->rank].offer[place - 1];
    uint32_t who = UINT32_MAX;

    if (group->desk != NULL) {
        return dyti_nccl_desk_who_lacks(group, place, member, size);
    }
    if (take_lock(group) != DYT_OK) {
        return who;
    }
    if (part_of(group, group->rank, mine) == place) {
        for (uint32_t i = 0; i < size && who == UINT32_MAX; i++) {
            who = part_of(group, member[i], mine) == 0 ? member[i] : who;
        }
    }
    let_go(group);
    return who;
}

/* ---- what is taken and given back -----------------------------------------
 */

enum dyt_status dyti_nccl_take_some(struct dyti_nccl_group *group,
                                    uint16_t *place, uint32_t cap,
                                    uint32_t *out_count)
{
    struct dyti_nccl_member *me = &group->member[group->rank];
    uint32_t count = 0;
    enum dyt_status st;

    *out_count = 0;
    if (atomic_load(&me->queued) == me->taken) {
        return DYT_OK;
    }
    st = take_lock(group);
    if (st != DYT_OK) {
        return st;
    }
    while (count < cap && me->taken != atomic_load(&me->queued)) {
        place[count++] = me->queue[me->taken++ % DYTI_GROUP_POSTS];
    }
    let_go(group);
    *out_count = count;
    return DYT_OK;
}

enum dyt_status dyti_nccl_take_met(struct dyti_nccl_group *group,
                                   uint16_t place[DYTI_GROUP_POSTS],
                                   uint32_t *out_count)
{
    if (group->desk != NULL) {
        *out_count = 0;
        return group->posts.open == 0
                   ? DYT_OK
                   : dyti_nccl_desk_take(group, place, out_count);
    }
    return dyti_nccl_take_some(group, place, DYTI_GROUP_POSTS, out_count);
}

/* Out of a pair's list, all of them: they are this member's. */
static void drop_list(struct dyti_nccl_group *group,
                      struct dyti_nccl_pair *pair, bool are_sends,
                      bool is_met[DYTI_GROUP_POSTS])
{
    if (pair->are_sends != are_sends) {
        return;
    }
    for (uint16_t at = pair->first; at != 0;
         at = group->member[group->rank].offer[at - 1].next) {
        is_met[at - 1] = false;
    }
    pair->first = pair->last = 0;
}

enum dyt_status dyti_nccl_withdraw(struct dyti_nccl_group *group,
                                   bool is_met[DYTI_GROUP_POSTS])
{
    enum dyt_status st;

    if (group->desk != NULL) {
        return dyti_nccl_desk_withdraw(group, is_met);
    }
    st = take_lock(group);

    if (st != DYT_OK) {
        return st;
    }
    for (uint32_t i = 0; i < DYTI_GROUP_POSTS; i++) {
        is_met[i] = true;
    }
    for (uint32_t peer = 0; peer < group->size; peer++) {
        drop_list(group, &group->pair[group->rank * group->size + peer], true,
                  is_met);
        drop_list(group, &group->pair[peer * group->size + group->rank], false,
                  is_met);
    }
    for (uint16_t at = group->member[group->rank].joints; at != 0;
         at = group->member[group->rank].offer[at - 1].next) {
        is_met[at - 1] = false;
    }
    group->member[group->rank].joints = 0;
    let_go(group);
    return DYT_OK;
}
