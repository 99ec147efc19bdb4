#include "vps/config.h"

#include "vps/config_read.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- types --------------------------------------------------------------- */

static bool is_integer(const char *text, int64_t *out)
{
    char *end;

    errno = 0;
    *out = strtoll(text, &end, 10);
    return errno == 0 && end != text && *end == '\0' &&
           (isdigit((unsigned char)text[0]) || text[0] == '-');
}

static bool is_real(const char *text, double *out)
{
    char *end;

    *out = strtod(text, &end);
    return end != text && *end == '\0' &&
           (isdigit((unsigned char)text[0]) || text[0] == '-');
}

static enum dyti_config_type type_of(const struct dyti_config_entry *e)
{
    int64_t whole;
    double real;

    if (e->type != DYTI_CONFIG_ANY) {
        return e->type;
    }
    if (strcmp(e->value, "null") == 0) {
        return DYTI_CONFIG_NULL;
    }
    if (strcmp(e->value, "true") == 0 || strcmp(e->value, "false") == 0) {
        return DYTI_CONFIG_BOOL;
    }
    return is_integer(e->value, &whole) ? DYTI_CONFIG_INTEGER
           : is_real(e->value, &real)   ? DYTI_CONFIG_REAL
                                        : DYTI_CONFIG_TEXT;
}

/* ---- look-up ------------------------------------------------------------- */

/* What follows prefix and key in an entry's key; NULL: it is another. */
static const char *behind(const struct dyti_config_at *at, const char *key,
                          const struct dyti_config_entry *e)
{
    size_t prefix = strlen(at->prefix), bytes = strlen(key);

    return strncmp(e->key, at->prefix, prefix) == 0 &&
                   strncmp(e->key + prefix, key, bytes) == 0
               ? e->key + prefix + bytes
               : NULL;
}

static const struct dyti_config_entry *find(const struct dyti_config_at *at,
                                            const char *key)
{
    for (size_t i = 0; at->config != NULL && i < at->config->count; i++) {
        const struct dyti_config_entry *e = &at->config->entry[i];
        const char *rest = behind(at, key, e);

        if (rest != NULL && *rest == '\0') {
            return e;
        }
    }
    return NULL;
}

/* The first entry that lies in an object or a list. */
static const char *first_inside(const struct dyti_config_at *at,
                                const char *key)
{
    for (size_t i = 0; at->config != NULL && i < at->config->count; i++) {
        const char *rest = behind(at, key, &at->config->entry[i]);

        if (rest != NULL && *rest == '.') {
            return rest + 1;
        }
    }
    return NULL;
}

static const struct dyti_config_entry *value_of(const struct dyti_config_at *at,
                                                const char *key)
{
    const struct dyti_config_entry *e = find(at, key);

    return e == NULL || type_of(e) == DYTI_CONFIG_NULL ? NULL : e;
}

bool dyti_config_given(const struct dyti_config_at *at, const char *key)
{
    return find(at, key) != NULL || first_inside(at, key) != NULL;
}

bool dyti_config_has(const struct dyti_config_at *at, const char *key)
{
    return value_of(at, key) != NULL || first_inside(at, key) != NULL;
}

/* ---- values -------------------------------------------------------------- */

static enum dyt_status wrong_type(const struct dyti_config_at *at,
                                  const char *key, const char *want)
{
    return DYTI_FAIL(DYT_ERR_FORMAT, "%s: %s%s must be %s", at->file,
                     at->prefix, key, want);
}

enum dyt_status dyti_config_int_or(const struct dyti_config_at *at,
                                   const char *key, int64_t least, int64_t most,
                                   int64_t fallback, int64_t *out)
{
    const struct dyti_config_entry *e = value_of(at, key);
    int64_t x;

    if (!dyti_config_has(at, key)) {
        *out = fallback;
        return DYT_OK;
    }
    if (e == NULL || type_of(e) != DYTI_CONFIG_INTEGER ||
        !is_integer(e->value, &x)) {
        return wrong_type(at, key, "an integer");
    }
    if (x < least || x > most) {
        return DYTI_FAIL(
            DYT_ERR_FORMAT, "%s: %s%s is %lld, must be in %lld..%lld", at->file,
            at->prefix, key, (long long)x, (long long)least, (long long)most);
    }
    *out = x;
    return DYT_OK;
}

enum dyt_status dyti_config_int(const struct dyti_config_at *at,
                                const char *key, int64_t least, int64_t most,
                                int64_t *out)
{
    if (!dyti_config_has(at, key)) {
        return DYTI_FAIL(DYT_ERR_FORMAT, "%s: %s%s is missing", at->file,
                         at->prefix, key);
    }
    return dyti_config_int_or(at, key, least, most, 0, out);
}

enum dyt_status dyti_config_real_or(const struct dyti_config_at *at,
                                    const char *key, double fallback,
                                    double *out)
{
    const struct dyti_config_entry *e = value_of(at, key);
    double x;

    if (!dyti_config_has(at, key)) {
        *out = fallback;
        return DYT_OK;
    }
    if (e == NULL ||
        (type_of(e) != DYTI_CONFIG_INTEGER && type_of(e) != DYTI_CONFIG_REAL) ||
        !is_real(e->value, &x)) {
        return wrong_type(at, key, "a number");
    }
    *out = x;
    return DYT_OK;
}

