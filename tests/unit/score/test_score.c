/* Batches: weights, groups, dropped samples, reports, and rows that lack what
 * a function asks for.  Tokens are characters; commands are a table. */
#include "dyt_test.h"
#include "score/score.h"

#include <math.h>

/* ---- the outside -------------------------------------------------------- */

static enum dyt_status decode(void *self, const int32_t *ids, size_t count,
                              bool skip_special, char **out_text,
                              size_t *out_bytes)
{
    char *text = malloc(count + 1);
    size_t used = 0;

    (void)self;
    assert_non_null(text);
    for (size_t i = 0; i < count; i++) {
        if (ids[i] != 0 || !skip_special) { /* 0 is the one special token */
            text[used++] = (char)(ids[i] == 0 ? '$' : ids[i]);
        }
    }
    text[used] = '\0';
    *out_text = text;
    *out_bytes = used;
    return DYT_OK;
}

static const struct dyti_tokenizer_ops tokenizer_ops = {
    .struct_size = sizeof(struct dyti_tokenizer_ops),
    .name = "characters",
    .decode = decode};

static int fields_asked;

static enum dyt_status field_text(void *self, uint64_t row, const char *field,
                                  char **out_text)
{
    static const char *const answer[] = {"ab", "7", "no"};

    (void)self;
    fields_asked++;
    if (strcmp(field, "y") != 0) {
        return DYTI_FAIL(DYT_ERR_FORMAT, "t.jsonl:%d: no field %s",
                         (int)row + 1, field);
    }
    *out_text = strdup(answer[row]);
    return DYT_OK;
}

static const char *row_json(void *self, uint64_t row)
{
    (void)self;
    (void)row;
    return "{}";
}

static const struct dyti_score_rows rows = {NULL, field_text, row_json};

static int commands_open;

static enum dyt_status command_open(const struct dyti_reward_command *params,
                                    void **out_command)
{
    if (params->argc == 0) {
        return DYTI_FAIL(DYT_ERR_CONFIG, "no program");
    }
    commands_open++;
    *out_command = &commands_open;
    return DYT_OK;
}

static void command_close(void *command)
{
    assert_ptr_equal(&commands_open, command);
    commands_open--;
}

/* Tokens, and null for a completion of "x". */
static enum dyt_status command_judge(void *command,
                                     const struct dyti_reward_item *item,
                                     size_t count,
                                     struct dyti_reward_reply *reply)
{
    (void)command;
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(i, item[i].id);
        assert_string_equal("p$>", item[i].prompt);
        assert_string_equal("{}", item[i].row_json);
        reply[i] = (struct dyti_reward_reply){0};
        reply[i].dropped = strcmp(item[i].completion, "x") == 0;
        reply[i].reward = reply[i].dropped ? 0.0 : (double)item[i].id_count;
        reply[i].component = calloc(1, sizeof(*reply[i].component));
        assert_non_null(reply[i].component);
        reply[i].component[0].name = strdup("part");
        reply[i].component[0].value = 2.0;
        reply[i].component_count = 1;
    }
    return DYT_OK;
}

static const struct dyti_reward_ops reward_ops = {
    .struct_size = sizeof(struct dyti_reward_ops),
    .name = "table",
    .command_open = command_open,
    .command_close = command_close,
    .command_judge = command_judge};

/* ---- batches ------------------------------------------------------------ */

/* Prompt `p` of row `p` with two samples each. */
static struct dyti_batch make_batch(const char *const *text, uint32_t prompts)
{
    struct dyti_batch batch = {0};

    batch.prompt = calloc(prompts, sizeof(*batch.prompt));
    batch.sample = calloc(prompts * 2u, sizeof(*batch.sample));
    assert_true(batch.prompt != NULL && batch.sample != NULL);
    for (uint32_t p = 0; p < prompts; p++) {
        struct dyti_prompt *prompt = &batch.prompt[p];

        prompt->id = 10 + p;
        prompt->row = p;
        prompt->ids = calloc(3, sizeof(int32_t));
        assert_non_null(prompt->ids);
        prompt->ids[0] = 'p';
        prompt->ids[2] = '>';
        prompt->id_count = 3;
        for (uint32_t i = 0; i < 2; i++) {
            const char *t = text[2 * p + i];
            struct dyti_sample *s = &batch.sample[2 * p + i];
            uint32_t count = (uint32_t)strlen(t);

            s->prompt = prompt->id;
            s->index = i;
            assert_ok(dyti_sample_reserve(s, count + 1));
            for (uint32_t c = 0; c < count; c++) {
                s->ids[c] = t[c];
            }
            s->ids[count] = 0; /* the end token: not in the text */
            s->count = count + 1;
        }
    }
    batch.prompt_count = prompts;
    batch.sample_count = 2 * prompts;
    return batch;
}

