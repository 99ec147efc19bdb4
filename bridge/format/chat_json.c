/* A chat as JSON, as data rows carry it. */
#include "format/chat_template.h"

#include "base/banned.h"

#include <jansson.h>

/* Message i of the list; its texts are borrowed from `list`. */
static enum dyt_status read_message(const json_t *list, size_t i,
                                    struct dyti_chat_message *out)
{
    const json_t *one = json_array_get(list, i);
    const json_t *role = json_object_get(one, "role");
    const json_t *content = json_object_get(one, "content");

    if (!json_is_string(role) || !json_is_string(content)) {
        return DYTI_FAIL(
            DYT_ERR_FORMAT,
            "messages[%zu]: a message is an object with `role` and "
            "`content`, both texts",
            i);
    }
    *out = (struct dyti_chat_message){.role = json_string_value(role),
                                      .content = json_string_value(content)};
    return DYT_OK;
}

enum dyt_status dyti_chat_template_render_json(
    const struct dyti_chat_template *chat, const char *messages_json,
    char **out_text)
{
    struct dyti_chat_message *message = NULL;
    json_error_t at;
    json_t *list = json_loads(messages_json, JSON_REJECT_DUPLICATES, &at);
    size_t count;
    enum dyt_status st = DYT_OK;

    if (list == NULL) {
        return DYTI_FAIL(DYT_ERR_FORMAT, "messages: %s at column %d", at.text,
                         at.column);
    }
    if (!json_is_array(list) || json_array_size(list) == 0) {
        json_decref(list);
        return DYTI_FAIL(DYT_ERR_FORMAT,
                         "messages must be a list with at least one message");
    }
    count = json_array_size(list);
    message = calloc(count, sizeof(*message));
    if (message == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "%zu messages", count);
    }
    for (size_t i = 0; i < count && st == DYT_OK; i++) {
        st = read_message(list, i, &message[i]);
    }
    if (st == DYT_OK) {
        st = dyti_chat_template_render(chat, message, count, true, out_text);
    }
    free(message);
    json_decref(list);
    return st;
}
