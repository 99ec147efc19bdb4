/* A member of a session dies at each named point of an update, in each mode,
 * where test_session.c kills at random moments.  A trainer that dies before its
 * vote leaves the old, or INVALID in place, and never the new; a server that
 * dies disturbs nobody, and gets what the others have before it serves. */
#include "session_job.h"

static const char *const points[] = {"start",    "prepared", "transferred",
                                     "verified", "voted",    "decided"};

#define VOTED 4u /* of points: up to here nobody can have committed */

static const char *const modes[] = {"staged", "double", "in_place", "mapped"};

static bool may_be_invalid(const struct job *job)
{
    return strcmp(job->mode, "in_place") == 0 ||
           strcmp(job->mode, "mapped") == 0;
}

/* Members that start between watch() and unwatch() look for orders. */
static void watch(const struct job *job)
{
    char path[300];

    snprintf(path, sizeof(path), "%s/fault", job->folder);
    assert_int_equal(0, setenv("DYNATRAIN_FAULT_FILE", path, 1));
}

static void unwatch(void)
{
    assert_int_equal(0, unsetenv("DYNATRAIN_FAULT_FILE"));
}

/* Written elsewhere: nobody reads half an order. */
static void order(const struct job *job, const char *point)
{
    char path[300], draft[300];
    FILE *file;

    snprintf(path, sizeof(path), "%s/fault", job->folder);
    snprintf(draft, sizeof(draft), "%s/draft", job->folder);
    file = fopen(draft, "w");
    assert_non_null(file);
    assert_true(fprintf(file, "%s kill\n", point) > 0);
    assert_int_equal(0, fclose(file));
    assert_int_equal(0, rename(draft, path));
}

static void was_taken(const struct job *job, const char *point)
{
    char path[300];

    snprintf(path, sizeof(path), "%s/fault", job->folder);
    if (access(path, F_OK) == 0) {
        fail_msg("%s: nobody died at %s", job->mode, point);
    }
}

/* ---- the trainer --------------------------------------------------------- */

static void start_watched_trainers(struct job *job)
{
    watch(job);
    start_trainers(job);
    unwatch();
    update_all(job);
}

static void check_servers(struct job *job, uint32_t point)
{
    for (uint32_t s = 0; s < SERVERS; s++) {
        char status[64];
        uint64_t said, version;
        bool is_new, is_old, is_invalid;

        updated(&job->server[s], status, &said);
        version = ask(&job->server[s]);
        is_new = version == job->version && point >= VOTED;
        is_old = version == job->version - 1;
        is_invalid = version == 0 && may_be_invalid(job);
        if (!is_new && !is_old && !is_invalid) {
            fail_msg("%s, a trainer died at %s: %s, and version %" PRIu64
                     " of %" PRIu64,
                     job->mode, points[point], status, version, job->version);
        }
        assert_int_equal(is_new, strcmp(status, "DYT_OK") == 0);
    }
}

static void a_trainer_dies_at_each_point(void **state)
{
    (void)state;
    for (size_t m = 0; m < DYT_TEST_COUNT(modes); m++) {
        struct job job = start_job(modes[m], false);

        kill_trainers_of(&job, 0);
        start_watched_trainers(&job);
        for (uint32_t p = 0; p < DYT_TEST_COUNT(points); p++) {
            order(&job, points[p]);
            offer(&job);
            update(&job, 0);
            update(&job, 1);
            check_servers(&job, p);
            was_taken(&job, points[p]);
            kill_trainers_of(&job, 0);
            job.heard = false;
            start_watched_trainers(&job);
        }
        stop_job(&job);
    }
}

/* ---- a server ------------------------------------------------------------ */

static void start_watched_server(struct job *job)
{
    char line[LINE_BYTES];

    watch(job);
    start_server(job, 1);
    unwatch();
    await(&job->server[1], "ready", line, NULL);
    assert_int_equal(0, ask(&job->server[1])); /* refused until … */
    update(job, 1);
    took(job, 1);
}

static void dies_at(struct job *job, const char *point)
{
    order(job, point);
    offer(job);
    update(job, 0);
    update(job, 1);
    took(job, 0);
    freed(job);
    was_taken(job, point);
    kill_member(&job->server[1]);
    start_watched_server(job);
}

static void a_server_dies_at_each_point(void **state)
{
    (void)state;
    for (size_t m = 0; m < DYT_TEST_COUNT(modes); m++) {
        struct job job = start_job(modes[m], true);

        update_all(&job);
        kill_member(&job.server[1]);
        start_watched_server(&job);
        for (uint32_t p = 0; p < DYT_TEST_COUNT(points); p++) {
            dies_at(&job, points[p]);
        }
        if (strcmp(job.mode, "staged") == 0) {
            dies_at(&job, "committing");
        }
        stop_job(&job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {job_test(a_trainer_dies_at_each_point),
                                       job_test(a_server_dies_at_each_point)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
