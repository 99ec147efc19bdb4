/* Chat templates: messages → the text that the model was trained to see.
 * A model's own template (Jinja) is not run: it is recognised by its hash and
 * reproduced by code of ours; what is not recognised is refused by name.
 * in: a model directory   out: text for ops/tokenizer.h (without add_special:
 * the template writes BOS itself)
 * Threads: an open template may be used by several threads at once. */
#ifndef DYTI_FORMAT_CHAT_TEMPLATE_H
#define DYTI_FORMAT_CHAT_TEMPLATE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

struct dyti_chat_message {
    const char *role; /* "system", "user", "assistant" */
    const char *content;
};

struct dyti_chat_template; /* opaque */

/**
 * Find the template of a model.
 *   choice  "auto": chat_template.jinja, or chat_template of
 *           tokenizer_config.json; a model without one has "none".
 *           "none": no template.  Otherwise the name of a built-in one.
 * @return DYT_ERR_UNSUPPORTED  the model's template is not known, with its
 *                              hash and the list of names
 * @return DYT_ERR_INVALID      no built-in of that name, with the list
 * @return DYT_ERR_FORMAT, DYT_ERR_IO, DYT_ERR_NOMEM
 */
enum dyt_status dyti_chat_template_open(const char *dir, const char *choice,
                                        struct dyti_chat_template **out);
void dyti_chat_template_close(struct dyti_chat_template *chat);

/* "none" or the name of a built-in one.  Static. */
const char *dyti_chat_template_name(const struct dyti_chat_template *chat);

/* Names of the built-in ones, NULL behind the last. */
const char *dyti_chat_template_builtin(size_t index);

/**
 * Write the messages as the model's template does, default system prompt
 * included.  *out_text is malloc'ed, NUL-terminated.
 *   add_generation_prompt  end with the beginning of an answer
 * @return DYT_ERR_STATE    the template is "none"
 * @return DYT_ERR_INVALID  no messages, a role or an order of roles that the
 *                          template does not have
 */
enum dyt_status dyti_chat_template_render(
    const struct dyti_chat_template *chat,
    const struct dyti_chat_message *message, size_t count,
    bool add_generation_prompt, char **out_text);

/* The same for a chat as JSON (a list of {role, content}), with the generation
 * prompt.  DYT_ERR_FORMAT: it is no such list; the text says which message. */
enum dyt_status dyti_chat_template_render_json(
    const struct dyti_chat_template *chat, const char *messages_json,
    char **out_text);

#endif /* DYTI_FORMAT_CHAT_TEMPLATE_H */
