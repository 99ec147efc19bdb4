/* One step: what is trained on, what is known before the first update, then the
 * updates. */
#include "trainer/advantage.h"
#include "trainer/rank.h"
#include "trainer/report.h"
#include "trainer/schedule.h"

#include "base/array.h"

#include <string.h>

struct step {
    struct dyti_trainer *t;
    const struct dyti_batch *batch;
    struct dyti_report report;
    struct dyti_advantage_stats stats;
    uint32_t minis; /* mini-batches with something to train on */
    bool old_is_current;
};

/* ---- before the first pass ---------------------------------------------- */

static enum dyt_status grow(struct dyti_trainer *t)
{
    size_t samples = t->batch.sequence_count;
    size_t tokens = t->batch.token_count;
    enum dyt_status st;

    st = DYTI_GROW(t->advantage, t->advantage_cap, samples);
    st = st ? st : DYTI_GROW(t->kl_sum, t->kl_cap, samples);
    st = st ? st : DYTI_GROW(t->keep, t->keep_cap, samples);
    for (int i = 0; i < DYTI_LOGPROB_COUNT && st == DYT_OK; i++) {
        st = DYTI_GROW(t->value[i], t->value_cap[i], tokens);
        t->have[i] = false;
    }
    return st;
}

static bool kl_in_reward(const struct dyti_trainer_config *c)
{
    return c->kl.coef > 0 && c->kl.in == DYTI_KL_IN_REWARD;
}

static enum dyt_status prepare(struct step *s)
{
    struct dyti_trainer *t = s->t;
    const struct dyti_trainer_config *c = &t->p.config;
    enum dyt_status st;

    t->updates = t->updates_done = 0;
    st = dyti_train_batch_load(&t->batch, c, t->p.positions, s->batch);
    st = st ? st : grow(t);
    if (st != DYT_OK) {
        return st;
    }
    dyti_advantages(c, s->batch, NULL, t->advantage, t->keep, &s->stats);
    st = dyti_train_batch_deal(&t->batch, c, t->keep, t->view->part.dp_size);
    for (uint32_t m = 0; m < t->batch.mini_count && st == DYT_OK; m++) {
        s->minis += dyti_train_batch_kept(&t->batch, m) > 0;
    }
    t->updates = s->minis * c->epochs;
    s->old_is_current = c->old_logprobs == DYTI_OLD_RECOMPUTE &&
                        t->updates == 1 && !kl_in_reward(c);
    return st;
}

/* ---- log-probabilities before the first update --------------------------- */

static enum dyt_status score(struct step *s,
                             const struct dyti_nn_weights *weights,
                             enum dyti_trainer_logprob into)
{
    struct dyti_trainer *t = s->t;
    struct dyti_pass pass = {
        .weights = weights, .micros = &t->micros, .into = into};
    enum dyt_status st = dyti_pipeline_run(t, &pass);

    if (st != DYT_OK) {
        DYTI_NOTE("log-probabilities of %s", into == DYTI_LOGPROB_REFERENCE
                                                 ? "the reference"
                                                 : "the old policy");
        return st;
    }
    t->have[into] = true;
    return DYT_OK;
}

static enum dyt_status score_all(struct step *s)
{
    struct dyti_trainer *t = s->t;
    const struct dyti_trainer_config *c = &t->p.config;
    bool reference = c->kl.coef > 0;
    bool old = !s->old_is_current &&
               (c->old_logprobs == DYTI_OLD_RECOMPUTE || kl_in_reward(c));
    int64_t start = dyti_rank_now(t);
    enum dyt_status st = DYT_OK;

