/* Training, one rank's part of it.  Answers "what does a batch of samples do to
 * the weights?"
 * in: a scored batch, the train layout   out: new master and moments, metrics
 *
 * A step is: advantages; log-probabilities of `old` and `reference` in the
 * train layout; then for every epoch and mini-batch one update: 1F1B over
 * micro-batches, sums of gradients that are held in parts, reduce-scatter (or
 * all-reduce) over dp, global norm, clipping, AdamW on the rank's own part,
 * all-gather of the own parts into `param`.
 *
 * Terms
 *   row         a token position of a packed pass: a sequence of p prompt and
 *               n sampled tokens has p + n - 1 of them
 *   target      a sampled token; the row before it predicts it
 *   update      one optimizer step over one mini-batch
 *   version     number of committed updates in the weights
 *   own part    elements [zero_lo, zero_hi) of the rank's flat buffer
 *
 * Every train rank gets the whole batch and calls every function that says
 * "collective" in the same order with equal arguments.  Which sequence goes to
 * which dp rank and micro-batch is a pure function of the lengths.
 */
#ifndef DYTI_TRAINER_TRAINER_H
#define DYTI_TRAINER_TRAINER_H

#include "data/data.h"
#include "data/settings.h"
#include "layout/layout.h"
#include "nn/nn.h"
#include "ops/clock.h"
#include "ops/group.h"
#include "ops/kernels.h"

/* ---- settings (what they mean to a user: docs/config.md) ---------------- */

/* Plain value.  dyti_trainer_config_default() fills in what rl.md's table of
 * defaults says. */
struct dyti_trainer_config {
    /* algorithm */
    enum dyti_algorithm_name algorithm;
    enum dyti_advantage_scale advantage_scale;
    enum dyti_zero_std zero_std_groups;
    enum dyti_old_logprobs old_logprobs;
    enum dyti_rollout_is rollout_is; /* with RECOMPUTE only */
    enum dyti_rollout_is_mode rollout_is_mode;
    float rollout_is_min, rollout_is_max;
    struct {
        float coef; /* 0: no reference pass at all */
        enum dyti_kl_estimator estimator;
        enum dyti_kl_in in;
    } kl;
    float temperature; /* of the rollout; <= 0 (greedy) counts as 1 */
    uint32_t max_response_tokens; /* divisor of SUM_NORM */
    enum dyti_overlong overlong; /* MASK: finish == LENGTH is not in the loss */

    /* loss */
    enum dyti_loss_agg loss_agg;
    enum dyti_ratio_level ratio_level;
    float clip_low, clip_high;
    float dual_clip; /* 0: off; else > 1 + clip_high */
    float entropy_coef;

    /* optimizer: AdamW */
    float lr, beta1, beta2, eps, weight_decay;
    float max_grad_norm; /* <= 0: no clipping */

    /* learning rate, in updates: warm-up from lr/warmup to lr, then towards
     * min_lr at total_updates (linear, cosine) */
    enum dyti_lr_name schedule;
    uint64_t warmup_updates, total_updates;
    float min_lr;

    /* batches */
    uint32_t batch_sequences; /* of a step, over all ranks: the most */
    uint32_t mini_batch;      /* sequences of an update; 0: the whole batch */
    uint32_t micro_batch_tokens; /* rows of a pass on a rank; a longer sequence
                                    is a micro-batch of its own */
    uint32_t epochs;
    enum dyti_recompute recompute;
    uint64_t head_chunk_bytes; /* logits that exist at a time; 0: 32 MiB */
};

void dyti_trainer_config_default(struct dyti_trainer_config *out_config);

/* DYT_ERR_CONFIG names the key (`loss.dual_clip`, …), the value and what would
 * be right. */
enum dyt_status dyti_trainer_config_check(
    const struct dyti_trainer_config *config);

/* ---- one rank ----------------------------------------------------------- */

#ifdef DYT_TEST_HOOKS
/* Deliberate mistakes that tests must notice. */
enum dyti_trainer_mutant {
    DYTI_MUTANT_NONE,
    DYTI_MUTANT_DROP_MICRO,    /* dp rank 0 loses its last micro-batch */
    DYTI_MUTANT_DOUBLE_SHARED, /* the first holder's part counts twice */
    DYTI_MUTANT_DOUBLE_REPLICA /* dp rank 0's gradient counts twice */
};
#endif

struct dyti_trainer_params {
    struct dyti_trainer_config config;
    const struct dyti_layout *layout; /* of training; borrowed until destroy,
                                         and its model */
    uint32_t rank;                    /* world rank, a member of `layout` */
    struct dyti_kernels kernels;
    /* Handles borrowed until destroy.  Member order is the layout's: `tp` by
     * tp_rank, `dp` by dp_rank, `all` by member number. */
    struct dyti_group tp, dp, all;
    /* Bases of this rank's regions (zeroed once before the first use).
     * `master` may be NULL when param is f32 and zero is 0: param is then its
     * own master. */
    void *param;
    float *grad, *master, *exp_avg, *exp_avg_sq;
    /* Frozen weights of the reference role: a `param` region of the same
     * layout.  NULL unless config.kl.coef > 0. */
    const void *reference;
    /* Scratch for activations, free to use during dyti_trainer_step only. */
    void *work;
    uint64_t work_bytes; /* >= dyti_trainer_workspace_bytes() */
    int64_t positions;   /* longest sequence, prompt and answer together */
    /* All-gather after the last update of a step too: where nothing else fills
     * `param` before the next step (no switch in between). */
    bool gather_last;
    /* For metrics.time_*; NULL: they stay 0. */
    const struct dyti_clock_ops *clock;
    void *clock_self;
    /* Called after every pass over a micro-batch and after every update, with
     * the updates of the step that are done: a sign of life.  NULL: none. */
    void (*progress)(void *arg, uint32_t done, uint32_t total);
    void *progress_arg;
#ifdef DYT_TEST_HOOKS
    enum dyti_trainer_mutant mutant;
#endif
};

