/* The state of building struct dyti_common; blocks.c and common.c. */
#ifndef DYTI_PLAN_COMMON_BUILD_H
#define DYTI_PLAN_COMMON_BUILD_H

#include "plan/common.h"

/* A base group: wants whose holders are the same at both ends. */
struct dyti_common_base {
    uint32_t want[DYTI_KIND_COUNT], want_count;
    const struct dyti_patterns *dst, *src[DYTI_PLAN_MAX_SOURCES];
    uint32_t dst_geometry, src_geometry[DYTI_PLAN_MAX_SOURCES];
    uint32_t source_count;
};

struct dyti_common_builder {
    struct dyti_common *atoms;
    const struct dyti_patterns *const *patterns;
    uint32_t pattern_count;
    uint32_t *set_of[DYTI_MAX_PATTERNS]; /* a pattern's set → ours */
    struct dyti_common_base base[DYTI_KIND_COUNT];
    uint32_t base_count;
    uint32_t *block_of; /* [base_count][tensor_count], NO_PATTERN: not wanted */
    uint32_t *slot;     /* block + 1, by hash */
    size_t slot_count;
    struct dyti_held_list src, dst;
};

/* Wants of equal geometry, then the blocks of all tensors (blocks.c).
 * DYT_ERR_LAYOUT: a tensor has no source at all. */
enum dyt_status dyti_common_bases(struct dyti_common_builder *b);
enum dyt_status dyti_common_blocks(struct dyti_common_builder *b);

/* "exp_avg of … on rank 3 in phase train: 5 of 8 elements have a source". */
enum dyt_status dyti_common_no_source(const struct dyti_common_builder *b,
                                      uint32_t base, uint32_t tensor,
                                      uint32_t rank, uint64_t have,
                                      uint64_t want);

#endif /* DYTI_PLAN_COMMON_BUILD_H */
