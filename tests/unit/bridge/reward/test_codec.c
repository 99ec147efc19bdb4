/* What a command is told, and every way in which its answer can be wrong. */
#include "dyt_test.h"
#include "reward/codec.h"

static void requests(void **state)
{
    int32_t ids[] = {4, 5};
    struct dyti_reward_item item[] = {
        {.id = 0,
         .group = 9,
         .prompt = "p>",
         .completion = "a\nb",
         .ids = ids,
         .id_count = 2,
         .finish_reason = "stop",
         .version = 3,
         .step = 7,
         .row_json = "{\"prompt\":\"{x}>\",\"answer\":[1]}"}};
    char *text = NULL;
    size_t bytes = 0;

    (void)state;
    assert_ok(dyti_reward_request(item, 1, &text, &bytes));
    text[bytes - 1] = '\0'; /* the newline */
    assert_string_equal(
        "[{\"id\":0,\"group\":9,\"prompt\":\"p>\",\"completion\":\"a\\nb\","
        "\"completion_ids\":[4,5],\"finish_reason\":\"stop\",\"version\":3,"
        "\"step\":7,\"answer\":[1]}]",
        text);
    free(text);
    item[0].completion = "\xff";
    assert_status(DYT_ERR_FORMAT, dyti_reward_request(item, 1, &text, &bytes));
    assert_error_has("sample 0 of group 9");
}

static void answers(void **state)
{
    static const char text[] =
        "[{\"id\": 1, \"reward\": null},"
        " {\"id\": 0, \"reward\": 0.5, \"components\": {\"a\": 1, \"b\": 2.5},"
        "  \"metrics\": {\"c\": -1}, \"extra\": \"fine\"}]";
    struct dyti_reward_reply reply[2];

    (void)state;
    assert_ok(dyti_reward_answer(text, strlen(text), 2, reply));
    assert_true(reply[0].reward == 0.5 && !reply[0].dropped);
    assert_int_equal(2, reply[0].component_count);
    assert_string_equal("b", reply[0].component[1].name);
    assert_true(reply[0].component[1].value == 2.5);
    assert_int_equal(1, reply[0].metric_count);
    assert_true(reply[1].dropped && reply[1].reward == 0.0);
    for (size_t i = 0; i < 2; i++) {
        dyti_reward_reply_fini(&reply[i]);
        dyti_reward_reply_fini(&reply[i]);
    }
}

static void rubbish(void **state)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"", "no JSON list"},
        {"loading model...", "\"loading model...\""},
        {"{\"id\": 0, \"reward\": 1}", "no JSON list"},
        {"[{\"id\": 0, \"reward\": 1}", "no JSON list"},
        {"[{\"id\": 0, \"reward\": NaN}]", "no JSON list"},
        {"[1, 2]", "without an id from 0 to 1"},
        {"[{\"reward\": 1}]", "without an id"},
        {"[{\"id\": \"0\", \"reward\": 1}]", "without an id"},
        {"[{\"id\": 2, \"reward\": 1}]", "without an id from 0 to 1"},
        {"[{\"id\": -1, \"reward\": 1}]", "without an id"},
        {"[{\"id\": 0}]", "id 0: reward is missing"},
        {"[{\"id\": 0, \"reward\": \"1\"}]", "id 0: reward"},
        {"[{\"id\": 0, \"reward\": 1}]", "id 1 is not answered"},
        {"[{\"id\": 0, \"reward\": 1}, {\"id\": 0, \"reward\": 1}]",
         "id 0 is answered twice"},
        {"[{\"id\": 0, \"reward\": 1, \"reward\": 2}]", "no JSON list"},
        {"[{\"id\": 0, \"reward\": 1, \"components\": [1]}]",
         "components is no object"},
        {"[{\"id\": 0, \"reward\": 1, \"metrics\": {\"a\": \"b\"}}]",
         "metrics.a is no number"},
    };

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(bad); i++) {
        struct dyti_reward_reply reply[2];

        assert_status(
            DYT_ERR_FORMAT,
            dyti_reward_answer(bad[i].text, strlen(bad[i].text), 2, reply));
        assert_error_has(bad[i].says);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(requests),
    cmocka_unit_test(answers),
    cmocka_unit_test(rubbish),
};
DYT_TEST_MAIN(tests)
