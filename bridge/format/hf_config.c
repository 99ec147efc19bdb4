/* config.json: members of any depth that vps/config.h asks for, as a flat list.
 */
#include "format/hf_config.h"

#include "base/array.h"
#include "base/banned.h"
#include "format/file.h"
#include "format/json_file.h"
#include "vps/config.h"

#include <stdlib.h>
#include <string.h>

#define DEPTH 1u /* members of members, and elements of lists */

struct flat {
    struct dyti_config_entry *entry; /* [count]; keys and values owned */
    size_t count, cap;
};

static enum dyt_status flatten(struct flat *f, const char *prefix,
                               const json_t *json, uint32_t depth);

static enum dyti_config_type type_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return DYTI_CONFIG_OBJECT;
    case JSON_ARRAY:
        return DYTI_CONFIG_ARRAY;
    case JSON_STRING:
        return DYTI_CONFIG_TEXT;
    case JSON_INTEGER:
        return DYTI_CONFIG_INTEGER;
    case JSON_REAL:
        return DYTI_CONFIG_REAL;
    case JSON_NULL:
        return DYTI_CONFIG_NULL;
    default:
        return DYTI_CONFIG_BOOL;
    }
}

/* As it stands in JSON, without quotes. */
static char *text_of(const json_t *value)
{
    char number[64] = "";

    switch (json_typeof(value)) {
    case JSON_STRING:
        return strdup(json_string_value(value));
    case JSON_INTEGER:
        snprintf(number, sizeof(number), "%" JSON_INTEGER_FORMAT,
                 json_integer_value(value));
        break;
    case JSON_REAL:
        snprintf(number, sizeof(number), "%.17g", json_real_value(value));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        snprintf(number, sizeof(number), "%s",
                 json_is_true(value) ? "true" : "false");
        break;
    default:
        break;
    }
    return strdup(number);
}

static enum dyt_status add(struct flat *f, const char *prefix, const char *key,
                           const json_t *value, uint32_t depth)
{
    size_t bytes = strlen(prefix) + strlen(key) + 1;
    struct dyti_config_entry *e;
    char *name = malloc(bytes), *text = text_of(value);
    enum dyt_status st = DYTI_GROW(f->entry, f->cap, f->count + 1);

    if (st == DYT_OK && (name == NULL || text == NULL)) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "members of config.json");
    }
    if (st != DYT_OK) {
        free(name);
        free(text);
        return st;
    }
    snprintf(name, bytes, "%s%s", prefix, key);
    e = &f->entry[f->count++];
    *e = (struct dyti_config_entry){name, text, type_of(value)};
    return depth == 0 ? DYT_OK : flatten(f, name, value, depth - 1);
}

/* Members of an object, elements of an array; nothing of anything else. */
static enum dyt_status flatten(struct flat *f, const char *prefix,
                               const json_t *json, uint32_t depth)
{
    size_t bytes = strlen(prefix) + 2;
    char *inside = malloc(bytes);
    enum dyt_status st =
        inside != NULL ? DYT_OK
                       : DYTI_FAIL(DYT_ERR_NOMEM, "members of config.json");
    const char *key;
    json_t *value;
    size_t i;

    if (st == DYT_OK) {
        snprintf(inside, bytes, "%s%s", prefix, *prefix == '\0' ? "" : ".");
    }
    json_object_foreach((json_t *)(uintptr_t)json, key, value)
    {
        st = st != DYT_OK ? st : add(f, inside, key, value, depth);
    }
    json_array_foreach(json, i, value)
    {
        char number[24];

        snprintf(number, sizeof(number), "%zu", i);
        st = st != DYT_OK ? st : add(f, inside, number, value, depth);
    }
    free(inside);
    return st;
}

static enum dyt_status read_arch(const json_t *json, const char *file,
                                 struct dyti_arch *out_arch)
{
    struct flat f = {0};
    enum dyt_status st = flatten(&f, "", json, DEPTH);

    if (st == DYT_OK) {
        const struct dyti_config config = {f.entry, f.count};

        st = dyti_config_arch(&config, file, out_arch);
    }
    for (size_t i = 0; i < f.count; i++) {
        free((void *)(uintptr_t)f.entry[i].key);
        free((void *)(uintptr_t)f.entry[i].value);
    }
    free(f.entry);
    return st;
}

enum dyt_status dyti_hf_config_parse(const char *file, const char *text,
                                     size_t size_bytes,
                                     struct dyti_arch *out_arch)
{
    json_t *json = NULL;
    enum dyt_status st = dyti_json_parse(file, text, size_bytes, &json);

    if (st == DYT_OK) {
        st = read_arch(json, file, out_arch);
    }
    json_decref(json);
    return st;
}

enum dyt_status dyti_hf_config_read(const char *dir, struct dyti_arch *out_arch)
{
    char path[DYTI_PATH_BYTES];
    json_t *json = NULL;
    enum dyt_status st = dyti_path_join(path, dir, "config.json");

    if (st == DYT_OK) {
        st = dyti_json_load(path, &json);
    }
    if (st == DYT_OK) {
        st = read_arch(json, path, out_arch);
    }
    json_decref(json);
    return st;
}
