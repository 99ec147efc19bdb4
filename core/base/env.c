#include "base/env.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PREFIX "DYNATRAIN_"

static const struct dyti_env_row table[DYTI_ENV_ALL] = {
#define ROW(id, name, fallback, values, help) {name, fallback, values, help},
    DYTI_ENV_MAP(ROW) DYTI_ENV_TEST_MAP(ROW)
#undef ROW
};

const struct dyti_env_row *dyti_env_row(enum dyti_env setting)
{
    dyti_require(setting < DYTI_ENV_ALL);
    return &table[setting];
}

const char *dyti_env_foreign(const char *name)
{
    const char *value = getenv(name);

    return value != NULL && value[0] != '\0' ? value : NULL;
}

const char *dyti_env_text(enum dyti_env setting)
{
    const struct dyti_env_row *row = dyti_env_row(setting);
    const char *value = dyti_env_foreign(row->name);

    return value != NULL ? value : row->fallback;
}

enum dyt_status dyti_env_cache_dir(char *out_path, size_t path_bytes)
{
    const char *root = dyti_env_text(DYTI_ENV_CACHE), *tail = "";
    size_t root_bytes, tail_bytes;

    if (root == NULL) {
        root = dyti_env_foreign("XDG_CACHE_HOME");
        tail = "/dynatrain";
    }
    if (root == NULL) {
        root = dyti_env_foreign("HOME");
        tail = "/.cache/dynatrain";
    }
    if (root == NULL) {
        return DYTI_FAIL(DYT_ERR_STATE,
                         "no place for the cache: set DYNATRAIN_CACHE or HOME");
    }
    root_bytes = strlen(root);
    tail_bytes = strlen(tail) + 1;
    if (root_bytes + tail_bytes > path_bytes) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "the path of the cache has %zu bytes, at most %zu fit",
                         root_bytes + tail_bytes, path_bytes);
    }
    memcpy(out_path, root, root_bytes);
    memcpy(out_path + root_bytes, tail, tail_bytes);
    return DYT_OK;
}

/* True if `entry` ("NAME=value") is one of the table. */
static bool known(const char *entry)
{
    for (size_t i = 0; i < DYTI_ENV_ALL; i++) {
        size_t bytes = strlen(table[i].name);

        if (strncmp(entry, table[i].name, bytes) == 0 && entry[bytes] == '=') {
            return true;
        }
    }
    return false;
}

const char *dyti_env_unknown(void)
{
    for (char **entry = environ; entry != NULL && *entry != NULL; entry++) {
        if (strncmp(*entry, PREFIX, strlen(PREFIX)) == 0 && !known(*entry)) {
            return *entry;
        }
    }
    return NULL;
}

void dyti_env_print(FILE *to)
{
    for (size_t i = 0; i < DYTI_ENV_COUNT; i++) {
        const struct dyti_env_row *row = &table[i];
        const char *value = dyti_env_foreign(row->name);

        fprintf(to, "%-18s %s", row->name, value != NULL ? value : "not set");
        if (value == NULL && row->fallback != NULL) {
            fprintf(to, ", which means %s", row->fallback);
        }
        fprintf(to, "\n    %s: %s\n", row->values, row->help);
    }
}

void dyti_env_print_markdown(FILE *to)
{
    fprintf(to, "| Variable | Values | Default | Effect |\n"
                "|---|---|---|---|\n");
    for (size_t i = 0; i < DYTI_ENV_COUNT; i++) {
        const struct dyti_env_row *row = &table[i];

        fprintf(to, "| `%s` | `", row->name);
        for (const char *c = row->values; *c != '\0'; c++) {
            fprintf(to, *c == '|' ? "\\|" : "%c", *c);
        }
        fprintf(to, "` | %s | %s |\n",
                row->fallback != NULL ? row->fallback : "", row->help);
    }
}
