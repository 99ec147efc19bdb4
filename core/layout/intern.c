/* Lists of numbers by content, in one hash table. */
#include "layout/intern.h"

#include "base/array.h"
#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

static uint64_t hash_of(const uint32_t *word, size_t count)
{
    uint64_t state = dyti_fingerprint_u64(DYTI_FINGERPRINT_SEED, count);
    size_t i = 0;

    for (; i + 2 <= count; i += 2) {
        state =
            dyti_fingerprint_u64(state, (uint64_t)word[i] << 32 | word[i + 1]);
    }
    return i < count ? dyti_fingerprint_u64(state, word[i]) : state;
}

static enum dyt_status grow_table(struct dyti_intern *in)
{
    uint32_t size = in->table_size == 0 ? 256 : in->table_size * 2;
    uint32_t *table;

    if (in->count < in->table_size / 2) {
        return DYT_OK;
    }
    if (size == 0 || (table = malloc(size * sizeof(*table))) == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a table of %u lists", in->count);
    }
    memset(table, 0xff, size * sizeof(*table));
    for (uint32_t i = 0; i < in->count; i++) {
        uint32_t at = (uint32_t)in->hash[i] & (size - 1);

        while (table[at] != UINT32_MAX) {
            at = (at + 1) & (size - 1);
        }
        table[at] = i;
    }
    free(in->table);
    in->table = table;
    in->table_size = size;
    return DYT_OK;
}

static enum dyt_status append(struct dyti_intern *in, const uint32_t *word,
                              size_t count, uint64_t hash)
{
    enum dyt_status st =
        DYTI_GROW(in->word, in->word_cap, in->word_count + count + 1);

    st =
        st != DYT_OK ? st : DYTI_GROW(in->first, in->first_cap, in->count + 2u);
    st = st != DYT_OK ? st : DYTI_GROW(in->hash, in->hash_cap, in->count + 1u);
    if (st != DYT_OK) {
        return st;
    }
    if (count > 0) {
        memcpy(in->word + in->word_count, word, count * sizeof(*word));
    }
    in->first[in->count] = in->word_count;
    in->word_count += count;
    in->hash[in->count++] = hash;
    in->first[in->count] = in->word_count;
    return DYT_OK;
}

enum dyt_status dyti_intern_add(struct dyti_intern *intern,
                                const uint32_t *word, size_t count,
                                uint32_t *out_index, bool *out_fresh)
{
    uint64_t hash = hash_of(word, count);
    enum dyt_status st = grow_table(intern);
    uint32_t at;

    if (st != DYT_OK) {
        return st;
    }
    at = (uint32_t)hash & (intern->table_size - 1);
    for (; intern->table[at] != UINT32_MAX;
         at = (at + 1) & (intern->table_size - 1)) {
        uint32_t i = intern->table[at];
        size_t first = intern->first[i];

        if (intern->hash[i] == hash && intern->first[i + 1] - first == count &&
            memcmp(intern->word + first, word, count * sizeof(*word)) == 0) {
            *out_index = i;
            *out_fresh = false;
            return DYT_OK;
        }
    }
    st = append(intern, word, count, hash);
    if (st == DYT_OK) {
        intern->table[at] = intern->count - 1;
        *out_index = intern->count - 1;
        *out_fresh = true;
    }
    return st;
}

void dyti_intern_clear(struct dyti_intern *intern)
{
    intern->count = 0;
    intern->word_count = 0;
    if (intern->table != NULL) {
        memset(intern->table, 0xff,
               intern->table_size * sizeof(*intern->table));
    }
}

void dyti_intern_fini(struct dyti_intern *intern)
{
    free(intern->word);
    free(intern->first);
    free(intern->hash);
    free(intern->table);
    memset(intern, 0, sizeof(*intern));
}
