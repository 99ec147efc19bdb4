/* Rows of JSONL: read once, checked line by line, asked by field. */
#include "format/data_jsonl.h"

#include "base/array.h"
#include "base/banned.h"
#include "base/hash.h"
#include "format/file.h"

#include <jansson.h>

#define FILE_BYTES_MAX (4ull << 30)

struct row {
    json_t *json;    /* object */
    char *line;      /* as in the file, trimmed */
    char *messages;  /* JSON text, or NULL */
    uint64_t number; /* of the line, from 1 */
};

struct dyti_data {
    char *name;
    struct row *row;
    size_t row_count, row_cap;
    uint64_t fingerprint;
};

void dyti_data_close(struct dyti_data *data)
{
    if (data == NULL) {
        return;
    }
    for (size_t i = 0; i < data->row_count; i++) {
        json_decref(data->row[i].json);
        free(data->row[i].line);
        free(data->row[i].messages);
    }
    free(data->row);
    free(data->name);
    free(data);
}

/* `messages` must be a list of {role, content}, both strings. */
static enum dyt_status check_messages(const char *name, uint64_t number,
                                      const json_t *messages)
{
    size_t index;
    json_t *item;

    if (!json_is_array(messages) || json_array_size(messages) == 0) {
        return DYTI_FAIL(DYT_ERR_FORMAT,
                         "%s:%llu: messages: wants a list of {role, content}",
                         name, (unsigned long long)number);
    }
    json_array_foreach(messages, index, item)
    {
        if (!json_is_string(json_object_get(item, "role")) ||
            !json_is_string(json_object_get(item, "content"))) {
            return DYTI_FAIL(DYT_ERR_FORMAT,
                             "%s:%llu: messages: entry %zu needs role and "
                             "content, both strings",
                             name, (unsigned long long)number, index);
        }
    }
    return DYT_OK;
}

static enum dyt_status fill_row(struct row *row, const char *name,
                                const char *line, size_t bytes)
{
    json_error_t error;
    const json_t *messages;
    enum dyt_status st;

    row->json = json_loadb(line, bytes, JSON_REJECT_DUPLICATES, &error);
    if (row->json == NULL) {
        for (char *c = error.text; *c != '\0'; c++) {
            *c = *c == '\n' ? ' ' : *c;
        }
        return DYTI_FAIL(DYT_ERR_FORMAT, "%s:%llu:%d: not JSON: %s", name,
                         (unsigned long long)row->number, error.column,
                         error.text);
    }
    if (!json_is_object(row->json)) {
        return DYTI_FAIL(DYT_ERR_FORMAT,
                         "%s:%llu: a row is one JSON object, as {\"prompt\": "
                         "\"…\"}",
                         name, (unsigned long long)row->number);
    }
    row->line = strndup(line, bytes);
    messages = json_object_get(row->json, "messages");
    if (messages != NULL && !json_is_null(messages)) {
        st = check_messages(name, row->number, messages);
        if (st != DYT_OK) {
            return st;
        }
        row->messages = json_dumps(messages, JSON_COMPACT);
        if (row->messages == NULL) {
            return DYTI_FAIL(DYT_ERR_NOMEM, "reading %s", name);
        }
    }
    return row->line == NULL ? DYTI_FAIL(DYT_ERR_NOMEM, "reading %s", name)
                             : DYT_OK;
}

static bool blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static enum dyt_status add_line(struct dyti_data *data, const char *line,
                                size_t bytes, uint64_t number)
{
    struct row row = {.number = number};
    enum dyt_status st;

    while (bytes > 0 && blank(line[0])) {
        line++;
        bytes--;
    }
    while (bytes > 0 && blank(line[bytes - 1])) {
        bytes--;
    }
    if (bytes == 0) {
        return DYT_OK;
    }
    st = DYTI_GROW(data->row, data->row_cap, data->row_count + 1);
    if (st != DYT_OK) {
        return st;
    }
    st = fill_row(&row, data->name, line, bytes);
    data->row[data->row_count++] = row; /* given back with the rest */
    if (st == DYT_OK) {
        data->fingerprint =
            dyti_fingerprint_bytes(data->fingerprint, line, bytes);
    }
    return st;
}

