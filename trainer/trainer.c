/* Making and giving back a training rank; its state. */
#include "trainer/rank.h"

#include <stdlib.h>
#include <string.h>

static enum dyt_status check_group(const struct dyti_group *group,
                                   const char *name, uint32_t rank,
                                   uint32_t size)
{
    uint32_t have = group->ops == NULL ? 1 : group->size;
    uint32_t is = group->ops == NULL ? 0 : group->rank;

    if (have != size || is != rank) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "group %s says member %u of %u, the layout says %u of "
                         "%u",
                         name, is, have, rank, size);
    }
    return DYT_OK;
}

static enum dyt_status check_groups(const struct dyti_trainer_params *p,
                                    const struct dyti_part *part)
{
    uint32_t member =
        (part->pp_rank * part->dp_size + part->dp_rank) * part->tp_size +
        part->tp_rank;
    enum dyt_status st;

    st = check_group(&p->tp, "tp", part->tp_rank, part->tp_size);
    st = st ? st : check_group(&p->dp, "dp", part->dp_rank, part->dp_size);
    return st ? st
              : check_group(&p->all, "all", member, p->layout->member_count);
}

static enum dyt_status check_regions(const struct dyti_trainer_params *p,
                                     const struct dyti_view *view)
{
    bool own_master = p->master != NULL;
    const struct dyti_layout_desc *d = &p->layout->desc;
    uint64_t need = 0;
    enum dyt_status st;

    if (p->param == NULL || p->grad == NULL || p->exp_avg == NULL ||
        p->exp_avg_sq == NULL || p->work == NULL) {
        return DYTI_FAIL(DYT_ERR_INVALID, "a region of training is missing");
    }
    if (!own_master && (d->dtype[DYTI_PARAM] != DYTI_F32 || d->zero != 0)) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "%s weights with ZeRO %u need a master region",
                         dyti_dtype_name(d->dtype[DYTI_PARAM]), d->zero);
    }
    if (p->config.kl.coef > 0 && p->reference == NULL) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "algorithm.kl.coef is %g, but there are no reference "
                         "weights",
                         (double)p->config.kl.coef);
    }
    st = dyti_trainer_workspace_bytes(p->layout, p->rank, &p->config,
                                      p->positions, &need);
    if (st == DYT_OK && p->work_bytes < need) {
        st = DYTI_FAIL(
            DYT_ERR_INVALID, "work memory of %llu bytes, training needs %llu",
            (unsigned long long)p->work_bytes, (unsigned long long)need);
    }
    (void)view;
    return st;
}

static enum dyt_status check_params(const struct dyti_trainer_params *p)
{
    const struct dyti_view *view = dyti_layout_view(p->layout, p->rank);
    enum dyt_status st = dyti_trainer_config_check(&p->config);

    if (st == DYT_OK && !view->part.member) {
        st = DYTI_FAIL(DYT_ERR_INVALID, "rank %u does not train", p->rank);
    }
    if (st == DYT_OK && p->positions < 2) {
        st = DYTI_FAIL(DYT_ERR_INVALID,
                       "sequences of at most %lld tokens: one is prompt and "
                       "one is answer at least",
                       (long long)p->positions);
    }
    st = st ? st : check_groups(p, &view->part);
    return st ? st : check_regions(p, view);
}

/* Own parts of all dp ranks: they must tile the flat buffer. */
static enum dyt_status make_cut(struct dyti_trainer *t)
{
    const struct dyti_part *part = &t->view->part;
    uint64_t item = dyti_dtype_bytes(t->weights.dtype), at = 0;

    t->cut = calloc(2 * (size_t)part->dp_size, sizeof(*t->cut));
    if (t->cut == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u cuts", part->dp_size);
    }
    t->cut_bytes = t->cut + part->dp_size;
    if (t->p.layout->desc.zero == 0) {
        return DYT_OK;
    }
    for (uint32_t dp = 0; dp < part->dp_size; dp++) {
        const struct dyti_view *view = dyti_layout_view(
            t->p.layout,
            dyti_layout_rank(t->p.layout, part->tp_rank, part->pp_rank, dp));

        if (view->zero_lo != at) {
            return DYTI_FAIL(DYT_ERR_LAYOUT,
                             "the ZeRO part of dp rank %u begins at %llu, the "
                             "one before it ends at %llu",
                             dp, (unsigned long long)view->zero_lo,
                             (unsigned long long)at);
        }
        at = view->zero_hi;
        t->cut[dp] = view->zero_hi - view->zero_lo;
        t->cut_bytes[dp] = t->cut[dp] * item;
    }
    return DYT_OK;
}

