/* Stage 2 of 5: layout.  Answers "which rank holds which elements of which
 * tensor in this phase, and where in its memory?"
 * in: model.h and degrees, or view.h   out: used by plan.h, session.h
 */
#ifndef DYNATRAIN_LAYOUT_H
#define DYNATRAIN_LAYOUT_H

#include <dynatrain/view.h>

DYT_BEGIN_DECLS

typedef struct dyt_layout dyt_layout; /* opaque; never changes once built */

/**
 * The layout of a model by degrees: "dialect:tp=8,pp=4,dp=2,zero=1", as
 * `dynatrain layout` and `dynatrain plan` take it.  Pure.
 *
 * @param model       borrowed until the layout is destroyed
 * @param spec        see docs/dialects.md
 * @param kinds       bits 1 << enum dyt_kind that it holds; 0: what the dialect
 *                    is for (vllm: param; trainers: all)
 * @param out_layout  owned by the caller; dyt_layout_destroy()
 *
 * @return DYT_ERR_CONFIG  the spec is malformed: the text has the place
 * @return DYT_ERR_LAYOUT  a tensor cannot be cut so; the text names tensor,
 *                         dimension, degree and the nearest one that works
 * Cost: O(ranks); what a rank holds is worked out when it is asked for.
 * @return DYT_ERR_INVALID the model is a list of tensors
 * @return DYT_ERR_NOMEM
 */
DYT_API enum dyt_status dyt_layout_build(const dyt_model *model,
                                         const char *spec, uint32_t kinds,
                                         dyt_layout **out_layout);

/**
 * A layout from the members' own lists: rows with pieces, or named as their
 * tensors and whole.  Addresses are never read; they say which rows share
 * memory.
 * @param view  [world_size], by rank; one without rows holds nothing
 * @return DYT_ERR_LAYOUT  lists up to ten faults at once: boxes outside of
 *                         their tensor, elements that nobody holds, memory that
 *                         two pieces share
 */
DYT_API enum dyt_status dyt_layout_from_views(const dyt_model *model,
                                              const struct dyt_view *view,
                                              uint32_t world_size,
                                              dyt_layout **out_layout);

/** NULL is allowed.  No plan of it may be alive. */
DYT_API void dyt_layout_destroy(dyt_layout *layout);

DYT_API uint32_t dyt_layout_world_size(const dyt_layout *layout);
DYT_API uint64_t dyt_layout_fingerprint(const dyt_layout *layout);

/** A box that a rank holds, and where. */
struct dyt_shard {
    uint32_t struct_size;
    uint32_t tensor; /* index in the model */
    uint32_t kind, dtype;
    struct dyt_box box;
    const char *buffer; /* the framework's name; NULL where the region of the
                           kind is the buffer */
    uint64_t offset;    /* bytes from the buffer's start */
    int64_t stride[DYT_MAX_DIMS]; /* [ndim], bytes */
};

DYT_API enum dyt_status dyt_layout_shard_count(const dyt_layout *layout,
                                               uint32_t rank,
                                               uint64_t *out_count);
/** In order of kind, tensor, offset; pointers are the layout's.
 *  @return DYT_ERR_INVALID  no such rank or index */
DYT_API enum dyt_status dyt_layout_shard(const dyt_layout *layout,
                                         uint32_t rank, uint64_t index,
                                         struct dyt_shard *out);

/** The same for all as JSON (docs/layout-schema.md); dyt_text_free() it. */
DYT_API enum dyt_status dyt_layout_json(const dyt_layout *layout,
                                        char **out_text);

DYT_END_DECLS

#endif /* DYNATRAIN_LAYOUT_H */
