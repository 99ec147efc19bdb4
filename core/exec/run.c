/* The one loop: take a ready step, do it, count down those that wait for it.
 * No allocation, lock, formatting or look-up of names on the way. */
#include "exec/switch_internal.h"

#include <string.h>

static enum dyt_status copy_step(struct dyti_switch *self,
                                 const struct dyti_step *step)
{
    const struct dyti_switch_params *params = &self->params;
    struct dyti_move move = {.struct_size = sizeof(move),
                             .peer = step->src_rank == params->rank
                                         ? step->dst_rank
                                         : step->src_rank,
                             .copy = self->copy + step->span_first,
                             .copy_count = step->span_count};
    dyti_ticket ticket = 0;
    enum dyt_status st;

    do {
        st = params->mover->post(params->mover_self, &move, &ticket);
    } while (st == DYT_PENDING &&
             atomic_load(&params->control->abort.value) == 0);
    if (st != DYT_OK) {
        return st == DYT_PENDING ? dyti_control_check(params->control) : st;
    }
    do {
        st = params->mover->poll(params->mover_self, ticket);
    } while (st == DYT_PENDING &&
             atomic_load(&params->control->abort.value) == 0);
    if (st == DYT_PENDING) {
        params->mover->cancel(params->mover_self);
        return dyti_control_check(params->control);
    }
    return st;
}

static enum dyt_status do_step(struct dyti_switch *self,
                               const struct dyti_step *step)
{
    switch ((enum dyti_step_kind)step->kind) {
    case DYTI_STEP_COPY:
        return copy_step(self, step);
    case DYTI_STEP_FENCE:
        /* A full barrier on a word of our own (and one that race checkers
         * understand): the vote, or the barrier of a push, comes after it. */
        (void)atomic_fetch_or(
            &self->params.control->rank[self->params.rank].vote, 0);
        return DYT_OK;
    default: /* refused when it was resolved */
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED, "a step of kind %u", step->kind);
    }
}

enum dyt_status dyti_switch_transfer(struct dyti_switch *self)
{
    const struct dyti_schedule *schedule = self->schedule;
    uint32_t head = 0, tail = 0;

    for (uint32_t i = 0; i < schedule->step_count; i++) {
        self->waits[i] = schedule->step[i].wait_count;
        if (self->waits[i] == 0) {
            self->ready[tail++] = i;
        }
    }
    while (head < tail) {
        const struct dyti_step *step = &schedule->step[self->ready[head++]];
        enum dyt_status st;

        if (atomic_load_explicit(&self->params.control->abort.value,
                                 memory_order_relaxed) != 0) {
            return dyti_control_check(self->params.control);
        }
        st = do_step(self, step);
        if (st != DYT_OK) {
            DYTI_NOTE("switching on rank %u, step %u", self->params.rank,
                      (unsigned)(step - schedule->step));
            return st;
        }
        for (uint32_t i = 0; i < step->next_count; i++) {
            uint32_t next = schedule->next[step->next_first + i];

            if (--self->waits[next] == 0) {
                self->ready[tail++] = next;
            }
        }
    }
    return DYT_OK;
}
