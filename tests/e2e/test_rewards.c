/* A reward command that works, and ones that do not: one line says what it
 * did, and nothing of it stays. */
#include "dyt_job.h"
#include "dyt_test.h"

/* A job whose reward is a shell script. */
static struct dyt_job with_command(const char *script, const char *deadline)
{
    struct dyt_job job = dyt_job_new("tiny");
    char *reward = dyt_words("kind = \"command\"\n"
                             "command = [\"sh\", \"-c\", '''%s''']\n"
                             "deadline = %s\n",
                             script, deadline);

    dyt_job_edit(&job, "kind = \"regex\"\npattern = \"[a-m]\"\n", reward);
    free(reward);
    return job;
}

static void a_command_judges(void **state)
{
    /* A quarter for every id of the batch. */
    struct dyt_job job = with_command(
        "while read -r line; do "
        "r=$(echo \"$line\" | grep -o '\"id\": *[0-9]*' | "
        "sed 's/.*: *\\(.*\\)/{\"id\":\\1,\"reward\":0.25}/' | paste -sd,); "
        "echo \"[$r]\"; done",
        "60.0");
    struct dyt_run run = dyt_job_run(&job, NULL);
    json_t *lines;

    (void)state;
    assert_exit(0, run);
    dyt_nothing_left();
    lines = dyt_job_lines(&job, "job", "metrics.jsonl");
    assert_true(dyt_number(json_array_get(lines, 0), "reward/mean") == 0.25);
    json_decref(lines);
    dyt_run_fini(&run);
}

static void bad_commands_are_named(void **state)
{
    static const struct {
        const char *script, *deadline, *says;
        int code;
    } row[] = {
        {"while read -r x; do sleep 1000; done", "0.3", "no answer within", 1},
        {"trap \"\" TERM INT; read -r x; sleep 1000 & sleep 1000", "0.3",
         "no answer within", 1},
        {"while read -r x; do echo hello; done", "60.0", "sh", 2},
        {"while read -r x; do echo \"{}\"; done", "60.0", "sh", 2},
        {"read -r x; exit 3", "60.0", "exited with 3", 1},
        {"kill -9 $$", "60.0", "sh", 1},
        {"exec >&-; sleep 1000", "60.0", "sh", 1},
    };

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        struct dyt_job job = with_command(row[i].script, row[i].deadline);
        struct dyt_run run = dyt_job_run(&job, NULL);

        if (run.code != row[i].code || strstr(run.out, row[i].says) == NULL) {
            fail_msg("%s: exit code %d, want %d and \"%s\":\n%s", row[i].script,
                     run.code, row[i].code, row[i].says, run.out);
        }
        dyt_one_line("dynatrain run:", &run);
        dyt_run_fini(&run);
        dyt_nothing_left();
    }
}

static void a_program_that_is_not_there_is_code_2(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    struct dyt_run run;

    (void)state;
    dyt_job_edit(
        &job, "kind = \"regex\"\npattern = \"[a-m]\"\n",
        "kind = \"command\"\ncommand = [\"no-such-program-at-all\"]\n");
    run = dyt_job_run(&job, NULL);
    assert_exit(2, run);
    assert_says("no-such-program-at-all", run);
    dyt_one_line("dynatrain run:", &run);
    dyt_run_fini(&run);
    dyt_nothing_left();
}

/* What a killed run's command has started goes, too. */
static void nothing_of_it_survives_kill_9(void **state)
{
    struct dyt_job job =
        with_command("trap \"\" TERM INT HUP; read -r x; echo asked >&2; "
                     "sleep 1000 & sleep 1000",
                     "1000.0");
    struct dyt_process p = dyt_job_start(&job, NULL);
    struct dyt_run run;

    (void)state;
    assert_true(dyt_read_until(&p, "asked"));
    kill(p.pid, SIGKILL);
    run = dyt_finish(&p);
    assert_int_equal(SIGKILL, run.signal);
    dyt_run_fini(&run);
    dyt_nothing_left();
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_command_judges),
    cmocka_unit_test(bad_commands_are_named),
    cmocka_unit_test(a_program_that_is_not_there_is_code_2),
    cmocka_unit_test(nothing_of_it_survives_kill_9),
};
DYT_TEST_MAIN(tests)
