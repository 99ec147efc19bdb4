/* Stage 1 of 5: VPS.  Answers "what tensors exist?"
 * in: arch.h   out: used by layout/layout.h
 *
 * A model is the catalogue of a family's tensors, in one fixed order that is
 * also their order in memory: embed; per layer input_norm, q, k, v, [q_bias,
 * k_bias, v_bias], [q_norm, k_norm], o, post_norm, gate, up, down; final norm;
 * [head]; extras.  slots.c has the order for experts, MLA and GPT-2.  Names are
 * those of the Hugging Face files.  Nothing is allocated for
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
    DYTI_CUT_NONE,      /* every TP rank holds all of it */
    DYTI_CUT_VOCAB,     /* vocabulary rows, as evenly as possible */
    DYTI_CUT_Q_HEADS,   /* whole query heads (head_dim elements each) */
    DYTI_CUT_KV_HEADS,  /* the KV heads that the rank's query heads read */
    DYTI_CUT_FFN,       /* FFN rows or columns, as evenly as possible */
    DYTI_CUT_EXPERT_FFN /* likewise of a routed expert, by expert-TP */
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
    /* mixture of experts */
    DYTI_SLOT_ROUTER,      /* [E, h] */
    DYTI_SLOT_ROUTER_BIAS, /* [E], f32, no gradient */
    DYTI_SLOT_EXPERT_GATE, /* one tensor per expert, as in the files */
    DYTI_SLOT_EXPERT_UP,
    DYTI_SLOT_EXPERT_DOWN,
    DYTI_SLOT_SHARED_GATE,
    DYTI_SLOT_SHARED_UP,
    DYTI_SLOT_SHARED_DOWN,
    /* multi-head latent attention */
    DYTI_SLOT_Q_A, /* [q_lora, h] */
    DYTI_SLOT_Q_A_NORM,
    DYTI_SLOT_Q_B,  /* [H * (nope + rope), q_lora] */
    DYTI_SLOT_KV_A, /* kv_a_proj_with_mqa [kv_lora + rope, h] */
    DYTI_SLOT_KV_A_NORM,
    DYTI_SLOT_KV_B, /* [H * (nope + v), kv_lora] */
    /* GPT-2 */
    DYTI_SLOT_POSITION,        /* wpe */
    DYTI_SLOT_INPUT_NORM_BIAS, /* ln_1.bias */
    DYTI_SLOT_QKV,             /* c_attn.weight [h, 3h]: three segments */
    DYTI_SLOT_QKV_BIAS,
    DYTI_SLOT_O_BIAS,
    DYTI_SLOT_POST_NORM_BIAS, /* ln_2.bias */
    DYTI_SLOT_FC,             /* c_fc [h, F] */
    DYTI_SLOT_FC_BIAS,
    DYTI_SLOT_PROJ, /* mlp.c_proj [F, h] */
    DYTI_SLOT_PROJ_BIAS,
    DYTI_SLOT_FINAL_NORM_BIAS,
    DYTI_SLOT_EXTRA,  /* state that has no parameter's shape */
    DYTI_SLOT_LISTED, /* of a list: nobody says what it is for */
    DYTI_SLOT_COUNT
};

#define DYTI_MAX_SEGMENTS 4u
/* Of a model by its numbers: fifteen times those of the largest that is known
 * (61 layers of 384 experts).  A number that is wrong is not worth gigabytes.
 */
#define DYTI_MAX_TENSORS (1u << 20)

/* A run of the cut axis with one rule: a fused QKV has three, a plain tensor
 * one that covers the whole axis. */
struct dyti_segment {
    int64_t lo, hi; /* elements of the cut axis */
    enum dyti_cut cut;
    int64_t unit; /* elements of the cut axis that stay together: head_dim for
                     heads, 1 for rows; (hi - lo) / unit units */
};

/* State that has no parameter's shape: scales of quantised blocks, RNG streams,
 * loss scale, step counters, data cursors.  Who owns it and how it moves: */
enum dyti_extra_rule {
    DYTI_EXTRA_NONE,     /* not an extra: a parameter */
    DYTI_EXTRA_SHARDED,  /* cut and placed like a parameter (scales) */
    DYTI_EXTRA_EVERY,    /* equal on every rank of the layout (counters, loss
                            scale): any holder is a source */
    DYTI_EXTRA_PER_RANK, /* axis 0 has one row per member (RNG streams): row m
                            belongs to member m; a layout with fewer members
                            keeps rows m, m + n, m + 2n, … on member m, so
                            that growing back finds them all */
    DYTI_EXTRA_OWNER     /* member 0 alone (data cursor) */
};

