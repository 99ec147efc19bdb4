/* From what a member publishes to pieces of the catalogue's tensors: rules
 * applied, pointers checked, names compared.  Nothing here talks to anybody.
 *
 * Terms
 *   catalogue  the model that the trainer's views make (vps/model.h, listed)
 *   place      the coordinates of a member: which cut of a row is its own
 *
 * Threads: any.
 */
#ifndef DYTI_PLUGIN_RESOLVE_H
#define DYTI_PLUGIN_RESOLVE_H

#include "layout/layout.h"

#include <dynatrain/session.h>

/* What to do with tensors of a speculative draft model, among a policy's. */
#define DYTI_DRAFT_REMEDY                                                      \
    "which is a target of its own: publish it in a job of its own (another "   \
    "job, at another address)"

/* Coordinates and numbers that rules need.  Borrowed arrays. */
struct dyti_place {
    uint32_t tp_rank, tp_size; /* sizes >= 1 */
    uint32_t ep_rank, ep_size;
    const int32_t *expert; /* [expert_count] in order of their places; NULL:
                              contiguous blocks, the first E mod ep one more */
    uint32_t expert_count;
    const struct dyt_attribute *attribute;
    uint32_t attribute_count;
};

/* A box of a catalogue tensor that lies in a row; strides of the row. */
struct dyti_row_piece {
    uint32_t row;    /* index in the view */
    uint32_t tensor; /* in the catalogue */
    struct dyt_box box;
    uint64_t offset;              /* bytes from the row's first element */
    int64_t stride[DYT_MAX_DIMS]; /* [tensor's ndim] bytes */
};

/* Elements of a row that a rule makes padding: of no tensor, and zero. */
struct dyti_row_pad {
    uint32_t row, ndim;
    uint64_t offset;              /* bytes from the row's first element */
    int64_t shape[DYT_MAX_DIMS];  /* [ndim] */
    int64_t stride[DYT_MAX_DIMS]; /* [ndim] bytes */
};

struct dyti_row_pieces {
    struct dyti_row_piece *piece; /* [count], by row, then offset; owned */
    size_t count;
    struct dyti_row_pad *pad; /* [pad_count], owned */
    size_t pad_count;
};
void dyti_row_pieces_fini(struct dyti_row_pieces *pieces);

/* Struct sizes, shapes, strides, flags, unique names: what can be said of a
 * view alone.  DYT_ERR_INVALID lists up to ten faults, each with its row.
 * DYT_ERR_UNSUPPORTED: a dtype or device that is not there. */
enum dyt_status dyti_view_check(const struct dyt_view *view);

/* Memory of the rows: mapped, readable, writable where `writes`; without
 * touching it (/proc/self/maps).  DYT_ERR_INVALID names row, address, and what
 * is wrong: not mapped, read-only, ends inside. */
enum dyt_status dyti_view_check_memory(const struct dyt_view *view,
                                       bool writes);
/* Likewise, of those rows alone that are `used` ([row_count]; NULL: all). */
enum dyt_status dyti_view_check_alive(const struct dyt_view *view,
                                      const bool *used, bool writes);

/* The catalogue of a trainer: the union of its ranks' rows, in the order of the
 * first rank that names them.  A row without pieces is a cut of the tensor of
 * its name: global_shape says how large that is, and where the rows of several
 * ranks do not cover it the layout says so later.
 * DYT_ERR_LAYOUT lists tensors whose global shapes differ between ranks. */
enum dyt_status dyti_catalogue_build(const struct dyt_view *view,
                                     uint32_t view_count,
                                     struct dyti_model **out_model);

/* Pieces of a member's rows: those that it gave, and by rules where it gave
 * none (rules NULL: rows are named as their tensors, and whole).  Rows that
 * share an earlier one's memory (DYT_ROW_ALIAS without DYT_ROW_STAGED) have
 * none.  The view has passed dyti_view_check().
 * DYT_ERR_LAYOUT lists up to ten faults at once, and what of the catalogue no
 * row of this member names:
 *   unexpected      a row of no rule, or whose tensor the catalogue lacks, with
 *                   the nearest names
 *   mismatched      the row's shape is not what its parts sum to: both shapes
 *   odd             a cut that does not divide, an attribute that is missing
 *   doubly covered  an element in two rows; redundant experts and aliases with
 *                   memory of their own are copies, not that
 * DYT_ERR_UNSUPPORTED  rows of a quantised layer or of a LoRA adapter, by name
 * DYT_ERR_INVALID      the table of rules is malformed, or the place is */
enum dyt_status dyti_rules_apply(const struct dyti_model *catalogue,
                                 const struct dyt_view *view,
                                 const struct dyt_rules *rules,
                                 const struct dyti_place *place,
                                 struct dyti_row_pieces *out_pieces);

/* What the members of `whose` ("replica", "trainer") hold together against the
 * catalogue: tensors of `kinds` that nobody covers, whole or in part.
 * DYT_ERR_LAYOUT lists them. */
enum dyt_status dyti_replica_check(const struct dyti_model *catalogue,
                                   uint32_t kinds, const char *whose,
                                   const struct dyti_view *const *member,
                                   uint32_t member_count);

#endif /* DYTI_PLUGIN_RESOLVE_H */
