/* Each message carries a head that says whose it is: the switch, and the number
 * among those of its pair.  What was lost, came twice, or is left over from an
 * earlier switch so has a name, whatever the group does.  Where the group can,
 * payloads go through: made and taken in the memory that it shares.  Where its
 * buffers are a device's, heads lie here and payloads there. */
#include "mover/message/message.h"

#include <stdlib.h>
#include <string.h>

#define MAGIC       0x6479746d73673031u
#define ALL_MEMBERS UINT32_MAX /* a head that several get */
#define FUSED_MAX   64u
#define LANDED_MAX  64u

struct head {
    uint64_t magic, epoch;
    uint64_t number; /* from 0, of this ordered pair in this switch */
    uint64_t bytes;  /* of the payload */
    uint32_t from, to;
};
_Static_assert(sizeof(struct head) <= DYTI_MOVER_HEAD_BYTES, "room of a head");

/* Several messages that end together. */
struct fused {
    uint64_t mark;
    uint32_t life, left; /* of its messages; 0: this place is free */
    enum dyt_status status;
};

struct message;

struct flight {
    uint64_t group_ticket, number;
    struct head *head;
    uint64_t bytes;
    struct dyti_p2p_through part; /* what the group asks: head and payload */
    const struct dyti_p2p_through *through; /* the payload, borrowed; or NULL */
    const struct message *mover;
    uint32_t peer;
    uint32_t to;    /* of the head: this rank, or ALL_MEMBERS */
    uint16_t fused; /* index + 1; 0: on its own */
    uint64_t mark;
    uint32_t life;  /* of this place; the ticket holds it */
    uint32_t place; /* in mover->open */
    uint16_t next;  /* of the free ones: index + 1 */
    bool open, is_send;
    bool foreign; /* its head is not the one that was due */
    /* Of a group of a device: `head`; else that is in front of the buffer. */
    _Alignas(16) unsigned char own[DYTI_MOVER_HEAD_BYTES];
};

struct message {
    struct dyti_group group; /* borrowed handle */
    uint32_t rank, world_size;
    bool is_device; /* the group's buffers are */
    uint64_t epoch;
    uint64_t *sent, *received; /* [world_size] posted in this switch, owned */
    uint16_t unused;           /* index + 1 */
    struct flight flight[DYTI_GROUP_POSTS];
    uint16_t open[DYTI_GROUP_POSTS]; /* [open_count] index + 1 */
    uint32_t open_count;
    struct fused fused[FUSED_MAX];
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
    for (uint32_t i = 0; i < FUSED_MAX; i++) {
        mover->fused[i].left = 0;
    }
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
    mover->is_device = (group->ops->caps & DYTI_GROUP_CAP_DEVICE) != 0;
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
                             const struct dyti_move_part *part, uint64_t bytes)
{
    if (part->peer >= mover->world_size || part->peer == mover->rank ||
        part->buf == NULL ||
        (part->through != NULL && !message_through(mover))) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "rank %u: a message of %llu bytes with rank %u of %u",
                         mover->rank, (unsigned long long)bytes, part->peer,
                         mover->world_size);
    }
    return DYT_OK;
}

