/* Messages of a switch, made ready once: streams resolved to addresses,
 * staging, and which payloads need not lie in their slot. */
#include "exec/messages.h"

#include <stdlib.h>
#include <string.h>

#define PAST_BYTES (16u << 20)

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

/* What arrives is more than caches hold: whoever reads it would not find it
 * there. */
static void pass_caches(struct dyti_switch *self, uint64_t arrives)
{
    const struct dyti_schedule *s = self->schedule;

    for (uint32_t i = 0; i < s->stream_count && arrives >= PAST_BYTES; i++) {
        self->messages->stream[i].past_caches =
            s->stream[i].dst_rank == s->rank;
    }
}

enum dyt_status dyti_messages_init(struct dyti_switch *self)
{
    const struct dyti_schedule *s = self->schedule;
    uint64_t arrives = 0;
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
        arrives += stream->dst_rank == s->rank ? stream->bytes : 0;
    }
    self->moved_bytes += arrives;
    if (st == DYT_OK) {
        pass_caches(self, arrives);
    } else {
        dyti_messages_fini(self);
    }
    return st;
}
