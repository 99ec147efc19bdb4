/* Members whose rows go from device to device, in processes of their own, of
 * which one dies at a named point of an update: in each mode the others have
 * what it promises, and a device that has borrowed memory of the dead goes on.
 *
 * A world is a process that nobody's device was started in: it forks its
 * members first, and is one itself. */
#include "session_scene.h"

#include "lib/session_device.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>

static const char *const points[] = {"start",    "prepared", "transferred",
                                     "verified", "voted",    "decided"};
#define VOTED 4u /* of points: before it nobody can have committed */

/* What the members of a world say to each other: bytes in pipes. */
struct world {
    const struct mode *mode;
    uint32_t point;
    char fault[300];
    int go[2], said[2]; /* to and from the child */
    struct scene s;
};

#define must(cond)                                                             \
    do {                                                                       \
        if (!(cond)) {                                                         \
            print_error("%s:%d: %s, %s: not %s: %s\n", __FILE__, __LINE__,     \
                        w->mode->name, points[w->point], #cond,                \
                        dyt_error_text());                                     \
            return 1;                                                          \
        }                                                                      \
    } while (0)

static bool tell(int fd)
{
    return write(fd, "x", 1) == 1;
}

/* Not for ever: who failed says nothing. */
static bool hear(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char byte;

    return poll(&p, 1, 60000) == 1 && read(fd, &byte, 1) == 1;
}

/* The next member that gets to the point dies there. */
static bool order(const struct world *w)
{
    char draft[320];
    FILE *file;

    snprintf(draft, sizeof(draft), "%s.draft", w->fault);
    file = fopen(draft, "we");
    return file != NULL && fprintf(file, "%s kill\n", points[w->point]) > 0 &&
           fclose(file) == 0 && rename(draft, w->fault) == 0;
}

static void join_as(struct member *m, const struct mode *mode)
{
    if (m->join.role == DYT_ROLE_RECEIVER) {
        m->join.commit = mode->commit;
        m->join.memory = mode->memory;
    }
    m->join.verify = DYT_VERIFY_FULL;
    m->join.timeout_ns = 10 * SECOND;
}

static bool goes_direct(const struct member *t)
{
    char *json = NULL;
    bool direct = dyt_job_status(t->address, NULL, NULL, 0, &json) == DYT_OK &&
                  strstr(json, "\"way\": \"direct\"") != NULL;

    if (!direct && json != NULL) {
        print_error("%s\n", json);
    }
    dyt_text_free(json);
    return direct;
}

/* In a process of its own, which looks for orders. */
static pid_t fork_member(struct world *w, int (*body)(struct world *w))
{
    pid_t child;

    (void)fflush(NULL);
    child = fork();
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a world's end is its own */
        (void)setenv("DYNATRAIN_FAULT_FILE", w->fault, 1);
        _exit(body(w));
    }
    return child;
}

static bool died(pid_t child)
{
    int status = 0;

    return waitpid(child, &status, 0) == child && WIFSIGNALED(status) &&
           WTERMSIG(status) == SIGKILL;
}

/* ---- the trainer dies ---------------------------------------------------- */

static int doomed_trainer(struct world *w)
{
    struct party *t = &w->s.trainer[0];

    put_on_device(t, 0);
    must(enter(t->m) == DYT_OK);
    for (t->m->version = 1; t->m->version < 3; t->m->version++) {
        must(tell(w->said[1]) && hear(w->go[0]));
        write_there(t, t->m->version);
        must(offer_as_is(t->m) == DYT_OK);
        (void)end_offer(t->m);
    }
    return 1; /* it should have died */
}

static int check_orphan(struct world *w, enum dyt_status st)
{
    struct party *r = &w->s.receiver[0];
    bool in_place = w->mode->commit == DYT_COMMIT_IN_PLACE;
    uint64_t valid = 0;
    enum dyt_status its = dyt_session_valid(r->m->session, &valid);

    if (st == DYT_OK) {
        must(w->point >= VOTED);
        must(its == DYT_OK && valid == 2 && holds_there(r, 2));
    } else if (its == DYT_OK) {
        /* the decision may have been heard, and the manager's answer not */
        must(valid == 1 || (valid == 2 && w->point >= VOTED));
        must(holds_there(r, valid));
    } else {
        must(in_place && its == DYT_ERR_STATE);
    }
    return 0;
}

static int trainer_dies(struct world *w)
{
    struct party *r = &w->s.receiver[0];
    pid_t child = fork_member(w, doomed_trainer);
    enum dyt_status st;

    must(child > 0 && hear(w->said[0]));
    put_on_device(r, 0);
    must(enter(r->m) == DYT_OK);
    must(tell(w->go[1]));
    r->m->version = 1;
    must(receive(r->m) == DYT_OK && holds_there(r, 1));
    must(goes_direct(w->s.trainer[0].m));
    must(hear(w->said[0]) && order(w) && tell(w->go[1]));
    r->m->version = 2;
    st = receive(r->m);
    must(died(child));
    must(access(w->fault, F_OK) != 0);
    if (check_orphan(w, st) != 0) {
        return 1;
    }
    must(dyti_session_mirror_bytes(r->m->session) == 0);
    /* its device is as good as it was */
    must(cudaDeviceSynchronize() == cudaSuccess);
    end_party(r);
    return gpusim_unexpected() == 0 && gpusim_leaks() == 0 ? 0 : 1;
}