enum dyt_status dyti_data_parse(const char *name, const char *text,
                                size_t text_bytes, struct dyti_data **out_data)
{
    struct dyti_data *data = calloc(1, sizeof(*data));
    uint64_t number = 0;
    enum dyt_status st = DYT_OK;

    if (data != NULL) {
        data->name = strdup(name);
    }
    if (data == NULL || data->name == NULL) {
        free(data);
        return DYTI_FAIL(DYT_ERR_NOMEM, "reading %s", name);
    }
    data->fingerprint = DYTI_FINGERPRINT_SEED;
    for (size_t at = 0; at < text_bytes && st == DYT_OK;) {
        const char *end = memchr(text + at, '\n', text_bytes - at);
        size_t bytes =
            end == NULL ? text_bytes - at : (size_t)(end - text) - at;

        st = add_line(data, text + at, bytes, ++number);
        at += bytes + 1;
    }
    if (st == DYT_OK && data->row_count == 0) {
        st = DYTI_FAIL(DYT_ERR_FORMAT,
                       "%s: no rows: write one JSON object a line", name);
    }
    if (st != DYT_OK) {
        dyti_data_close(data);
        return st;
    }
    *out_data = data;
    return DYT_OK;
}

enum dyt_status dyti_data_open(const char *path, struct dyti_data **out_data)
{
    char *text = NULL;
    size_t bytes = 0;
    enum dyt_status st;

    st = dyti_file_read(path, FILE_BYTES_MAX, &text, &bytes);
    if (st == DYT_OK) {
        st = dyti_data_parse(path, text, bytes, out_data);
        free(text);
    }
    return st;
}

uint64_t dyti_data_rows(const struct dyti_data *data)
{
    return data->row_count;
}

const char *dyti_data_name(const struct dyti_data *data)
{
    return data->name;
}

uint64_t dyti_data_line(const struct dyti_data *data, uint64_t row)
{
    return data->row[row].number;
}

uint64_t dyti_data_fingerprint(const struct dyti_data *data)
{
    return data->fingerprint;
}

const char *dyti_data_messages(const struct dyti_data *data, uint64_t row)
{
    return data->row[row].messages;
}

const char *dyti_data_row_json(const struct dyti_data *data, uint64_t row)
{
    return data->row[row].line;
}

/* ---- fields ------------------------------------------------------------- */

/* "a, b, c" of an object's keys, into buf. */
static const char *key_list(json_t *object, char *buf, size_t buf_bytes)
{
    const char *key;
    json_t *value;
    size_t used = 0;

    buf[0] = '\0';
    json_object_foreach(object, key, value)
    {
        int got = snprintf(buf + used, buf_bytes - used, "%s%s",
                           used == 0 ? "" : ", ", key);

        used += got > 0 ? (size_t)got : 0;
        if (used >= buf_bytes) {
            break; /* cut */
        }
    }
    return buf;
}

/* A field's text on the end of a stream. */
static enum dyt_status print_field(const struct dyti_data *data, uint64_t row,
                                   const char *field, size_t field_bytes,
                                   FILE *out)
{
    const struct row *r = &data->row[row];
    const json_t *value = json_object_getn(r->json, field, field_bytes);
    char keys[256];
    char *text;

    if (value == NULL) {
        return DYTI_FAIL(
            DYT_ERR_FORMAT, "%s:%llu: the row has no field \"%.*s\": it has %s",
            data->name, (unsigned long long)r->number, (int)field_bytes, field,
            key_list(r->json, keys, sizeof(keys)));
    }
    if (json_is_null(value)) {
        return DYTI_FAIL(DYT_ERR_FORMAT,
                         "%s:%llu: the field \"%.*s\" is null: give it a "
                         "value, or take the row out",
                         data->name, (unsigned long long)r->number,
                         (int)field_bytes, field);
    }
    if (json_is_string(value)) {
        fwrite(json_string_value(value), 1, json_string_length(value), out);
        return DYT_OK;
    }
    text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    if (text == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a field of %s", data->name);
    }
    fputs(text, out);
    free(text);
    return DYT_OK;
}

