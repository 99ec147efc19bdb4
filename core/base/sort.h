/* Sorting of very many: items are spread over bins by a number that rises with
 * their order, and each bin is sorted by itself, where it fits a cache. */
#ifndef DYTI_BASE_SORT_H
#define DYTI_BASE_SORT_H

#include <stddef.h>
#include <stdint.h>

/* Never more for an item that comes before another: the beginning of what
 * `compare` looks at, as a number. */
typedef uint64_t (*dyti_sort_key_fn)(const void *item);
typedef int (*dyti_sort_compare_fn)(const void *a, const void *b);

/* As qsort(), of which it is quicker where there are many items whose keys
 * differ.  Needs as much memory again; without that it is qsort(). */
void dyti_sort(void *item, size_t count, size_t item_bytes,
               dyti_sort_key_fn key, dyti_sort_compare_fn compare);

#endif /* DYTI_BASE_SORT_H */
