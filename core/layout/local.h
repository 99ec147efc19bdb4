/* What a framework keeps on one rank, in its own words: its tensors, their
 * local shapes (padding included), and which boxes of which model tensors lie
 * in them.  A dialect lists them (hf.c, megatron.c, vllm.c); place.c turns
 * them, or flat ranges of them, into shards.
 *
 *   local   one tensor of the framework on one rank, row-major
 *   piece   a box of a model tensor that lies in a local, possibly transposed
 *
 * Shared by the files of this room only. */
#ifndef DYTI_LAYOUT_LOCAL_H
#define DYTI_LAYOUT_LOCAL_H

#include "layout/dialect.h"
#include "layout/index.h"

#define DYTI_LOCAL_NAME 112u /* bytes of a framework's name, NUL included */

struct dyti_piece {
    uint32_t tensor;
    struct dyt_box box;         /* of the model tensor */
    int64_t at[DYT_MAX_DIMS];   /* [ndim of local] local place of box.lo */
    uint8_t axis[DYT_MAX_DIMS]; /* [box.ndim] local axis of each global one */
};

struct dyti_local {
    char name[DYTI_LOCAL_NAME]; /* "" where nobody asks for names */
    uint32_t ndim;
    int64_t shape[DYT_MAX_DIMS]; /* [ndim] */
    uint64_t elements;           /* of that shape */
    uint32_t chunk;              /* virtual stage that it belongs to */
    uint32_t kinds;              /* bits 1 << kind that it has */
    bool fixed_dtype;            /* `param` is of `dtype`, whatever the desc */
    enum dyti_dtype dtype;
    bool expert;     /* of routed experts: sharded over other ranks */
    bool own_bucket; /* megatron: shared by first and last stage */
    size_t piece_first, piece_count;
};

/* Grows; the first failure sticks, and later calls do nothing. */
struct dyti_locals {
    const struct dyti_layout *layout; /* borrowed */
    const struct dyti_part *part;     /* borrowed */
    struct dyti_local *local;
    size_t count, cap;
    struct dyti_piece *piece;
    size_t piece_count, piece_cap;
    bool named;
    bool once;      /* leave layers out that first_alike names others for */
    uint32_t chunk; /* given to locals from now on */
    enum dyt_status status;
};

void dyti_locals_init(struct dyti_locals *list,
                      const struct dyti_layout *layout,
                      const struct dyti_part *part, bool named);
void dyti_locals_fini(struct dyti_locals *list);

/* A local of that shape; kinds, dtype and owner are those of model tensor
 * `like`.  fmt makes its name. */
void dyti_locals_begin(struct dyti_locals *list, uint32_t like, uint32_t ndim,
                       const int64_t *shape, const char *fmt, ...)
    DYTI_PRINTF(5, 6);

/* Elements [lo, hi) of one axis of a model tensor, and all of its other axes,
 * lie in the newest local from `at` on.  Nothing happens where lo >= hi. */
struct dyti_put {
    uint32_t tensor, axis;
    int64_t lo, hi;
    int64_t at;      /* along the local axis that `axis` becomes */
    bool transposed; /* two dimensions, stored the other way round */
    bool leads;      /* the local has one axis more, in front … */
    int64_t lead;    /* … and this is the place on it */
};
void dyti_locals_put(struct dyti_locals *list, const struct dyti_put *put);

/* ---- what dialects ask of model and layout ------------------------------- */

/* Tensors of one layer by slot; of an expert: index + expert * step. */
struct dyti_layer_index {
    uint32_t slot[DYTI_SLOT_COUNT]; /* UINT32_MAX: none */
    uint32_t expert_step;
};

/* `layer` -1: those outside of the layers. */
void dyti_layer_index(const struct dyti_model *model, int32_t layer,
                      struct dyti_layer_index *out_index);

/* Layers [lo, hi) of virtual stage `chunk` of the part's pipeline stage. */
void dyti_chunk_layers(const struct dyti_layout *layout,
                       const struct dyti_part *part, uint32_t chunk,
                       int64_t *out_lo, int64_t *out_hi);

/* Places for experts on the part's ep rank, and who lies in one (-1: nobody).
 */
uint32_t dyti_expert_places(const struct dyti_layout *layout,
                            const struct dyti_part *part);
int32_t dyti_expert_at(const struct dyti_layout *layout,
                       const struct dyti_part *part, uint32_t place);

/* How dtensor and most frameworks chunk: ceil(count / parts) each, the last
 * ones shorter or empty. */
void dyti_chunk(int64_t count, int64_t parts, int64_t r, int64_t *out_lo,
                int64_t *out_hi);