/* Close a memory stream: its text on DYT_OK, nothing otherwise. */
static enum dyt_status finish(FILE *out, char **text, enum dyt_status st,
                              char **out_text)
{
    if (fclose(out) != 0 && st == DYT_OK) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "a prompt");
    }
    if (st != DYT_OK) {
        free(*text);
        return st;
    }
    *out_text = *text;
    return DYT_OK;
}

enum dyt_status dyti_data_field_text(const struct dyti_data *data, uint64_t row,
                                     const char *field, char **out_text)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    enum dyt_status st;

    if (out == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a field of %s", data->name);
    }
    st = print_field(data, row, field, strlen(field), out);
    return finish(out, &text, st, out_text);
}

/* ---- templates ---------------------------------------------------------- */

/* The next piece of a template: literal text, or a field's name. */
struct piece {
    const char *text;
    size_t bytes;
    bool field;
};

/* 1: a piece; 0: the end; -1: a lone brace, *at is there. */
static int next_piece(const char **at, struct piece *out)
{
    const char *c = *at;

    if (*c == '\0') {
        return 0;
    }
    if ((c[0] == '{' && c[1] == '{') || (c[0] == '}' && c[1] == '}')) {
        *out = (struct piece){c, 1, false};
        *at = c + 2;
        return 1;
    }
    if (*c == '{') {
        size_t bytes = strcspn(c + 1, "{}");

        if (bytes == 0 || c[1 + bytes] != '}') {
            return -1;
        }
        *out = (struct piece){c + 1, bytes, true};
        *at = c + bytes + 2;
        return 1;
    }
    if (*c == '}') {
        return -1;
    }
    *out = (struct piece){c, strcspn(c, "{}"), false};
    *at = c + out->bytes;
    return 1;
}

bool dyti_template_check(const char *prompt_template, uint32_t *out_column)
{
    const char *at = prompt_template;
    struct piece piece;
    int more;

    while ((more = next_piece(&at, &piece)) == 1) {
    }
    if (more < 0) {
        *out_column = (uint32_t)(at - prompt_template) + 1;
    }
    return more == 0;
}

static enum dyt_status print_template(const struct dyti_data *data,
                                      uint64_t row, const char *template_text,
                                      FILE *out)
{
    const char *at = template_text;
    struct piece piece;
    enum dyt_status st = DYT_OK;
    int more;

    while (st == DYT_OK && (more = next_piece(&at, &piece)) != 0) {
        if (more < 0) {
            return DYTI_FAIL(DYT_ERR_CONFIG,
                             "data.prompt: a lone brace in \"%.80s\": write "
                             "{field}, and {{ or }} for a brace",
                             template_text);
        }
        if (piece.field) {
            st = print_field(data, row, piece.text, piece.bytes, out);
        } else {
            fwrite(piece.text, 1, piece.bytes, out);
        }
    }
    return st;
}

enum dyt_status dyti_data_prompt_text(const struct dyti_data *data,
                                      uint64_t row, const char *prompt_template,
                                      char **out_text)
{
    bool own = prompt_template == NULL || prompt_template[0] == '\0';
    char *text = NULL;
    size_t bytes;
    FILE *out;
    enum dyt_status st;

    if (own && data->row[row].messages != NULL) {
        return DYTI_FAIL(DYT_ERR_STATE,
                         "%s:%llu: the row is a chat: it needs a chat template",
                         data->name, (unsigned long long)data->row[row].number);
    }
    out = open_memstream(&text, &bytes);
    if (out == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a prompt of %s", data->name);
    }
    st = own ? print_field(data, row, "prompt", strlen("prompt"), out)
             : print_template(data, row, prompt_template, out);
    return finish(out, &text, st, out_text);
}
