/* Data files: one JSON object a line.  A row has `prompt` (text), or
 * `messages` (a chat), or fields that a template makes a prompt of; every other
 * field is kept as it is for the reward functions.
 * Errors: "train.jsonl:12: <what is wrong>: <what to do>".
 * Threads: any, once open; the file is read once and kept. */
#ifndef DYTI_FORMAT_DATA_JSONL_H
#define DYTI_FORMAT_DATA_JSONL_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dyti_data;

/**
 * Read a file of rows; blank lines are skipped.
 * @return DYT_ERR_IO      cannot be read
 * @return DYT_ERR_FORMAT  a line is no JSON object, or the file has no row
 */
enum dyt_status dyti_data_open(const char *path, struct dyti_data **out_data);
/* As dyti_data_open, from bytes; `name` is what messages call it. */
enum dyt_status dyti_data_parse(const char *name, const char *text,
                                size_t text_bytes, struct dyti_data **out_data);
void dyti_data_close(struct dyti_data *data);

uint64_t dyti_data_rows(const struct dyti_data *data);
/* Where a row is, for messages: the file as it was named, the line from 1. */
const char *dyti_data_name(const struct dyti_data *data);
uint64_t dyti_data_line(const struct dyti_data *data, uint64_t row);
/* Fingerprint of all rows: a resumed run must see the same file. */
uint64_t dyti_data_fingerprint(const struct dyti_data *data);

/**
 * The prompt of a row as text.  *out_text is malloc'ed, the caller's.
 * @param prompt_template  "{letters}>"; {{ and }} are braces; a field that is
 *                         no string is put in as JSON.  "" or NULL: the row's
 *                         own `prompt`.
 * @return DYT_ERR_FORMAT  the row has no such field, or null in it; the text
 *                         says which it has
 * @return DYT_ERR_STATE   template is empty and the row has `messages`
 */
enum dyt_status dyti_data_prompt_text(const struct dyti_data *data,
                                      uint64_t row, const char *prompt_template,
                                      char **out_text);

/* The row's chat as JSON text of its list, NULL where it has none.  Borrowed
 * until close. */
const char *dyti_data_messages(const struct dyti_data *data, uint64_t row);

/* A field as text: a string's own, anything else as JSON.  *out_text is
 * malloc'ed.  DYT_ERR_FORMAT: the row has no such field, or null in it. */
enum dyt_status dyti_data_field_text(const struct dyti_data *data, uint64_t row,
                                     const char *field, char **out_text);

/* The whole row as one line of JSON.  Borrowed until close. */
const char *dyti_data_row_json(const struct dyti_data *data, uint64_t row);

/* False where a brace of a template stands alone; *out_column (from 1) then
 * says where. */
bool dyti_template_check(const char *prompt_template, uint32_t *out_column);

/* ---- order -------------------------------------------------------------- */

/* Where in the data a run is: plain value, stored in checkpoints. */
struct dyti_data_cursor {
    uint64_t epoch;    /* passes that are complete */
    uint64_t position; /* rows of this pass that were given out */
};

/* The row at a position of a pass: a permutation of all rows that is a pure
 * function of (seed, epoch) and costs no memory; without `shuffle` the file's
 * own order.  position < rows. */
uint64_t dyti_data_order(uint64_t rows, uint64_t seed, uint64_t epoch,
                         uint64_t position, bool shuffle);

/* The next `count` rows; the cursor moves on, over the end of a pass where
 * need be. */
void dyti_data_next(uint64_t rows, uint64_t seed, bool shuffle,
                    struct dyti_data_cursor *cursor, uint64_t count,
                    uint64_t *out_row);

#endif /* DYTI_FORMAT_DATA_JSONL_H */
