/* Layouts as people write them in TOML: the keys of layout/spec.h, one after
 * the other. */
#include "format/layout_spec.h"

#include "base/array.h"
#include "base/banned.h"
#include "format/toml.h"
#include "layout/spec_internal.h"

#include <stdlib.h>
#include <string.h>

#define WHERE_BYTES 512u

/* Text that grows. */
struct text {
    char *bytes;
    size_t count, cap;
};

static enum dyt_status add_text(struct text *t, const char *bytes)
{
    size_t length = strlen(bytes);
    enum dyt_status st = DYTI_GROW(t->bytes, t->cap, t->count + length + 1);

    if (st == DYT_OK) {
        memcpy(t->bytes + t->count, bytes, length + 1);
        t->count += length;
    }
    return st;
}

/* A value as the one-line form writes it: lists with +, lists of lists with /.
 */
static enum dyt_status value_text(const struct dyti_spec_reader *r,
                                  const struct dyti_toml *v, uint32_t depth,
                                  struct text *t)
{
    char number[32];
    enum dyt_status st = DYT_OK;
    bool nested = v->type == DYTI_TOML_ARRAY && v->child_count > 0 &&
                  v->child[0].type == DYTI_TOML_ARRAY;

    switch (v->type) {
    case DYTI_TOML_STRING:
        return add_text(t, v->text);
    case DYTI_TOML_INTEGER:
        snprintf(number, sizeof(number), "%lld", (long long)v->integer);
        return add_text(t, number);
    case DYTI_TOML_ARRAY:
        for (uint32_t i = 0; i < v->child_count && depth < 2 && st == DYT_OK;
             i++) {
            st = i == 0 ? DYT_OK : add_text(t, nested ? "/" : "+");
            st = st != DYT_OK ? st : value_text(r, &v->child[i], depth + 1, t);
        }
        if (st == DYT_OK && depth < 2 && v->child_count > 0) {
            return DYT_OK;
        }
        break;
    default:
        break;
    }
    return st != DYT_OK
               ? st
               : DYTI_FAIL(DYT_ERR_CONFIG, "%sno layout is written with %s%s",
                           r->where, dyti_toml_type_name(v->type),
                           v->type == DYTI_TOML_ARRAY ? " like this" : "");
}

static enum dyt_status read_entry(struct dyti_spec_reader *r, const char *file,
                                  const char *table, const struct dyti_toml *v)
{
    char where[WHERE_BYTES], key[128];
    struct text t = {0};
    enum dyt_status st;

    snprintf(where, sizeof(where), "%s:%u:%u: ", file, v->key_line,
             v->key_column);
    snprintf(key, sizeof(key), "%s%s%s", table, *table == '\0' ? "" : ".",
             v->key);
    r->where = where;
    if (v->type == DYTI_TOML_TABLE && *table == '\0' &&
        (strcmp(v->key, "dtype") == 0 || strcmp(v->key, "residency") == 0)) {
        st = DYT_OK;
        for (uint32_t i = 0; i < v->child_count && st == DYT_OK; i++) {
            st = read_entry(r, file, v->key, &v->child[i]);
        }
    } else {
        st = value_text(r, v, 0, &t);
        st = st != DYT_OK ? st : dyti_spec_set_key(r, key, t.bytes);
    }
    free(t.bytes);
    r->where = "";
    return st;
}

static enum dyt_status read_table(struct dyti_spec_reader *r, const char *file,
                                  const struct dyti_toml *table)
{
    const struct dyti_toml *dialect = dyti_toml_find(table, "dialect");
    char where[WHERE_BYTES];
    enum dyt_status st;

    snprintf(where, sizeof(where), "%s:%u:%u: ", file,
             dialect != NULL ? dialect->line : table->line,
             dialect != NULL ? dialect->column : table->column);
    r->where = where;
    if (dialect != NULL && dialect->type != DYTI_TOML_STRING) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "%sdialect is a text: " DYTI_SPEC_DIALECTS, where);
    }
    st = dyti_spec_set_dialect(r, dialect == NULL ? "native" : dialect->text);
    for (uint32_t i = 0; i < table->child_count && st == DYT_OK; i++) {
        if (&table->child[i] != dialect) {
            st = read_entry(r, file, "", &table->child[i]);
        }
    }
    r->where = "";
    return st;
}

enum dyt_status dyti_layout_spec_from_toml(const struct dyti_toml *table,
                                           const char *file,
                                           struct dyti_layout_spec *out_spec)
{
    struct dyti_layout_spec spec = {.shown = strdup(file)};
    struct dyti_spec_reader r = {.spec = &spec, .where = ""};
    char where[WHERE_BYTES];
    enum dyt_status st = spec.shown == NULL ? DYTI_FAIL(DYT_ERR_NOMEM, "a name")
                                            : read_table(&r, file, table);

    snprintf(where, sizeof(where), "%s: ", file);
    return dyti_spec_conclude(&r, where, st, out_spec);
}

static enum dyt_status read_file(const char *path,
                                 struct dyti_layout_spec *out_spec)
{
    struct dyti_toml root = {0};
    const struct dyti_toml *table;
    enum dyt_status st = dyti_toml_load(path, &root);

    if (st != DYT_OK) {
        return st;
    }
    table = dyti_toml_find(&root, "layout");
    if (table == NULL || table->type != DYTI_TOML_TABLE) {
        st = DYTI_FAIL(DYT_ERR_CONFIG, "%s has no table [layout]", path);
    } else {
        st = dyti_layout_spec_from_toml(table, path, out_spec);
    }
    dyti_toml_fini(&root);
    return st;
}

enum dyt_status dyti_layout_spec_read(const char *text,
                                      struct dyti_layout_spec *out_spec)
{
    size_t length = strlen(text);

    return length > 5 && strcmp(text + length - 5, ".toml") == 0
               ? read_file(text, out_spec)
               : dyti_layout_spec_parse(text, out_spec);
}
