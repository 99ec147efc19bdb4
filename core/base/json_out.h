/* Writes JSON into a growing buffer, one value after the other.  Errors stick:
 * calls after one do nothing, and dyti_json_finish says what went wrong.
 *
 *   struct dyti_json j;
 *
 *   dyti_json_init(&j, 0);
 *   dyti_json_begin_object(&j, NULL);
 *   dyti_json_u64(&j, "step", step);
 *   dyti_json_end(&j);
 *   st = dyti_json_finish(&j, &text, &bytes);
 *   ...
 *   dyti_json_release(&j);
 *
 * key: the member's name inside an object, NULL at the top and in an array.
 * Threads: one writer by one thread at a time. */
#ifndef DYTI_BASE_JSON_OUT_H
#define DYTI_BASE_JSON_OUT_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define DYTI_JSON_DEPTH 32u

struct dyti_json {
    char *text; /* owned, NUL-terminated once anything was written */
    size_t bytes, cap;
    uint32_t indent;              /* spaces per level; 0 = all on one line */
    uint32_t depth;               /* open objects and arrays */
    char closer[DYTI_JSON_DEPTH]; /* '}' or ']' */
    bool filled[DYTI_JSON_DEPTH]; /* something is in it already */
    bool done;                    /* the one value at the top is complete */
    enum dyt_status status;
};

void dyti_json_init(struct dyti_json *json, uint32_t indent);
void dyti_json_release(struct dyti_json *json);

/* Empty again, memory kept: for one line after the other. */
void dyti_json_clear(struct dyti_json *json);

void dyti_json_begin_object(struct dyti_json *json, const char *key);
void dyti_json_begin_array(struct dyti_json *json, const char *key);
void dyti_json_end(struct dyti_json *json);

/* NULL is written as null.  What is not UTF-8 becomes U+FFFD. */
void dyti_json_text(struct dyti_json *json, const char *key, const char *value);
void dyti_json_bytes(struct dyti_json *json, const char *key, const char *value,
                     size_t value_bytes);
void dyti_json_u64(struct dyti_json *json, const char *key, uint64_t value);
void dyti_json_i64(struct dyti_json *json, const char *key, int64_t value);
/* The shortest text that reads back as the same number; NaN and infinity,
 * which JSON has not, as null. */
void dyti_json_f64(struct dyti_json *json, const char *key, double value);
void dyti_json_bool(struct dyti_json *json, const char *key, bool value);
void dyti_json_null(struct dyti_json *json, const char *key);
/* A value that is JSON already, taken as it is. */
void dyti_json_raw(struct dyti_json *json, const char *key, const char *value);

/* Writes what there is so far and empties the buffer; what follows goes on
 * where it stopped.
 * DYT_ERR_IO  out cannot be written */
enum dyt_status dyti_json_drain(struct dyti_json *json, FILE *out);

/* The text, borrowed until the next call; with a newline at its end.
 * DYT_ERR_NOMEM
 * DYT_ERR_STATE  the calls did not make one whole value: a key missing or too
 *                many, something still open or closed twice, too deep */
enum dyt_status dyti_json_finish(struct dyti_json *json, const char **out_text,
                                 size_t *out_bytes);

#endif /* DYTI_BASE_JSON_OUT_H */
