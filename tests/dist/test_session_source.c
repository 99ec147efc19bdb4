/* A source that is written while others read it, and memory that is not what
 * its rows say: an error or the right bytes, never a crash. */
#include "session_keys.h"
#include "session_world.h"

#include "base/rng.h"
#include "control/hub.h"

#include <fcntl.h>
#include <sys/mman.h>

/* ---- a slow receive -------------------------------------------------------
 */

/* The server takes its time to pause; the trainer wants to go on meanwhile. */
struct slow {
    struct member *trainer;
    enum dyt_status declared; /* what it hears when it says that it writes */
    enum dyt_status next;     /* or offers the next version */
    uint32_t calls;
};

static enum dyt_status while_it_is_read(void *arg)
{
    struct slow *s = arg;
    dyt_ticket *ticket = NULL;

    s->calls++;
    s->declared = dyt_session_will_write(s->trainer->session);
    if (s->declared == DYT_OK) {
        write_version(s->trainer, 9);
    }
    s->next = offer_version(s->trainer, 9, false, &ticket);
    return DYT_OK;
}

static void a_source_is_whole_or_its_writer_hears_so(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * DYT_TEST_COUNT(session_modes); i++) {
        bool snapshot = i % 2 != 0;
        struct slow slow = {0};
        struct dyt_session_hooks hooks = {.struct_size = sizeof(hooks),
                                          .arg = &slow,
                                          .pause = while_it_is_read};
        struct member t, r;
        dyt_ticket *ticket;

        pair(&t, &r, dyt_test_dir(), session_modes[i / 2].commit,
             session_modes[i / 2].memory);
        slow.trainer = &t;
        assert_ok(dyt_session_set_hooks(r.session, &hooks));
        for (uint64_t v = 1; v <= 2; v++) {
            write_version(&t, v);
            assert_ok(offer_version(&t, v, snapshot, &ticket));
            assert_ok(receive_version(&r, v));
            assert_int_equal(v, slow.calls);
            assert_int_equal(snapshot ? DYT_OK : DYT_ERR_STATE, slow.declared);
            assert_int_equal(DYT_ERR_STATE, slow.next);
            assert_int_equal(v, version_of(&r));
            assert_ok(dyt_ticket_wait(ticket, -1));
            dyt_ticket_destroy(ticket);
        }
        leave(&r);
        leave(&t);
    }
}

#ifndef __SANITIZE_THREAD__ /* these are races, and meant to be */

/* ---- … and does not say so ------------------------------------------------
 */

/* A trainer that goes on without a word. */
static enum dyt_status write_undeclared(void *arg)
{
    struct slow *s = arg;

    s->calls++;
    write_version(s->trainer, 9);
    return DYT_OK;
}

/* Tensor a lies where others can map it, so that it is read where it lies. */
static void share_rows(struct member *t)
{
    for (uint32_t r = 0; r < t->rows; r++) {
        size_t bytes = row_elements(&t->row[r]) * sizeof(float);
        int fd = memfd_create("rows", MFD_CLOEXEC | MFD_ALLOW_SEALING);

        assert_int_equal(0, ftruncate(fd, (off_t)bytes));
        if (r % 2 == 1) { /* who maps it reads it as it lies */
            assert_int_equal(0, fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK));
        }
        t->row[r].data =
            mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        assert_true(t->row[r].data != MAP_FAILED);
        t->row[r].fd = fd;
    }
}

static void unshare_rows(struct member *t)
{
    for (uint32_t r = 0; r < t->rows; r++) {
        munmap(t->row[r].data, row_elements(&t->row[r]) * sizeof(float));
        close(t->row[r].fd);
    }
}

/* What a receive that failed has left. */
static void check_left(struct member *r, uint32_t commit, uint64_t version)
{
    uint64_t valid = 0;

    if (commit == DYT_COMMIT_IN_PLACE) {
        assert_status(DYT_ERR_STATE, dyt_session_valid(r->session, &valid));
    } else {
        assert_ok(dyt_session_valid(r->session, &valid));
        assert_int_equal(version, valid);
        assert_int_equal(version, version_of(r));
    }
}

