/* Group-relative advantages.  All sums are f64 in sample order. */
#include "trainer/advantage.h"

#include <math.h>
#include <string.h>

struct moments {
    double sum, sum_sq; /* of x - shift */
    double shift;       /* the first x, against cancellation */
    uint64_t count;
};

static void moments_add(struct moments *m, double x)
{
    if (m->count++ == 0) {
        m->shift = x;
    }
    m->sum += x - m->shift;
    m->sum_sq += (x - m->shift) * (x - m->shift);
}

static double moments_mean(const struct moments *m)
{
    return m->count == 0 ? 0 : m->shift + m->sum / (double)m->count;
}

static double moments_std(const struct moments *m)
{
    double n = (double)m->count, var;

    if (m->count < 2) {
        return 0;
    }
    var = (m->sum_sq - m->sum * m->sum / n) / (n - 1);
    return var > 0 ? sqrt(var) : 0;
}

static double shaped_reward(const struct dyti_trainer_config *c,
                            const struct dyti_sample *sample,
                            const double *kl_sum)
{
    double r = (double)sample->reward;

    return kl_sum == NULL ? r : r - (double)c->kl.coef * *kl_sum;
}

/* Samples [lo, hi) have one prompt. */
struct group {
    uint32_t lo, hi;
};

static bool next_group(const struct dyti_batch *batch, struct group *g)
{
    g->lo = g->hi;
    while (g->hi < batch->sample_count &&
           batch->sample[g->hi].prompt == batch->sample[g->lo].prompt) {
        g->hi++;
    }
    return g->lo < g->hi;
}

/* Advantages of one group before the batch's scale; returns whether all its
 * scored rewards are equal. */
static bool do_group(const struct dyti_trainer_config *c,
                     const struct dyti_batch *batch, struct group g,
                     const double *kl_sum, float *advantage)
{
    struct moments shaped = {0}, scored = {0};
    double mean, scale = 1, n;
    bool equal = true;

    for (uint32_t i = g.lo; i < g.hi; i++) {
        const struct dyti_sample *s = &batch->sample[i];

        if (!s->dropped) {
            moments_add(&scored, (double)s->reward);
            equal = equal && (double)s->reward == scored.shift;
            moments_add(&shaped,
                        shaped_reward(c, s, kl_sum ? kl_sum + i : NULL));
        }
    }
    mean = moments_mean(&shaped);
    n = (double)shaped.count;
    if (c->algorithm == DYTI_ALGO_RLOO) {
        scale = shaped.count > 1 ? n / (n - 1) : 0;
    }
    if (c->advantage_scale == DYTI_SCALE_GROUP) {
        scale /= moments_std(&shaped) + DYTI_ADVANTAGE_EPS;
    }
    for (uint32_t i = g.lo; i < g.hi; i++) {
        const struct dyti_sample *s = &batch->sample[i];

        advantage[i] = 0;
        if (!s->dropped) {
            double r = shaped_reward(c, s, kl_sum ? kl_sum + i : NULL);

            advantage[i] = (float)((r - mean) * scale);
        }
    }
    return equal;
}

static double batch_std(const struct dyti_trainer_config *c,
                        const struct dyti_batch *batch, const double *kl_sum)
{
    struct moments m = {0};

    for (uint32_t i = 0; i < batch->sample_count; i++) {
        if (!batch->sample[i].dropped) {
            moments_add(&m, shaped_reward(c, &batch->sample[i],
                                          kl_sum ? kl_sum + i : NULL));
        }
    }
    return moments_std(&m);
}

static void measure(const struct dyti_batch *batch, const float *advantage,
                    const bool *keep, struct dyti_advantage_stats *stats)
{
    struct moments reward = {0};
    uint64_t kept = 0, overlong = 0;
    double sum = 0, sum_abs = 0;

    for (uint32_t i = 0; i < batch->sample_count; i++) {
        const struct dyti_sample *s = &batch->sample[i];

        if (!s->dropped) {
            moments_add(&reward, (double)s->reward);
            overlong += s->finish == DYTI_FINISH_LENGTH;
        }
        if (keep[i]) {
            kept++;
            sum += (double)advantage[i];
            sum_abs += fabs((double)advantage[i]);
        }
    }
    stats->reward_mean = moments_mean(&reward);
    stats->reward_std = moments_std(&reward);
    stats->frac_overlong =
        reward.count ? (double)overlong / (double)reward.count : 0;
    stats->mean = kept ? sum / (double)kept : 0;
    stats->abs_mean = kept ? sum_abs / (double)kept : 0;
    stats->dropped = batch->sample_count - kept;
}

void dyti_advantages(const struct dyti_trainer_config *config,
                     const struct dyti_batch *batch, const double *kl_sum,
                     float *advantage, bool *keep,
                     struct dyti_advantage_stats *out_stats)
{
    bool drop = config->zero_std_groups != DYTI_ZERO_KEEP;
    double scale = 1;
    uint64_t groups = 0, equal_groups = 0;
    struct group g = {0};

    memset(out_stats, 0, sizeof(*out_stats));
    if (config->advantage_scale == DYTI_SCALE_BATCH) {
        scale = 1 / (batch_std(config, batch, kl_sum) + DYTI_ADVANTAGE_EPS);
    }
    while (next_group(batch, &g)) {
        bool equal = do_group(config, batch, g, kl_sum, advantage);
        bool scored = false;

        for (uint32_t i = g.lo; i < g.hi; i++) {
            const struct dyti_sample *s = &batch->sample[i];

            scored = scored || !s->dropped;
            keep[i] = !s->dropped && s->count > 0 && !(drop && equal);
            advantage[i] = keep[i] ? (float)((double)advantage[i] * scale) : 0;
        }
        groups += scored;
        equal_groups += scored && equal;
    }
    measure(batch, advantage, keep, out_stats);
    out_stats->frac_zero_std =
        groups ? (double)equal_groups / (double)groups : 0;
}
