/* Copies between mapped memories of devices, over NVLink or PCIe: to the copy
 * kernel both ends are addresses, pull and push alike.  A post queues one
 * launch and comes back; tickets are numbers of posts, and what has been posted
 * is done in that order.
 *
 * Nothing of CUDA is called from here: the kernels of a device queue lists,
 * and marks behind them (ops/kernels.h).  Only who asks for a ticket needs a
 * mark, and one mark answers for all posts before it.
 *
 *   posted  1  2  3  4  5  6        marked: 4, by a mark behind post 4
 *   done    1  2  3                 the mark has not been passed yet
 */
#include "mover/direct_cuda/direct_cuda.h"

#include <stdlib.h>

struct direct_cuda {
    struct dyti_kernels kernels; /* borrowed handle */
    uint32_t rank, world_size;
    dyti_ticket posted;
    dyti_ticket
        marked; /* posts that `mark` is behind; == done: there is none */
    dyti_ticket done;
    uint64_t mark;
};

static enum dyt_status direct_cuda_open(const struct dyti_mover_params *params,
                                        void **out_self)
{
    const struct dyti_kernel_ops *ops =
        params->kernels == NULL ? NULL : params->kernels->ops;
    struct direct_cuda *mover;

    if (ops == NULL || params->rank >= params->world_size) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "direct_cuda mover of rank %u of %u: kernels are "
                         "needed",
                         params->rank, params->world_size);
    }
    if (ops->mark == NULL || ops->passed == NULL || ops->wait == NULL ||
        ops->list_run == NULL) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "direct_cuda mover of rank %u: kernels \"%s\" queue "
                         "nothing; use the mover \"direct\"",
                         params->rank, ops->name);
    }
    mover = calloc(1, sizeof(*mover));
    if (mover == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "direct_cuda mover of rank %u",
                         params->rank);
    }
    mover->kernels = *params->kernels;
    mover->rank = params->rank;
    mover->world_size = params->world_size;
    *out_self = mover;
    return DYT_OK;
}

static void direct_cuda_cancel(void *self)
{
    struct direct_cuda *mover = self;

    /* its error is that of whoever cancels, or of the next post */
    (void)dyti_kernels_wait(&mover->kernels);
    mover->done = mover->marked = mover->posted;
}

static void direct_cuda_close(void *self)
{
    if (self != NULL) {
        direct_cuda_cancel(self);
        free(self);
    }
}

static enum dyt_status direct_cuda_post(void *self,
                                        const struct dyti_move *move,
                                        dyti_ticket *out_ticket)
{
    struct direct_cuda *mover = self;
    const struct dyti_kernels *k = &mover->kernels;
    enum dyt_status st = DYT_OK;

    if (move->kind != DYTI_MOVE_COPY || move->peer >= mover->world_size ||
        (move->copy == NULL && move->copy_count > 0)) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "rank %u: %zu copies with rank %u of %u", mover->rank,
                         move->copy_count, move->peer, mover->world_size);
    }
    if (move->list != NULL) {
        st = k->ops->list_run(k->self, move->list);
    } else if (move->copy_count > 0) {
        st = k->ops->copy(k->self, move->copy, move->copy_count);
    }
    if (st != DYT_OK) {
        DYTI_NOTE("copying between ranks %u and %u", mover->rank, move->peer);
        return st;
    }
    *out_ticket = ++mover->posted;
    return DYT_OK;
}

/* A mark behind all that has been posted, if there is none under way. */
static enum dyt_status set_mark(struct direct_cuda *mover)
{
    enum dyt_status st;

    if (mover->marked > mover->done) {
        return DYT_OK;
    }
    st = dyti_kernels_mark(&mover->kernels, &mover->mark);
    if (st == DYT_OK) {
        mover->marked = mover->posted;
    }
    return st;
}

static enum dyt_status direct_cuda_poll(void *self, dyti_ticket ticket)
{
    struct direct_cuda *mover = self;

    if (ticket == 0 || ticket > mover->posted) {
        return DYTI_FAIL(DYT_ERR_INVALID, "ticket %llu, the last was %llu",
                         (unsigned long long)ticket,
                         (unsigned long long)mover->posted);
    }
    while (ticket > mover->done) {
        enum dyt_status st = set_mark(mover);

        st = st != DYT_OK ? st
                          : dyti_kernels_passed(&mover->kernels, mover->mark);
        if (st != DYT_OK) {
            return st; /* DYT_PENDING, or what ended the work */
        }
        mover->done = mover->marked;
    }
    return DYT_OK;
}

const struct dyti_mover_ops dyti_mover_direct_cuda = {
    .struct_size = sizeof(struct dyti_mover_ops),
    .name = "direct_cuda",
    .caps = DYTI_MOVER_CAP_PULL | DYTI_MOVER_CAP_PUSH | DYTI_MOVER_CAP_QUEUED,
    .open = direct_cuda_open,
    .close = direct_cuda_close,
    .post = direct_cuda_post,
    .poll = direct_cuda_poll,
    .cancel = direct_cuda_cancel,
};
