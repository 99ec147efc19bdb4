/* Work that a device queues: what of a switch is made ready once, and when the
 * host, or another rank, needs it done.  Answers "may this start?" where the
 * one before it has only been queued.
 *
 * A device does what was queued in that order.  So a step that is queued too
 * may be so at once; one that the host does, or another rank (a message of the
 * host's, a fence), waits until the device is past it.  On the host nothing is
 * queued, and none of this is there. */
#include "exec/switch_internal.h"

#include <stdlib.h>

bool dyti_queue_is_there(const struct dyti_switch *self)
{
    return self->queue != NULL;
}

/* ---- once ------------------------------------------------------------------
 */

static enum dyt_status check(const struct dyti_switch *self)
{
    const struct dyti_switch_params *p = &self->params;
    const struct dyti_kernel_ops *ops = p->kernels.ops;

    if (ops->wait == NULL || ops->mark == NULL || ops->passed == NULL ||
        ops->list_make == NULL || ops->list_pack == NULL ||
        ops->list_unpack == NULL || ops->list_run == NULL ||
        ops->list_free == NULL) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "rank %u: kernels \"%s\" cannot queue lists", p->rank,
                         ops->name);
    }
    if (p->device_memory == NULL) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "rank %u: kernels \"%s\" need memory of their device",
                         p->rank, ops->name);
    }
    if ((p->mover->caps & DYTI_MOVER_CAP_QUEUED) == 0) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "rank %u: mover \"%s\" queues nothing, and kernels "
                         "\"%s\" do",
                         p->rank, p->mover->name, ops->name);
    }
    return DYT_OK;
}

static enum dyt_status make_list(struct dyti_switch *self, uint32_t index)
{
    const struct dyti_step *step = &self->schedule->step[index];
    const struct dyti_kernels *k = &self->params.kernels;
    struct dyti_copy_list **list = &self->queue->list[index];

    switch ((enum dyti_step_kind)step->kind) {
    case DYTI_STEP_COPY:
        return step->span_count == 0
                   ? DYT_OK
                   : k->ops->list_make(k->self, self->copy + step->span_first,
                                       step->span_count, list);
    case DYTI_STEP_PACK:
    case DYTI_STEP_UNPACK:
        return dyti_messages_list(self, step, list);
    default:
        return DYT_OK;
    }
}

enum dyt_status dyti_queue_init(struct dyti_switch *self)
{
    const struct dyti_kernels *k = &self->params.kernels;
    uint32_t steps = self->schedule->step_count;
    enum dyt_status st;

    if (k->ops->wait == NULL) {
        return DYT_OK; /* everything is done when the call is back */
    }
    st = check(self);
    if (st != DYT_OK) {
        return st;
    }
    self->queue = calloc(1, sizeof(*self->queue));
    if (self->queue != NULL) {
        self->queue->list = calloc((size_t)steps + 1, sizeof(void *));
        self->queue->work = calloc((size_t)steps + 1, sizeof(struct dyti_work));
    }
    if (self->queue != NULL && self->params.message != NULL) {
        self->queue->takes_messages =
            self->params.message->queued != NULL &&
            self->params.message->queued(self->params.message_self);
    }
    if (self->queue == NULL || self->queue->list == NULL ||
        self->queue->work == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a queue of %u steps", steps);
    }
    for (uint32_t i = 0; i < steps && st == DYT_OK; i++) {
        st = make_list(self, i);
        if (st != DYT_OK) {
            DYTI_NOTE("making step %u ready on rank %u", i, self->params.rank);
        }
    }
    if (st == DYT_OK && self->commit_count > 0) {
        st = k->ops->list_make(k->self, self->commit, self->commit_count,
                               &self->queue->commit);
    }
    /* lists are on the device before the first switch */
    return st == DYT_OK ? dyti_kernels_wait(k) : st;
}

void dyti_queue_fini(struct dyti_switch *self)
{
    const struct dyti_kernels *k = &self->params.kernels;
    struct dyti_queue *queue = self->queue;

    if (queue == NULL) {
        return;
    }
    for (uint32_t i = 0; queue->list != NULL && i < self->schedule->step_count;
         i++) {
        k->ops->list_free(k->self, queue->list[i]);
    }
    k->ops->list_free(k->self, queue->commit);
    free(queue->list);
    free(queue->work);
    free(queue);
    self->queue = NULL;
}

/* ---- every run ------------------------------------------------------------
 */

void dyti_queue_begin(struct dyti_switch *self)
{
    if (self->queue != NULL) {
        self->queue->head = self->queue->tail = 0;
    }
}

struct dyti_copy_list *dyti_queue_list(const struct dyti_switch *self,
                                       const struct dyti_step *step)
{
    return self->queue == NULL ? NULL
                               : self->queue->list[step - self->schedule->step];
}

/* A fence waits for all that was queued before it. */
bool dyti_queue_takes(const struct dyti_switch *self, uint32_t index)
{
    switch ((enum dyti_step_kind)self->schedule->step[index].kind) {
    case DYTI_STEP_COPY:
    case DYTI_STEP_PACK:
    case DYTI_STEP_UNPACK:
    case DYTI_STEP_FENCE:
        return self->queue != NULL;
    case DYTI_STEP_MOVE:
    case DYTI_STEP_COLLECTIVE:
        return self->queue != NULL && self->queue->takes_messages;
    default:
        return false;
    }
}

enum dyt_status dyti_queue_add(struct dyti_switch *self, uint32_t index)
{
    struct dyti_work work = {.step = index};
    enum dyt_status st = dyti_kernels_mark(&self->params.kernels, &work.mark);

    if (st == DYT_OK) {
        self->queue->work[self->queue->tail++] = work;
    }
    return st;
}

bool dyti_queue_waits(const struct dyti_switch *self)
{
    return self->queue != NULL && self->queue->head < self->queue->tail;
}

enum dyt_status dyti_queue_poll(struct dyti_switch *self, uint32_t *out_step)
{
    const struct dyti_work *work = &self->queue->work[self->queue->head];
    enum dyt_status st = dyti_kernels_passed(&self->params.kernels, work->mark);

    if (st == DYT_OK) {
        *out_step = work->step;
        self->queue->head++;
    }
    return st;
}

enum dyt_status dyti_queue_drain(const struct dyti_switch *self)
{
    return dyti_kernels_wait(&self->params.kernels);
}

void dyti_queue_stop(struct dyti_switch *self)
{
    if (self->queue != NULL) {
        self->params.mover->cancel(self->params.mover_self);
        (void)dyti_kernels_wait(&self->params.kernels); /* failed already */
        dyti_queue_begin(self);
    }
}
