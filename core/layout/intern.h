/* Lists of numbers by content: equal lists get the same number.  For the
 * files of this room. */
#ifndef DYTI_LAYOUT_INTERN_H
#define DYTI_LAYOUT_INTERN_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zeroed is empty.  List i is word[first[i]] … word[first[i + 1]). */
struct dyti_intern {
    uint32_t *word;
    size_t word_count, word_cap;
    size_t *first; /* [count + 1] */
    size_t first_cap;
    uint64_t *hash; /* [count] */
    size_t hash_cap;
    uint32_t count;
    uint32_t *table; /* open addressing, UINT32_MAX = free */
    uint32_t table_size;
};

/* The number of a list; *out_fresh: it is the first of its content. */
enum dyt_status dyti_intern_add(struct dyti_intern *intern,
                                const uint32_t *word, size_t count,
                                uint32_t *out_index, bool *out_fresh);
void dyti_intern_clear(struct dyti_intern *intern); /* keeps the memory */
void dyti_intern_fini(struct dyti_intern *intern);

#endif /* DYTI_LAYOUT_INTERN_H */
