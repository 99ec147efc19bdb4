/* Jobs that are right: defaults, files, --set, and text(job) read back. */
#include "base/rng.h"
#include "dyt_test.h"
#include "format/chat_template.h"
#include "format/job.h"
#include "format/job_options.h"
#include "job_text.h"

#include <math.h>
#include <sys/stat.h>

static struct dyti_job parse(const char *text, const char *const *sets,
                             size_t set_count)
{
    struct dyti_job job = {0};

    assert_ok(dyti_job_parse_text(text, strlen(text), "d/job.toml", sets,
                                  set_count, &job));
    return job;
}

static void defaults(void **state)
{
    struct dyti_job job = parse(GOOD_JOB, NULL, 0);
    const struct dyti_job_phase *rollout =
        dyti_job_phase(&job, DYTI_PHASE_ROLLOUT);
    const struct dyti_job_phase *train = dyti_job_phase(&job, DYTI_PHASE_TRAIN);

    (void)state;
    assert_string_equal("t", job.name);
    assert_string_equal("d", job.folder);
    assert_string_equal("d/a.jsonl", job.data.train);
    assert_string_equal("auto", job.data.chat_template);
    assert_int_equal(1, job.seed);
    assert_int_equal(2, job.phase_count);
    assert_int_equal(DYTI_ALGO_GRPO, job.algorithm.name);
    assert_int_equal(DYTI_OLD_RECOMPUTE, job.algorithm.old_logprobs);
    assert_true(job.algorithm.rollout_is_max == 2.0);
    assert_true(job.algorithm.kl_coef == 0.0);
    assert_int_equal(DYTI_KL_K3, job.algorithm.kl_estimator);
    assert_int_equal(0, job.sw.memory_cap_bytes);
    assert_true(isinf(job.stop.reward_mean) && isinf(job.stop.seconds));
    assert_int_equal(4, rollout->layout.tp);
    assert_int_equal(4, rollout->layout.ranks_count);
    assert_int_equal(3, rollout->layout.ranks[3]);
    assert_int_equal(1024, rollout->kv.max_batch_tokens);
    assert_true(rollout->sampling.temperature == 1.0);
    assert_int_equal(24, train->batch.mini_batch);
    assert_int_equal(DYTI_AGG_TOKEN_MEAN, train->loss.loss_agg);
    assert_true(train->loss.clip_low == 0.2 && train->loss.clip_high == 0.28);
    assert_true(train->optimizer.beta1 == 0.9);
    assert_string_equal("exact", job.reward[0].name);
    assert_int_equal(0, job.warning_count);
    dyti_job_fini(&job);
    assert_null(job.name);
    dyti_job_fini(&job);
}

static void sets_change_what_files_say(void **state)
{
    static const char *const sets[] = {
        "steps=20",
        "model=some/dir",
        "name = x-1",
        "data.train=b.jsonl",
        "phase.train.layout.zero=0",
        "phase.train.optimizer.betas=[0.8, 0.9]",
        "switch.memory_cap=1GiB",
        "stop.seconds=2m",
        "phase.rollout.sampling.stop=[\"a\", \"b\"]",
        "algorithm.kl.in=reward",
        "reward.functions.0.weight=2",
        "runs=\"quoted\"",
        "reference.model=123",
    };
    struct dyti_job job = parse(GOOD_JOB, sets, DYT_TEST_COUNT(sets));

    (void)state;
    assert_int_equal(20, job.steps);
    assert_string_equal("some/dir", job.model);
    assert_string_equal("b.jsonl", job.data.train); /* to where one is */
    assert_int_equal(0, job.phase[1].layout.zero);
    assert_true(job.phase[1].optimizer.beta2 == 0.9);
    assert_int_equal(1u << 30, job.sw.memory_cap_bytes);
    assert_true(job.stop.seconds == 120.0);
    assert_int_equal(2, job.phase[0].sampling.stop_count);
    assert_string_equal("b", job.phase[0].sampling.stop[1]);
    assert_int_equal(DYTI_KL_IN_REWARD, job.algorithm.kl_in);
    assert_true(job.reward[0].weight == 2.0);
    assert_string_equal("quoted", job.runs);
    assert_string_equal("123", job.reference.model);
    dyti_job_fini(&job);
}

static void rewards_can_be_replaced(void **state)
{
    static const char *const sets[] = {
        "reward.functions=[{kind=\"numeric\", answer=\"n\"}, "
        "{kind=\"command\", command=[\"python3\", \"r.py\"], name=\"mine\"}]"};
    struct dyti_job job = parse(GOOD_JOB, sets, 1);

    (void)state;
    assert_int_equal(2, job.reward_count);
    assert_int_equal(DYTI_REWARD_NUMERIC, job.reward[0].kind);
    assert_string_equal("numeric", job.reward[0].name);
    assert_string_equal("r.py", job.reward[1].command[1]);
    dyti_job_fini(&job);
}

