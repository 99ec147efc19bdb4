/* What callers say wrong: rows that contradict each other, parameters, calls
 * out of order.  Each is told what and why; nothing hangs, and the job goes on.
 */
#include "lib/session_internal.h"
#include "session_manager.h"
#include "session_world.h"

#define MS 1000000ll

/* ---- rows that contradict each other ------------------------------------- */

/* Rank `rank` of a trainer that says `rows` is the extent of b.weight's axis 0
 * (which is ROWS). */
static void describe_sized(struct member *m, const char *folder, uint32_t rank,
                           uint32_t size, int64_t rows)
{
    describe(m, folder, DYT_ROLE_TRAINER, 0, rank, size);
    m->row[1].global_shape[0] = rows;
}

/* Every rank of the trainer hears it at once, and may publish again. */
static void a_trainer_that_contradicts_itself_hears_so(void **state)
{
    (void)state;
    for (uint32_t size = 1; size <= 2; size++) {
        const char *folder = session_folder();
        struct member m[2], r, *t[2] = {&m[0], &m[1]}, *to[1] = {&r};

        for (uint32_t i = 0; i < size; i++) {
            describe_sized(&m[i], folder, i, size, i + 1 == size ? 7 : ROWS);
        }
        all_call(t, size, enter);
        all_are(t, size, DYT_ERR_LAYOUT);
        for (uint32_t i = 0; i < size; i++) {
            assert_non_null(strstr(m[i].text, "b.weight"));
            m[i].row[1].global_shape[0] = ROWS;
        }
        all_ok(t, size, member_publish);
        describe(&r, folder, DYT_ROLE_RECEIVER, 0, 0, 1);
        all_ok(to, 1, enter);
        pass_on(t, size, to, 1, 1);
        all_leave(t, size, to, 1);
    }
}

/* A trainer offers what it has. */
static void memory_is_lent_to_receivers_only(void **state)
{
    const char *folder = session_folder();
    struct member t;

    (void)state;
    describe(&t, folder, DYT_ROLE_TRAINER, 0, 0, 1);
    t.row[1].flags |= DYT_ROW_STAGED;
    assert_status(DYT_ERR_INVALID, enter(&t));
    assert_error_has("row b.weight");
    assert_error_has("give data or fd");
    t.row[1].flags = 0;
    assert_ok(member_publish(&t));
    leave(&t);
}

/* Two rows of a receiver over each other: one version would be written over the
 * other.  Views of one buffer that interleave are two places; a trainer's rows
 * are read only. */
static void rows_do_not_lie_over_each_other(void **state)
{
    const char *folder = session_folder();
    float buffer[4][12] = {{0}};
    struct member t, r;

    (void)state;
    member_init(&t, folder, DYT_ROLE_TRAINER, 0, 0, 1);
    member_init(&r, folder, DYT_ROLE_RECEIVER, 0, 0, 1);
    for (int i = 0; i < 2; i++) {
        WHOLE(&t, names[i], DYT_F32, 4, 6);
        WHOLE(&r, names[i], DYT_F32, 4, 6);
        r.row[i].stride[0] = 12;
        r.row[i].stride[1] = 1;
        r.row[i].data = &buffer[0][i * 5];
    }
    assert_ok(enter(&t));
    assert_status(DYT_ERR_LAYOUT, enter(&r));
    assert_error_has("rows lie over each other");
    assert_error_has("a.weight");
    assert_error_has("b.weight");
    r.row[1].data = &buffer[0][6];
    assert_ok(member_publish(&r));
    t.version = 1;
    assert_ok(offer(&t));
    assert_ok(receive_version(&r, 1));
    assert_ok(end_offer(&t));
    for (int i = 0; i < 2; i++) {
        for (int at = 0; at < 24; at++) {
            assert_true(((const float *)t.row[i].data)[at] ==
                        buffer[at / 6][i * 6 + at % 6]);
        }
    }
    leave(&r);
    leave(&t);
}

