/* Rows by descriptor whose file is truncated: before an update, between two,
 * and at every named point of one, on either side.  An error that names the
 * tensor, nothing committed but what all have voted for, and the next version
 * comes when the file has its size again. */
#include "lib/session_internal.h"
#include "session_world.h"

#include <fcntl.h>
#include <sys/mman.h>

#ifdef DYT_TEST_HOOKS

/* ---- rows in files --------------------------------------------------------
 */

#define ROW_BYTES(m) (row_elements(&(m)->row[0]) * sizeof(float))

/* Both tensors in files that can be truncated. */
static void put_in_files(struct member *m)
{
    for (uint32_t r = 0; r < m->rows; r++) {
        int fd = memfd_create("rows", MFD_CLOEXEC);

        assert_return_code(ftruncate(fd, (off_t)ROW_BYTES(m)), 0);
        m->row[r].data =
            mmap(NULL, ROW_BYTES(m), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        assert_true(m->row[r].data != MAP_FAILED);
        m->row[r].fd = fd;
    }
}

/* `alone`: the session knows them by their descriptors only. */
static enum dyt_status enter_with(struct member *m, bool alone)
{
    void *data[2] = {m->row[0].data, m->row[1].data};
    enum dyt_status st;

    for (uint32_t r = 0; r < m->rows && alone; r++) {
        m->row[r].data = NULL;
    }
    st = enter(m);
    for (uint32_t r = 0; r < m->rows && alone; r++) {
        m->row[r].data = data[r]; /* of this test */
    }
    return st;
}

static void leave_files(struct member *m)
{
    size_t bytes = ROW_BYTES(m);
    struct dyt_row row[2] = {m->row[0], m->row[1]};
    bool ours = m->join.memory == DYT_MEMORY_OWN;

    leave(m);
    for (uint32_t r = 0; r < 2 && ours; r++) {
        if (row[r].fd >= 0) {
            munmap(row[r].data, bytes);
            close(row[r].fd);
        }
    }
}

/* By this test's own mapping, where the session has none. */
static bool is_of(struct member *m, uint64_t version)
{
    for (uint32_t r = 0; r < m->rows; r++) {
        struct version_check c = {.version = version,
                                  .data = m->row[r].data,
                                  .seen = calloc(ROWS * COLS, 1)};
        bool same;
        void *at = NULL;

        if (m->join.memory == DYT_MEMORY_MAPPED) {
            assert_ok(dyt_session_row_data(m->session, r, &at));
            c.data = at;
        }
        assert_non_null(c.seen);
        same = visit_row(m, r, check_element, &c);
        free(c.seen);
        if (!same) {
            return false;
        }
    }
    return true;
}

/* ---- a truncation at a point ----------------------------------------------
 */

struct fault {
    struct member *of; /* whose file */
    enum dyti_switch_point point;
    off_t bytes; /* that are left */
    bool done;
};

static void cut(struct fault *f)
{
    f->done = true;
    assert_return_code(ftruncate(f->of->row[0].fd, f->bytes), 0);
}

static void cut_at(void *arg, enum dyti_switch_point point)
{
    struct fault *f = arg;

    if (point == f->point && !f->done) {
        cut(f);
    }
}

/* The member whose hand comes to the point.  Its first link stays open. */
static void watch(struct member *m, struct fault *f)
{
    struct dyti_link *link = NULL;

    pthread_mutex_lock(&m->session->lock);
    for (size_t i = 0; i < m->session->link_count; i++) {
        link = m->session->link[i] != NULL ? m->session->link[i]->link : link;
    }
    pthread_mutex_unlock(&m->session->lock);
    assert_non_null(link);
    dyti_link_set_fault(link, DYTI_FAULT_NONE, f == NULL ? NULL : cut_at, f);
}

struct play {
    const struct session_mode *mode;
    bool trainers; /* its file, or the receiver's */
    bool alone;
    bool by_trainer; /* whose hand does it */
    bool verify_off;
    enum dyti_switch_point point;
    off_t bytes;
};

/* An offer and a receive, either of which may fail; *out_text is of the one
 * that did. */
static enum dyt_status try_version(struct member *t, struct member *r,
                                   uint64_t version, char text[4096])
{
    dyt_ticket *ticket = NULL;
    enum dyt_status st = offer_version(t, version, false, &ticket);

    if (st != DYT_OK) {
        snprintf(text, 4096, "%s", dyt_error_text());
        return st;
    }
    st = receive_version(r, version);
    snprintf(text, 4096, "%s", r->text);
    if (st != DYT_OK) {
        (void)dyt_ticket_cancel(ticket);
    } else {
        (void)dyt_ticket_wait(ticket, -1);
    }
    dyt_ticket_destroy(ticket);
    return st;
}

/* As it was before, or after a death in place or in the last copy: INVALID,
 * never something else. */
static void check_held(const struct play *p, struct member *r, uint64_t held,
                       uint64_t next, enum dyt_status st)
{
    uint64_t valid = 0;
    enum dyt_status now = dyt_session_valid(r->session, &valid);

    if (st == DYT_OK) {
        assert_ok(now);
        assert_int_equal(next, valid);
        assert_true(!p->trainers || is_of(r, next));
    } else if (now == DYT_OK) {
        assert_int_equal(held, valid);
        /* a receiver's own file is what was cut */
        assert_true(!p->trainers || is_of(r, held));
    } else {
        assert_int_equal(DYT_ERR_STATE, now);
        assert_true(
            p->mode->commit == DYT_COMMIT_IN_PLACE ||
            (!p->trainers && (p->verify_off || p->point >= DYTI_AT_VERIFIED)));
    }
}

static uint32_t failed; /* updates */

static void play(const char *folder, const struct play *p)
{
    struct member t, r, *of = p->trainers ? &t : &r;
    struct fault f = {.of = of, .point = p->point, .bytes = p->bytes};
    char text[4096];
    enum dyt_status st;

    describe(&t, folder, DYT_ROLE_TRAINER, 0, 0, 1);
    describe(&r, folder, DYT_ROLE_RECEIVER, 0, 0, 1);
    r.join.commit = p->mode->commit;
    r.join.memory = p->mode->memory;
    if (p->verify_off) {
        t.join.verify = r.join.verify = DYT_VERIFY_OFF;
    }
    put_in_files(of);
    assert_ok(enter_with(&t, p->alone && p->trainers));
    assert_ok(enter_with(&r, p->alone && !p->trainers));
    write_version(&t, 1);
    assert_ok(try_version(&t, &r, 1, text));
    assert_true(is_of(&r, 1));

    write_version(&t, 2);
    if (p->point == DYTI_AT_COUNT) { /* between the two */
        cut(&f);
    } else {
        watch(p->by_trainer ? &t : &r, &f);
    }
    st = try_version(&t, &r, 2, text);
    assert_true(f.done);
    if (st != DYT_OK && strstr(text, "a.weight") == NULL) {
        fail_msg("%s, point %d: %s: \"%s\"", p->mode->name, (int)p->point,
                 dyt_status_name(st), text);
    }
    /* in time for it to be seen */
    if (st == DYT_OK && p->point < DYTI_AT_TRANSFERRED &&
        !(p->by_trainer && p->verify_off)) { /* who do not meet */
        fail_msg("%s, point %d: it came", p->mode->name, (int)p->point);
    }
    check_held(p, &r, 1, 2, st);
    failed += st != DYT_OK;
    if (p->point != DYTI_AT_COUNT && st == DYT_OK) {
        watch(p->by_trainer ? &t : &r, NULL);
    }

    assert_return_code(ftruncate(of->row[0].fd, (off_t)ROW_BYTES(of)), 0);
    write_version(&t, 3);
    assert_ok(try_version(&t, &r, 3, text));
    assert_true(is_of(&r, 3));
    leave_files(&r);
    leave_files(&t);
}

static const off_t left[] = {0, 8192, 10000};

static void a_truncated_row_is_an_error(void **state)
{
    const char *folder = session_folder();
    uint32_t n = 0;

    (void)state;
    failed = 0;
    for (size_t mode = 0; mode < DYT_TEST_COUNT(session_modes); mode++) {
        for (int point = DYTI_AT_START; point <= DYTI_AT_COUNT; point++) {
            for (uint32_t k = 0; k < 8; k++, n++) {
                struct play p = {.mode = &session_modes[mode],
                                 .trainers = k % 2 == 0,
                                 .alone = k / 2 % 2 != 0,
                                 .by_trainer = k / 4 != 0,
                                 .verify_off = (k + (uint32_t)point) % 3 == 0,
                                 .point = (enum dyti_switch_point)point,
                                 .bytes = left[n % DYT_TEST_COUNT(left)]};

                if ((point == DYTI_AT_WAVE) || /* these have one wave alone */
                    (!p.trainers && p.mode->memory == DYT_MEMORY_MAPPED) ||
                    (point == DYTI_AT_COMMITTING &&
                     (p.by_trainer || p.mode->commit != DYT_COMMIT_STAGED))) {
                    continue;
                }
                play(folder, &p);
            }
        }
    }
    print_message("%u updates failed\n", failed);
    assert_true(failed > 60);
}

/* One of four ranks of a replica cannot, at this point of the update: before
 * the vote none advances; in its own commit it alone is INVALID.  All hear the
 * same, each says which version it holds, and the next one works. */
static void one_of_four(enum dyti_switch_point point)
{
    const char *folder = session_folder();
    struct member m[5], *t[1] = {&m[0]}, *r[4] = {&m[1], &m[2], &m[3], &m[4]};
    struct fault f = {.of = r[2], .point = point};

    describe(t[0], folder, DYT_ROLE_TRAINER, 0, 0, 1);
    for (uint32_t k = 0; k < 4; k++) {
        describe(r[k], folder, DYT_ROLE_RECEIVER, 0, k, 4);
    }
    put_in_files(r[2]);
    all_ok(t, 1, enter);
    all_ok(r, 4, enter);
    pass_on(t, 1, r, 4, 1);
    all_offer(t, 1, 2);
    watch(r[2], &f);
    all_ask(r, 4, 2, -1);
    all_call(r, 4, receive);
    assert_true(f.done);
    for (uint32_t k = 0; k < 4; k++) {
        uint64_t version = 0;
        enum dyt_status now = dyt_session_valid(r[k]->session, &version);

        assert_true(r[k]->status != DYT_OK);
        assert_int_equal(r[0]->status, r[k]->status);
        assert_non_null(strstr(r[k]->text, "rank 2 of replica"));
        assert_non_null(strstr(r[k]->text, "a.weight"));
        if (point == DYTI_AT_COMMITTING && k == 2) {
            assert_int_equal(DYT_ERR_STATE, now);
        } else {
            assert_int_equal(DYT_OK, now);
            assert_int_equal(point == DYTI_AT_COMMITTING ? 2 : 1, version);
            assert_true(k == 2 || holds(r[k], version));
        }
    }
    assert_return_code(ftruncate(r[2]->row[0].fd, (off_t)ROW_BYTES(r[2])), 0);
    all_receive(r, 4, 2); /* the same one: it is offered still */
    all_ok(t, 1, end_offer);
    pass_on(t, 1, r, 4, 3);
    for (uint32_t k = 0; k < 4; k++) {
        leave_files(r[k]);
    }
    leave_files(t[0]);
}

static void a_rank_that_fails_at_the_commit_is_heard_by_all(void **state)
{
    (void)state;
    one_of_four(DYTI_AT_PREPARED);
    one_of_four(DYTI_AT_TRANSFERRED);
    one_of_four(DYTI_AT_COMMITTING);
}

/* Before anybody has opened a link. */
static void a_row_that_is_short_from_the_start(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 4; k++) {
        const char *folder = session_folder();
        struct member t, r, *of = k % 2 == 0 ? &t : &r;
        char text[4096];

        describe(&t, folder, DYT_ROLE_TRAINER, 0, 0, 1);
        describe(&r, folder, DYT_ROLE_RECEIVER, 0, 0, 1);
        put_in_files(of);
        assert_ok(enter_with(&t, k == 2));
        assert_ok(enter_with(&r, k == 3));
        write_version(&t, 1);
        assert_return_code(ftruncate(of->row[0].fd, 100), 0);
        assert_true(try_version(&t, &r, 1, text) != DYT_OK);
        if (strstr(text, "a.weight") == NULL) {
            fail_msg("%u: \"%s\"", k, text);
        }
        assert_status(DYT_ERR_STATE,
                      dyt_session_valid(r.session, &(uint64_t){0}));
        assert_return_code(ftruncate(of->row[0].fd, (off_t)ROW_BYTES(of)), 0);
        write_version(&t, 2);
        assert_ok(try_version(&t, &r, 2, text));
        assert_true(is_of(&r, 2));
        leave_files(&r);
        leave_files(&t);
    }
}