static void pools_and_orders(void **state)
{
    static const char *const disjoint[] = {
        "pools.rollout=[0, 1]", "pools.train=[3, 2]",
        "phase.rollout.layout.tp=2", "phase.train.layout.pp=1"};
    static const char *const overlap[] = {
        "phase.rollout.layout.ranks=[2, 1, 0]", "phase.rollout.layout.tp=3"};
    struct dyti_job job = parse(GOOD_JOB, disjoint, 4);

    (void)state;
    assert_int_equal(2, job.phase[0].layout.ranks_count);
    assert_int_equal(3, job.phase[1].layout.ranks[0]);
    dyti_job_fini(&job);
    job = parse(GOOD_JOB, overlap, 2);
    assert_int_equal(2, job.phase[0].layout.ranks[0]);
    assert_int_equal(4, job.phase[1].layout.ranks_count);
    dyti_job_fini(&job);
}

static void warnings_are_said(void **state)
{
    static const char *const sets[] = {
        "phase.rollout.layout.dtype=bf16", "phase.rollout.sampling.top_k=5",
        "algorithm.old_logprobs=rollout", "algorithm.rollout_is=sequence"};
    struct dyti_job job = parse(GOOD_JOB, sets, 4);

    (void)state;
    assert_int_equal(3, job.warning_count);
    assert_non_null(strstr(job.warning[0], "old_logprobs"));
    assert_non_null(strstr(job.warning[1], "top_k"));
    assert_non_null(strstr(job.warning[2], "bf16"));
    dyti_job_fini(&job);
}

static void the_shipped_jobs_load(void **state)
{
    struct dyti_job job = {0};

    (void)state;
    assert_ok(dyti_job_load("configs/quickstart/job.toml", NULL, 0, &job));
    assert_string_equal("sort4", job.name);
    assert_string_equal("configs/quickstart/train.jsonl", job.data.train);
    assert_int_equal(500, job.steps);
    assert_int_equal(2, job.phase[1].layout.pp);
    assert_true(job.phase[1].optimizer.lr == 2e-3);
    assert_int_equal(DYTI_LR_LINEAR, job.phase[1].lr_schedule.name);
    assert_int_equal(0, job.warning_count);
    dyti_job_fini(&job);
    assert_ok(dyti_job_load("configs/smollm2/job.toml", NULL, 0, &job));
    assert_int_equal(DYTI_JOB_BF16, job.phase[0].layout.dtype);
    assert_int_equal(DYTI_REWARD_NUMERIC, job.reward[0].kind);
    assert_int_equal(0, job.warning_count);
    dyti_job_fini(&job);
}

/* Mistakes in a phase's file are told with that file's name. */
static void phase_files_have_places(void **state)
{
    static const char job_text[] =
        GOOD_HEAD GOOD_DATA GOOD_ALGORITHM GOOD_REWARD
        "[[phase]]\nname = \"rollout\"\nconfig = \"r.toml\"\n"
        "[[phase]]\nname = \"train\"\nconfig = \"t.toml\"\n";
    static const char rollout[] = "[layout]\ntp = 4\n";
    static const char wrong[] = "[layout]\npp = 2\ndp = 2\nzeros = 1\n";
    const char *dir = dyt_test_dir();
    struct dyti_job job = {0};
    char path[300];

    (void)state;
    snprintf(path, sizeof(path), "%s/r.toml", dir);
    dyt_test_write(path, rollout, sizeof(rollout) - 1);
    snprintf(path, sizeof(path), "%s/t.toml", dir);
    dyt_test_write(path, wrong, sizeof(wrong) - 1);
    snprintf(path, sizeof(path), "%s/job.toml", dir);
    dyt_test_write(path, job_text, sizeof(job_text) - 1);
    assert_status(DYT_ERR_CONFIG, dyti_job_load(path, NULL, 0, &job));
    assert_error_has("/t.toml:4:1");
    assert_error_has("phase.train.layout.zero?");
    snprintf(path, sizeof(path), "%s/t.toml", dir);
    dyt_test_write(path, wrong, 23); /* the lr is missing */
    snprintf(path, sizeof(path), "%s/job.toml", dir);
    assert_status(DYT_ERR_CONFIG, dyti_job_load(path, NULL, 0, &job));
    assert_error_has("/t.toml: optimizer.lr is not set");
    snprintf(path, sizeof(path), "%s/none.toml", dir);
    assert_status(DYT_ERR_IO, dyti_job_load(path, NULL, 0, &job));
}

/* ---- text --------------------------------------------------------------- */

