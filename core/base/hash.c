#include "base/hash.h"

#include <string.h>

uint64_t dyti_fingerprint_bytes(uint64_t state, const void *bytes,
                                size_t size_bytes)
{
    const unsigned char *p = bytes;
    size_t left = size_bytes;

    state = dyti_fingerprint_u64(state, size_bytes);
    while (left > 0) {
        size_t take = left < 8 ? left : 8;
        uint64_t word = 0;

        for (size_t i = 0; i < take; i++) {
            word |= (uint64_t)p[i] << (8 * i);
        }
        state = dyti_fingerprint_u64(state, word);
        p += take;
        left -= take;
    }
    return state;
}

uint64_t dyti_fingerprint_text(uint64_t state, const char *text)
{
    return dyti_fingerprint_bytes(state, text, strlen(text));
}

/* Compilers make one load of it. */
static uint64_t word_at(const unsigned char *p)
{
    return (uint64_t)p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 |
           (uint64_t)p[3] << 24 | (uint64_t)p[4] << 32 | (uint64_t)p[5] << 40 |
           (uint64_t)p[6] << 48 | (uint64_t)p[7] << 56;
}

uint64_t dyti_content_bytes(uint64_t salt, uint64_t index, const void *bytes,
                            size_t size_bytes)
{
    const unsigned char *p = bytes;
    size_t whole = size_bytes / 8, rest = size_bytes % 8;
    unsigned char last[8] = {0};
    uint64_t sum = 0;

    for (size_t i = 0; i < whole; i++) {
        sum += dyti_content_mix(salt, index + i, word_at(p + 8 * i));
    }
    if (rest > 0) {
        memcpy(last, p + 8 * whole, rest);
        sum += dyti_content_mix(salt, index + whole, word_at(last));
    }
    return sum;
}
