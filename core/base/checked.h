/* Sums and products of sizes that may overflow.  true = overflowed. */
#ifndef DYTI_BASE_CHECKED_H
#define DYTI_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool dyti_mul_overflow(uint64_t a, uint64_t b, uint64_t *out)
{
    return __builtin_mul_overflow(a, b, out);
}

static inline bool dyti_add_overflow(uint64_t a, uint64_t b, uint64_t *out)
{
    return __builtin_add_overflow(a, b, out);
}

/* Round up to a multiple of `step`, a power of two.  The caller has checked
 * that the result fits. */
static inline uint64_t dyti_align_up(uint64_t x, uint64_t step)
{
    return (x + step - 1) & ~(step - 1);
}

#endif /* DYTI_BASE_CHECKED_H */
