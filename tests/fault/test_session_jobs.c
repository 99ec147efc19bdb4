/* Who else is there: a second trainer, a second job on the host, a replica that
 * comes late, replicas that fall behind or die where a policy has its edge. */
#include "session_job.h"

/* ---- trainers ------------------------------------------------------------ */

/* The first line of one that may be refused. */
static bool is_refused(struct member *m, const char *why)
{
    char line[LINE_BYTES];

    assert_true(next_line(m, line));
    if (strncmp(line, "ready", 5) == 0) {
        return false;
    }
    if (strncmp(line, "failed: join", 12) != 0 || strstr(line, why) == NULL) {
        fail_msg("\"%s\", and not because %s", line, why);
    }
    return true;
}

static void a_second_trainer_is_refused_during_an_update(void **state)
{
    struct job job = start_job("staged", true);

    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        struct member second[TRAINERS];

        offer(&job);
        update(&job, 0);
        for (uint32_t r = 0; r < TRAINERS; r++) {
            second[r] = spawn_trainer(&job, r, TRAINERS);
        }
        for (uint32_t r = 0; r < TRAINERS; r++) {
            assert_true(is_refused(&second[r], "a job has one trainer"));
            kill_member(&second[r]);
        }
        update(&job, 1);
        took(&job, 0);
        took(&job, 1);
        freed(&job);
    }
    stop_job(&job);
}

static void of_trainers_that_come_at_once_one_is_taken(void **state)
{
    struct job job = {.name = "job", .mode = "staged"};

    (void)state;
    make_folder(&job);
    start_manager(&job);
    for (uint32_t i = 0; i < dyt_test_rounds(5, 50); i++) {
        struct member t[3];
        uint32_t taken = 0;

        for (uint32_t k = 0; k < 3; k++) {
            t[k] = spawn_trainer(&job, 0, 1);
        }
        for (uint32_t k = 0; k < 3; k++) {
            taken += !is_refused(&t[k], "a job has one trainer");
        }
        assert_int_equal(1, taken);
        for (uint32_t k = 0; k < 3; k++) {
            kill_member(&t[k]);
        }
    }
    stop_job(&job);
}

static pid_t forked_by(struct member *m)
{
    char line[LINE_BYTES];
    int pid = 0;

    tell(m, "fork\n");
    await(m, "forked ", line, NULL);
    assert_int_equal(1, sscanf(line, "forked %d", &pid));
    note_pid(0, (pid_t)pid); /* it outlives whoever made it */
    return (pid_t)pid;
}

/* The trainer's rank 0, which is the manager, is killed; a child that it forked
 * has its lock and its connections still.  Who waits hears of it at once, and
 * the next manager serves the same address. */
static void a_manager_that_dies_is_heard_behind_its_children(void **state)
{
    struct job job = {.name = "job",
                      .mode = "staged",
                      .replicas = true,
                      .hosted = true,
                      .servers = 1};
    char status[64], line[LINE_BYTES];
    pid_t child[2];
    uint64_t version;

    (void)state;
    start_all(&job);
    for (uint32_t i = 0; i < 2; i++) { /* the second time one takes it over */
        update_all(&job);
        child[i] = forked_by(&job.trainer[0]);
        update_all(&job); /* the child's leaving took nothing with it */
        job.version++;
        update(&job, 0); /* of what nobody offers: for 20 s */
        kill_member(&job.trainer[0]);
        updated_text(&job.server[0], status, &version, line);
        if (strcmp(status, "DYT_ERR_PEER") != 0 ||
            strstr(line, "manager") == NULL) {
            fail_msg("a server says \"%s\"", line);
        }
        assert_int_equal(job.version - 1, ask(&job.server[0]));
        kill_member(&job.trainer[1]);
        kill_member(&job.server[0]);
        start_trainers(&job);
        start_server(&job, 0);
        await(&job.server[0], "ready", line, NULL);
        job.version = 0;
    }
    update_all(&job);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(0, kill(child[i], SIGKILL)); /* it was there */
        note_pid(child[i], 0);
    }
    update_all(&job);
    stop_job(&job);
}

/* ---- jobs ---------------------------------------------------------------- */

static void two_jobs_on_a_host_know_nothing_of_each_other(void **state)
{
    struct job a = start_job("staged", true);
    struct job b = {.name = "other", .mode = "in_place", .servers = 1};
    struct job wrong;
    char line[LINE_BYTES];

    (void)state;
    start_all(&b);
    for (uint32_t i = 0; i < 3; i++) { /* at the same time */
        offer(&a);
        offer(&b);
        update(&a, 0);
        update(&b, 0);
        update(&a, 1);
        took(&b, 0);
        took(&a, 0);
        took(&a, 1);
        freed(&a);
        freed(&b);
        if (i == 0) {
            update_all(&b); /* the versions are not each other's */
        }
    }
    assert_int_equal(a.version + 1, b.version);
    wrong = a; /* a member with the other's name */
    wrong.name = "other";
    wrong.server[2] = (struct member){0};
    start_server(&wrong, 2);
    assert_true(is_refused(&wrong.server[2], "job job is served"));
    kill_member(&wrong.server[2]);
    kill_member(&b.manager); /* its socket and lock are left behind */
    update_all(&a);
    assert_int_equal(b.version, ask(&b.server[0])); /* whole, and served */
    kill_trainers_of(&b, 0);
    kill_member(&b.server[0]);
    start_manager(&b);
    start_trainers(&b);
    start_server(&b, 0);
    await(&b.server[0], "ready", line, NULL);
    b.version = 0;
    update_all(&b);
    stop_job(&a);
    stop_job(&b);
}

