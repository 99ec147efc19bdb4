/* JSON files of others: load, and typed members with messages that name file
 * and key.  A member that is absent or null takes the fallback.
 * Threads: one document is used by one thread at a time. */
#ifndef DYTI_FORMAT_JSON_FILE_H
#define DYTI_FORMAT_JSON_FILE_H

#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An object and where it lies: file is shown in messages, prefix (may be "")
 * goes before the key: "rope_scaling." */
struct dyti_json_at {
    const char *file;
    const char *prefix;
    const json_t *object; /* borrowed; NULL = every member is absent */
};

/* Parse a text / a file of at most 256 MiB whose top is an object.  Duplicate
 * keys and bytes after the end are refused.  *out_json: json_decref().
 * @return DYT_ERR_FORMAT with line and column; DYT_ERR_IO; DYT_ERR_NOMEM */
enum dyt_status dyti_json_parse(const char *file, const char *text,
                                size_t size_bytes, json_t **out_json);
enum dyt_status dyti_json_load(const char *path, json_t **out_json);

/* Written whole or not at all, two spaces of indentation. */
enum dyt_status dyti_json_save(const char *path, const json_t *json);

/* The member, NULL if absent or null. */
json_t *dyti_json_get(const struct dyti_json_at *at, const char *key);

/* DYT_ERR_FORMAT: absent, or of another type.  `most`: the value is in
 * [least, most].  *out is set only on DYT_OK. */
enum dyt_status dyti_json_int(const struct dyti_json_at *at, const char *key,
                              int64_t least, int64_t most, int64_t *out);
/* The same with a fallback: absent or null gives it. */
enum dyt_status dyti_json_int_or(const struct dyti_json_at *at, const char *key,
                                 int64_t least, int64_t most, int64_t fallback,
                                 int64_t *out);
enum dyt_status dyti_json_real_or(const struct dyti_json_at *at,
                                  const char *key, double fallback,
                                  double *out);
enum dyt_status dyti_json_bool_or(const struct dyti_json_at *at,
                                  const char *key, bool fallback, bool *out);
/* *out is borrowed from the document. */
enum dyt_status dyti_json_text_or(const struct dyti_json_at *at,
                                  const char *key, const char *fallback,
                                  const char **out);
/* Object or array; NULL if absent or null. */
enum dyt_status dyti_json_object_or_null(const struct dyti_json_at *at,
                                         const char *key, const json_t **out);
enum dyt_status dyti_json_array_or_null(const struct dyti_json_at *at,
                                        const char *key, const json_t **out);

/* DYT_ERR_NOMEM unless `json` is not NULL and was set: for building. Steals
 * the reference of `value`. */
enum dyt_status dyti_json_put(json_t *object, const char *key, json_t *value);

#endif /* DYTI_FORMAT_JSON_FILE_H */
