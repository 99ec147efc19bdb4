/* Keys of a table: which key is which row of the table of settings, where it
 * was set, and a hint for one that nobody knows. */
#include "format/file.h"
#include "format/job_options.h"

#include "base/array.h"
#include "base/banned.h"

#include <stdarg.h>

#define KEY_BYTES 256u

/* ---- where rows were set ------------------------------------------------ */

enum dyt_status dyti_reader_note(struct dyti_job_reader *reader,
                                 const struct dyti_option *option,
                                 enum dyti_option_scope scope, uint32_t index,
                                 const struct dyti_place *place)
{
    char text[DYTI_PATH_BYTES + 32];
    struct dyti_job_origin *origin;
    enum dyt_status st;

    st =
        DYTI_GROW(reader->origin, reader->origin_cap, reader->origin_count + 1);
    if (st != DYT_OK) {
        return st;
    }
    origin = &reader->origin[reader->origin_count];
    origin->place = strdup(dyti_place_text(place, text, sizeof(text)));
    if (origin->place == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "reading %s", reader->path);
    }
    origin->option = option;
    origin->scope = scope;
    origin->index = index;
    reader->origin_count++;
    return DYT_OK;
}

static const struct dyti_job_origin *find_origin(
    const struct dyti_job_reader *reader, enum dyti_option_scope scope,
    uint32_t index, const char *path)
{
    for (size_t i = reader->origin_count; i-- > 0;) {
        const struct dyti_job_origin *origin = &reader->origin[i];

        if (origin->scope == scope && origin->index == index &&
            strcmp(origin->option->path, path) == 0) {
            return origin;
        }
    }
    return NULL;
}

const char *dyti_reader_where(const struct dyti_job_reader *reader,
                              enum dyti_option_scope scope, uint32_t index,
                              const char *path)
{
    const struct dyti_job_origin *origin =
        path == NULL ? NULL : find_origin(reader, scope, index, path);

    if (origin != NULL) {
        return origin->place;
    }
    if (scope == DYTI_SCOPE_PHASE && index < reader->job.phase_count &&
        reader->phase_place[index] != NULL) {
        return reader->phase_place[index];
    }
    if (scope == DYTI_SCOPE_REWARD && index < reader->job.reward_count &&
        reader->reward_place[index] != NULL) {
        return reader->reward_place[index];
    }
    return reader->path;
}

bool dyti_reader_was_set(const struct dyti_job_reader *reader,
                         enum dyti_option_scope scope, uint32_t index,
                         const char *path)
{
    return find_origin(reader, scope, index, path) != NULL;
}

enum dyt_status dyti_reader_wrong(const struct dyti_job_reader *reader,
                                  enum dyti_option_scope scope, uint32_t index,
                                  const char *path, const char *fmt, ...)
{
    char text[512];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return DYTI_FAIL(DYT_ERR_CONFIG, "%s: %s",
                     dyti_reader_where(reader, scope, index, path), text);
}

/* ---- keys --------------------------------------------------------------- */

static void *scope_base(struct dyti_job_reader *reader,
                        enum dyti_option_scope scope, uint32_t index)
{
    return scope == DYTI_SCOPE_PHASE    ? (void *)&reader->job.phase[index]
           : scope == DYTI_SCOPE_REWARD ? (void *)&reader->job.reward[index]
                                        : (void *)&reader->job;
}

static uint32_t scope_kind(const struct dyti_job_reader *reader,
                           enum dyti_option_scope scope, uint32_t index)
{
    return scope == DYTI_SCOPE_PHASE    ? reader->job.phase[index].kind
           : scope == DYTI_SCOPE_REWARD ? reader->job.reward[index].kind
                                        : 0;
}

/* The key as --set would say it. */
static void show_key(const struct dyti_job_reader *reader,
                     enum dyti_option_scope scope, uint32_t index,
                     const char *path, char *buf, size_t buf_bytes)
{
    if (scope == DYTI_SCOPE_PHASE) {
        snprintf(buf, buf_bytes, "phase.%s.%s", reader->job.phase[index].name,
                 path);
    } else if (scope == DYTI_SCOPE_REWARD) {
        snprintf(buf, buf_bytes, "reward.functions.%u.%s", index, path);
    } else {
        snprintf(buf, buf_bytes, "%s", path);
    }
}

/* A key of another scope that ends in the same word. */
static const char *elsewhere(enum dyti_option_scope scope, const char *path,
                             enum dyti_option_scope *out_scope)
{
    const char *dot = strrchr(path, '.');
    const char *word = dot == NULL ? path : dot + 1;

    for (int s = 0; s < DYTI_SCOPE_COUNT; s++) {
        size_t count;
        const struct dyti_option *row =
            dyti_options((enum dyti_option_scope)s, &count);

        for (size_t i = 0; i < count && s != (int)scope; i++) {
            const char *end = strrchr(row[i].path, '.');

            if (strcmp(row[i].path, path) == 0 ||
                strcmp(end == NULL ? row[i].path : end + 1, word) == 0) {
                *out_scope = (enum dyti_option_scope)s;
                return row[i].path;
            }
        }
    }
    return NULL;
}

/* The first key of the table `path`, NULL if there is no such table. */
static const char *inside(enum dyti_option_scope scope, const char *path)
{
    size_t count, bytes = strlen(path);
    const struct dyti_option *row = dyti_options(scope, &count);

    if (bytes == 0) {
        /* A phase or a function itself; a job has no name to be set by. */
        return scope == DYTI_SCOPE_JOB ? NULL : row[0].path;
    }
    for (size_t i = 0; i < count; i++) {
        if (strncmp(row[i].path, path, bytes) == 0 &&
            row[i].path[bytes] == '.') {
            return row[i].path;
        }
    }
    return NULL;
}

