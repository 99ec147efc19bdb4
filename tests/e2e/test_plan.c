/* `dynatrain plan --from --to`: the price of a switch as text, JSON and page;
 * each wrong use is one line that names what is wrong. */
#include "dyt_job.h"

#define MODEL "configs/models/qwen3-30b-a3b"
#define FROM  "megatron:tp=2,pp=2,dp=4,ep=4,zero=1"
#define TO    "vllm:tp=4,dp=4,etp=4"

static json_t *json_of(const struct dyt_run *run)
{
    json_error_t error;
    /* a slow machine says first what it is at */
    const char *text = strchr(run->out, '{');
    json_t *json = json_loads(text != NULL ? text : "", 0, &error);

    if (json == NULL) {
        fail_msg("%s in line %d of: %.200s", error.text, error.line, run->out);
    }
    return json;
}

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    assert_true(json_is_number(value));
    return json_number_value(value);
}

/* Bytes add up to what the destination holds, bounds are not broken, the
 * default strategy is not slower than the others. */
static void the_price_holds_together(void **state)
{
    struct dyt_run run = dyt_run(
        "plan", "--from", FROM, "--to", TO, "--model", MODEL, "--cluster",
        "configs/clusters/a800.toml", "--json", "--pairs", NULL);
    json_t *json, *bytes, *row, *pair;
    double total, pairs = 0, best;
    size_t i;

    (void)state;
    assert_int_equal(0, run.code);
    json = json_of(&run);
    bytes = json_object_get(json_object_get(json, "bytes"), "param");
    total = number(bytes, "kept") + number(bytes, "inside_hosts") +
            number(bytes, "between_hosts");
    /* four replicas over four ranks each; what TP repeats comes on top */
    assert_true(total > 4 * 30532122624.0 * 2);
    assert_true(total < 4.1 * 30532122624.0 * 2);
    json_array_foreach(json_object_get(json, "pairs"), i, pair)
    {
        pairs += number(pair, "written_bytes");
    }
    assert_true(pairs == total);
    row = json_object_get(json, "bounds");
    assert_true(number(row, "plan_seconds") >= number(row, "bound_seconds"));
    json_array_foreach(json_object_get(row, "terms"), i, pair)
    {
        assert_true(number(pair, "plan_bytes") >= number(pair, "bound_bytes"));
    }
    row = json_object_get(json, "strategies");
    assert_int_equal(4, json_array_size(row));
    assert_string_equal("optimal", json_string_value(json_object_get(
                                       json_array_get(row, 0), "name")));
    best = number(json_array_get(row, 0), "simulated_seconds");
    assert_true(best > 0);
    for (i = 1; i < 4; i++) {
        assert_true(number(json_array_get(row, i), "simulated_seconds") >=
                    0.97 * best);
    }
    assert_true(number(json, "source_gain") >= 1);
    json_decref(json);
    dyt_run_fini(&run);
}

static void the_text_says_it_is_simulated(void **state)
{
    struct dyt_run run =
        dyt_run("plan", "--from", FROM, "--to", TO, "--model", MODEL, NULL);

    (void)state;
    assert_int_equal(0, run.code);
    assert_non_null(strstr(run.out, "simulated"));
    assert_non_null(strstr(run.out, "nothing was measured"));
    assert_non_null(strstr(run.out, "30.53 billion"));
    assert_non_null(strstr(run.out, "per-tensor"));
    dyt_run_fini(&run);
}

/* The way back: a server has weights alone. */
static void weights_alone_are_priced(void **state)
{
    static const struct {
        const char *from, *kinds;
    } row[] = {{TO, "--kinds=param"},
               {TO ",residency.master=parked,residency.exp_avg=parked,"
                   "residency.exp_avg_sq=parked",
                "--json"}};

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        struct dyt_run run =
            dyt_run("plan", "--from", row[i].from, "--to", FROM, "--model",
                    MODEL, "--json", row[i].kinds, NULL);
        json_t *json, *bytes;

        assert_int_equal(0, run.code);
        json = json_of(&run);
        bytes = json_object_get(json, "bytes");
        assert_int_equal(1, json_object_size(bytes));
        assert_non_null(json_object_get(bytes, "param"));
        json_decref(json);
        dyt_run_fini(&run);
    }
}

