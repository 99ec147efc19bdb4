/* The one loop: take a ready step, do it, count down those that wait for it.
 * No allocation, lock, formatting or look-up of names on the way. */
#include "exec/switch_internal.h"

#include <sched.h>

struct loop {
    const struct dyti_switch_order *order;
    uint64_t epoch;
    uint32_t head, tail; /* of the queue of steps that may start */
    uint32_t ended, fences;
};

static enum dyt_status copy_step(struct dyti_switch *self,
                                 const struct dyti_step *step)
{
    const struct dyti_switch_params *params = &self->params;
    struct dyti_move move = {.struct_size = sizeof(move),
                             .peer = step->src_rank == params->rank
                                         ? step->dst_rank
                                         : step->src_rank,
                             .copy = self->copy + step->span_first,
                             .copy_count = step->span_count,
                             .list = dyti_queue_list(self, step)};
    dyti_ticket ticket = 0;
    enum dyt_status st;

    do {
        st = params->mover->post(params->mover_self, &move, &ticket);
    } while (st == DYT_PENDING &&
             atomic_load(&params->control->abort.value) == 0);
    if (st != DYT_OK) {
        return st == DYT_PENDING ? dyti_control_check(params->control) : st;
    }
    if (dyti_queue_is_there(self)) {
        return DYT_OK; /* marks of the queue tell when it is done */
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

/* The last fence orders this rank's stores before its vote; others are where
 * all ranks meet. */
static enum dyt_status fence_step(struct dyti_switch *self, struct loop *loop,
                                  uint32_t index)
{
    struct dyti_control_page *page = self->params.control;
    enum dyt_status st = dyti_queue_drain(self);

    if (st != DYT_OK) {
        return st;
    }
    /* A full barrier on a word of our own (and one that race checkers
     * understand): the vote, or the barrier of a push, comes after it. */
    (void)atomic_fetch_or(&page->rank[self->params.rank].vote, 0);
    if (index + 1 == self->schedule->step_count) {
        return DYT_OK;
    }
    dyti_switch_at(loop->order, DYTI_AT_WAVE);
    dyti_in_place_fence(self, loop->epoch, loop->fences);
    return dyti_fence_meet(self, loop->epoch, loop->fences++);
}

/* One of those that a step waits for is out of its way. */
static void count_down(struct dyti_switch *self, struct loop *loop,
                       uint32_t index)
{
    if (--self->waits[index] == 0) {
        self->ready[loop->tail++] = index;
    }
}

/* Steps of an index that has ended may start now. */
static void end_step(struct dyti_switch *self, struct loop *loop,
                     uint32_t index)
{
    const struct dyti_schedule *schedule = self->schedule;
    const struct dyti_step *step = &schedule->step[index];

    for (uint32_t i = 0; i < step->next_count; i++) {
        count_down(self, loop, schedule->next[step->next_first + i]);
    }
    loop->ended++;
}

/* A device has queued it: what it queues besides may follow at once, the rest
 * when it is done. */
static enum dyt_status queue_step(struct dyti_switch *self, struct loop *loop,
                                  uint32_t index)
{
    const struct dyti_schedule *schedule = self->schedule;
    const struct dyti_step *step = &schedule->step[index];
    bool is_awaited = false;

    for (uint32_t i = 0; i < step->next_count; i++) {
        uint32_t next = schedule->next[step->next_first + i];

        if (dyti_queue_takes(self, next)) {
            count_down(self, loop, next);
        } else {
            is_awaited = true;
        }
    }
    if (is_awaited) {
        return dyti_queue_add(self, index);
    }
    loop->ended++;
    return DYT_OK;
}

/* What the device has done, of what others wait for. */
static enum dyt_status look_at_queue(struct dyti_switch *self,
                                     struct loop *loop)
{
    const struct dyti_schedule *schedule = self->schedule;
    enum dyt_status st = DYT_OK;
    uint32_t index;

    while (dyti_queue_waits(self) &&
           (st = dyti_queue_poll(self, &index)) == DYT_OK) {
        const struct dyti_step *step = &schedule->step[index];

        for (uint32_t i = 0; i < step->next_count; i++) {
            uint32_t next = schedule->next[step->next_first + i];

            if (!dyti_queue_takes(self, next)) {
                count_down(self, loop, next);
            }
        }
        loop->ended++;
    }
    if (st == DYT_PENDING && loop->head == loop->tail &&
        dyti_messages_in_flight(self) == 0) {
        (void)sched_yield(); /* nothing to do but to ask again */
    }
    return st == DYT_PENDING ? DYT_OK : st;
}

static enum dyt_status do_step(struct dyti_switch *self, struct loop *loop,
                               uint32_t index)
{
    const struct dyti_step *step = &self->schedule->step[index];
    uint32_t freed = DYTI_NO_STEP;
    enum dyt_status st;

    switch ((enum dyti_step_kind)step->kind) {
    case DYTI_STEP_COPY:
        st = copy_step(self, step);
        break;
    case DYTI_STEP_FENCE:
        st = fence_step(self, loop, index);
        break;
    case DYTI_STEP_PACK:
    case DYTI_STEP_UNPACK:
        st = dyti_messages_pack(self, step);
        freed = dyti_messages_frees(self, index);
        break;
    case DYTI_STEP_COLLECTIVE:
    case DYTI_STEP_MOVE: /* ends when it lands */
        return dyti_messages_post(self, index);
    default: /* refused when it was resolved */
        st = DYTI_FAIL(DYT_ERR_UNSUPPORTED, "a step of kind %u", step->kind);
        break;
    }
    if (st == DYT_OK && step->kind != DYTI_STEP_FENCE &&
        dyti_queue_takes(self, index)) {
        st = queue_step(self, loop, index);
    } else if (st == DYT_OK) {
        end_step(self, loop, index);
    }
    if (st == DYT_OK && freed != DYTI_NO_STEP) { /* queued behind it, if so */
        count_down(self, loop, freed);
    }
    return st;
}

/* What has landed; sleep if nothing has and there is nothing else to do. */
static enum dyt_status look_at_messages(struct dyti_switch *self,
                                        struct loop *loop)
{
    uint32_t landed[DYTI_SLOTS_MAX], count = 0;
    enum dyt_status st = dyti_messages_poll(self, landed, &count);

    if (st != DYT_OK) {
        return st;
    }
    for (uint32_t i = 0; i < count; i++) {
        end_step(self, loop, landed[i]);
    }
    return count > 0 || loop->head < loop->tail || dyti_queue_waits(self)
               ? DYT_OK
               : dyti_messages_wait(self, loop->epoch);
}

static enum dyt_status run_loop(struct dyti_switch *self, struct loop *loop)
{
    const struct dyti_schedule *schedule = self->schedule;
    enum dyt_status st = DYT_OK;

    while (loop->ended < schedule->step_count && st == DYT_OK) {
        if (atomic_load_explicit(&self->params.control->abort.value,
                                 memory_order_relaxed) != 0) {
            return dyti_control_check(self->params.control);
        }
        if (loop->head < loop->tail) {
            uint32_t index = self->ready[loop->head++];

            st = do_step(self, loop, index);
            if (st != DYT_OK) {
                DYTI_NOTE("switching on rank %u, step %u", self->params.rank,
                          index);
            }
        }
        if (st == DYT_OK && dyti_queue_waits(self)) {
            st = look_at_queue(self, loop);
        }
        if (st == DYT_OK && dyti_messages_in_flight(self) > 0) {
            st = look_at_messages(self, loop);
        }
    }
    return st;
}

enum dyt_status dyti_switch_transfer(struct dyti_switch *self,
                                     const struct dyti_switch_order *order)
{
    const struct dyti_schedule *schedule = self->schedule;
    struct loop loop = {.order = order,
                        .epoch = atomic_load(&self->params.control->epoch)};
    enum dyt_status st;

    dyti_queue_begin(self);
    for (uint32_t i = 0; i < schedule->step_count; i++) {
        self->waits[i] =
            schedule->step[i].wait_count + dyti_messages_held(self, i);
        if (self->waits[i] == 0) {
            self->ready[loop.tail++] = i;
        }
    }
    st = run_loop(self, &loop);
    if (st != DYT_OK) {
        dyti_queue_stop(self);
        dyti_messages_stop(self);
        dyti_fence_give_up(self, loop.epoch);
    }
    return st;
}
