/* How a dialect says who holds what: one table per dialect, one file each
 * (native.c, hf.c, megatron.c, zero12.c, zero3.c, fsdp2.c, vllm.c).
 * in: a checked desc   out: views (view.c), patterns (pattern.c) */
#ifndef DYTI_LAYOUT_DIALECT_H
#define DYTI_LAYOUT_DIALECT_H

#include "layout/layout.h"

/* Where a dialect puts the shards and buffers of one member and kind: in
 * storage order, which view.c then sorts by tensor and offset. */
struct dyti_shard_sink {
    void *self;
    enum dyt_status (*shard)(void *self, const struct dyti_shard *shard);
    /* name is copied; NULL sink->buffer: nobody asks for buffers. */
    enum dyt_status (*buffer)(void *self,
                              const struct dyti_view_buffer *buffer);
    /* Who holds what matters, not where it lies: tensors that first_alike()
     * names others for may be left out. */
    bool once;
};

struct dyti_locals;
struct dyti_placer;

struct dyti_dialect_ops {
    const char *name; /* "native", "megatron", … */

    /* Members that dyti_layout_alike() calls equal have regions of one size in
     * every kind but DYTI_EXTRA. */
    bool even_regions;

    /* What this dialect refuses beyond what all refuse, by name and with the
     * nearest value that works.  DYT_ERR_LAYOUT, DYT_ERR_UNSUPPORTED. */
    enum dyt_status (*check)(const struct dyti_layout *layout);

    /* The lowest member known to have the same list of shards of `kind` as
     * `member` (same boxes, same offsets), so that replicas are listed once. It
     * is its own representative; two of them may still be equal by chance. */
    uint32_t (*representative)(const struct dyti_layout *layout,
                               uint32_t member, enum dyti_kind kind);

    /* Whether each member has the same boxes of two kinds, of every tensor that
     * has both: they are listed once.  NULL: each kind is listed. */
    bool (*alike)(const struct dyti_layout *layout, enum dyti_kind a,
                  enum dyti_kind b);

    /* For each tensor the lowest one that is known to have the same boxes of
     * the kind on every member, such as that of an equal layer on the same
     * stage; itself where nothing is known.  NULL: nothing is. */
    void (*first_alike)(const struct dyti_layout *layout, enum dyti_kind kind,
                        uint32_t *out_first);

    /* Every shard of one member and kind that is held. *out_region_bytes is
     * the size of the region, padding included. */
    enum dyt_status (*emit)(const struct dyti_layout *layout,
                            const struct dyti_part *part, enum dyti_kind kind,
                            const struct dyti_shard_sink *sink,
                            uint64_t *out_region_bytes);

    /* What a view says beside its shards (flat_elements, zero …); NULL: nothing
     * more. */
    enum dyt_status (*describe)(const struct dyti_layout *layout,
                                const struct dyti_part *part,
                                struct dyti_view *view);

    /* The rest is for frame.c, whose representative, alike, first_alike and
     * emit all dialects but native share. */

    /* Whether ranks of one data-parallel group hold different parts of a kind
     * (not asked about DYTI_EXTRA); NULL: they never do. */
    bool (*is_cut)(const struct dyti_layout *layout, enum dyti_kind kind);
    bool flat; /* … cut wherever a tensor ends: equal layers differ */
    /* Lists the framework's tensors of list->part; NULL: place() does. */
    void (*list)(struct dyti_locals *list);
    /* Puts them into the region of p->kind, from *offset on. */
    enum dyt_status (*place)(const struct dyti_placer *p,
                             struct dyti_locals *list, uint64_t *offset);
};

/* One per file. */
extern const struct dyti_dialect_ops dyti_dialect_native;
extern const struct dyti_dialect_ops dyti_dialect_hf;
extern const struct dyti_dialect_ops dyti_dialect_megatron;
extern const struct dyti_dialect_ops dyti_dialect_zero12;
extern const struct dyti_dialect_ops dyti_dialect_zero3;
extern const struct dyti_dialect_ops dyti_dialect_fsdp2;
extern const struct dyti_dialect_ops dyti_dialect_vllm;

/* By enum dyti_dialect; NULL outside the table and for LIST. */
const struct dyti_dialect_ops *dyti_dialect_ops(enum dyti_dialect dialect);
const char *dyti_dialect_name(enum dyti_dialect dialect); /* static */

/* ---- what the dialects share (members.c) --------------------------------- */

/* Coordinates of a member by desc.order, and the native shares of each cut. */
void dyti_layout_part(const struct dyti_layout *layout, uint32_t member,
                      struct dyti_part *out_part);
/* Member of dense coordinates. */
uint32_t dyti_layout_member(const struct dyti_layout *layout, uint32_t tp,
                            uint32_t cp, uint32_t dp, uint32_t pp);
/* The lowest member with the same tp rank, pipeline stage and expert
 * coordinates: where only those count, its representative. */
uint32_t dyti_layout_alike(const struct dyti_layout *layout, uint32_t member);
/* Position in the ZeRO group of dense tensors (dp * cp_size + cp). */
uint32_t dyti_layout_zero_rank(const struct dyti_part *part);
/* Pipeline stage that holds a layer. */
uint32_t dyti_layout_stage_of(const struct dyti_layout *layout, int64_t layer);
bool dyti_layout_holds_layer(const struct dyti_layout *layout,
                             const struct dyti_part *part, int64_t layer);
/* Slot of an expert on the member's ep rank, -1 = not there; a redundant copy
 * on the same rank is the second answer: *out_next, -1 = none. */
int32_t dyti_layout_expert_slot(const struct dyti_layout *layout,
                                const struct dyti_part *part, int64_t expert,
                                int32_t *out_next);

#endif /* DYTI_LAYOUT_DIALECT_H */
