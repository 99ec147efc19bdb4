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
    uint32_t last = s->step_count - 1, fences = 0;

    for (uint32_t i = 0; i < s->step_count; i++) {
        fences += s->step[i].kind == DYTI_STEP_FENCE;
        if (i < last && s->step[i].next_count == 0) {
            return DYTI_FAIL(DYT_ERR_INVALID,
                             "step %u has no follower: the fence does not wait "
                             "for it",
                             i);
        }
    }
    if (fences != 1 || s->step[last].kind != DYTI_STEP_FENCE) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "%u fences: there must be one, as the last step",
                         fences);
    }
    return DYT_OK;
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
    }
    free(waits);
    free(ready);
    return st;
}