static void assert_reads_back(const struct dyti_job *job)
{
    struct dyti_job again = {0};
    char *text = NULL, *twice = NULL;

    assert_ok(dyti_job_text(job, NULL, &text));
    assert_ok(dyti_job_read_text(text, strlen(text), &again));
    assert_true(dyti_job_equal(job, &again));
    assert_ok(dyti_job_text(&again, NULL, &twice));
    assert_string_equal(text, twice);
    free(text);
    free(twice);
    dyti_job_fini(&again);
    /* As a job file in some other folder. */
    assert_ok(dyti_job_text(job, "/where/we/are", &text));
    assert_ok(dyti_job_parse_text(text, strlen(text), "far/away/job.toml", NULL,
                                  0, &again));
    assert_ok(dyti_job_text(&again, "/elsewhere", &twice));
    assert_string_equal(text, twice);
    free(text);
    free(twice);
    dyti_job_fini(&again);
}

static double draw(uint64_t seed, uint64_t a, uint64_t b)
{
    return dyti_rng_unit(dyti_rng_u64(seed, a, b, 0));
}

/* A random right value for a row, as --set would have it; false: leave it. */
static bool random_value(const struct dyti_option *row, uint64_t seed,
                         uint64_t index, char *buf, size_t bytes)
{
    double u = draw(seed, index, 1), high;
    char word[64];
    bool served;
    uint32_t position = (uint32_t)(u * 5);

    if (draw(seed, index, 0) < 0.5 || strncmp(row->path, "layout.", 7) == 0 ||
        strncmp(row->path, "pools.", 6) == 0 ||
        strncmp(row->path, "batch.", 6) == 0 ||
        strcmp(row->path, "kind") == 0) {
        return false;
    }
    high = row->max == 0.0 || row->max > 1000.0 ? 1000.0 : row->max;
    switch (row->type) {
    case DYTI_OPT_BOOL:
        snprintf(buf, bytes, u < 0.5 ? "true" : "false");
        return true;
    case DYTI_OPT_CHOICE:
    case DYTI_OPT_WORD:
        dyti_choice_word(row->choices, position, word, sizeof(word));
        snprintf(buf, bytes, "%s", word);
        return dyti_choice_find(row->choices, word, strlen(word), &served) >=
                   0 &&
               served;
    case DYTI_OPT_REAL:
    case DYTI_OPT_SECONDS:
        snprintf(buf, bytes, "%.17g", high * (0.001 + 0.9 * u));
        return true;
    case DYTI_OPT_PAIR:
        snprintf(buf, bytes, "[%.17g, %.3g]", u, u / 2);
        return true;
    case DYTI_OPT_U64:
    case DYTI_OPT_SIZE:
        snprintf(buf, bytes, "%llu",
                 (unsigned long long)(u * 0x1p40) << (position * 4));
        return true;
    case DYTI_OPT_TEXT:
    case DYTI_OPT_PATH:
        snprintf(buf, bytes, "\"q\\\"\\\\ \\u00e9\\n%u\"", position);
        return strcmp(row->path, "name") != 0 &&
               strcmp(row->path, "data.prompt") != 0;
    case DYTI_OPT_U32S:
        snprintf(buf, bytes, "[%u, 7]", position);
        return true;
    case DYTI_OPT_TEXTS:
        snprintf(buf, bytes, "[\"a\\tb\", \"%u\"]", position);
        return true;
    default:
        return false;
    }
}

/* Random jobs: many settings at once; those that do not fit each other are
 * refused, all others read back equal. */
static void random_jobs_read_back(void **state)
{
    static const char *const prefix[] = {"", "phase.rollout.",
                                         "reward.functions.0."};
    uint64_t right = 0, rounds = dyt_test_rounds(100, 3000);

    (void)state;
    for (uint64_t seed = 0; seed < rounds; seed++) {
        char *sets[128];
        size_t set_count = 0;
        struct dyti_job job = {0};

        for (int s = 0; s < DYTI_SCOPE_COUNT; s++) {
            size_t count;
            const struct dyti_option *row =
                dyti_options((enum dyti_option_scope)s, &count);

            for (size_t i = 0; i < count; i++) {
                char value[128];
                bool train = s == DYTI_SCOPE_PHASE && row[i].kinds == 2;
                bool other = s == DYTI_SCOPE_REWARD &&
                             !dyti_option_fits(&row[i], DYTI_REWARD_EXACT);

                if (other || !random_value(&row[i], seed, (uint64_t)s << 32 | i,
                                           value, sizeof(value))) {
                    continue;
                }
                assert_true(asprintf(&sets[set_count++], "%s%s=%s",
                                     train ? "phase.train." : prefix[s],
                                     row[i].path, value) > 0);
            }
        }
        for (; set_count > 0; set_count--) {
            /* take settings away until they fit */
            if (dyti_job_parse_text(GOOD_JOB, sizeof(GOOD_JOB) - 1, "job.toml",
                                    (const char *const *)sets, set_count,
                                    &job) == DYT_OK) {
                right += set_count > 3;
                assert_reads_back(&job);
                dyti_job_fini(&job);
                break;
            }
            free(sets[set_count - 1]);
        }
        while (set_count > 0) {
            free(sets[--set_count]);
        }
    }
    assert_true(right * 100 > rounds * 35);
}

