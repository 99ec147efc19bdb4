/* What is wrong with a job is said in one line, before anything starts: exit
 * code 2, and nothing is left. */
#include "dyt_job.h"
#include "dyt_test.h"

/* Settings that cannot be, each beside an otherwise good job. */
static const struct {
    const char *set, *says;
} settings[] = {
    {"stepss=3", "mean steps?"},
    {"steps=0", "steps"},
    {"steps=-1", "steps"},
    {"steps=many", "steps"},
    {"steps=1.5", "steps"},
    {"name=\"a/b\"", "cannot name a folder"},
    {"name=\"\"", "cannot name a folder"},
    {"model=\"/nowhere/at/all\"", "/nowhere/at/all"},
    {"ranks=0", "ranks"},
    {"ranks=3", "tp 4"},
    {"ranks=70000", "at most 65536"},
    {"seed=-1", "seed"},
    {"pools.rollout=[0]", "pools"},
    {"phase.rollout.layout.tp=3", "tp 3"},
    {"phase.rollout.layout.tp=0", "layout.tp"},
    {"phase.rollout.layout.zero=1", "zero"},
    {"phase.rollout.layout.dtype=f16", "f16"},
    {"phase.rollout.layout.dtype=f64", "dtype"},
    {"phase.rollout.layout.ranks=[0,0,1,2]", "ranks"},
    {"phase.rollout.layout.ranks=[0,1,2,9]", "ranks"},
    {"phase.rollout.sampling.temperature=0", "temperature"},
    {"phase.rollout.sampling.temperature=hot", "temperature"},
    {"phase.rollout.sampling.top_p=1.5", "top_p"},
    {"phase.rollout.sampling.max_response_tokens=0", "max_response_tokens"},
    {"phase.rollout.sampling.max_response_tokens=57", "at least 65"},
    {"data.max_prompt_tokens=59", "at least 65"},
    {"phase.rollout.sampling.min_response_tokens=7", "lower it"},
    {"phase.rollout.kv.memory=\"12 bananas\"", "kv.memory"},
    {"phase.rollout.kv.memory=\"1KiB\"", "kv"},
    {"phase.rollout.kv.max_batch_tokens=2", "too small"},
    {"phase.rollout.engine=vllm", "vllm"},
    {"phase.rollout.residency.optimizer=host", "host"},
    {"phase.train.layout.zero=2", "zero"},
    {"phase.train.layout.pp=3", "pp 3"},
    {"phase.train.layout.pp_layers=[1,2]", "layers"},
    {"phase.train.batch.mini_batch=5", "does not divide"},
    {"phase.train.batch.mini_batch=1", "at least"},
    {"phase.train.batch.micro_batch_tokens=4", "too small"},
    {"phase.train.optimizer.lr=nan", "lr"},
    {"phase.train.optimizer.betas=[0.9]", "betas"},
    {"phase.train.optimizer.betas=[0.9,1.0]", "betas"},
    {"phase.train.optimizer.name=sgd", "sgd"},
    {"phase.train.lr_schedule.warmup_steps=99", "updates"},
    {"phase.train.loss.clip_dual=1.1", "clip_dual"},
    {"phase.train.deadline=0", "deadline"},
    {"phase.score.deadline=1", "score"},
    {"data.train=\"/nowhere.jsonl\"", "/nowhere.jsonl"},
    {"data.prompt=\"{letters\"", "brace"},
    {"data.prompt=\"{nofield}\"", "nofield"},
    {"data.max_prompt_tokens=2", "max_prompt_tokens"},
    {"data.chat_template=nope", "chat_template"},
    {"algorithm.name=ppo", "ppo"},
    {"algorithm.samples_per_prompt=1", "samples_per_prompt"},
    {"algorithm.rollout_is_min=3", "rollout_is_min"},
    {"algorithm.max_staleness=1", "max_staleness"},
    {"algorithm.max_logprob_gap=-1", "max_logprob_gap"},
    {"switch.mode=twice", "double"},
    {"switch.on_low_memory=swap", "in_place"},
    {"switch.in_flight=abort", "abort"},
    {"switch.verify=some", "verify"},
    {"switch.memory_cap=\"-1\"", "memory_cap"},
    {"switch.memory_cap=\"4KiB\"", "switch.memory_cap is 4096 bytes"},
    {"switch.memory_cap=1", "the smallest cap that every rank meets is"},
    {"eval.every=2", "eval.data"},
    {"eval.data=\"/nowhere.jsonl\"", "/nowhere.jsonl"},
    {"checkpoint.keep_best=1", "eval.data"},
    {"devices.kind=cuda", "cuda"},
    {"numerics.mode=invariant", "invariant"},
    {"=3", "="},
    {"steps", "="},
};