/* A 235B: a few pieces stand for millions of messages. */
static void a_large_model_is_priced(void **state)
{
    static const char *const from[] = {
        "megatron:tp=4,pp=8,dp=4,ep=16,etp=1,zero=1", "zero3:dp=128",
        "fsdp2:dp=128"};

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(from); i++) {
        struct dyt_run run = dyt_run(
            "plan", "--from", from[i], "--to", "vllm:tp=8,dp=16", "--model",
            "configs/models/qwen3-235b-a22b", "--json", NULL);
        json_t *json = json_of(&run), *row;

        assert_int_equal(0, run.code);
        row = json_array_get(json_object_get(json, "strategies"), 3);
        assert_string_equal("per-tensor",
                            json_string_value(json_object_get(row, "name")));
        assert_true(number(row, "messages") > 1e6);
        assert_true(number(row, "pieces") < 1e6);
        assert_true(number(row, "simulated_seconds") > 0);
        json_decref(json);
        dyt_run_fini(&run);
    }
}

/* The page stands alone: nothing is fetched, and every element is closed. */
static void check_page(const char *path, size_t switches)
{
    size_t bytes, open = 0, closed = 0;
    char *page = dyt_test_read(path, &bytes);

    assert_null(strstr(page, "src="));
    assert_null(strstr(page, "href="));
    assert_null(strstr(page, "<script"));
    assert_non_null(strstr(page, "Who sends whom"));
    assert_non_null(strstr(page, "Memory over time"));
    assert_non_null(strstr(page, "Links over time"));
    assert_non_null(strstr(page, "ollectives"));
    for (char *p = page; (p = strstr(p, "<svg")) != NULL; p++) {
        open++;
    }
    for (char *p = page; (p = strstr(p, "</svg>")) != NULL; p++) {
        closed++;
    }
    assert_int_equal(3 * switches, open);
    assert_int_equal(open, closed);
    assert_null(strstr(page, "nan"));
    free(page);
}

static void the_page_is_self_contained(void **state)
{
    char path[512];
    struct dyt_run run;

    (void)state;
    snprintf(path, sizeof(path), "%s/plan.html", dyt_test_dir());
    run = dyt_run("plan", "--from", FROM, "--to", TO, "--model", MODEL,
                  "--html", path, NULL);
    assert_int_equal(0, run.code);
    check_page(path, 1);
    dyt_run_fini(&run);
}

/* ---- of a job ------------------------------------------------------------ */

static void a_job_is_priced_both_ways(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    char *path = dyt_words("%s/job.html", job.dir);
    struct dyt_run run =
        dyt_run("plan", job.file, "--cluster", "configs/clusters/laptop.toml",
                "--html", path, NULL);
    const char *last;

    (void)state;
    assert_exit(0, run);
    assert_says("cluster  2-core laptop: 4 ranks on 1 host\n", run);
    assert_says("nothing was measured", run);
    last = strstr(run.out, "switch rollout -> train");
    assert_non_null(last);
    for (size_t i = 0; i < 4; i++) { /* each of them, in both directions */
        static const char *const name[] = {"optimal", "xor", "funnel",
                                           "per-tensor"};

        assert_true(strstr(run.out, name[i]) < last);
        assert_non_null(strstr(last, name[i]));
    }
    check_page(path, 2);
    dyt_run_fini(&run);
    free(path);
}

static void a_jobs_prices_are_in_its_json(void **state)
{
    static const char *const key[] = {"to_rollout", "to_train"};
    struct dyt_job job = dyt_job_new("tiny");
    struct dyt_run run = dyt_run("plan", job.file, "--json", "--pairs", NULL);
    json_t *json;

    (void)state;
    assert_exit(0, run);
    json = json_of(&run);
    for (size_t i = 0; i < 2; i++) {
        const json_t *plan = json_object_get(json, key[i]);
        const json_t *price =
            json_object_get(json_object_get(json, "prices"), key[i]);
        const json_t *bytes =
            json_object_get(json_object_get(price, "bytes"), "param");

        assert_int_equal(4,
                         json_array_size(json_object_get(price, "strategies")));
        assert_true(json_array_size(json_object_get(price, "pairs")) > 0);
        /* one switch, added up by two rooms */
        assert_true(number(bytes, "kept") == number(plan, "kept_write_bytes"));
        assert_true(number(bytes, "inside_hosts") +
                        number(bytes, "between_hosts") ==
                    number(plan, "moved_write_bytes"));
    }
    json_decref(json);
    dyt_run_fini(&run);
}

