/* Whether a schedule can run to its end: a walk that executes nothing. */
#include "sched/sched.h"

#include <stdlib.h>

/* Waits that the follower lists imply, and ranges that lie inside. */
static enum dyt_status count_waits(const struct dyti_schedule *s,
                                   uint32_t *waits)
{
    for (uint32_t i = 0; i < s->step_count; i++) {
        const struct dyti_step *step = &s->step[i];

        if ((uint64_t)step->next_first + step->next_count > s->next_total ||
            (uint64_t)step->span_first + step->span_count > s->span_count) {
            return DYTI_FAIL(DYT_ERR_INVALID,
                             "step %u refers to followers or spans that do not "
                             "exist",
                             i);
        }
        for (uint32_t k = 0; k < step->next_count; k++) {
            uint32_t next = s->next[step->next_first + k];

            if (next >= s->step_count || next == i) {
                return DYTI_FAIL(DYT_ERR_INVALID,
                                 "step %u is followed by step %u of %u", i,
                                 next, s->step_count);
            }
            waits[next]++;
        }
    }
    for (uint32_t i = 0; i < s->step_count; i++) {
        if (waits[i] != s->step[i].wait_count) {
            return DYTI_FAIL(DYT_ERR_INVALID,
                             "step %u waits for %u steps, %u name it", i,
                             s->step[i].wait_count, waits[i]);
        }
    }
    return DYT_OK;
}

static enum dyt_status check_fence(const struct dyti_schedule *s)
{
    uint32_t last = s->step_count - 1, fences = 0, waves;

    for (uint32_t i = 0; i < s->step_count; i++) {
        fences += s->step[i].kind == DYTI_STEP_FENCE;
        if (i < last && s->step[i].next_count == 0) {
            return DYTI_FAIL(DYT_ERR_INVALID,
                             "step %u has no follower: the fence does not wait "
                             "for it",
                             i);
        }
    }
    waves = s->options.links.wave_count > 1 ? s->options.links.wave_count : 1;
    if (fences != waves || s->step[last].kind != DYTI_STEP_FENCE) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "%u fences: there must be %u, one of them the last "
                         "step",
                         fences, waves);
    }
    return DYT_OK;
}

/* ---- messages ----------------------------------------------------------- */

static bool follows(const struct dyti_schedule *s, uint32_t before,
                    uint32_t after)
{
    const struct dyti_step *step = &s->step[before];

    for (uint32_t k = 0; k < step->next_count; k++) {
        if (s->next[step->next_first + k] == after) {
            return true;
        }
    }
    return false;
}

static bool uses_slot(const struct dyti_step *step)
{
    return step->kind == DYTI_STEP_PACK || step->kind == DYTI_STEP_MOVE ||
           step->kind == DYTI_STEP_UNPACK;
}

/* One use of a slot: it must follow the last one. */
static enum dyt_status use_slot(const struct dyti_schedule *s, uint32_t i,
                                uint64_t offset, uint32_t last[DYTI_SLOTS_MAX])
{
    const struct dyti_step *step = &s->step[i];
    uint64_t bytes = s->message_bytes + DYTI_SLOT_HEAD_BYTES;
    uint64_t slot = offset / bytes;

    if (offset % bytes != DYTI_SLOT_HEAD_BYTES || slot >= s->slot_count ||
        step->lo >= step->hi || step->hi - step->lo > s->message_bytes) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "step %u: %llu bytes at %llu are no slot of the "
                         "staging",
                         i, (unsigned long long)(step->hi - step->lo),
                         (unsigned long long)offset);
    }
    if (last[slot] != DYTI_NO_STEP && last[slot] != i &&
        !follows(s, last[slot], i)) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "step %u uses a slot that step %u may still use", i,
                         last[slot]);
    }
    last[slot] = i;
    return DYT_OK;
}

/* Who uses a slot waits for whom had it before: one user at a time. */
static enum dyt_status check_slots(const struct dyti_schedule *s)
{
    uint32_t last[DYTI_SLOTS_MAX];
    enum dyt_status st = DYT_OK;

    for (uint32_t i = 0; i < DYTI_SLOTS_MAX; i++) {
        last[i] = DYTI_NO_STEP;
    }
    for (uint32_t i = 0; i < s->step_count && st == DYT_OK; i++) {
        const struct dyti_step *step = &s->step[i];

        if (uses_slot(step)) {
            st = use_slot(s, i, step->staging_offset, last);
        }
        for (uint32_t k = 0; k < step->part_count && st == DYT_OK; k++) {
            if (step->kind != DYTI_STEP_COLLECTIVE ||
                step->part_first + k >= s->part_count) {
                return DYTI_FAIL(DYT_ERR_INVALID,
                                 "step %u has messages that are not there", i);
            }
            st = use_slot(s, i, s->part[step->part_first + k].staging_offset,
                          last);
        }
    }
    return st;
}

