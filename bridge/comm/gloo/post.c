/* Messages between two members.  A message has a slot that both ends know: how
 * often the group was cancelled, its number among those of its pair, and its
 * size; so one of another life, or of another size, never meets the wrong end.
 */
#include "comm/gloo/gloo_group.h"

#include <stdlib.h>
#include <string.h>

static uint64_t slot_of(const struct dyti_gloo_group *group, uint64_t number,
                        uint64_t bytes)
{
    return UINT64_C(1) << 63 | (uint64_t)(group->life & 0x3ffu) << 52 |
           (number & 0xfffffu) << 32 | (bytes & 0xffffffffu);
}

enum dyt_status dyti_gloo_posts_init(struct dyti_gloo_group *group)
{
    group->sent = calloc(group->size, sizeof(*group->sent));
    group->taken = calloc(group->size, sizeof(*group->taken));
    if (group->sent == NULL || group->taken == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "messages of %u members", group->size);
    }
    for (uint32_t i = 0; i < DYTI_GROUP_POSTS; i++) {
        group->flight[i].next =
            (uint16_t)(i + 1 < DYTI_GROUP_POSTS ? i + 2 : 0);
    }
    group->unused = 1;
    return DYT_OK;
}

static void drop_all(struct dyti_gloo_group *group)
{
    for (uint32_t i = 0; i < DYTI_GROUP_POSTS; i++) {
        struct dyti_gloo_flight *flight = &group->flight[i];

        if (!flight->open) {
            continue;
        }
        if (flight->message != NULL && group->gloo != NULL) {
            dyti_gloo_drop(group->gloo, flight->message);
        }
        flight->message = NULL;
        flight->open = false;
        flight->next = group->unused;
        group->unused = (uint16_t)(i + 1);
    }
    group->open = 0;
}

void dyti_gloo_posts_fini(struct dyti_gloo_group *group)
{
    drop_all(group);
    free(group->sent);
    free(group->taken);
}

static enum dyt_status lost(struct dyti_gloo_group *group, uint32_t peer)
{
    enum dyt_status st = dyti_gloo_look_at_abort(group);

    if (st == DYT_OK) {
        st = DYTI_FAIL(DYT_ERR_PEER, "group %s: rank %u lost rank %u: %s",
                       group->name, group->world_rank[group->rank],
                       group->world_rank[peer], group->text);
        group->broken = st;
    }
    return st;
}

enum dyt_status dyti_gloo_group_post(void *self, const struct dyti_p2p *message,
                                     uint64_t *out_ticket)
{
    struct dyti_gloo_group *group = self;
    uint16_t place = group->unused;
    struct dyti_gloo_flight *flight;
    uint64_t *number;
    enum dyt_status st = dyti_gloo_enter(group);

    if (st != DYT_OK) {
        return st;
    }
    if (message->peer >= group->size || message->peer == group->rank) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "group %s: member %u has a message for member %u of "
                         "%u",
                         group->name, group->rank, message->peer, group->size);
    }
    if (place == 0) {
        return DYT_PENDING;
    }
    flight = &group->flight[place - 1];
    number = (message->is_send ? group->sent : group->taken) + message->peer;
    flight->message = NULL;
    flight->ended = message->size_bytes == 0; /* nothing to carry */
    if (!flight->ended &&
        dyti_gloo_post(group->gloo, message->peer, message->is_send,
                       message->buf, message->size_bytes,
                       slot_of(group, *number, message->size_bytes),
                       &flight->message, group->text,
                       sizeof(group->text)) != DYTI_GLOO_OK) {
        return lost(group, message->peer);
    }
    (*number)++;
    group->unused = flight->next;
    group->open += !flight->ended;
    group->moved_ns = dyti_gloo_now_ns();
    flight->p2p = *message;
    flight->open = true;
    flight->life++;
    *out_ticket = (uint64_t)flight->life << 32 | place;
    return DYT_OK;
}

enum dyt_status dyti_gloo_group_poll(void *self, uint64_t ticket)
{
    struct dyti_gloo_group *group = self;
    uint32_t place = (uint32_t)ticket;
    struct dyti_gloo_flight *flight;
    enum dyti_gloo_result result = DYTI_GLOO_OK;

