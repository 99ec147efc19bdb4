/* Prompts of one command: words, rows of a file, or standard input. */
#include "cli/prompts.h"

#include "base/error.h"
#include "cli/read_all.h"
#include "format/data_jsonl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum dyt_status add_text(struct dyti_prompts *p, const char *shown,
                                const char *text, bool special)
{
    size_t n = p->count + 1u, ids = 0;
    struct dyti_prompt *prompt = realloc(p->prompt, n * sizeof(*prompt));
    char **texts = realloc(p->text, n * sizeof(*texts));
    enum dyt_status st;

    p->prompt = prompt != NULL ? prompt : p->prompt;
    p->text = texts != NULL ? texts : p->text;
    if (prompt == NULL || texts == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu prompts", n);
    }
    prompt[p->count] = (struct dyti_prompt){.id = p->count, .row = p->count};
    st = p->tokenizer.ops->encode(p->tokenizer.self, text, strlen(text),
                                  special, &prompt[p->count].ids, &ids);
    if (st != DYT_OK) {
        return st;
    }
    prompt[p->count].id_count = (uint32_t)ids;
    texts[p->count] = strdup(shown);
    p->count++;
    return texts[p->count - 1] != NULL ? DYT_OK
                                       : DYTI_FAIL(DYT_ERR_NOMEM, "a prompt");
}

static enum dyt_status add_prompt(struct dyti_prompts *p,
                                  const struct dyti_prompt_source *from,
                                  const char *text)
{
    struct dyti_chat_message message[2] = {
        {.role = "system", .content = from->system},
        {.role = "user", .content = text}};
    size_t skip = from->system == NULL ? 1 : 0;
    char *rendered = NULL;
    enum dyt_status st;

    if (p->chat == NULL) {
        return add_text(p, text, text, true);
    }
    st = dyti_chat_template_render(p->chat, message + skip, 2 - skip, true,
                                   &rendered);
    st = st != DYT_OK ? st : add_text(p, text, rendered, false);
    free(rendered);
    return st;
}

static enum dyt_status add_row(struct dyti_prompts *p,
                               const struct dyti_prompt_source *from,
                               const struct dyti_data *data, uint64_t row)
{
    const char *messages = dyti_data_messages(data, row);
    char *text = NULL;
    enum dyt_status st;

    if (messages != NULL) {
        if (p->chat == NULL) {
            return DYTI_FAIL(DYT_ERR_INVALID,
                             "row %llu holds `messages`: add --chat",
                             (unsigned long long)row + 1);
        }
        st = dyti_chat_template_render_json(p->chat, messages, &text);
        st = st != DYT_OK ? st : add_text(p, messages, text, false);
    } else {
        st = dyti_data_prompt_text(data, row, "", &text);
        st = st != DYT_OK ? st : add_prompt(p, from, text);
    }
    free(text);
    return st;
}

static enum dyt_status add_jsonl(struct dyti_prompts *p,
                                 const struct dyti_prompt_source *from)
{
    struct dyti_data *data = NULL;
    char *text = NULL;
    size_t bytes;
    enum dyt_status st;

    if (strcmp(from->jsonl, "-") == 0) {
        st = dyti_read_all(stdin, "standard input", &text, &bytes);
        st = st != DYT_OK
                 ? st
                 : dyti_data_parse("standard input", text, bytes, &data);
    } else {
        st = dyti_data_open(from->jsonl, &data);
    }
    free(text);
    for (uint64_t row = 0;
         st == DYT_OK && data != NULL && row < dyti_data_rows(data); row++) {
        st = add_row(p, from, data, row);
    }
    dyti_data_close(data);
    return st;
}

enum dyt_status dyti_prompts_gather(struct dyti_prompts *p,
                                    const struct dyti_prompt_source *from,
                                    const char *dir)
{
    char *text = NULL;
    size_t bytes;
    enum dyt_status st = dyti_tokenizer_open(dir, &p->tokenizer);

    if (st == DYT_OK && from->chat) {
        st = dyti_chat_template_open(
            dir, from->template_name != NULL ? from->template_name : "auto",
            &p->chat);
    }
    if (st == DYT_OK && from->jsonl != NULL) {
        st = add_jsonl(p, from);
    }
    for (int i = 0; st == DYT_OK && i < from->words; i++) {
        st = add_prompt(p, from, from->word[i]);
    }
    if (st == DYT_OK && p->count == 0) {
        st = dyti_read_all(stdin, "standard input", &text, &bytes);
        st = st != DYT_OK ? st : add_prompt(p, from, text);
        free(text);
    }
    return st;
}

void dyti_prompts_fini(struct dyti_prompts *p)
{
    for (uint32_t i = 0; i < p->count; i++) {
        dyti_prompt_fini(&p->prompt[i]);
        free(p->text[i]);
    }
    free(p->prompt);
    free(p->text);
    dyti_chat_template_close(p->chat);
    dyti_tokenizer_close(&p->tokenizer);
}
