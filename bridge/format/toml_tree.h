/* The tree that toml_shim.cc makes and toml.h offers: the one header that the
 * project's C and its only C++ file share. */
#ifndef DYTI_FORMAT_TOML_TREE_H
#define DYTI_FORMAT_TOML_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum dyti_toml_type {
    DYTI_TOML_TABLE,
    DYTI_TOML_ARRAY,
    DYTI_TOML_STRING,
    DYTI_TOML_INTEGER,
    DYTI_TOML_FLOAT,
    DYTI_TOML_BOOL,
    DYTI_TOML_DATE /* a date or a time: no setting of ours is one */
};

/* A value, and the key that it has in its table.  Children of a table are in
 * the order of the file. */
struct dyti_toml {
    enum dyti_toml_type type;
    uint32_t key_line, key_column; /* from 1; 0 where there is no key */
    uint32_t line, column;         /* of the value, from 1 */
    char *key;                     /* NULL in an array and at the root */
    char *text;                    /* STRING: NUL-terminated */
    size_t text_bytes;
    int64_t integer;
    double real;
    bool flag;
    struct dyti_toml *child; /* [child_count], TABLE and ARRAY */
    uint32_t child_count;
};

struct dyti_toml_error {
    char text[256];
    uint32_t line, column;
    bool no_memory;
};

/* 0 = fine.  Otherwise *error is set and *root may be half built: fini. */
int dyti_toml_shim_parse(const char *text, size_t text_bytes,
                         struct dyti_toml *root, struct dyti_toml_error *error);

#ifdef __cplusplus
}
#endif

#endif /* DYTI_FORMAT_TOML_TREE_H */