struct dyti_tensor {
    const char *name; /* owned by the model */
    uint32_t ndim;
    int64_t shape[DYT_MAX_DIMS]; /* [ndim] */
    int32_t layer;               /* -1: before the layers or after them */
    int32_t expert;              /* -1: not of one routed expert */
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
    /* Which state kinds it has (bits 1 << kind); dtype of DYTI_EXTRA, and of
     * `param` where it is not the layout's own (router bias: f32). */
    uint32_t kinds;
    bool fixed_dtype;
    enum dyti_dtype dtype;
    enum dyti_extra_rule extra;
    uint32_t extra_of;           /* SHARDED: the parameter it goes with; its
                                    segments are that parameter's … */
    int64_t block[DYT_MAX_DIMS]; /* … and so many elements of it make one */
};

struct dyti_model {
    struct dyti_arch arch;
    struct dyti_tensor *tensor; /* [tensor_count], owned */
    uint32_t tensor_count;
    uint32_t kinds;           /* union of its tensors' kinds */
    uint32_t parameter_count; /* of tensor_count; extras come after them */
    /* For the look-ups, owned: first tensor of each layer, and names by hash.
     */
    uint32_t *layer_first; /* [layers + 1] */
    uint32_t *by_name; /* [by_name_size] open addressing, UINT32_MAX = free */
    uint32_t by_name_size; /* a power of two */
    uint64_t fingerprint;  /* of arch and catalogue */
};

/**
 * Build the catalogue of `arch`.  Pure.
 * @return DYT_ERR_INVALID a size is not positive or kv_heads does not divide
 *         q_heads; DYT_ERR_OVERFLOW; DYT_ERR_NOMEM
 */
enum dyt_status dyti_model_build(const struct dyti_arch *arch,
                                 struct dyti_model **out_model);
void dyti_model_destroy(struct dyti_model *model);

/* One extra of a model, for dyti_model_build_with(). */
struct dyti_extra_desc {
    const char *name; /* copied; at most 63 bytes */
    enum dyti_extra_rule rule;
    enum dyti_dtype dtype;
    uint32_t ndim;
    int64_t shape[DYT_MAX_DIMS];
    /* SHARDED: the tensor it goes with: same layer, expert and homes; its
     * cut axis is the parameter's, `block` elements of which are one of its
     * own.  A border inside a block makes both sides hold that element. */
    const char *of;
    int64_t block[DYT_MAX_DIMS];
};

/* As dyti_model_build(), with extras behind the parameters. */
enum dyt_status dyti_model_build_with(const struct dyti_arch *arch,
                                      const struct dyti_extra_desc *extra,
                                      size_t extra_count,
                                      struct dyti_model **out_model);

/* One tensor of a list, for dyti_model_build_listed(). */
struct dyti_listed_desc {
    const char *name; /* copied; 1 to DYTI_LISTED_NAME_MAX bytes */
    uint32_t ndim;
    int64_t shape[DYT_MAX_DIMS]; /* [ndim], each >= 1 */
    uint32_t kinds; /* bits; 0: all that a parameter may have.  EXTRA goes with
                       no other and is equal on all that hold it */
    int32_t layer, expert; /* -1: none, or not known */
    bool fixed_dtype;      /* `param` is `dtype` in every layout */
    enum dyti_dtype dtype;
};
#define DYTI_LISTED_NAME_MAX 255u

/* A catalogue by a list of tensors, in this order (arch.family is
 * DYTI_FAMILY_LISTED).  Nobody knows how degrees would cut it: its layouts come
 * from dyti_layout_from_views(), everything else refuses it by name.
 * DYT_ERR_INVALID: an empty shape, a name twice, no tensor at all. */
enum dyt_status dyti_model_build_listed(const struct dyti_listed_desc *tensor,
                                        size_t count,
                                        struct dyti_model **out_model);
static inline bool dyti_model_is_listed(const struct dyti_model *model)
{
    return model->arch.family == DYTI_FAMILY_LISTED;
}

/* Whether core/nn runs the model; DYT_ERR_UNSUPPORTED: it can be laid out and
 * planned only, the text names the family and what run needs. */
enum dyt_status dyti_arch_check_runs(const struct dyti_arch *arch);

/* Elements of one tensor / of all (a tied tensor counts once). */
uint64_t dyti_tensor_elements(const struct dyti_tensor *tensor);
uint64_t dyti_model_elements(const struct dyti_model *model);

/* Index of the tensor with this layer and slot, UINT32_MAX if there is none.
 * DYTI_SLOT_HEAD of a tied model is the embedding. O(1). */
uint32_t dyti_model_find(const struct dyti_model *model, int32_t layer,
                         enum dyti_slot slot);
/* One routed expert's tensor of a layer, likewise. */
uint32_t dyti_model_find_expert(const struct dyti_model *model, int32_t layer,
                                int32_t expert, enum dyti_slot slot);
/* By name, O(1); UINT32_MAX if there is none. */
uint32_t dyti_model_find_name(const struct dyti_model *model, const char *name);

#endif /* DYTI_VPS_MODEL_H */
