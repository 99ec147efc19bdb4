/* The other commands, as a person tries them first. */
#include "dyt_job.h"
#include "dyt_test.h"

#include <sys/stat.h>

static void every_command_teaches(void **state)
{
    static const char *const command[] = {
        "run",      "plan",   "layout", "convert", "generate", "model",
        "tokenize", "doctor", "env",    "serve",   "status",   "keys"};
    struct dyt_run run = dyt_run("--help", NULL);

    (void)state;
    assert_exit(0, run);
    for (size_t i = 0; i < DYT_TEST_COUNT(command); i++) {
        struct dyt_run help =
            dyt_run(command[i], i % 2 == 0 ? "--help" : "-h", NULL);

        assert_says(command[i], run);
        assert_exit(0, help);
        assert_says("Usage: dynatrain", help);
        dyt_run_fini(&help);
    }
    dyt_run_fini(&run);
    run = dyt_run("help", "plan", NULL);
    assert_exit(0, run);
    assert_says("Usage: dynatrain plan", run);
    dyt_run_fini(&run);
    run = dyt_run("--version", NULL);
    assert_exit(0, run);
    dyt_run_fini(&run);
    run = dyt_run(NULL);
    assert_exit(2, run);
    assert_says("Commands:", run);
    dyt_run_fini(&run);
}

static void a_dry_run_allocates_nothing(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    /* A terabyte of KV cache: what would be asked for is only said. */
    struct dyt_run run =
        dyt_job_run(&job, "phase.rollout.kv.memory=1TiB", "--dry-run", NULL);

    (void)state;
    assert_exit(0, run);
    assert_says("steps = 3", run);
    assert_says("rollout.param (f32), dropped in the other phase", run);
    assert_says("train.master (f32), parked in the other phase", run);
    assert_says("KV cache in rollout, activations in train", run);
    assert_says("switch train -> rollout", run);
    assert_says("beside the larger layout", run);
    assert_says("cluster  assumed", run); /* whose seconds they are */
    assert_says("transfers", run);
    assert_false(dyt_exists("%s", job.runs));
    dyt_run_fini(&run);
    /* What a run would stop at stops here. */
    run = dyt_job_run(&job, "data.train=nowhere.jsonl", "--dry-run", NULL);
    assert_exit(2, run);
    assert_says("nowhere.jsonl", run);
    dyt_run_fini(&run);
    run = dyt_job_run(&job, "data.prompt={nothing}", "--dry-run", NULL);
    assert_exit(2, run);
    assert_says("no field \"nothing\"", run);
    dyt_run_fini(&run);
    dyt_nothing_left();
}

/* The job that a dry run prints: from its first line to the model's. */
static char *resolved_job(const char *job, const char *const *sets)
{
    struct dyt_job at = {0};
    char *text;
    const char *from, *to;
    struct dyt_run run;

    snprintf(at.file, sizeof(at.file), "%s", job);
    run = dyt_job_run_list(&at, sets);
    assert_exit(0, run);
    from = strstr(run.out, "# the job, resolved\n");
    to = strstr(run.out, "\nmodel llama: ");
    assert_true(from != NULL && to != NULL && from < to);
    text = strndup(from, (size_t)(to - from));
    dyt_run_fini(&run);
    return text;
}

/* Also where nothing is evaluated, and read in another folder. */
static void what_a_dry_run_prints_is_the_same_job(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    char *model = dyt_words("model=%s", job.model);
    const char *const none[] = {"--dry-run", NULL};
    const char *const plain[] = {model, "--dry-run", NULL};
    const char *const short_one[] = {model,
                                     "phase.rollout.layout.dtype=f32",
                                     "phase.train.layout.dtype=f32",
                                     "data.max_prompt_tokens=40",
                                     "--dry-run",
                                     NULL};
    const struct {
        const char *file;
        const char *const *sets;
    } row[] = {{job.file, none},
               {"configs/quickstart/job.toml", plain},
               {"configs/smollm2/job.toml", short_one}};

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        char *folder = dyt_words("%s/again-%zu", job.dir, i);
        char *file = dyt_words("%s/job.toml", folder);
        char *text = resolved_job(row[i].file, row[i].sets), *again;

        assert_int_equal(0, mkdir(folder, 0700));
        dyt_test_write(file, text, strlen(text));
        again = resolved_job(file, none);
        assert_string_equal(text, again);
        free(text);
        free(again);
        free(file);
        free(folder);
    }
    free(model);
    dyt_nothing_left();
}

