/* Which template a model has, and its special tokens. */
#include "format/chat_template.h"

#include "format/chat_builtin.h"
#include "format/file.h"
#include "format/json_file.h"

#include "base/banned.h"

#include <time.h>

#define MOST_TEMPLATE_BYTES (1u << 20)

struct dyti_chat_template {
    const struct dyti_chat_builtin *row; /* NULL = none */
    char *bos, *eos;
};

const char *dyti_chat_template_builtin(size_t index)
{
    const struct dyti_chat_builtin *row = dyti_chat_builtin_at(index);

    return row != NULL ? row->name : NULL;
}

static void list_names(char *buf, size_t bytes)
{
    size_t used = 0;

    for (size_t i = 0; dyti_chat_builtin_at(i) != NULL && used < bytes; i++) {
        used +=
            (size_t)snprintf(buf + used, bytes - used, "%s%s",
                             i > 0 ? ", " : "", dyti_chat_builtin_at(i)->name);
    }
}

static enum dyt_status by_name(const char *name,
                               const struct dyti_chat_builtin **out)
{
    char list[400] = "";

    for (size_t i = 0; dyti_chat_builtin_at(i) != NULL; i++) {
        if (strcmp(dyti_chat_builtin_at(i)->name, name) == 0) {
            *out = dyti_chat_builtin_at(i);
            return DYT_OK;
        }
    }
    list_names(list, sizeof(list));
    return DYTI_FAIL(DYT_ERR_INVALID,
                     "no chat template \"%.60s\"; there are auto, none, %s",
                     name, list);
}

static enum dyt_status by_hash(const char *dir, const char *text,
                               const struct dyti_chat_builtin **out)
{
    uint64_t hash = dyti_chat_template_hash(text);
    char list[400] = "";

    for (size_t i = 0; dyti_chat_builtin_at(i) != NULL; i++) {
        const struct dyti_chat_builtin *row = dyti_chat_builtin_at(i);

        for (size_t k = 0; k < DYTI_MOST_CHAT_HASHES; k++) {
            if (row->hash[k] == hash) {
                *out = row;
                return DYT_OK;
            }
        }
    }
    list_names(list, sizeof(list));
    return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                     "%s: its chat template (hash %016llx, %zu bytes) is not "
                     "known; name the one that it is like (%s) or none",
                     dir, (unsigned long long)hash, strlen(text), list);
}

/* ---- what the directory says -------------------------------------------- */

/* A text, or the "default" of a list of named ones; NULL if there is none. */
static enum dyt_status config_template(const struct dyti_json_at *at,
                                       const char **out)
{
    const json_t *value = dyti_json_get(at, "chat_template");

    *out = json_string_value(value);
    if (value == NULL || *out != NULL) {
        return DYT_OK;
    }
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *entry = json_array_get(value, i);
        const char *name = json_string_value(json_object_get(entry, "name"));

        if (name != NULL && strcmp(name, "default") == 0) {
            *out = json_string_value(json_object_get(entry, "template"));
        }
    }
    if (*out == NULL) {
        return DYTI_FAIL(DYT_ERR_FORMAT,
                         "%s: chat_template must be a text or hold a template "
                         "named default",
                         at->file);
    }
    return DYT_OK;
}

static enum dyt_status find_own(struct dyti_chat_template *chat,
                                const char *dir, const struct dyti_json_at *at)
{
    char path[DYTI_PATH_BYTES];
    const char *text = NULL;
    char *file = NULL;
    size_t bytes = 0;
    enum dyt_status st = dyti_path_join(path, dir, "chat_template.jinja");

    if (st == DYT_OK && dyti_file_exists(path)) {
        st = dyti_file_read(path, MOST_TEMPLATE_BYTES, &file, &bytes);
        text = file;
    } else if (st == DYT_OK) {
        st = config_template(at, &text);
    }
    if (st == DYT_OK && text != NULL) {
        st = by_hash(dir, text, &chat->row);
    }
    free(file);
    return st;
}

