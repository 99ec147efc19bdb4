/* Stage 2 of 5: layout.  Answers "which boxes of which tensors is a server's
 * fused or renamed parameter made of?"
 * in: tables of data, one per family   out: pieces of rows (view.h)
 *
 * A table is TOML in the sources (configs/rules/) and rows here, so that a
 * server that is built from neither can hand in its own.
 *
 * Patterns of names: `{layer}` and `{expert}` stand for a number, `{*}` for any
 * text; what they stood for in the row's name is put into the tensors' names.
 * A row is tried against the rules in order; the first whose name fits and
 * whose tensors all exist counts.  So a tied head is two rules: its own tensor,
 * then the embedding.
 */
#ifndef DYNATRAIN_RULES_H
#define DYNATRAIN_RULES_H

#include <dynatrain/view.h>

DYT_BEGIN_DECLS

/* How tensor parallelism cuts a part along `axis` of its tensor.  Values are
 * ABI. */
enum dyt_rule_cut {
    DYT_RULE_WHOLE = 0,  /* every TP rank holds all of it */
    DYT_RULE_EVEN = 1,   /* n / tp each; n must divide */
    DYT_RULE_HEADS = 2,  /* as EVEN in units of `unit` elements (head_dim); with
                            fewer units than ranks, tp/units neighbours share
                            one */
    DYT_RULE_VOCAB = 3,  /* padded to a multiple of `unit`, then EVEN: the last
                            ranks hold padding, which is zero */
    DYT_RULE_EXPERTS = 4 /* of a routed expert: whole where experts are spread
                            over ep ranks, otherwise as EVEN.  The attributes
                            "expert_tp_size" and "expert_tp_rank", if given,
                            say it instead */
};

/** One part of a row: a tensor's cut, and where it comes to lie. */
struct dyt_rule_part {
    uint32_t struct_size;
    uint32_t cut;        /* enum dyt_rule_cut */
    const char *tensor;  /* pattern of VPS names */
    uint32_t axis;       /* that is cut */
    uint32_t transposed; /* 0 or 1 */
    /* Elements that stay together: HEADS, VOCAB.  0: the attribute of this
     * name ("head_dim") that the member gave (dyt_session_params.attribute). */
    int64_t unit;
    const char *unit_attribute;
    /* Axis of the row along which parts follow each other in the order of the
     * table; the part's own extent there is what its cut leaves. */
    uint32_t stack_axis;
    /* 1: `{expert}` of the tensor's name runs over the experts of this member
     * (its expert map), the i-th at index i of the row's axis 0.  2: likewise,
     * of one tensor whose axis 0 is the expert. */
    uint32_t per_expert;
    /* The part is not all of `axis` but number `segment` of the runs that this
     * list of weights cuts it into: "1,1,1", "q_heads,kv_heads,kv_heads";
     * numbers, or attributes of the member.  NULL: all of it. */
    const char *segments;
    uint32_t segment;
    uint32_t reserved;
};

struct dyt_rule {
    uint32_t struct_size;
    uint32_t part_struct_size;
    const char *name;                 /* pattern of the row's names */
    const struct dyt_rule_part *part; /* [part_count], borrowed */
    uint32_t part_count; /* 0: the row is known and not moved (a buffer) */
    uint32_t flags;      /* DYT_ROW_* that rows of this rule get */
};

struct dyt_rules {
    uint32_t struct_size;
    uint32_t rule_struct_size;
    const char *family;          /* "llama"; for messages */
    const struct dyt_rule *rule; /* [rule_count], borrowed */
    size_t rule_count;
};

/** A table that comes with the library ("vllm/llama", "vllm/qwen3_moe",
 *  "vllm/deepseek", "hf", …).  Static.
 *  @return DYT_ERR_INVALID  unknown; the text lists the known ones */
DYT_API enum dyt_status dyt_rules_builtin(const char *name,
                                          const struct dyt_rules **out_rules);

DYT_END_DECLS

#endif /* DYNATRAIN_RULES_H */
