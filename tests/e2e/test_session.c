/* serve, keys and status, as an operator uses them: what is typed wrong, a job
 * with the example programs, and managers that are stopped or killed. */
#include "dyt_run.h"
#include "session_keys.h"

#include <dirent.h>
#include <jansson.h>
#include <sys/stat.h>

/* ---- helpers ------------------------------------------------------------- */

/* Exit code, what it says, and no second message. */
static void expect(struct dyt_run run, int code, const char *part)
{
    size_t messages = 0;

    assert_exit(code, run);
    assert_says(part, run);
    for (const char *at = run.out; (at = strstr(at, "dynatrain ")) != NULL;
         at++) {
        messages += at == run.out || at[-1] == '\n';
    }
    if (code != 0 && messages != 1) {
        print_error("more than one message:\n%s\n", run.out);
        fail();
    }
    dyt_run_fini(&run);
}

struct room {
    char folder[200], address[240];
};

/* A folder of its own for a socket, not made yet. */
static struct room new_room(void)
{
    struct room r;

    snprintf(r.folder, sizeof(r.folder), "%s/job", dyt_test_dir());
    snprintf(r.address, sizeof(r.address), "unix:%s/s.sock", r.folder);
    return r;
}

static size_t files_in(const char *folder)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    size_t n = 0;

    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL) {
        n += entry->d_name[0] != '.';
    }
    closedir(dir);
    return n;
}

static struct dyt_process serve(const char *address)
{
    struct dyt_process p = dyt_start("serve", address, NULL);

    if (!dyt_read_until(&p, "serving; Ctrl-C ends it")) {
        fail_msg("it does not serve: %s", p.out != NULL ? p.out : "");
    }
    return p;
}

static void stop(struct dyt_process *p, int number, int code)
{
    struct dyt_run run;

    kill(p->pid, number);
    run = dyt_finish(p);
    if (number == SIGKILL) {
        assert_int_equal(SIGKILL, run.signal);
    } else {
        assert_exit(code, run);
    }
    dyt_run_fini(&run);
}

static struct dyt_process example(const char *program, const char *a,
                                  const char *b, const char *c)
{
    char *argv[] = {(char *)(uintptr_t)program, (char *)(uintptr_t)a,
                    (char *)(uintptr_t)b, (char *)(uintptr_t)c, NULL};

    return dyt_start_argv(argv);
}

/* Two trainer ranks and a receiver take three versions. */
static void run_example(const char *address)
{
    struct dyt_process t0 = example(DYT_TRAINER, address, "0", "3");
    struct dyt_process t1 = example(DYT_TRAINER, address, "1", "3");
    struct dyt_process r = example(DYT_RECEIVER, address, "3", NULL);
    struct dyt_run run = dyt_finish(&r);

    assert_exit(0, run);
    assert_says("holds version 3", run);
    dyt_run_fini(&run);
    run = dyt_finish(&t0);
    assert_exit(0, run);
    dyt_run_fini(&run);
    run = dyt_finish(&t1);
    assert_exit(0, run);
    dyt_run_fini(&run);
}

/* ---- what is typed wrong ------------------------------------------------- */

static void help_is_there(void **state)
{
    static const char *const command[] = {"serve", "keys", "status"};
    static const char *const part[] = {"ADDRESS", "FOLDER", "ADDRESS"};
    struct dyt_run all = dyt_run("--help", NULL);

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(command); i++) {
        struct dyt_run run = dyt_run(command[i], "--help", NULL);

        assert_exit(0, run);
        assert_says("Usage: dynatrain", run);
        assert_says(part[i], run);
        assert_says("Examples:", run);
        dyt_run_fini(&run);
        assert_says(command[i], all);
    }
    dyt_run_fini(&all);
}

