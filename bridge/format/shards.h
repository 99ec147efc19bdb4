/* Sharded directories: what each rank of a layout holds, one safetensors file a
 * rank, and a manifest.
 *
 *   DIR/manifest.json           struct dyti_shards_manifest
 *   DIR/config.json, …          of the model, as in its Hugging Face directory
 *   DIR/rank-00000.safetensors  the rank's buffers by the framework's names;
 *                               other kinds than `param` as "KIND/NAME".  What
 *                               is padding is zero
 *
 * A dialect without buffers of its own (native) is stored shard by shard: the
 * tensor's name, "#1", "#2", … behind it where it has several.
 * A rank's file is a pure function of model, layout, rank and kinds. */
#ifndef DYTI_FORMAT_SHARDS_H
#define DYTI_FORMAT_SHARDS_H

#include "format/layout_spec.h"
#include "format/safetensors.h"

#define DYTI_SHARDS_SCHEMA   "dynatrain.shards/1"
#define DYTI_SHARDS_MANIFEST "manifest.json"

/* ---- the manifest -------------------------------------------------------- */

struct dyti_shards_hash {
    char *name; /* of the model tensor */
    uint64_t hash[DYTI_KIND_COUNT];
};

struct dyti_shards_manifest {
    char *spec; /* layout_spec.h, one line */
    uint64_t model_fingerprint, layout_fingerprint;
    uint32_t world;
    uint32_t kinds; /* bits 1 << kind */
    /* Content hashes of whole tensors, as stored (base/hash.h). */
    struct dyti_shards_hash *tensor; /* [tensor_count] */
    uint32_t tensor_count;
};

/* DYT_ERR_FORMAT names file and key. `file` is shown in messages. */
enum dyt_status dyti_shards_manifest_parse(
    const char *file, const char *text, size_t text_bytes,
    struct dyti_shards_manifest *out_manifest);
enum dyt_status dyti_shards_manifest_write(
    const char *path, const struct dyti_shards_manifest *manifest);
/* Zeroed is fine, and what it leaves. */
void dyti_shards_manifest_fini(struct dyti_shards_manifest *manifest);

/* ---- a rank's file ------------------------------------------------------- */

/* Where each shard of a rank lies in its file. */
struct dyti_shards_place {
    uint32_t shard;  /* of the view */
    size_t entry;    /* of the plan */
    uint64_t offset; /* bytes behind the entry's start */
    int64_t stride[DYT_MAX_DIMS];
};

struct dyti_shards_file {
    struct dyti_view view;
    struct dyti_safetensors_plan plan;
    char **name;                     /* [plan.count] */
    struct dyti_shards_place *place; /* [place_count], by shard */
    uint32_t place_count;
};

/**
 * The file of a rank with the kinds of `kinds` that the layout holds.
 * plain: names without "KIND/", for a file of one kind.
 */
enum dyt_status dyti_shards_file_build(const struct dyti_layout *layout,
                                       uint32_t rank, uint32_t kinds,
                                       bool plain,
                                       struct dyti_shards_file *out_file);
void dyti_shards_file_fini(struct dyti_shards_file *file);

/* "rank-00003.safetensors" */
void dyti_shards_file_name(uint32_t rank, char buf[32]);

#endif /* DYTI_FORMAT_SHARDS_H */
