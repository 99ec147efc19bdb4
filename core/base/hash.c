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
