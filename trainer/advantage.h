/* Answers "how much better than its group was a sample?", and which samples are
 * trained on at all.  Pure: the same on every rank. */
#ifndef DYTI_TRAINER_ADVANTAGE_H
#define DYTI_TRAINER_ADVANTAGE_H

#include "trainer/trainer.h"

#define DYTI_ADVANTAGE_EPS 1e-4 /* beside a standard deviation */

struct dyti_advantage_stats {
    double reward_mean, reward_std; /* as scored; std with n - 1 */
    double frac_zero_std;           /* of groups with a scored sample */
    double frac_overlong;           /* of samples that were not dropped */
    double mean, abs_mean;          /* of the advantages of kept samples */
    uint64_t dropped;               /* samples that are not kept */
};

/**
 * The reward of a sample is what score gave it, minus DAPO's soft punishment,
 * minus kl.coef * kl_sum where KL is in the reward.  A sample without a reward
 * counts nowhere; the others of its group are compared without it.
 *   GRPO  r - mean of the group       RLOO  r - mean of the others
 * divided by (std + 1e-4) of the group, of the batch, or not at all.  Standard
 * deviations have n - 1 in the denominator, and are 0 for n = 1.
 *
 * @param batch     ordered by (prompt, index)
 * @param kl_sum    [sample_count], sum over tokens; NULL: no KL in the reward
 * @param advantage [sample_count] out, 0 where not kept
 * @param keep      [sample_count] out: trained on.  Not: no reward, no token,
 *                  or of a group whose scored rewards are all equal where
 *                  zero_std_groups is not "keep"
 */
void dyti_advantages(const struct dyti_trainer_config *config,
                     const struct dyti_batch *batch, const double *kl_sum,
                     float *advantage, bool *keep,
                     struct dyti_advantage_stats *out_stats);

#endif /* DYTI_TRAINER_ADVANTAGE_H */