static void wrong_arguments_have_one_message(void **state)
{
    static const struct {
        const char *arg[5], *part;
    } row[] = {
        {{"serve"}, "no address: unix:PATH or tcp:HOST:PORT"},
        {{"serve", "unix:/a/b", "unix:/c/d"}, "one address, not also"},
        {{"serve", "/a/b"}, "\"/a/b\" is no address: give unix:PATH"},
        {{"serve", "tcp:host"}, "is no address"},
        {{"serve", "tcp:127.0.0.1:99999"}, "is no address"},
        {{"serve", "tcp:127.0.0.1:7"}, "needs the manager's secret key"},
        {{"serve", "--policy", "most", "unix:/a/b"}, "all, rolling or quorum"},
        {{"serve", "--policy", "quorum:0", "unix:/a/b"}, "quorum:K"},
        {{"serve", "--max-version-skew", "-1", "unix:/a/b"}, "from 1 on"},
        {{"serve", "--max-version-skew", "0", "unix:/a/b"}, "from 1 on"},
        {{"serve", "--key", "/not/there", "tcp:127.0.0.1:7"}, "/not/there"},
        {{"serve", "--ports", "unix:/a/b"}, "--ports"},
        {{"serve", "unix:/not/there/at/all"}, "cannot be made"},
        {{"keys"}, "no folder to put the keys into"},
        {{"keys", "a", "b"}, "one folder, not also b"},
        {{"keys", "/tmp", "--name", "a/b"}, "no name of a key"},
        {{"keys", "--name"}, "requires an argument"},
        {{"status"}, "no address: unix:PATH or tcp:HOST:PORT"},
        {{"status", "unix:/a/b", "c"}, "one address, not also c"},
        {{"status", "somewhere"}, "is no address"},
        {{"status", "tcp:127.0.0.1:7"}, "needs a key of this side"},
        {{"status", "--jsn", "unix:/a/b"}, "--jsn"}};

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        const char *const *a = row[i].arg;

        expect(dyt_run(a[0], a[1], a[1] != NULL ? a[2] : NULL,
                       a[1] != NULL && a[2] != NULL ? a[3] : NULL, NULL),
               2, row[i].part);
    }
}

static void nobody_there_is_said(void **state)
{
    struct room room = new_room();

    (void)state;
    expect(dyt_run("status", room.address, NULL), 4, "nobody answers at unix:");
}

static void folders_of_all_are_refused(void **state)
{
    struct room room = new_room();

    (void)state;
    assert_int_equal(0, mkdir(room.folder, 0700));
    assert_int_equal(0, chmod(room.folder, 0755)); /* whatever the umask */
    expect(dyt_run("serve", room.address, NULL), 2, "(mode 0700)");
    expect(dyt_run("status", room.address, NULL), 2, "(mode 0700)");
}

/* ---- a job --------------------------------------------------------------- */

static void expect_keys(const json_t *object, const char *const *key, size_t n)
{
    const char *name;
    json_t *value;

    assert_true(json_is_object(object));
    for (size_t i = 0; i < n; i++) {
        if (json_object_get(object, key[i]) == NULL) {
            fail_msg("no \"%s\"", key[i]);
        }
    }
    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        bool known = false;

        for (size_t i = 0; i < n; i++) {
            known = known || strcmp(name, key[i]) == 0;
        }
        if (!known) {
            fail_msg("\"%s\" is not in docs/session.md", name);
        }
    }
}

static const char *text_of(const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));

    return text != NULL ? text : "(no text)";
}

static json_t *status_of(const char *address)
{
    struct dyt_run run = dyt_run("status", address, "--json", NULL);
    json_error_t error;
    json_t *root;

    assert_exit(0, run);
    root = json_loads(run.out, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) {
        fail_msg("no JSON (%s): %s", error.text, run.out);
    }
    dyt_run_fini(&run);
    return root;
}

static void expect_member(const json_t *group, pid_t pid)
{
    static const char *const key[] = {"rank", "pid", "host", "published"};
    const json_t *members = json_object_get(group, "members");
    const json_t *m = json_array_get(members, 0);

    assert_int_equal(1, json_array_size(members));
    expect_keys(m, key, DYT_TEST_COUNT(key));
    assert_int_equal(0, json_integer_value(json_object_get(m, "rank")));
    assert_int_equal(pid, json_integer_value(json_object_get(m, "pid")));
    assert_true(json_is_false(json_object_get(m, "published")));
    assert_true(strlen(text_of(m, "host")) > 0);
}

/* The schema of docs/session.md, while half a trainer and a receiver wait for
 * the other half; then people's form of it. */