/* The degree nearest to `degree` for which works(arg, degree), 1 at worst. */
uint32_t dyti_nearest_degree(uint32_t degree, uint32_t most,
                             bool (*works)(const void *arg, uint32_t degree),
                             const void *arg);

static inline uint32_t dyti_degree(uint32_t degree)
{
    return degree == 0 ? 1 : degree;
}

/* ---- shards (place.c) ---------------------------------------------------- */

struct dyti_placer {
    const struct dyti_locals *list;
    enum dyti_kind kind;
    const struct dyti_shard_sink *sink;
};

/* Type of a local's elements in one kind. */
enum dyti_dtype dyti_local_dtype(const struct dyti_placer *p,
                                 const struct dyti_local *local);

/* Elements [lo, hi) of the local, row-major, lie densely from region offset
 * `offset` on. */
enum dyt_status dyti_place_range(const struct dyti_placer *p,
                                 const struct dyti_local *local, uint64_t lo,
                                 uint64_t hi, uint64_t offset);

/* The whole local as one buffer of its name. */
enum dyt_status dyti_place_whole(const struct dyti_placer *p,
                                 const struct dyti_local *local,
                                 uint64_t offset);

/* A buffer of `elements` without shape, named by fmt. */
enum dyt_status dyti_place_flat_buffer(const struct dyti_placer *p,
                                       enum dyti_dtype dtype, uint64_t elements,
                                       uint64_t offset, const char *fmt, ...)
    DYTI_PRINTF(5, 6);

/* The locals of one kind that `wanted` (NULL: all) picks, one after the other
 * from *offset on, each from a multiple of DYTI_REGION_ALIGN elements. */
enum dyt_status dyti_place_apart(const struct dyti_placer *p,
                                 bool (*wanted)(const struct dyti_local *local),
                                 uint64_t *offset);

/* True for a local that the optimizer updates: not the bias of a router. */
bool dyti_local_is_trained(const struct dyti_local *local);
bool dyti_local_is_fixed(const struct dyti_local *local);

/* Everything of kind DYTI_EXTRA, for a dialect's emit (local_extras.c). */
enum dyt_status dyti_local_extras(const struct dyti_layout *layout,
                                  const struct dyti_part *part,
                                  const struct dyti_dialect_ops *ops,
                                  const struct dyti_shard_sink *sink,
                                  uint64_t *out_region_bytes);
/* Whether members have extras that no other has. */
bool dyti_local_has_own_extras(const struct dyti_layout *layout);

/* ---- for the tables of dialects (frame.c) ---------------------------------
 */

uint32_t dyti_frame_representative(const struct dyti_layout *layout,
                                   uint32_t member, enum dyti_kind kind);
bool dyti_frame_alike(const struct dyti_layout *layout, enum dyti_kind a,
                      enum dyti_kind b);
void dyti_frame_first_alike(const struct dyti_layout *layout,
                            enum dyti_kind kind, uint32_t *out_first);
enum dyt_status dyti_frame_emit(const struct dyti_layout *layout,
                                const struct dyti_part *part,
                                enum dyti_kind kind,
                                const struct dyti_shard_sink *sink,
                                uint64_t *out_region_bytes);

#define DYTI_FRAME                                                             \
    .even_regions = true, .representative = dyti_frame_representative,         \
    .alike = dyti_frame_alike, .first_alike = dyti_frame_first_alike,          \
    .emit = dyti_frame_emit

/* ---- Hugging Face tensors, for all dialects that keep them (hf.c) -------- */

/* Every tensor of the part under its own name, cut over tp (experts: etp) as
 * dtensor would. */
void dyti_hf_list(struct dyti_locals *list);
/* One of them, its elements, and whether it is the part's. */
void dyti_hf_list_tensor(struct dyti_locals *list, uint32_t index);
uint64_t dyti_hf_elements(const struct dyti_part *part,
                          const struct dyti_tensor *t);
bool dyti_hf_is_here(const struct dyti_layout *layout,
                     const struct dyti_part *part, uint32_t index);
/* Whether a list leaves out this layer: an equal one before it is on it. */
bool dyti_locals_skip(const struct dyti_locals *list, int64_t layer);
/* tp and etp must divide heads and may cut all else. */
enum dyt_status dyti_hf_check_tp(const struct dyti_layout *layout,
                                 const char *dialect);
/* Ranks over which a local's state is cut, and which of them the part is. */
void dyti_hf_group(const struct dyti_part *part, const struct dyti_local *local,
                   uint32_t *out_size, uint32_t *out_rank);

#endif /* DYTI_LAYOUT_LOCAL_H */