    if (!reference && !old) {
        return DYT_OK;
    }
    st = dyti_micro_set_build(&t->micros, &t->batch, t->view->part.dp_rank, 0,
                              t->batch.mini_count, t->ws.micro_cap);
    if (st == DYT_OK && reference) {
        st = score(s, &t->reference, DYTI_LOGPROB_REFERENCE);
    }
    if (st == DYT_OK && old) {
        st = score(s, &t->weights, DYTI_LOGPROB_OLD);
    }
    if (st == DYT_OK && old) {
        dyti_report_gap(&s->report, t, DYTI_LOGPROB_OLD, 0,
                        t->batch.mini_count);
    }
    s->report.logprob_ns += dyti_rank_now(t) - start;
    return st;
}

/* KL of the old policy goes into the rewards: every rank needs that of every
 * sample. */
static enum dyt_status reward_kl(struct step *s)
{
    struct dyti_trainer *t = s->t;
    const struct dyti_trainer_config *c = &t->p.config;
    const struct dyti_group *all = &t->p.all;
    uint32_t count = t->batch.sequence_count;
    enum dyt_status st = DYT_OK;

    if (!kl_in_reward(c)) {
        return DYT_OK;
    }
    memset(t->kl_sum, 0, count * sizeof(*t->kl_sum));
    for (uint32_t i = 0; i < count && dyti_rank_speaks(t); i++) {
        const float *old = dyti_trainer_token_values(t, i, DYTI_LOGPROB_OLD);
        const float *reference =
            dyti_trainer_token_values(t, i, DYTI_LOGPROB_REFERENCE);

        for (uint32_t k = 0; old != NULL && k < s->batch->sample[i].count;
             k++) {
            t->kl_sum[i] += dyti_loss_kl(c->kl.estimator, (double)old[k],
                                         (double)reference[k]);
        }
    }
    if (!dyti_alone(all)) {
        st = all->ops->all_reduce(all->self, t->kl_sum, count, DYTI_SUM_F64);
    }
    if (st == DYT_OK) {
        dyti_advantages(c, s->batch, t->kl_sum, t->advantage, t->keep,
                        &s->stats);
        dyti_report_reward_kl(&s->report, t);
    }
    return st;
}

/* ---- updates ------------------------------------------------------------ */

struct dyti_loss_sequence dyti_rank_sequence(const struct dyti_trainer *t,
                                             const struct dyti_pass *pass,
                                             uint32_t number)
{
    const struct dyti_trainer_config *c = &t->p.config;
    const struct dyti_train_sequence *q = &t->batch.sequence[number];
    struct dyti_loss_sequence s = {
        .count = q->sample->count,
        .current = t->value[DYTI_LOGPROB_CURRENT] + q->token_first,
        .entropy = t->value[DYTI_TOKEN_ENTROPY] + q->token_first,
        .old = t->value[DYTI_LOGPROB_OLD] + q->token_first,
        .rollout = q->sample->processed,
        .advantage = t->advantage[number],
        .masked = q->masked,
    };

    if (c->old_logprobs == DYTI_OLD_ROLLOUT) {
        s.old = s.rollout;
    } else if (pass->old_is_current) {
        s.old = s.current;
    }
    if (c->kl.coef > 0 && !kl_in_reward(c)) {
        s.reference = t->value[DYTI_LOGPROB_REFERENCE] + q->token_first;
    }
    return s;
}

static enum dyt_status run_passes(struct step *s, uint32_t m,
                                  const struct dyti_loss_totals *totals)
{
    struct dyti_trainer *t = s->t;
    struct dyti_loss_sums sums = {0};
    struct dyti_pass pass = {.weights = &t->weights,
                             .micros = &t->micros,
                             .into = DYTI_LOGPROB_CURRENT,
                             .train = true,
                             .old_is_current = s->old_is_current,
                             .totals = *totals,
                             .sums = &sums};
    int64_t start = dyti_rank_now(t);
    enum dyt_status st;

#ifdef DYT_TEST_HOOKS
    pass.drop_last =
        t->p.mutant == DYTI_MUTANT_DROP_MICRO && t->view->part.dp_rank == 0;
#endif
    st = dyti_micro_set_build(&t->micros, &t->batch, t->view->part.dp_rank, m,
                              m + 1, t->ws.micro_cap);
    if (st != DYT_OK) {
        return st;
    }
    memset(t->p.grad, 0, t->view->flat_elements * sizeof(*t->p.grad));
    st = dyti_pipeline_run(t, &pass);
    if (st == DYT_OK) {
        dyti_report_update(&s->report, &t->p.config, totals, &sums);
        s->report.micro_batches += t->micros.micro_count;
        s->report.pipeline_ns += dyti_rank_now(t) - start;
    }
    return st;
}

