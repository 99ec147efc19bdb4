/* The native dialect: how tensors are cut between ranks and in which order a
 * rank's region keeps them.  Shared by the files of this room only. */
#ifndef DYTI_LAYOUT_NATIVE_H
#define DYTI_LAYOUT_NATIVE_H

#include "layout/layout.h"

/* One tensor in a rank's region: its local shape (segments one behind the
 * other along the cut axis) and where it begins. */
struct dyti_native_slot {
    uint32_t tensor;
    uint64_t flat; /* element offset in the region */
    uint64_t elements;
    int64_t shape[DYT_MAX_DIMS]; /* [ndim], local */
};

/* Walk of a rank's region in catalogue order. */
struct dyti_native_walk {
    const struct dyti_model *model;
    const struct dyti_part *part;
    uint32_t next; /* tensor to look at next */
    uint64_t end;  /* elements used so far */
    enum dyti_slot last;
    struct dyti_native_slot slot; /* where the walk stands */
};

/* Share r of `count` things over `parts`: as even as can be, the first ones
 * get one more.  Half open [*out_lo, *out_hi). */
void dyti_native_share(int64_t count, int64_t parts, int64_t r, int64_t *out_lo,
                       int64_t *out_hi);

/* Coordinates and shares of a member; pp_layers is filled in. */
void dyti_native_part(const struct dyti_model *model,
                      const struct dyti_layout_desc *desc, uint32_t member,
                      struct dyti_part *out_part);

/* Whether the pipeline stage of `part` is a home of the tensor. */
bool dyti_native_at_home(const struct dyti_tensor *tensor,
                         const struct dyti_part *part);

/* Elements [lo, hi) of the cut axis that the rank holds of one segment. */
void dyti_native_cut(const struct dyti_model *model,
                     const struct dyti_tensor *tensor, uint32_t segment,
                     const struct dyti_part *part, int64_t *out_lo,
                     int64_t *out_hi);

/* Start the walk; then each dyti_native_next() that is true leaves the next
 * tensor of the region in walk->slot. */
void dyti_native_walk_init(struct dyti_native_walk *walk,
                           const struct dyti_model *model,
                           const struct dyti_part *part);
bool dyti_native_next(struct dyti_native_walk *walk);

/* The most boxes that one flat range of a tensor of ndim dimensions needs. */
#define DYTI_FLAT_BOXES (2u * DYT_MAX_DIMS)

/* Cut elements [lo, hi) of a row-major array into boxes, in order: at most
 * 2*ndim - 1 of them.  Returns how many. */
uint32_t dyti_native_flat_boxes(uint32_t ndim, const int64_t *shape,
                                uint64_t lo, uint64_t hi,
                                struct dyt_box out_box[DYTI_FLAT_BOXES]);

#endif /* DYTI_LAYOUT_NATIVE_H */