/* Does step `at` send or receive on this link? */
static bool is_on_link(const struct dyti_schedule *s, uint32_t at,
                       uint32_t link)
{
    const struct dyti_step *step = &s->step[at];
    bool is_send = link < s->world_size;

    if (step->kind == DYTI_STEP_MOVE) {
        return is_send ? step->src_rank == s->rank && step->dst_rank == link
                       : step->dst_rank == s->rank &&
                             step->src_rank + s->world_size == link;
    }
    for (uint32_t k = 0; k < step->part_count; k++) {
        const struct dyti_fused_message *part = &s->part[step->part_first + k];

        if (part->is_send == is_send && part->peer == link % s->world_size) {
            return true;
        }
    }
    return false;
}

/* Every message of a link is in its chain, in order. */
static enum dyt_status check_links(const struct dyti_schedule *s)
{
    uint32_t moves = 0, linked = 0;

    for (uint32_t i = 0; i < s->step_count; i++) {
        moves += s->step[i].kind == DYTI_STEP_MOVE ? 1 : s->step[i].part_count;
    }
    for (uint32_t l = 0; s->link_first != NULL && l < 2 * s->world_size; l++) {
        uint32_t before = DYTI_NO_STEP, at = s->link_first[l];

        for (; at != DYTI_NO_STEP;
             before = at, at = dyti_schedule_link_next(s, at, l)) {
            if (at >= s->step_count || !is_on_link(s, at, l) ||
                (before != DYTI_NO_STEP && at <= before)) {
                return DYTI_FAIL(DYT_ERR_INVALID,
                                 "step %u is no message of link %u, or comes "
                                 "too early",
                                 at, l);
            }
            linked++;
        }
    }
    return moves == linked
               ? DYT_OK
               : DYTI_FAIL(DYT_ERR_INVALID, "%u messages, %u are in a chain",
                           moves, linked);
}

/* The steps of a stream take its bytes once. */
static enum dyt_status check_streams(const struct dyti_schedule *s)
{
    uint64_t *bytes = calloc((size_t)s->stream_count + 1, sizeof(*bytes));
    enum dyt_status st = DYT_OK;

    if (bytes == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u streams", s->stream_count);
    }
    for (uint32_t i = 0; i < s->step_count && st == DYT_OK; i++) {
        const struct dyti_step *step = &s->step[i];

        if (step->kind != DYTI_STEP_PACK && step->kind != DYTI_STEP_UNPACK) {
            continue;
        }
        if (step->stream >= s->stream_count ||
            step->hi > s->stream[step->stream].bytes) {
            st = DYTI_FAIL(DYT_ERR_INVALID,
                           "step %u is of a stream that is not there, or "
                           "shorter",
                           i);
        } else {
            bytes[step->stream] += step->hi - step->lo;
        }
    }
    for (uint32_t i = 0; i < s->stream_count && st == DYT_OK; i++) {
        if (bytes[i] != s->stream[i].bytes) {
            st = DYTI_FAIL(DYT_ERR_INVALID,
                           "the stream from rank %u to rank %u has %llu bytes, "
                           "steps take %llu",
                           s->stream[i].src_rank, s->stream[i].dst_rank,
                           (unsigned long long)s->stream[i].bytes,
                           (unsigned long long)bytes[i]);
        }
    }
    free(bytes);
    return st;
}

static enum dyt_status check_messages(const struct dyti_schedule *s)
{
    enum dyt_status st = check_slots(s);

    st = st != DYT_OK ? st : check_links(s);
    return st != DYT_OK ? st : check_streams(s);
}

/* Take ready steps until none is left; `waits` counts down. */
static enum dyt_status walk(const struct dyti_schedule *s, uint32_t *waits,
                            uint32_t *ready)
{
    uint32_t taken = 0, found = 0;

    for (uint32_t i = 0; i < s->step_count; i++) {
        if (waits[i] == 0) {
            ready[found++] = i;
        }
    }
    while (taken < found) {
        const struct dyti_step *step = &s->step[ready[taken++]];

        for (uint32_t k = 0; k < step->next_count; k++) {
            uint32_t next = s->next[step->next_first + k];

            if (--waits[next] == 0) {
                ready[found++] = next;
            }
        }
    }
    for (uint32_t i = 0; i < s->step_count; i++) {
        if (waits[i] != 0) {
            return DYTI_FAIL(DYT_ERR_INVALID,
                             "step %u waits in a circle: %u of %u steps can "
                             "run",
                             i, taken, s->step_count);
        }
    }
    return DYT_OK;
}

enum dyt_status dyti_schedule_check(const struct dyti_schedule *schedule)
{
    uint32_t *waits, *ready;
    enum dyt_status st;

    if (schedule->step_count == 0) {
        return DYTI_FAIL(DYT_ERR_INVALID, "a schedule without a fence");
    }
    waits = calloc(schedule->step_count, sizeof(*waits));
    ready = calloc(schedule->step_count, sizeof(*ready));
    if (waits == NULL || ready == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "%u steps", schedule->step_count);
    } else {
        st = count_waits(schedule, waits);
        st = st != DYT_OK ? st : walk(schedule, waits, ready);
        st = st != DYT_OK ? st : check_fence(schedule);
        st = st != DYT_OK ? st : check_messages(schedule);
    }
    free(waits);
    free(ready);
    return st;
}