enum dyt_status dyti_reader_unknown(const struct dyti_job_reader *reader,
                                    enum dyti_option_scope scope,
                                    uint32_t index, const char *path,
                                    const struct dyti_place *place)
{
    static const char *const owner[] = {"", "phase.NAME.",
                                        "reward.functions.N."};
    char where[DYTI_PATH_BYTES + 32], shown[KEY_BYTES + 128];
    char hint[KEY_BYTES + 128];
    char found[KEY_BYTES];
    const char *near;
    enum dyti_option_scope other;

    dyti_place_text(place, where, sizeof(where));
    show_key(reader, scope, index, path, shown, sizeof(shown));
    near = inside(scope, path);
    if (near != NULL) {
        show_key(reader, scope, index, near, hint, sizeof(hint));
        if (path[0] == '\0') {
            shown[strlen(shown) - 1] = '\0'; /* the dot before no key */
        }
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "%s: %s is a table: give its keys one by one, as %s",
                         where, shown, hint);
    }
    if (dyti_option_nearest(scope, path, found, sizeof(found))) {
        show_key(reader, scope, index, found, hint, sizeof(hint));
        return DYTI_FAIL(DYT_ERR_CONFIG, "%s: unknown key %s: did you mean %s?",
                         where, shown, hint);
    }
    near = elsewhere(scope, path, &other);
    if (near != NULL) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "%s: unknown key %s: did you mean %s%s?", where, shown,
                         owner[other], near);
    }
    return DYTI_FAIL(DYT_ERR_CONFIG,
                     "%s: unknown key %s: docs/config.md lists all keys", where,
                     shown);
}

enum dyt_status dyti_reader_put(struct dyti_job_reader *reader,
                                enum dyti_option_scope scope, uint32_t index,
                                const struct dyti_option *row,
                                const struct dyti_toml *value,
                                const struct dyti_place *place)
{
    char where[DYTI_PATH_BYTES + 32], shown[KEY_BYTES + 128];
    uint32_t kind = scope_kind(reader, scope, index);
    enum dyt_status st;

    show_key(reader, scope, index, row->path, shown, sizeof(shown));
    if (!dyti_option_fits(row, kind)) {
        char word[64];
        const char *words =
            scope == DYTI_SCOPE_PHASE ? DYTI_PHASE_WORDS : DYTI_REWARD_WORDS;

        return DYTI_FAIL(
            DYT_ERR_CONFIG, "%s: %s: has no meaning %s %s: take it out",
            dyti_place_text(place, where, sizeof(where)), shown,
            scope == DYTI_SCOPE_PHASE ? "in the phase" : "for the kind",
            dyti_choice_word(words, kind, word, sizeof(word)));
    }
    st = dyti_option_put(row, scope_base(reader, scope, index), value, place,
                         shown);
    if (st == DYT_OK) {
        st = dyti_reader_note(reader, row, scope, index, place);
    }
    return st;
}

/* Keys that are read by themselves: the elements of arrays of tables, and what
 * names an element. */
static bool is_special(enum dyti_option_scope scope, const char *path)
{
    if (scope == DYTI_SCOPE_JOB) {
        return strcmp(path, "phase") == 0 || strcmp(path, "reward") == 0;
    }
    return scope == DYTI_SCOPE_PHASE &&
           (strcmp(path, "name") == 0 || strcmp(path, "config") == 0);
}

static enum dyt_status walk(struct dyti_job_reader *reader,
                            enum dyti_option_scope scope, uint32_t index,
                            const char *prefix, const struct dyti_toml *table,
                            const struct dyti_place *file)
{
    char path[KEY_BYTES], where[DYTI_PATH_BYTES + 32];
    enum dyt_status st = DYT_OK;

    for (uint32_t i = 0; i < table->child_count && st == DYT_OK; i++) {
        const struct dyti_toml *child = &table->child[i];
        struct dyti_place place = *file;
        const struct dyti_option *row;

        if (!file->loose) { /* --set has no lines */
            place.line = child->key_line;
            place.column = child->key_column;
        }
        snprintf(path, sizeof(path), "%s%s%.100s", prefix,
                 prefix[0] == '\0' ? "" : ".", child->key);
        row = dyti_option_find(scope, path);
        if (row != NULL && strchr(child->key, '.') == NULL) {
            st = dyti_reader_put(reader, scope, index, row, child, &place);
        } else if (!dyti_option_is_table(scope, path)) {
            st = prefix[0] == '\0' && file->folder != NULL &&
                         is_special(scope, path)
                     ? DYT_OK
                     : dyti_reader_unknown(reader, scope, index, path, &place);
        } else if (child->type != DYTI_TOML_TABLE) {
            st = DYTI_FAIL(DYT_ERR_CONFIG,
                           "%s: %s: wants a table, not %s: write [%s]",
                           dyti_place_text(&place, where, sizeof(where)), path,
                           dyti_toml_type_name(child->type), path);
        } else {
            st = walk(reader, scope, index, path, child, file);
        }
    }
    return st;
}

enum dyt_status dyti_reader_table(struct dyti_job_reader *reader,
                                  enum dyti_option_scope scope, uint32_t index,
                                  const struct dyti_toml *table,
                                  const struct dyti_place *place)
{
    return walk(reader, scope, index, "", table, place);
}
