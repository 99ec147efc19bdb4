/* What the files of a model's source share: whole tensors and shards of ranks.
 */
#ifndef DYTI_FORMAT_MODEL_SOURCE_INTERNAL_H
#define DYTI_FORMAT_MODEL_SOURCE_INTERNAL_H

#include "format/model_source.h"
#include "format/weights.h"

/* A shard of some rank, in its mapped file. */
struct dyti_source_piece {
    uint32_t tensor;
    uint8_t kind, dtype;
    struct dyt_box box;
    const unsigned char *data; /* of the box's first element */
    int64_t stride[DYT_MAX_DIMS];
};

struct dyti_model_source {
    struct dyti_model *model;
    uint32_t kinds;
    bool checkpoint;
    /* whole tensors: by kind; master may be the same as param */
    struct dyti_safetensors *whole[DYTI_KIND_COUNT];
    bool master_is_param;
    /* sharded */
    bool sharded;
    struct dyti_shards_manifest manifest;
    struct dyti_layout *layout;
    struct dyti_safetensors **file;  /* [world], NULL: not needed */
    struct dyti_source_piece *piece; /* by kind, tensor */
    size_t piece_count, piece_cap;
};

/* ---- model_source_shards.c ---------------------------------------------- */

/* The sharded directory whose manifest lies at `path`. */
enum dyt_status dyti_source_open_shards(struct dyti_model_source *source,
                                        const char *dir, const char *path);
enum dyt_status dyti_source_read_shards(const struct dyti_model_source *source,
                                        enum dyti_kind kind, uint32_t tensor,
                                        const struct dyt_box *box,
                                        enum dyti_dtype dtype, void *dst,
                                        const int64_t *stride);

#endif /* DYTI_FORMAT_MODEL_SOURCE_INTERNAL_H */
