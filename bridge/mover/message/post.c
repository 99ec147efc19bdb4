/* Messages on their way: one, several that end together, or a collective that
 * the group makes as such. */
#include "mover/message/message_internal.h"

#include <string.h>

static enum dyt_status check(const struct dyti_message *mover,
                             const struct dyti_move_part *part, uint64_t bytes)
{
    if (part->peer >= mover->world_size || part->peer == mover->rank ||
        part->buf == NULL ||
        (part->through != NULL && !dyti_message_through(mover))) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "rank %u: a message of %llu bytes with rank %u of %u",
                         mover->rank, (unsigned long long)bytes, part->peer,
                         mover->world_size);
    }
    return DYT_OK;
}

static bool is_due(const struct dyti_message *mover,
                   const struct dyti_message_flight *flight)
{
    const struct dyti_message_head *head = flight->head;

    return head->magic == DYTI_MESSAGE_MAGIC && head->from == flight->peer &&
           head->to == flight->to && head->bytes == flight->bytes &&
           head->epoch == mover->epoch && head->number == flight->number;
}

/* The head from and to its slot, the payload from and to where it belongs; that
 * of another message nowhere: poll() will name it. */
static enum dyt_status part_of(void *arg, uint64_t at, void *dense,
                               uint64_t bytes)
{
    struct dyti_message_flight *flight = arg;
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

static struct dyti_message_head *head_of(const struct dyti_move_part *part)
{
    return (struct dyti_message_head *)(void *)((unsigned char *)part->buf -
                                                DYTI_MOVER_HEAD_BYTES);
}

static void write_head(const struct dyti_message *mover,
                       struct dyti_message_head *head, uint64_t number,
                       uint64_t bytes, uint32_t to)
{
    memset(head, 0, DYTI_MOVER_HEAD_BYTES);
    *head = (struct dyti_message_head){
        DYTI_MESSAGE_MAGIC, mover->epoch, number, bytes, mover->rank, to};
}

/* Where the bytes are: behind the head, or apart from it. */
static void place_bytes(const struct dyti_message *mover,
                        const struct dyti_move_part *part, uint64_t bytes,
                        struct dyti_message_flight *flight,
                        struct dyti_p2p *p2p)
{
    if (!mover->is_device) {
        flight->head = head_of(part);
        p2p->buf = flight->head;
        p2p->size_bytes = bytes + DYTI_MOVER_HEAD_BYTES;
        return;
    }
    flight->head = (struct dyti_message_head *)(void *)flight->own;
    if (flight->is_send) {
        write_head(mover, flight->head, flight->number, bytes, flight->to);
    }
    p2p->head = flight->head;
    p2p->buf = part->buf;
    p2p->size_bytes = bytes;
}

/* One message, with everything but its place among others. */
static enum dyt_status post_part(struct dyti_message *mover,
                                 const struct dyti_move_part *part,
                                 uint64_t bytes,
                                 struct dyti_message_flight form,
                                 uint16_t *out_place)
{
    uint16_t place = mover->unused;
    struct dyti_message_flight *flight = &mover->flight[place - 1];
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

static enum dyt_status post_one(struct dyti_message *mover,
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
    st = post_part(
        mover, &part, move->size_bytes,
        (struct dyti_message_flight){.number = *count,
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
static enum dyt_status post_fused(struct dyti_message *mover,
                                  const struct dyti_move *move,
                                  dyti_ticket *out_ticket)
{
    uint16_t job = 0;
    enum dyt_status st = DYT_OK;

    while (job < DYTI_MESSAGE_FUSED_MAX && mover->fused[job].left > 0) {
        job++;
    }
    if (job == DYTI_MESSAGE_FUSED_MAX ||
        move->part_count > DYTI_GROUP_POSTS - mover->open_count) {
        return DYT_PENDING;
    }
    for (uint32_t i = 0; i < move->part_count && st == DYT_OK; i++) {
        const struct dyti_move_part *part = &move->part[i];

        st = check(mover, part, move->size_bytes);
        if (st == DYT_OK && part->is_send && !mover->is_device) {
            /* equal where the buffer is */
            write_head(mover, head_of(part), move->number, move->size_bytes,
                       DYTI_MESSAGE_TO_ALL);
        }
    }
    for (uint32_t i = 0; i < move->part_count && st == DYT_OK; i++) {
        uint16_t place;

        st = post_part(
            mover, &move->part[i], move->size_bytes,
            (struct dyti_message_flight){.number = move->number,
                                         .to = DYTI_MESSAGE_TO_ALL,
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

/* The group names what is not the same on all members: there is no head. */
static enum dyt_status post_joint(struct dyti_message *mover,
                                  const struct dyti_move *move,
                                  dyti_ticket *out_ticket)
{
    struct dyti_joint joint = *move->joint;
    uint16_t place = mover->unused;
    uint64_t ticket = 0;
    struct dyti_message_flight *flight;
    enum dyt_status st;

    if (!dyti_message_joint(mover)) {
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
        *flight = (struct dyti_message_flight){
            .group_ticket = ticket,
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

enum dyt_status dyti_message_post(void *self, const struct dyti_move *move,
                                  dyti_ticket *out_ticket)
{
    struct dyti_message *mover = self;

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
