/* The policy losses.  Everything is f64 until a derivative is stored. */
#include "trainer/loss.h"

#include <math.h>

static double clamp(double x, double lo, double hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

static double safe_exp(double x)
{
    return exp(clamp(x, -DYTI_LOSS_MAX_EXPONENT, DYTI_LOSS_MAX_EXPONENT));
}

bool dyti_loss_whole(const struct dyti_trainer_config *config)
{
    return config->ratio_level == DYTI_RATIO_SEQUENCE ||
           (config->old_logprobs == DYTI_OLD_RECOMPUTE &&
            config->rollout_is == DYTI_IS_SEQUENCE);
}

/* ---- KL ----------------------------------------------------------------- */

double dyti_loss_kl(enum dyti_kl_estimator estimator, double current,
                    double reference)
{
    double d = reference - current;

    switch (estimator) {
    case DYTI_KL_K1:
        return -d;
    case DYTI_KL_K2:
        return 0.5 * d * d;
    case DYTI_KL_K3:
        break;
    }
    d = clamp(d, -DYTI_LOSS_MAX_EXPONENT, DYTI_LOSS_MAX_EXPONENT);
    return exp(d) - d - 1;
}

/* Its derivative by `current`. */
static double kl_slope(enum dyti_kl_estimator estimator, double current,
                       double reference)
{
    double d = reference - current;

    switch (estimator) {
    case DYTI_KL_K1:
        return 1;
    case DYTI_KL_K2:
        return -d;
    case DYTI_KL_K3:
        break;
    }
    return fabs(d) > DYTI_LOSS_MAX_EXPONENT ? 0 : 1 - exp(d);
}

/* ---- clipped policy loss ------------------------------------------------ */

struct policy {
    double loss;
    double slope; /* by log ratio */
    bool low, high;
};

static struct policy policy_loss(const struct dyti_trainer_config *c,
                                 double log_ratio, double advantage)
{
    struct policy p = {0};
    bool cut = fabs(log_ratio) > DYTI_LOSS_MAX_EXPONENT;
    double ratio = safe_exp(log_ratio), clipped, plain;

    clipped = clamp(ratio, 1 - (double)c->clip_low, 1 + (double)c->clip_high);
    p.low = ratio < 1 - (double)c->clip_low && advantage < 0;
    p.high = ratio > 1 + (double)c->clip_high && advantage > 0;
    if (c->dual_clip > 0 && ratio > (double)c->dual_clip) {
        ratio = (double)c->dual_clip;
        cut = true;
    }
    plain = ratio * advantage;
    clipped *= advantage;
    if (!(plain > clipped)) { /* a NaN too, so that the gradient shows it */
        p.loss = -plain;
        p.slope = cut ? 0 : -plain; /* d ratio / d log ratio = ratio */
    } else {
        p.loss = -clipped; /* constant where it is the smaller one */
    }
    return p;
}

/* ---- weights ------------------------------------------------------------ */

static double agg_weight(const struct dyti_trainer_config *c,
                         const struct dyti_loss_totals *t, uint32_t count)
{
    double sequences = (double)(t->sequences ? t->sequences : 1);

    switch (c->loss_agg) {
    case DYTI_AGG_TOKEN_MEAN:
        break;
    case DYTI_AGG_SEQ_MEAN_TOKEN_MEAN:
        return 1 / (sequences * (double)count);
    case DYTI_AGG_SEQ_MEAN_TOKEN_SUM:
        return 1 / sequences;
    case DYTI_AGG_SEQ_MEAN_TOKEN_SUM_NORM:
        return 1 / (sequences * (double)c->max_response_tokens);
    }
    return 1 / (double)(t->tokens ? t->tokens : 1);
}

struct is_weight {
    double value;
    bool truncated, masked;
};

static struct is_weight is_weight(const struct dyti_trainer_config *c,
                                  double log_weight)
{
    double lo = (double)c->rollout_is_min, hi = (double)c->rollout_is_max;
    struct is_weight w = {.value = safe_exp(log_weight)};
    bool outside = w.value < lo || w.value > hi;

    if (c->rollout_is_mode == DYTI_IS_TRUNCATE) {
        w.truncated = outside;
        w.value = clamp(w.value, lo, hi);
    } else if (outside) {
        w.masked = true;
        w.value = 0;
    }
    return w;
}

static bool is_on(const struct dyti_trainer_config *c)
{
    return c->old_logprobs == DYTI_OLD_RECOMPUTE &&
           c->rollout_is != DYTI_IS_OFF;
}

static void is_count(struct dyti_loss_sums *sums, const struct is_weight *w)
{
    sums->is_sum += w->value;
    sums->is_sum_sq += w->value * w->value;
    sums->is_count += 1;
}

/* ---- one sequence ------------------------------------------------------- */

/* What holds for the whole sequence. */
struct whole {
    double log_ratio; /* mean over tokens */
    struct is_weight is;
};

static struct whole sum_whole(const struct dyti_trainer_config *c,
                              const struct dyti_loss_sequence *s)
{
    double ratio = 0, mismatch = 0;

    for (uint32_t t = 0; t < s->count; t++) {
        ratio += (double)s->current[t] - (double)s->old[t];
        mismatch += (double)s->old[t] - (double)s->rollout[t];
    }
    return (struct whole){.log_ratio = ratio / (double)s->count,
                          .is = is_weight(c, mismatch)};
}

static struct is_weight token_is(const struct dyti_trainer_config *c,
                                 const struct dyti_loss_sequence *s,
                                 const struct whole *whole, uint32_t t,
                                 struct dyti_loss_sums *sums)
{
    struct is_weight w = {.value = 1};

    if (!is_on(c)) {
        return w;
    }
    if (c->rollout_is == DYTI_IS_SEQUENCE) {
        w = whole->is;
    } else {
        w = is_weight(c, (double)s->old[t] - (double)s->rollout[t]);
        is_count(sums, &w);
    }
    sums->is_truncated += w.truncated;
    sums->is_masked += w.masked;
    return w;
}

/* Adds a token to the sums; returns dL/dlogprob by the token's own terms, and
 * into *out_slope what it adds to the slope of the sequence's ratio. */
static double do_token(const struct dyti_trainer_config *c,
                       const struct dyti_loss_sequence *s,
                       const struct whole *whole, double agg, uint32_t t,
                       struct dyti_loss_sums *sums, double *out_slope)
{
    bool by_sequence = c->ratio_level == DYTI_RATIO_SEQUENCE;
    double now = (double)s->current[t], d = 0;
    double log_ratio = by_sequence ? whole->log_ratio : now - (double)s->old[t];
    struct is_weight is = token_is(c, s, whole, t, sums);
    struct policy p = policy_loss(c, log_ratio, (double)s->advantage);
    double slope = agg * is.value * p.slope;

    sums->policy += agg * is.value * p.loss;
    sums->clip_low += p.low;
    sums->clip_high += p.high;
    sums->entropy += (double)s->entropy[t];
    sums->tokens += 1;
    if (s->reference != NULL) {
        double ref = (double)s->reference[t], coef = agg * (double)c->kl.coef;
        double kl = dyti_loss_kl(c->kl.estimator, now, ref);

        sums->kl += kl;
        sums->kl_loss += coef * kl;
        d = coef * kl_slope(c->kl.estimator, now, ref);
    }
    *out_slope = by_sequence ? slope : 0;
    return by_sequence ? d : d + slope;
}

void dyti_loss_tokens(const struct dyti_trainer_config *config,
                      const struct dyti_loss_totals *totals,
                      const struct dyti_loss_sequence *sequence, uint32_t lo,
                      uint32_t hi, float *dlogprob, float *dentropy,
                      struct dyti_loss_sums *sums)
{
    double agg = agg_weight(config, totals, sequence->count), slopes = 0;
    double dent = -(double)config->entropy_coef /
                  (double)(totals->tokens ? totals->tokens : 1);
    struct whole whole = {0};

    if (sequence->masked) {
        for (uint32_t t = lo; t < hi; t++) {
            dlogprob[t - lo] = dentropy[t - lo] = 0;
        }
        return;
    }
    if (dyti_loss_whole(config)) {
        dyti_assert(lo == 0 && hi == sequence->count);
        whole = sum_whole(config, sequence);
        if (is_on(config) && config->rollout_is == DYTI_IS_SEQUENCE) {
            is_count(sums, &whole.is);
        }
    }
    for (uint32_t t = lo; t < hi; t++) {
        double slope = 0;

        dlogprob[t - lo] =
            (float)do_token(config, sequence, &whole, agg, t, sums, &slope);
        dentropy[t - lo] = (float)dent;
        slopes += slope;
    }
    if (config->ratio_level == DYTI_RATIO_SEQUENCE) {
        slopes /= (double)sequence->count;
        for (uint32_t t = lo; t < hi; t++) {
            dlogprob[t - lo] = (float)((double)dlogprob[t - lo] + slopes);
        }
    }
}

double dyti_loss_gap(const struct dyti_loss_sequence *sequence,
                     struct dyti_loss_sums *sums)
{
    double most = 0;

    for (uint32_t t = 0; t < sequence->count; t++) {
        double gap = (double)sequence->rollout[t] - (double)sequence->old[t];

        sums->gap += gap;
        sums->gap_abs += fabs(gap);
        most = fabs(gap) > most || isnan(gap) ? fabs(gap) : most;
    }
    sums->gap_tokens += (double)sequence->count;
    return most;
}

double dyti_loss_value(const struct dyti_trainer_config *config,
                       const struct dyti_loss_totals *totals,
                       const struct dyti_loss_sums *sums)
{
    double tokens = (double)(totals->tokens ? totals->tokens : 1);

    return sums->policy + sums->kl_loss -
           (double)config->entropy_coef * sums->entropy / tokens;
}
