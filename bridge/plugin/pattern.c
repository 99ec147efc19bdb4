#include "plugin/pattern.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NUMBER_DIGITS 9

enum hole { HOLE_NONE, HOLE_LAYER, HOLE_EXPERT, HOLE_STAR, HOLE_UNKNOWN };

/* The hole that a text begins with, and its bytes. */
static enum hole hole_at(const char *text, size_t *out_bytes)
{
    static const struct {
        const char *word;
        enum hole hole;
    } known[] = {
        {"{layer}", HOLE_LAYER}, {"{expert}", HOLE_EXPERT}, {"{*}", HOLE_STAR}};

    *out_bytes = 1;
    if (*text != '{') {
        return HOLE_NONE;
    }
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        size_t bytes = strlen(known[i].word);

        if (strncmp(text, known[i].word, bytes) == 0) {
            *out_bytes = bytes;
            return known[i].hole;
        }
    }
    return HOLE_UNKNOWN;
}

bool dyti_pattern_is_sound(const char *pattern)
{
    uint32_t stars = 0;
    size_t bytes;

    if (pattern == NULL || pattern[0] == '\0' ||
        strnlen(pattern, DYTI_PATTERN_BYTES) >= DYTI_PATTERN_BYTES) {
        return false;
    }
    for (const char *at = pattern; *at != '\0'; at += bytes) {
        enum hole hole = hole_at(at, &bytes);

        stars += hole == HOLE_STAR;
        if (hole == HOLE_UNKNOWN || *at == '}') {
            return false;
        }
    }
    return stars <= DYTI_PATTERN_STARS;
}

/* A number without leading zeros, which may stand at most once for a hole. */
static size_t number_at(const char *name, int64_t *slot)
{
    int64_t value = 0;
    size_t bytes = 0;

    while (isdigit((unsigned char)name[bytes]) && bytes <= NUMBER_DIGITS) {
        value = value * 10 + (name[bytes++] - '0');
    }
    if (bytes == 0 || bytes > NUMBER_DIGITS || (bytes > 1 && name[0] == '0') ||
        (*slot >= 0 && *slot != value)) {
        return 0;
    }
    *slot = value;
    return bytes;
}

static bool match(const char *pattern, const char *name,
                  struct dyti_captures *c)
{
    size_t bytes;

    for (; *pattern != '\0'; pattern += bytes) {
        enum hole hole = hole_at(pattern, &bytes);

        if (hole == HOLE_NONE) {
            if (*pattern != *name) {
                return false;
            }
            name++;
        } else if (hole == HOLE_STAR) {
            uint32_t at = c->star_count++;

            for (size_t taken = 0;; taken++) {
                struct dyti_captures tried = *c;

                tried.star[at] = name;
                tried.star_bytes[at] = taken;
                if (match(pattern + bytes, name + taken, &tried)) {
                    *c = tried;
                    return true;
                }
                if (name[taken] == '\0') {
                    return false;
                }
            }
        } else {
            size_t digits =
                number_at(name, hole == HOLE_LAYER ? &c->layer : &c->expert);

            if (digits == 0) {
                return false;
            }
            name += digits;
        }
    }
    return *name == '\0';
}

bool dyti_pattern_match(const char *pattern, const char *name,
                        struct dyti_captures *out_captures)
{
    struct dyti_captures captures = {.layer = -1, .expert = -1};
    const char *tail = strrchr(pattern, '}');
    size_t name_bytes, tail_bytes;

    /* Most names fail at their end: look there first. */
    if (tail != NULL) {
        name_bytes = strlen(name);
        tail_bytes = strlen(tail + 1);
        if (name_bytes < tail_bytes ||
            memcmp(name + name_bytes - tail_bytes, tail + 1, tail_bytes) != 0) {
            return false;
        }
    }
    if (!match(pattern, name, &captures)) {
        return false;
    }
    *out_captures = captures;
    return true;
}

bool dyti_pattern_fill(const char *pattern,
                       const struct dyti_captures *captures,
                       char out_name[DYTI_PATTERN_BYTES])
{
    uint32_t star = 0;
    size_t used = 0, bytes;

    for (const char *at = pattern; *at != '\0'; at += bytes) {
        enum hole hole = hole_at(at, &bytes);
        char number[24];
        const char *text = at;
        size_t length = bytes;

        if (hole == HOLE_STAR) {
            if (star >= captures->star_count) {
                return false;
            }
            text = captures->star[star];
            length = captures->star_bytes[star++];
        } else if (hole != HOLE_NONE) {
            int64_t value =
                hole == HOLE_LAYER ? captures->layer : captures->expert;

            if (value < 0) {
                return false;
            }
            length =
                (size_t)snprintf(number, sizeof(number), "%" PRId64, value);
            text = number;
        }
        if (used + length >= DYTI_PATTERN_BYTES) {
            return false;
        }
        memcpy(out_name + used, text, length);
        used += length;
    }
    out_name[used] = '\0';
    return true;
}
