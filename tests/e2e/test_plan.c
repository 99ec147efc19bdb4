/* `dynatrain plan --from --to`: the price of a switch as text, JSON and page;
 * each wrong use is one line that names what is wrong. */
#include "dyt_run.h"

#include <jansson.h>

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
static void the_page_is_self_contained(void **state)
{
    char path[512];
    struct dyt_run run;
    char *page;
    size_t bytes, open = 0, closed = 0;

    (void)state;
    snprintf(path, sizeof(path), "%s/plan.html", dyt_test_dir());
    run = dyt_run("plan", "--from", FROM, "--to", TO, "--model", MODEL,
                  "--html", path, NULL);
    assert_int_equal(0, run.code);
    page = dyt_test_read(path, &bytes);
    assert_null(strstr(page, "src="));
    assert_null(strstr(page, "href="));
    assert_null(strstr(page, "<script"));
    assert_non_null(strstr(page, "Who sends whom"));
    assert_non_null(strstr(page, "Memory over time"));
    assert_non_null(strstr(page, "Links over time"));
    for (char *p = page; (p = strstr(p, "<svg")) != NULL; p++) {
        open++;
    }
    for (char *p = page; (p = strstr(p, "</svg>")) != NULL; p++) {
        closed++;
    }
    assert_int_equal(3, open);
    assert_int_equal(open, closed);
    assert_null(strstr(page, "nan"));
    free(page);
    dyt_run_fini(&run);
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
         "no.toml"},
        {"megatron:tp=2,dp=100,zero=1", "vllm:tp=2", MODEL, "--cluster",
         "configs/clusters/a800.toml", "200 ranks"},
        {"megatron:tp=2", "vllm:tp=2", MODEL, "--html", "/nonexistent/p.html",
         "/nonexistent/p.html"},
        {"native:dp=1048576", "vllm:tp=2", MODEL, NULL, NULL,
         "a plan prices at most 16384"},
        {"megatron:tp=2,hosts=1+1", "vllm:tp=2", MODEL, NULL, NULL,
         "--from says hosts"},
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
    cmocka_unit_test(a_large_model_is_priced),
    cmocka_unit_test(the_page_is_self_contained),
    cmocka_unit_test(wrong_uses_are_named),
    cmocka_unit_test(both_specs_and_a_model_are_needed),
};
DYT_TEST_MAIN(tests)
