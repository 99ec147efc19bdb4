/* Stage 1 of 5: VPS.  Answers "what tensors exist?"
 * in: arch.h   out: used by layout/layout.h
 *
 * A model is the catalogue of a family's tensors, in one fixed order that is
 * also their order in memory: embed; per layer input_norm, q, k, v, [q_bias,
 * k_bias, v_bias], [q_norm, k_norm], o, post_norm, gate, up, down; final norm;
 * [head].  Names are those of the Hugging Face files.  Nothing is allocated for
 * the weights, so a model of any size can be described.
 */
#ifndef DYTI_VPS_MODEL_H
#define DYTI_VPS_MODEL_H

#include "base/error.h"
#include "vps/arch.h"

#include <dynatrain/box.h>
#include <stddef.h>

/* How tensor parallelism cuts one segment of a tensor. */
enum dyti_cut {
    DYTI_CUT_NONE,     /* every TP rank holds all of it */
    DYTI_CUT_VOCAB,    /* vocabulary rows, as evenly as possible */
    DYTI_CUT_Q_HEADS,  /* whole query heads (head_dim elements each) */
    DYTI_CUT_KV_HEADS, /* the KV heads that the rank's query heads read */
    DYTI_CUT_FFN       /* FFN rows or columns, as evenly as possible */
};

/* What a tensor is for: nn finds its weights by (layer, slot). */
enum dyti_slot {
    DYTI_SLOT_EMBED,
    DYTI_SLOT_INPUT_NORM,
    DYTI_SLOT_Q,
    DYTI_SLOT_K,
    DYTI_SLOT_V,
    DYTI_SLOT_Q_BIAS,
    DYTI_SLOT_K_BIAS,
    DYTI_SLOT_V_BIAS,
    DYTI_SLOT_Q_NORM,
    DYTI_SLOT_K_NORM,
    DYTI_SLOT_O,
    DYTI_SLOT_POST_NORM,
    DYTI_SLOT_GATE,
    DYTI_SLOT_UP,
    DYTI_SLOT_DOWN,
    DYTI_SLOT_FINAL_NORM,
    DYTI_SLOT_HEAD,
    DYTI_SLOT_COUNT
};

#define DYTI_MAX_SEGMENTS 4u

/* A run of the cut axis with one rule: a fused QKV has three, a plain tensor
 * one that covers the whole axis. */
struct dyti_segment {
    int64_t lo, hi; /* elements of the cut axis */
    enum dyti_cut cut;
};

struct dyti_tensor {
    const char *name; /* owned by the model */
    uint32_t ndim;
    int64_t shape[DYT_MAX_DIMS]; /* [ndim] */
    int32_t layer;               /* -1: before the layers or after them */
    enum dyti_slot slot;
    uint32_t cut_axis;
    uint32_t segment_count;
    struct dyti_segment segment[DYTI_MAX_SEGMENTS];
    /* Homes: the embedding lives on the first pipeline stage, final norm and
     * head on the last; a tied embedding has both homes. */
    bool on_first, on_last;
    /* Replicas of this tensor each compute only a part of its gradient (KV
     * heads read by two ranks, q/k norms, both homes of a tied tensor), so the
     * parts are summed.  False: replicas compute the same complete gradient. */
    bool grad_partial;
};

struct dyti_model {
    struct dyti_arch arch;
    struct dyti_tensor *tensor; /* [tensor_count], owned */
    uint32_t tensor_count;
    uint64_t fingerprint; /* of arch and catalogue */
};

/**
 * Build the catalogue of `arch`.  Pure.
 * @return DYT_ERR_INVALID a size is not positive or kv_heads does not divide
 *         q_heads; DYT_ERR_OVERFLOW; DYT_ERR_NOMEM
 */
enum dyt_status dyti_model_build(const struct dyti_arch *arch,
                                 struct dyti_model **out_model);
void dyti_model_destroy(struct dyti_model *model);

/* Elements of one tensor / of all (a tied tensor counts once). */
uint64_t dyti_tensor_elements(const struct dyti_tensor *tensor);
uint64_t dyti_model_elements(const struct dyti_model *model);

/* Index of the tensor with this layer and slot, UINT32_MAX if there is none.
 * DYTI_SLOT_HEAD of a tied model is the embedding. O(1). */
uint32_t dyti_model_find(const struct dyti_model *model, int32_t layer,
                         enum dyti_slot slot);
/* By name (O(log n)); UINT32_MAX if there is none. */
uint32_t dyti_model_find_name(const struct dyti_model *model, const char *name);

#endif /* DYTI_VPS_MODEL_H */