static bool is_due(const struct message *mover, const struct flight *flight)
{
    const struct head *head = flight->head;

    return head->magic == MAGIC && head->from == flight->peer &&
           head->to == flight->to && head->bytes == flight->bytes &&
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

static bool message_queued(const void *self)
{
    const struct message *mover = self;

    return mover->is_device;
}

static struct head *head_of(const struct dyti_move_part *part)
{
    return (struct head *)(void *)((unsigned char *)part->buf -
                                   DYTI_MOVER_HEAD_BYTES);
}

static void write_head(const struct message *mover, struct head *head,
                       uint64_t number, uint64_t bytes, uint32_t to)
{
    memset(head, 0, DYTI_MOVER_HEAD_BYTES);
    *head = (struct head){MAGIC, mover->epoch, number, bytes, mover->rank, to};
}

/* Where the bytes are: behind the head, or apart from it. */
static void place_bytes(const struct message *mover,
                        const struct dyti_move_part *part, uint64_t bytes,
                        struct flight *flight, struct dyti_p2p *p2p)
{
    if (!mover->is_device) {
        flight->head = head_of(part);
        p2p->buf = flight->head;
        p2p->size_bytes = bytes + DYTI_MOVER_HEAD_BYTES;
        return;
    }
    flight->head = (struct head *)(void *)flight->own;
    if (flight->is_send) {
        write_head(mover, flight->head, flight->number, bytes, flight->to);
    }
    p2p->head = flight->head;
    p2p->buf = part->buf;
    p2p->size_bytes = bytes;
}

/* One message, with everything but its place among others. */
static enum dyt_status post_part(struct message *mover,
                                 const struct dyti_move_part *part,
                                 uint64_t bytes, struct flight form,
                                 uint16_t *out_place)
{
    uint16_t place = mover->unused;
    struct flight *flight = &mover->flight[place - 1];
    struct dyti_p2p p2p = {.peer = part->peer, .is_send = part->is_send};
    enum dyt_status st;

    form.bytes = bytes;
    form.peer = part->peer;
    form.is_send = part->is_send;
    form.mover = mover;
    form.through = part->through;
    form.part = (struct dyti_p2p_through){part_of, flight};
    form.place = mover->open_count;
    form.life = flight->life + 1;
    form.next = flight->next;
    *flight = form;
    place_bytes(mover, part, bytes, flight, &p2p);
    p2p.through = part->through == NULL ? NULL : &flight->part;
    st = mover->group.ops->post(mover->group.self, &p2p, &flight->group_ticket);
    if (st == DYT_OK) {
        mover->unused = flight->next;
        flight->open = true;
        mover->open[mover->open_count++] = place;
        *out_place = place;
    }
    return st;
}

static enum dyt_status post_one(struct message *mover,
                                const struct dyti_move *move,
                                dyti_ticket *out_ticket)
{
    bool is_send = move->kind == DYTI_MOVE_SEND;
    struct dyti_move_part part = {move->peer, is_send, move->buf,
                                  move->through};
    uint64_t *count;
    uint16_t place = 0;
    enum dyt_status st = check(mover, &part, move->size_bytes);

    if (st != DYT_OK) {
        return st;
    }
    if (mover->unused == 0) {
        return DYT_PENDING;
    }
    count = &(is_send ? mover->sent : mover->received)[move->peer];
    if (is_send && !mover->is_device) {
        write_head(mover, head_of(&part), *count, move->size_bytes, move->peer);
    }
    st = post_part(mover, &part, move->size_bytes,
                   (struct flight){.number = *count,
                                   .to = is_send ? move->peer : mover->rank,
                                   .mark = move->mark},
                   &place);
    if (st == DYT_OK) {
        (*count)++;
        *out_ticket = (uint64_t)mover->flight[place - 1].life << 32 | place;
    }
    return st;
}

/* All of them, or none: the group takes as many as there are places here. */
static enum dyt_status post_fused(struct message *mover,
                                  const struct dyti_move *move,
                                  dyti_ticket *out_ticket)
{
    uint16_t job = 0;
    enum dyt_status st = DYT_OK;

    while (job < FUSED_MAX && mover->fused[job].left > 0) {
        job++;
    }
    if (job == FUSED_MAX ||
        move->part_count > DYTI_GROUP_POSTS - mover->open_count) {
        return DYT_PENDING;
    }
    for (uint32_t i = 0; i < move->part_count && st == DYT_OK; i++) {
        const struct dyti_move_part *part = &move->part[i];

        st = check(mover, part, move->size_bytes);
        if (st == DYT_OK && part->is_send && !mover->is_device) {
            /* equal where the buffer is */
            write_head(mover, head_of(part), move->number, move->size_bytes,
                       ALL_MEMBERS);
        }
    }
    for (uint32_t i = 0; i < move->part_count && st == DYT_OK; i++) {
        uint16_t place;

        st = post_part(mover, &move->part[i], move->size_bytes,
                       (struct flight){.number = move->number,
                                       .to = ALL_MEMBERS,
                                       .fused = (uint16_t)(job + 1u)},
                       &place);
    }
    if (st == DYT_PENDING) { /* somebody else uses the group's places */
        st = DYTI_FAIL(DYT_ERR_INVALID,
                       "rank %u: no room for %u messages of a collective",
                       mover->rank, move->part_count);
    }
    if (st == DYT_OK) {
        mover->fused[job].mark = move->mark;
        mover->fused[job].left = move->part_count;
        mover->fused[job].status = DYT_OK;
        mover->fused[job].life++;
        *out_ticket = (uint64_t)mover->fused[job].life << 32 |
                      (DYTI_GROUP_POSTS + 1u + job);
    }
    return st;
}

static bool message_joint(const void *self)
{
    const struct message *mover = self;

    return mover->is_device && mover->group.ops->post_joint != NULL;
}

/* The group names what is not the same on all members: there is no head. */
static enum dyt_status post_joint(struct message *mover,
                                  const struct dyti_move *move,
                                  dyti_ticket *out_ticket)
{
    struct dyti_joint joint = *move->joint;
    uint16_t place = mover->unused;
    uint64_t ticket = 0;
    struct flight *flight;
    enum dyt_status st;

    if (!message_joint(mover)) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "rank %u: group \"%s\" has no joint messages",
                         mover->rank, mover->group.ops->name);
    }
    if (place == 0) {
        return DYT_PENDING;
    }
    joint.epoch = mover->epoch;
    joint.number = move->number;
    st = mover->group.ops->post_joint(mover->group.self, &joint, &ticket);
    if (st == DYT_OK) {
        flight = &mover->flight[place - 1];
        mover->unused = flight->next;
        *flight = (struct flight){.group_ticket = ticket,
                                  .is_send = true, /* no head to look at */
                                  .mover = mover,
                                  .peer = mover->rank,
                                  .mark = move->mark,
                                  .life = flight->life + 1,
                                  .place = mover->open_count,
                                  .open = true};
        mover->open[mover->open_count++] = place;
        *out_ticket = (uint64_t)flight->life << 32 | place;
    }
    return st;
}

