/* What goes by messages: streams resolved to addresses, slots of staging, and
 * the messages in flight.  Nothing here blocks but dyti_messages_wait().
 *
 * Where the mover takes messages through, a MOVE packs from the source into the
 * group's memory, or unpacks from there, part by part: PACK and UNPACK have
 * nothing left to do, and a slot is used for its head, and for what passes
 * this rank.  The schedule, its waits and the messages are the same.
 *
 * Where segments are memory of a device, slots are memory that host and device
 * share: a PACK's work has ended before its MOVE is posted, an UNPACK's before
 * its slot is used again (exec/queue.c).  Or they are the device's too, where a
 * group of devices carries messages; it may then make collectives as such
 * (exec/joint.h). */
#include "exec/messages.h"

#include <string.h>

void dyti_messages_begin(struct dyti_switch *self, uint64_t epoch)
{
    struct dyti_messages *m = self->messages;

    if (self->params.message != NULL) { /* even if only others have some */
        self->params.message->begin(self->params.message_self, epoch);
    }
    if (m != NULL) {
        memcpy(m->link, self->schedule->link_first,
               2u * self->schedule->world_size * sizeof(*m->link));
        memset(m->ready, 0, self->schedule->step_count * sizeof(*m->ready));
        m->flight_count = 0;
        m->refused = false;
    }
}

static enum dyt_status payload_part(void *arg, uint64_t at, void *dense,
                                    uint64_t bytes)
{
    struct dyti_payload *p = arg;
    enum dyt_status st;

    if (p->lo + at != p->next) { /* the first, or again */
        dyti_stream_seek(p->stream, p->lo + at, &p->cursor);
    }
    st = p->is_send
             ? dyti_pack(p->kernels, p->stream, &p->cursor, dense, bytes)
             : dyti_unpack(p->kernels, p->stream, &p->cursor, dense, bytes);
    p->next = p->lo + at + bytes;
    return st;
}

/* stream: DYTI_NO_STREAM: the slot holds it, NULL. */
static const struct dyti_p2p_through *payload_of(struct dyti_switch *self,
                                                 const struct dyti_step *step,
                                                 uint32_t stream, bool is_send,
                                                 struct dyti_payload *p)
{
    if (stream == DYTI_NO_STREAM) {
        return NULL;
    }
    *p = (struct dyti_payload){.through = {payload_part, p},
                               .kernels = &self->params.kernels,
                               .stream = &self->messages->stream[stream],
                               .lo = step->lo,
                               .next = UINT64_MAX,
                               .is_send = is_send};
    return &p->through;
}

static enum dyt_status post_move(struct dyti_switch *self, uint32_t index,
                                 dyti_ticket *out_ticket)
{
    struct dyti_messages *m = self->messages;
    const struct dyti_step *step = &self->schedule->step[index];
    bool is_send = step->side == DYTI_SIDE_PUSH;
    uint64_t slot = step->staging_offset /
                    (self->schedule->message_bytes + DYTI_SLOT_HEAD_BYTES);
    struct dyti_move move = {
        .struct_size = sizeof(move),
        .peer = is_send ? step->dst_rank : step->src_rank,
        .kind = is_send ? DYTI_MOVE_SEND : DYTI_MOVE_RECV,
        .buf = m->staging + step->staging_offset,
        .size_bytes = step->hi - step->lo,
        .through = payload_of(
            self, step, m->through == NULL ? DYTI_NO_STREAM : m->through[index],
            is_send, &m->payload[slot]),
        .mark = index};

    return m->mover->post(m->mover_self, &move, out_ticket);
}

static enum dyt_status post_collective(struct dyti_switch *self, uint32_t index,
                                       dyti_ticket *out_ticket)
{
    struct dyti_messages *m = self->messages;
    const struct dyti_schedule *s = self->schedule;
    const struct dyti_step *step = &s->step[index];
    struct dyti_move_part part[2 * DYTI_SLOTS_MAX];
    struct dyti_move move = {.struct_size = sizeof(move),
                             .kind = DYTI_MOVE_COLLECTIVE,
                             .size_bytes = step->hi - step->lo,
                             .mark = index,
                             .part = part,
                             .part_count = step->part_count,
                             .number = step->round};
    struct dyti_joint joint;

    if (dyti_joint_is(&m->joints, index)) {
        joint = dyti_joint_of(self, &m->joints, index, m->staging);
        move.joint = &joint;
        move.part_count = 0;
    }
    for (uint32_t k = 0; k < move.part_count; k++) {
        uint32_t at = step->part_first + k;
        const struct dyti_fused_message *of = &s->part[at];

        part[k] = (struct dyti_move_part){
            .peer = of->peer,
            .is_send = of->is_send,
            .buf = m->staging + of->staging_offset,
            .through = m->through == NULL
                           ? NULL
                           : payload_of(self, step, m->part_through[at],
                                        of->is_send, &m->part_payload[at])};
    }
    return m->mover->post(m->mover_self, &move, out_ticket);
}

