/* Prompts and answers of all rows, made once and thrown away. */
#include "cli/check_rows.h"

#include "score/score.h"

#include <stdlib.h>
#include <string.h>

static enum dyt_status check_prompt(const struct dyti_job *job,
                                    const struct dyti_data *data, uint64_t row)
{
    char *text = NULL;
    enum dyt_status st;

    if (job->data.prompt[0] == '\0' && dyti_data_messages(data, row) != NULL) {
        return strcmp(job->data.chat_template, "none") != 0
                   ? DYT_OK
                   : DYTI_FAIL(DYT_ERR_CONFIG,
                               "%s:%llu: the row holds `messages`, and "
                               "data.chat_template is \"none\": name a "
                               "template",
                               dyti_data_name(data),
                               (unsigned long long)dyti_data_line(data, row));
    }
    st = dyti_data_prompt_text(data, row, job->data.prompt, &text);
    free(text);
    return st;
}

static enum dyt_status check_answer(const struct dyti_job_reward *reward,
                                    const struct dyti_data *data, uint64_t row)
{
    char *text = NULL;
    double number;
    enum dyt_status st = dyti_data_field_text(data, row, reward->answer, &text);

    if (st == DYT_OK && reward->kind == DYTI_REWARD_NUMERIC &&
        !dyti_score_last_number(text, &number)) {
        st = DYTI_FAIL(
            DYT_ERR_FORMAT, "%s:%llu: field \"%s\" holds no number: \"%.60s\"",
            dyti_data_name(data), (unsigned long long)dyti_data_line(data, row),
            reward->answer, text);
    }
    free(text);
    if (st != DYT_OK) {
        DYTI_NOTE("looking for what the reward %s compares with", reward->name);
    }
    return st;
}

enum dyt_status dyti_check_rows(const struct dyti_job *job,
                                const struct dyti_data *data)
{
    uint64_t rows = dyti_data_rows(data);
    enum dyt_status st = DYT_OK;

    for (uint64_t row = 0; st == DYT_OK && row < rows; row++) {
        st = check_prompt(job, data, row);
        for (uint32_t i = 0; st == DYT_OK && i < job->reward_count; i++) {
            if (job->reward[i].answer[0] != '\0') {
                st = check_answer(&job->reward[i], data, row);
            }
        }
    }
    return st;
}

static enum dyt_status check_file(const struct dyti_job *job, const char *path)
{
    struct dyti_data *data = NULL;
    enum dyt_status st = dyti_data_open(path, &data);

    st = st != DYT_OK ? st : dyti_check_rows(job, data);
    dyti_data_close(data);
    return st;
}

enum dyt_status dyti_check_data(const struct dyti_job *job)
{
    enum dyt_status st = check_file(job, job->data.train);

    return st != DYT_OK || job->eval.data[0] == '\0'
               ? st
               : check_file(job, job->eval.data);
}