static void every_wrong_setting_is_one_line(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    size_t bad = 0;

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(settings); i++) {
        struct dyt_run run = dyt_job_run(&job, settings[i].set, NULL);
        size_t lines = 0, said = 0;

        for (const char *at = run.out; (at = strstr(at, "dynatrain run:"));
             at++) {
            said += at == run.out || at[-1] == '\n';
        }
        for (const char *at = run.out; (at = strchr(at, '\n')) != NULL; at++) {
            lines++;
        }
        if (run.code != 2 || said != 1 ||
            strstr(run.out, settings[i].says) == NULL) {
            print_error("--set %s: exit code %d, %zu lines, want 2 and one "
                        "with \"%s\":\n%s\n",
                        settings[i].set, run.code, lines, settings[i].says,
                        run.out);
            bad++;
        }
        dyt_run_fini(&run);
        dyt_nothing_left();
    }
    assert_int_equal(0, bad);
}

/* The smallest cap that is named is the smallest: a run meets it. */
static void a_cap_is_met_or_refused(void **state)
{
    static const char *const layout[] = {
        "phase.rollout.layout.tp=4", "phase.train.layout.dtype=bf16",
        "phase.rollout.residency.optimizer=move", "switch.mode=in_place"};
    struct dyt_job job = dyt_job_new("tiny");

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(layout); i++) {
        struct dyt_run run =
            dyt_job_run(&job, layout[i], "switch.memory_cap=1", NULL);
        const char *at = strstr(run.out, "every rank meets is ");
        char *set;
        unsigned long long least;

        assert_exit(2, run);
        assert_non_null(at);
        least = strtoull(at + strlen("every rank meets is "), NULL, 10);
        assert_true(least > 1);
        dyt_run_fini(&run);
        set = dyt_words("switch.memory_cap=%llu", least - 1);
        run = dyt_job_run(&job, layout[i], set, NULL);
        assert_exit(2, run);
        dyt_run_fini(&run);
        free(set);
        set = dyt_words("switch.memory_cap=%llu", least);
        run = dyt_job_run(&job, layout[i], set, "steps=1", NULL);
        assert_exit(0, run);
        dyt_run_fini(&run);
        free(set);
        dyt_nothing_left();
    }
}

static void what_only_several_settings_say(void **state)
{
    static const struct {
        const char *set[8], *says;
    } row[] = {
        {{"ranks=65", "phase.rollout.layout.tp=1", "phase.rollout.layout.dp=65",
          "phase.train.layout.pp=1", "phase.train.layout.dp=65",
          "algorithm.prompts_per_step=65", "phase.train.batch.mini_batch=65"},
         "at most 64"},
        {{"algorithm.kl.coef=0.1", "reference.model=\"/nowhere\""}, "/nowhere"},
        {{"data.max_prompt_tokens=60",
          "phase.train.batch.micro_batch_tokens=66"},
         "positions"},
        {{"phase.rollout.layout.tp=5", "ranks=5"}, "tp"},
        {{"eval.data=\"train.jsonl\"", "eval.samples=2"}, "greedy"},
        {{"pools.rollout=[0,1,2,3]", "pools.train=[1,2,3,4]"}, "pools"},
    };
    struct dyt_job job = dyt_job_new("tiny");

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        struct dyt_run run = dyt_job_run_list(&job, row[i].set);

        if (run.code != 2 || strstr(run.out, row[i].says) == NULL) {
            fail_msg("%s: exit code %d, want 2 and \"%s\":\n%s", row[i].set[1],
                     run.code, row[i].says, run.out);
        }
        dyt_one_line("dynatrain run:", &run);
        dyt_run_fini(&run);
        dyt_nothing_left();
    }
}

