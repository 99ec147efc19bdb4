/* docs/metrics.md and what runs write agree: every documented key is written by
 * some run, and no other key is. */
#include "dyt_job.h"
#include "dyt_test.h"

/* Keys of all steps of a run. */
static void take_keys(const struct dyt_job *job, const char *name, json_t *keys)
{
    json_t *lines = dyt_job_lines(job, name, "metrics.jsonl"), *line, *value;
    const char *key;
    size_t i;

    json_array_foreach(lines, i, line)
    {
        json_object_foreach(line, key, value)
        {
            json_object_set(keys, key, value);
        }
    }
    json_decref(lines);
}

/* Rows "| `key` | unit | meaning |" of the page. */
static json_t *documented(void)
{
    char *page = dyt_test_read("docs/metrics.md", NULL);
    json_t *rows = json_object();

    for (char *at = page; (at = strstr(at, "\n| `")) != NULL;) {
        size_t bytes;

        at += strlen("\n| `");
        bytes = strcspn(at, "`");
        at[bytes] = '\0';
        json_object_set_new(rows, at, json_true());
        at += bytes + 1;
    }
    free(page);
    assert_true(json_object_size(rows) > 50);
    return rows;
}

/* A key that only the pattern PREFIX* documents. */
static bool matched(const json_t *keys, const json_t *rows, const char *pattern)
{
    size_t bytes = strcspn(pattern, "*");
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)keys, key, value)
    {
        if (strncmp(key, pattern, bytes) == 0 &&
            json_object_get(rows, key) == NULL) {
            return true;
        }
    }
    return false;
}

static const char judge[] =
    "import json, sys\n"
    "for line in sys.stdin:\n"
    "    print(json.dumps([{'id': s['id'],\n"
    "        'reward': None if s['id'] % 7 == 0 else s['id'] % 3,\n"
    "        'components': {'third': s['id'] % 3},\n"
    "        'metrics': {'ids': s['id']}}\n"
    "        for s in json.loads(line)]), flush=True)\n";

static void every_documented_key_is_written(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    char *path = dyt_words("%s/judge.py", job.dir), *functions;
    char *data = dyt_words("eval.data=%s/train.jsonl", job.dir);
    json_t *keys = json_object(), *rows = documented(), *value;
    struct dyt_run run;
    const char *key;
    size_t missing = 0;

    (void)state;
    dyt_test_write(path, judge, sizeof(judge) - 1);
    functions = dyt_words("kind = \"command\"\ncommand = [\"python3\", "
                          "\"%s\"]\n",
                          path);
    dyt_job_edit(&job, "kind = \"regex\"\npattern = \"[a-m]\"\n", functions);
    run = dyt_job_run(&job, data, "eval.every=1", "checkpoint.every=1",
                      "algorithm.kl.coef=0.01",
                      "algorithm.overlong_penalty.buffer=2", NULL);
    assert_exit(0, run);
    dyt_run_fini(&run);
    take_keys(&job, "job", keys);
    json_object_foreach(rows, key, value)
    {
        bool there = strchr(key, '*') != NULL
                         ? matched(keys, rows, key)
                         : json_object_get(keys, key) != NULL;

        if (!there) {
            print_error("%s is documented, and no run writes it\n", key);
            missing++;
        }
    }
    assert_int_equal(0, missing);
    json_decref(keys);
    json_decref(rows);
    free(functions);
    free(data);
    free(path);
    dyt_nothing_left();
}

static double last(const struct dyt_job *job, const char *name, const char *key)
{
    json_t *lines = dyt_job_lines(job, name, "metrics.jsonl");
    double value = dyt_number(json_array_get(lines, 0), key);

    json_decref(lines);
    return value;
}

/* Figures that can be known beforehand. */
static void memory_is_what_was_used(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    struct dyt_run run = dyt_job_run(
        &job, "steps=1", "name=apart", "ranks=6", "pools.rollout=[0,1]",
        "pools.train=[2,3,4,5]", "phase.rollout.layout.tp=2", NULL);

    (void)state;
    assert_exit(0, run);
    dyt_run_fini(&run);
    /* Ranks that only generate are heard, too: a block of 16 positions has K
     * and V of 2 layers and half of 4 heads of 16 in f32; 16 samples of at
     * most 5 + 6 positions take one each, their prompts share what they can. */
    assert_true(last(&job, "apart", "memory/kv_bytes") >=
                16.0 * 2 * 2 * 2 * 16 * 4);
    assert_true(fmod(last(&job, "apart", "memory/kv_bytes"),
                     16.0 * 2 * 2 * 2 * 16 * 4) == 0.0);
    /* All weights are somewhere: param twice, master and two moments. */
    assert_true(last(&job, "apart", "memory/resident_bytes") > 97280.0 * 4 * 5);
    assert_true(last(&job, "apart", "memory/resident_bytes") >
                last(&job, "apart", "memory/work"));
    dyt_nothing_left();
}

/* An unchanged layout costs each rank the same few messages every time, however
 * many tensors there are: pause, paused, switch, done. */
static void a_switch_costs_four_messages_a_rank(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    struct dyt_run run = dyt_job_run(&job, "steps=6", NULL);
    json_t *lines, *line;
    size_t i;

    (void)state;
    assert_exit(0, run);
    dyt_run_fini(&run);
    lines = dyt_job_lines(&job, "job", "metrics.jsonl");
    json_array_foreach(lines, i, line)
    {
        assert_true(dyt_number(line, "switch/messages_per_rank") == 4.0);
    }
    json_decref(lines);
    dyt_nothing_left();
}

/* Where the time of a refit goes: parts that are there, and none that is longer
 * than the whole. */
static void a_refit_is_told_in_parts(void **state)
{
    static const char *const part[] = {
        "time/refit/pause",  "time/refit/plan",       "time/refit/transfer",
        "time/refit/verify", "time/refit/commit",     "time/refit/post",
        "time/refit/resume", "time/refit/first_token"};
    struct dyt_job job = dyt_job_new("tiny");
    struct dyt_run run = dyt_job_run(&job, "steps=4", NULL);
    json_t *lines;

    (void)state;
    assert_exit(0, run);
    dyt_run_fini(&run);
    lines = dyt_job_lines(&job, "job", "metrics.jsonl");
    for (size_t step = 1; step < 4; step++) { /* the first follows no update */
        const json_t *line = json_array_get(lines, step);
        double whole = dyt_number(line, "time/refit");

        assert_true(whole > 0.0);
        for (size_t i = 0; i < DYT_TEST_COUNT(part); i++) {
            double seconds = dyt_number(line, part[i]);

            assert_true(seconds >= 0.0 && seconds <= whole);
        }
        assert_true(dyt_number(line, "time/refit/transfer") > 0.0);
    }
    json_decref(lines);
    dyt_nothing_left();
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_documented_key_is_written),
    cmocka_unit_test(memory_is_what_was_used),
    cmocka_unit_test(a_switch_costs_four_messages_a_rank),
    cmocka_unit_test(a_refit_is_told_in_parts),
};
DYT_TEST_MAIN(tests)
