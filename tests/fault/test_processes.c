/* Any process dies, hangs or fails at any point of a run: the run ends with
 * the exit code of its class and one line that names the rank, nothing stays
 * behind, and the earlier checkpoint is usable. */
#include "dyt_job.h"
#include "dyt_test.h"

#include <fcntl.h>
#include <sys/stat.h>

/* Runs with a checkpoint after every step; the fault comes in step 3. */
static struct dyt_run faulty(const struct dyt_job *job, const char *fault,
                             const char *more)
{
    struct dyt_run run;

    dyt_set_fault(fault);
    run = dyt_job_run(job, "steps=4", "checkpoint.every=1",
                      "switch.verify=full", more, NULL);
    dyt_set_fault(NULL);
    dyt_nothing_left();
    return run;
}

static void expect(const char *fault, const struct dyt_run *run, int code,
                   const char *says)
{
    if (run->code != code || strstr(run->out, says) == NULL) {
        fail_msg("%s: exit code %d (signal %d), want %d and \"%s\":\n%s", fault,
                 run->code, run->signal, code, says, run->out);
    }
    dyt_one_line("dynatrain run:", run);
}

static void resumes(const struct dyt_job *job, const char *fault)
{
    struct dyt_run run =
        dyt_job_run(job, "steps=4", "checkpoint.every=1", "--resume", NULL);
    json_t *lines;

    if (run.code != 0) {
        fail_msg("after %s: it does not resume:\n%s", fault, run.out);
    }
    dyt_nothing_left();
    lines = dyt_job_lines(job, "job", "metrics.jsonl");
    assert_int_equal(4, json_array_size(lines));
    json_decref(lines);
    assert_true(dyt_exists("%s/job/checkpoints/step-00000004/complete.json",
                           job->runs));
    dyt_run_fini(&run);
}

static void drop_runs(const struct dyt_job *job)
{
    dyt_test_remove_tree(job->runs);
}

static void a_worker_dies_before_the_first_step(void **state)
{
    static const char *const point[] = {"hello", "built", "loaded"};
    struct dyt_job job = dyt_job_new("tiny");

    (void)state;
    for (uint32_t i = 0; i < DYT_TEST_COUNT(point); i++) {
        char *fault = dyt_words("rank=%u,at=%s,how=kill", i + 1, point[i]);
        char *says = dyt_words("rank %u (process", i + 1);
        struct dyt_run run = faulty(&job, fault, NULL);

        expect(fault, &run, 4, says);
        dyt_run_fini(&run);
        free(says);
        free(fault);
    }
}

static void a_worker_dies_at_any_point(void **state)
{
    static const char *const point[] = {"generate",
                                        "generated",
                                        "start,to=train",
                                        "prepared",
                                        "transferred",
                                        "verified",
                                        "voted",
                                        "decided",
                                        "voted,to=rollout",
                                        "train",
                                        "trained",
                                        "checkpoint",
                                        "checkpointed",
                                        "transferred,to=rollout"};
    struct dyt_job job = dyt_job_new("tiny");

    (void)state;
    for (uint32_t i = 0; i < DYT_TEST_COUNT(point); i++) {
        uint32_t rank = i % 4;
        char *fault =
            dyt_words("rank=%u,step=3,how=kill,at=%s", rank, point[i]);
        char *says = dyt_words("rank %u (process", rank);
        struct dyt_run run = faulty(&job, fault, NULL);

        expect(fault, &run, 4, says);
        assert_says("killed by signal 9", run);
        dyt_run_fini(&run);
        if (i % 3 == 0 || strstr(point[i], "checkpoint") != NULL) {
            resumes(&job, fault);
        }
        drop_runs(&job);
        free(says);
        free(fault);
    }
}

/* All vote, one dies: what was decided is what all survivors have. */
static void a_death_after_the_votes_does_not_undo_them(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    struct dyt_run run =
        faulty(&job, "rank=2,at=decided,step=1,to=train,how=kill", NULL);

    (void)state;
    assert_exit(4, run);
    assert_says("committed, the training layout is whole", run);
    dyt_run_fini(&run);
    run = faulty(&job, "rank=2,at=prepared,step=1,to=train,how=kill", NULL);
    assert_exit(4, run);
    assert_says("not committed, the rollout layout is whole", run);
    dyt_run_fini(&run);
}

static void the_manager_dies_at_any_point(void **state)
{
    static const char *const point[] = {"begin", "votes", "commit",
                                        "save",  "parts", "saved"};
    struct dyt_job job = dyt_job_new("tiny");
    struct dyt_run run = faulty(&job, "rank=manager,at=spawned,how=kill", NULL);

    (void)state;
    assert_int_equal(SIGKILL, run.signal);
    dyt_run_fini(&run);
    for (size_t i = 0; i < DYT_TEST_COUNT(point); i++) {
        char *fault = dyt_words("rank=manager,step=3,how=kill,at=%s", point[i]);

        run = faulty(&job, fault, NULL);
        assert_int_equal(SIGKILL, run.signal);
        dyt_run_fini(&run);
        resumes(&job, fault);
        drop_runs(&job);
        free(fault);
    }
}

