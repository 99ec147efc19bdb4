/* What the files of this room look up often, made once per layout: members by
 * rank, stages of layers, runs of tensors, experts, owners of ZeRO ranges. */
#ifndef DYTI_LAYOUT_INDEX_H
#define DYTI_LAYOUT_INDEX_H

#include "layout/layout.h"

/* Tensors [first, end) of the catalogue that follow each other and are of one
 * layer (-1: of none).  Runs of one class are built alike: equal shapes, slots,
 * experts and cuts. */
struct dyti_layout_run {
    uint32_t first, end;
    int32_t layer;
    uint32_t class;
};

#define DYTI_NOT_FLAT (-2)

struct dyti_layout_index {
    uint32_t *member_of;         /* [world_size] UINT32_MAX = takes no part */
    uint32_t *stage_of;          /* [layers] pipeline stage */
    int64_t *first_layer;        /* [pp * vpp + 1] of each virtual stage */
    struct dyti_layout_run *run; /* parameters, in catalogue order */
    uint32_t run_count, class_count;
    uint32_t *aside; /* parameters outside the flat buffers, then extras */
    uint32_t aside_count;
    uint32_t *extra;
    uint32_t extra_count;
    /* [tensor_count] expert of a tensor in the flat buffers, -1 = dense;
     * DYTI_NOT_FLAT: it lies aside.  What walks of thousands of tensors ask. */
    int32_t *expert_of;
    bool has_experts;
    /* Expert parameters have a flat buffer of their own: their ZeRO groups are
     * not those of the dense ones. */
    bool experts_apart;
    bool has_copies; /* some ep rank has an expert in two slots */
    /* [ep * experts] slots, -1 = none; NULL unless the map is explicit */
    int32_t *slot, *second_slot;
    /* Explicit ZeRO cuts, of the dense and of the expert buffer: ranges of
     * owner o are range[owner_first[o]] .. */
    struct {
        uint32_t *owner_first; /* [owners + 1]; NULL = even */
        uint32_t *range;       /* index into the desc's */
    } cut[2];
};

/* layout->desc is complete and checked; on failure dyti_layout_index_destroy()
 * frees what there is. */
enum dyt_status dyti_layout_index_build(struct dyti_layout *layout);
void dyti_layout_index_destroy(struct dyti_layout_index *index);

/* An equal layer before this one on the same stage; UINT32_MAX: none. */
uint32_t dyti_layout_run_before(const struct dyti_layout *layout, uint32_t run);

/* Whether a parameter lies in a flat buffer: it has all kinds and no dtype of
 * its own.  Others lie aside and no ZeRO cut touches them. */
bool dyti_tensor_is_flat(const struct dyti_tensor *tensor);

#endif /* DYTI_LAYOUT_INDEX_H */
