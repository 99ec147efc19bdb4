/* What rollout, score and trainer are told: plain settings, one struct per
 * table of a job's configuration.  bridge/format fills them from TOML and
 * checks every range; whoever makes one by hand starts from zero and sets all.
 *
 * Values of the enums are in the order of the words in the configuration.
 * Pointers are borrowed from the job (or the caller) for as long as it lives.
 */
#ifndef DYTI_DATA_SETTINGS_H
#define DYTI_DATA_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

/* Each enum here is stored in 32 bits. */
enum dyti_algorithm_name { DYTI_ALGO_GRPO, DYTI_ALGO_RLOO };
enum dyti_advantage_scale {
    DYTI_SCALE_GROUP, /* divide by the standard deviation of the group */
    DYTI_SCALE_BATCH,
    DYTI_SCALE_NONE
};
enum dyti_zero_std { DYTI_ZERO_KEEP, DYTI_ZERO_DROP, DYTI_ZERO_RESAMPLE };
enum dyti_old_logprobs { DYTI_OLD_RECOMPUTE, DYTI_OLD_ROLLOUT };
enum dyti_rollout_is { DYTI_IS_OFF, DYTI_IS_TOKEN, DYTI_IS_SEQUENCE };
enum dyti_rollout_is_mode { DYTI_IS_TRUNCATE, DYTI_IS_MASK };
enum dyti_kl_estimator { DYTI_KL_K1, DYTI_KL_K2, DYTI_KL_K3 };
enum dyti_kl_in { DYTI_KL_IN_LOSS, DYTI_KL_IN_REWARD };
enum dyti_overlong { DYTI_OVERLONG_KEEP, DYTI_OVERLONG_MASK };
enum dyti_ratio_level { DYTI_RATIO_TOKEN, DYTI_RATIO_SEQUENCE };
enum dyti_loss_agg {
    DYTI_AGG_TOKEN_MEAN,
    DYTI_AGG_SEQ_MEAN_TOKEN_MEAN,
    DYTI_AGG_SEQ_MEAN_TOKEN_SUM,
    DYTI_AGG_SEQ_MEAN_TOKEN_SUM_NORM /* divisor: max_response_tokens */
};
enum dyti_optimizer_name { DYTI_OPTIMIZER_ADAMW };
enum dyti_lr_name { DYTI_LR_CONSTANT, DYTI_LR_LINEAR, DYTI_LR_COSINE };
enum dyti_overlong_prompt {
    DYTI_PROMPT_DROP,
    DYTI_PROMPT_ERROR,
    DYTI_PROMPT_TRUNCATE_LEFT
};

/* [algorithm]: everything about a step but the loss itself. */
struct dyti_algorithm {
    enum dyti_algorithm_name name;
    uint32_t prompts_per_step;   /* >= 1 */
    uint32_t samples_per_prompt; /* >= 2: the group */
    enum dyti_advantage_scale advantage_scale;
    enum dyti_zero_std zero_std_groups;
    uint32_t max_resample_batches; /* with DYTI_ZERO_RESAMPLE, >= 1 */
    enum dyti_old_logprobs old_logprobs;
    enum dyti_rollout_is rollout_is; /* only with DYTI_OLD_RECOMPUTE */
    enum dyti_rollout_is_mode rollout_is_mode;
    double rollout_is_min, rollout_is_max; /* 0 <= min < max */
    double kl_coef;                        /* 0: no reference policy needed */
    enum dyti_kl_estimator kl_estimator;
    enum dyti_kl_in kl_in;
    enum dyti_overlong
        overlong;             /* mask: finish_reason length out of the loss */
    uint32_t overlong_buffer; /* tokens; 0: no overlong penalty */
    double overlong_factor;
    uint32_t max_staleness; /* 0 */
    /* Of a token's log-probability, rollout against trainer, before a step's
     * first update; 0: any. */
    double max_logprob_gap;
};

/* [phase.loss] */
struct dyti_loss {
    enum dyti_loss_agg loss_agg;
    enum dyti_ratio_level ratio_level;
    double clip_low, clip_high; /* ratio stays in [1 - low, 1 + high] */
    double clip_dual;           /* 0: off, else > 1 */
    double entropy_coef;        /* bonus, a mean per token */
};

/* [phase.batch] */
struct dyti_batching {
    uint32_t mini_batch;         /* sequences of one update, global */
    uint32_t micro_batch_tokens; /* per rank: memory only */
    uint32_t epochs;             /* passes over a step's samples */
};

/* [phase.optimizer] */
struct dyti_optimizer {
    enum dyti_optimizer_name name;
    double lr, beta1, beta2, eps, weight_decay;
    double max_grad_norm; /* 0: no clipping */
};

/* [phase.lr_schedule]; the decay ends with the job's last update. */
struct dyti_lr_schedule {
    enum dyti_lr_name name;
    uint32_t warmup_steps; /* updates: lr * (update + 1) / warmup_steps */
    double final_ratio;    /* of lr, at the last update */
};

/* [phase.sampling] */
struct dyti_sampling {
    double temperature; /* 0: greedy */
    uint32_t top_k;     /* 0: off */
    double top_p;       /* 1: off */
    double min_p;       /* 0: off */
    uint32_t max_response_tokens, min_response_tokens;
    bool ignore_eos;
    char **stop; /* [stop_count] UTF-8 strings */
    uint32_t stop_count;
    uint32_t *stop_token_id; /* [stop_token_id_count] */
    uint32_t stop_token_id_count;
};

/* [phase.kv] */
struct dyti_kv {
    uint64_t memory_bytes;     /* per rank, K and V of all its layers */
    uint32_t block;            /* tokens of a block */
    uint32_t max_sequences;    /* running at once in one replica */
    uint32_t max_batch_tokens; /* rows of one pass, prefill and decode */
};

#endif /* DYTI_DATA_SETTINGS_H */