    if (place == 0 || place > DYTI_GROUP_POSTS ||
        !group->flight[place - 1].open ||
        group->flight[place - 1].life != (uint32_t)(ticket >> 32)) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "group %s: no message has the ticket %llx",
                         group->name, (unsigned long long)ticket);
    }
    flight = &group->flight[place - 1];
    if (!flight->ended) {
        /* Counted before looking: one that ends afterwards rings. */
        group->seen = dyti_gloo_ended(group->gloo);
        result = dyti_gloo_poll(group->gloo, flight->message, group->text,
                                sizeof(group->text));
        if (result == DYTI_GLOO_PENDING) {
            return DYT_PENDING;
        }
        group->open--;
        group->moved_ns = dyti_gloo_now_ns();
    }
    flight->message = NULL;
    flight->open = false;
    flight->next = group->unused;
    group->unused = (uint16_t)place;
    if (result != DYTI_GLOO_OK) {
        return lost(group, flight->p2p.peer);
    }
    *(flight->p2p.is_send ? &group->traffic.sent_bytes
                          : &group->traffic.received_bytes) +=
        flight->p2p.size_bytes;
    return DYT_OK;
}

/* The first message that is still under way. */
static enum dyt_status too_late(struct dyti_gloo_group *group)
{
    for (uint32_t i = 0; i < DYTI_GROUP_POSTS; i++) {
        const struct dyti_gloo_flight *flight = &group->flight[i];

        if (flight->open && !flight->ended) {
            return DYTI_FAIL(
                DYT_ERR_TIMEOUT, "group %s: rank %u waited %lld ms %s rank %u",
                group->name, group->world_rank[group->rank],
                (long long)(group->timeout_ns / 1000000),
                flight->p2p.is_send ? "for a message to be taken by"
                                    : "for a message of",
                group->world_rank[flight->p2p.peer]);
        }
    }
    return DYT_OK;
}

enum dyt_status dyti_gloo_group_wait(void *self)
{
    struct dyti_gloo_group *group = self;
    enum dyt_status st = DYT_OK;

    if (group->broken != DYT_OK) {
        return dyti_gloo_enter(group);
    }
    st = dyti_gloo_look_at_abort(group);
    if (st != DYT_OK || group->open == 0) {
        return st;
    }
    if (group->timeout_ns > 0 &&
        dyti_gloo_now_ns() - group->moved_ns >= group->timeout_ns) {
        return too_late(group); /* of a message: members can still meet */
    }
    (void)dyti_gloo_wait(group->gloo, group->seen, DYTI_GLOO_SLICE_MS);
    return DYT_OK;
}

void dyti_gloo_group_cancel(void *self)
{
    struct dyti_gloo_group *group = self;

    drop_all(group);
    memset(group->sent, 0, group->size * sizeof(*group->sent));
    memset(group->taken, 0, group->size * sizeof(*group->taken));
    group->life++;
}

/* ---- exchange ------------------------------------------------------------ */

static enum dyt_status copy_to_oneself(void *arg, void *to, const void *from,
                                       uint64_t size_bytes)
{
    (void)arg;
    memcpy(to, from, size_bytes);
    return DYT_OK;
}

static enum dyt_status finish(struct dyti_gloo_group *group, uint64_t ticket)
{
    enum dyt_status st;

    while ((st = dyti_gloo_group_poll(group, ticket)) == DYT_PENDING) {
        st = dyti_gloo_group_wait(group);
        if (st != DYT_OK) {
            break;
        }
    }
    return st;
}

enum dyt_status dyti_gloo_exchange(void *self, const struct dyti_p2p *message,
                                   size_t count)
{
    struct dyti_gloo_group *group = self;
    uint64_t *ticket;
    size_t first = 0;
    enum dyt_status st = dyti_gloo_enter(group);

    for (size_t i = 0; i < count && st == DYT_OK; i++) {
        if (message[i].peer >= group->size) {
            st = DYTI_FAIL(DYT_ERR_INVALID,
                           "group %s: message %zu is for member %u of %u",
                           group->name, i, message[i].peer, group->size);
        }
    }
    if (st != DYT_OK) {
        return st;
    }
    ticket = calloc(count + 1, sizeof(*ticket));
    if (ticket == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu messages", count);
    }
    /* Many at once are posted as there is room; one to oneself is a copy. */
    st = dyti_group_own_messages(group->name, group->rank, message, count,
                                 copy_to_oneself, NULL);
    for (size_t i = 0; i < count && st == DYT_OK; i++) {
        if (message[i].peer == group->rank) {
            continue;
        }
        st = dyti_gloo_group_post(group, &message[i], &ticket[i]);
        while (st == DYT_PENDING && first < i) { /* no room: end the oldest */
            st = ticket[first] == 0 ? DYT_OK : finish(group, ticket[first]);
            ticket[first++] = 0;
            st = st != DYT_OK
                     ? st
                     : dyti_gloo_group_post(group, &message[i], &ticket[i]);
        }
    }
    for (size_t i = first; i < count && st == DYT_OK; i++) {
        st = ticket[i] == 0 ? DYT_OK : finish(group, ticket[i]);
    }
    free(ticket);
    return st;
}
