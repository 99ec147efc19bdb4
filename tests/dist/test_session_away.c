/* Private memory that is not there any more, or may not be written, when an
 * update comes to it: an error by the row's name, and it may come back.  (Files
 * that are truncated: test_session_truncated.c.) */
#include "session_world.h"

#include <sys/mman.h>

/* ---- memory that changes ------------------------------------------------- */

static size_t page_up(size_t bytes)
{
    return (bytes + 4095u) / 4096u * 4096u;
}

/* The first row in pages of its own. */
static void in_pages(struct member *m)
{
    size_t bytes = page_up(row_elements(&m->row[0]) * sizeof(float));

    m->row[0].data = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(m->row[0].data != MAP_FAILED);
}

static void protect(struct member *m, int how)
{
    size_t bytes = page_up(row_elements(&m->row[0]) * sizeof(float));

    assert_int_equal(0, mprotect(m->row[0].data, bytes, how));
}

/* What was memory when it was published, and is not any more: all ranks of the
 * replica hear of the row, nothing is written, and it may come back. */
static void memory_that_went_away_is_an_error(void **state)
{
    static const int how[] = {PROT_NONE, PROT_READ};

    (void)state;
    for (size_t i = 0; i < 2 * DYT_TEST_COUNT(how); i++) {
        const char *folder = session_folder();
        struct member m[3], *t[1] = {&m[0]}, *r[2] = {&m[1], &m[2]};
        uint64_t hash = 0;

        describe(&m[0], folder, DYT_ROLE_TRAINER, 0, 0, 1);
        in_pages(&m[0]);
        for (uint32_t k = 0; k < 2; k++) {
            describe(r[k], folder, DYT_ROLE_RECEIVER, 0, k, 2);
            r[k]->join.commit = session_modes[i % 2].commit;
            in_pages(r[k]);
        }
        all_ok(t, 1, enter);
        all_ok(r, 2, enter);
        pass_on(t, 1, r, 2, 1);
        all_offer(t, 1, 2);
        protect(r[1], how[i / 2]);
        all_ask(r, 2, 2, -1);
        all_call(r, 2, receive);
        all_are(r, 2, DYT_ERR_INVALID);
        for (uint32_t k = 0; k < 2; k++) {
            assert_non_null(strstr(r[k]->text, "rank 1 of replica"));
            assert_non_null(strstr(r[k]->text, "row a.weight"));
        }
        assert_true(holds(r[0], 1));
        protect(r[1], PROT_READ | PROT_WRITE);
        assert_true(holds(r[1], 1));
        protect(t[0], PROT_NONE); /* while it is offered */
        all_ask(r, 2, 2, -1);
        all_call(r, 2, receive);
        all_are(r, 2, DYT_ERR_INVALID);
        assert_non_null(strstr(r[0]->text, "row a.weight"));
        assert_status(DYT_ERR_INVALID,
                      dyt_session_row_hash(t[0]->session, 0, &hash));
        assert_error_has("row a.weight");
        protect(t[0], PROT_READ | PROT_WRITE);
        all_receive(r, 2, 2);
        all_ok(t, 1, end_offer);
        write_version(t[0], 3);
        protect(t[0], PROT_NONE);
        all_ask(t, 1, 3, -1);
        all_call(t, 1, offer_as_is);
        all_are(t, 1, DYT_ERR_INVALID);
        assert_non_null(strstr(t[0]->text, "row a.weight"));
        protect(t[0], PROT_READ); /* enough for who offers */
        all_ok(t, 1, offer_as_is);
        all_receive(r, 2, 3);
        all_ok(t, 1, end_offer);
        for (uint32_t k = 3; k-- > 0;) {
            size_t bytes = row_elements(&m[k].row[0]) * sizeof(float);

            dyt_session_leave(m[k].session);
            m[k].session = NULL;
            munmap(m[k].row[0].data, page_up(bytes));
        }
        all_leave(t, 1, r, 2);
    }
}

/* A row that nobody may write is not one that is received into. */
static void a_receiver_writes_no_read_only_row(void **state)
{
    const char *folder = session_folder();
    struct member t, r;

    (void)state;
    describe(&t, folder, DYT_ROLE_TRAINER, 0, 0, 1);
    describe(&r, folder, DYT_ROLE_RECEIVER, 0, 0, 1);
    t.row[0].flags |= DYT_ROW_READ_ONLY; /* a source may be */
    assert_ok(enter(&t));
    in_pages(&r);
    protect(&r, PROT_READ);
    r.row[0].flags |= DYT_ROW_READ_ONLY;
    assert_status(DYT_ERR_INVALID, enter(&r));
    assert_error_has("DYT_ROW_READ_ONLY");
    assert_error_has("row a.weight");
    protect(&r, PROT_READ | PROT_WRITE);
    r.row[0].flags = 0;
    assert_ok(member_publish(&r));
    send_version(&t, &r, 1);
    munmap(r.row[0].data, page_up(row_elements(&r.row[0]) * sizeof(float)));
    leave(&r);
    leave(&t);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(memory_that_went_away_is_an_error),
    cmocka_unit_test(a_receiver_writes_no_read_only_row),
};
DYT_TEST_MAIN(tests)
