#include "base/json_out.h"

#include "base/array.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void dyti_json_init(struct dyti_json *json, uint32_t indent)
{
    *json = (struct dyti_json){.indent = indent, .status = DYT_OK};
}

void dyti_json_release(struct dyti_json *json)
{
    free(json->text);
    dyti_json_init(json, 0);
}

void dyti_json_clear(struct dyti_json *json)
{
    json->bytes = 0;
    json->depth = 0;
    json->done = false;
    json->status = DYT_OK;
}

static void put(struct dyti_json *json, const char *bytes, size_t count)
{
    if (json->status == DYT_OK) {
        json->status =
            DYTI_GROW(json->text, json->cap, json->bytes + count + 1);
    }
    if (json->status == DYT_OK) {
        memcpy(json->text + json->bytes, bytes, count);
        json->bytes += count;
        json->text[json->bytes] = '\0';
    }
}

static void put_text(struct dyti_json *json, const char *text)
{
    put(json, text, strlen(text));
}

static void misuse(struct dyti_json *json, const char *what)
{
    if (json->status == DYT_OK) {
        json->status = DYTI_FAIL(DYT_ERR_STATE, "JSON writer: %s", what);
    }
}

/* ---- strings ----------------------------------------------------------- */

/* Bytes of the UTF-8 sequence at p, 0 if there is no valid one: no overlong
 * forms, no surrogates, nothing beyond U+10FFFF. */
static size_t utf8_length(const unsigned char *p, size_t left)
{
    size_t want = p[0] < 0x80 ? 1 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;

    if (want == 1) {
        return 1;
    }
    if (p[0] < 0xc2 || p[0] > 0xf4 || want > left) {
        return 0;
    }
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
        (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f)) {
        return 0;
    }
    for (size_t i = 1; i < want; i++) {
        if ((p[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    return want;
}

static void put_escaped(struct dyti_json *json, unsigned char c)
{
    static const char plain[] = "\"\\\b\f\n\r\t", letter[] = "\"\\bfnrt";
    const char *found = c != '\0' ? strchr(plain, c) : NULL;
    char text[8];

    if (found != NULL) {
        text[0] = '\\';
        text[1] = letter[found - plain];
        put(json, text, 2);
    } else {
        snprintf(text, sizeof(text), "\\u%04x", (unsigned)c);
        put_text(json, text);
    }
}

static bool needs_escape(unsigned char c)
{
    return c < 0x20 || c == '"' || c == '\\' || c == 0x7f;
}

static void put_string(struct dyti_json *json, const char *value, size_t bytes)
{
    const unsigned char *p = (const unsigned char *)value;
    size_t i = 0, run = 0; /* value[run..i) can be copied as it is */

    put(json, "\"", 1);
    while (i < bytes) {
        size_t length = utf8_length(p + i, bytes - i);

        if (length != 0 && !needs_escape(p[i])) {
            i += length;
            continue;
        }
        put(json, value + run, i - run);
        if (length == 0) {
            put_text(json, "\xef\xbf\xbd"); /* U+FFFD */
        } else {
            put_escaped(json, p[i]);
        }
        run = ++i;
    }
    put(json, value + run, bytes - run);
    put(json, "\"", 1);
}

/* ---- structure --------------------------------------------------------- */

static void new_line(struct dyti_json *json)
{
    if (json->indent > 0) {
        put(json, "\n", 1);
        for (uint32_t i = 0; i < json->indent * json->depth; i++) {
            put(json, " ", 1);
        }
    }
}

/* What goes in front of a value: a comma, a key. */
static void before(struct dyti_json *json, const char *key)
{
    bool in_object = json->depth > 0 && json->closer[json->depth - 1] == '}';

    if (in_object != (key != NULL)) {
        misuse(json, in_object ? "a member without a key"
                               : "a key outside an object");
    } else if (json->depth == 0 && json->done) {
        misuse(json, "a second value at the top");
    }
    if (json->depth > 0) {
        bool *filled = &json->filled[json->depth - 1];

        if (*filled) {
            put_text(json, json->indent > 0 ? "," : ", ");
        }
        *filled = true;
        new_line(json);
    } else {
        json->done = true;
    }
    if (key != NULL) {
        put_string(json, key, strlen(key));
        put_text(json, ": ");
    }
}

static void begin(struct dyti_json *json, const char *key, const char *pair)
{
    before(json, key);
    if (json->depth == DYTI_JSON_DEPTH) {
        misuse(json, "too deep");
        return;
    }
    put(json, pair, 1);
    json->closer[json->depth] = pair[1];
    json->filled[json->depth] = false;
    json->depth++;
}

void dyti_json_begin_object(struct dyti_json *json, const char *key)
{
    begin(json, key, "{}");
}

void dyti_json_begin_array(struct dyti_json *json, const char *key)
{
    begin(json, key, "[]");
}

void dyti_json_end(struct dyti_json *json)
{
    if (json->depth == 0) {
        misuse(json, "nothing is open");
        return;
    }
    json->depth--;
    if (json->filled[json->depth]) {
        new_line(json);
    }
    put(json, &json->closer[json->depth], 1);
}

/* ---- values ------------------------------------------------------------ */

void dyti_json_raw(struct dyti_json *json, const char *key, const char *value)
{
    before(json, key);
    put_text(json, value);
}

void dyti_json_bytes(struct dyti_json *json, const char *key, const char *value,
                     size_t value_bytes)
{
    before(json, key);
    put_string(json, value, value_bytes);
}

void dyti_json_text(struct dyti_json *json, const char *key, const char *value)
{
    if (value == NULL) {
        dyti_json_null(json, key);
    } else {
        dyti_json_bytes(json, key, value, strlen(value));
    }
}

void dyti_json_u64(struct dyti_json *json, const char *key, uint64_t value)
{
    char text[32];

    snprintf(text, sizeof(text), "%" PRIu64, value);
    dyti_json_raw(json, key, text);
}

void dyti_json_i64(struct dyti_json *json, const char *key, int64_t value)
{
    char text[32];

    snprintf(text, sizeof(text), "%" PRId64, value);
    dyti_json_raw(json, key, text);
}

void dyti_json_f64(struct dyti_json *json, const char *key, double value)
{
    char text[32];
    char *comma;

    if (!isfinite(value)) {
        dyti_json_null(json, key);
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, value);
        if (strtod(text, NULL) == value) {
            break;
        }
    }
    comma = strchr(text, ','); /* a program that hosts us may set a locale */
    if (comma != NULL) {
        *comma = '.';
    }
    dyti_json_raw(json, key, text);
}

void dyti_json_bool(struct dyti_json *json, const char *key, bool value)
{
    dyti_json_raw(json, key, value ? "true" : "false");
}

void dyti_json_null(struct dyti_json *json, const char *key)
{
    dyti_json_raw(json, key, "null");
}

enum dyt_status dyti_json_drain(struct dyti_json *json, FILE *out)
{
    if (json->status == DYT_OK &&
        fwrite(json->text, 1, json->bytes, out) != json->bytes) {
        json->status =
            DYTI_FAIL(DYT_ERR_IO, "writing JSON: %s", strerror(errno));
    }
    json->bytes = 0;
    return json->status;
}

enum dyt_status dyti_json_finish(struct dyti_json *json, const char **out_text,
                                 size_t *out_bytes)
{
    if (json->depth > 0) {
        misuse(json, "something is still open");
    } else if (!json->done) {
        misuse(json, "no value was written");
    }
    put(json, "\n", 1);
    if (json->status != DYT_OK) {
        return json->status;
    }
    *out_text = json->text;
    *out_bytes = json->bytes;
    return DYT_OK;
}
