/* Rows of elements from one dtype to another: floats round to nearest even,
 * integers only to their own type.  Addresses need no alignment. */
#ifndef DYTI_FORMAT_CONVERT_H
#define DYTI_FORMAT_CONVERT_H

#include "base/dtype.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

/* True if dyti_convert_row can go from one to the other. */
bool dyti_convertible(enum dyti_dtype from, enum dyti_dtype to);

/* dst[i * dst_stride] = src[i * src_stride], strides in bytes.  The pair is
 * convertible; the ranges do not overlap. */
void dyti_convert_row(enum dyti_dtype to, void *dst, int64_t dst_stride,
                      enum dyti_dtype from, const void *src, int64_t src_stride,
                      int64_t count);

#endif /* DYTI_FORMAT_CONVERT_H */
