/* The native dialect: how tensors are cut between ranks and in which order a
 * rank's region keeps them.  Shared by the files of this room only. */
#ifndef DYTI_LAYOUT_NATIVE_H
#define DYTI_LAYOUT_NATIVE_H

#include "layout/dialect.h"

/* A rank's flat buffers: that of the dense parameters, and that of the experts
 * where their ZeRO groups are others (dyti_layout_index.experts_apart). */
enum dyti_native_buffer { DYTI_DENSE, DYTI_EXPERTS, DYTI_NATIVE_BUFFERS };

/* Share r of `count` things over `parts`: as even as can be, the first ones
 * get one more.  Half open [*out_lo, *out_hi). */
void dyti_native_share(int64_t count, int64_t parts, int64_t r, int64_t *out_lo,
                       int64_t *out_hi);

/* Whether the member holds the tensor at all. */
bool dyti_native_at_home(const struct dyti_layout *layout,
                         const struct dyti_tensor *tensor,
                         const struct dyti_part *part);

/* Elements [lo, hi) of the cut axis that the rank holds of one segment. */
void dyti_native_cut(const struct dyti_model *model,
                     const struct dyti_tensor *tensor, uint32_t segment,
                     const struct dyti_part *part, int64_t *out_lo,
                     int64_t *out_hi);

struct dyti_native_range {
    int64_t lo, hi; /* elements of the cut axis */
};

/* What the rank holds of the cut axis, segment by segment; those that touch
 * are one.  Returns how many. */
uint32_t dyti_native_ranges(const struct dyti_model *model,
                            const struct dyti_tensor *tensor,
                            const struct dyti_part *part,
                            struct dyti_native_range out[DYTI_MAX_SEGMENTS]);

/* native_check.c: the two of the dialect's table that make no shards. */
enum dyt_status dyti_native_check(const struct dyti_layout *layout);
uint32_t dyti_native_representative(const struct dyti_layout *layout,
                                    uint32_t member, enum dyti_kind kind);

/* ---- order in memory (native_walk.c) ------------------------------------- */

/* One tensor in a rank's region: its local shape (ranges one behind the other
 * along the cut axis) and where it begins. */
struct dyti_native_slot {
    uint32_t tensor;
    enum dyti_native_buffer buffer;
    uint64_t flat; /* element offset in that buffer */
    uint64_t elements;
    int64_t shape[DYT_MAX_DIMS]; /* [ndim], local */
    struct dyti_native_range range[DYTI_MAX_SEGMENTS];
    uint32_t range_count;
};

/* Walk of the flat parameters of some runs of the catalogue, in order; second
 * copies of experts follow the tensors of their run. */
struct dyti_native_walk {
    const struct dyti_layout *layout;
    const struct dyti_part *part;
    uint32_t run, run_end;
    uint32_t next;                     /* tensor to look at next */
    bool copies;                       /* the second time over this run */
    uint64_t end[DYTI_NATIVE_BUFFERS]; /* elements used so far */
    enum dyti_slot last[DYTI_NATIVE_BUFFERS];
    int32_t last_expert[DYTI_NATIVE_BUFFERS];
    struct dyti_native_slot slot; /* where the walk stands */
    /* The last expert that was looked up, -1 = none: tensors of one follow each
     * other. */
    int32_t asked, asked_slot, asked_second;
};

/* Start the walk at run 0 of all, or of one run alone; then each
 * dyti_native_next() that is true leaves the next tensor in walk->slot. */
void dyti_native_walk_init(struct dyti_native_walk *walk,
                           const struct dyti_layout *layout,
                           const struct dyti_part *part);
void dyti_native_walk_run(struct dyti_native_walk *walk,
                          const struct dyti_layout *layout,
                          const struct dyti_part *part, uint32_t run,
                          const uint64_t begin[DYTI_NATIVE_BUFFERS]);
bool dyti_native_next(struct dyti_native_walk *walk);

/* Where runs lie, without walking each: a run is as long as the first of its
 * class. */
#define DYTI_RUN_CLASSES 32u

struct dyti_native_sizes {
    const struct dyti_layout *layout;
    const struct dyti_part *part;
    uint64_t size[DYTI_RUN_CLASSES][DYTI_NATIVE_BUFFERS];
    bool known[DYTI_RUN_CLASSES];
};

/* Move `end` behind a run: borders of a run are multiples of
 * DYTI_REGION_ALIGN. False: the member holds nothing of it. */
bool dyti_native_skip_run(struct dyti_native_sizes *sizes, uint32_t run,
                          uint64_t end[DYTI_NATIVE_BUFFERS]);

/* ---- flat ranges (flat.c) ------------------------------------------------ */

/* The most boxes that one flat range of a tensor of ndim dimensions needs. */
#define DYTI_FLAT_BOXES (2u * DYT_MAX_DIMS)

/* Cut elements [lo, hi) of a row-major array into boxes, in order: at most
 * 2*ndim - 1 of them.  Returns how many. */
uint32_t dyti_native_flat_boxes(uint32_t ndim, const int64_t *shape,
                                uint64_t lo, uint64_t hi,
                                struct dyt_box out_box[DYTI_FLAT_BOXES]);

/* A row-major local tensor whose `axis` is made of ranges; `local` is its
 * shape, `origin` the global coordinates of its first element. */
struct dyti_flat_piece {
    uint32_t tensor;
    enum dyti_kind kind;
    enum dyti_dtype dtype;
    uint32_t ndim, axis, range_count;
    const int64_t *local, *origin; /* [ndim]; origin[axis] is not read */
    const struct dyti_native_range *range;
};

/* Elements [lo, hi) of it as shards; element lo lies at `offset`. */
enum dyt_status dyti_emit_piece(const struct dyti_shard_sink *sink,
                                const struct dyti_flat_piece *piece,
                                uint64_t lo, uint64_t hi, uint64_t offset);

#endif /* DYTI_LAYOUT_NATIVE_H */