static void shipped_jobs_read_back(void **state)
{
    static const char *const path[] = {"configs/quickstart/job.toml",
                                       "configs/smollm2/job.toml"};

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(path); i++) {
        struct dyti_job job = {0};

        assert_ok(dyti_job_load(path[i], NULL, 0, &job));
        assert_reads_back(&job);
        dyti_job_fini(&job);
    }
}

/* Rows of one table must follow each other: the text is cut by table. */
static void the_table_is_in_order(void **state)
{
    (void)state;
    for (int s = 0; s < DYTI_SCOPE_COUNT; s++) {
        size_t count;
        const struct dyti_option *row =
            dyti_options((enum dyti_option_scope)s, &count);

        for (size_t i = 0; i < count; i++) {
            assert_ptr_equal(
                &row[i],
                dyti_option_find((enum dyti_option_scope)s, row[i].path));
            for (size_t j = i + 2; j < count; j++) {
                size_t a = strcspn(row[i].path, "."),
                       b = strcspn(row[j].path, ".");
                size_t m = strcspn(row[j - 1].path, ".");
                bool same = a == b && strncmp(row[i].path, row[j].path, a) == 0;

                if (same && row[i].path[a] == '.') {
                    assert_int_equal(a, m);
                    assert_memory_equal(row[i].path, row[j - 1].path, a);
                }
            }
        }
    }
}

static void edit_distances(void **state)
{
    (void)state;
    assert_int_equal(0, dyti_edit_distance("abc", "abc"));
    assert_int_equal(1, dyti_edit_distance("abc", "acb"));
    assert_int_equal(1, dyti_edit_distance("abc", "ab"));
    assert_int_equal(3, dyti_edit_distance("", "abc"));
    assert_int_equal(3, dyti_edit_distance("kitten", "sitting"));
}

/* data.chat_template knows every built-in template, and no other. */
static void chat_templates_agree(void **state)
{
    const struct dyti_option *row =
        dyti_option_find(DYTI_SCOPE_JOB, "data.chat_template");
    uint32_t count = 0;
    char word[64];

    (void)state;
    for (const char *name; (name = dyti_chat_template_builtin(count)) != NULL;
         count++) {
        bool served = false;

        assert_true(
            dyti_choice_find(row->choices, name, strlen(name), &served) >= 0);
        assert_true(served);
    }
    dyti_choice_word(row->choices, count + 1, word, sizeof(word));
    assert_string_equal(dyti_chat_template_builtin(count - 1), word);
    assert_string_equal(
        "?", dyti_choice_word(row->choices, count + 2, word, sizeof(word)));
}

/* ---- model paths -------------------------------------------------------- */

static void model_paths(void **state)
{
    const char *dir = dyt_test_dir();
    char path[400], *out = NULL;

    (void)state;
    assert_ok(dyti_model_path(dir, NULL, &out));
    assert_string_equal(dir, out);
    free(out);
    assert_status(DYT_ERR_CONFIG, dyti_model_path("no/such", dir, &out));
    assert_error_has("dynatrain model init");
    assert_status(DYT_ERR_CONFIG, dyti_model_path("nosuch", dir, &out));
    assert_error_has("make model");
    snprintf(path, sizeof(path), "%s/models", dir);
    assert_int_equal(0, mkdir(path, 0700));
    snprintf(path, sizeof(path), "%s/models/mine", dir);
    assert_int_equal(0, mkdir(path, 0700));
    assert_ok(dyti_model_path("mine", dir, &out));
    assert_string_equal(path, out);
    free(out);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(defaults),
    cmocka_unit_test(sets_change_what_files_say),
    cmocka_unit_test(rewards_can_be_replaced),
    cmocka_unit_test(pools_and_orders),
    cmocka_unit_test(warnings_are_said),
    cmocka_unit_test(the_shipped_jobs_load),
    cmocka_unit_test(phase_files_have_places),
    cmocka_unit_test(random_jobs_read_back),
    cmocka_unit_test(shipped_jobs_read_back),
    cmocka_unit_test(the_table_is_in_order),
    cmocka_unit_test(edit_distances),
    cmocka_unit_test(chat_templates_agree),
    cmocka_unit_test(model_paths),
};
DYT_TEST_MAIN(tests)
