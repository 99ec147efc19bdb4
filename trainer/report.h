/* What a step adds up for its metrics: sums on each rank, one reduction at the
 * end. */
#ifndef DYTI_TRAINER_REPORT_H
#define DYTI_TRAINER_REPORT_H

#include "trainer/advantage.h"
#include "trainer/rank.h"

/* Everything here is reduced over the ranks: doubles only. */
struct dyti_report_sums {
    struct dyti_loss_sums loss; /* over all updates */
    double value, policy;       /* of the loss, added up over updates */
    double reward_kl, reward_kl_tokens;
};

struct dyti_report {
    struct dyti_report_sums sums;
    float gap_max;
    /* Equal on all ranks, or of this rank alone. */
    double norm, lr; /* norm: sum over updates */
    uint64_t version_before;
    uint32_t updates, micro_batches;
    int64_t logprob_ns, pipeline_ns, reduce_ns, optimizer_ns, gather_ns;
};

/* Trainer against rollout: log-probabilities of the own sequences of
 * mini-batches [lo, hi). */
void dyti_report_gap(struct dyti_report *report, const struct dyti_trainer *t,
                     enum dyti_trainer_logprob which, uint32_t lo, uint32_t hi);
/* After kl_sum was reduced. */
void dyti_report_reward_kl(struct dyti_report *report,
                           const struct dyti_trainer *t);
void dyti_report_update(struct dyti_report *report,
                        const struct dyti_trainer_config *config,
                        const struct dyti_loss_totals *totals,
                        const struct dyti_loss_sums *sums);

/* Collective over all ranks. */
enum dyt_status dyti_report_finish(struct dyti_report *report,
                                   const struct dyti_trainer *t,
                                   const struct dyti_advantage_stats *stats,
                                   struct dyti_train_metrics *out_metrics);

#endif /* DYTI_TRAINER_REPORT_H */