/* Whoever was built with a newer header has longer rows. */
static void rows_may_be_longer_than_ours(void **state)
{
    struct longer {
        struct dyt_row row;
        uint64_t more[3];
    } row[2];
    struct dyt_view view = {.struct_size = sizeof(view),
                            .row_struct_size = sizeof(row[0]),
                            .row = &row[0].row,
                            .row_count = 2};
    const char *folder = session_folder();
    struct member t, r;
    void *data = NULL;

    (void)state;
    describe(&t, folder, DYT_ROLE_TRAINER, 0, 0, 1);
    describe(&r, folder, DYT_ROLE_RECEIVER, 0, 0, 1);
    r.join.memory = DYT_MEMORY_MAPPED;
    r.join.commit = DYT_COMMIT_DOUBLE;
    assert_ok(enter(&t));
    assert_ok(dyt_session_join(&r.join, &r.session));
    for (int i = 0; i < 2; i++) {
        memset(&row[i], 0xa5, sizeof(row[i]));
        row[i].row = r.row[i];
        row[i].row.struct_size = sizeof(row[i]);
    }
    row[1].row.struct_size--;
    assert_status(DYT_ERR_INVALID, dyt_session_map(r.session, &row[0].row, 2));
    assert_error_has("row 1 has struct_size");
    row[1].row.struct_size++;
    assert_ok(dyt_session_map(r.session, &row[0].row, 2));
    for (int i = 0; i < 2; i++) {
        assert_true(row[i].row.data != r.own[i]);
        assert_true(row[i].row.name == r.row[i].name);
        assert_true(row[i].more[0] == 0xa5a5a5a5a5a5a5a5u);
    }
    assert_ok(dyt_session_publish(r.session, &view, NULL));
    send_version(&t, &r, 1);
    assert_ok(dyt_session_row_data(r.session, 1, &data));
    assert_true(*(const float *)data == value_of(1, names[1], 0));
    leave(&r);
    leave(&t);
}

/* ---- parameters ---------------------------------------------------------- */

static void a_place_is_looked_at_before_it_is_asked_for(void **state)
{
    const char *folder = session_folder();
    struct member m;

    (void)state; /* nobody listens there */
    describe(&m, folder, DYT_ROLE_RECEIVER, 0, 0, 2);
    m.join.rank = 2;
    assert_status(DYT_ERR_CONFIG, dyt_session_join(&m.join, &m.session));
    assert_error_has("rank 2 of 2");
    m.join.rank = 0;
    m.join.host_address = "node-7";
    assert_status(DYT_ERR_CONFIG, dyt_session_join(&m.join, &m.session));
    assert_error_has("host_address \"node-7\"");
    leave(&m);
}

static void a_choice_is_one_of_its_own(void **state)
{
    struct {
        uint32_t *value;
        const char *says;
    } wrong[6];
    const char *folder = session_folder();
    struct member m;

    (void)state;
    describe(&m, folder, DYT_ROLE_TRAINER, 0, 0, 1);
    wrong[0].value = &m.join.role;
    wrong[0].says = "role 7: give 0 to 1 (enum dyt_role)";
    wrong[1].value = &m.join.commit;
    wrong[1].says = "commit 7: give 0 to 2";
    wrong[2].value = &m.join.memory;
    wrong[2].says = "memory 7: give 0 to 1";
    wrong[3].value = &m.join.verify;
    wrong[3].says = "verify 7: give 0 to 2";
    wrong[4].value = &m.join.policy;
    wrong[4].says = "policy 7: give 0 to 2";
    wrong[5].value = &m.join.host_manager;
    wrong[5].says = "host_manager 7: give 0 to 2 (as it is needed";
    for (uint32_t i = 0; i < 6; i++) {
        uint32_t before = *wrong[i].value;

        *wrong[i].value = 7;
        assert_status(DYT_ERR_CONFIG, dyt_session_join(&m.join, &m.session));
        assert_error_has(wrong[i].says);
        *wrong[i].value = before;
    }
    leave(&m);
}

static void an_attribute_has_a_name(void **state)
{
    const struct dyt_attribute attribute[2] = {{"head_dim", 64}, {NULL, 3}};
    const char *folder = session_folder();
    struct member m;

    (void)state;
    describe(&m, folder, DYT_ROLE_RECEIVER, 0, 0, 1);
    m.join.attribute = attribute;
    m.join.attribute_count = 2;
    assert_status(DYT_ERR_CONFIG, dyt_session_join(&m.join, &m.session));
    assert_error_has("attribute 1 of 2 has no name");
    assert_null(m.session);
    leave(&m);
}