static void undeclared(const struct session_mode *mode, bool shared,
                       uint32_t verify)
{
    struct slow slow = {0};
    struct dyt_session_hooks none = {.struct_size = sizeof(none)};
    struct dyt_session_hooks hooks = {
        .struct_size = sizeof(hooks), .arg = &slow, .pause = write_undeclared};
    const char *folder = session_folder();
    struct member t, r;
    dyt_ticket *ticket;

    describe(&t, folder, DYT_ROLE_TRAINER, 0, 0, 1);
    describe(&r, folder, DYT_ROLE_RECEIVER, 0, 0, 1);
    t.join.verify = r.join.verify = verify;
    r.join.commit = mode->commit;
    r.join.memory = mode->memory;
    if (shared) {
        share_rows(&t);
    }
    slow.trainer = &t;
    assert_ok(enter(&t));
    assert_ok(enter(&r));
    send_version(&t, &r, 1);
    assert_ok(dyt_session_set_hooks(r.session, &hooks));
    write_version(&t, 2);
    assert_ok(offer_version(&t, 2, false, &ticket));
    if (!shared && mode->commit == DYT_COMMIT_IN_PLACE &&
        mode->memory == DYT_MEMORY_OWN) {
        /* neither side can be mapped: it was copied when it was offered */
        assert_ok(receive_version(&r, 2));
        assert_int_equal(2, version_of(&r));
        assert_ok(dyt_ticket_wait(ticket, -1));
    } else {
        assert_status(DYT_ERR_VERIFY, receive_version(&r, 2));
        assert_error_has(" was written");
        assert_error_has("version 2 is offered");
        check_left(&r, mode->commit, 1);
        assert_status(DYT_ERR_VERIFY, dyt_ticket_wait(ticket, -1));
        assert_error_has("offer a snapshot");
    }
    assert_int_equal(1, slow.calls);
    dyt_ticket_destroy(ticket);
    assert_ok(dyt_session_set_hooks(r.session, &none));
    send_version(&t, &r, 3); /* and the next one is a new one */
    leave(&r);
    if (shared) {
        dyt_session_leave(t.session);
        t.session = NULL;
        unshare_rows(&t);
    }
    leave(&t);
}

static void an_undeclared_write_ends_the_offer(void **state)
{
    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(session_modes); i++) {
        undeclared(&session_modes[i], false, DYT_VERIFY_FULL);
        undeclared(&session_modes[i], true, DYT_VERIFY_FULL);
        undeclared(&session_modes[i], true, DYT_VERIFY_SAMPLE);
    }
}

struct writer {
    struct member *trainer;
    uint64_t moment;
    pthread_t thread;
};

/* Some elements of one row, at some moment. */
static void *write_some(void *arg)
{
    struct writer *w = arg;
    volatile float *own = w->trainer->row[w->moment % 2].data;

    for (volatile uint64_t spin = 0; spin < w->moment; spin++) {
    }
    for (uint64_t i = 0; i < 1 + w->moment % 900; i++) {
        own[(w->moment + i * 7) % (ROWS * COLS)] = -1.0f;
    }
    return NULL;
}

/* With verify FULL: whatever is written, and whenever. */
static void what_comes_is_right_or_refused(void **state)
{
    const char *folder = session_folder();
    uint64_t came = 0, refused = 0;
    struct member t, r;

    (void)state;
    describe(&t, folder, DYT_ROLE_TRAINER, 0, 0, 1);
    describe(&r, folder, DYT_ROLE_RECEIVER, 0, 0, 1);
    share_rows(&t);
    assert_ok(enter(&t));
    assert_ok(enter(&r));
    for (uint64_t v = 1; v <= dyt_test_rounds(100, 1000); v++) {
        struct writer w = {.trainer = &t,
                           .moment = dyti_rng_u64(5, v, 0, 0) % 12000000};
        dyt_ticket *ticket;
        enum dyt_status st;

        write_version(&t, v);
        assert_ok(offer_version(&t, v, false, &ticket));
        assert_int_equal(0, pthread_create(&w.thread, NULL, write_some, &w));
        st = receive_version(&r, v);
        pthread_join(w.thread, NULL);
        assert_int_equal(st == DYT_ERR_VERIFY ? DYT_ERR_VERIFY : DYT_OK, st);
        {
            enum dyt_status ended = dyt_ticket_wait(ticket, -1);

            if (ended != st) {
                fail_msg("%s, but the ticket says %s: %s", dyt_status_name(st),
                         dyt_status_name(ended), r.text);
            }
        }
        dyt_ticket_destroy(ticket);
        came += st == DYT_OK;
        refused += st == DYT_ERR_VERIFY;
        assert_true(st != DYT_OK || row_not_of(&r, v) == r.rows);
    }
    print_message("%" PRIu64 " came, %" PRIu64 " were refused\n", came,
                  refused);
    assert_true(came > 0 && refused > 0);
    leave(&r);
    dyt_session_leave(t.session);
    t.session = NULL;
    unshare_rows(&t);
    leave(&t);
}
#endif

/* ---- memory ---------------------------------------------------------------
 */

/* A row of this receiver lies at `data`: what publish says. */
static void refuse_memory(const char *folder, void *data, enum dyt_status want,
                          const char *part)
{
    struct member m;
    void *own;

    describe(&m, folder, DYT_ROLE_RECEIVER, 4, 0, 1);
    own = m.row[0].data;
    m.row[0].data = data;
    assert_status(want, enter(&m));
    assert_error_has(part);
    assert_error_has("a.weight");
    m.row[0].data = own; /* and the same session takes what is right */
    {
        assert_ok(member_publish(&m));
    }
    leave(&m);
}

