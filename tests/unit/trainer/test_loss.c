/* Advantages and losses against a NumPy reference: tests/data/trainer. */
#include "dyt_test.h"
#include "score/score.h"
#include "trainer/advantage.h"
#include "trainer/loss.h"

#include <jansson.h>
#include <math.h>

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    if (!json_is_number(value)) {
        fail_msg("%s is no number", key);
    }
    return json_number_value(value);
}

static bool truth(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

/* Position of the object's text among `words`, which ends with NULL. */
static int choice(const json_t *object, const char *key,
                  const char *const *words)
{
    const char *text = json_string_value(json_object_get(object, key));

    for (int i = 0; words[i] != NULL; i++) {
        if (text != NULL && strcmp(text, words[i]) == 0) {
            return i;
        }
    }
    fail_msg("%s is \"%s\"", key, text ? text : "no text");
    return 0;
}

#define CHOICE(object, key, ...)                                               \
    choice((object), (key), (const char *const[]){__VA_ARGS__, NULL})

static struct dyti_trainer_config config_of(const json_t *c)
{
    struct dyti_trainer_config out;

    dyti_trainer_config_default(&out);
    out.algorithm = CHOICE(c, "algorithm", "grpo", "rloo") ? DYTI_ALGO_RLOO
                                                           : DYTI_ALGO_GRPO;
    out.advantage_scale = (enum dyti_advantage_scale)CHOICE(
        c, "advantage_scale", "group", "batch", "none");
    out.zero_std_groups =
        (enum dyti_zero_std)CHOICE(c, "zero_std", "keep", "drop");
    out.old_logprobs =
        (enum dyti_old_logprobs)CHOICE(c, "old", "recompute", "rollout");
    out.loss_agg = (enum dyti_loss_agg)CHOICE(
        c, "agg", "token-mean", "seq-mean-token-mean", "seq-mean-token-sum",
        "seq-mean-token-sum-norm");
    out.ratio_level =
        (enum dyti_ratio_level)CHOICE(c, "ratio", "token", "sequence");
    out.kl.estimator =
        (enum dyti_kl_estimator)CHOICE(c, "kl", "k1", "k2", "k3");
    out.kl.in = (enum dyti_kl_in)CHOICE(c, "kl_in", "loss", "reward");
    out.kl.coef = (float)number(c, "kl_coef");
    out.rollout_is =
        (enum dyti_rollout_is)CHOICE(c, "is", "off", "token", "sequence");
    out.rollout_is_mode =
        (enum dyti_rollout_is_mode)CHOICE(c, "is_mode", "truncate", "mask");
    out.rollout_is_min = (float)number(c, "is_min");
    out.rollout_is_max = (float)number(c, "is_max");
    out.overlong = (enum dyti_overlong)CHOICE(c, "overlong", "keep", "mask");
    out.max_response_tokens = (uint32_t)number(c, "max_response_tokens");
    out.clip_low = (float)number(c, "clip_low");
    out.clip_high = (float)number(c, "clip_high");
    out.dual_clip = (float)number(c, "dual_clip");
    out.entropy_coef = (float)number(c, "entropy_coef");
    return out;
}

static float *floats(const json_t *object, const char *key)
{
    const json_t *list = json_object_get(object, key);
    size_t count = json_array_size(list);
    float *out = calloc(count + 1, sizeof(*out));

    assert_non_null(out);
    for (size_t i = 0; i < count; i++) {
        out[i] = (float)json_number_value(json_array_get(list, i));
    }
    return out;
}

/* Rewards come as score gives them: less the overlong penalty. */
static void load_batch(const json_t *test, struct dyti_batch *batch,
                       double *kl_sum)
{
    const json_t *samples = json_object_get(test, "samples");
    const json_t *c = json_object_get(test, "config");

    *batch =
        (struct dyti_batch){.sample_count = (uint32_t)json_array_size(samples)};
    batch->sample = calloc(batch->sample_count, sizeof(*batch->sample));
    for (uint32_t i = 0; i < batch->sample_count; i++) {
        const json_t *from = json_array_get(samples, i);
        struct dyti_sample *s = &batch->sample[i];

        s->prompt = (uint64_t)number(from, "group");
        s->dropped = truth(from, "dropped");
        s->finish =
            truth(from, "length") ? DYTI_FINISH_LENGTH : DYTI_FINISH_STOP;
        s->count = (uint32_t)json_array_size(json_object_get(from, "slope"));
        s->reward =
            (float)(number(from, "reward") -
                    dyti_score_overlong(
                        s->count, (uint32_t)number(c, "max_response_tokens"),
                        (uint32_t)number(c, "overlong_buffer"),
                        number(c, "overlong_factor")));
        s->processed = floats(from, "rollout");
        kl_sum[i] = number(from, "kl_sum");
    }
}

static void near(const char *what, double got, double want)
{
    if (!(fabs(got - want) <= 2e-6 + 1e-5 * fabs(want))) {
        fail_msg("%s is %.9g, want %.9g", what, got, want);
    }
}

static void near_floats(const char *what, const float *got, const json_t *want)
{
    for (size_t i = 0; i < json_array_size(want); i++) {
        near(what, (double)got[i], json_number_value(json_array_get(want, i)));
    }
}

struct run {
    const json_t *test;
    struct dyti_trainer_config config;
    struct dyti_batch batch;
    float advantage[16];
    bool keep[16];
    struct dyti_loss_totals totals;
    struct dyti_loss_sums sums;
    double gap_max;
};

static bool is_masked(const struct run *r, uint32_t i)
{
    return r->config.overlong == DYTI_OVERLONG_MASK &&
           r->batch.sample[i].finish == DYTI_FINISH_LENGTH;
}

/* In pieces where the loss allows it: chunks of the head may end anywhere. */
static void do_sequence(struct run *r, uint32_t i)
{
    const json_t *from = json_array_get(json_object_get(r->test, "samples"), i);
    const json_t *config = json_object_get(r->test, "config");
    float *current = floats(from, "current"),
          *entropy = floats(from, "entropy");
    float *old = floats(from, "old"), *reference = floats(from, "reference");
    float dlogprob[8], dentropy[8];
    struct dyti_loss_sequence s = {.count = r->batch.sample[i].count,
                                   .current = current,
                                   .entropy = entropy,
                                   .old = old,
                                   .rollout = r->batch.sample[i].processed,
                                   .advantage = r->advantage[i],
                                   .masked = is_masked(r, i)};
    uint32_t cut = dyti_loss_whole(&r->config) ? s.count : s.count / 2;

    if (r->config.old_logprobs == DYTI_OLD_ROLLOUT) {
        s.old = s.rollout;
    } else if (truth(config, "old_is_current")) {
        s.old = current;
    }
    if (r->config.kl.coef > 0 && r->config.kl.in == DYTI_KL_IN_LOSS) {
        s.reference = reference;
    }
    dyti_loss_tokens(&r->config, &r->totals, &s, 0, cut, dlogprob, dentropy,
                     &r->sums);
    if (cut < s.count) {
        dyti_loss_tokens(&r->config, &r->totals, &s, cut, s.count,
                         dlogprob + cut, dentropy + cut, &r->sums);
    }
    near_floats("derivative", dlogprob, json_object_get(from, "slope"));
    for (uint32_t t = 0; t < s.count; t++) {
        near("entropy's derivative", (double)dentropy[t],
             s.masked
                 ? 0
                 : -(double)r->config.entropy_coef / (double)r->totals.tokens);
    }
    r->gap_max = fmax(r->gap_max, dyti_loss_gap(&s, &r->sums));
    free(current);
    free(entropy);
    free(old);
    free(reference);
}

static void check_advantages(struct run *r, const double *kl_sum)
{
    const json_t *samples = json_object_get(r->test, "samples");
    bool in_reward =
        r->config.kl.coef > 0 && r->config.kl.in == DYTI_KL_IN_REWARD;
    struct dyti_advantage_stats stats;

    dyti_advantages(&r->config, &r->batch, in_reward ? kl_sum : NULL,
                    r->advantage, r->keep, &stats);
    for (uint32_t i = 0; i < r->batch.sample_count; i++) {
        const json_t *from = json_array_get(samples, i);

        near("advantage", (double)r->advantage[i], number(from, "advantage"));
        assert_int_equal(r->keep[i], truth(from, "keep"));
        if (r->keep[i]) {
            r->totals.sequences++;
            r->totals.tokens += is_masked(r, i) ? 0 : r->batch.sample[i].count;
        }
    }
    /* Group 1, by construction; a penalty by length spreads it. */
    assert_true(stats.frac_zero_std >= 0.25 ||
                number(json_object_get(r->test, "config"), "overlong_factor") >
                    0.0);
}

static void check_sums(const struct run *r)
{
    const struct dyti_loss_sums *s = &r->sums;
    double tokens = s->tokens;

    assert_true((uint64_t)tokens == r->totals.tokens);
    near("loss", dyti_loss_value(&r->config, &r->totals, s),
         number(r->test, "loss"));
    near("policy loss", s->policy, number(r->test, "policy"));
    near("KL", s->kl / tokens, number(r->test, "kl"));
    near("entropy", s->entropy / tokens, number(r->test, "entropy"));
    near("clip low", s->clip_low / tokens, number(r->test, "clip_low"));
    near("clip high", s->clip_high / tokens, number(r->test, "clip_high"));
    near("cut weights", s->is_truncated / tokens, number(r->test, "truncated"));
    near("masked weights", s->is_masked / tokens, number(r->test, "is_masked"));
    near("effective sample size",
         s->is_sum_sq > 0 ? s->is_sum * s->is_sum / s->is_count / s->is_sum_sq
                          : 0,
         number(r->test, "ess"));
    near("mean gap", s->gap_abs / s->gap_tokens, number(r->test, "gap_abs"));
    near("gap", s->gap / s->gap_tokens, number(r->test, "gap"));
    near("largest gap", r->gap_max, number(r->test, "gap_max"));
}

static void agrees_with_numpy(void **state)
{
    json_error_t error;
    json_t *all = json_load_file("tests/data/trainer/losses.json", 0, &error);

    (void)state;
    if (all == NULL) {
        fail_msg("losses.json: %s", error.text);
    }
    assert_true(json_array_size(all) > 50);
    for (size_t n = 0; n < json_array_size(all); n++) {
        struct run r = {.test = json_array_get(all, n)};
        double kl_sum[16];

        r.config = config_of(json_object_get(r.test, "config"));
        load_batch(r.test, &r.batch, kl_sum);
        check_advantages(&r, kl_sum);
        for (uint32_t i = 0; i < r.batch.sample_count; i++) {
            if (r.keep[i]) {
                do_sequence(&r, i);
            }
        }
        check_sums(&r);
        dyti_batch_fini(&r.batch);
    }
    json_decref(all);
}

static void extreme_ratios_stay_finite(void **state)
{
    static const float far[] = {0.0f, -900.0f, -3.0f};
    static const float here[] = {-900.0f, 0.0f, -3.0f};
    struct dyti_loss_totals totals = {.tokens = 3, .sequences = 1};
    struct dyti_trainer_config c;
    float dlogprob[3], dentropy[3];

    (void)state;
    dyti_trainer_config_default(&c);
    c.kl.coef = 1;
    c.rollout_is = DYTI_IS_TOKEN;
    for (int sign = -1; sign <= 1; sign += 2) {
        struct dyti_loss_sums sums = {0};
        struct dyti_loss_sequence s = {.count = 3,
                                       .current = here,
                                       .entropy = here,
                                       .old = far,
                                       .rollout = here,
                                       .reference = far,
                                       .advantage = (float)sign};

        dyti_loss_tokens(&c, &totals, &s, 0, 3, dlogprob, dentropy, &sums);
        for (int t = 0; t < 3; t++) {
            assert_true(isfinite(dlogprob[t]));
        }
        assert_true(isfinite(dyti_loss_value(&c, &totals, &sums)));
    }
}

static void one_sample_has_no_advantage(void **state)
{
    struct dyti_sample sample = {.count = 1, .reward = 3};
    struct dyti_batch batch = {.sample = &sample, .sample_count = 1};
    struct dyti_advantage_stats stats;
    struct dyti_trainer_config c;
    float advantage = 7;
    bool keep = false;

    (void)state;
    dyti_trainer_config_default(&c);
    for (int algorithm = 0; algorithm < 2; algorithm++) {
        c.algorithm = algorithm ? DYTI_ALGO_RLOO : DYTI_ALGO_GRPO;
        dyti_advantages(&c, &batch, NULL, &advantage, &keep, &stats);
        assert_true(advantage == 0 && keep);
        assert_true(stats.reward_mean == 3 && stats.reward_std == 0);
    }
    sample.dropped = true;
    dyti_advantages(&c, &batch, NULL, &advantage, &keep, &stats);
    assert_true(advantage == 0 && !keep && stats.dropped == 1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(agrees_with_numpy),
    cmocka_unit_test(extreme_ratios_stay_finite),
    cmocka_unit_test(one_sample_has_no_advantage),
};
DYT_TEST_MAIN(tests)
