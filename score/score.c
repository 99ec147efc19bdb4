/* A batch judged: texts made, every function asked, rewards summed. */
#include "score/report.h"

#include "base/banned.h"

#include <math.h>

struct dyti_score {
    struct dyti_score_params params;
    struct dyti_score_function *function; /* [function_count] */
    void **pattern; /* [function_count], NULL where not a pattern */
    void **command; /* [function_count], NULL where not a command */
};

/* What one call works on. */
struct judging {
    struct dyti_score *score;
    uint64_t step;
    const struct dyti_score_rows *rows;
    struct dyti_batch *batch;
    struct dyti_score_report *report;
    char **text;   /* [sample_count] completions */
    char **prompt; /* [prompt_count], NULL unless a command asks */
    double *value; /* [function_count * sample_count] */
    bool *dropped; /* [sample_count] */
};

/* ---- create, destroy ---------------------------------------------------- */

void dyti_score_destroy(struct dyti_score *score)
{
    if (score == NULL) {
        return;
    }
    for (uint32_t f = 0; f < score->params.function_count; f++) {
        if (score->pattern != NULL && score->pattern[f] != NULL) {
            score->params.ops->pattern_close(score->pattern[f]);
        }
        if (score->command != NULL && score->command[f] != NULL) {
            score->params.ops->command_close(score->command[f]);
        }
    }
    free(score->pattern);
    free(score->command);
    free(score->function);
    free(score);
}

static enum dyt_status open_function(struct dyti_score *score, uint32_t f)
{
    const struct dyti_score_function *function = &score->function[f];
    const struct dyti_reward_ops *ops = score->params.ops;
    const struct dyti_reward_command command = {.argv = function->command,
                                                .argc = function->command_count,
                                                .deadline = function->deadline,
                                                .watch = score->params.watch};
    enum dyt_status st;

    if (function->kind != DYTI_SCORE_REGEX &&
        function->kind != DYTI_SCORE_COMMAND) {
        return DYT_OK;
    }
    if (ops == NULL) {
        return DYTI_FAIL(DYT_ERR_STATE,
                         "reward %s needs patterns or commands, and this "
                         "program was built without",
                         function->name);
    }
    st = function->kind == DYTI_SCORE_REGEX
             ? ops->pattern_open(function->pattern, function->ignore_case,
                                 &score->pattern[f])
             : ops->command_open(&command, &score->command[f]);
    if (st != DYT_OK) {
        DYTI_NOTE("starting reward %s", function->name);
    }
    return st;
}

enum dyt_status dyti_score_create(const struct dyti_score_params *params,
                                  struct dyti_score **out_score)
{
    struct dyti_score *score = calloc(1, sizeof(*score));
    uint32_t count = params->function_count;
    enum dyt_status st = DYT_OK;

    if (score == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "score");
    }
    score->params = *params;
    score->function = calloc(count + 1u, sizeof(*score->function));
    score->pattern = calloc(count + 1u, sizeof(void *));
    score->command = calloc(count + 1u, sizeof(void *));
    if (score->function == NULL || score->pattern == NULL ||
        score->command == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "%u reward functions", count);
    }
    for (uint32_t f = 0; f < count && st == DYT_OK; f++) {
        score->function[f] = params->function[f];
        st = open_function(score, f);
    }
    if (st != DYT_OK) {
        dyti_score_destroy(score);
        return st;
    }
    score->params.function = score->function;
    *out_score = score;
    return DYT_OK;
}

/* ---- texts -------------------------------------------------------------- */

static enum dyt_status decode(const struct judging *j, const int32_t *ids,
                              uint32_t count, bool skip_special, char **out)
{
    const struct dyti_tokenizer *t = &j->score->params.tokenizer;
    size_t bytes = 0;
    char *text = NULL;
    enum dyt_status st;

    st = t->ops->decode(t->self, ids, count, skip_special, &text, &bytes);
    if (st != DYT_OK) {
        return st;
    }
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '\0') {
            text[i] = ' '; /* functions take texts that end in one NUL */
        }
    }
    *out = text;
    return DYT_OK;
}

static bool has_command(const struct dyti_score *score)
{
    for (uint32_t f = 0; f < score->params.function_count; f++) {
        if (score->command[f] != NULL) {
            return true;
        }
    }
    return false;
}

static enum dyt_status make_texts(struct judging *j)
{
    const struct dyti_batch *batch = j->batch;
    enum dyt_status st = DYT_OK;

    for (uint32_t i = 0; i < batch->sample_count && st == DYT_OK; i++) {
        const struct dyti_sample *s = &batch->sample[i];

        if (dyti_batch_prompt(batch, s->prompt) == NULL) {
            return DYTI_FAIL(DYT_ERR_INVALID,
                             "sample %u of prompt %llu has no prompt in its "
                             "batch",
                             s->index, (unsigned long long)s->prompt);
        }
        st = decode(j, s->ids, s->count, true, &j->text[i]);
    }
    for (uint32_t i = 0;
         i < batch->prompt_count && st == DYT_OK && has_command(j->score);
         i++) {
        st = decode(j, batch->prompt[i].ids, batch->prompt[i].id_count, false,
                    &j->prompt[i]);
    }
    return st;
}

