/* The global norm, clipping, and AdamW on the rank's own part. */
#include "trainer/rank.h"

#include <math.h>

/* Elements of the flat buffer that this rank counts: its own part with ZeRO;
 * without, all dp ranks hold the same sums and each takes a share. */
static void norm_range(const struct dyti_trainer *t, uint64_t *out_lo,
                       uint64_t *out_hi)
{
    const struct dyti_part *part = &t->view->part;
    uint64_t unit = t->view->flat_elements / DYTI_ZERO_ALIGN;

    *out_lo = t->view->zero_lo;
    *out_hi = t->view->zero_hi;
    if (t->p.layout->desc.zero == 0) {
        *out_lo = unit * part->dp_rank / part->dp_size * DYTI_ZERO_ALIGN;
        *out_hi = unit * (part->dp_rank + 1u) / part->dp_size * DYTI_ZERO_ALIGN;
    }
}

static enum dyt_status global_norm(struct dyti_trainer *t, double *out_norm)
{
    const struct dyti_group *all = &t->p.all;
    uint64_t lo, hi;
    double sum = 0;
    enum dyt_status st;

    norm_range(t, &lo, &hi);
    st = dyti_shares_norm(&t->shares, &t->p.kernels, t->p.grad, lo, hi, &sum);
    if (st == DYT_OK && !dyti_alone(all)) {
        st = all->ops->all_reduce(all->self, &sum, 1, DYTI_SUM_F64);
    }
    if (st == DYT_OK) {
        *out_norm = sqrt(sum);
    }
    return st;
}

/* torch.nn.utils.clip_grad_norm_ */
static float clip_scale(const struct dyti_trainer_config *c, double norm)
{
    double scale = (double)c->max_grad_norm / (norm + 1e-6);

    return c->max_grad_norm > 0 && scale < 1 ? (float)scale : 1;
}

static enum dyt_status adamw(struct dyti_trainer *t, double lr, float scale)
{
    const struct dyti_trainer_config *c = &t->p.config;
    double steps = (double)t->state.updates + 1;
    struct dyti_adamw how = {
        .lr = (float)lr,
        .beta1 = c->beta1,
        .beta2 = c->beta2,
        .eps = c->eps,
        .weight_decay = c->weight_decay,
        .bias1 = (float)(1 - pow((double)c->beta1, steps)),
        .bias2 = (float)(1 - pow((double)c->beta2, steps)),
        .grad_scale = scale,
    };
    uint64_t lo = t->view->zero_lo, hi = t->view->zero_hi;
    void *param =
        (unsigned char *)t->p.param + lo * dyti_dtype_bytes(t->weights.dtype);
    float *master = t->p.master == NULL ? param : t->p.master;

    return t->p.kernels.ops->adamw(
        t->p.kernels.self, &how, (int64_t)(hi - lo), t->p.grad + lo, master,
        t->p.exp_avg, t->p.exp_avg_sq, (void *)master == param ? NULL : param,
        t->weights.dtype);
}

enum dyt_status dyti_optimizer_update(struct dyti_trainer *t, double lr,
                                      double *out_norm)
{
    double norm = 0;
    enum dyt_status st = global_norm(t, &norm);

    if (st == DYT_OK && !isfinite(norm)) {
        st = DYTI_FAIL(DYT_ERR_VERIFY,
                       "the gradient norm of update %llu is %g: weights or "
                       "rewards are broken, or the learning rate is too high",
                       (unsigned long long)t->state.updates, norm);
    }
    if (st == DYT_OK) {
        st = adamw(t, lr, clip_scale(&t->p.config, norm));
    }
    if (st == DYT_OK) {
        t->state.updates++;
        t->state.version++;
        *out_norm = norm;
    }
    return st;
}
