/* Gradients of all dp ranks into the owner's part, parameters back. */
#include "trainer/rank.h"

static enum dyt_status sum_shares(struct dyti_trainer *t)
{
    struct dyti_share_sum sum = {
        .shares = &t->shares,
        .kernels = t->p.kernels,
        .tp = t->p.tp,
        .all = t->p.all,
        .grad = t->p.grad,
        .scratch = t->ws.shares,
    };

#ifdef DYT_TEST_HOOKS
    sum.double_first = t->p.mutant == DYTI_MUTANT_DOUBLE_SHARED;
    if (t->p.mutant == DYTI_MUTANT_DOUBLE_REPLICA &&
        t->view->part.dp_rank == 0) {
        enum dyt_status st = t->p.kernels.ops->scale(
            t->p.kernels.self, t->p.grad, (int64_t)t->view->flat_elements, 2);

        if (st != DYT_OK) {
            return st;
        }
    }
#endif
    return dyti_shares_sum(&sum);
}

enum dyt_status dyti_zero_reduce(struct dyti_trainer *t)
{
    const struct dyti_group *dp = &t->p.dp;
    enum dyt_status st = sum_shares(t);

    if (st != DYT_OK || dyti_alone(dp)) {
        return st;
    }
    if (t->p.layout->desc.zero == 0) {
        st = dp->ops->all_reduce(dp->self, t->p.grad, t->view->flat_elements,
                                 DYTI_SUM_F32);
    } else {
        st = dp->ops->reduce_scatter(dp->self, t->p.grad,
                                     t->p.grad + t->view->zero_lo, t->cut,
                                     DYTI_SUM_F32);
    }
    if (st != DYT_OK) {
        DYTI_NOTE("summing gradients over %u dp ranks", dp->size);
    }
    return st;
}

enum dyt_status dyti_zero_gather(struct dyti_trainer *t)
{
    const struct dyti_group *dp = &t->p.dp;
    uint64_t item = dyti_dtype_bytes(t->weights.dtype);
    enum dyt_status st;

    if (dyti_alone(dp) || t->p.layout->desc.zero == 0) {
        return DYT_OK; /* every rank has updated all it holds */
    }
    st = dp->ops->all_gather(
        dp->self, (unsigned char *)t->p.param + t->view->zero_lo * item,
        t->p.param, t->cut_bytes);
    if (st != DYT_OK) {
        DYTI_NOTE("gathering parameters from %u dp ranks", dp->size);
    }
    return st;
}