static enum dyt_status bind_all(struct dyti_trainer *t)
{
    const struct dyti_model *model = t->p.layout->model;
    enum dyt_status st;

    st = dyti_nn_bind(model, t->view, DYTI_PARAM, t->p.param, &t->weights);
    st =
        st ? st : dyti_nn_bind(model, t->view, DYTI_GRAD, t->p.grad, &t->grads);
    if (st == DYT_OK && t->p.config.kl.coef > 0) {
        /* Only read; the binding is shared with gradients. */
        st = dyti_nn_bind(model, t->view, DYTI_PARAM,
                          (void *)(uintptr_t)t->p.reference, &t->reference);
    }
    return st;
}

static enum dyt_status set_up(struct dyti_trainer *t)
{
    const struct dyti_trainer_params *p = &t->p;
    struct dyti_region region;
    enum dyt_status st;

    st = dyti_nn_create(p->layout->model, &t->view->part, &p->kernels, &p->tp,
                        p->positions, &t->nn);
    st = st ? st : bind_all(t);
    st = st ? st : make_cut(t);
    st = st ? st : dyti_shares_build(p->layout, p->rank, &t->shares);
    dyti_region_init(&region, p->work, p->work_bytes);
    return st ? st
              : dyti_workspace_carve(&t->ws, &region, t->nn, &p->config,
                                     &t->shares, p->positions);
}

enum dyt_status dyti_trainer_create(const struct dyti_trainer_params *params,
                                    struct dyti_trainer **out_trainer)
{
    struct dyti_trainer *t;
    enum dyt_status st = check_params(params);

    if (st != DYT_OK) {
        DYTI_NOTE("setting up training on rank %u", params->rank);
        return st;
    }
    t = calloc(1, sizeof(*t));
    if (t == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a training rank");
    }
    t->p = *params;
    t->view = dyti_layout_view(params->layout, params->rank);
    st = set_up(t);
    if (st != DYT_OK) {
        DYTI_NOTE("setting up training on rank %u", params->rank);
        dyti_trainer_destroy(t);
        return st;
    }
    *out_trainer = t;
    return DYT_OK;
}

void dyti_trainer_destroy(struct dyti_trainer *trainer)
{
    if (trainer == NULL) {
        return;
    }
    for (int i = 0; i < DYTI_LOGPROB_COUNT; i++) {
        free(trainer->value[i]);
    }
    free(trainer->advantage);
    free(trainer->kl_sum);
    free(trainer->keep);
    free(trainer->cut);
    dyti_train_batch_fini(&trainer->batch);
    dyti_micro_set_fini(&trainer->micros);
    dyti_shares_fini(&trainer->shares);
    dyti_nn_unbind(&trainer->weights);
    dyti_nn_unbind(&trainer->grads);
    dyti_nn_unbind(&trainer->reference);
    dyti_nn_destroy(trainer->nn);
    free(trainer);
}

const float *dyti_trainer_token_values(const struct dyti_trainer *trainer,
                                       uint32_t sample,
                                       enum dyti_trainer_logprob which)
{
    const struct dyti_part *part = &trainer->view->part;
    const struct dyti_train_sequence *s;

    if (sample >= trainer->batch.sequence_count || !trainer->have[which] ||
        !part->has_head) {
        return NULL;
    }
    s = &trainer->batch.sequence[sample];
    if (!s->keep || s->owner != part->dp_rank) {
        return NULL;
    }
    return trainer->value[which] + s->token_first;
}

void dyti_trainer_state_get(const struct dyti_trainer *trainer,
                            struct dyti_trainer_state *out_state)
{
    *out_state = trainer->state;
}

void dyti_trainer_state_set(struct dyti_trainer *trainer,
                            const struct dyti_trainer_state *state)
{
    trainer->state = *state;
}
