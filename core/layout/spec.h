/* How people write a layout on one line; bridge/format/layout_spec.h reads the
 * same keys from TOML.
 * in: text   out: layout/layout.h's description
 *
 *   megatron:tp=8,pp=4,dp=2,zero=1
 *   vllm:tp=8,ep=8,experts=round_robin
 *   native:tp=2,dp=2,ranks=4-7,pp_layers=10+12
 *
 * Keys
 *   tp pp dp cp ep etp vpp   degrees
 *   zero                     0 to 3; what the dialect has, if not given
 *   order                    dimensions, fastest first: tp-cp-dp-pp
 *   world                    ranks of the world
 *   ranks                    world ranks by member: 0-3+8-11
 *   hosts                    ranks of each host: 8 (all alike) or 8+8+4
 *   pp_layers                layers of each (virtual) stage: 10+12
 *   experts                  linear, round_robin, or the experts of each slot
 *                            of each ep rank: 0+1+4/2+3+4 (-1: empty)
 *   vocab_multiple           what the vocabulary is padded to
 *   bucket_multiple          megatron, zero=1: and a bucket's end (65536)
 *   glu_interleave           megatron: rows of gate and up of routed experts
 *                            that take turns
 *   zero_order               zero12: catalogue, round_robin
 *   dtype.KIND               f32, bf16, f16
 *   residency.KIND           held, parked, derived, dropped
 *
 * On one line lists are written with +, lists of lists with /.
 * Threads: any. */
#ifndef DYTI_LAYOUT_SPEC_H
#define DYTI_LAYOUT_SPEC_H

#include "layout/layout.h"

struct dyti_layout_spec {
    /* Arrays are the spec's own.  What depends on the model (type of `param`,
     * etp) is filled in by dyti_layout_spec_use_model(). */
    struct dyti_layout_desc desc;
    bool param_dtype_given, etp_given;
    char *shown; /* the spec as it was written, or its file: for messages */
    uint32_t *ranks, *pp_layers, *host;
    int32_t *expert_slot;
};

/**
 * From a line.
 * What is not given: degrees 1; zero 1 for zero12, 3 for zero3 and fsdp2, else
 * 0; hf and vllm hold `param` only; world as large as need be.
 * @return DYT_ERR_CONFIG  names key and the nearest
 */
enum dyt_status dyti_layout_spec_parse(const char *text,
                                       struct dyti_layout_spec *out_spec);

/* Zeroed is fine, and what it leaves. */
void dyti_layout_spec_fini(struct dyti_layout_spec *spec);

/* What the spec does not give and the model decides: `param` in the type of the
 * files; etp, where there are experts, as the frameworks do: megatron's is tp,
 * vllm's tp * dp unless ep places whole ones.  Call it before building. */
void dyti_layout_spec_use_model(struct dyti_layout_spec *spec,
                                const struct dyti_arch *arch);

/* One line that reads back as the same description. malloc'ed, the caller's. */
enum dyt_status dyti_layout_spec_text(const struct dyti_layout_desc *desc,
                                      char **out_text);

#endif /* DYTI_LAYOUT_SPEC_H */