static struct dyti_score *create(const struct dyti_score_function *function,
                                 uint32_t count)
{
    struct dyti_score_params params = {.function = function,
                                       .function_count = count,
                                       .tokenizer = {&tokenizer_ops, NULL},
                                       .ops = &reward_ops,
                                       .max_response_tokens = 4};
    struct dyti_score *score = NULL;

    assert_ok(dyti_score_create(&params, &score));
    return score;
}

static double mean_of(const struct dyti_score_report *report, const char *name)
{
    for (uint32_t i = 0; i < report->component_count; i++) {
        if (strcmp(report->component[i].name, name) == 0) {
            return report->component[i].sum /
                   (double)report->component[i].count;
        }
    }
    fail_msg("no component %s", name);
    return 0;
}

static void weighted_sums(void **state)
{
    static const struct dyti_score_function function[] = {
        {.kind = DYTI_SCORE_EXACT, .name = "e", .weight = 2, .answer = "y"},
        {.kind = DYTI_SCORE_POSITION_MATCH,
         .name = "p",
         .weight = -1,
         .answer = "y"}};
    static const char *const text[] = {"ab", "aX", "7", "7"};
    struct dyti_score *score = create(function, 2);
    struct dyti_batch batch = make_batch(text, 2);
    struct dyti_score_report report = {0};
    char *out[4] = {NULL};

    (void)state;
    fields_asked = 0;
    assert_ok(dyti_score_judge(score, 1, &rows, &batch, &report, out));
    assert_true(batch.sample[0].reward == 1.0f);
    assert_true(batch.sample[1].reward == -0.5f);
    assert_true(batch.sample[2].reward == 1.0f);
    assert_int_equal(4, fields_asked); /* once for each group and function */
    assert_string_equal("aX", out[1]);
    assert_int_equal(4, report.samples);
    assert_int_equal(3, report.exact);
    assert_int_equal(2, report.groups);
    assert_int_equal(1, report.zero_std);
    assert_true(mean_of(&report, "e") == 0.75);
    assert_true(mean_of(&report, "p") == 0.875);
    assert_true(fabs(dyti_score_report_mean(&report) - 0.625) < 1e-12);
    /* a second call adds to it */
    assert_ok(dyti_score_judge(score, 1, &rows, &batch, &report, NULL));
    assert_int_equal(8, report.samples);
    assert_true(mean_of(&report, "e") == 0.75);
    for (size_t i = 0; i < 4; i++) {
        free(out[i]);
    }
    dyti_score_report_fini(&report);
    dyti_score_report_fini(&report);
    dyti_batch_fini(&batch);
    dyti_score_destroy(score);
    dyti_score_destroy(NULL);
}

static void commands_drop_and_report(void **state)
{
    static char *argv[] = {(char *)(uintptr_t) "judge"};
    static const struct dyti_score_function function[] = {
        {.kind = DYTI_SCORE_COMMAND,
         .name = "c",
         .weight = 0.5,
         .command = argv,
         .command_count = 1}};
    static const char *const text[] = {"abc", "x"};
    struct dyti_score *score = create(function, 1);
    struct dyti_batch batch = make_batch(text, 1);
    struct dyti_score_report report = {0};

    (void)state;
    assert_ok(dyti_score_judge(score, 1, &rows, &batch, &report, NULL));
    assert_true(batch.sample[0].reward == 2.0f && !batch.sample[0].dropped);
    assert_true(batch.sample[1].reward == 0.0f && batch.sample[1].dropped);
    assert_int_equal(1, report.samples);
    assert_int_equal(1, report.dropped);
    assert_true(mean_of(&report, "c") == 4.0);
    assert_true(mean_of(&report, "c/part") == 2.0);
    dyti_score_report_fini(&report);
    dyti_batch_fini(&batch);
    assert_int_equal(1, commands_open);
    dyti_score_destroy(score);
    assert_int_equal(0, commands_open);
}

