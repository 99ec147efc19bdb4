/* Trainers and servers of a session are killed at random moments of an update:
 * what is left is what the commit mode promises, on all members of a replica
 * alike, no request is ever answered from mixed weights, and whoever comes back
 * gets the current version before it serves. */
#include "session_job.h"

/* ---- the trainer dies ---------------------------------------------------- */

static bool may_be_invalid(const struct job *job)
{
    return strcmp(job->mode, "in_place") == 0 ||
           strcmp(job->mode, "mapped") == 0;
}

/* Both ranks of the replica hold the same: the old, the new, or (in place)
 * neither, and say so. */
static void check_after_death(struct job *job, uint32_t round)
{
    uint64_t version[SERVERS], said;
    char status[SERVERS][64];

    for (uint32_t s = 0; s < SERVERS; s++) {
        updated(&job->server[s], status[s], &said);
    }
    if (strcmp(status[0], status[1]) != 0) {
        fail_msg("%s, round %u: one rank ends in %s, the other in %s",
                 job->mode, round, status[0], status[1]);
    }
    for (uint32_t s = 0; s < SERVERS; s++) {
        version[s] = ask(&job->server[s]);
        if (version[s] != job->version && version[s] != job->version - 1 &&
            !(may_be_invalid(job) && version[s] == 0)) {
            fail_msg("%s, round %u: a rank holds version %" PRIu64
                     " after the update to %" PRIu64,
                     job->mode, round, version[s], job->version);
        }
        if ((strcmp(status[s], "DYT_OK") == 0) !=
            (version[s] == job->version)) {
            fail_msg("%s, round %u: %s, but version %" PRIu64, job->mode, round,
                     status[s], version[s]);
        }
    }
    assert_int_equal(version[0], version[1]);
}

static void kill_trainers(const char *mode)
{
    struct job job = start_job(mode, false);
    int64_t span = measure(&job);

    for (uint32_t i = 0; i < dyt_test_rounds(10, 100); i++) {
        offer(&job);
        /* killed before the offer was made, a receiver waits for the next
         * trainer until its deadline: not long, as none comes */
        update_within(&job, 0, ORPHAN_MS);
        update_within(&job, 1, ORPHAN_MS);
        let_pass(moment(2026, i, span));
        kill_trainers_of(&job, i % TRAINERS);
        check_after_death(&job, i);
        start_trainers(&job);
        update_all(&job); /* and go on */
    }
    stop_job(&job);
}

static void a_killed_trainer_leaves_the_old_or_the_new_staged(void **state)
{
    (void)state;
    kill_trainers("staged");
}

static void a_killed_trainer_leaves_the_old_or_the_new_double(void **state)
{
    (void)state;
    kill_trainers("double");
}

static void a_killed_trainer_leaves_old_new_or_invalid_in_place(void **state)
{
    (void)state;
    kill_trainers("in_place");
}

static void a_killed_trainer_leaves_old_new_or_invalid_mapped(void **state)
{
    (void)state;
    kill_trainers("mapped");
}

/* ---- a replica dies ------------------------------------------------------ */

/* The other one gets the version, and answers all the while. */
static void kill_a_replica(const char *mode)
{
    struct job job = start_job(mode, true);
    int64_t span = measure(&job);

    for (uint32_t i = 0; i < dyt_test_rounds(5, 50); i++) {
        uint32_t dies = i % SERVERS, lives = 1 - dies;
        int64_t until;
        char line[LINE_BYTES];

        offer(&job);
        update(&job, 0);
        update(&job, 1);
        until = now_us() + moment(26, i, span);
        while (now_us() < until) {
            tell(&job.server[lives], "ask 0\n");
            let_pass(500);
        }
        kill_member(&job.server[dies]);
        took(&job, lives);
        freed(&job);
        start_server(&job, dies);
        await(&job.server[dies], "ready", line, NULL);
        assert_int_equal(0, ask(&job.server[dies])); /* refused until … */
        update(&job, dies);
        took(&job, dies);
    }
    stop_job(&job);
}

static void a_killed_replica_disturbs_nobody_staged(void **state)
{
    (void)state;
    kill_a_replica("staged");
}

