/* Patterns of names: `{layer}` and `{expert}` stand for a number, `{*}` for any
 * text. */
#ifndef DYTI_PLUGIN_PATTERN_H
#define DYTI_PLUGIN_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DYTI_PATTERN_STARS 2u
#define DYTI_PATTERN_BYTES 256u /* of a name or pattern, with its end */

/* What the holes of a pattern stood for. */
struct dyti_captures {
    int64_t layer, expert; /* -1: no such hole */
    const char *star[DYTI_PATTERN_STARS];
    size_t star_bytes[DYTI_PATTERN_STARS];
    uint32_t star_count;
};

/* Whether a text is a pattern: known holes, at most DYTI_PATTERN_STARS `{*}`,
 * shorter than DYTI_PATTERN_BYTES. */
bool dyti_pattern_is_sound(const char *pattern);

/* Whether a name fits a sound pattern; the first `{*}` takes as little as it
 * can. */
bool dyti_pattern_match(const char *pattern, const char *name,
                        struct dyti_captures *out_captures);

/* A pattern with its holes filled; false: a hole that nothing fills, or too
 * long. */
bool dyti_pattern_fill(const char *pattern,
                       const struct dyti_captures *captures,
                       char out_name[DYTI_PATTERN_BYTES]);

#endif /* DYTI_PLUGIN_PATTERN_H */
