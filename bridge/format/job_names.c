/* Looking things up in the table of settings: rows, choices, and the nearest
 * known key of a wrong one. */
#include "format/job_options.h"

#include "base/banned.h"

#define WORD_MAX 64u

const struct dyti_option *dyti_options(enum dyti_option_scope scope,
                                       size_t *out_count)
{
    switch (scope) {
    case DYTI_SCOPE_PHASE:
        *out_count = dyti_phase_option_count;
        return dyti_phase_options;
    case DYTI_SCOPE_REWARD:
        *out_count = dyti_reward_option_count;
        return dyti_reward_options;
    default:
        *out_count = dyti_job_option_count;
        return dyti_job_options;
    }
}

const struct dyti_option *dyti_option_find(enum dyti_option_scope scope,
                                           const char *path)
{
    size_t count;
    const struct dyti_option *row = dyti_options(scope, &count);

    for (size_t i = 0; i < count; i++) {
        if (strcmp(row[i].path, path) == 0) {
            return &row[i];
        }
    }
    return NULL;
}

bool dyti_option_is_table(enum dyti_option_scope scope, const char *path)
{
    size_t count, bytes = strlen(path);
    const struct dyti_option *row = dyti_options(scope, &count);

    for (size_t i = 0; i < count; i++) {
        if (strncmp(row[i].path, path, bytes) == 0 &&
            row[i].path[bytes] == '.') {
            return true;
        }
    }
    return false;
}

bool dyti_option_fits(const struct dyti_option *option, uint32_t kind)
{
    return option->kinds == 0 || (option->kinds >> kind & 1u) != 0;
}

static const char *last_word(const char *path)
{
    const char *dot = strrchr(path, '.');

    return dot == NULL ? path : dot + 1;
}

/* `have`, or a table that it lies in, if that is nearer to `path` than the best
 * so far. */
static void try_path(const char *path, const char *have, uint32_t *best,
                     char *buf, size_t buf_bytes)
{
    char part[WORD_MAX];

    for (size_t bytes = 1; bytes <= strlen(have); bytes++) {
        uint32_t d;

        if (have[bytes] != '.' && have[bytes] != '\0') {
            continue;
        }
        snprintf(part, sizeof(part), "%.*s", (int)bytes, have);
        d = dyti_edit_distance(path, part);
        if (d < *best) {
            *best = d;
            snprintf(buf, buf_bytes, "%s", part);
        }
    }
}

/* A path spelled nearly so, or else the same last word in another table, or
 * else nearly that. */
bool dyti_option_nearest(enum dyti_option_scope scope, const char *path,
                         char *buf, size_t buf_bytes)
{
    size_t count;
    const struct dyti_option *row = dyti_options(scope, &count);
    const char *word = last_word(path);
    uint32_t limit = (uint32_t)(strlen(word) / 4 + 2), best = limit;

    for (size_t i = 0; i < count; i++) {
        try_path(path, row[i].path, &best, buf, buf_bytes);
    }
    for (uint32_t near = 0; near <= 2 && best == limit; near += 2) {
        for (size_t i = 0; i < count && best == limit; i++) {
            const char *have = last_word(row[i].path);

            if ((near == 0 || strlen(have) > 3) &&
                dyti_edit_distance(have, word) <= near) {
                best = 0;
                snprintf(buf, buf_bytes, "%s", row[i].path);
            }
        }
    }
    return best < limit;
}

/* The next word of "a|b|!c"; false at the end. */
static bool next_word(const char **at, const char **word, size_t *bytes,
                      bool *served)
{
    if (**at == '\0') {
        return false;
    }
    *served = **at != '!';
    *word = *served ? *at : *at + 1;
    *bytes = strcspn(*word, "|");
    *at = *word + *bytes;
    *at += **at == '|';
    return true;
}

int32_t dyti_choice_find(const char *choices, const char *word,
                         size_t word_bytes, bool *out_served)
{
    const char *at = choices, *have;
    size_t bytes;
    int32_t position = 0;

    while (next_word(&at, &have, &bytes, out_served)) {
        if (bytes == word_bytes && memcmp(have, word, bytes) == 0) {
            return position;
        }
        position++;
    }
    return -1;
}

const char *dyti_choice_word(const char *choices, uint32_t position, char *buf,
                             size_t buf_bytes)
{
    const char *at = choices, *word;
    size_t bytes;
    bool served;

    while (next_word(&at, &word, &bytes, &served)) {
        if (position-- == 0) {
            snprintf(buf, buf_bytes, "%.*s", (int)bytes, word);
            return buf;
        }
    }
    return "?";
}

const char *dyti_choice_list(const char *choices, char *buf, size_t buf_bytes)
{
    const char *at = choices, *word;
    size_t bytes, used = 0, left = 0, total = 0;
    bool served;

    while (next_word(&at, &word, &bytes, &served)) {
        total += served;
    }
    buf[0] = '\0';
    at = choices;
    while (next_word(&at, &word, &bytes, &served)) {
        const char *glue = left == 0 ? "" : left + 1 == total ? " or " : ", ";
        int got;

        if (!served) {
            continue;
        }
        got = snprintf(buf + used, buf_bytes - used, "%s%.*s", glue, (int)bytes,
                       word);
        used += got > 0 ? (size_t)got : 0;
        left++;
        if (used >= buf_bytes) {
            break; /* cut */
        }
    }
    return buf;
}