static enum dyt_status message_post(void *self, const struct dyti_move *move,
                                    dyti_ticket *out_ticket)
{
    struct message *mover = self;

    if (move->kind == DYTI_MOVE_COLLECTIVE && move->joint != NULL) {
        return post_joint(mover, move, out_ticket);
    }
    if (move->kind == DYTI_MOVE_COLLECTIVE && move->part_count > 0) {
        return post_fused(mover, move, out_ticket);
    }
    if (move->kind != DYTI_MOVE_SEND && move->kind != DYTI_MOVE_RECV) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "rank %u: messages carry dense bytes, not %zu strided "
                         "copies",
                         mover->rank, move->copy_count);
    }
    return post_one(mover, move, out_ticket);
}

/* What has come is what was waited for. */
static enum dyt_status check_head(const struct message *mover,
                                  const struct flight *flight)
{
    const struct head *head = flight->head;

    if (head->magic != MAGIC || head->from != flight->peer ||
        head->to != flight->to || head->bytes != flight->bytes) {
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

/* The message is over: DYT_PENDING where others of its collective are not. */
static enum dyt_status end_flight(struct message *mover, uint16_t place,
                                  enum dyt_status st, uint64_t *out_mark)
{
    struct flight *flight = &mover->flight[place - 1];
    uint16_t last = mover->open[--mover->open_count];

    mover->open[flight->place] = last;
    mover->flight[last - 1].place = flight->place;
    flight->open = false;
    flight->next = mover->unused;
    mover->unused = place;
    *out_mark = flight->mark;
    if (st != DYT_OK) {
        if (flight->peer != mover->rank) { /* of one peer */
            DYTI_NOTE("%s rank %u",
                      flight->is_send ? "sending to" : "receiving from",
                      flight->peer);
        }
        return st;
    }
    st = flight->is_send ? DYT_OK : check_head(mover, flight);
    if (st == DYT_OK && flight->fused != 0) {
        struct fused *fused = &mover->fused[flight->fused - 1];

        *out_mark = fused->mark;
        return --fused->left == 0 ? DYT_OK : DYT_PENDING;
    }
    return st;
}

/* One look at all messages of a collective. */
static enum dyt_status poll_fused(struct message *mover, dyti_ticket ticket)
{
    uint32_t job = (uint32_t)ticket - DYTI_GROUP_POSTS - 1u;
    uint64_t mark;
    enum dyt_status st = DYT_PENDING;

    if (job >= FUSED_MAX || mover->fused[job].left == 0 ||
        mover->fused[job].life != (uint32_t)(ticket >> 32)) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "rank %u: no collective has ticket %llx", mover->rank,
                         (unsigned long long)ticket);
    }
    for (uint32_t i = 0; i < mover->open_count && st == DYT_PENDING;) {
        uint16_t place = mover->open[i];

        if (mover->flight[place - 1].fused == job + 1u) {
            st = mover->group.ops->poll(mover->group.self,
                                        mover->flight[place - 1].group_ticket);
            if (st != DYT_PENDING) {
                st = end_flight(mover, place, st, &mark);
                continue;
            }
        }
        i++;
    }
    return st;
}