/* ---- late ---------------------------------------------------------------- */

static void signal_trainers(const struct job *job, int signal_number)
{
    for (uint32_t r = 0; r < TRAINERS; r++) {
        assert_int_equal(0, kill(job->trainer[r].pid, signal_number));
    }
}

/* The trainers cannot do anything meanwhile, and need not. */
static void a_late_replica_does_not_need_the_trainer(void **state)
{
    static const char *const mode[] = {"staged", "in_place", "double",
                                       "mapped"};

    (void)state;
    for (uint32_t i = 0; i < DYT_TEST_COUNT(mode); i++) {
        struct job job = start_job(mode[i], true);
        char line[LINE_BYTES], status[64];
        uint64_t version;

        update_all(&job);
        job.servers = 3;
        signal_trainers(&job, SIGSTOP);
        start_server(&job, 2);
        await(&job.server[2], "ready", line, NULL);
        assert_int_equal(0, ask(&job.server[2]));
        update(&job, 2);
        updated_text(&job.server[2], status, &version, line);
        if (version != job.version || strstr(line, "from a sibling") == NULL) {
            fail_msg("%s: a late replica says \"%s\"", mode[i], line);
        }
        assert_int_equal(job.version, ask(&job.server[2]));
        signal_trainers(&job, SIGCONT);
        update_all(&job);
        stop_job(&job);
    }
}

/* ---- policies ------------------------------------------------------------ */

static struct job start_with(const char *policy, const char *skew,
                             uint32_t servers)
{
    struct job job = {.name = "job",
                      .mode = "staged",
                      .replicas = true,
                      .servers = servers,
                      .manager_arg = {"--policy", policy}};

    if (skew != NULL) {
        job.manager_arg[2] = "--max-version-skew";
        job.manager_arg[3] = skew;
    }
    start_all(&job);
    return job;
}

/* The one replica that is missing dies: then all have it. */
static void all_are_those_that_live(void **state)
{
    struct job job = start_with("all", NULL, 3);

    (void)state;
    update_all(&job);
    offer(&job);
    update(&job, 0);
    update(&job, 1);
    took(&job, 0);
    took(&job, 1);
    assert_false(is_out(&job));
    assert_false(says_more(&job.trainer[0]));
    assert_int_equal(job.version - 1, ask(&job.server[2]));
    kill_member(&job.server[2]);
    freed(&job);
    job.servers = 2;
    update_all(&job);
    stop_job(&job);
}

/* Whoever's turn it is dies: the next one has it. */
static void rolling_goes_on_behind_the_dead(void **state)
{
    struct job job = start_with("rolling", NULL, 3);
    int64_t span = measure(&job);
    char line[LINE_BYTES];

    (void)state;
    for (uint32_t i = 0; i < dyt_test_rounds(5, 30); i++) {
        uint32_t dies = i % 3;

        offer(&job);
        for (uint32_t s = 0; s < 3; s++) {
            update(&job, s);
        }
        let_pass(moment(7, i, span));
        kill_member(&job.server[dies]);
        took(&job, (dies + 1) % 3);
        took(&job, (dies + 2) % 3);
        freed(&job);
        start_server(&job, dies);
        await(&job.server[dies], "ready", line, NULL);
        update(&job, dies);
        took(&job, dies);
    }
    stop_job(&job);
}

/* Two of three are enough, and one over the slowest is as far as they get;
 * when the slowest is no more they go on. */
static void a_quorum_is_held_by_the_slowest_that_lives(void **state)
{
    struct job job = start_with("quorum:2", "1", 3);
    char line[LINE_BYTES], status[64];
    uint64_t version;

    (void)state;
    update_all(&job);
    offer(&job);
    update(&job, 0);
    took(&job, 0);
    assert_false(is_out(&job)); /* one is not two */
    update(&job, 1);
    took(&job, 1);
    freed(&job);
    offer(&job); /* two over the slowest */
    for (uint32_t s = 0; s < 2; s++) {
        update_within(&job, s, 300);
        updated_text(&job.server[s], status, &version, line);
        assert_string_equal("DYT_ERR_TIMEOUT", status);
        if (strstr(line, "max_version_skew 1") == NULL) {
            fail_msg("server %u says \"%s\"", s, line);
        }
        assert_int_equal(job.version - 1, ask(&job.server[s]));
    }
    assert_false(is_out(&job));
    update(&job, 0); /* it waits now, until … */
    update(&job, 1);
    kill_member(&job.server[2]);
    took(&job, 0);
    took(&job, 1);
    freed(&job);
    job.servers = 2;
    update_all(&job);
    stop_job(&job);
}

static const struct CMUnitTest tests[] = {
    job_test(a_second_trainer_is_refused_during_an_update),
    job_test(of_trainers_that_come_at_once_one_is_taken),
    job_test(a_manager_that_dies_is_heard_behind_its_children),
    job_test(two_jobs_on_a_host_know_nothing_of_each_other),
    job_test(a_late_replica_does_not_need_the_trainer),
    job_test(all_are_those_that_live),
    job_test(rolling_goes_on_behind_the_dead),
    job_test(a_quorum_is_held_by_the_slowest_that_lives),
};
DYT_TEST_MAIN(tests)
