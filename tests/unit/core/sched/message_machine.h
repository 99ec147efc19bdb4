/* Ranks that do the steps of their schedules, byte by byte, with slots of
 * staging and messages between them; somebody with bad intentions chooses what
 * ends next. */
#ifndef DYT_MESSAGE_MACHINE_H
#define DYT_MESSAGE_MACHINE_H

#include "span_cases.h"

#include "sched/chains.h"
#include "sched/collectives.h"

#define SEED      4242u
#define SLOTS_MAX 64u

enum intent { ANYTHING, LAST_FIRST, SENDERS_FIRST, RECEIVERS_LAST, INTENTS };

enum { WAITS, READY, POSTED, ENDED };

struct world {
    uint32_t size;
    struct dyti_schedule *s[DYT_CASE_RANKS];
    uint8_t *state[DYT_CASE_RANKS];
    uint32_t *waits[DYT_CASE_RANKS];
    uint32_t *link[DYT_CASE_RANKS];  /* [2 * size] next to post */
    uint32_t *slot[DYT_CASE_RANKS];  /* [staging bytes] an id for each byte */
    uint32_t *head[DYT_CASE_RANKS];  /* [2 * size] first posted, not ended */
    uint32_t *parts[DYT_CASE_RANKS]; /* messages of a COLLECTIVE not ended */
    uint32_t kinds;                  /* of collectives, as bits */
    uint32_t collectives;            /* steps that were some */
    uint32_t slower;                 /* ranks whose collectives do not pay */
    uint32_t left;
    struct dyt_case_memory memory;
};

/* ---- bytes --------------------------------------------------------------- */

typedef void (*byte_fn)(struct world *w, const struct dyti_step *step,
                        uint32_t *slot, const struct dyti_span *span,
                        int64_t src, int64_t dst);

/* Call for each byte of [lo, hi) of a stream. */
static inline void each_byte(struct world *w, uint32_t rank,
                             const struct dyti_step *step, byte_fn fn)
{
    const struct dyti_schedule *s = w->s[rank];
    const struct dyti_stream *stream = &s->stream[step->stream];
    uint32_t *slot = w->slot[rank] + step->staging_offset;

    for (uint32_t i = 0; i < stream->span_count; i++) {
        const struct dyti_span *span = &s->span[stream->span_first + i];
        uint64_t begin = s->at[stream->at_first + i];
        uint64_t end = s->at[stream->at_first + i + 1];
        uint32_t bytes = dyti_dtype_bytes((enum dyti_dtype)span->dst_dtype);

        for (uint64_t b = begin < step->lo ? step->lo : begin;
             b < end && b < step->hi; b++) {
            uint64_t element = (b - begin) / bytes;
            int64_t src = (int64_t)span->src_offset;
            int64_t dst = (int64_t)span->dst_offset;

            for (uint32_t d = DYTI_SPAN_DIMS; d-- > 0;) {
                int64_t at = (int64_t)(element % (uint64_t)span->size[d]);

                src += at * span->src_stride[d];
                dst += at * span->dst_stride[d];
                element /= (uint64_t)span->size[d];
            }
            fn(w, step, slot + (b - step->lo), span, src, dst);
        }
    }
}

static inline void pack_byte(struct world *w, const struct dyti_step *step,
                             uint32_t *slot, const struct dyti_span *span,
                             int64_t src, int64_t dst)
{
    const uint32_t *from =
        w->memory.region[span->src_slot][span->src_kind][step->src_rank];

    (void)dst;
    *slot = from[src / dyti_dtype_bytes((enum dyti_dtype)span->src_dtype)];
}

static inline void unpack_byte(struct world *w, const struct dyti_step *step,
                               uint32_t *slot, const struct dyti_span *span,
                               int64_t src, int64_t dst)
{
    uint32_t *to =
        w->memory.region[span->dst_slot][span->dst_kind][step->dst_rank];
    int64_t at = dst / dyti_dtype_bytes((enum dyti_dtype)span->dst_dtype);

    (void)src;
    assert_true(to[at] == DYT_CASE_NOTHING || to[at] == *slot);
    to[at] = *slot;
}

