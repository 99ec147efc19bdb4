/* What the two layouts of a switch have in common, element by element, written
 * down once for all equal tensors: the ground that bounds, choice, placement
 * and routes stand on.  Knows nothing of links or of who sends.
 *
 *   block  tensors of one group with equal patterns at both ends
 *   atom   a box of each tensor of a block, all of whose elements have the
 *          same source holders S and the same destination holders D
 *   class  atoms of one group, S and D: laid end to end they are its stream,
 *          atom by atom, tensor by tensor, element by element
 */
#ifndef DYTI_PLAN_COMMON_H
#define DYTI_PLAN_COMMON_H

#include "layout/pattern.h"
#include "plan/plan.h"
#include "plan/sets.h"

#define DYTI_MAX_PATTERNS (1u + DYTI_KIND_COUNT * DYTI_PLAN_MAX_SOURCES)

struct dyti_want_group {
    uint32_t base;   /* wants that share geometries at both ends */
    uint32_t source; /* which source of each want */
    uint32_t dtype;  /* 1 + the dtype of tensors that have one of their own */
    uint32_t want[DYTI_KIND_COUNT], want_count;
    /* Bytes of an element: of each want, and of all together. */
    uint32_t read[DYTI_KIND_COUNT], write[DYTI_KIND_COUNT];
    uint32_t read_all, write_all;
};

struct dyti_common_block {
    uint32_t group, src_pattern, dst_pattern;
    uint32_t tensor_first, tensor_count; /* in atoms.tensor */
    uint32_t atom_first, atom_count;
};

struct dyti_common_atom {
    uint32_t block, src_set, dst_set;
    uint32_t ndim;
    size_t at;         /* in atoms.edge: ndim lows, then ndim highs */
    uint64_t elements; /* of one tensor */
};

struct dyti_common_class {
    uint32_t group, src_set, dst_set;
    uint32_t first, count; /* in atoms.order */
    uint64_t elements;     /* of the stream: all tensors, one kind */
    uint64_t boxes;        /* of the stream */
};

/* An atom's place in the stream of its class. */
struct dyti_common_place {
    uint32_t atom;
    uint64_t element, box; /* before it */
};

struct dyti_common {
    struct dyti_plan_inputs inputs;
    uint32_t *host; /* [world_size] */
    uint32_t world_size, host_count;
    struct dyti_sets sets;
    struct dyti_want_group *group;
    size_t group_count, group_cap;
    struct dyti_common_block *block;
    size_t block_count, block_cap;
    uint32_t *tensor;
    size_t tensor_count;
    struct dyti_common_atom *atom;
    size_t atom_count, atom_cap;
    int64_t *edge;
    size_t edge_count, edge_cap;
    struct dyti_common_class *class;
    size_t class_count, class_cap;
    struct dyti_common_place *order; /* [atom_count] by class */
};

/* `host` [world_size] is copied; NULL = all on one.
 * DYT_ERR_LAYOUT: elements of a destination have no source. */
enum dyt_status dyti_common_build(const struct dyti_plan_inputs *inputs,
                                  const uint32_t *host,
                                  const struct dyti_patterns *const *patterns,
                                  uint32_t pattern_count,
                                  struct dyti_common *out_atoms);
void dyti_common_fini(struct dyti_common *atoms); /* a zeroed one is fine */

void dyti_common_box(const struct dyti_common *atoms, uint32_t atom,
                     struct dyt_box *out_box);

static inline uint32_t dyti_common_tensors(const struct dyti_common *atoms,
                                           uint32_t atom)
{
    return atoms->block[atoms->atom[atom].block].tensor_count;
}

/* Place in class->order of the atom that holds element `at` of the stream. */
uint32_t dyti_class_find(const struct dyti_common *atoms,
                         const struct dyti_common_class *c, uint64_t at);

/* ---- pieces of building ------------------------------------------------- */

struct dyti_held {
    struct dyt_box box;
    uint32_t set;
    int64_t reach; /* largest hi of this and those before it, on the axis */
};

struct dyti_held_list {
    struct dyti_held *held;
    size_t count, cap;
    uint32_t axis; /* sorted by lo of this axis */
};

/* Make holders that may overlap into disjoint boxes with the union of the sets
 * of those that lay over each other (refine.c). */
enum dyt_status dyti_refine(struct dyti_sets *sets,
                            struct dyti_held_list *list);
/* First of the list that may touch lo and what follows it. */
size_t dyti_held_from(const struct dyti_held_list *list, int64_t lo);

/* Group the atoms by class (classes.c). */
enum dyt_status dyti_classes_build(struct dyti_common *atoms);

#endif /* DYTI_PLAN_COMMON_H */
