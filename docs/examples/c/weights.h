/* A model of two tensors for the examples: what an optimizer would have made of
 * them by version v is a number that can be told from any other. */
#ifndef WEIGHTS_H
#define WEIGHTS_H

#include <stdint.h>

#define ROWS 12
#define COLS 8

/* Element (row, col) of tensor t, in version v. */
static inline float weight_of(uint64_t v, uint32_t t, int64_t row, int64_t col)
{
    return (float)v + (float)t / 2.0f +
           (float)(row * COLS + col) / (4.0f * ROWS * COLS);
}

static const char *const tensor_name[2] = {"embed.weight", "head.weight"};

#endif /* WEIGHTS_H */