/* An option that does not count is refused: whoever gave it thinks it does. */
static void what_does_not_count_is_refused(void **state)
{
    static const char two[] = "hosts = 1\nranks_per_host = 2\n"
                              "[self]\ngigabytes_per_s = 9.0\n"
                              "[host]\ngigabytes_per_s = 9.0\n"
                              "[nic]\ngigabytes_per_s = 9.0\n";
    struct dyt_job job = dyt_job_new("tiny");
    char *small = dyt_words("%s/small.toml", job.dir);
    const struct {
        const char *argument[2], *says;
    } of_job[] = {{{"--model", "tiny"}, "--model goes with --from and --to"},
                  {{"--pairs"}, "--pairs goes with --json"},
                  {{"--pinned"}, "--pinned goes with --from and --to"},
                  {{"--cluster", "no.toml"}, "no.toml"},
                  {{"--html", "/nonexistent/p.html"}, "/nonexistent/p.html"},
                  {{"--cluster", small}, "the layouts need 4 ranks"}},
      of_specs[] = {{{"--pairs"}, "--pairs goes with --json"},
                    {{"--transfers"}, "--transfers goes with a JOB.toml"},
                    {{"--steps"}, "--steps goes with a JOB.toml"},
                    {{"--set", "steps=1"}, "--set goes with a JOB.toml"}};

    (void)state;
    dyt_test_write(small, two, strlen(two));
    for (size_t i = 0; i < DYT_TEST_COUNT(of_job); i++) {
        struct dyt_run run = dyt_run("plan", job.file, of_job[i].argument[0],
                                     of_job[i].argument[1], NULL);

        assert_int_not_equal(0, run.code);
        assert_says(of_job[i].says, run);
        dyt_run_fini(&run);
    }
    for (size_t i = 0; i < DYT_TEST_COUNT(of_specs); i++) {
        struct dyt_run run =
            dyt_run("plan", "--from", FROM, "--to", TO, "--model", MODEL,
                    of_specs[i].argument[0], of_specs[i].argument[1], NULL);

        assert_exit(2, run);
        assert_says(of_specs[i].says, run);
        dyt_run_fini(&run);
    }
    free(small);
}

static void wrong_uses_are_named(void **state)
{
    static const struct {
        const char *from, *to, *model, *extra, *value, *says;
    } row[] = {
        {"megatron:tp=2", "vllm:tp=3", MODEL, NULL, NULL, "tp"},
        {"megatrn:tp=2", "vllm:tp=2", MODEL, NULL, NULL, "megatron"},
        {"megatron:tq=2", "vllm:tp=2", MODEL, NULL, NULL, "tp"},
        {"megatron:tp=2", "vllm:tp=2", "nowhere/at/all", NULL, NULL,
         "nowhere/at/all"},
        {"megatron:tp=2", "vllm:tp=2", MODEL, "--cluster", "no.toml",
         "no.toml: No such file or directory; while reading a cluster, which "
         "is a TOML file such as configs/clusters/a800.toml"},
        {"megatron:tp=2,dp=100,zero=1", "vllm:tp=2", MODEL, "--cluster",
         "configs/clusters/a800.toml", "200 ranks"},
        {"megatron:tp=2", "vllm:tp=2", MODEL, "--html", "/nonexistent/p.html",
         "/nonexistent/p.html"},
        {"native:dp=1048576", "vllm:tp=2", MODEL, NULL, NULL,
         "a plan prices at most 16384"},
        {"megatron:tp=2,hosts=1+1", "vllm:tp=2", MODEL, NULL, NULL,
         "--from says hosts"},
        {"vllm:tp=2", "megatron:tp=2", MODEL, NULL, NULL,
         "--to holds master, and --from has none: price the weights alone with "
         "--kinds param"},
        {"megatron:tp=2", "vllm:tp=2", MODEL, "--kinds", "parm",
         "there is no kind \"parm\""},
        {"megatron:tp=2", "vllm:tp=2", MODEL, "--kinds", "param,master",
         "the layout of --to holds no master"},
        {"megatron:tp=2", "vllm:tp=2", MODEL, "--kinds", "", "at least one"},
    };

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        struct dyt_run run =
            dyt_run("plan", "--from", row[i].from, "--to", row[i].to, "--model",
                    row[i].model, row[i].extra, row[i].value, NULL);

        if (run.code == 0 || strstr(run.out, row[i].says) == NULL) {
            fail_msg("row %zu: code %d, %s", i, run.code, run.out);
        }
        dyt_run_fini(&run);
    }
}

static void both_specs_and_a_model_are_needed(void **state)
{
    struct dyt_run run = dyt_run("plan", "--from", FROM, NULL);

    (void)state;
    assert_int_not_equal(0, run.code);
    assert_non_null(strstr(run.out, "--from, --to and --model"));
    dyt_run_fini(&run);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_price_holds_together),
    cmocka_unit_test(the_text_says_it_is_simulated),
    cmocka_unit_test(weights_alone_are_priced),
    cmocka_unit_test(a_large_model_is_priced),
    cmocka_unit_test(the_page_is_self_contained),
    cmocka_unit_test(a_job_is_priced_both_ways),
    cmocka_unit_test(a_jobs_prices_are_in_its_json),
    cmocka_unit_test(what_does_not_count_is_refused),
    cmocka_unit_test(wrong_uses_are_named),
    cmocka_unit_test(both_specs_and_a_model_are_needed),
};
DYT_TEST_MAIN(tests)
