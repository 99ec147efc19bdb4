/* A model with its state wherever it lies: a Hugging Face directory, one of our
 * checkpoints, a sharded directory.  in: a path   out: boxes of whole tensors
 * in the caller's memory.
 * Threads: reading one box at a time. */
#ifndef DYTI_FORMAT_MODEL_SOURCE_H
#define DYTI_FORMAT_MODEL_SOURCE_H

#include "format/shards.h"

struct dyti_model_source;

/**
 * Open what lies at `path`: sharded where it has a manifest.json, else a
 * Hugging Face directory, with the state of a checkpoint where there is one.
 * Every file is checked against model and layout.
 * @return DYT_ERR_IO, DYT_ERR_FORMAT (what does not fit, by name),
 *         DYT_ERR_UNSUPPORTED, DYT_ERR_LAYOUT, DYT_ERR_NOMEM
 */
enum dyt_status dyti_model_source_open(const char *path,
                                       struct dyti_model_source **out_source);
void dyti_model_source_close(struct dyti_model_source *source);

/* All borrowed from the source. */
const struct dyti_model *dyti_model_source_model(
    const struct dyti_model_source *source);
/* Bits 1 << kind of what it has. */
uint32_t dyti_model_source_kinds(const struct dyti_model_source *source);
/* NULL: no sharded directory. */
const struct dyti_shards_manifest *dyti_model_source_manifest(
    const struct dyti_model_source *source);

/* Type in which a tensor's kind is stored. */
enum dyti_dtype dyti_model_source_dtype(const struct dyti_model_source *source,
                                        enum dyti_kind kind, uint32_t tensor);

/* Read a box, converted to `dtype`; dst, stride as in
 * dyti_safetensors_read_box.  What is read leaves resident memory. */
enum dyt_status dyti_model_source_read(const struct dyti_model_source *source,
                                       enum dyti_kind kind, uint32_t tensor,
                                       const struct dyt_box *box,
                                       enum dyti_dtype dtype, void *dst,
                                       const int64_t *stride);

#endif /* DYTI_FORMAT_MODEL_SOURCE_H */