static void a_device_that_fails_is_class_3(void **state)
{
    static const char *const point[] = {"built", "generate", "transferred",
                                        "train", "checkpoint"};
    struct dyt_job job = dyt_job_new("tiny");

    (void)state;
    for (uint32_t i = 0; i < DYT_TEST_COUNT(point); i++) {
        char *fault = dyt_words("rank=%u,how=fail,at=%s", i % 4, point[i]);
        char *says = dyt_words("rank %u: ", i % 4);
        struct dyt_run run = faulty(&job, fault, NULL);

        expect(fault, &run, 3, says);
        dyt_run_fini(&run);
        free(says);
        free(fault);
    }
}

/* Exit code 0 of a worker that was not told to end is a death, too. */
static void a_worker_that_leaves_is_lost(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    struct dyt_run run = faulty(&job, "rank=3,at=train,how=exit", NULL);

    (void)state;
    expect("exit", &run, 4, "rank 3 (process");
    assert_says("ended with exit code 0", run);
    dyt_run_fini(&run);
}

/* What gives no sign of life for that long hangs: longer than a loaded machine
 * takes for a step.  So they hang at once, some of them each time. */
#define HANGS   "5"
#define AT_ONCE 4

struct hanging {
    const char *fault, *deadline;
};

static struct dyt_process start_hanging(const struct dyt_job *job,
                                        const struct hanging *h, size_t number)
{
    char *name = dyt_words("name=hanging-%zu", number);
    struct dyt_process p;

    dyt_set_fault(h->fault);
    p = dyt_job_start(job, name, "steps=4", "checkpoint.every=1",
                      "switch.verify=full", h->deadline, NULL);
    dyt_set_fault(NULL);
    free(name);
    return p;
}

static void is_named(const struct hanging *h, struct dyt_process *p)
{
    char *says = dyt_words("rank %c ", h->fault[5]);
    struct dyt_run run = dyt_finish(p);

    expect(h->fault, &run, 4, says);
    dyt_run_fini(&run);
    free(says);
}

static void a_worker_that_hangs_is_named(void **state)
{
    static const struct hanging row[] = {
        {"rank=2,at=built,how=hang", "phase.rollout.deadline=" HANGS},
        {"rank=1,at=generate,step=2,how=hang", "phase.rollout.deadline=" HANGS},
        {"rank=3,at=start,step=1,how=hang", "switch.deadline=" HANGS},
        {"rank=2,at=verified,step=1,how=hang", "switch.deadline=" HANGS},
        {"rank=1,at=decided,step=1,how=hang", "switch.deadline=" HANGS},
        {"rank=3,at=train,step=2,how=hang", "phase.train.deadline=" HANGS},
        {"rank=2,at=checkpoint,step=1,how=hang", "phase.train.deadline=" HANGS},
        {"rank=1,at=loaded,how=hang", "phase.rollout.deadline=" HANGS},
        {"rank=0,at=generated,step=2,how=hang",
         "phase.rollout.deadline=" HANGS},
        {"rank=3,at=prepared,to=rollout,step=1,how=hang",
         "switch.deadline=" HANGS},
        {"rank=0,at=voted,to=rollout,step=1,how=hang",
         "switch.deadline=" HANGS},
        {"rank=1,at=trained,step=2,how=hang", "phase.train.deadline=" HANGS},
    };
    struct dyt_job job = dyt_job_new("tiny");

    (void)state;
    assert_int_equal(0, DYT_TEST_COUNT(row) % AT_ONCE);
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i += AT_ONCE) {
        struct dyt_process p[AT_ONCE];

        for (size_t k = 0; k < AT_ONCE; k++) {
            p[k] = start_hanging(&job, &row[i + k], i + k);
        }
        for (size_t k = 0; k < AT_ONCE; k++) {
            is_named(&row[i + k], &p[k]);
        }
        dyt_nothing_left();
    }
}

/* The others' signs of life are not those of the one that hangs: a replica that
 * generates on does not cover for it. */
static void a_rank_that_hangs_beside_busy_ones_is_named(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    struct dyt_run run;

    (void)state;
    dyt_set_fault("rank=3,at=generate,how=hang");
    run = dyt_job_run(
        &job, "phase.rollout.layout.tp=2", "phase.rollout.layout.dp=2",
        "phase.rollout.deadline=" HANGS, "algorithm.prompts_per_step=512",
        "algorithm.samples_per_prompt=64",
        "phase.rollout.sampling.max_response_tokens=48", NULL);
    dyt_set_fault(NULL);
    expect("a busy replica", &run, 4,
           "rank 3 gave no sign of life for " HANGS " s while generating");
    dyt_run_fini(&run);
    dyt_nothing_left();
}

