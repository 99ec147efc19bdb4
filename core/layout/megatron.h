/* Megatron-LM's tensors on one rank: its names, fused rows and padding.
 * megatron_list.c lists them, megatron.c puts them into memory. */
#ifndef DYTI_LAYOUT_MEGATRON_H
#define DYTI_LAYOUT_MEGATRON_H

#include "layout/local.h"

/* All of them in the order in which the modules are registered, virtual stage
 * by virtual stage. */
void dyti_megatron_list(struct dyti_locals *list);

/* Trained tensors of one kind in their flat buffers, chunk by chunk, experts
 * last, from region offset *offset on. */
enum dyt_status dyti_megatron_place(const struct dyti_placer *p,
                                    uint64_t *offset);

/* dyti_dialect_ops.check */
enum dyt_status dyti_megatron_check(const struct dyti_layout *layout);

/* Rows of the vocabulary with padding: a multiple of vocab_multiple (128) times
 * tp. */
int64_t dyti_megatron_vocab(const struct dyti_layout *layout);

#endif /* DYTI_LAYOUT_MEGATRON_H */
