/* The built-in chat templates: a table of names, hashes and writers. */
#ifndef DYTI_FORMAT_CHAT_BUILTIN_H
#define DYTI_FORMAT_CHAT_BUILTIN_H

#include "format/chat_template.h"

#include <stdint.h>

/* Text that grows; st is the first error, after which nothing is added. */
struct dyti_chat_text {
    char *text; /* [bytes + 1] */
    size_t bytes, cap;
    enum dyt_status st;
};
void dyti_chat_put(struct dyti_chat_text *to, const char *text);
void dyti_chat_put_bytes(struct dyti_chat_text *to, const char *text,
                         size_t bytes);

/* What a writer gets. */
struct dyti_chat_job {
    const struct dyti_chat_message *message; /* [count] */
    size_t count;
    bool add_generation_prompt;
    const char *bos, *eos; /* "" where the model has none */
    const char *date;      /* "26 Jul 2024": today */
};

struct dyti_chat_builtin;
typedef void (*dyti_chat_write_fn)(const struct dyti_chat_builtin *row,
                                   const struct dyti_chat_job *job,
                                   struct dyti_chat_text *to);

#define DYTI_MOST_CHAT_HASHES 6u

struct dyti_chat_builtin {
    const char *name;
    dyti_chat_write_fn write;
    const char *system; /* default system prompt or fixed date; NULL = none */
    /* Of the templates' texts (dyti_chat_template_hash), 0 = free. */
    uint64_t hash[DYTI_MOST_CHAT_HASHES];
    bool bos;      /* begins with BOS */
    bool no_think; /* the generation prompt closes an empty thought */
    /* Mistral: how a user's turn and an answer are wrapped. */
    const char *open, *close, *before_answer, *after_answer;
    /* … a system prompt joins the first / last user's turn, or is a turn. */
    enum {
        DYTI_SYSTEM_NONE,
        DYTI_SYSTEM_FIRST,
        DYTI_SYSTEM_LAST,
        DYTI_SYSTEM_TURN
    } system_place;
    const char *system_open;
};

/* NULL behind the last. */
const struct dyti_chat_builtin *dyti_chat_builtin_at(size_t index);

/* Hash of a template's text; one newline at its end does not count, as Jinja
 * drops it. */
uint64_t dyti_chat_template_hash(const char *text);

#endif /* DYTI_FORMAT_CHAT_BUILTIN_H */
