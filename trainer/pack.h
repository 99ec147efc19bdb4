/* Answers "which sequence goes where?"  Pure functions of the lengths. */
#ifndef DYTI_TRAINER_PACK_H
#define DYTI_TRAINER_PACK_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

/* Spread over `parts` so that loads are even: longest first, each to the part
 * with the least rows so far, the lowest of equals.
 *   out_part [count] out.  O(count * (log count + parts)). */
enum dyt_status dyti_pack_even(const uint32_t *rows, size_t count,
                               uint32_t parts, uint32_t *out_part);

/* Spread over as few parts of at most `cap` rows as that rule finds; a sequence
 * longer than that is alone.  count = 0: no part. */
enum dyt_status dyti_pack_capped(const uint32_t *rows, size_t count,
                                 uint64_t cap, uint32_t *out_part,
                                 uint32_t *out_parts);

#endif /* DYTI_TRAINER_PACK_H */
