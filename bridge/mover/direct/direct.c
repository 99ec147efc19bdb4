/* Copies between mapped memories, pull and push alike: to the copy kernel both
 * ends are addresses of this process.  A post does all of its work, so tickets
 * are done in order and at once. */
#include "mover/direct/direct.h"

#include <stdlib.h>

struct direct {
    struct dyti_kernels kernels; /* borrowed handle */
    uint32_t rank, world_size;
    dyti_ticket last;
};

static enum dyt_status direct_open(const struct dyti_mover_params *params,
                                   void **out_self)
{
    struct direct *mover;

    if (params->kernels == NULL || params->kernels->ops == NULL ||
        params->rank >= params->world_size) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "direct mover of rank %u of %u: kernels are needed",
                         params->rank, params->world_size);
    }
    if (params->kernels->ops->wait != NULL) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "direct mover of rank %u: kernels \"%s\" queue their "
                         "work, and this mover waits for none",
                         params->rank, params->kernels->ops->name);
    }
    mover = calloc(1, sizeof(*mover));
    if (mover == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "direct mover of rank %u",
                         params->rank);
    }
    mover->kernels = *params->kernels;
    mover->rank = params->rank;
    mover->world_size = params->world_size;
    *out_self = mover;
    return DYT_OK;
}

static void direct_close(void *self)
{
    free(self);
}

static enum dyt_status direct_post(void *self, const struct dyti_move *move,
                                   dyti_ticket *out_ticket)
{
    struct direct *mover = self;
    enum dyt_status st;

    if (move->peer >= mover->world_size ||
        (move->copy == NULL && move->copy_count > 0)) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "rank %u: %zu copies with rank %u of %u", mover->rank,
                         move->copy_count, move->peer, mover->world_size);
    }
    st = mover->kernels.ops->copy(mover->kernels.self, move->copy,
                                  move->copy_count);
    if (st != DYT_OK) {
        DYTI_NOTE("copying between ranks %u and %u", mover->rank, move->peer);
        return st;
    }
    *out_ticket = ++mover->last;
    return DYT_OK;
}

static enum dyt_status direct_poll(void *self, dyti_ticket ticket)
{
    const struct direct *mover = self;

    if (ticket == 0 || ticket > mover->last) {
        return DYTI_FAIL(DYT_ERR_INVALID, "ticket %llu, the last was %llu",
                         (unsigned long long)ticket,
                         (unsigned long long)mover->last);
    }
    return DYT_OK;
}

static void direct_cancel(void *self)
{
    (void)self; /* nothing is ever in flight between calls */
}

const struct dyti_mover_ops dyti_mover_direct = {
    .struct_size = sizeof(struct dyti_mover_ops),
    .name = "direct",
    .caps = DYTI_MOVER_CAP_PULL | DYTI_MOVER_CAP_PUSH,
    .open = direct_open,
    .close = direct_close,
    .post = direct_post,
    .poll = direct_poll,
    .cancel = direct_cancel,
};