/* A manager that serves whatever job comes: a name that was a mistake goes with
 * who made it. */
static void a_jobs_name_goes_with_its_last_member(void **state)
{
    const char *folder = session_folder();
    struct manager_thread manager;
    struct dyti_manager_params p = {0};
    struct member wrong, t, r;

    (void)state;
    describe(&wrong, folder, DYT_ROLE_RECEIVER, 0, 0, 1);
    describe(&t, folder, DYT_ROLE_TRAINER, 0, 0, 1);
    describe(&r, folder, DYT_ROLE_RECEIVER, 0, 0, 1);
    t.join.host_manager = 2;
    wrong.join.job = "jbo";
    p.address = t.address;
    manager_start(&manager, &p);
    /* one that was not even let in */
    wrong.join.rank = 5;
    assert_status(DYT_ERR_CONFIG,
                  dyt_session_join(&wrong.join, &wrong.session));
    wrong.join.rank = 0;
    assert_ok(dyt_session_join(&wrong.join, &wrong.session));
    assert_status(DYT_ERR_BUSY, dyt_session_join(&t.join, &t.session));
    assert_error_has("job jbo is served at this address");
    leave(&wrong);
    assert_ok(enter(&t));
    assert_ok(enter(&r));
    send_version(&t, &r, 1);
    leave(&r);
    leave(&t);
    manager_stop(&manager);
}

/* A manager that is slow to say who left. */
static void say_slowly(void *arg, const char *line)
{
    static const struct timespec slow = {.tv_nsec = 100 * MS};
    atomic_bool *left = arg;

    if (strstr(line, " left") != NULL) {
        (void)nanosleep(&slow, NULL);
        atomic_store(left, true);
    }
}

/* So that whoever joins at that place next finds it free. */
static void leaving_returns_when_the_manager_knows(void **state)
{
    const char *folder = session_folder();
    struct manager_thread manager;
    struct dyti_manager_params p = {.say = say_slowly};
    atomic_bool left = false;
    struct member m;

    (void)state;
    describe(&m, folder, DYT_ROLE_RECEIVER, 0, 0, 1);
    p.address = m.address;
    p.say_arg = &left;
    manager_start(&manager, &p);
    for (uint32_t turn = 0; turn < 3; turn++) {
        atomic_store(&left, false);
        assert_ok(dyt_session_join(&m.join, &m.session));
        dyt_session_leave(m.session);
        assert_true(atomic_load(&left));
    }
    m.session = NULL;
    leave(&m);
    manager_stop(&manager);
}

/* ---- order --------------------------------------------------------------- */

/* Both wait for a version in vain, and the first of them says that.  If the
 * other is so late that it was missing, once more. */
static void both_wait(struct member *r[2], uint64_t version, const char *says)
{
    for (uint32_t i = 0;
         i < 50 && (i == 0 || strstr(r[0]->text, "of its replica") != NULL);
         i++) {
        all_ask(r, 2, version, 100 * MS);
        all_call(r, 2, receive);
        all_are(r, 2, DYT_ERR_TIMEOUT);
    }
    assert_non_null(strstr(r[0]->text, says));
}

/* A receive that ends at its deadline says what it waited for. */
static void a_deadline_says_what_was_missing(void **state)
{
    const char *folder = session_folder();
    struct member m[3], *t[1] = {&m[0]}, *r[2] = {&m[1], &m[2]};

    (void)state;
    describe(&m[0], folder, DYT_ROLE_TRAINER, 0, 0, 1);
    for (uint32_t k = 0; k < 2; k++) {
        describe(r[k], folder, DYT_ROLE_RECEIVER, 0, k, 2);
    }
    all_ok(t, 1, enter);
    all_ok(r, 2, enter);
    both_wait(r, 1, "no version from 1 on is offered (none was)");
    pass_on(t, 1, r, 2, 1);
    both_wait(r, 2, "the newest was version 1");
    all_offer(t, 1, 2);
    assert_status(DYT_ERR_TIMEOUT, receive(r[0])); /* alone */
    assert_error_has("rank 1 of 2 of its replica does not receive");
    all_receive(r, 2, 2);
    all_ok(t, 1, end_offer);
    all_leave(t, 1, r, 2);
}

