/* From sums to metrics. */
#include "trainer/report.h"

#include <math.h>

#define ITEMS(type) (sizeof(type) / sizeof(double))

static void add_sums(double *to, const double *from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        to[i] += from[i];
    }
}

void dyti_report_gap(struct dyti_report *report, const struct dyti_trainer *t,
                     enum dyti_trainer_logprob which, uint32_t lo, uint32_t hi)
{
    const struct dyti_train_batch *b = &t->batch;

    if (!dyti_rank_speaks(t)) {
        return;
    }
    for (size_t i = (size_t)lo * b->mini; i < (size_t)hi * b->mini; i++) {
        const struct dyti_train_sequence *q = &b->sequence[i];
        struct dyti_loss_sequence s = {.count = q->sample->count,
                                       .old = t->value[which] + q->token_first,
                                       .rollout = q->sample->processed};
        float gap;

        if (q->keep && q->owner == t->view->part.dp_rank) {
            gap = (float)dyti_loss_gap(&s, &report->sums.loss);
            if (gap > report->gap_max || isnan(gap)) {
                report->gap_max = isnan(gap) ? INFINITY : gap;
            }
        }
    }
}

void dyti_report_reward_kl(struct dyti_report *report,
                           const struct dyti_trainer *t)
{
    /* The sums are everywhere by now; one rank speaks for all. */
    if (!dyti_rank_speaks(t) || t->view->part.dp_rank != 0) {
        return;
    }
    for (uint32_t i = 0; i < t->batch.sequence_count; i++) {
        if (t->batch.sequence[i].keep) {
            report->sums.reward_kl += t->kl_sum[i];
            report->sums.reward_kl_tokens +=
                (double)t->batch.sequence[i].sample->count;
        }
    }
}

void dyti_report_update(struct dyti_report *report,
                        const struct dyti_trainer_config *config,
                        const struct dyti_loss_totals *totals,
                        const struct dyti_loss_sums *sums)
{
    report->sums.value += dyti_loss_value(config, totals, sums);
    report->sums.policy += sums->policy;
    add_sums((double *)&report->sums.loss, (const double *)sums,
             ITEMS(struct dyti_loss_sums));
}

/* What every rank can count by itself. */
static void count_batch(const struct dyti_trainer *t, uint64_t version,
                        struct dyti_train_metrics *m)
{
    double stale = 0, tokens = 0;

    for (uint32_t i = 0; i < t->batch.mini_count; i++) {
        struct dyti_loss_totals totals = dyti_train_batch_totals(&t->batch, i);

        m->tokens += totals.tokens;
        m->sequences += totals.sequences;
    }
    for (uint32_t i = 0; i < t->batch.sequence_count; i++) {
        const struct dyti_train_sequence *s = &t->batch.sequence[i];

        m->rows += s->keep ? s->rows : 0;
        for (uint32_t k = 0; s->keep && k < s->sample->span_count; k++) {
            const struct dyti_version_span *span = &s->sample->span[k];
            uint64_t age =
                version > span->version ? version - span->version : 0;

            stale += (double)age * (double)span->count;
            tokens += (double)span->count;
            m->staleness_max = age > m->staleness_max ? age : m->staleness_max;
        }
    }
    m->staleness_mean = tokens > 0 ? stale / tokens : 0;
}

static double over(double sum, double count)
{
    return count > 0 ? sum / count : 0;
}

static void fill_losses(const struct dyti_report *r,
                        struct dyti_train_metrics *m)
{
    const struct dyti_loss_sums *s = &r->sums.loss;
    double updates = (double)r->updates;

    m->loss = over(r->sums.value, updates);
    m->policy_loss = over(r->sums.policy, updates);
    m->kl = r->sums.reward_kl_tokens > 0
                ? over(r->sums.reward_kl, r->sums.reward_kl_tokens)
                : over(s->kl, s->tokens);
    m->entropy = over(s->entropy, s->tokens);
    m->clip_frac_low = over(s->clip_low, s->tokens);
    m->clip_frac_high = over(s->clip_high, s->tokens);
    m->grad_norm = over(r->norm, updates);
    m->lr = r->lr;
    m->mismatch_abs_mean = over(s->gap_abs, s->gap_tokens);
    m->mismatch_abs_max = (double)r->gap_max;
    m->rollout_kl = over(s->gap, s->gap_tokens);
    m->is_ess = s->is_sum_sq > 0
                    ? s->is_sum * s->is_sum / (s->is_count * s->is_sum_sq)
                    : 0;
    m->is_frac_truncated = over(s->is_truncated, s->tokens);
    m->is_frac_masked = over(s->is_masked, s->tokens);
}

static void fill_rewards(const struct dyti_advantage_stats *stats,
                         struct dyti_train_metrics *m)
{
    m->reward_mean = stats->reward_mean;
    m->reward_std = stats->reward_std;
    m->advantage_mean = stats->mean;
    m->advantage_abs_mean = stats->abs_mean;
    m->frac_reward_zero_std = stats->frac_zero_std;
    m->frac_overlong = stats->frac_overlong;
    m->dropped = stats->dropped;
}

enum dyt_status dyti_report_finish(struct dyti_report *report,
                                   const struct dyti_trainer *t,
                                   const struct dyti_advantage_stats *stats,
                                   struct dyti_train_metrics *out_metrics)
{
    const struct dyti_group *all = &t->p.all;
    struct dyti_train_metrics *m = out_metrics;
    enum dyt_status st = DYT_OK;

    if (!dyti_alone(all)) {
        st = all->ops->all_reduce(all->self, &report->sums,
                                  ITEMS(struct dyti_report_sums), DYTI_SUM_F64);
        st = st ? st
                : all->ops->all_reduce(all->self, &report->gap_max, 1,
                                       DYTI_MAX_F32);
    }
    if (st != DYT_OK) {
        DYTI_NOTE("adding up metrics");
        return st;
    }
    fill_losses(report, m);
    fill_rewards(stats, m);
    count_batch(t, report->version_before, m);
    m->updates = report->updates;
    m->version = t->state.version;
    m->micro_batches = report->micro_batches;
    m->live_max = t->live_max;
    m->time_logprob_ns = report->logprob_ns;
    m->time_pipeline_ns = report->pipeline_ns;
    m->time_reduce_ns = report->reduce_ns;
    m->time_optimizer_ns = report->optimizer_ns;
    m->time_gather_ns = report->gather_ns;
    return DYT_OK;
}
