/* How values are written, the same in all texts and in all JSON. */
#ifndef DYTI_EXPLAIN_WORDS_H
#define DYTI_EXPLAIN_WORDS_H

#include "base/json_out.h"
#include "layout/arena.h"

#include <dynatrain/box.h>
#include <stdio.h>

struct dyti_words {
    char text[96];
};

/* "817 B", "12.3 MiB". */
struct dyti_words dyti_words_bytes(uint64_t bytes);
/* "199 ns", "27.8 us", "12.30 ms", "1.61 s". */
struct dyti_words dyti_words_seconds(double s);
/* "49152 x 576". */
struct dyti_words dyti_words_shape(uint32_t ndim, const int64_t *shape);
/* "[0:25, 0:16]". */
struct dyti_words dyti_words_box(const struct dyt_box *box);
/* A fingerprint: 16 hex digits; as text in JSON too, where numbers end at
 * 2^53. */
struct dyti_words dyti_words_hex(uint64_t value);

/* Static. */
const char *dyti_words_cut(enum dyti_cut cut);
const char *dyti_words_residency(enum dyti_residency residency);
const char *dyti_words_slot(enum dyti_arena_slot slot);

/* {"lo": [...], "hi": [...]} */
void dyti_words_box_json(struct dyti_json *json, const char *key,
                         const struct dyt_box *box);
void dyti_words_hex_json(struct dyti_json *json, const char *key,
                         uint64_t value);
void dyti_words_range_json(struct dyti_json *json, const char *key, int64_t lo,
                           int64_t hi);

/* The end of every text function: has everything been written? */
enum dyt_status dyti_words_done(FILE *out, const char *what);

#endif /* DYTI_EXPLAIN_WORDS_H */
