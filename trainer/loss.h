/* Answers "what is the loss of these tokens, and its derivative by each token's
 * log-probability and entropy?"  Pure; knows nothing of passes and ranks.
 *
 *   L = Σ_t a_t (w_t P_t + kl.coef KL_t) - entropy_coef Σ_t H_t / tokens
 *
 * P   clipped policy loss of ratio exp(current - old), of the token or, with
 *     ratio_level "sequence", of the mean over the sequence
 * w   weight against the mismatch of rollout and trainer; no gradient; the
 *     denominators do not see it
 * a   weight by loss_agg:
 *       token-mean             1 / tokens
 *       seq-mean-token-mean    1 / (sequences * tokens of the sequence)
 *       seq-mean-token-sum     1 / sequences
 *       …-norm                 1 / (sequences * max_response_tokens)
 * Masked sequences (overlong) have no token in the loss, but count as a
 * sequence.
 */
#ifndef DYTI_TRAINER_LOSS_H
#define DYTI_TRAINER_LOSS_H

#include "trainer/trainer.h"

/* Exponents beyond this are cut, in ratios, weights and KL. */
#define DYTI_LOSS_MAX_EXPONENT 20.0

/* What a mini-batch has, over all dp ranks and micro-batches. */
struct dyti_loss_totals {
    uint64_t tokens;    /* in the loss: not masked */
    uint64_t sequences; /* masked ones too */
};

/* One sequence, all arrays [count]. */
struct dyti_loss_sequence {
    uint32_t count;
    const float *current, *entropy;
    const float *old;       /* may be `current`: then the ratio is 1 */
    const float *rollout;   /* processed, as sampled */
    const float *reference; /* NULL: no KL in the loss */
    float advantage;
    bool masked;
};

/* Sums over tokens, to be added over sequences and ranks. */
struct dyti_loss_sums {
    double policy, kl_loss;     /* weighted: add up to the loss */
    double kl, entropy;         /* unweighted, of tokens in the loss */
    double clip_low, clip_high; /* tokens where the clip bites */
    double tokens;
    /* trainer (`old`) against rollout, of all tokens */
    double gap_abs, gap, gap_tokens;
    double is_sum, is_sum_sq, is_count; /* of tokens or of sequences */
    double is_truncated, is_masked;     /* tokens */
};
#define DYTI_LOSS_SUMS (sizeof(struct dyti_loss_sums) / sizeof(double))

/* A derivative needs the other tokens of its sequence: then a sequence must be
 * done as a whole. */
bool dyti_loss_whole(const struct dyti_trainer_config *config);

/**
 * Tokens [lo, hi) of a sequence; all of them where dyti_loss_whole().
 * @param dlogprob, dentropy  [hi - lo] out
 * @param sums                added to
 */
void dyti_loss_tokens(const struct dyti_trainer_config *config,
                      const struct dyti_loss_totals *totals,
                      const struct dyti_loss_sequence *sequence, uint32_t lo,
                      uint32_t hi, float *dlogprob, float *dentropy,
                      struct dyti_loss_sums *sums);

/* KL(current || reference) of a token by its sampled log-probabilities. */
double dyti_loss_kl(enum dyti_kl_estimator estimator, double current,
                    double reference);

/* Trainer against rollout: fills gap_* only, and returns the largest |gap|. */
double dyti_loss_gap(const struct dyti_loss_sequence *sequence,
                     struct dyti_loss_sums *sums);

/* What these sums are of the mini-batch's loss: values of disjoint sums add up
 * to it. */
double dyti_loss_value(const struct dyti_trainer_config *config,
                       const struct dyti_loss_totals *totals,
                       const struct dyti_loss_sums *sums);

#endif /* DYTI_TRAINER_LOSS_H */
