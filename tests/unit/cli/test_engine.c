/* The manager's side of an engine that somebody else wrote: whatever it does
 * wrong is a status and a sentence, never a sample that is trained on. */
#include "cli/engine.h"
#include "dyt_test.h"

#include <poll.h>

#define SECOND 1000000000ll

static struct dyti_engine *start(const char *fault)
{
    char option[64];
    char *options[] = {option};
    struct dyti_engine_params p = {.path = DYT_ENGINE_WRONG,
                                   .option = options,
                                   .option_count = 1,
                                   .address = "unix:/nowhere",
                                   .job = "job",
                                   .model = "model",
                                   .timeout_ns = SECOND / 4};
    struct dyti_engine *e = NULL;

    snprintf(option, sizeof(option), "fault=%s", fault);
    assert_ok(dyti_engine_start(&p, &e));
    assert_ok(dyti_engine_ask_open(e));
    for (;;) { /* `option` is borrowed until then */
        struct pollfd ready = {.fd = dyti_engine_fd(e), .events = POLLIN};

        if (dyti_engine_result(e) != DYT_PENDING) {
            return e;
        }
        poll(&ready, 1, 1000);
    }
}

static enum dyt_status await(struct dyti_engine *e, enum dyt_status asked)
{
    enum dyt_status st = DYT_PENDING;

    assert_ok(asked);
    while (st == DYT_PENDING) {
        struct pollfd ready = {.fd = dyti_engine_fd(e), .events = POLLIN};

        poll(&ready, 1, 1000);
        st = dyti_engine_result(e);
    }
    return st;
}

static enum dyt_status generate(struct dyti_engine *e, uint64_t version,
                                uint32_t *out_count)
{
    static int32_t ids[2] = {5, 7};
    static const struct dyti_sampling sampling = {
        .temperature = 1.0, .top_p = 1.0, .max_response_tokens = 5};
    struct dyti_prompt prompt[2] = {{.id = 40, .ids = ids, .id_count = 2},
                                    {.id = 41, .ids = ids, .id_count = 1}};
    struct dyti_engine_generate order = {.prompt = prompt,
                                         .prompt_count = 2,
                                         .samples_per_prompt = 2,
                                         .sampling = &sampling,
                                         .version = version};
    struct dyti_sample *sample = NULL;
    int64_t first;
    enum dyt_status st = await(e, dyti_engine_ask_generate(e, &order));

    dyti_engine_take(e, &sample, out_count, &first);
    for (uint32_t i = 0; i < *out_count; i++) {
        dyti_sample_fini(&sample[i]);
    }
    free(sample);
    return st;
}

static void a_sound_engine_is_driven(void **state)
{
    struct dyti_engine *e = start("none");
    uint32_t count = 0;

    (void)state;
    assert_status(DYT_ERR_STATE, generate(e, 1, &count));
    assert_error_has("no version yet");
    for (uint64_t v = 1; v <= 3; v++) {
        assert_ok(await(e, dyti_engine_ask_update(e, v, SECOND)));
        assert_int_equal(v, dyti_engine_report(e)->version);
        assert_ok(generate(e, v, &count));
        assert_int_equal(4, count);
    }
    dyti_engine_stop(e, SECOND);
}