static void numbers_and_missing_answers(void **state)
{
    static const struct dyti_score_function number[] = {
        {.kind = DYTI_SCORE_NUMERIC,
         .name = "n",
         .weight = 1,
         .answer = "y",
         .tolerance = 0.5}};
    static const struct dyti_score_function missing[] = {
        {.kind = DYTI_SCORE_EXACT, .name = "e", .weight = 1, .answer = "z"}};
    static const char *const text[] = {"1", "2", "is 6.5", "6", "1", "1"};
    struct dyti_score *score = create(number, 1);
    struct dyti_batch batch = make_batch(text, 3);

    (void)state;
    assert_status(DYT_ERR_FORMAT,
                  dyti_score_judge(score, 1, &rows, &batch, NULL, NULL));
    assert_error_has("reward n: field \"y\" of data row 1 holds no number: "
                     "\"ab\"");
    batch.prompt[0].row = batch.prompt[2].row = 1;
    assert_ok(dyti_score_judge(score, 1, &rows, &batch, NULL, NULL));
    assert_true(batch.sample[2].reward == 1.0f);
    assert_true(batch.sample[3].reward == 0.0f);
    dyti_score_destroy(score);
    score = create(missing, 1);
    assert_status(DYT_ERR_FORMAT,
                  dyti_score_judge(score, 1, &rows, &batch, NULL, NULL));
    assert_error_has("t.jsonl:2: no field z");
    batch.sample[5].prompt = 99;
    assert_status(DYT_ERR_INVALID,
                  dyti_score_judge(score, 1, &rows, &batch, NULL, NULL));
    assert_error_has("prompt 99");
    dyti_score_destroy(score);
    dyti_batch_fini(&batch);
}

static void long_answers_cost(void **state)
{
    static const struct dyti_score_function function[] = {
        {.kind = DYTI_SCORE_EXACT, .name = "e", .weight = 1, .answer = "y"}};
    static const char *const text[] = {"ab", "abc"};
    struct dyti_score_params params = {.function = function,
                                       .function_count = 1,
                                       .tokenizer = {&tokenizer_ops, NULL},
                                       .overlong_buffer = 2,
                                       .overlong_factor = 0.5,
                                       .max_response_tokens = 4};
    struct dyti_score *score = NULL;
    struct dyti_batch batch = make_batch(text, 1);
    struct dyti_score_report report = {0};

    (void)state;
    assert_ok(dyti_score_create(&params, &score));
    assert_ok(dyti_score_judge(score, 1, &rows, &batch, &report, NULL));
    assert_true(batch.sample[0].reward == 0.75f); /* 3 tokens */
    assert_true(batch.sample[1].reward == -0.5f); /* 4 tokens */
    assert_true(mean_of(&report, "overlong") == -0.375);
    dyti_score_report_fini(&report);
    dyti_score_destroy(score);
    dyti_batch_fini(&batch);
}

static void what_cannot_start(void **state)
{
    static const struct dyti_score_function function[] = {
        {.kind = DYTI_SCORE_COMMAND, .name = "c", .weight = 1}};
    struct dyti_score_params params = {.function = function,
                                       .function_count = 1,
                                       .tokenizer = {&tokenizer_ops, NULL}};
    struct dyti_score *score = NULL;

    (void)state;
    assert_status(DYT_ERR_STATE, dyti_score_create(&params, &score));
    params.ops = &reward_ops;
    assert_status(DYT_ERR_CONFIG, dyti_score_create(&params, &score));
    assert_error_has("starting reward c");
    assert_null(score);
}

static void empty_batches(void **state)
{
    static const struct dyti_score_function function[] = {
        {.kind = DYTI_SCORE_EXACT, .name = "e", .weight = 1, .answer = "y"}};
    struct dyti_score *score = create(function, 1);
    struct dyti_batch batch = {0};
    struct dyti_score_report report = {0};

    (void)state;
    assert_ok(dyti_score_judge(score, 1, &rows, &batch, &report, NULL));
    assert_int_equal(0, report.samples);
    assert_true(dyti_score_report_mean(&report) == 0.0);
    dyti_score_destroy(score);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(weighted_sums),
    cmocka_unit_test(commands_drop_and_report),
    cmocka_unit_test(numbers_and_missing_answers),
    cmocka_unit_test(long_answers_cost),
    cmocka_unit_test(what_cannot_start),
    cmocka_unit_test(empty_batches),
};
DYT_TEST_MAIN(tests)