static void a_plan_is_json_if_asked(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    struct dyt_run run = dyt_run("plan", job.file, "--json", NULL);
    json_error_t error;
    json_t *plan = json_loads(run.out, 0, &error);

    (void)state;
    assert_exit(0, run);
    if (plan == NULL) {
        fail_msg("line %d: %s", error.line, error.text);
    }
    assert_string_equal("job", json_string_value(json_object_get(plan, "job")));
    json_decref(plan);
    dyt_run_fini(&run);
    run = dyt_run("plan", job.file, NULL);
    assert_exit(0, run);
    assert_says("kept", run);
    assert_says("moved", run);
    dyt_run_fini(&run);
}

static void text_to_ids_and_back(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    struct dyt_run run = dyt_run("tokenize", job.model, "dbca>", NULL);
    char *argv[16] = {(char *)(uintptr_t)DYT_BIN,
                      (char *)(uintptr_t) "tokenize", job.model,
                      (char *)(uintptr_t) "--decode"};
    struct dyt_process p;
    int n = 4;

    (void)state;
    assert_exit(0, run);
    for (char *rest = run.out, *end; n < 15; n++, rest = end) {
        long id = strtol(rest, &end, 10);

        if (end == rest) {
            break;
        }
        argv[n] = dyt_words("%ld", id);
    }
    assert_int_equal(4 + 5, n);
    dyt_run_fini(&run);
    p = dyt_start_argv(argv);
    run = dyt_finish(&p);
    assert_exit(0, run);
    assert_string_equal("dbca>\n", run.out);
    dyt_run_fini(&run);
    while (n-- > 4) {
        free(argv[n]);
    }
    run = dyt_run("tokenize", "--decode", "--json", job.model, "1", NULL);
    assert_exit(2, run);
    dyt_run_fini(&run);
    run = dyt_run("tokenize", "--decode", job.model, NULL);
    assert_exit(2, run);
    dyt_run_fini(&run);
    run = dyt_run("tokenize", "/nowhere", "x", NULL);
    assert_exit(2, run);
    dyt_run_fini(&run);
}

static void generating_is_repeatable(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    struct dyt_run a = dyt_run("generate", job.model, "abcd>", "--tokens", "8",
                               "--json", NULL);
    struct dyt_run b = dyt_run("generate", job.model, "abcd>", "--tokens", "8",
                               "--json", NULL);

    (void)state;
    assert_exit(0, a);
    assert_exit(0, b);
    assert_string_equal(a.out, b.out);
    dyt_run_fini(&a);
    dyt_run_fini(&b);
    /* Without a limit: as long as the model can. */
    a = dyt_run("generate", job.model, "abcd>", NULL);
    assert_exit(0, a);
    dyt_run_fini(&a);
    a = dyt_run("generate", job.model, "abcd>", "--tokens", "600", NULL);
    assert_exit(2, a);
    assert_says("64 positions", a);
    dyt_run_fini(&a);
    a = dyt_run("generate", job.model, "", NULL);
    assert_exit(2, a);
    assert_says("is empty", a);
    dyt_run_fini(&a);
    a = dyt_run("generate", "/nowhere", "abcd>", NULL);
    assert_exit(2, a);
    dyt_one_line("dynatrain generate:", &a);
    dyt_run_fini(&a);
}