static enum dyt_status message_poll(void *self, dyti_ticket ticket)
{
    struct message *mover = self;
    uint32_t place = (uint32_t)ticket;
    struct flight *flight;
    uint64_t mark;
    enum dyt_status st;

    if (place > DYTI_GROUP_POSTS) {
        return poll_fused(mover, ticket);
    }
    if (place == 0 || !mover->flight[place - 1].open ||
        mover->flight[place - 1].life != (uint32_t)(ticket >> 32)) {
        return DYTI_FAIL(DYT_ERR_INVALID, "rank %u: no message has ticket %llx",
                         mover->rank, (unsigned long long)ticket);
    }
    flight = &mover->flight[place - 1];
    st = mover->group.ops->poll(mover->group.self, flight->group_ticket);
    if (st == DYT_PENDING) {
        return st;
    }
    return end_flight(mover, (uint16_t)place, st, &mark);
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

/* Ended: its mark into the list, but for one of several. */
static enum dyt_status end_one(struct message *mover, uint16_t place,
                               enum dyt_status st, uint64_t *mark,
                               uint32_t *count)
{
    uint64_t own = 0;

    st = end_flight(mover, place, st, &own);
    if (st == DYT_OK) {
        mark[(*count)++] = own;
    }
    return st == DYT_PENDING ? DYT_OK : st;
}

/* A group that says what has landed, or each asked in turn. */
static enum dyt_status message_landed(void *self, uint64_t *mark, uint32_t cap,
                                      uint32_t *out_count)
{
    struct message *mover = self;
    const struct dyti_group_ops *ops = mover->group.ops;
    uint64_t ticket[LANDED_MAX];
    uint32_t count = 0, ended = 0;
    enum dyt_status st = DYT_OK;

    *out_count = 0;
    if (ops->landed != NULL) {
        st = ops->landed(mover->group.self, ticket,
                         cap < LANDED_MAX ? cap : LANDED_MAX, &ended);
        for (uint32_t i = 0; i < ended && st == DYT_OK; i++) {
            uint16_t place = flight_of(mover, ticket[i]);

            st = place != 0 ? end_one(mover, place, DYT_OK, mark, &count)
                            : DYTI_FAIL(DYT_ERR_INVALID,
                                        "rank %u: a message that nobody posted "
                                        "has landed",
                                        mover->rank);
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
        } else { /* another takes its place */
            st = end_one(mover, place, st, mark, &count);
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
 * A device also works while nobody looks, so its group must say that buffers
 * are left alone. */
static void message_cancel(void *self)
{
    struct message *mover = self;

    if (mover->is_device) {
        mover->group.ops->cancel(mover->group.self);
    }
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

static void message_attach(void *self, void *base, uint64_t size_bytes)
{
    const struct message *mover = self;

    if (mover->group.ops->attach != NULL) { /* it goes without as well */
        (void)mover->group.ops->attach(mover->group.self, base, size_bytes);
    }
}

static void message_detach(void *self, void *base)
{
    const struct message *mover = self;

    if (mover->group.ops->detach != NULL) {
        mover->group.ops->detach(mover->group.self, base);
    }
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
    .queued = message_queued,
    .landed = message_landed,
    .joint = message_joint,
    .attach = message_attach,
    .detach = message_detach,
};