/* One training step of so many epochs; how many seconds it took. */
static double seconds_of_a_step(const struct dyt_job *job, int epochs)
{
    char *set = dyt_words("phase.train.batch.epochs=%d", epochs);
    struct dyt_run run =
        dyt_job_run(job, "steps=1", "phase.train.deadline=" HANGS, set,
                    "algorithm.prompts_per_step=96",
                    "algorithm.samples_per_prompt=64", NULL);
    json_t *lines;
    double seconds;

    assert_exit(0, run);
    dyt_run_fini(&run);
    dyt_nothing_left();
    lines = dyt_job_lines(job, "job", "metrics.jsonl");
    seconds = dyt_number(json_array_get(lines, 0), "time/train");
    json_decref(lines);
    free(set);
    return seconds;
}

/* A step that takes longer than its deadline is none that hangs.  How many
 * epochs that takes depends on the machine. */
static void signs_of_life_carry_a_long_step(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    double deadline = strtod(HANGS, NULL), seconds = 0;

    (void)state;
    for (int epochs = 4; seconds <= deadline; epochs *= 4) {
        assert_true(epochs < 4096);
        seconds = seconds_of_a_step(&job, epochs);
    }
    print_message("  a training step of %.1f s\n", seconds);
}

/* Gives every sample 1, once somebody has written to the gate. */
static const char gated[] =
    "import json, sys\n"
    "for line in sys.stdin:\n"
    "    print('asked', file=sys.stderr, flush=True)\n"
    "    open(sys.argv[1]).read()\n"
    "    print(json.dumps([{'id': s['id'], 'reward': 1}\n"
    "                      for s in json.loads(line)]), flush=True)\n";

/* Nobody expects a word of a rank while samples are judged; the next phase
 * does, and has its own deadline. */
static void a_rank_that_stops_while_idle_is_named(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    char *gate = dyt_words("%s/gate", job.dir);
    char *judge = dyt_words("%s/judge.py", job.dir);
    char *command = dyt_words("kind = \"command\"\n"
                              "command = [\"python3\", \"%s\", \"%s\"]\n",
                              judge, gate);
    struct dyt_process p;
    struct dyt_run run;
    pid_t child[16];
    size_t children;
    int fd;

    (void)state;
    assert_int_equal(0, mkfifo(gate, 0600));
    dyt_test_write(judge, gated, sizeof(gated) - 1);
    dyt_job_edit(&job, "kind = \"regex\"\npattern = \"[a-m]\"\n", command);
    p = dyt_job_start(&job, "switch.deadline=" HANGS, NULL);
    assert_true(dyt_read_until(&p, "asked"));
    children = dyt_children(p.pid, child, 16);
    assert_true(children >= 4); /* commands first, then the ranks in order */
    kill(child[children - 4 + 2], SIGSTOP);
    fd = open(gate, O_WRONLY);
    assert_int_equal(1, write(fd, "x", 1));
    close(fd);
    run = dyt_finish(&p);
    expect("stopped while idle", &run, 4,
           "rank 2 gave no sign of life for " HANGS
           " s while switching to train");
    dyt_run_fini(&run);
    dyt_nothing_left();
    free(command);
    free(judge);
    free(gate);
}

/* What a run computed: equal runs have equal numbers here. */
static json_t *numbers_of(const struct dyt_job *job, const char *name)
{
    static const char *const key[] = {"step",
                                      "loss",
                                      "grad_norm",
                                      "reward/mean",
                                      "entropy",
                                      "mismatch/logprob_abs_max",
                                      "completions/mean_length"};
    json_t *lines = dyt_job_lines(job, name, "metrics.jsonl"), *line;
    json_t *all = json_array();
    size_t i;

    json_array_foreach(lines, i, line)
    {
        for (size_t k = 0; k < DYT_TEST_COUNT(key); k++) {
            json_array_append(all, json_object_get(line, key[k]));
        }
    }
    json_decref(lines);
    return all;
}

/* A rank that is late, wherever it is: others are not paused beside it, do not
 * answer for it and do not overwrite what it still reads, so that nothing but
 * the time is different. */
