/* The order of rows in a pass: a permutation computed, not stored.  A Feistel
 * network over the next power of four permutes more numbers than there are
 * rows; a result beyond them is permuted again until it falls inside. */
#include "format/data_jsonl.h"

#include "base/rng.h"

#include "base/banned.h"

#define FEISTEL_ROUNDS 6u

uint64_t dyti_data_order(uint64_t rows, uint64_t seed, uint64_t epoch,
                         uint64_t position, bool shuffle)
{
    uint32_t half_bits = 1;
    uint64_t mask, x = position;

    if (!shuffle || rows < 2) {
        return position;
    }
    while (half_bits < 32 && rows > 1ull << (2 * half_bits)) {
        half_bits++;
    }
    mask = (1ull << half_bits) - 1;
    do {
        uint64_t left = x >> half_bits, right = x & mask;

        for (uint64_t round = 0; round < FEISTEL_ROUNDS; round++) {
            uint64_t next =
                left ^ (dyti_rng_u64(seed, epoch, round, right) & mask);

            left = right;
            right = next;
        }
        x = left << half_bits | right;
    } while (x >= rows);
    return x;
}

void dyti_data_next(uint64_t rows, uint64_t seed, bool shuffle,
                    struct dyti_data_cursor *cursor, uint64_t count,
                    uint64_t *out_row)
{
    for (uint64_t i = 0; i < count; i++) {
        if (cursor->position >= rows) {
            cursor->epoch++;
            cursor->position = 0;
        }
        out_row[i] = dyti_data_order(rows, seed, cursor->epoch,
                                     cursor->position++, shuffle);
    }
}
