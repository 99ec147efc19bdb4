/* Defaults and checks of the settings of training. */
#include "trainer/trainer.h"

#include <math.h>

void dyti_trainer_config_default(struct dyti_trainer_config *out_config)
{
    *out_config = (struct dyti_trainer_config){
        .algorithm = DYTI_ALGO_GRPO,
        .advantage_scale = DYTI_SCALE_GROUP,
        .zero_std_groups = DYTI_ZERO_KEEP,
        .old_logprobs = DYTI_OLD_RECOMPUTE,
        .rollout_is = DYTI_IS_OFF,
        .rollout_is_mode = DYTI_IS_TRUNCATE,
        .rollout_is_max = 2.0f,
        .kl = {.coef = 0.0f, .estimator = DYTI_KL_K3, .in = DYTI_KL_IN_LOSS},
        .temperature = 1.0f,
        .loss_agg = DYTI_AGG_TOKEN_MEAN,
        .clip_low = 0.2f,
        .clip_high = 0.28f,
        .lr = 1e-6f,
        .beta1 = 0.9f,
        .beta2 = 0.999f,
        .eps = 1e-8f,
        .max_grad_norm = 1.0f,
        .micro_batch_tokens = 4096,
        .epochs = 1,
    };
}

/* One row per number: its key, its value, what is right. */
struct range {
    const char *key;
    double value, least, most;
    bool open; /* `least` itself is wrong */
};

static enum dyt_status check_range(const struct range *r)
{
    if (isfinite(r->value) && r->value <= r->most &&
        (r->open ? r->value > r->least : r->value >= r->least)) {
        return DYT_OK;
    }
    if (r->most >= 1e30) {
        return DYTI_FAIL(DYT_ERR_CONFIG, "%s is %g, it must be %s %g", r->key,
                         r->value, r->open ? "more than" : "at least",
                         r->least);
    }
    return DYTI_FAIL(
        DYT_ERR_CONFIG, "%s is %g, it must be %s %g and at most %g", r->key,
        r->value, r->open ? "more than" : "at least", r->least, r->most);
}

static enum dyt_status check_numbers(const struct dyti_trainer_config *c)
{
    const double any = 3.4e38;
    const struct range row[] = {
        {"algorithm.kl.coef", c->kl.coef, 0, any, false},
        {"algorithm.rollout_is_min", c->rollout_is_min, 0, any, false},
        {"algorithm.rollout_is_max", c->rollout_is_max, c->rollout_is_min, any,
         true},
        {"loss.clip_low", c->clip_low, 0, 1, false},
        {"loss.clip_high", c->clip_high, 0, any, false},
        {"optimizer.lr", c->lr, 0, any, false},
        {"optimizer.betas[0]", c->beta1, 0, 0.9999999, false},
        {"optimizer.betas[1]", c->beta2, 0, 0.9999999, false},
        {"optimizer.eps", c->eps, 0, any, false},
        {"optimizer.weight_decay", c->weight_decay, 0, any, false},
        {"lr_schedule.final_ratio (as a rate)", c->min_lr, 0, c->lr, false},
        {"batch.micro_batch_tokens", c->micro_batch_tokens, 1, any, false},
        {"batch.epochs", c->epochs, 1, any, false},
    };

    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        enum dyt_status st = check_range(&row[i]);

        if (st != DYT_OK) {
            return st;
        }
    }
    return DYT_OK;
}

static enum dyt_status check_pairs(const struct dyti_trainer_config *c)
{
    if (c->dual_clip != 0 && !(c->dual_clip > 1 + c->clip_high)) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "loss.clip_dual is %g, it must be more than 1 + "
                         "clip_high = %g, or 0 for off",
                         (double)c->dual_clip, 1 + (double)c->clip_high);
    }
    if (c->loss_agg == DYTI_AGG_SEQ_MEAN_TOKEN_SUM_NORM &&
        c->max_response_tokens == 0) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "loss.loss_agg seq-mean-token-sum-norm "
                         "divides by max_response_tokens, "
                         "which is not set");
    }
    return DYT_OK;
}

enum dyt_status dyti_trainer_config_check(
    const struct dyti_trainer_config *config)
{
    enum dyt_status st = check_numbers(config);

    return st != DYT_OK ? st : check_pairs(config);
}
