/* Weights between a Hugging Face directory and a rank's shards.
 * in: safetensors.h, core/layout   out: a filled region
 * Only the byte ranges that the rank holds are read. */
#ifndef DYTI_FORMAT_WEIGHTS_H
#define DYTI_FORMAT_WEIGHTS_H

#include "format/safetensors.h"
#include "layout/layout.h"

/**
 * Check that the files hold exactly the tensors of `model` in their shapes.
 * A tied model may carry lm_head.weight too, or in place of the embedding
 * (transformers ties it either way); rotary inv_freq buffers of old files are
 * passed over.
 * @return DYT_ERR_FORMAT       missing, unexpected or wrongly shaped tensors;
 *                              the first of each kind is named, all are counted
 * @return DYT_ERR_UNSUPPORTED  a tensor is not f32, bf16 or f16
 */
enum dyt_status dyti_weights_check(const struct dyti_safetensors *set,
                                   const struct dyti_model *model);

/**
 * Fill all shards of one kind of a view.
 *   base   start of the rank's region of that kind; padding is not touched
 * Resident memory beyond the region stays within a few MiB.
 */
enum dyt_status dyti_weights_load_set(const struct dyti_safetensors *set,
                                      const struct dyti_model *model,
                                      const struct dyti_view *view,
                                      enum dyti_kind kind, void *base);
/* Open, check, load, close. */
enum dyt_status dyti_weights_load(const char *dir,
                                  const struct dyti_model *model,
                                  const struct dyti_view *view,
                                  enum dyti_kind kind, void *base);

/* The plan of one model.safetensors with every tensor of the model in its
 * order, under its name: entry i is tensor i. */
enum dyt_status dyti_weights_plan(const struct dyti_model *model,
                                  enum dyti_dtype dtype,
                                  struct dyti_safetensors_plan *out_plan);

/* Write into an open file of that plan those shards of one kind for which
 * owned(arg, shard) says true (NULL = all). */
typedef bool (*dyti_shard_owned_fn)(void *arg, const struct dyti_shard *shard);
enum dyt_status dyti_weights_write(int fd, const char *path,
                                   const struct dyti_safetensors_plan *plan,
                                   const struct dyti_view *view,
                                   enum dyti_kind kind, const void *base,
                                   dyti_shard_owned_fn owned, void *arg);

#endif /* DYTI_FORMAT_WEIGHTS_H */
