/* What the manager answers to `dynatrain status`: of any job, however large, an
 * answer below its limit that says what it leaves out. */
#include "dyt_test.h"

#include "lib/manager_internal.h"

#include <jansson.h>

static void add(struct dyti_session_manager *m, uint32_t role, uint32_t replica,
                uint32_t rank, uint32_t size)
{
    struct dyti_fleet_place p = {.role = role,
                                 .replica = replica,
                                 .rank = rank,
                                 .size = size,
                                 .tp_rank = rank,
                                 .tp_size = size,
                                 .pp_size = 1,
                                 .dp_size = 1,
                                 .ep_size = 1,
                                 .host = 1,
                                 .pid = 4000000,
                                 .timeout_ns = 1000000000};
    uint32_t member;

    if (role == DYTI_FLEET_RECEIVER) {
        snprintf(p.pool, sizeof(p.pool), "rollout");
    }
    memset(p.host_name, '\1',
           sizeof(p.host_name) - 1); /* the longest: \u0001 */
    assert_ok(dyti_fleet_join(&m->fleet, &p, 0, &member));
}

/* Every replica failed, with the longest text. */
static void fail_all(struct dyti_session_manager *m)
{
    for (size_t i = 1; i < m->fleet.group_count; i++) {
        memset(m->fleet.group[i].why, '\1', DYTI_FLEET_TEXT_BYTES - 1);
    }
}

static uint64_t number(const json_t *of, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(of, key));
}

struct told {
    size_t bytes;
    uint64_t members, replicas; /* that are listed or counted */
    bool cut;
};

static struct told ask(struct dyti_session_manager *m, size_t most)
{
    struct told told = {0};
    json_error_t where;
    char *text = NULL;
    json_t *all, *trainer, *replica, *list;
    size_t i;

    assert_ok(dyti_manager_status(m, most, &text));
    told.bytes = strlen(text);
    all = json_loads(text, 0, &where);
    if (all == NULL) {
        fail_msg("%zu bytes: line %d: %s", most, where.line, where.text);
    }
    trainer = json_object_get(all, "trainer");
    told.cut = json_object_get(all, "replicas_left_out") != NULL ||
               json_object_get(trainer, "members_left_out") != NULL;
    told.members = json_array_size(json_object_get(trainer, "members")) +
                   number(trainer, "members_left_out");
    list = json_object_get(all, "replicas");
    told.replicas = json_array_size(list) + number(all, "replicas_left_out");
    json_array_foreach(list, i, replica)
    {
        told.cut |= json_object_get(replica, "members_left_out") != NULL;
        told.members += json_array_size(json_object_get(replica, "members")) +
                        number(replica, "members_left_out");
    }
    json_decref(all);
    free(text);
    return told;
}

static void what_does_not_fit_is_counted(void **state)
{
    struct dyti_session_manager m = {.job = "job"};
    size_t whole;

    (void)state;
    assert_ok(dyti_fleet_init(&m.fleet));
    for (uint32_t r = 0; r < 40; r++) {
        add(&m, DYTI_FLEET_TRAINER, 0, r, 40);
    }
    for (uint32_t i = 0; i < 60; i++) {
        add(&m, DYTI_FLEET_RECEIVER, i % 20, i / 20, 3);
    }
    fail_all(&m);
    {
        struct told all = ask(&m, 1u << 20);

        whole = all.bytes;
        assert_false(all.cut);
        assert_int_equal(100, all.members);
        assert_int_equal(20, all.replicas);
    }
    for (size_t most = 4096; most < whole + 8192; most += 997) {
        struct told told = ask(&m, most);

        if (told.bytes > most) {
            fail_msg("%zu bytes of %zu", told.bytes, most);
        }
        assert_int_equal(20, told.replicas);
        assert_true(told.cut || told.members == 100);
        assert_true(told.cut || most >= whole);
    }
    dyti_fleet_fini(&m.fleet);
}

/* Replicas go before members: 50 of 50 ranks each, of whom few are named. */
static void replicas_go_before_members(void **state)
{
    struct dyti_session_manager m = {.job = "job"};
    struct told told;

    (void)state;
    assert_ok(dyti_fleet_init(&m.fleet));
    add(&m, DYTI_FLEET_TRAINER, 0, 0, 1);
    for (uint32_t i = 0; i < 2500; i++) {
        add(&m, DYTI_FLEET_RECEIVER, i % 50, i / 50, 50);
    }
    fail_all(&m);
    told = ask(&m, 400u << 10);
    assert_true(told.cut);
    assert_true(told.bytes > 300u << 10);
    assert_int_equal(50, told.replicas);
    assert_int_equal(2501, told.members); /* so no replica is left out */
    dyti_fleet_fini(&m.fleet);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_does_not_fit_is_counted),
    cmocka_unit_test(replicas_go_before_members),
};
DYT_TEST_MAIN(tests)
