/* TOML 1.0 text as a tree with the place of every key and value.  The parser
 * is tomlplusplus, behind toml_shim.cc; no C++ shows here.
 * Errors: "job.toml:12:7: <what is wrong>". */
#ifndef DYTI_FORMAT_TOML_H
#define DYTI_FORMAT_TOML_H

#include "base/error.h"
#include "format/toml_tree.h"

/**
 * Parse text; `name` is what messages call it (a path).
 * @return DYT_ERR_CONFIG  not TOML (or a key twice, or a NUL in a string);
 *                         nothing to give back
 */
enum dyt_status dyti_toml_parse(const char *text, size_t text_bytes,
                                const char *name, struct dyti_toml *out_root);

/* Parse a file.  DYT_ERR_IO: it cannot be read, or is larger than 16 MiB. */
enum dyt_status dyti_toml_load(const char *path, struct dyti_toml *out_root);

/* Zeroed is fine, and what it leaves. */
void dyti_toml_fini(struct dyti_toml *root);

/* The child of a table by its key, NULL if there is none. */
const struct dyti_toml *dyti_toml_find(const struct dyti_toml *table,
                                       const char *key);

/* "a string", "a table", …: for messages.  Static. */
const char *dyti_toml_type_name(enum dyti_toml_type type);

#endif /* DYTI_FORMAT_TOML_H */