/* Is it a step's turn on each of its links? */
static bool is_due(const struct dyti_switch *self, uint32_t index)
{
    const struct dyti_messages *m = self->messages;
    const struct dyti_schedule *s = self->schedule;
    const struct dyti_step *step = &s->step[index];

    for (uint32_t k = 0; k < step->part_count; k++) {
        const struct dyti_fused_message *part = &s->part[step->part_first + k];

        if (m->link[part->peer + (part->is_send ? 0 : s->world_size)] !=
            index) {
            return false;
        }
    }
    return m->ready[index];
}

/* It has been posted: others have their turn. */
static void pass_links(struct dyti_switch *self, uint32_t index, uint32_t link)
{
    struct dyti_messages *m = self->messages;
    const struct dyti_schedule *s = self->schedule;
    const struct dyti_step *step = &s->step[index];

    if (step->part_count == 0) {
        m->link[link] = step->link_next;
    }
    for (uint32_t k = 0; k < step->part_count; k++) {
        const struct dyti_fused_message *part = &s->part[step->part_first + k];

        m->link[part->peer + (part->is_send ? 0 : s->world_size)] =
            part->link_next;
    }
}

/* All messages of a link whose turn has come, and that may go.  *out_more:
 * other links may go on now, too. */
static enum dyt_status post_link(struct dyti_switch *self, uint32_t link,
                                 bool *out_more)
{
    struct dyti_messages *m = self->messages;
    const struct dyti_schedule *s = self->schedule;

    while (m->link[link] != DYTI_NO_STEP && is_due(self, m->link[link]) &&
           m->flight_count < DYTI_SLOTS_MAX) {
        uint32_t index = m->link[link];
        bool fused = s->step[index].kind == DYTI_STEP_COLLECTIVE;
        struct dyti_flight *flight = &m->flight[m->flight_count];
        enum dyt_status st = fused
                                 ? post_collective(self, index, &flight->ticket)
                                 : post_move(self, index, &flight->ticket);

        if (st == DYT_PENDING) {
            m->refused = true;
            return DYT_OK; /* when something has landed, again */
        }
        if (st != DYT_OK) {
            return st;
        }
        flight->step = index;
        m->flight_count++;
        pass_links(self, index, link);
        *out_more |= fused;
    }
    return DYT_OK;
}

static enum dyt_status post_links(struct dyti_switch *self, uint32_t link)
{
    bool more = self->messages->refused;
    enum dyt_status st;

    self->messages->refused = false;
    st = post_link(self, link, &more);

    while (st == DYT_OK && more) {
        more = false;
        for (uint32_t l = 0; l < 2 * self->schedule->world_size && st == DYT_OK;
             l++) {
            st = post_link(self, l, &more);
        }
    }
    return st;
}

/* One of the links that a step is on. */
static uint32_t link_of(const struct dyti_schedule *s,
                        const struct dyti_step *step)
{
    if (step->part_count > 0) {
        const struct dyti_fused_message *part = &s->part[step->part_first];

        return part->peer + (part->is_send ? 0 : s->world_size);
    }
    return step->side == DYTI_SIDE_PUSH ? step->dst_rank
                                        : s->world_size + step->src_rank;
}

enum dyt_status dyti_messages_post(struct dyti_switch *self, uint32_t index)
{
    const struct dyti_schedule *s = self->schedule;

    self->messages->ready[index] = true;
    return post_links(self, link_of(s, &s->step[index]));
}

/* What a PACK fills, or an UNPACK empties. */
static unsigned char *bytes_of(const struct dyti_switch *self,
                               const struct dyti_step *step)
{
    const struct dyti_messages *m = self->messages;
    uint32_t index = (uint32_t)(step - self->schedule->step);

    return m->staging + dyti_joint_at(&m->joints, self->schedule, index);
}

uint32_t dyti_messages_held(const struct dyti_switch *self, uint32_t index)
{
    const struct dyti_messages *m = self->messages;

    return m == NULL || m->joints.team == NULL ? 0 : m->joints.held[index];
}