static void a_killed_replica_disturbs_nobody_in_place(void **state)
{
    (void)state;
    kill_a_replica("in_place");
}

static void a_killed_replica_disturbs_nobody_double(void **state)
{
    (void)state;
    kill_a_replica("double");
}

static void a_killed_replica_disturbs_nobody_mapped(void **state)
{
    (void)state;
    kill_a_replica("mapped");
}

/* ---- one rank of the only server dies ------------------------------------ */

/* The survivor ends with the old or the new (in place: or neither).  Both were
 * told of the version, or neither was. */
static void check_survivor(struct job *job, uint32_t s, uint32_t round)
{
    char status[64];
    uint64_t said, version;

    updated(&job->server[s], status, &said);
    version = ask(&job->server[s]);
    if (version != job->version && version != job->version - 1 &&
        !(may_be_invalid(job) && version == 0)) {
        fail_msg("%s, round %u: the survivor ends in %s with version %" PRIu64,
                 job->mode, round, status, version);
    }
    if (strcmp(status, "DYT_OK") == 0 && version != job->version) {
        fail_msg("%s, round %u: DYT_OK, but version %" PRIu64, job->mode, round,
                 version);
    }
}

/* The server was killed, and is started again: all of it, or the one rank. */
static void come_back(struct job *job, uint32_t dies, bool all, bool ended)
{
    char line[LINE_BYTES];

    if (all) {
        kill_member(&job->server[1 - dies]);
        start_server(job, 1 - dies);
    }
    start_server(job, dies);
    await(&job->server[dies], "ready", line, NULL);
    if (all) {
        await(&job->server[1 - dies], "ready", line, NULL);
        assert_int_equal(0, ask(&job->server[1 - dies]));
    }
    assert_int_equal(0, ask(&job->server[dies]));
    if (ended) { /* the version was out: the next one */
        freed(job);
        offer(job);
    }
    update(job, 0);
    update(job, 1);
    took(job, 0);
    took(job, 1);
    freed(job);
}

static void kill_a_rank(const char *mode)
{
    struct job job = start_job(mode, false);
    int64_t span = measure(&job);

    for (uint32_t i = 0; i < dyt_test_rounds(6, 50); i++) {
        uint32_t dies = i % SERVERS;

        offer(&job);
        update(&job, 0);
        update(&job, 1);
        let_pass(moment(62, i, span));
        kill_member(&job.server[dies]);
        check_survivor(&job, 1 - dies, i);
        come_back(&job, dies, i % 3 == 0, is_out(&job));
    }
    stop_job(&job);
}

static void a_killed_server_gets_the_version_before_it_serves_staged(
    void **state)
{
    (void)state;
    kill_a_rank("staged");
}

static void a_killed_server_gets_the_version_before_it_serves_in_place(
    void **state)
{
    (void)state;
    kill_a_rank("in_place");
}

static void a_killed_server_gets_the_version_before_it_serves_double(
    void **state)
{
    (void)state;
    kill_a_rank("double");
}

static void a_killed_server_gets_the_version_before_it_serves_mapped(
    void **state)
{
    (void)state;
    kill_a_rank("mapped");
}

static const struct CMUnitTest tests[] = {
    job_test(a_killed_trainer_leaves_the_old_or_the_new_staged),
    job_test(a_killed_trainer_leaves_the_old_or_the_new_double),
    job_test(a_killed_trainer_leaves_old_new_or_invalid_in_place),
    job_test(a_killed_trainer_leaves_old_new_or_invalid_mapped),
    job_test(a_killed_replica_disturbs_nobody_staged),
    job_test(a_killed_replica_disturbs_nobody_in_place),
    job_test(a_killed_replica_disturbs_nobody_double),
    job_test(a_killed_replica_disturbs_nobody_mapped),
    job_test(a_killed_server_gets_the_version_before_it_serves_staged),
    job_test(a_killed_server_gets_the_version_before_it_serves_in_place),
    job_test(a_killed_server_gets_the_version_before_it_serves_double),
    job_test(a_killed_server_gets_the_version_before_it_serves_mapped),
};
DYT_TEST_MAIN(tests)
