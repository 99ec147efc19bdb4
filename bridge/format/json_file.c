/* Typed access to JSON that somebody else wrote: what is wrong is said with
 * file and key, by the function that sees it first. */
#include "format/json_file.h"

#include "format/file.h"

#include "base/banned.h"

#define MOST_JSON_BYTES (256u << 20)

enum dyt_status dyti_json_parse(const char *file, const char *text,
                                size_t size_bytes, json_t **out_json)
{
    json_error_t why;
    json_t *json = json_loadb(text, size_bytes, JSON_REJECT_DUPLICATES, &why);

    if (json == NULL && json_error_code(&why) == json_error_out_of_memory) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%s: %zu bytes of JSON", file,
                         size_bytes);
    }
    if (json == NULL) {
        return DYTI_FAIL(DYT_ERR_FORMAT, "%s:%d:%d: %s", file, why.line,
                         why.column, why.text);
    }
    if (!json_is_object(json)) {
        json_decref(json);
        return DYTI_FAIL(DYT_ERR_FORMAT, "%s: the top must be an object", file);
    }
    *out_json = json;
    return DYT_OK;
}

enum dyt_status dyti_json_load(const char *path, json_t **out_json)
{
    char *text = NULL;
    size_t size_bytes = 0;
    enum dyt_status st;

    st = dyti_file_read(path, MOST_JSON_BYTES, &text, &size_bytes);
    if (st == DYT_OK) {
        st = dyti_json_parse(path, text, size_bytes, out_json);
    }
    free(text);
    return st;
}

enum dyt_status dyti_json_save(const char *path, const json_t *json)
{
    enum dyt_status st;
    size_t size_bytes = 0;
    char *text = json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    char *longer;

    if (text == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%s: JSON text", path);
    }
    size_bytes = strlen(text);
    longer = realloc(text, size_bytes + 2);
    if (longer == NULL) {
        free(text);
        return DYTI_FAIL(DYT_ERR_NOMEM, "%s: JSON text", path);
    }
    longer[size_bytes] = '\n';
    st = dyti_file_write(path, longer, size_bytes + 1);
    free(longer);
    return st;
}

json_t *dyti_json_get(const struct dyti_json_at *at, const char *key)
{
    json_t *value =
        at->object != NULL ? json_object_get(at->object, key) : NULL;

    return json_is_null(value) ? NULL : value;
}

static enum dyt_status wrong_type(const struct dyti_json_at *at,
                                  const char *key, const char *want)
{
    return DYTI_FAIL(DYT_ERR_FORMAT, "%s: %s%s must be %s", at->file,
                     at->prefix, key, want);
}

enum dyt_status dyti_json_int_or(const struct dyti_json_at *at, const char *key,
                                 int64_t least, int64_t most, int64_t fallback,
                                 int64_t *out)
{
    const json_t *value = dyti_json_get(at, key);
    int64_t x;

    if (value == NULL) {
        *out = fallback;
        return DYT_OK;
    }
    if (!json_is_integer(value)) {
        return wrong_type(at, key, "an integer");
    }
    x = json_integer_value(value);
    if (x < least || x > most) {
        return DYTI_FAIL(
            DYT_ERR_FORMAT, "%s: %s%s is %lld, must be in %lld..%lld", at->file,
            at->prefix, key, (long long)x, (long long)least, (long long)most);
    }
    *out = x;
    return DYT_OK;
}

enum dyt_status dyti_json_int(const struct dyti_json_at *at, const char *key,
                              int64_t least, int64_t most, int64_t *out)
{
    if (dyti_json_get(at, key) == NULL) {
        return DYTI_FAIL(DYT_ERR_FORMAT, "%s: %s%s is missing", at->file,
                         at->prefix, key);
    }
    return dyti_json_int_or(at, key, least, most, 0, out);
}

enum dyt_status dyti_json_real_or(const struct dyti_json_at *at,
                                  const char *key, double fallback, double *out)
{
    const json_t *value = dyti_json_get(at, key);

    if (value == NULL) {
        *out = fallback;
        return DYT_OK;
    }
    if (!json_is_number(value)) {
        return wrong_type(at, key, "a number");
    }
    *out = json_number_value(value);
    return DYT_OK;
}

enum dyt_status dyti_json_bool_or(const struct dyti_json_at *at,
                                  const char *key, bool fallback, bool *out)
{
    const json_t *value = dyti_json_get(at, key);

    if (value == NULL) {
        *out = fallback;
        return DYT_OK;
    }
    if (!json_is_boolean(value)) {
        return wrong_type(at, key, "true or false");
    }
    *out = json_is_true(value);
    return DYT_OK;
}

enum dyt_status dyti_json_text_or(const struct dyti_json_at *at,
                                  const char *key, const char *fallback,
                                  const char **out)
{
    const json_t *value = dyti_json_get(at, key);

    if (value == NULL) {
        *out = fallback;
        return DYT_OK;
    }
    if (!json_is_string(value)) {
        return wrong_type(at, key, "a string");
    }
    *out = json_string_value(value);
    return DYT_OK;
}

enum dyt_status dyti_json_object_or_null(const struct dyti_json_at *at,
                                         const char *key, const json_t **out)
{
    const json_t *value = dyti_json_get(at, key);

    if (value != NULL && !json_is_object(value)) {
        return wrong_type(at, key, "an object");
    }
    *out = value;
    return DYT_OK;
}

enum dyt_status dyti_json_array_or_null(const struct dyti_json_at *at,
                                        const char *key, const json_t **out)
{
    const json_t *value = dyti_json_get(at, key);

    if (value != NULL && !json_is_array(value)) {
        return wrong_type(at, key, "an array");
    }
    *out = value;
    return DYT_OK;
}

enum dyt_status dyti_json_put(json_t *object, const char *key, json_t *value)
{
    if (object == NULL || value == NULL ||
        json_object_set_new(object, key, value) != 0) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "JSON member %s", key);
    }
    return DYT_OK;
}
