/* The side of a member that asks the first one: one question at a time. */
#include "comm/nccl/desk.h"

#include <stdlib.h>
#include <string.h>

/* Of a member that asks. */
struct dyti_nccl_desk {
    struct dyti_group carrier;
    struct dyti_nccl_request *request; /* with room for a list of all; owned */
    uint64_t request_bytes;
    struct dyti_nccl_reply reply;
    uint64_t ticket[2]; /* reply, question; 0: none is under way */
    bool is_lost;       /* the carrier has failed */
};

/* ---- asking ---------------------------------------------------------------
 */

/* Until a ticket of the carrier is done; it is spent then. */
static enum dyt_status carried(struct dyti_nccl_group *group, uint64_t *ticket,
                               int64_t deadline)
{
    const struct dyti_group *c = &group->desk->carrier;
    uint32_t turn = 0;
    enum dyt_status st;

    while ((st = c->ops->poll(c->self, *ticket)) == DYT_PENDING) {
        st = dyti_nccl_look_at_abort(group);
        if (st == DYT_OK && deadline > 0 && dyti_nccl_now_ns() > deadline) {
            st = DYTI_FAIL(DYT_ERR_TIMEOUT,
                           "group %s: rank %u: no answer of rank %u, which "
                           "keeps the list of messages",
                           group->name, group->world_rank[group->rank],
                           group->world_rank[0]);
        }
        if (st != DYT_OK) {
            return st;
        }
        dyti_nccl_rest(&turn);
    }
    group->desk->is_lost = group->desk->is_lost || st != DYT_OK;
    *ticket = 0;
    return st;
}

/* The question has gone, and the answer has come. */
static enum dyt_status settle(struct dyti_nccl_group *group, int64_t deadline)
{
    struct dyti_nccl_desk *desk = group->desk;
    enum dyt_status st = DYT_OK;

    for (int i = 1; i >= 0 && st == DYT_OK; i--) {
        st = desk->ticket[i] == 0 ? DYT_OK
                                  : carried(group, &desk->ticket[i], deadline);
    }
    return st;
}

static enum dyt_status ask(struct dyti_nccl_group *group, enum dyti_nccl_op op)
{
    struct dyti_nccl_desk *desk = group->desk;
    const struct dyti_group *c = &desk->carrier;
    const struct dyti_p2p message[2] = {
        {.buf = &desk->reply, .size_bytes = sizeof(desk->reply)},
        {.is_send = true,
         .buf = desk->request,
         .size_bytes = desk->request_bytes}};
    int64_t deadline = op == DYTI_NCCL_ASK_OPEN ? dyti_nccl_open_deadline(group)
                                                : dyti_nccl_deadline(group);
    enum dyt_status st = DYT_OK;

    if (group->broken != DYT_OK) {
        return dyti_nccl_enter(group);
    }
    desk->request->op = (uint32_t)op;
    for (int i = 0; i < 2 && st == DYT_OK; i++) {
        st = c->ops->post(c->self, &message[i], &desk->ticket[i]);
    }
    st = st != DYT_OK ? st : settle(group, deadline);
    if (st == DYT_OK && desk->reply.status == (int32_t)DYTI_NCCL_CLOSED) {
        st = DYTI_FAIL(DYT_ERR_PEER,
                       "group %s: rank %u, which keeps the list of messages, "
                       "has left the group",
                       group->name, group->world_rank[0]);
    }
    if (st != DYT_OK) {
        return dyti_nccl_break(group, st);
    }
    return desk->reply.status == DYT_OK
               ? DYT_OK
               : DYTI_FAIL((enum dyt_status)desk->reply.status,
                           "group %s: rank %u keeps the list of messages, and "
                           "refuses",
                           group->name, group->world_rank[0]);
}

enum dyt_status dyti_nccl_desk_open(struct dyti_nccl_group *group,
                                    uint32_t opens, uint32_t *out_who)
{
    enum dyt_status st;

    group->desk->request->number = opens;
    st = ask(group, DYTI_NCCL_ASK_OPEN);
    if (st == DYT_OK) {
        *out_who = group->desk->reply.who;
        memcpy(group->home->id, group->desk->reply.id, sizeof(group->home->id));
        atomic_store(&group->home->id_of,
                     *out_who == group->size ? opens : opens - 1);
    }
    return st;
}

enum dyt_status dyti_nccl_desk_meet(struct dyti_nccl_group *group, uint64_t tag,
                                    uint32_t *out_behind, uint32_t *out_wrong)
{
    enum dyt_status st;

    group->desk->request->number = group->round;
    group->desk->request->tag = tag;
    st = ask(group, DYTI_NCCL_ASK_MEET);
    if (st == DYT_OK) {
        *out_behind = group->desk->reply.who;
        *out_wrong = group->desk->reply.wrong;
    }
    return st;
}

