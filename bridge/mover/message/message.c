/* Each message carries a head that says whose it is: the switch, and the number
 * among those of its pair.  What was lost, came twice, or is left over from an
 * earlier switch so has a name, whatever the group does.  Where the group can,
 * payloads go through: made and taken in the memory that it shares. */
#include "mover/message/message.h"

#include <stdlib.h>
#include <string.h>

#define MAGIC 0x6479746d73673031u

struct head {
    uint64_t magic, epoch;
    uint64_t number; /* from 0, of this ordered pair in this switch */
    uint64_t bytes;  /* of the payload */
    uint32_t from, to;
};
_Static_assert(sizeof(struct head) <= DYTI_MOVER_HEAD_BYTES, "room of a head");

struct message;

struct flight {
    uint64_t group_ticket, number;
    struct head *head;
    uint64_t bytes;
    struct dyti_p2p_through part; /* what the group asks: head and payload */
    const struct dyti_p2p_through *through; /* the payload, borrowed; or NULL */
    const struct message *mover;
    uint32_t peer;
    uint64_t mark;
    uint32_t life;  /* of this place; the ticket holds it */
    uint32_t place; /* in mover->open */
    uint16_t next;  /* of the free ones: index + 1 */
    bool open, is_send;
    bool foreign; /* its head is not the one that was due */
};

struct message {
    struct dyti_group group; /* borrowed handle */
    uint32_t rank, world_size;
    uint64_t epoch;
    uint64_t *sent, *received; /* [world_size] posted in this switch, owned */
    uint16_t unused;           /* index + 1 */
    struct flight flight[DYTI_GROUP_POSTS];
    uint16_t open[DYTI_GROUP_POSTS]; /* [open_count] index + 1 */
    uint32_t open_count;
};

static void free_flights(struct message *mover)
{
    for (uint32_t i = 0; i < DYTI_GROUP_POSTS; i++) {
        mover->flight[i].open = false;
        mover->flight[i].next =
            (uint16_t)(i + 1 < DYTI_GROUP_POSTS ? i + 2 : 0);
    }
    mover->unused = 1;
    mover->open_count = 0;
}

static void message_close(void *self)
{
    struct message *mover = self;

    if (mover != NULL) {
        free(mover->sent);
        free(mover->received);
        free(mover);
    }
}

static enum dyt_status message_open(const struct dyti_mover_params *params,
                                    void **out_self)
{
    const struct dyti_group *group = params->group;
    struct message *mover;

    if (group == NULL || group->ops == NULL || group->ops->post == NULL ||
        group->size != params->world_size || group->rank != params->rank) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "message mover of rank %u of %u: a group of all ranks "
                         "that can post messages is needed",
                         params->rank, params->world_size);
    }
    mover = calloc(1, sizeof(*mover));
    if (mover != NULL) {
        mover->sent = calloc(params->world_size, sizeof(*mover->sent));
        mover->received = calloc(params->world_size, sizeof(*mover->received));
    }
    if (mover == NULL || mover->sent == NULL || mover->received == NULL) {
        message_close(mover);
        return DYTI_FAIL(DYT_ERR_NOMEM, "message mover of rank %u",
                         params->rank);
    }
    mover->group = *group;
    mover->rank = params->rank;
    mover->world_size = params->world_size;
    free_flights(mover);
    *out_self = mover;
    return DYT_OK;
}

static bool message_through(const void *self)
{
    const struct message *mover = self;

    return (mover->group.ops->caps & DYTI_GROUP_CAP_THROUGH) != 0;
}

static enum dyt_status check(const struct message *mover,
                             const struct dyti_move *move)
{
    if (move->kind != DYTI_MOVE_SEND && move->kind != DYTI_MOVE_RECV) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "rank %u: messages carry dense bytes, not %zu strided "
                         "copies",
                         mover->rank, move->copy_count);
    }
    if (move->peer >= mover->world_size || move->peer == mover->rank ||
        move->buf == NULL ||
        (move->through != NULL && !message_through(mover))) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "rank %u: a message of %llu bytes with rank %u of %u",
                         mover->rank, (unsigned long long)move->size_bytes,
                         move->peer, mover->world_size);
    }
    return DYT_OK;
}

static bool is_due(const struct message *mover, const struct flight *flight)
{
    const struct head *head = flight->head;

    return head->magic == MAGIC && head->from == flight->peer &&
           head->to == mover->rank && head->bytes == flight->bytes &&
           head->epoch == mover->epoch && head->number == flight->number;
}