static void status_says_who_is_there(void **state)
{
    static const char *const top[] = {"schema",          "job",
                                      "offered_version", "offer_open",
                                      "trainer",         "replicas"};
    static const char *const trainer_key[] = {"size", "state", "last_error",
                                              "members"};
    static const char *const replica_key[] = {
        "pool", "replica", "commit", "version",    "bytes",
        "way",  "size",    "state",  "last_error", "members"};
    struct room room = new_room();
    struct dyt_process manager = serve(room.address), t, r;
    const json_t *group;
    json_t *root = status_of(room.address);
    struct dyt_run run;

    (void)state;
    expect_keys(root, top, DYT_TEST_COUNT(top));
    assert_string_equal("dynatrain-session-1", text_of(root, "schema"));
    assert_string_equal("", text_of(root, "job"));
    assert_true(json_is_null(json_object_get(root, "trainer")));
    assert_int_equal(0, json_array_size(json_object_get(root, "replicas")));
    json_decref(root);
    t = example(DYT_TRAINER, room.address, "0", "3");
    r = example(DYT_RECEIVER, room.address, "3", NULL);
    assert_true(dyt_read_until(&manager, "rank 0 of the trainer"));
    assert_true(dyt_read_until(&manager, "rank 0 of replica rollout/0"));
    root = status_of(room.address);
    expect_keys(root, top, DYT_TEST_COUNT(top));
    assert_string_equal("example", text_of(root, "job"));
    assert_true(json_is_null(json_object_get(root, "offered_version")));
    assert_true(json_is_false(json_object_get(root, "offer_open")));
    group = json_object_get(root, "trainer");
    expect_keys(group, trainer_key, DYT_TEST_COUNT(trainer_key));
    assert_int_equal(2, json_integer_value(json_object_get(group, "size")));
    assert_string_equal("joining", text_of(group, "state"));
    assert_true(json_is_null(json_object_get(group, "last_error")));
    expect_member(group, t.pid);
    assert_int_equal(1, json_array_size(json_object_get(root, "replicas")));
    group = json_array_get(json_object_get(root, "replicas"), 0);
    expect_keys(group, replica_key, DYT_TEST_COUNT(replica_key));
    assert_string_equal("rollout", text_of(group, "pool"));
    assert_string_equal("staged", text_of(group, "commit"));
    assert_string_equal("joining", text_of(group, "state"));
    assert_true(json_is_null(json_object_get(group, "version")));
    expect_member(group, r.pid);
    json_decref(root);
    run = dyt_run("status", room.address, NULL);
    assert_exit(0, run);
    assert_says("example", run);
    assert_says("rollout", run);
    assert_says("joining", run);
    dyt_run_fini(&run);
    /* its manager is told to end: they hear it and end, too */
    stop(&manager, SIGTERM, 0);
    run = dyt_finish(&t);
    assert_exit(1, run);
    assert_says("the job's manager", run);
    dyt_run_fini(&run);
    run = dyt_finish(&r);
    assert_exit(1, run);
    dyt_run_fini(&run);
    assert_int_equal(0, files_in(room.folder));
}

static void a_job_runs(void **state)
{
    struct room room = new_room();
    struct dyt_process manager = serve(room.address);
    struct dyt_run run;

    (void)state;
    run_example(room.address);
    assert_true(dyt_read_until(&manager, "holds version 3"));
    expect(dyt_run("serve", room.address, NULL), 1, "serves");
    run_example(room.address); /* the next of that name */
    kill(manager.pid, SIGINT);
    run = dyt_finish(&manager);
    assert_exit(0, run);
    assert_says("joined job example", run);
    assert_says("offers version 1", run);
    dyt_run_fini(&run);
    assert_int_equal(0, files_in(room.folder));
}

static void a_killed_manager_has_a_successor(void **state)
{
    struct room room = new_room();
    struct dyt_process manager = serve(room.address);
    struct dyt_process t = example(DYT_TRAINER, room.address, "0", "3");
    struct dyt_run run;

    (void)state;
    assert_true(dyt_read_until(&manager, "rank 0 of the trainer"));
    stop(&manager, SIGKILL, 0);
    run = dyt_finish(&t); /* who waited hears of it */
    assert_exit(1, run);
    dyt_run_fini(&run);
    assert_true(files_in(room.folder) > 0);
    manager = serve(room.address);
    run_example(room.address);
    stop(&manager, SIGTERM, 0);
    assert_int_equal(0, files_in(room.folder));
}

static void quiet_is_quiet(void **state)
{
    struct room room = new_room();
    struct dyt_process p = dyt_start("serve", room.address, "--quiet", "--job",
                                     "example", "--policy", "quorum:1", NULL);
    struct dyt_run run;

    (void)state;
    for (int i = 0; i < 500 && access(room.address + 5, F_OK) != 0; i++) {
        (void)poll(NULL, 0, 20);
    }
    run_example(room.address);
    kill(p.pid, SIGTERM);
    run = dyt_finish(&p);
    assert_exit(0, run);
    assert_string_equal("", run.out);
    dyt_run_fini(&run);
}