static void put_offer(struct dyti_nccl_group *group, uint16_t place,
                      const uint32_t *member, uint32_t size)
{
    struct dyti_nccl_request *request = group->desk->request;

    request->place = place;
    request->offer = group->member[group->rank].offer[place - 1];
    request->size = size;
    if (size > 0) {
        memcpy(request + 1, member, size * sizeof(*member));
    }
}

enum dyt_status dyti_nccl_desk_offer(struct dyti_nccl_group *group,
                                     uint16_t place, const uint32_t *member,
                                     uint32_t size)
{
    put_offer(group, place, member, size);
    return ask(group, size == 0 ? DYTI_NCCL_ASK_OFFER : DYTI_NCCL_ASK_JOIN);
}

uint32_t dyti_nccl_desk_who_lacks(struct dyti_nccl_group *group, uint16_t place,
                                  const uint32_t *member, uint32_t size)
{
    put_offer(group, place, member, size);
    return ask(group, DYTI_NCCL_ASK_LACKS) == DYT_OK ? group->desk->reply.who
                                                     : UINT32_MAX;
}

enum dyt_status dyti_nccl_desk_take(struct dyti_nccl_group *group,
                                    uint16_t place[DYTI_GROUP_POSTS],
                                    uint32_t *out_count)
{
    const struct dyti_nccl_reply *reply = &group->desk->reply;
    enum dyt_status st = ask(group, DYTI_NCCL_ASK_TAKE);

    for (uint32_t i = 0; st == DYT_OK && i < reply->count; i++) {
        const struct dyti_nccl_met *met = &reply->met[i];
        struct dyti_nccl_offer *offer =
            &group->member[group->rank].offer[met->place - 1];

        place[i] = met->place;
        offer->is_wrong = met->is_wrong;
        offer->other_bytes = met->other_bytes;
        memcpy(offer->head, met->head, sizeof(offer->head));
    }
    *out_count = st == DYT_OK ? reply->count : 0;
    return st;
}

enum dyt_status dyti_nccl_desk_withdraw(struct dyti_nccl_group *group,
                                        bool is_met[DYTI_GROUP_POSTS])
{
    enum dyt_status st = ask(group, DYTI_NCCL_ASK_WITHDRAW);

    if (st == DYT_OK) {
        memcpy(is_met, group->desk->reply.is_met,
               sizeof(group->desk->reply.is_met));
    }
    return st;
}

/* ---- open and close -------------------------------------------------------
 */

enum dyt_status dyti_nccl_desk_begin(struct dyti_nccl_group *group,
                                     const struct dyti_group *carrier,
                                     uint64_t bytes)
{
    struct dyti_nccl_desk *desk = calloc(1, sizeof(*desk));

    group->desk = desk;
    if (desk != NULL) {
        desk->carrier = *carrier;
        desk->request = calloc(1, bytes);
        desk->request_bytes = bytes;
    }
    return desk == NULL || desk->request == NULL
               ? DYTI_FAIL(DYT_ERR_NOMEM, "group %s: room to ask", group->name)
               : DYT_OK;
}

/* Says that it asks no more, also after a failure: the first member waits for
 * it.  Of an answer that was not waited for to the end the carrier has to be
 * free before.  False: it cannot. */
static bool say_goodbye(struct dyti_nccl_group *group)
{
    struct dyti_nccl_desk *desk = group->desk;
    const struct dyti_group *c = &desk->carrier;
    const struct dyti_p2p bye = {.is_send = true,
                                 .buf = desk->request,
                                 .size_bytes = desk->request_bytes};
    int64_t until =
        dyti_nccl_now_ns() +
        (group->broken == DYT_OK ? DYTI_NCCL_BYE_NS : DYTI_NCCL_BRIEF_NS);

    if (desk->request == NULL || desk->is_lost ||
        atomic_load(&group->abort->value) != 0 ||
        settle(group, until) != DYT_OK) {
        return false;
    }
    memset(desk->request, 0, sizeof(*desk->request));
    desk->request->op = DYTI_NCCL_ASK_BYE;
    return c->ops->post(c->self, &bye, &desk->ticket[1]) == DYT_OK &&
           settle(group, until) == DYT_OK;
}

void dyti_nccl_desk_end(struct dyti_nccl_group *group)
{
    struct dyti_nccl_desk *desk = group->desk;

    if (!say_goodbye(group)) {
        desk->carrier.ops->cancel(desk->carrier.self);
    }
    free(desk->request);
    free(desk);
}