/* The head from and to its slot, the payload from and to where it belongs; that
 * of another message nowhere: poll() will name it. */
static enum dyt_status part_of(void *arg, uint64_t at, void *dense,
                               uint64_t bytes)
{
    struct flight *flight = arg;
    unsigned char *from = dense;

    if (at < DYTI_MOVER_HEAD_BYTES) {
        unsigned char *head = (unsigned char *)flight->head + at;
        uint64_t now = DYTI_MOVER_HEAD_BYTES - at;

        now = now < bytes ? now : bytes;
        memcpy(flight->is_send ? from : head, flight->is_send ? head : from,
               now);
        at += now;
        from += now;
        bytes -= now;
        flight->foreign = !flight->is_send && at == DYTI_MOVER_HEAD_BYTES &&
                          !is_due(flight->mover, flight);
    }
    return bytes == 0 || flight->foreign
               ? DYT_OK
               : flight->through->part(flight->through->arg,
                                       at - DYTI_MOVER_HEAD_BYTES, from, bytes);
}

static enum dyt_status message_post(void *self, const struct dyti_move *move,
                                    dyti_ticket *out_ticket)
{
    struct message *mover = self;
    bool is_send = move->kind == DYTI_MOVE_SEND;
    uint16_t place = mover->unused;
    struct dyti_p2p p2p = {.peer = move->peer, .is_send = is_send};
    struct flight *flight;
    struct head *head;
    enum dyt_status st = check(mover, move);

    if (st != DYT_OK) {
        return st;
    }
    if (place == 0) {
        return DYT_PENDING;
    }
    head = (struct head *)(void *)((unsigned char *)move->buf -
                                   DYTI_MOVER_HEAD_BYTES);
    flight = &mover->flight[place - 1];
    flight->number =
        is_send ? mover->sent[move->peer] : mover->received[move->peer];
    if (is_send) {
        memset(head, 0, DYTI_MOVER_HEAD_BYTES);
        *head = (struct head){MAGIC,          mover->epoch,
                              flight->number, move->size_bytes,
                              mover->rank,    move->peer};
    }
    flight->head = head;
    flight->bytes = move->size_bytes;
    flight->peer = move->peer;
    flight->is_send = is_send;
    flight->foreign = false;
    flight->mover = mover;
    flight->through = move->through;
    flight->mark = move->mark;
    flight->place = mover->open_count;
    flight->part = (struct dyti_p2p_through){part_of, flight};
    p2p.buf = head;
    p2p.through = move->through == NULL ? NULL : &flight->part;
    p2p.size_bytes = move->size_bytes + DYTI_MOVER_HEAD_BYTES;
    st = mover->group.ops->post(mover->group.self, &p2p, &flight->group_ticket);
    if (st != DYT_OK) {
        return st;
    }
    mover->unused = flight->next;
    (is_send ? mover->sent : mover->received)[move->peer]++;
    flight->open = true;
    mover->open[mover->open_count++] = place;
    flight->life++;
    *out_ticket = (uint64_t)flight->life << 32 | place;
    return DYT_OK;
}

/* What has come is what was waited for. */
static enum dyt_status check_head(const struct message *mover,
                                  const struct flight *flight)
{
    const struct head *head = flight->head;

    if (head->magic != MAGIC || head->from != flight->peer ||
        head->to != mover->rank || head->bytes != flight->bytes) {
        return DYTI_FAIL(DYT_ERR_PEER,
                         "what rank %u sent rank %u is no message of a switch, "
                         "or another's",
                         flight->peer, mover->rank);
    }
    if (head->epoch != mover->epoch) {
        return DYTI_FAIL(DYT_ERR_PEER,
                         "a late message of switch %llu from rank %u came in "
                         "switch %llu",
                         (unsigned long long)head->epoch, flight->peer,
                         (unsigned long long)mover->epoch);
    }
    if (head->number != flight->number) {
        return DYTI_FAIL(
            DYT_ERR_PEER, "message %llu from rank %u %s: message %llu was due",
            (unsigned long long)head->number, flight->peer,
            head->number < flight->number ? "came twice"
                                          : "came, one before it is lost",
            (unsigned long long)flight->number);
    }
    return DYT_OK;
}