enum dyt_status dyti_config_bool_or(const struct dyti_config_at *at,
                                    const char *key, bool fallback, bool *out)
{
    const struct dyti_config_entry *e = value_of(at, key);

    if (!dyti_config_has(at, key)) {
        *out = fallback;
        return DYT_OK;
    }
    if (e == NULL || type_of(e) != DYTI_CONFIG_BOOL) {
        return wrong_type(at, key, "true or false");
    }
    *out = strcmp(e->value, "true") == 0;
    return DYT_OK;
}

enum dyt_status dyti_config_text_or(const struct dyti_config_at *at,
                                    const char *key, const char *fallback,
                                    const char **out)
{
    const struct dyti_config_entry *e = value_of(at, key);

    if (!dyti_config_has(at, key)) {
        *out = fallback;
        return DYT_OK;
    }
    if (e == NULL || type_of(e) != DYTI_CONFIG_TEXT) {
        return wrong_type(at, key, "a string");
    }
    *out = e->value;
    return DYT_OK;
}

bool dyti_config_number(const struct dyti_config_at *at, const char *key,
                        double *out)
{
    const struct dyti_config_entry *e = value_of(at, key);
    enum dyti_config_type type = e == NULL ? DYTI_CONFIG_NULL : type_of(e);

    if (type == DYTI_CONFIG_BOOL) {
        *out = strcmp(e->value, "true") == 0 ? 1 : 0;
        return true;
    }
    return (type == DYTI_CONFIG_INTEGER || type == DYTI_CONFIG_REAL) &&
           is_real(e->value, out);
}

/* ---- lists and objects --------------------------------------------------- */

static enum dyti_config_type container_of(const struct dyti_config_at *at,
                                          const char *key)
{
    const struct dyti_config_entry *e = value_of(at, key);
    const char *inside = e == NULL ? first_inside(at, key) : NULL;

    return e != NULL                         ? type_of(e)
           : inside == NULL                  ? DYTI_CONFIG_NULL
           : isdigit((unsigned char)*inside) ? DYTI_CONFIG_ARRAY
                                             : DYTI_CONFIG_OBJECT;
}

enum dyt_status dyti_config_array(const struct dyti_config_at *at,
                                  const char *key, size_t *out_count)
{
    enum dyti_config_type type = container_of(at, key);
    size_t count = 0, longest = strlen(key) + 24;
    char *name;

    if (type == DYTI_CONFIG_NULL) {
        *out_count = 0;
        return DYT_OK;
    }
    if (type != DYTI_CONFIG_ARRAY) {
        return wrong_type(at, key, "an array");
    }
    name = malloc(longest);
    if (name == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a list of %s", at->file);
    }
    for (;; count++) {
        (void)snprintf(name, longest, "%s.%zu", key, count);
        if (!dyti_config_given(at, name)) {
            break;
        }
    }
    free(name);
    *out_count = count;
    return DYT_OK;
}

const char *dyti_config_item(const struct dyti_config_at *at, const char *key,
                             size_t index)
{
    char name[96];
    const struct dyti_config_entry *e;

    (void)snprintf(name, sizeof(name), "%.64s.%zu", key, index);
    e = value_of(at, name);
    return e != NULL && type_of(e) == DYTI_CONFIG_TEXT ? e->value : NULL;
}

enum dyt_status dyti_config_object(const struct dyti_config_at *at,
                                   const char *key, bool *out_there)
{
    enum dyti_config_type type = container_of(at, key);

    if (type != DYTI_CONFIG_NULL && type != DYTI_CONFIG_OBJECT) {
        return wrong_type(at, key, "an object");
    }
    *out_there = type == DYTI_CONFIG_OBJECT;
    return DYT_OK;
}

/* ---- pairs --------------------------------------------------------------- */

enum dyt_status dyti_config_from_pairs(const struct dyt_config_pair *pair,
                                       size_t count, const char *file,
                                       struct dyti_arch *out_arch)
{
    struct dyti_config_entry *entry = calloc(count + 1, sizeof(*entry));
    struct dyti_config config = {entry, count};
    enum dyt_status st = DYT_OK;

    if (entry == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu pairs", count);
    }
    for (size_t i = 0; i < count && st == DYT_OK; i++) {
        entry[i] = (struct dyti_config_entry){pair[i].key, pair[i].value,
                                              DYTI_CONFIG_ANY};
        if (pair[i].key == NULL || pair[i].value == NULL) {
            st =
                DYTI_FAIL(DYT_ERR_CONFIG, "pair %zu has no key or no value", i);
        }
    }
    st = st != DYT_OK ? st : dyti_config_arch(&config, file, out_arch);
    free(entry);
    if (st == DYT_ERR_FORMAT || st == DYT_ERR_UNSUPPORTED) {
        st = DYTI_FAIL(DYT_ERR_CONFIG, "%s", dyti_error_message());
    }
    return st;
}
