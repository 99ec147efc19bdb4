/* What each slot is called, how it is shaped and how it is cut, by family: the
 * tables behind the catalogue and the look-ups. */
#ifndef DYTI_VPS_SLOTS_H
#define DYTI_VPS_SLOTS_H

#include "vps/model.h"

/* A size of the architecture, by name. */
enum dyti_dim {
    DYTI_DIM_NONE, /* the tensor has one dimension less */
    DYTI_DIM_VOCAB,
    DYTI_DIM_POSITIONS,
    DYTI_DIM_HIDDEN,
    DYTI_DIM_HEAD,
    DYTI_DIM_Q,   /* all query heads: head_dim each, with MLA nope + rope */
    DYTI_DIM_KV,  /* all KV heads, head_dim each */
    DYTI_DIM_O,   /* all heads' outputs: head_dim each, with MLA v_dim */
    DYTI_DIM_QKV, /* Q, then twice KV */
    DYTI_DIM_FFN,
    DYTI_DIM_EXPERTS,
    DYTI_DIM_EXPERT_FFN,
    DYTI_DIM_SHARED_FFN,
    DYTI_DIM_Q_LORA,
    DYTI_DIM_KV_LORA,
    DYTI_DIM_KV_LATENT, /* kv_lora + rope */
    DYTI_DIM_KV_UP      /* all heads, nope + v each */
};

struct dyti_slot_rule {
    bool layered;
    bool per_expert;
    bool on_first, on_last; /* for those that are not layered */
    bool grad_partial;
    enum dyti_dim dim[2];
    uint32_t cut_axis;
    enum dyti_cut cut;
};

/* How the family cuts the slot. */
const struct dyti_slot_rule *dyti_slot_rule(const struct dyti_arch *arch,
                                            enum dyti_slot slot);

/* Its name in the family's files: whole, or what follows "<prefix>N." of a
 * layer; in names of experts "%d" stands for the expert.  NULL: no such slot.
 */
const char *dyti_slot_file_name(const struct dyti_arch *arch,
                                enum dyti_slot slot);
/* "model.layers." */
const char *dyti_layer_prefix(const struct dyti_arch *arch);

int64_t dyti_arch_dim(const struct dyti_arch *arch, enum dyti_dim dim);

/* Whether a layer (-1: outside of the layers) has tensors of the slot. */
bool dyti_slot_present(const struct dyti_arch *arch, enum dyti_slot slot,
                       int64_t layer);

/* Slots of a layer in catalogue order; [0, *out_count). */
const enum dyti_slot *dyti_layer_order(size_t *out_count);

/* Tensors of one layer, dense or MoE. */
uint64_t dyti_layer_tensor_count(const struct dyti_arch *arch, int64_t layer);

#endif /* DYTI_VPS_SLOTS_H */