static void answers_that_cannot_be_are_refused(void **state)
{
    static const struct {
        const char *fault;
        enum dyt_status status;
        const char *says;
    } wrong[] = {
        {"long", DYT_ERR_FORMAT, "7 tokens, 5 were allowed"},
        {"empty", DYT_ERR_FORMAT, "no tokens"},
        {"no-token", DYT_ERR_FORMAT, "no tokens"},
        {"no-logprob", DYT_ERR_FORMAT, "no log-probabilities"},
        {"nan", DYT_ERR_FORMAT, "log-probability of token 1 is"},
        {"inf", DYT_ERR_FORMAT, "log-probability of token 1 is -inf"},
        {"positive", DYT_ERR_FORMAT, "log-probability of token 1 is 0.5"},
        {"negative", DYT_ERR_FORMAT, "token 1 is -1"},
        {"finish", DYT_ERR_FORMAT, "finish reason 9"},
        {"index", DYT_ERR_FORMAT, "sample 2 of prompt 40 was not asked for"},
        {"stranger", DYT_ERR_FORMAT, "sample 0 of prompt 999 was not asked"},
        {"twice", DYT_ERR_FORMAT, "it has come before"},
        {"no-span", DYT_ERR_FORMAT, "first token has no version"},
        {"late-span", DYT_ERR_FORMAT, "first token has no version"},
        {"spans", DYT_ERR_FORMAT, "version span 1 begins at token 0"},
        {"old", DYT_ERR_STATE, "made with version 6"},
        {"straddle", DYT_ERR_STATE, "made with version 6"},
        {"silent", DYT_ERR_TIMEOUT, "4 are missing"},
    };

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(wrong); i++) {
        struct dyti_engine *e = start(wrong[i].fault);
        uint32_t count = 0;

        assert_ok(await(e, dyti_engine_ask_update(e, 7, SECOND)));
        assert_status(wrong[i].status, generate(e, 7, &count));
        assert_error_has(wrong[i].says);
        /* what came before it stays usable, it itself is not there */
        assert_int_equal(strcmp(wrong[i].fault, "twice") == 0, count);
        dyti_engine_stop(e, SECOND);
    }
}

static void versions_that_did_not_arrive_are_said(void **state)
{
    static const struct {
        const char *fault;
        enum dyt_status status;
        const char *says;
    } wrong[] = {
        {"lower", DYT_ERR_STATE, "serves version 6 after the update to 7"},
        {"update", DYT_ERR_VERIFY, "the weights are not whole"},
        {"pause", DYT_ERR_PEER, "it goes on"},
        {"resume", DYT_ERR_PEER, "it sleeps"},
    };

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(wrong); i++) {
        struct dyti_engine *e = start(wrong[i].fault);

        assert_status(wrong[i].status,
                      await(e, dyti_engine_ask_update(e, 7, SECOND)));
        assert_error_has(wrong[i].says);
        dyti_engine_stop(e, SECOND);
    }
}

static void one_that_does_not_open_stays_closed(void **state)
{
    struct dyti_engine *e = start("open");
    uint32_t count = 0;

    (void)state;
    assert_status(DYT_ERR_DEVICE, dyti_engine_result(e));
    assert_error_has("no such server");
    assert_status(DYT_ERR_STATE, generate(e, 1, &count));
    dyti_engine_stop(e, SECOND);
}

/* ---- tables -------------------------------------------------------------- */

static void tables_that_cannot_be_driven_are_refused(void **state)
{
    static const struct {
        const char *path;
        enum dyt_status status;
        const char *says;
    } wrong[] = {
        {DYT_ENGINE_NONE, DYT_ERR_UNSUPPORTED, "the driver is too old"},
        {DYT_ENGINE_LACKS, DYT_ERR_ABI, "`update`"},
        {DYT_ENGINE_SHORT, DYT_ERR_ABI, "24 bytes"},
    };

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(wrong); i++) {
        struct dyti_engine_params p = {.path = wrong[i].path,
                                       .address = "unix:/nowhere",
                                       .job = "job",
                                       .model = "model",
                                       .timeout_ns = SECOND};
        struct dyti_engine *e = NULL;

        assert_status(wrong[i].status, dyti_engine_start(&p, &e));
        assert_error_has(wrong[i].says);
        assert_error_has(wrong[i].path);
        assert_null(e);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_sound_engine_is_driven),
    cmocka_unit_test(answers_that_cannot_be_are_refused),
    cmocka_unit_test(versions_that_did_not_arrive_are_said),
    cmocka_unit_test(one_that_does_not_open_stays_closed),
    cmocka_unit_test(tables_that_cannot_be_driven_are_refused),
};
DYT_TEST_MAIN(tests)