/* What the first update's own passes tell about the weights before it. */
static void keep_first(struct step *s, uint32_t m)
{
    struct dyti_trainer *t = s->t;

    t->have[DYTI_LOGPROB_CURRENT] = t->have[DYTI_TOKEN_ENTROPY] = true;
    if (t->updates_done > 0) {
        return;
    }
    if (!t->have[DYTI_LOGPROB_OLD]) {
        dyti_report_gap(&s->report, t, DYTI_LOGPROB_CURRENT, m, m + 1);
    }
    if (s->old_is_current) {
        memcpy(t->value[DYTI_LOGPROB_OLD], t->value[DYTI_LOGPROB_CURRENT],
               t->batch.token_count * sizeof(float));
        t->have[DYTI_LOGPROB_OLD] = true;
    }
}

static enum dyt_status update(struct step *s, uint32_t m)
{
    struct dyti_trainer *t = s->t;
    struct dyti_loss_totals totals = dyti_train_batch_totals(&t->batch, m);
    double norm = 0, lr = dyti_schedule_lr(&t->p.config, t->state.updates);
    enum dyt_status st = run_passes(s, m, &totals);
    int64_t start = dyti_rank_now(t), next;

    if (st == DYT_OK) {
        keep_first(s, m);
        st = dyti_zero_reduce(t);
    }
    next = dyti_rank_now(t);
    s->report.reduce_ns += next - start;
    st = st ? st : dyti_optimizer_update(t, lr, &norm);
    start = dyti_rank_now(t);
    s->report.optimizer_ns += start - next;
    if (st != DYT_OK) {
        return st;
    }
    t->updates_done++;
    dyti_rank_progress(t);
    s->report.norm += norm;
    s->report.lr = lr;
    if (t->updates_done < t->updates || t->p.gather_last) {
        st = dyti_zero_gather(t);
        s->report.gather_ns += dyti_rank_now(t) - start;
    }
    return st;
}

static enum dyt_status run(struct step *s)
{
    struct dyti_trainer *t = s->t;
    enum dyt_status st = prepare(s);

    s->report.version_before = t->state.version;
    t->live_max = 0;
    st = st ? st : score_all(s);
    st = st ? st : reward_kl(s);
    for (uint32_t e = 0; e < t->p.config.epochs && st == DYT_OK; e++) {
        for (uint32_t m = 0; m < t->batch.mini_count && st == DYT_OK; m++) {
            if (dyti_train_batch_kept(&t->batch, m) > 0) {
                st = update(s, m);
            }
        }
    }
    return st;
}

enum dyt_status dyti_trainer_step(struct dyti_trainer *trainer,
                                  const struct dyti_batch *batch, uint64_t step,
                                  struct dyti_train_metrics *out_metrics)
{
    struct step s = {.t = trainer, .batch = batch};
    struct dyti_train_metrics metrics = {0};
    int64_t start = dyti_rank_now(trainer);
    enum dyt_status st = run(&s);

    s.report.updates = trainer->updates_done;
    st = st ? st : dyti_report_finish(&s.report, trainer, &s.stats, &metrics);
    if (st != DYT_OK) {
        DYTI_NOTE("training step %llu", (unsigned long long)step);
        return st;
    }
    metrics.time_total_ns = dyti_rank_now(trainer) - start;
    trainer->state.step++;
    *out_metrics = metrics;
    return DYT_OK;
}
