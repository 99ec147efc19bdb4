/* The C side of toml.h: files, errors with their place, look-up. */
#include "format/toml.h"

#include "format/file.h"

#include "base/banned.h"

#define FILE_BYTES_MAX (16u << 20)

enum dyt_status dyti_toml_parse(const char *text, size_t text_bytes,
                                const char *name, struct dyti_toml *out_root)
{
    struct dyti_toml root = {0};
    struct dyti_toml_error error = {0};

    if (dyti_toml_shim_parse(text, text_bytes, &root, &error) == 0) {
        *out_root = root;
        return DYT_OK;
    }
    dyti_toml_fini(&root);
    if (error.no_memory) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "reading %s", name);
    }
    return DYTI_FAIL(DYT_ERR_CONFIG, "%s:%u:%u: %s", name, error.line,
                     error.column, error.text);
}

enum dyt_status dyti_toml_load(const char *path, struct dyti_toml *out_root)
{
    char *text = NULL;
    size_t bytes = 0;
    enum dyt_status st;

    st = dyti_file_read(path, FILE_BYTES_MAX, &text, &bytes);
    if (st == DYT_OK) {
        st = dyti_toml_parse(text, bytes, path, out_root);
        free(text);
    }
    return st;
}

void dyti_toml_fini(struct dyti_toml *root)
{
    for (uint32_t i = 0; i < root->child_count; i++) {
        dyti_toml_fini(&root->child[i]); /* the parser bounds the depth */
    }
    free(root->child);
    free(root->key);
    free(root->text);
    *root = (struct dyti_toml){0};
}

const struct dyti_toml *dyti_toml_find(const struct dyti_toml *table,
                                       const char *key)
{
    if (table->type != DYTI_TOML_TABLE) {
        return NULL;
    }
    for (uint32_t i = 0; i < table->child_count; i++) {
        if (strcmp(table->child[i].key, key) == 0) {
            return &table->child[i];
        }
    }
    return NULL;
}

const char *dyti_toml_type_name(enum dyti_toml_type type)
{
    static const char *const name[] = {
        [DYTI_TOML_TABLE] = "a table",      [DYTI_TOML_ARRAY] = "a list",
        [DYTI_TOML_STRING] = "a string",    [DYTI_TOML_INTEGER] = "an integer",
        [DYTI_TOML_FLOAT] = "a number",     [DYTI_TOML_BOOL] = "true or false",
        [DYTI_TOML_DATE] = "a date or time"};

    return name[type];
}
