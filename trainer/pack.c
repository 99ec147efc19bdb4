/* Longest processing time first. */
#include "trainer/pack.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct load {
    uint64_t rows;
    uint32_t sequences;
};

static int by_key(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* Keys ascend by falling length, then by rising index. */
static void order(const uint32_t *rows, size_t count, uint64_t *key)
{
    for (size_t i = 0; i < count; i++) {
        key[i] = (uint64_t)(UINT32_MAX - rows[i]) << 32 | (uint32_t)i;
    }
    qsort(key, count, sizeof(*key), by_key);
}

static void spread(const uint32_t *rows, const uint64_t *key, size_t count,
                   struct load *load, uint32_t parts, uint32_t *out_part)
{
    memset(load, 0, parts * sizeof(*load));
    for (size_t k = 0; k < count; k++) {
        uint32_t i = (uint32_t)key[k], least = 0;

        for (uint32_t p = 1; p < parts; p++) {
            if (load[p].rows < load[least].rows) {
                least = p;
            }
        }
        load[least].rows += rows[i];
        load[least].sequences++;
        out_part[i] = least;
    }
}

static bool fits(const struct load *load, uint32_t parts, uint64_t cap)
{
    for (uint32_t p = 0; p < parts; p++) {
        if (load[p].rows > cap && load[p].sequences > 1) {
            return false;
        }
    }
    return true;
}

/* Room for the keys and `parts` loads in one block; NULL: no memory. */
static uint64_t *scratch(size_t count, size_t parts, struct load **out_load)
{
    uint64_t *key =
        malloc(count * sizeof(*key) + parts * sizeof(**out_load) + 1);

    *out_load = key == NULL ? NULL : (struct load *)(void *)(key + count);
    return key;
}

enum dyt_status dyti_pack_even(const uint32_t *rows, size_t count,
                               uint32_t parts, uint32_t *out_part)
{
    struct load *load;
    uint64_t *key = scratch(count, parts, &load);

    if (key == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "dealing %zu sequences", count);
    }
    order(rows, count, key);
    spread(rows, key, count, load, parts, out_part);
    free(key);
    return DYT_OK;
}

enum dyt_status dyti_pack_capped(const uint32_t *rows, size_t count,
                                 uint64_t cap, uint32_t *out_part,
                                 uint32_t *out_parts)
{
    struct load *load;
    uint64_t total = 0, parts;
    uint64_t *key = scratch(count, count, &load);

    if (key == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "packing %zu sequences", count);
    }
    for (size_t i = 0; i < count; i++) {
        total += rows[i];
    }
    order(rows, count, key);
    parts = (total + cap - 1) / cap;
    parts = parts > count ? count : parts;
    for (; parts > 0; parts += 1 + parts / 8) {
        parts = parts > count ? count : parts;
        spread(rows, key, count, load, (uint32_t)parts, out_part);
        if (fits(load, (uint32_t)parts, cap)) {
            break;
        }
    }
    free(key);
    *out_parts = (uint32_t)parts;
    return DYT_OK;
}