/* ---- steps --------------------------------------------------------------- */

static inline bool is_message(const struct dyti_step *step)
{
    return step->kind == DYTI_STEP_MOVE || step->kind == DYTI_STEP_COLLECTIVE;
}

/* It is the step's turn on all its links. */
static inline bool is_due(const struct world *w, uint32_t rank, uint32_t at)
{
    const struct dyti_schedule *s = w->s[rank];

    for (uint32_t k = 0; k < s->step[at].part_count; k++) {
        const struct dyti_fused_message *part =
            &s->part[s->step[at].part_first + k];

        if (w->link[rank][part->peer + (part->is_send ? 0 : w->size)] != at) {
            return false;
        }
    }
    return w->state[rank][at] == READY;
}

static inline bool post_one(struct world *w, uint32_t rank, uint32_t l)
{
    const struct dyti_schedule *s = w->s[rank];
    uint32_t at = w->link[rank][l];

    if (at == DYTI_NO_STEP || !is_due(w, rank, at)) {
        return false;
    }
    w->state[rank][at] = POSTED;
    w->parts[rank][at] = s->step[at].part_count;
    w->collectives += s->step[at].kind == DYTI_STEP_COLLECTIVE;
    if (s->step[at].kind == DYTI_STEP_MOVE) {
        w->link[rank][l] = s->step[at].link_next;
        w->parts[rank][at] = 1;
    }
    for (uint32_t k = 0; k < s->step[at].part_count; k++) {
        const struct dyti_fused_message *part =
            &s->part[s->step[at].part_first + k];

        w->link[rank][part->peer + (part->is_send ? 0 : w->size)] =
            part->link_next;
    }
    return true;
}

static inline void post_ready(struct world *w, uint32_t rank)
{
    bool more = w->s[rank]->link_first != NULL;

    while (more) {
        more = false;
        for (uint32_t l = 0; l < 2 * w->size; l++) {
            while (post_one(w, rank, l)) {
                more = true;
            }
        }
    }
}

static inline void end_step(struct world *w, uint32_t rank, uint32_t index)
{
    const struct dyti_schedule *s = w->s[rank];
    const struct dyti_step *step = &s->step[index];

    w->state[rank][index] = ENDED;
    w->left--;
    for (uint32_t k = 0; k < step->next_count; k++) {
        uint32_t next = s->next[step->next_first + k];

        if (--w->waits[rank][next] == 0) {
            w->state[rank][next] = READY;
        }
    }
    post_ready(w, rank);
}

static inline void do_step(struct world *w, uint32_t rank, uint32_t index)
{
    const struct dyti_schedule *s = w->s[rank];
    const struct dyti_step *step = &s->step[index];

    if (step->kind == DYTI_STEP_PACK) {
        each_byte(w, rank, step, pack_byte);
    } else if (step->kind == DYTI_STEP_UNPACK) {
        each_byte(w, rank, step, unpack_byte);
    } else if (step->kind == DYTI_STEP_COPY) {
        for (uint32_t i = 0; i < step->span_count; i++) {
            dyt_case_run_span(&s->span[step->span_first + i], step->src_rank,
                              step->dst_rank, &w->memory);
        }
    }
    end_step(w, rank, index);
}

/* The oldest message from a to b, if both ends have been posted. */
static inline bool message_of(const struct world *w, uint32_t a, uint32_t b,
                              uint32_t *out_send, uint32_t *out_recv)
{
    uint32_t send, recv;

    if (w->s[a]->link_first == NULL || w->s[b]->link_first == NULL) {
        return false;
    }
    send = w->head[a][b];
    recv = w->head[b][w->size + a];
    if (send == DYTI_NO_STEP || recv == DYTI_NO_STEP ||
        w->state[a][send] != POSTED || w->state[b][recv] != POSTED) {
        return false;
    }
    *out_send = send;
    *out_recv = recv;
    return true;
}