/* ---- functions of text -------------------------------------------------- */

static enum dyt_status match_pattern(const struct judging *j, uint32_t f,
                                     const char *text, const char *answer,
                                     double *out)
{
    const struct dyti_score_function *function = &j->score->function[f];
    bool found = false;
    size_t lo = 0, hi = 0;
    char *part;
    enum dyt_status st;

    st = j->score->params.ops->pattern_search(j->score->pattern[f], text,
                                              strlen(text), &found, &lo, &hi);
    if (st != DYT_OK) {
        return st;
    }
    if (!found || answer == NULL) {
        *out = found ? 1.0 : 0.0;
        return DYT_OK;
    }
    part = strndup(text + lo, hi - lo);
    if (part == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "reward %s", function->name);
    }
    *out = dyti_score_exact(part, answer, function->ignore_case);
    free(part);
    return DYT_OK;
}

static enum dyt_status match_number(const struct dyti_score_function *function,
                                    uint64_t row, const char *text,
                                    const char *answer, double *out)
{
    double want, have;

    if (!dyti_score_last_number(answer, &want)) {
        return DYTI_FAIL(DYT_ERR_FORMAT,
                         "reward %s: field \"%s\" of data row %llu holds no "
                         "number: \"%.60s\"",
                         function->name, function->answer,
                         (unsigned long long)row + 1, answer);
    }
    *out = dyti_score_last_number(text, &have) &&
                   fabs(have - want) <= function->tolerance
               ? 1.0
               : 0.0;
    return DYT_OK;
}

static enum dyt_status judge_text(const struct judging *j, uint32_t f,
                                  uint64_t row, const char *text,
                                  const char *answer, double *out)
{
    const struct dyti_score_function *function = &j->score->function[f];

    switch (function->kind) {
    case DYTI_SCORE_EXACT:
        *out = dyti_score_exact(text, answer, function->ignore_case);
        return DYT_OK;
    case DYTI_SCORE_POSITION_MATCH:
        *out = dyti_score_position_match(text, answer, function->ignore_case);
        return DYT_OK;
    case DYTI_SCORE_NUMERIC:
        return match_number(function, row, text, answer, out);
    default:
        return match_pattern(j, f, text, answer, out);
    }
}

/* Samples follow each other by prompt: the answer is asked for once a group. */
static enum dyt_status judge_texts(struct judging *j, uint32_t f)
{
    const struct dyti_score_function *function = &j->score->function[f];
    const struct dyti_batch *batch = j->batch;
    bool asks = function->answer != NULL && function->answer[0] != '\0';
    char *answer = NULL;
    enum dyt_status st = DYT_OK;

    for (uint32_t i = 0; i < batch->sample_count && st == DYT_OK; i++) {
        const struct dyti_sample *s = &batch->sample[i];
        uint64_t row = dyti_batch_prompt(batch, s->prompt)->row;

        if (asks && (i == 0 || batch->sample[i - 1].prompt != s->prompt)) {
            free(answer);
            answer = NULL;
            st = j->rows->field_text(j->rows->self, row, function->answer,
                                     &answer);
        }
        if (st == DYT_OK) {
            st = judge_text(j, f, row, j->text[i], answer,
                            &j->value[(size_t)f * batch->sample_count + i]);
        }
    }
    free(answer);
    return st;
}

/* ---- commands ----------------------------------------------------------- */

static void make_item(const struct judging *j, uint32_t i,
                      struct dyti_reward_item *item)
{
    const struct dyti_sample *s = &j->batch->sample[i];
    const struct dyti_prompt *p = dyti_batch_prompt(j->batch, s->prompt);

    *item = (struct dyti_reward_item){
        .id = i,
        .group = s->prompt,
        .prompt = j->prompt[p - j->batch->prompt],
        .completion = j->text[i],
        .ids = s->ids,
        .id_count = s->count,
        .finish_reason = dyti_finish_name(s->finish),
        .version = s->span_count == 0 ? 0 : s->span[s->span_count - 1].version,
        .step = j->step,
        .row_json = j->rows->row_json(j->rows->self, p->row)};
}

static enum dyt_status take_reply(struct judging *j, uint32_t f, uint32_t i,
                                  const struct dyti_reward_reply *reply)
{
    const char *name = j->score->function[f].name;
    enum dyt_status st = DYT_OK;

    j->value[(size_t)f * j->batch->sample_count + i] = reply->reward;
    j->dropped[i] = j->dropped[i] || reply->dropped;
    for (uint32_t c = 0;
         c < reply->component_count && st == DYT_OK && j->report != NULL; c++) {
        st = dyti_report_component(j->report, name, reply->component[c].name,
                                   reply->component[c].value);
    }
    for (uint32_t m = 0;
         m < reply->metric_count && st == DYT_OK && j->report != NULL; m++) {
        st = dyti_report_metric(j->report, name, reply->metric[m].name,
                                reply->metric[m].value);
    }
    return st;
}

