/* What a region of the native dialect keeps of its flat buffers: all of them,
 * or the ranges that the member owns of a ZeRO cut. */
#ifndef DYTI_LAYOUT_NATIVE_KEEP_H
#define DYTI_LAYOUT_NATIVE_KEEP_H

#include "layout/native.h"

/* A range of a flat buffer, and at which element of the region it begins. */
struct dyti_kept {
    uint64_t lo, hi, at;
};

struct dyti_keeping {
    struct dyti_kept *range[DYTI_NATIVE_BUFFERS]; /* rising */
    uint32_t count[DYTI_NATIVE_BUFFERS];
    uint64_t elements;                         /* that the region keeps */
    struct dyti_kept one[DYTI_NATIVE_BUFFERS]; /* where one range is enough */
};

/* Whether ZeRO of this stage cuts the kind. */
bool dyti_native_is_cut(uint32_t zero, enum dyti_kind kind);

/* elements: of each buffer. */
enum dyt_status dyti_keeping_init(const struct dyti_layout *layout,
                                  const struct dyti_part *part, bool cut,
                                  const uint64_t elements[DYTI_NATIVE_BUFFERS],
                                  struct dyti_keeping *out_keeping);
void dyti_keeping_fini(struct dyti_keeping *keeping);

/* First range of a buffer that ends behind x. */
uint32_t dyti_keeping_first(const struct dyti_keeping *k, int b, uint64_t x);
/* Whether something of [lo, hi) of a buffer is kept. */
bool dyti_keeping_meets(const struct dyti_keeping *k, int b, uint64_t lo,
                        uint64_t hi);

#endif /* DYTI_LAYOUT_NATIVE_KEEP_H */
