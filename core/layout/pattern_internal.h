/* What the files that make patterns share.  Of this room only.
 *
 *   pattern_boxes.c  which members hold the same, and what those hold
 *   pattern_sets.c   sets of ranks, and the pattern of one tensor
 *   pattern.c        kinds of one geometry, and the whole */
#ifndef DYTI_LAYOUT_PATTERN_INTERNAL_H
#define DYTI_LAYOUT_PATTERN_INTERNAL_H

#include "layout/intern.h"
#include "layout/pattern.h"

/* A box that a representative holds. */
struct dyti_pattern_entry {
    struct dyt_box box;
    uint32_t tensor;
    uint32_t group; /* index of the representative among those of this kind */
};

struct dyti_pattern_build {
    const struct dyti_layout *layout;
    struct dyti_patterns *out;
    /* Of the kind at hand: members that hold the same, as ranks. */
    uint32_t *group_first, *group_rank; /* [group_count + 1], [members] */
    uint32_t *group_member;             /* [group_count] the representative */
    uint32_t group_count;
    struct dyti_pattern_entry *entry; /* as emitted */
    size_t entry_count, entry_cap;
    uint32_t *order; /* entries by tensor, box, group */
    size_t order_cap;
    size_t *tensor_first;     /* [tensor_count + 1] into order */
    struct dyti_intern lists; /* groups that hold a box together */
    uint32_t *set_of_list;    /* [lists.count] */
    size_t set_of_list_cap;
    uint32_t at_group; /* being emitted */
    uint32_t *first;   /* [tensor_count] that a tensor is held like */
    /* Of all kinds. */
    struct dyti_intern sets, patterns;
    size_t pattern_cap, holder_cap;
    uint32_t *scratch;
    size_t scratch_cap;
};

/* ---- pattern_boxes.c ---- */

/* Members that hold; each rank of a list, as it stands for itself. */
uint32_t dyti_pattern_holder_count(const struct dyti_layout *layout);
/* Number the representatives of a kind and list the ranks of each. */
enum dyt_status dyti_pattern_group(struct dyti_pattern_build *b,
                                   enum dyti_kind kind);
/* What they hold, and its order by tensor, box, group. */
enum dyt_status dyti_pattern_collect(struct dyti_pattern_build *b,
                                     enum dyti_kind kind);
enum dyt_status dyti_pattern_sort(struct dyti_pattern_build *b);
/* By where they begin, then by where they end. */
int dyti_pattern_compare(const struct dyt_box *a, const struct dyt_box *b);

/* ---- pattern_sets.c ---- */

/* Holders of one tensor of those that were sorted, and its pattern. */
enum dyt_status dyti_pattern_add(struct dyti_pattern_build *b, uint32_t tensor,
                                 uint32_t *out_pattern);

#endif /* DYTI_LAYOUT_PATTERN_INTERNAL_H */