/* Files that are no job, or one that lacks something: the place is named. */
static void every_wrong_file_is_one_line(void **state)
{
    static const struct {
        const char *from, *to, *says;
    } row[] = {
        {"steps = 3\n", "steps = \n", "job.toml:4:"},
        {"steps = 3\n", "steps = 3\nsteps = 4\n", "steps"},
        {"[algorithm]", "[algoritm]", "mean algorithm?"},
        {"lr = 0.002", "", "optimizer.lr is not set"},
        {"name = \"train\"\n", "name = \"trian\"\n", "trian"},
        {"kind = \"regex\"", "kind = \"regx\"", "regx"},
        {"pattern = \"[a-m]\"", "pattern = \"[a-\"", "pattern"},
        {"pattern = \"[a-m]\"", "", "pattern"},
        {"[[reward.functions]]", "[reward.functions]", "reward"},
        {"kind = \"regex\"\n", "kind = \"exact\"\nanswer = \"nofield\"\n",
         "pattern"},
    };
    struct dyt_job job = dyt_job_new("tiny");
    char *good = dyt_test_read(job.file, NULL);

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        struct dyt_run run;

        dyt_test_write(job.file, good, strlen(good));
        dyt_job_edit(&job, row[i].from, row[i].to);
        run = dyt_job_run(&job, NULL);
        if (run.code != 2 || strstr(run.out, row[i].says) == NULL) {
            fail_msg("%s: exit code %d, want 2 and \"%s\":\n%s", row[i].to,
                     run.code, row[i].says, run.out);
        }
        dyt_one_line("dynatrain run:", &run);
        dyt_run_fini(&run);
        dyt_nothing_left();
    }
    free(good);
}

/* The last row of a file that one step does not get to. */
static void a_wrong_row_is_found_before_the_first_step(void **state)
{
    static const struct {
        const char *row, *says;
    } wrong[] = {
        {"{\"sorted\": 1}", "has no field \"letters\""},
        {"{\"letters\": null, \"sorted\": 1}", "\"letters\" is null"},
        {"{\"letters\": \"ab\"}", "has no field \"sorted\""},
        {"{\"letters\": \"ab\", \"sorted\": null}", "\"sorted\" is null"},
        {"{\"letters\": \"ab\", \"sorted\": \"x\"}", "holds no number"},
    };
    struct dyt_job job = dyt_job_new("tiny");
    char path[340], text[24 * 32 + 64];
    size_t bytes = 0;

    (void)state;
    snprintf(path, sizeof(path), "%s/train.jsonl", job.dir);
    for (int i = 0; i < 24; i++) {
        bytes += (size_t)snprintf(text + bytes, sizeof(text) - bytes,
                                  "{\"letters\": \"ab\", \"sorted\": 1}\n");
    }
    dyt_job_edit(&job, "kind = \"regex\"\npattern = \"[a-m]\"\n",
                 "kind = \"numeric\"\nanswer = \"sorted\"\n");
    for (size_t i = 0; i < DYT_TEST_COUNT(wrong); i++) {
        const char *const how[] = {NULL, "--dry-run"};

        snprintf(text + bytes, sizeof(text) - bytes, "\n%s\n", wrong[i].row);
        dyt_test_write(path, text, strlen(text));
        for (size_t k = 0; k < DYT_TEST_COUNT(how); k++) {
            struct dyt_run run = dyt_job_run(
                &job, "steps=1", "data.shuffle=false", how[k], NULL);

            assert_exit(2, run);
            assert_says("train.jsonl:26:", run); /* behind a blank line */
            assert_says(wrong[i].says, run);
            dyt_one_line("dynatrain run:", &run);
            dyt_run_fini(&run);
        }
    }
}