struct dyti_trainer;

/* Bytes of params.work on one rank.  Pure: known before anything is there. */
enum dyt_status dyti_trainer_workspace_bytes(
    const struct dyti_layout *layout, uint32_t rank,
    const struct dyti_trainer_config *config, int64_t positions,
    uint64_t *out_bytes);

/**
 * `params` is copied.  Not collective.
 * @return DYT_ERR_CONFIG   as dyti_trainer_config_check, or kl.coef > 0 without
 *                          reference weights
 * @return DYT_ERR_INVALID  not a member, a region is missing
 */
enum dyt_status dyti_trainer_create(const struct dyti_trainer_params *params,
                                    struct dyti_trainer **out_trainer);
void dyti_trainer_destroy(struct dyti_trainer *trainer);

/* What one step did.  Equal on all ranks but for the times and `live_max`. */
struct dyti_train_metrics {
    uint32_t updates;           /* committed; 0: nothing was left to train on */
    uint64_t version;           /* after the step */
    uint64_t tokens, sequences; /* sampled tokens and sequences in the loss */
    uint64_t rows; /* token positions, had no sample shared its prompt */
    double loss, policy_loss; /* means over the updates */
    double kl;                /* mean per token: current (or old, for KL in
                                 the reward) against reference */
    double entropy;           /* mean per token */
    double clip_frac_low, clip_frac_high;
    double grad_norm;               /* before clipping, mean over updates */
    double lr;                      /* of the last update */
    double reward_mean, reward_std; /* over samples that were not dropped */
    double advantage_mean, advantage_abs_mean;
    double frac_reward_zero_std; /* of groups */
    double frac_overlong;        /* of samples: finish == LENGTH */
    uint64_t dropped;            /* samples left out: null reward, empty,
                                    zero_std_groups = "drop" */
    /* Trainer against rollout on every sampled token that is trained on, before
     * the first update. */
    double mismatch_abs_mean, mismatch_abs_max, rollout_kl;
    double is_ess; /* effective sample size of the weights, 0..1 */
    double is_frac_truncated, is_frac_masked; /* of tokens */
    uint64_t staleness_max;
    double staleness_mean;  /* version at use - version of the token */
    uint32_t micro_batches; /* of this rank, all updates */
    uint32_t live_max;      /* most micro-batches alive at once on this rank */
    int64_t time_logprob_ns, time_pipeline_ns, time_reduce_ns,
        time_optimizer_ns, time_gather_ns, time_total_ns;
};

/**
 * Train on one scored batch.  Collective.
 *
 * @param batch  borrowed for the call; ordered (dyti_batch_order)
 * @param step   for messages
 *
 * @return DYT_ERR_CONFIG  mini_batch does not divide the batch (the text has
 *                         the nearest values that do)
 * @return DYT_ERR_INVALID a sample without its prompt, or longer than positions
 * @return DYT_ERR_VERIFY  loss or gradient norm is not finite; the weights are
 *                         those of the last good update
 * @return DYT_ERR_PEER, DYT_ERR_TIMEOUT, DYT_ERR_DEVICE, DYT_ERR_NOMEM: this
 *         step is lost, and with it the state of a half done update
 */
enum dyt_status dyti_trainer_step(struct dyti_trainer *trainer,
                                  const struct dyti_batch *batch, uint64_t step,
                                  struct dyti_train_metrics *out_metrics);

/* ---- what a step knew, until the next one ------------------------------- */

enum dyti_trainer_logprob {
    DYTI_LOGPROB_OLD,     /* before the first update */
    DYTI_LOGPROB_CURRENT, /* of the last pass over the sample */
    DYTI_LOGPROB_REFERENCE,
    DYTI_TOKEN_ENTROPY,
    DYTI_LOGPROB_COUNT
};

/* One number per sampled token of a sample, [count], processed (divided by the
 * temperature).  NULL where this rank has none: only the last pipeline stage of
 * the sample's dp rank knows them. */
const float *dyti_trainer_token_values(const struct dyti_trainer *trainer,
                                       uint32_t sample,
                                       enum dyti_trainer_logprob which);

/* ---- state for checkpoints ---------------------------------------------- */

/* All there is beside the tensors in the regions. */
struct dyti_trainer_state {
    uint64_t step;    /* calls of dyti_trainer_step that were completed */
    uint64_t version; /* committed updates in the weights */
    uint64_t updates; /* of these moments: bias correction and schedule */
};

void dyti_trainer_state_get(const struct dyti_trainer *trainer,
                            struct dyti_trainer_state *out_state);
void dyti_trainer_state_set(struct dyti_trainer *trainer,
                            const struct dyti_trainer_state *state);

#endif /* DYTI_TRAINER_TRAINER_H */
