/* Random numbers as a pure function of their coordinates: no state, so no
 * order of calls, no thread and no layout can change them. */
#ifndef DYTI_BASE_RNG_H
#define DYTI_BASE_RNG_H

#include "base/hash.h"

/* 64 random bits for (seed, a, b, c), e.g. (seed, prompt, sample, position). */
static inline uint64_t dyti_rng_u64(uint64_t seed, uint64_t a, uint64_t b,
                                    uint64_t c)
{
    uint64_t x = dyti_mix64(seed + 0x9e3779b97f4a7c15u);

    x = dyti_mix64(x ^ dyti_mix64(a + 0x3c6ef372fe94f82bu));
    x = dyti_mix64(x ^ dyti_mix64(b + 0xdaa66d2c7ddf743fu));
    return dyti_mix64(x ^ dyti_mix64(c + 0x78dde6e5fd29f053u));
}

/* Uniform in [0, 1), 53 bits. */
static inline double dyti_rng_unit(uint64_t bits)
{
    return (double)(bits >> 11) * 0x1p-53;
}

#endif /* DYTI_BASE_RNG_H */