/* Nobody ever writes to them: whoever opened one would wait for ever. */
/* The last row again: of thirteen tokens, and eight are allowed. */
static void a_long_prompt_is_found_before_the_first_step(void **state)
{
    static const char row[] = "{\"letters\": \"abcdefghijkl\"}\n";
    struct dyt_job job = dyt_job_new("tiny");
    char path[340], *text, *longer;
    struct dyt_run run;

    (void)state;
    snprintf(path, sizeof(path), "%s/train.jsonl", job.dir);
    text = dyt_test_read(path, NULL);
    longer = dyt_words("%s%s", text, row);
    dyt_test_write(path, longer, strlen(longer));
    free(longer);
    free(text);
    run = dyt_job_run(&job, "steps=1", "data.shuffle=false", NULL);
    assert_exit(2, run);
    assert_says("train.jsonl:25: the prompt has 13 tokens", run);
    dyt_one_line("dynatrain run:", &run);
    dyt_run_fini(&run);
    run = dyt_job_run(&job, "steps=1", "data.shuffle=false",
                      "data.overlong_prompt=drop", NULL);
    assert_exit(0, run);
    dyt_run_fini(&run);
    dyt_nothing_left();
}

static void pipes_are_no_files(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    char pipe[340], weights[340], set[360];
    struct dyt_run run;

    (void)state;
    snprintf(pipe, sizeof(pipe), "%s/pipe", job.dir);
    snprintf(weights, sizeof(weights), "%s/model.safetensors", job.model);
    assert_int_equal(0, mkfifo(pipe, 0600));
    run = dyt_run("run", pipe, NULL);
    assert_exit(2, run);
    assert_says("pipe: not a regular file", run);
    dyt_run_fini(&run);
    snprintf(set, sizeof(set), "data.train=%s", pipe);
    run = dyt_job_run(&job, set, NULL);
    assert_exit(2, run);
    assert_says("pipe: not a regular file", run);
    dyt_run_fini(&run);
    assert_int_equal(0, unlink(weights));
    assert_int_equal(0, mkfifo(weights, 0600));
    run = dyt_job_run(&job, NULL);
    assert_exit(2, run);
    assert_says("model.safetensors: not a regular file", run);
    dyt_run_fini(&run);
    dyt_nothing_left();
}

static void wrong_command_lines_are_code_2(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    struct dyt_run run;

    (void)state;
    run = dyt_run("run", NULL);
    assert_exit(2, run);
    assert_says("which job file?", run);
    dyt_run_fini(&run);
    run = dyt_run("run", job.file, job.file, NULL);
    assert_exit(2, run);
    dyt_run_fini(&run);
    run = dyt_run("run", "/nowhere/job.toml", NULL);
    assert_exit(2, run);
    dyt_one_line("dynatrain run:", &run);
    dyt_run_fini(&run);
    run = dyt_run("run", job.file, "--no-such-option", NULL);
    assert_exit(2, run);
    dyt_run_fini(&run);
    run = dyt_run("run", job.dir, NULL);
    assert_exit(2, run);
    dyt_one_line("dynatrain run:", &run);
    dyt_run_fini(&run);
    run = dyt_run("rum", NULL);
    assert_exit(2, run);
    assert_says("there is no command \"rum\" (did you mean \"run\"?)", run);
    dyt_run_fini(&run);
    run = dyt_run("--jsn", NULL);
    assert_exit(2, run);
    assert_says("there is no option \"--jsn\";", run);
    dyt_run_fini(&run);
    run = dyt_run("worker", "ipc://@x", "0", NULL);
    assert_exit(2, run);
    dyt_run_fini(&run);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_wrong_setting_is_one_line),
    cmocka_unit_test(a_cap_is_met_or_refused),
    cmocka_unit_test(what_only_several_settings_say),
    cmocka_unit_test(every_wrong_file_is_one_line),
    cmocka_unit_test(a_wrong_row_is_found_before_the_first_step),
    cmocka_unit_test(a_long_prompt_is_found_before_the_first_step),
    cmocka_unit_test(pipes_are_no_files),
    cmocka_unit_test(wrong_command_lines_are_code_2),
};
DYT_TEST_MAIN(tests)