/* "bos_token" is a text or an added token with "content". */
static enum dyt_status special_text(const struct dyti_json_at *at,
                                    const char *key, char **out)
{
    const json_t *value = dyti_json_get(at, key);
    const char *text = json_string_value(
        json_is_object(value) ? json_object_get(value, "content") : value);

    if (value != NULL && text == NULL) {
        return DYTI_FAIL(DYT_ERR_FORMAT, "%s: %s must be a token", at->file,
                         key);
    }
    *out = strdup(text != NULL ? text : "");
    return *out != NULL ? DYT_OK
                        : DYTI_FAIL(DYT_ERR_NOMEM, "%s: %s", at->file, key);
}

static enum dyt_status load_config(const char *dir, char path[DYTI_PATH_BYTES],
                                   json_t **out)
{
    enum dyt_status st = dyti_path_join(path, dir, "tokenizer_config.json");

    if (st == DYT_OK && dyti_file_exists(path)) {
        st = dyti_json_load(path, out);
    }
    return st;
}

enum dyt_status dyti_chat_template_open(const char *dir, const char *choice,
                                        struct dyti_chat_template **out)
{
    struct dyti_chat_template *chat = calloc(1, sizeof(*chat));
    char path[DYTI_PATH_BYTES] = "";
    struct dyti_json_at at = {path, "", NULL};
    json_t *json = NULL;
    enum dyt_status st = DYT_OK;

    if (chat == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "chat template");
    }
    if (strcmp(choice, "none") != 0) {
        st = load_config(dir, path, &json);
        at.object = json;
    }
    if (st == DYT_OK && strcmp(choice, "auto") == 0) {
        st = find_own(chat, dir, &at);
    } else if (st == DYT_OK && strcmp(choice, "none") != 0) {
        st = by_name(choice, &chat->row);
    }
    if (st == DYT_OK) {
        st = special_text(&at, "bos_token", &chat->bos);
    }
    if (st == DYT_OK) {
        st = special_text(&at, "eos_token", &chat->eos);
    }
    json_decref(json);
    if (st != DYT_OK) {
        dyti_chat_template_close(chat);
        return st;
    }
    *out = chat;
    return DYT_OK;
}

void dyti_chat_template_close(struct dyti_chat_template *chat)
{
    if (chat != NULL) {
        free(chat->bos);
        free(chat->eos);
        free(chat);
    }
}

const char *dyti_chat_template_name(const struct dyti_chat_template *chat)
{
    return chat->row != NULL ? chat->row->name : "none";
}

/* ---- render ------------------------------------------------------------- */

static enum dyt_status check_messages(const struct dyti_chat_message *message,
                                      size_t count)
{
    if (count == 0) {
        return DYTI_FAIL(DYT_ERR_INVALID, "a chat without messages");
    }
    for (size_t i = 0; i < count; i++) {
        const char *role = message[i].role;

        if (strcmp(role, "system") != 0 && strcmp(role, "user") != 0 &&
            strcmp(role, "assistant") != 0) {
            return DYTI_FAIL(DYT_ERR_INVALID,
                             "message %zu has role \"%.40s\"; system, user and "
                             "assistant are available",
                             i, role);
        }
    }
    return DYT_OK;
}

/* As strftime("%d %b %Y") in the C locale. */
static void today(char buf[32])
{
    static const char month[12][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                      "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    time_t now = time(NULL);
    struct tm t;

    localtime_r(&now, &t);
    snprintf(buf, 32, "%02d %s %d", t.tm_mday, month[t.tm_mon % 12],
             t.tm_year + 1900);
}

enum dyt_status dyti_chat_template_render(
    const struct dyti_chat_template *chat,
    const struct dyti_chat_message *message, size_t count,
    bool add_generation_prompt, char **out_text)
{
    struct dyti_chat_text to = {.st = DYT_OK};
    char date[32];
    struct dyti_chat_job job = {message,   count,     add_generation_prompt,
                                chat->bos, chat->eos, date};

    if (chat->row == NULL) {
        return DYTI_FAIL(DYT_ERR_STATE,
                         "the model has no chat template, so messages cannot "
                         "be written; name one, or give prompts as text");
    }
    to.st = check_messages(message, count);
    if (to.st == DYT_OK) {
        today(date);
        dyti_chat_put(&to, ""); /* an empty text is a text */
        chat->row->write(chat->row, &job, &to);
    }
    if (to.st != DYT_OK) {
        free(to.text);
        return to.st;
    }
    *out_text = to.text;
    return DYT_OK;
}