/* Its owner comes again, with another file. */
static void a_row_may_be_published_anew(void **state)
{
    const char *folder = session_folder();
    struct member t, r;
    char text[4096];

    (void)state;
    describe(&t, folder, DYT_ROLE_TRAINER, 0, 0, 1);
    describe(&r, folder, DYT_ROLE_RECEIVER, 0, 0, 1);
    put_in_files(&r);
    assert_ok(enter(&t));
    assert_ok(enter_with(&r, true));
    write_version(&t, 1);
    assert_ok(try_version(&t, &r, 1, text));
    assert_return_code(ftruncate(r.row[0].fd, 0), 0);
    assert_true(try_version(&t, &r, 2, text) != DYT_OK);
    assert_non_null(strstr(text, "a.weight"));
    leave_files(&r);
    describe(&r, folder, DYT_ROLE_RECEIVER, 0, 0, 1);
    put_in_files(&r);
    assert_ok(enter_with(&r, true));
    write_version(&t, 3);
    assert_ok(try_version(&t, &r, 3, text));
    assert_true(is_of(&r, 3));
    leave_files(&r);
    leave(&t);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_truncated_row_is_an_error),
    cmocka_unit_test(a_rank_that_fails_at_the_commit_is_heard_by_all),
    cmocka_unit_test(a_row_that_is_short_from_the_start),
    cmocka_unit_test(a_row_may_be_published_anew),
};
DYT_TEST_MAIN(tests)

#else
int main(void)
{
    return 77; /* the points are of test builds */
}
#endif
