/* One pass over the keys to count, one to spread, then bin after bin. */
#include "base/sort.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define FEW       4096u /* items that are not worth it */
#define BIN_ITEMS 64u   /* in a bin, were they spread evenly */
#define MOST_BINS (1u << 16)

struct bins {
    const char *item;
    size_t count, bytes;
    dyti_sort_key_fn key;
    uint64_t least;
    unsigned shift; /* key - least, of which so many bits are left out */
    size_t bins;
    size_t *end; /* [bins + 1]: while spreading where the next one goes */
};

static size_t bin_of(const struct bins *b, const void *item)
{
    return (size_t)((b->key(item) - b->least) >> b->shift);
}

static bool is_sorted(const char *item, size_t count, size_t bytes,
                      dyti_sort_compare_fn compare)
{
    for (size_t i = 1; i < count; i++) {
        if (compare(item + (i - 1) * bytes, item + i * bytes) > 0) {
            return false;
        }
    }
    return true;
}

/* As many bins as items of BIN_ITEMS, each of as many keys: a power of two. */
static void choose_bins(struct bins *b)
{
    uint64_t most = 0;
    size_t want = b->count / BIN_ITEMS;

    want = want < MOST_BINS ? want : MOST_BINS;
    b->least = UINT64_MAX;
    for (size_t i = 0; i < b->count; i++) {
        uint64_t key = b->key(b->item + i * b->bytes);

        b->least = key < b->least ? key : b->least;
        most = key > most ? key : most;
    }
    while ((most - b->least) >> b->shift >= want) {
        b->shift++;
    }
    b->bins = (size_t)((most - b->least) >> b->shift) + 1;
}

static void spread(struct bins *b, char *to)
{
    size_t at = 0;

    for (size_t i = 0; i < b->count; i++) {
        b->end[bin_of(b, b->item + i * b->bytes)]++;
    }
    for (size_t k = 0; k < b->bins; k++) {
        size_t of_bin = b->end[k];

        b->end[k] = at;
        at += of_bin;
    }
    for (size_t i = 0; i < b->count; i++) {
        const char *item = b->item + i * b->bytes;

        memcpy(to + b->end[bin_of(b, item)]++ * b->bytes, item, b->bytes);
    }
}

void dyti_sort(void *item, size_t count, size_t item_bytes,
               dyti_sort_key_fn key, dyti_sort_compare_fn compare)
{
    struct bins b = {
        .item = item, .count = count, .bytes = item_bytes, .key = key};
    char *spare;
    size_t first = 0;

    if (count < 2 || is_sorted(item, count, item_bytes, compare)) {
        return;
    }
    if (count < FEW) {
        qsort(item, count, item_bytes, compare);
        return;
    }
    choose_bins(&b);
    spare = malloc(count * item_bytes);
    b.end = calloc(b.bins, sizeof(*b.end));
    if (spare == NULL || b.end == NULL || b.bins < 2) {
        qsort(item, count, item_bytes, compare);
    } else {
        spread(&b, spare);
        memcpy(item, spare, count * item_bytes);
        for (size_t k = 0; k < b.bins; first = b.end[k++]) {
            if (b.end[k] - first > 1) {
                qsort((char *)item + first * item_bytes, b.end[k] - first,
                      item_bytes, compare);
            }
        }
    }
    free(spare);
    free(b.end);
}