/* ---- over tcp ------------------------------------------------------------ */

static void keys_open_a_job_over_tcp(void **state)
{
    const char *folder = dyt_test_dir();
    char server[300], members[300], stranger[300], address[64];
    struct session_keys keys, member, other;
    struct dyt_process p;
    struct dyt_run run;

    (void)state;
    session_free_address(address);
    snprintf(server, sizeof(server), "%s/server", folder);
    snprintf(members, sizeof(members), "%s/members", folder);
    snprintf(stranger, sizeof(stranger), "%s/stranger", folder);
    keys = session_keys(server, "none");
    member = session_keys(members, "me");
    other = session_keys(stranger, "me");
    run = dyt_run("keys", server, NULL);
    assert_exit(0, run);
    assert_says("manager.secret  keep it here", run);
    assert_says("manager.public", run);
    dyt_run_fini(&run);
    expect(dyt_run("keys", server, NULL), 1, "left as it is");
    expect(dyt_run("keys", members, "--name", "me", NULL), 0, "me.public");
    expect(dyt_run("keys", stranger, "--name", "me", NULL), 0, "me.public");
    p = dyt_start("serve", address, "--key", keys.manager, "--authorized",
                  members, NULL);
    assert_true(dyt_read_until(&p, "serving"));
    run = dyt_run("status", address, "--key", member.other, "--manager-key",
                  keys.manager_public, "--json", NULL);
    assert_exit(0, run);
    assert_says("dynatrain-session-1", run);
    dyt_run_fini(&run);
    expect(dyt_run("status", address, "--key", other.other, "--manager-key",
                   keys.manager_public, NULL),
           2, "refuses this key");
    expect(dyt_run("serve", address, "--key", keys.manager, NULL), 1,
           "somebody serves tcp:");
    stop(&p, SIGTERM, 0);
}

/* ---- what tests leave ---------------------------------------------------- */

/* A test of its own, that starts a manager and hangs. */
static void start_and_hang(const char *address, int out)
{
    struct dyt_process p = dyt_start("serve", address, NULL);

    if (dyt_read_until(&p, "serving") &&
        write(out, &p.pid, sizeof(p.pid)) == (ssize_t)sizeof(p.pid)) {
        (void)pause();
    }
    _exit(1);
}

static void a_killed_test_leaves_no_manager(void **state)
{
    struct room room = new_room();
    struct pollfd poll_fd = {.events = POLLIN};
    pid_t test, manager = 0;
    int said[2], status = 0;

    (void)state;
    assert_int_equal(0, prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0));
    assert_int_equal(0, pipe2(said, O_CLOEXEC));
    test = fork();
    assert_true(test >= 0);
    if (test == 0) {
        start_and_hang(room.address, said[1]);
    }
    close(said[1]);
    assert_int_equal(sizeof(manager), read(said[0], &manager, sizeof(manager)));
    close(said[0]);
    poll_fd.fd = (int)syscall(SYS_pidfd_open, manager, 0);
    assert_true(poll_fd.fd >= 0);
    assert_int_equal(0, kill(test, SIGKILL));
    assert_int_equal(test, waitpid(test, &status, 0));
    if (poll(&poll_fd, 1, DYT_RUN_SECONDS * 1000) <= 0) {
        (void)kill(manager, SIGKILL);
        fail_msg("the manager is left behind");
    }
    close(poll_fd.fd);
    assert_int_equal(manager, waitpid(manager, &status, 0));
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_int_equal(0, prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(help_is_there),
    cmocka_unit_test(wrong_arguments_have_one_message),
    cmocka_unit_test(nobody_there_is_said),
    cmocka_unit_test(folders_of_all_are_refused),
    cmocka_unit_test(status_says_who_is_there),
    cmocka_unit_test(a_job_runs),
    cmocka_unit_test(a_killed_manager_has_a_successor),
    cmocka_unit_test(quiet_is_quiet),
    cmocka_unit_test(keys_open_a_job_over_tcp),
    cmocka_unit_test(a_killed_test_leaves_no_manager),
};
DYT_TEST_MAIN(tests)