/* ---- a receiver dies ----------------------------------------------------- */

static int doomed_receiver(struct world *w)
{
    struct party *r = &w->s.receiver[0];

    put_on_device(r, 0);
    must(hear(w->go[0]) && enter(r->m) == DYT_OK);
    for (r->m->version = 1; r->m->version < 3; r->m->version++) {
        must(tell(w->said[1]) && hear(w->go[0]));
        must(receive(r->m) == DYT_OK);
        must(holds_there(r, r->m->version));
    }
    return 1;
}

/* The other replica, here: it gets its versions meanwhile. */
static int pass_to_other(struct world *w, uint64_t version, bool to_doomed)
{
    struct party *t = &w->s.trainer[0], *other = &w->s.receiver[1];

    write_there(t, version);
    t->m->version = other->m->version = version;
    must(offer_as_is(t->m) == DYT_OK);
    must(!to_doomed || tell(w->go[1]));
    must(receive(other->m) == DYT_OK && holds_there(other, version));
    must(end_offer(t->m) == DYT_OK); /* of those that live */
    must(dyt_session_will_write(t->m->session) == DYT_OK);
    return 0;
}

static int receiver_dies(struct world *w)
{
    struct party *t = &w->s.trainer[0], *other = &w->s.receiver[1];
    pid_t child = fork_member(w, doomed_receiver);

    put_on_device(t, 0);
    put_on_device(other, 0);
    must(child > 0 && enter(t->m) == DYT_OK && tell(w->go[1]));
    must(hear(w->said[0]) && enter(other->m) == DYT_OK);
    if (pass_to_other(w, 1, true) != 0) {
        return 1;
    }
    must(goes_direct(t->m));
    must(hear(w->said[0]) && order(w));
    if (pass_to_other(w, 2, true) != 0) {
        return 1;
    }
    must(died(child));
    must(access(w->fault, F_OK) != 0);
    if (pass_to_other(w, 3, false) != 0) {
        return 1;
    }
    must(dyti_session_mirror_bytes(t->m->session) == 0);
    end_party(other);
    end_party(t);
    return gpusim_unexpected() == 0 && gpusim_leaks() == 0 ? 0 : 1;
}

/* ---- worlds -------------------------------------------------------------- */

static void play(const struct mode *mode, uint32_t point,
                 int (*body)(struct world *w), bool replicas)
{
    struct world w = {.mode = mode, .point = point};
    int status = -1;
    pid_t child;

    w.s = with_members(1, 1);
    if (replicas) {
        w.s.receivers = 2;
        w.s.receiver[1].m =
            with_shapes(w.s.folder, DYT_ROLE_RECEIVER, 0, 1, true);
        w.s.receiver[1].m->join.replica = 1;
        join_as(w.s.receiver[1].m, mode);
    }
    join_as(w.s.trainer[0].m, mode);
    join_as(w.s.receiver[0].m, mode);
    snprintf(w.fault, sizeof(w.fault), "%s/fault", w.s.folder);
    assert_int_equal(0, pipe(w.go));
    assert_int_equal(0, pipe(w.said));
    (void)fflush(NULL);
    child = fork();
    if (child == 0) {
        _exit(body(&w));
    }
    assert_true(child > 0);
    assert_int_equal(child, waitpid(child, &status, 0));
    for (int i = 0; i < 2; i++) {
        close(w.go[i]);
        close(w.said[i]);
    }
    leave(w.s.trainer[0].m);
    for (uint32_t i = 0; i < w.s.receivers; i++) {
        leave(w.s.receiver[i].m);
    }
    if (status != 0) {
        fail_msg("%s, %s: %d", mode->name, points[point], status);
    }
}

static void each(int (*body)(struct world *w), bool replicas)
{
    bool all = dyt_test_rounds(1, 2) == 2;

    for (uint32_t m = 0; m < DYT_TEST_COUNT(modes); m++) {
        for (uint32_t p = 0; p < DYT_TEST_COUNT(points); p++) {
            if (all || (m + p) % 2 == 0) {
                play(&modes[m], p, body, replicas);
            }
        }
    }
}

static void a_trainer_dies_at_each_point(void **state)
{
    (void)state;
    each(trainer_dies, false);
}

static void a_receiver_dies_at_each_point(void **state)
{
    (void)state;
    each(receiver_dies, true);
}

static const struct CMUnitTest tests[] = {
    sim_test(a_trainer_dies_at_each_point),
    sim_test(a_receiver_dies_at_each_point),
};
DYT_TEST_MAIN(tests)