static enum dyt_status judge_command(struct judging *j, uint32_t f)
{
    uint32_t count = j->batch->sample_count;
    struct dyti_reward_item *item = calloc(count + 1u, sizeof(*item));
    struct dyti_reward_reply *reply = calloc(count + 1u, sizeof(*reply));
    enum dyt_status st = DYT_OK;

    if (item == NULL || reply == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "%u items to judge", count);
        goto out;
    }
    for (uint32_t i = 0; i < count; i++) {
        make_item(j, i, &item[i]);
    }
    st = j->score->params.ops->command_judge(j->score->command[f], item, count,
                                             reply);
    if (st != DYT_OK) {
        DYTI_NOTE("asking reward %s", j->score->function[f].name);
        goto out;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (st == DYT_OK) {
            st = take_reply(j, f, i, &reply[i]);
        }
        dyti_reward_reply_fini(&reply[i]);
    }
out:
    free(item);
    free(reply);
    return st;
}

/* ---- sums --------------------------------------------------------------- */

static enum dyt_status sum_sample(struct judging *j, uint32_t i)
{
    const struct dyti_score_params *params = &j->score->params;
    struct dyti_sample *s = &j->batch->sample[i];
    double penalty =
        dyti_score_overlong(s->count, params->max_response_tokens,
                            params->overlong_buffer, params->overlong_factor);
    double reward = -penalty;
    bool exact = true;
    enum dyt_status st = DYT_OK;

    for (uint32_t f = 0; f < params->function_count && !j->dropped[i]; f++) {
        double value = j->value[(size_t)f * j->batch->sample_count + i];

        reward += params->function[f].weight * value;
        exact = exact && value >= 1.0;
        if (j->report != NULL && st == DYT_OK) {
            st = dyti_report_component(j->report, params->function[f].name,
                                       NULL, value);
        }
    }
    if (j->report != NULL && !j->dropped[i] && params->overlong_buffer != 0 &&
        st == DYT_OK) {
        st = dyti_report_component(j->report, "overlong", NULL, -penalty);
    }
    s->dropped = j->dropped[i];
    s->reward = j->dropped[i] ? 0.0f : (float)reward;
    if (j->report != NULL) {
        j->report->exact += exact && !j->dropped[i];
    }
    return st;
}

static void report_groups(const struct judging *j)
{
    const struct dyti_batch *batch = j->batch;
    uint32_t first = 0;

    for (uint32_t i = 1; i <= batch->sample_count && j->report != NULL; i++) {
        if (i == batch->sample_count ||
            batch->sample[i].prompt != batch->sample[first].prompt) {
            dyti_report_group(j->report, &batch->sample[first], i - first);
            first = i;
        }
    }
}

static enum dyt_status judge_all(struct judging *j)
{
    enum dyt_status st = make_texts(j);

    for (uint32_t f = 0; f < j->score->params.function_count && st == DYT_OK;
         f++) {
        st = j->score->function[f].kind == DYTI_SCORE_COMMAND
                 ? judge_command(j, f)
                 : judge_texts(j, f);
    }
    for (uint32_t i = 0; i < j->batch->sample_count && st == DYT_OK; i++) {
        st = sum_sample(j, i);
    }
    if (st == DYT_OK) {
        report_groups(j);
    }
    return st;
}

enum dyt_status dyti_score_judge(struct dyti_score *score, uint64_t step,
                                 const struct dyti_score_rows *rows,
                                 struct dyti_batch *batch,
                                 struct dyti_score_report *report,
                                 char **out_text)
{
    size_t samples = batch->sample_count;
    struct judging j = {.score = score,
                        .step = step,
                        .rows = rows,
                        .batch = batch,
                        .report = report};
    enum dyt_status st;

    j.text = calloc(samples + 1, sizeof(*j.text));
    j.prompt = calloc(batch->prompt_count + 1u, sizeof(*j.prompt));
    j.value =
        calloc(score->params.function_count * samples + 1, sizeof(*j.value));
    j.dropped = calloc(samples + 1, sizeof(*j.dropped));
    st = j.text == NULL || j.prompt == NULL || j.value == NULL ||
                 j.dropped == NULL
             ? DYTI_FAIL(DYT_ERR_NOMEM, "%zu samples to judge", samples)
             : judge_all(&j);
    for (size_t i = 0; i < samples && j.text != NULL; i++) {
        if (st == DYT_OK && out_text != NULL) {
            out_text[i] = j.text[i];
        } else {
            free(j.text[i]);
        }
    }
    for (size_t i = 0; i < batch->prompt_count && j.prompt != NULL; i++) {
        free(j.prompt[i]);
    }
    free(j.text);
    free(j.prompt);
    free(j.value);
    free(j.dropped);
    return st;
}