static enum dyt_status end_flight(struct message *mover, uint16_t place,
                                  enum dyt_status st)
{
    struct flight *flight = &mover->flight[place - 1];
    uint16_t last = mover->open[--mover->open_count];

    mover->open[flight->place] = last;
    mover->flight[last - 1].place = flight->place;
    flight->open = false;
    flight->next = mover->unused;
    mover->unused = place;
    if (st != DYT_OK) {
        DYTI_NOTE("%s rank %u",
                  flight->is_send ? "sending to" : "receiving from",
                  flight->peer);
        return st;
    }
    return flight->is_send ? DYT_OK : check_head(mover, flight);
}

static enum dyt_status message_poll(void *self, dyti_ticket ticket)
{
    struct message *mover = self;
    uint32_t place = (uint32_t)ticket;
    struct flight *flight;
    enum dyt_status st;

    if (place == 0 || place > DYTI_GROUP_POSTS ||
        !mover->flight[place - 1].open ||
        mover->flight[place - 1].life != (uint32_t)(ticket >> 32)) {
        return DYTI_FAIL(DYT_ERR_INVALID, "rank %u: no message has ticket %llx",
                         mover->rank, (unsigned long long)ticket);
    }
    flight = &mover->flight[place - 1];
    st = mover->group.ops->poll(mover->group.self, flight->group_ticket);
    if (st == DYT_PENDING) {
        return st;
    }
    return end_flight(mover, (uint16_t)place, st);
}

/* That of a ticket of the group: there are few.  0: it is nobody's. */
static uint16_t flight_of(const struct message *mover, uint64_t group_ticket)
{
    for (uint32_t i = 0; i < mover->open_count; i++) {
        if (mover->flight[mover->open[i] - 1].group_ticket == group_ticket) {
            return mover->open[i];
        }
    }
    return 0;
}

/* A group that says what has landed, or each asked in turn. */
static enum dyt_status message_landed(void *self, uint64_t *mark, uint32_t cap,
                                      uint32_t *out_count)
{
    struct message *mover = self;
    const struct dyti_group_ops *ops = mover->group.ops;
    uint32_t count = 0;
    enum dyt_status st = DYT_OK;

    *out_count = 0;
    if (ops->landed != NULL) {
        st = ops->landed(mover->group.self, mark, cap, &count);
        for (uint32_t i = 0; i < count && st == DYT_OK; i++) {
            uint16_t place = flight_of(mover, mark[i]);

            if (place == 0) {
                return DYTI_FAIL(DYT_ERR_INVALID,
                                 "rank %u: a message that nobody posted has "
                                 "landed",
                                 mover->rank);
            }
            mark[i] = mover->flight[place - 1].mark;
            st = end_flight(mover, place, DYT_OK);
        }
        *out_count = count;
        return st;
    }
    for (uint32_t i = 0;
         i < mover->open_count && count < cap && st == DYT_OK;) {
        uint16_t place = mover->open[i];

        st =
            ops->poll(mover->group.self, mover->flight[place - 1].group_ticket);
        if (st == DYT_PENDING) {
            st = DYT_OK;
            i++;
        } else {
            mark[count++] = mover->flight[place - 1].mark;
            st = end_flight(mover, place, st); /* another takes its place */
        }
    }
    *out_count = count;
    return st;
}

static enum dyt_status message_wait(void *self)
{
    struct message *mover = self;

    return mover->group.ops->wait(mover->group.self);
}

/* The peers may still send: what comes is dropped when the next switch begins.
 */
static void message_cancel(void *self)
{
    struct message *mover = self;

    free_flights(mover);
}

static void message_begin(void *self, uint64_t epoch)
{
    struct message *mover = self;

    mover->group.ops->cancel(mover->group.self); /* all of them, as it wants */
    free_flights(mover);
    memset(mover->sent, 0, mover->world_size * sizeof(*mover->sent));
    memset(mover->received, 0, mover->world_size * sizeof(*mover->received));
    mover->epoch = epoch;
}

const struct dyti_mover_ops dyti_mover_message = {
    .struct_size = sizeof(struct dyti_mover_ops),
    .name = "message",
    .caps = DYTI_MOVER_CAP_MESSAGE,
    .open = message_open,
    .close = message_close,
    .post = message_post,
    .poll = message_poll,
    .cancel = message_cancel,
    .begin = message_begin,
    .wait = message_wait,
    .through = message_through,
    .landed = message_landed,
};
