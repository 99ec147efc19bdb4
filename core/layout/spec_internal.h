/* A spec while it is read: shared by spec.c (keys), spec_list.c (values that
 * are lists) and bridge/format's reader of TOML. */
#ifndef DYTI_LAYOUT_SPEC_INTERNAL_H
#define DYTI_LAYOUT_SPEC_INTERNAL_H

#include "layout/spec.h"

#define DYTI_SPEC_DIALECTS   "native|hf|megatron|zero12|zero3|fsdp2|vllm"
#define DYTI_SPEC_MOST_RANKS (1u << 20) /* of a world, a list, a degree */

struct dyti_spec_reader {
    struct dyti_layout_spec *spec;
    const char *where; /* what messages begin with */
    uint32_t given;    /* bits of keys that were given */
    bool zero_given;
    /* hosts as written: counts, or one for all */
    uint32_t *host_size;
    uint32_t host_count;
    uint32_t rank_count, layer_count, slot_rows;
};

/* "a+b+c", with ranges "a-b" where `ranges`: *out is malloc'ed. */
enum dyt_status dyti_spec_u32s(const struct dyti_spec_reader *r,
                               const char *key, const char *value, bool ranges,
                               uint32_t **out, uint32_t *out_count);

/* "a+b/c+d": rows of equal length, padded with -1. */
enum dyt_status dyti_spec_slots(struct dyti_spec_reader *r, const char *value);

/* "tp-cp-dp-pp" */
enum dyt_status dyti_spec_order(struct dyti_spec_reader *r, const char *value);

/* A whole number without sign, at most `most`. */
enum dyt_status dyti_spec_number(const struct dyti_spec_reader *r,
                                 const char *key, const char *value,
                                 uint64_t most, uint32_t *out);

/* One of the words, "a|b|c": its position. */
enum dyt_status dyti_spec_word(const struct dyti_spec_reader *r,
                               const char *key, const char *value,
                               const char *words, uint32_t *out);

/* Fill in what is not given and check what is. */
enum dyt_status dyti_spec_finish(struct dyti_spec_reader *r);

/* The nearest of the words, into buf. */
void dyti_spec_nearest(const char *word, const char *words, char buf[64]);

/* The dialect, before any key. */
enum dyt_status dyti_spec_set_dialect(struct dyti_spec_reader *r,
                                      const char *name);
enum dyt_status dyti_spec_set_key(struct dyti_spec_reader *r, const char *name,
                                  const char *value);
/* Defaults and checks; takes the reader's spec over, or frees it unless `st`
 * and they are fine. */
enum dyt_status dyti_spec_conclude(struct dyti_spec_reader *r,
                                   const char *where, enum dyt_status st,
                                   struct dyti_layout_spec *out_spec);

#endif /* DYTI_LAYOUT_SPEC_INTERNAL_H */