static void models_are_made_and_described(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    struct dyt_run run = dyt_run("model", "info", job.model, NULL);
    char *path;

    (void)state;
    assert_exit(0, run);
    assert_says("97280 parameters", run);
    assert_says("model.layers.*.self_attn.q_proj.weight", run);
    dyt_run_fini(&run);
    /* What is there is not overwritten by accident. */
    run =
        dyt_run("model", "init", "--preset", "tiny", "--out", job.model, NULL);
    assert_exit(2, run);
    dyt_run_fini(&run);
    run = dyt_run("model", "init", "--preset", "tiny", "--force", "--out",
                  job.model, NULL);
    assert_exit(0, run);
    dyt_run_fini(&run);
    run =
        dyt_run("model", "init", "--preset", "huge", "--out", job.model, NULL);
    assert_exit(2, run);
    assert_says("tiny", run);
    dyt_run_fini(&run);
    run = dyt_run("model", "info", "/nowhere", NULL);
    assert_exit(2, run);
    dyt_run_fini(&run);
    /* A folder that is no model; folders on the way to one. */
    run = dyt_run("model", "info", "/", NULL);
    assert_exit(2, run);
    dyt_run_fini(&run);
    run = dyt_run("model", "init", "--out", "", NULL);
    assert_exit(2, run);
    dyt_one_line("dynatrain model init:", &run);
    dyt_run_fini(&run);
    path = dyt_words("%s/some of/the/way", job.model);
    run = dyt_run("model", "init", "--out", path, NULL);
    assert_exit(0, run);
    dyt_run_fini(&run);
    run = dyt_run("model", "info", path, NULL);
    assert_exit(0, run);
    dyt_run_fini(&run);
    free(path);
}

static void the_doctor_knows_this_machine(void **state)
{
    struct dyt_run run = dyt_run("doctor", NULL);

    (void)state;
    assert_exit(0, run);
    assert_says("instructions", run);
    assert_says("pages", run);
    assert_says("memcpy", run);
    assert_says("iB available", run);
    dyt_run_fini(&run);
}

/* A full disk behind `> file`. */
static void lost_output_is_a_failure(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    const char *const command[] = {"tokenize", "model info"};

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(command); i++) {
        char *line = dyt_words("exec %s %s %s %s > /dev/full", DYT_BIN,
                               command[i], job.model, i == 0 ? "abcd" : "");
        char *argv[] = {(char *)(uintptr_t) "/bin/sh", (char *)(uintptr_t) "-c",
                        line, NULL};
        struct dyt_process p = dyt_start_argv(argv);
        struct dyt_run run = dyt_finish(&p);
        char *who = dyt_words("dynatrain %s:", command[i]);

        assert_exit(1, run);
        dyt_one_line(who, &run);
        dyt_run_fini(&run);
        free(who);
        free(line);
    }
}

static void a_misspelt_variable_is_said(void **state)
{
    struct dyt_run run;

    (void)state;
    setenv("DYNATRAIN_LOGG", "debug", 1);
    run = dyt_run("env", NULL);
    unsetenv("DYNATRAIN_LOGG");
    assert_exit(0, run);
    assert_says("DYNATRAIN_LOGG", run);
    assert_says("DYNATRAIN_LOG ", run);
    dyt_run_fini(&run);
}

/* Once, not by each worker. */
static void what_is_set_wrongly_is_said_once(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    struct dyt_run run;
    size_t warnings = 0;

    (void)state;
    setenv("DYNATRAIN_LOGG", "debug", 1);
    setenv("DYNATRAIN_LOG", "loud", 1);
    run = dyt_job_run(&job, "steps=1", NULL);
    unsetenv("DYNATRAIN_LOGG");
    unsetenv("DYNATRAIN_LOG");
    assert_exit(0, run);
    for (const char *at = run.out; (at = strstr(at, "warning:")) != NULL;
         at++) {
        warnings++;
    }
    assert_int_equal(2, warnings);
    dyt_run_fini(&run);
    dyt_nothing_left();
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_command_teaches),
    cmocka_unit_test(a_dry_run_allocates_nothing),
    cmocka_unit_test(what_a_dry_run_prints_is_the_same_job),
    cmocka_unit_test(a_plan_is_json_if_asked),
    cmocka_unit_test(text_to_ids_and_back),
    cmocka_unit_test(generating_is_repeatable),
    cmocka_unit_test(models_are_made_and_described),
    cmocka_unit_test(the_doctor_knows_this_machine),
    cmocka_unit_test(lost_output_is_a_failure),
    cmocka_unit_test(a_misspelt_variable_is_said),
    cmocka_unit_test(what_is_set_wrongly_is_said_once),
};
DYT_TEST_MAIN(tests)
