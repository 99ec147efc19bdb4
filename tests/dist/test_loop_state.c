/* Twenty steps over recorded batches.  A run whose state travels between any
 * two steps equals, bit for bit, the run that never switched; in test builds
 * what a switch abandons is filled with NaN, so nothing can be left behind
 * unseen.  And a state that goes on in another layout stays near. */
#include "arch_cases.h"
#include "loop_world.h"

static const struct dyti_arch plain = DYT_ARCH_TINY_4_2;

static const struct dyti_arch odd = {
    .family = DYTI_QWEN3,
    .vocab = 41,
    .hidden = 18,
    .layers = 3,
    .q_heads = 9,
    .kv_heads = 3,
    .head_dim = 4,
    .ffn = 26,
    .max_positions = 64,
    .rms_eps = 1e-6,
    .init_std = 0.05,
    .tied = false,
    .qk_norm = true,
    .rope = {.kind = DYTI_ROPE_DEFAULT, .theta = 1e4}};

static const uint32_t turned[] = {2, 0, 3, 1};

#define DEGREES(t, p, d, z, order)                                             \
    {                                                                          \
        .tp = (t), .pp = (p), .dp = (d), .zero = (z), .ranks = (order)         \
    }

/* The layout that trains, and where its state goes. */
static const struct {
    const struct dyti_arch *arch;
    struct dyti_layout_desc train, other;
    enum dyti_dtype dtype;
} rows[] = {
    {&plain, DEGREES(1, 2, 2, 1, NULL), DEGREES(4, 1, 1, 0, NULL), DYTI_F32},
    {&plain, DEGREES(1, 2, 2, 1, NULL), DEGREES(2, 1, 2, 1, turned), DYTI_BF16},
    {&odd, DEGREES(1, 1, 4, 1, turned), DEGREES(4, 1, 1, 0, NULL), DYTI_F32},
    {&odd, DEGREES(4, 1, 1, 0, NULL), DEGREES(1, 2, 2, 1, turned), DYTI_F32},
    {&odd, DEGREES(2, 2, 1, 0, turned), DEGREES(1, 3, 1, 0, NULL), DYTI_BF16},
};

static struct lw_desc desc_of(size_t row)
{
    return (struct lw_desc){.arch = *rows[row].arch,
                            .train = rows[row].train,
                            .other = rows[row].other,
                            .dtype = rows[row].dtype,
                            .steps = LW_STEPS};
}

static void compare(enum lw_trip trip)
{
    for (size_t i = 0; i < DYT_TEST_COUNT(rows); i++) {
        struct lw_desc desc = desc_of(i);
        struct lw_run *still = malloc(sizeof(*still));
        struct lw_run *moved = malloc(sizeof(*moved));
        char text[256];

        assert_non_null(still);
        assert_non_null(moved);
        lw_run(still, &desc);
        desc.trip = trip;
        lw_run(moved, &desc);
        lw_difference(still, moved, text, sizeof(text));
        if (text[0] != '\0') {
            fail_msg("row %zu: %s", i, text);
        }
        /* It does learn something, or equality would be cheap. */
        assert_true(still->norm[LW_STEPS - 1] > 0);
        assert_true(still->hash[0][1] != still->hash[LW_STEPS - 1][1]);
        lw_fini(still);
        lw_fini(moved);
        free(still);
        free(moved);
    }
}

static void the_rollout_switch_changes_no_bit(void **state)
{
    (void)state;
    compare(LW_ROLLOUT);
}

static void moving_the_whole_state_changes_no_bit(void **state)
{
    (void)state;
    compare(LW_WHOLE);
}

#ifdef DYT_TEST_HOOKS
/* One rank, one switch, two tensors: it shows. */
static void a_mistake_shows(void **state)
{
    struct lw_desc desc = desc_of(0);
    struct lw_run *run = calloc(2, sizeof(*run));
    char text[256];

    (void)state;
    assert_non_null(run);
    lw_run(&run[0], &desc);
    desc.trip = LW_ROLLOUT;
    desc.mistake = true;
    lw_run(&run[1], &desc);
    lw_difference(&run[0], &run[1], text, sizeof(text));
    assert_true(strncmp(text, "step 4: param", 13) == 0);
    lw_fini(&run[0]);
    lw_fini(&run[1]);
    free(run);
}
#endif

/* ---- another layout -------------------------------------------------------
 */

static double mean_token(const struct lw_run *run, uint32_t step)
{
    double sum = 0;

    for (uint32_t i = 0; i < run->token_count[step]; i++) {
        sum += (double)run->token[step][i];
    }
    return sum / run->token_count[step];
}

/* Ten steps, then five more in the same layout and in another. */
static void going_on_elsewhere_is_near(void **state)
{
    static const size_t pick[] = {0, 2, 3};

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(pick); i++) {
        struct lw_desc desc = desc_of(pick[i]);
        struct lw_run *run = calloc(3, sizeof(*run));

        assert_non_null(run);
        desc.steps = 10;
        desc.keep_state = true;
        lw_run(&run[0], &desc);
        desc.keep_state = false;
        desc.first = 10;
        desc.steps = 5;
        desc.state = run[0].state;
        lw_run(&run[1], &desc);
        desc.train = rows[pick[i]].other;
        desc.other = rows[pick[i]].train;
        lw_run(&run[2], &desc);
        for (int k = 0; k < LW_KINDS; k++) { /* equal at once */
            assert_true(run[0].hash[9][k] == run[1].start_hash[k]);
            assert_true(run[0].hash[9][k] == run[2].start_hash[k]);
        }
        for (uint32_t s = 10; s < 15; s++) {
            assert_true(fabs(mean_token(&run[1], s) - mean_token(&run[2], s)) <=
                        1e-5);
            assert_true(fabs(run[1].norm[s] - run[2].norm[s]) <=
                        1e-4 * run[1].norm[s]);
        }
        for (int k = 0; k < 3; k++) {
            lw_fini(&run[k]);
        }
        free(run);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_rollout_switch_changes_no_bit),
    cmocka_unit_test(moving_the_whole_state_changes_no_bit),
#ifdef DYT_TEST_HOOKS
    cmocka_unit_test(a_mistake_shows),
#endif
    cmocka_unit_test(going_on_elsewhere_is_near),
};
DYT_TEST_MAIN(tests)