uint32_t dyti_messages_frees(const struct dyti_switch *self, uint32_t index)
{
    const struct dyti_messages *m = self->messages;

    return m == NULL || m->joints.team == NULL ? DYTI_NO_STEP
                                               : m->joints.frees[index];
}

enum dyt_status dyti_messages_pack(struct dyti_switch *self,
                                   const struct dyti_step *step)
{
    struct dyti_messages *m = self->messages;
    const struct dyti_stream_boxes *stream = &m->stream[step->stream];
    unsigned char *slot = bytes_of(self, step);
    struct dyti_copy_list *list = dyti_queue_list(self, step);
    struct dyti_stream_cursor cursor;

    if (m->through != NULL &&
        m->through[step - self->schedule->step] != DYTI_NO_STREAM) {
        return DYT_OK; /* the MOVE does it */
    }
    if (list != NULL) {
        return self->params.kernels.ops->list_run(self->params.kernels.self,
                                                  list);
    }
    dyti_stream_seek(stream, step->lo, &cursor);
    return step->kind == DYTI_STEP_PACK
               ? dyti_pack(&self->params.kernels, stream, &cursor, slot,
                           step->hi - step->lo)
               : dyti_unpack(&self->params.kernels, stream, &cursor, slot,
                             step->hi - step->lo);
}

enum dyt_status dyti_messages_list(struct dyti_switch *self,
                                   const struct dyti_step *step,
                                   struct dyti_copy_list **out_list)
{
    const struct dyti_kernels *k = &self->params.kernels;
    const struct dyti_stream_boxes *stream =
        &self->messages->stream[step->stream];
    unsigned char *slot = bytes_of(self, step);

    return step->kind == DYTI_STEP_PACK
               ? k->ops->list_pack(k->self, stream, step->lo, step->hi, slot,
                                   out_list)
               : k->ops->list_unpack(k->self, stream, step->lo, step->hi, slot,
                                     out_list);
}

uint32_t dyti_messages_in_flight(const struct dyti_switch *self)
{
    return self->messages == NULL ? 0 : self->messages->flight_count;
}

/* All that have ended, from a mover that knows them. */
static enum dyt_status look_once(struct dyti_messages *m,
                                 uint32_t landed[DYTI_SLOTS_MAX],
                                 uint32_t *out_count)
{
    uint64_t mark[DYTI_SLOTS_MAX];
    uint32_t count = 0;
    enum dyt_status st =
        m->mover->landed(m->mover_self, mark, DYTI_SLOTS_MAX, &count);

    for (uint32_t i = 0; i < count && st == DYT_OK; i++) {
        landed[i] = (uint32_t)mark[i];
    }
    m->flight_count -= count;
    *out_count = count;
    return st;
}

/* Each asked in turn. */
static enum dyt_status look_at_each(struct dyti_messages *m,
                                    uint32_t landed[DYTI_SLOTS_MAX],
                                    uint32_t *out_count)
{
    uint32_t count = 0, kept = 0;
    enum dyt_status st = DYT_OK;

    for (uint32_t i = 0; i < m->flight_count; i++) {
        struct dyti_flight flight = m->flight[i];

        if (st == DYT_OK) {
            st = m->mover->poll(m->mover_self, flight.ticket);
            if (st == DYT_OK) {
                landed[count++] = flight.step;
                continue;
            }
            st = st == DYT_PENDING ? DYT_OK : st;
        }
        m->flight[kept++] = flight;
    }
    m->flight_count = kept;
    *out_count = count;
    return st;
}

enum dyt_status dyti_messages_poll(struct dyti_switch *self,
                                   uint32_t landed[DYTI_SLOTS_MAX],
                                   uint32_t *out_count)
{
    struct dyti_messages *m = self->messages;
    uint32_t count = 0;
    enum dyt_status st = m->mover->landed != NULL
                             ? look_once(m, landed, &count)
                             : look_at_each(m, landed, &count);

    for (uint32_t i = 0; i < count && st == DYT_OK; i++) {
        st = post_links(
            self, link_of(self->schedule, &self->schedule->step[landed[i]]));
    }
    *out_count = count;
    return st;
}

enum dyt_status dyti_messages_wait(struct dyti_switch *self, uint64_t epoch)
{
    struct dyti_messages *m = self->messages;
    enum dyt_status st = dyti_fence_check(self, epoch);

    return st == DYT_OK ? m->mover->wait(m->mover_self) : st;
}

void dyti_messages_stop(struct dyti_switch *self)
{
    if (self->messages != NULL && self->messages->flight_count > 0) {
        self->messages->mover->cancel(self->messages->mover_self);
        self->messages->flight_count = 0;
    }
}
