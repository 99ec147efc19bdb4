/* What session_member.c and the tests that start it agree on: the tensors of
 * the job, and which value each element has in which version. */
#ifndef SESSION_VALUES_H
#define SESSION_VALUES_H

#include "base/dtype.h"
#include "base/hash.h"

#include <string.h>

#define TENSORS 12u
#define ROWS    192 /* cut between the ranks of either side */
#define COLS    512

/* Exact in f32: 2^24 is above all that a test reaches. */
static inline float value_of(uint64_t version, uint32_t tensor, int64_t row,
                             int64_t col)
{
    return (float)((version * 7919 + tensor * 131 + (uint64_t)row * 17 +
                    (uint64_t)col * 3) &
                   0xffffff);
}

/* What an element adds to the content hash. */
static inline uint64_t content_of_element(uint32_t tensor, int64_t row,
                                          int64_t col, float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return dyti_content_mix(dyti_content_salt(tensor, DYTI_PARAM),
                            (uint64_t)(row * COLS + col), bits);
}

#endif /* SESSION_VALUES_H */