static void slow_ranks_change_nothing(void **state)
{
    char *steps = dyt_words("steps=%d", (int)dyt_test_rounds(120, 1000));
    struct dyt_job job = dyt_job_new("tiny");
    struct dyt_run run =
        dyt_job_run(&job, steps, "name=calm", "switch.verify=full", NULL);
    struct dyt_process p;
    json_t *calm, *late;
    pid_t child[8];
    uint32_t x = 1;

    (void)state;
    assert_exit(0, run);
    dyt_run_fini(&run);
    p = dyt_job_start(&job, steps, "name=late", "switch.verify=full", NULL);
    assert_true(dyt_read_until(&p, "reward"));
    assert_int_equal(4, dyt_children(p.pid, child, 8));
    for (int i = 0; i < 25; i++) {
        x = x * 1664525u + 1013904223u;
        kill(child[(x >> 16) % 4], SIGSTOP);
        poll(NULL, 0, 1 + (int)(x >> 28)); /* how late it is: no matter */
        for (int r = 0; r < 4; r++) {
            kill(child[r], SIGCONT);
        }
        poll(NULL, 0, (int)(x >> 24) % 8);
    }
    run = dyt_finish(&p);
    assert_exit(0, run);
    dyt_run_fini(&run);
    calm = numbers_of(&job, "calm");
    late = numbers_of(&job, "late");
    assert_true(json_equal(calm, late));
    json_decref(calm);
    json_decref(late);
    free(steps);
    dyt_nothing_left();
}

/* From outside, at whatever moment it is. */
static void kill_9_of_each_process(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");

    (void)state;
    for (int victim = -1; victim < 4; victim++) {
        struct dyt_process p =
            dyt_job_start(&job, "steps=1000000", "checkpoint.every=1", NULL);
        pid_t worker[8];
        struct dyt_run run;

        assert_true(dyt_read_until(&p, "reward"));
        assert_int_equal(4, dyt_children(p.pid, worker, 8));
        kill(victim < 0 ? p.pid : worker[victim], SIGKILL);
        run = dyt_finish(&p);
        if (victim < 0) {
            assert_int_equal(SIGKILL, run.signal);
        } else {
            char *says =
                dyt_words("rank %d (process %d) was killed by signal 9", victim,
                          (int)worker[victim]);

            expect("kill -9", &run, 4, says);
            free(says);
        }
        dyt_run_fini(&run);
        dyt_nothing_left();
    }
}

/* Stopped processes see no pipe end; they must go, too. */
static void stopped_workers_do_not_outlive_the_manager(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    struct dyt_process p = dyt_job_start(&job, "steps=1000000", NULL);
    pid_t worker[8];
    struct dyt_run run;

    (void)state;
    assert_true(dyt_read_until(&p, "reward"));
    assert_int_equal(4, dyt_children(p.pid, worker, 8));
    kill(worker[1], SIGSTOP);
    kill(worker[2], SIGSTOP);
    kill(p.pid, SIGKILL);
    run = dyt_finish(&p);
    assert_int_equal(SIGKILL, run.signal);
    dyt_run_fini(&run);
    dyt_nothing_left();
}

static void one_name_is_for_one_run(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    struct dyt_process first = dyt_job_start(&job, "steps=1000000", NULL);
    struct dyt_process other;
    struct dyt_run run;

    (void)state;
    assert_true(dyt_read_until(&first, "reward"));
    run = dyt_job_run(&job, NULL);
    expect("a second run", &run, 1, "another run writes to");
    dyt_run_fini(&run);
    /* Another name beside it is fine. */
    other = dyt_job_start(&job, "name=other", NULL);
    run = dyt_finish(&other);
    assert_exit(0, run);
    dyt_run_fini(&run);
    kill(first.pid, SIGKILL);
    run = dyt_finish(&first);
    dyt_run_fini(&run);
    dyt_nothing_left();
    /* What a dead run locked is free. */
    run = dyt_job_run(&job, NULL);
    assert_exit(0, run);
    dyt_run_fini(&run);
    dyt_nothing_left();
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_worker_dies_before_the_first_step),
    cmocka_unit_test(a_worker_dies_at_any_point),
    cmocka_unit_test(a_death_after_the_votes_does_not_undo_them),
    cmocka_unit_test(the_manager_dies_at_any_point),
    cmocka_unit_test(a_device_that_fails_is_class_3),
    cmocka_unit_test(a_worker_that_leaves_is_lost),
    cmocka_unit_test(a_worker_that_hangs_is_named),
    cmocka_unit_test(a_rank_that_hangs_beside_busy_ones_is_named),
    cmocka_unit_test(signs_of_life_carry_a_long_step),
    cmocka_unit_test(a_rank_that_stops_while_idle_is_named),
    cmocka_unit_test(slow_ranks_change_nothing),
    cmocka_unit_test(kill_9_of_each_process),
    cmocka_unit_test(stopped_workers_do_not_outlive_the_manager),
    cmocka_unit_test(one_name_is_for_one_run),
};
DYT_TEST_MAIN(tests)
