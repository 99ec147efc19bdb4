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
#include "exec/joint.h"
#include "exec/pack.h"
#include "exec/staging.h"

#include <stdlib.h>
#include <string.h>

struct flight {
    uint32_t step;
    dyti_ticket ticket;
};

/* The payload of the one message that uses a slot now. */
struct payload {
    struct dyti_p2p_through through;
    const struct dyti_kernels *kernels;
    const struct dyti_stream_boxes *stream;
    struct dyti_stream_cursor cursor;
    uint64_t lo, next; /* bytes of the stream: of the message; the cursor's */
    bool is_send;
};

struct dyti_messages {
    const struct dyti_mover_ops *mover;
    void *mover_self;
    struct dyti_staging memory; /* slots, then buffers of joints */
    unsigned char *staging;     /* [schedule->staging_bytes] and more: there */
    struct dyti_joints joints;
    struct dyti_stream_boxes *stream; /* [stream_count], owned */
    uint32_t *link; /* [2 * world_size] next to post of each link, owned */
    bool *ready;    /* [step_count] may be posted when its turn comes, owned */
    struct flight flight[DYTI_SLOTS_MAX];
    uint32_t flight_count;
    bool refused; /* the mover had no room: something waits on some link */
    /* [step_count] of a MOVE whose payload goes through, and of the PACK or
     * UNPACK that has nothing left to do: its stream; of others DYTI_NO_STREAM.
     * NULL: none does.  Owned. */
    uint32_t *through;
    /* [part_count] likewise, of messages of a COLLECTIVE, and their payloads:
     * several may share a slot.  Owned. */
    uint32_t *part_through;
    struct payload *part_payload;
    struct payload payload[DYTI_SLOTS_MAX]; /* by slot */
};

/* ---- once ----------------------------------------------------------------
 */

void dyti_messages_fini(struct dyti_switch *self)
{
    struct dyti_messages *m = self->messages;

    if (m != NULL) {
        dyti_staging_free(self, &m->memory);
        dyti_joints_fini(&m->joints);
        free(m->stream);
        free(m->link);
        free(m->ready);
        free(m->through);
        free(m->part_through);
        free(m->part_payload);
        free(m);
        self->messages = NULL;
    }
}

static enum dyt_status allocate(struct dyti_switch *self)
{
    const struct dyti_schedule *s = self->schedule;
    struct dyti_messages *m = calloc(1, sizeof(*m));
    uint64_t slots = (s->staging_bytes + 63u) / 64u * 64u;
    enum dyt_status st;

    self->messages = m;
    if (m != NULL) {
        m->stream = calloc((size_t)s->stream_count + 1, sizeof(*m->stream));
        m->link = calloc(2u * s->world_size, sizeof(*m->link));
        m->ready = calloc((size_t)s->step_count + 1, sizeof(*m->ready));
    }
    if (m == NULL || m->stream == NULL || m->link == NULL || m->ready == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "messages of rank %u", s->rank);
    }
    m->mover = self->params.message;
    m->mover_self = self->params.message_self;
    st = dyti_joints_init(self, slots, &m->joints);
    if (st == DYT_OK) {
        st = dyti_staging_make(self, slots + m->joints.bytes, &m->memory);
        m->staging = m->memory.at;
    }
    return st;
}

static uint32_t next_of(const struct dyti_schedule *s,
                        const struct dyti_step *step, enum dyti_step_kind kind)
{
    return dyti_step_next_at(s, step, kind, step->staging_offset);
}

/* Of a COLLECTIVE: packed where it goes, for each, and unpacked from where it
 * comes.  A slot would be one more copy. */
static void find_fused_through(const struct dyti_schedule *s,
                               struct dyti_messages *m, uint32_t index)
{
    const struct dyti_step *step = &s->step[index];

    for (uint32_t k = 0; k < step->part_count; k++) {
        const struct dyti_fused_message *part = &s->part[step->part_first + k];
        uint32_t other = dyti_step_of_part(s, index, part);

        if (other != DYTI_NO_STEP) {
            m->through[other] = m->part_through[step->part_first + k] =
                s->step[other].stream;
        }
    }
}

/* Which messages begin or end here, and so need not lie in their slot. */
static enum dyt_status find_through(struct dyti_switch *self)
{
    const struct dyti_schedule *s = self->schedule;
    struct dyti_messages *m = self->messages;

    if (m->mover->through == NULL || !m->mover->through(m->mover_self) ||
        !dyti_kernels_any_memory(&self->params.kernels)) {
        return DYT_OK;
    }
    m->through = malloc(((size_t)s->step_count + 1) * sizeof(*m->through));
    m->part_through =
        malloc(((size_t)s->part_count + 1) * sizeof(*m->part_through));
    m->part_payload =
        calloc((size_t)s->part_count + 1, sizeof(*m->part_payload));
    if (m->through == NULL || m->part_through == NULL ||
        m->part_payload == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u steps of rank %u", s->step_count,
                         s->rank);
    }
    memset(m->through, 0xff, ((size_t)s->step_count + 1) * sizeof(*m->through));
    memset(m->part_through, 0xff,
           ((size_t)s->part_count + 1) * sizeof(*m->part_through));
    for (uint32_t i = 0; i < s->step_count; i++) {
        const struct dyti_step *step = &s->step[i];
        uint32_t other;

        if (step->kind == DYTI_STEP_COLLECTIVE) {
            find_fused_through(s, m, i);
        } else if (step->kind == DYTI_STEP_PACK) {
            other = next_of(s, step, DYTI_STEP_MOVE);
            if (other != DYTI_NO_STEP) {
                m->through[other] = m->through[i] = step->stream;
            }
        } else if (step->kind == DYTI_STEP_MOVE &&
                   step->side == DYTI_SIDE_PULL) {
            other = next_of(s, step, DYTI_STEP_UNPACK);
            /* What is passed on besides must lie in the slot. */
            if (other != DYTI_NO_STEP &&
                next_of(s, &s->step[other], DYTI_STEP_MOVE) == DYTI_NO_STEP) {
                m->through[i] = m->through[other] = s->step[other].stream;
            }
        }
    }
    return DYT_OK;
}

enum dyt_status dyti_messages_init(struct dyti_switch *self)
{
    const struct dyti_schedule *s = self->schedule;
    enum dyt_status st;

    if (s->staging_bytes == 0) {
        return DYT_OK; /* this rank has no messages */
    }
    if (self->params.message == NULL ||
        !(self->params.message->caps & DYTI_MOVER_CAP_MESSAGE)) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "rank %u has links that go by messages, and no mover "
                         "for them",
                         s->rank);
    }
    st = allocate(self);
    st = st != DYT_OK ? st : find_through(self);
    for (uint32_t i = 0; i < s->stream_count && st == DYT_OK; i++) {
        const struct dyti_stream *stream = &s->stream[i];

        self->messages->stream[i] =
            (struct dyti_stream_boxes){.box = self->copy + stream->span_first,
                                       .at = s->at + stream->at_first,
                                       .box_count = stream->span_count};
        st = dyti_switch_resolve_stream(self, stream);
        self->moved_bytes += stream->dst_rank == s->rank ? stream->bytes : 0;
    }
    if (st != DYT_OK) {
        dyti_messages_fini(self);
    }
    return st;
}

/* ---- every run ----------------------------------------------------------- */

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
    struct payload *p = arg;
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
                                                 struct payload *p)
{
    if (stream == DYTI_NO_STREAM) {
        return NULL;
    }
    *p = (struct payload){.through = {payload_part, p},
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
        struct flight *flight = &m->flight[m->flight_count];
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
        struct flight flight = m->flight[i];

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
