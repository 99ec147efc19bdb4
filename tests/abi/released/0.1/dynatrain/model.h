/* Stage 1 of 5: VPS.  Answers "what tensors exist?"
 * in: a model's configuration, or a list of tensors   out: used by layout.h and
 * session.h
 *
 * Terms used in every comment of this file
 *   [d0, d1, …]  a shape, in elements, slowest-varying dimension first
 *   kind         what of a tensor: enum dyt_kind
 */
#ifndef DYNATRAIN_MODEL_H
#define DYNATRAIN_MODEL_H

#include <dynatrain/box.h>

DYT_BEGIN_DECLS

/* Values are ABI: append, never renumber. */
enum dyt_dtype {
    DYT_F32 = 0,
    DYT_BF16 = 1,
    DYT_F16 = 2,
    DYT_I32 = 3,
    DYT_I64 = 4
};

enum dyt_kind {
    DYT_PARAM = 0,      /* what the forward pass reads */
    DYT_GRAD = 1,       /* f32 */
    DYT_MASTER = 2,     /* f32, what the optimizer updates */
    DYT_EXP_AVG = 3,    /* f32, first moment */
    DYT_EXP_AVG_SQ = 4, /* f32, second moment */
    DYT_EXTRA = 5       /* state without a parameter's shape */
};

typedef struct dyt_model dyt_model; /* opaque; never changes once built */

/** One entry of a flattened config.json: nested keys joined by dots
 *  ("rope_scaling.factor"), list elements by number ("architectures.0"), values
 *  as they stand in JSON without quotes ("4096", "true", "null",
 *  "LlamaForCausalLM"). */
struct dyt_config_pair {
    const char *key, *value;
};

/** One tensor, whole, in VPS coordinates. */
struct dyt_tensor {
    uint32_t struct_size;        /* sizeof(struct dyt_tensor) */
    const char *name;            /* [1, 255] bytes; borrowed for the call in
                                    dyt_model_create(), the model's in
                                    dyt_model_tensor() */
    uint32_t ndim;               /* [1, DYT_MAX_DIMS] */
    int64_t shape[DYT_MAX_DIMS]; /* [ndim], each >= 1 */
    uint32_t kinds; /* bits 1 << enum dyt_kind that it has; 0: param, and the
                       optimizer's if any view has them */
    int32_t layer;  /* -1: outside of the layers, or not known */
    int32_t expert; /* -1: not of one routed expert */
};

/**
 * The catalogue of a model family from its Hugging Face config.json.  Pure.
 * Families: Llama 2/3, Mistral, Qwen2, Qwen3, Qwen3-MoE, Mixtral, DeepSeek-V2
 * and V3, GPT-2.
 *
 * @param pair       [pair_count], borrowed for the call; keys that do not
 *                   matter are ignored
 * @param out_model  owned by the caller; give back with dyt_model_destroy()
 * @return DYT_OK
 * @return DYT_ERR_CONFIG  a key is missing or wrong, or the family is unknown:
 *                         the text names it, and lists the known families
 * @return DYT_ERR_NOMEM
 */
DYT_API enum dyt_status dyt_model_from_config(
    const struct dyt_config_pair *pair, size_t pair_count,
    dyt_model **out_model);

/**
 * A catalogue by a list of tensors, in this order.  Pure.  Layouts of it come
 * from views only (dyt_layout_from_views(), session.h), as nobody says how
 * degrees would cut it.
 * @return DYT_ERR_INVALID  a shape is empty or a name is used twice
 * @return DYT_ERR_NOMEM
 */
DYT_API enum dyt_status dyt_model_create(const struct dyt_tensor *tensor,
                                         size_t tensor_count,
                                         dyt_model **out_model);

/** NULL is allowed.  No layout of it may be alive. */
DYT_API void dyt_model_destroy(dyt_model *model);

DYT_API uint32_t dyt_model_tensor_count(const dyt_model *model);
/** Elements of all tensors; a tied tensor counts once. */
DYT_API uint64_t dyt_model_elements(const dyt_model *model);
/** @param out  out->struct_size set by the caller
 *  @return DYT_ERR_INVALID  no such index */
DYT_API enum dyt_status dyt_model_tensor(const dyt_model *model, uint32_t index,
                                         struct dyt_tensor *out);
/** @return DYT_ERR_INVALID  no such name; the text has the nearest ones */
DYT_API enum dyt_status dyt_model_find(const dyt_model *model, const char *name,
                                       uint32_t *out_index);

DYT_END_DECLS

#endif /* DYNATRAIN_MODEL_H */
