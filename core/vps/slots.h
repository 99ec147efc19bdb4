/* What each slot of the Llama family is called, how it is shaped and how it is
 * cut: the one table behind the catalogue and the look-ups. */
#ifndef DYTI_VPS_SLOTS_H
#define DYTI_VPS_SLOTS_H

#include "vps/model.h"

/* A size of the architecture, by name. */
enum dyti_dim {
    DYTI_DIM_NONE, /* the tensor has one dimension less */
    DYTI_DIM_VOCAB,
    DYTI_DIM_HIDDEN,
    DYTI_DIM_HEAD,
    DYTI_DIM_Q,  /* q_heads * head_dim */
    DYTI_DIM_KV, /* kv_heads * head_dim */
    DYTI_DIM_FFN
};

struct dyti_slot_rule {
    const char *suffix; /* after "model.layers.N." if layered; else whole */
    bool layered;
    bool on_first, on_last; /* for those that are not layered */
    bool grad_partial;
    enum dyti_dim dim[2];
    uint32_t cut_axis;
    enum dyti_cut cut;
};

/* [slot], in catalogue order. */
extern const struct dyti_slot_rule dyti_slot_rule[DYTI_SLOT_COUNT];

/* Whether a model of this architecture has a tensor of its own for the slot. */
bool dyti_slot_present(const struct dyti_arch *arch, enum dyti_slot slot);

#endif /* DYTI_VPS_SLOTS_H */
