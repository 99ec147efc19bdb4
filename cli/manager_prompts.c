/* Rows of the data as prompts: text, chat template, tokens, length. */
#include "cli/manager.h"

#include <stdlib.h>
#include <string.h>

/* The row's text, through the chat template where there is one. */
static enum dyt_status row_text(struct dyti_manager *m,
                                const struct dyti_data *data, uint64_t row,
                                char **out_text)
{
    const char *messages = dyti_data_messages(data, row);
    char *text = NULL;
    enum dyt_status st;

    if (messages != NULL && m->job->data.prompt[0] == '\0') {
        if (m->chat == NULL) {
            return DYTI_FAIL(DYT_ERR_STATE,
                             "%s:%llu: a chat without a template",
                             dyti_data_name(data),
                             (unsigned long long)dyti_data_line(data, row));
        }
        return dyti_chat_template_render_json(m->chat, messages, out_text);
    }
    st = dyti_data_prompt_text(data, row, m->job->data.prompt, &text);
    if (st != DYT_OK || m->chat == NULL) {
        *out_text = text;
        return st;
    }
    {
        struct dyti_chat_message one = {.role = "user", .content = text};

        st = dyti_chat_template_render(m->chat, &one, 1, true, out_text);
    }
    free(text);
    return st;
}

/* Too long: dropped, refused or cut, as data.overlong_prompt says. */
static enum dyt_status fit_prompt(struct dyti_manager *m,
                                  const struct dyti_data *data,
                                  struct dyti_prompt *p, bool *out_dropped)
{
    uint32_t most = m->job->data.max_prompt_tokens;

    *out_dropped = false;
    if (p->id_count <= most) {
        return DYT_OK;
    }
    m->overlong_prompts++;
    switch (m->job->data.overlong_prompt) {
    case DYTI_PROMPT_DROP:
        *out_dropped = true;
        return DYT_OK;
    case DYTI_PROMPT_TRUNCATE_LEFT:
        memmove(p->ids, p->ids + (p->id_count - most), most * sizeof(*p->ids));
        p->id_count = most;
        return DYT_OK;
    default:
        return DYTI_FAIL(
            DYT_ERR_CONFIG,
            "%s:%llu: the prompt has %u tokens and "
            "data.max_prompt_tokens is %u: raise it, or set "
            "data.overlong_prompt to \"drop\" or \"truncate_left\"",
            dyti_data_name(data),
            (unsigned long long)dyti_data_line(data, p->row), p->id_count,
            most);
    }
}

enum dyt_status dyti_manager_prompt(struct dyti_manager *m,
                                    const struct dyti_data *data, uint64_t row,
                                    struct dyti_prompt *out_prompt,
                                    bool *out_dropped)
{
    struct dyti_prompt p = {.row = row};
    size_t count = 0;
    char *text = NULL;
    enum dyt_status st = row_text(m, data, row, &text);

    if (st == DYT_OK) {
        /* A chat template writes its special tokens itself. */
        st = m->tokenizer.ops->encode(m->tokenizer.self, text, strlen(text),
                                      m->chat == NULL, &p.ids, &count);
    }
    free(text);
    if (st == DYT_OK && (count == 0 || count > UINT32_MAX)) {
        st = DYTI_FAIL(DYT_ERR_CONFIG, "%s:%llu: the prompt is empty",
                       dyti_data_name(data),
                       (unsigned long long)dyti_data_line(data, row));
    }
    if (st == DYT_OK) {
        p.id_count = (uint32_t)count;
        st = fit_prompt(m, data, &p, out_dropped);
    }
    if (st != DYT_OK || *out_dropped) {
        dyti_prompt_fini(&p);
    }
    *out_prompt = p;
    return st;
}

/* A prompt has at most one token a byte, and those that a tokenizer puts around
 * it: shorter rows need not be looked at. */
#define AROUND_MOST 8u

static bool may_be_long(struct dyti_manager *m, uint64_t row,
                        enum dyt_status *out_status)
{
    char *text = NULL;
    bool is_long;

    *out_status = row_text(m, m->train, row, &text);
    is_long = *out_status == DYT_OK &&
              strlen(text) + AROUND_MOST > m->job->data.max_prompt_tokens;
    free(text);
    return is_long;
}

enum dyt_status dyti_manager_check_prompts(struct dyti_manager *m)
{
    uint64_t rows = dyti_data_rows(m->train);
    enum dyt_status st = DYT_OK;

    if (m->job->data.overlong_prompt != DYTI_PROMPT_ERROR) {
        return DYT_OK;
    }
    for (uint64_t row = 0; st == DYT_OK && row < rows; row++) {
        struct dyti_prompt prompt = {0};
        bool dropped;

        if (may_be_long(m, row, &st)) {
            st = dyti_manager_prompt(m, m->train, row, &prompt, &dropped);
            dyti_prompt_fini(&prompt);
        }
    }
    return st;
}