static void calls_before_publish_say_what_is_missing(void **state)
{
    const char *folder = session_folder();
    struct dyt_offer_params offer = {.struct_size = sizeof(offer),
                                     .version = 1};
    struct member t, r;
    dyt_ticket *ticket = NULL;
    uint64_t n = 9;
    void *data = NULL;
    size_t count = 9;

    (void)state;
    describe(&t, folder, DYT_ROLE_TRAINER, 0, 0, 1);
    describe(&r, folder, DYT_ROLE_RECEIVER, 0, 0, 1);
    assert_ok(dyt_session_join(&t.join, &t.session));
    assert_ok(dyt_session_join(&r.join, &r.session));
    assert_status(DYT_ERR_STATE, dyt_session_offer(t.session, &offer, &ticket));
    assert_error_has("after it has published");
    assert_ok(dyt_session_will_write(t.session)); /* nothing pins it */
    assert_status(DYT_ERR_STATE, dyt_session_receive(r.session, 1, -1, NULL));
    assert_status(DYT_ERR_STATE, dyt_session_valid(r.session, &n));
    assert_status(DYT_ERR_INVALID, dyt_session_row_hash(r.session, 0, &n));
    assert_error_has("row 0 of 0 published ones");
    assert_status(DYT_ERR_INVALID, dyt_session_row_data(r.session, 0, &data));
    assert_status(DYT_ERR_INVALID, dyt_session_staged(r.session, 0, &data));
    assert_status(DYT_ERR_STATE, dyt_session_map(r.session, r.row, r.rows));
    assert_error_has("memory OWN");
    assert_status(DYT_ERR_STATE,
                  dyt_session_restore(r.session, DYT_TAG_WEIGHTS));
    assert_error_has("not released: weights");
    assert_ok(dyt_session_changed(r.session, &n, 1, &count));
    assert_int_equal(0, count);
    assert_int_equal(9, n);
    assert_null(data);
    assert_null(ticket);
    leave(&r);
    leave(&t);
}

static void calls_are_of_a_role(void **state)
{
    struct member t, r, fresh;
    struct dyt_switch_report report = {.struct_size = 4};
    struct dyt_offer_params old = {.struct_size = 4};
    dyt_ticket *ticket = NULL;
    const char *folder = dyt_test_dir();

    (void)state;
    pair(&t, &r, folder, DYT_COMMIT_STAGED, DYT_MEMORY_OWN);
    assert_status(DYT_ERR_STATE, receive_version(&t, 0));
    assert_error_has("a receive is a receiver's");
    assert_status(DYT_ERR_STATE, offer_version(&r, 1, false, &ticket));
    assert_error_has("an offer is a trainer's");
    describe(&fresh, folder, DYT_ROLE_RECEIVER, 3, 0, 1);
    assert_ok(dyt_session_join(&fresh.join, &fresh.session));
    assert_status(DYT_ERR_STATE, receive_version(&fresh, 0));
    assert_error_has("after it has published");
    leave(&fresh);
    assert_status(DYT_ERR_INVALID,
                  dyt_session_receive(r.session, 0, -1, &report));
    assert_status(DYT_ERR_INVALID, dyt_session_offer(t.session, &old, &ticket));
    assert_status(DYT_ERR_INVALID, dyt_session_receive(NULL, 0, -1, NULL));
    assert_status(DYT_ERR_INVALID, dyt_session_offer(NULL, NULL, NULL));
    assert_null(ticket);
    leave(&r);
    leave(&t);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_trainer_that_contradicts_itself_hears_so),
    cmocka_unit_test(memory_is_lent_to_receivers_only),
    cmocka_unit_test(rows_do_not_lie_over_each_other),
    cmocka_unit_test(rows_may_be_longer_than_ours),
    cmocka_unit_test(a_place_is_looked_at_before_it_is_asked_for),
    cmocka_unit_test(a_choice_is_one_of_its_own),
    cmocka_unit_test(an_attribute_has_a_name),
    cmocka_unit_test(a_deadline_says_what_was_missing),
    cmocka_unit_test(a_jobs_name_goes_with_its_last_member),
    cmocka_unit_test(leaving_returns_when_the_manager_knows),
    cmocka_unit_test(calls_before_publish_say_what_is_missing),
    cmocka_unit_test(calls_are_of_a_role),
};
DYT_TEST_MAIN(tests)
