/* Every state meets every event: what is on the list below happens, all else
 * is an error that names both and changes nothing. */
#include "dyt_test.h"

#include "phase/phase.h"

/* Written out once more, in the words of the picture in phase.h. */
static const char *const list[][3] = {
    {"start", "loaded", "train idle"},
    {"start", "stop", "stopping"},
    {"start", "fail", "failed"},
    {"train idle", "switch", "switching to rollout"},
    {"train idle", "train", "training"},
    {"train idle", "save", "saving"},
    {"train idle", "stop", "stopping"},
    {"train idle", "fail", "failed"},
    {"switching to rollout", "commit", "rollout idle"},
    {"switching to rollout", "abort", "train idle"},
    {"switching to rollout", "stop", "stopping"},
    {"switching to rollout", "fail", "failed"},
    {"rollout idle", "generate", "generating"},
    {"rollout idle", "switch", "switching to train"},
    {"rollout idle", "stop", "stopping"},
    {"rollout idle", "fail", "failed"},
    {"generating", "scored", "rollout idle"},
    {"generating", "stop", "stopping"},
    {"generating", "fail", "failed"},
    {"switching to train", "commit", "train idle"},
    {"switching to train", "abort", "rollout idle"},
    {"switching to train", "stop", "stopping"},
    {"switching to train", "fail", "failed"},
    {"training", "trained", "train idle"},
    {"training", "stop", "stopping"},
    {"training", "fail", "failed"},
    {"saving", "saved", "train idle"},
    {"saving", "stop", "stopping"},
    {"saving", "fail", "failed"},
    {"stopping", "ended", "stopped"},
    {"stopping", "fail", "failed"},
    {"failed", "ended", "stopped"},
};

static const char *listed(const char *state, const char *event)
{
    for (size_t i = 0; i < DYT_TEST_COUNT(list); i++) {
        if (strcmp(list[i][0], state) == 0 && strcmp(list[i][1], event) == 0) {
            return list[i][2];
        }
    }
    return NULL;
}

static void check_refused(const struct dyti_phase *before,
                          enum dyti_phase_event event)
{
    struct dyti_phase p = *before;
    bool busy =
        event == DYTI_EVENT_SWITCH &&
        (p.state == DYTI_STATE_TO_ROLLOUT || p.state == DYTI_STATE_TO_TRAIN);

    if (busy) {
        assert_status(DYT_ERR_BUSY, dyti_phase_take(&p, event, 99));
        assert_error_has("epoch 31 holds the lock");
    } else {
        assert_status(DYT_ERR_STATE, dyti_phase_take(&p, event, 99));
        assert_error_has(dyti_phase_state_name(p.state));
        assert_error_has(dyti_phase_event_name(event));
    }
    assert_int_equal(p.state, before->state);
    assert_int_equal(p.epoch, before->epoch);
    assert_int_equal(p.version, before->version);
    assert_int_equal(p.served, before->served);
    assert_int_equal(p.serving, before->serving);
}

static void every_state_meets_every_event(void **unused)
{
    size_t happened = 0;

    (void)unused;
    for (int s = 0; s < DYTI_STATE_COUNT; s++) {
        for (int e = 0; e < DYTI_EVENT_COUNT; e++) {
            struct dyti_phase p = {.state = (enum dyti_phase_state)s,
                                   .epoch = 31,
                                   .version = 12,
                                   .served = 11,
                                   .serving = true};
            enum dyti_phase_event event = (enum dyti_phase_event)e;
            const char *to = listed(dyti_phase_state_name(p.state),
                                    dyti_phase_event_name(event));

            if (to == NULL) {
                check_refused(&p, event);
                continue;
            }
            assert_ok(dyti_phase_take(&p, event, 13));
            assert_string_equal(dyti_phase_state_name(p.state), to);
            happened++;
        }
    }
    assert_int_equal(happened, DYT_TEST_COUNT(list)); /* no name is misspelt */
}

static void names_are_distinct(void **unused)
{
    (void)unused;
    for (int a = 0; a < DYTI_STATE_COUNT; a++) {
        for (int b = 0; b < a; b++) {
            assert_string_not_equal(
                dyti_phase_state_name((enum dyti_phase_state)a),
                dyti_phase_state_name((enum dyti_phase_state)b));
        }
    }
    for (int a = 0; a < DYTI_EVENT_COUNT; a++) {
        for (int b = 0; b < a; b++) {
            assert_string_not_equal(
                dyti_phase_event_name((enum dyti_phase_event)a),
                dyti_phase_event_name((enum dyti_phase_event)b));
        }
    }
    assert_string_equal(dyti_phase_state_name(DYTI_STATE_COUNT), "?");
    assert_string_equal(dyti_phase_event_name(DYTI_EVENT_COUNT), "?");
}

static void take(struct dyti_phase *p, enum dyti_phase_event event)
{
    assert_ok(dyti_phase_take(p, event, p->version));
}

/* Versions and epochs along one step of a run, an aborted switch among it. */
static void a_step_keeps_its_books(void **unused)
{
    struct dyti_phase p;

    (void)unused;
    dyti_phase_init(&p, 40);
    assert_int_equal(p.state, DYTI_STATE_START);
    take(&p, DYTI_EVENT_LOADED);
    assert_status(DYT_ERR_STATE, dyti_phase_take(&p, DYTI_EVENT_GENERATE, 0));
    assert_error_has("no weights were committed yet");
    take(&p, DYTI_EVENT_SWITCH);
    assert_int_equal(p.epoch, 1);
    assert_false(p.serving);
    take(&p, DYTI_EVENT_ABORT);
    assert_int_equal(p.state, DYTI_STATE_TRAIN_IDLE);
    assert_false(p.serving);
    take(&p, DYTI_EVENT_SWITCH);
    take(&p, DYTI_EVENT_COMMIT);
    assert_int_equal(p.epoch, 2);
    assert_true(p.serving);
    assert_int_equal(p.served, 40);
    take(&p, DYTI_EVENT_GENERATE);
    take(&p, DYTI_EVENT_SCORED);
    take(&p, DYTI_EVENT_GENERATE); /* an evaluation of its own */
    take(&p, DYTI_EVENT_SCORED);
    take(&p, DYTI_EVENT_SWITCH);
    take(&p, DYTI_EVENT_COMMIT);
    assert_int_equal(p.epoch, 3);
    take(&p, DYTI_EVENT_TRAIN);
    assert_status(DYT_ERR_STATE, dyti_phase_take(&p, DYTI_EVENT_TRAINED, 39));
    assert_error_has("version 39 after version 40");
    assert_int_equal(p.state, DYTI_STATE_TRAINING);
    assert_ok(dyti_phase_take(&p, DYTI_EVENT_TRAINED, 42));
    assert_int_equal(p.version, 42);
    assert_int_equal(p.served, 40); /* until the next commit */
    take(&p, DYTI_EVENT_SWITCH);
    take(&p, DYTI_EVENT_COMMIT);
    assert_int_equal(p.served, 42);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_state_meets_every_event),
    cmocka_unit_test(names_are_distinct),
    cmocka_unit_test(a_step_keeps_its_books),
};
DYT_TEST_MAIN(tests)