static void memory_that_cannot_be_used_is_an_error(void **state)
{
    size_t bytes = 16384;
    const char *folder = dyt_test_dir();
    struct member t, r;
    char *read_only =
        mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *none =
        mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *half = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)state;
    assert_true(read_only != MAP_FAILED && none != MAP_FAILED &&
                half != MAP_FAILED);
    assert_int_equal(0, munmap(half + 4096, bytes - 4096));
    pair(&t, &r, folder, DYT_COMMIT_STAGED, DYT_MEMORY_OWN);
    refuse_memory(folder, read_only, DYT_ERR_INVALID, "read-only");
    refuse_memory(folder, none, DYT_ERR_INVALID, "");
    refuse_memory(folder, half, DYT_ERR_INVALID, "");
    refuse_memory(folder, (void *)(uintptr_t)4096, DYT_ERR_INVALID, "");
    refuse_memory(folder, NULL, DYT_ERR_INVALID, "neither");
    send_version(&t, &r, 1);
    leave(&r);
    leave(&t);
    munmap(read_only, bytes);
    munmap(none, bytes);
    munmap(half, 4096);
}

/* ---- over tcp -------------------------------------------------------------
 */

static void keys_let_members_in(void **state)
{
    const char *folder = dyt_test_dir();
    struct session_keys keys = session_keys(folder, "none"), strange;
    char address[64], elsewhere[300];
    struct member t, r;

    (void)state;
    snprintf(elsewhere, sizeof(elsewhere), "%s/other", folder);
    strange = session_keys(elsewhere, "stranger");
    assert_ok(dyti_keys_make(keys.folder, "manager"));
    assert_ok(dyti_keys_make(strange.folder, "stranger"));
    session_free_address(address);
    describe(&t, folder, DYT_ROLE_TRAINER, 0, 0, 1);
    t.join.address = address;
    t.join.key = keys.manager;
    t.join.manager_key = keys.manager_public;
    t.join.host_manager = 1;
    assert_ok(enter(&t));
    describe(&r, folder, DYT_ROLE_RECEIVER, 0, 0, 1);
    r.join.address = address;
    assert_status(DYT_ERR_CONFIG, enter(&r));
    assert_error_has("needs a key of this side");
    r.join.manager_key = keys.manager_public;
    r.join.key = strange.other;
    assert_status(DYT_ERR_CONFIG, enter(&r));
    assert_error_has("refuses this key");
    r.join.key = keys.manager; /* whose public half lies beside the manager's */
    assert_ok(enter(&r));
    send_version(&t, &r, 1);
    leave(&r);
    leave(&t);
}

static void parameters_are_checked_at_join(void **state)
{
    const char *folder = dyt_test_dir();
    struct member m;

    (void)state;
    assert_int_equal(0, chmod(folder, 0700));
#define REFUSED(field, value, part)                                            \
    describe(&m, folder, DYT_ROLE_RECEIVER, 0, 0, 1);                          \
    m.join.field = value;                                                      \
    assert_status(DYT_ERR_CONFIG, dyt_session_join(&m.join, &m.session));      \
    assert_error_has(part);                                                    \
    assert_null(m.session);                                                    \
    leave(&m)
    REFUSED(role, 2, "role 2");
    REFUSED(commit, 3, "commit 3");
    REFUSED(memory, 2, "memory 2");
    REFUSED(verify, 3, "verify 3");
    REFUSED(policy, 3, "policy 3");
    REFUSED(host_manager, 3, "host_manager 3");
    REFUSED(job, NULL, "give 1 to 63 letters");
    REFUSED(job, "", "give 1 to 63 letters");
    REFUSED(job, "a/b", "job \"a/b\"");
    REFUSED(commit, DYT_COMMIT_DOUBLE, "needs memory MAPPED");
    REFUSED(address, NULL, "is no address");
    REFUSED(address, "somewhere", "is no address");
    REFUSED(expert_count, 3, "counted, and not given");
#undef REFUSED
    assert_status(DYT_ERR_INVALID, dyt_session_join(NULL, &m.session));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_source_is_whole_or_its_writer_hears_so),
#ifndef __SANITIZE_THREAD__
    cmocka_unit_test(an_undeclared_write_ends_the_offer),
    cmocka_unit_test(what_comes_is_right_or_refused),
#endif
    cmocka_unit_test(memory_that_cannot_be_used_is_an_error),
    cmocka_unit_test(keys_let_members_in),
    cmocka_unit_test(parameters_are_checked_at_join),
};
DYT_TEST_MAIN(tests)