/* Where a message on a link lies. */
static inline uint32_t *place_of(const struct world *w, uint32_t rank,
                                 uint32_t at, uint32_t link)
{
    const struct dyti_schedule *s = w->s[rank];
    const struct dyti_step *step = &s->step[at];

    for (uint32_t k = 0; k < step->part_count; k++) {
        const struct dyti_fused_message *part = &s->part[step->part_first + k];

        if (part->peer == link % w->size && part->is_send == (link < w->size)) {
            return w->slot[rank] + part->staging_offset;
        }
    }
    assert_true(step->kind == DYTI_STEP_MOVE);
    assert_true(link < w->size
                    ? step->src_rank == rank && step->dst_rank == link
                    : step->dst_rank == rank &&
                          step->src_rank == link - w->size);
    return w->slot[rank] + step->staging_offset;
}

static inline void do_message(struct world *w, uint32_t a, uint32_t b)
{
    uint32_t send = 0, recv = 0;
    const struct dyti_step *from, *to;

    assert_true(message_of(w, a, b, &send, &recv));
    from = &w->s[a]->step[send];
    to = &w->s[b]->step[recv];
    assert_true(from->lo == to->lo && from->hi == to->hi);
    assert_int_equal(from->kind, to->kind);
    if (from->kind == DYTI_STEP_COLLECTIVE) { /* number and kind: the same */
        assert_int_equal(from->round, to->round);
        assert_int_equal(from->collective, to->collective);
    }
    memcpy(place_of(w, b, recv, w->size + a), place_of(w, a, send, b),
           (from->hi - from->lo) * sizeof(uint32_t));
    w->head[a][b] = dyti_schedule_link_next(w->s[a], send, b);
    w->head[b][w->size + a] =
        dyti_schedule_link_next(w->s[b], recv, w->size + a);
    if (--w->parts[a][send] == 0) {
        end_step(w, a, send);
    }
    if (--w->parts[b][recv] == 0) {
        end_step(w, b, recv);
    }
}

/* ---- who chooses --------------------------------------------------------- */

struct choice {
    uint32_t rank, index; /* a step … */
    uint32_t to;          /* … or, not UINT32_MAX, a message rank -> to */
};

/* How much the bad one likes it. */
static inline uint64_t taste(const struct world *w, enum intent intent,
                             const struct choice *c, uint64_t random)
{
    bool message = c->to != UINT32_MAX;
    uint8_t kind =
        message ? DYTI_STEP_MOVE : w->s[c->rank]->step[c->index].kind;

    random >>= 40;
    switch (intent) {
    case LAST_FIRST:
        return ((uint64_t)c->rank << 40) + ((uint64_t)c->index << 8);
    case SENDERS_FIRST:
        return (kind == DYTI_STEP_PACK ? UINT64_C(1) << 40 : 0) + random;
    case RECEIVERS_LAST:
        return (kind == DYTI_STEP_UNPACK ? 0 : UINT64_C(1) << 40) + random;
    default:
        return random;
    }
}

static inline bool next_choice(const struct world *w, enum intent intent,
                               uint64_t n, uint64_t trial, struct choice *out)
{
    uint64_t best = 0, seen = 0;
    bool found = false;

    for (uint32_t r = 0; r < w->size; r++) {
        for (uint32_t i = 0; i < w->s[r]->step_count + w->size; i++) {
            bool is_step = i < w->s[r]->step_count;
            struct choice c = {r, is_step ? i : 0,
                               is_step ? UINT32_MAX : i - w->s[r]->step_count};
            uint32_t send, recv;
            uint64_t like;

            if (is_step
                    ? w->state[r][i] != READY || is_message(&w->s[r]->step[i])
                    : !message_of(w, r, c.to, &send, &recv)) {
                continue;
            }
            like = 1 + taste(w, intent, &c,
                             dyti_rng_u64(SEED, trial * 100000 + n, seen++, 7));
            if (like > best) {
                best = like;
                *out = c;
                found = true;
            }
        }
    }
    return found;
}

#endif /* DYT_MESSAGE_MACHINE_H */
