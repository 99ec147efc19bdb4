/* config.json of families that are laid out, planned and converted, but not
 * run: only what decides shapes is read, so rope kinds, windows and how files
 * are quantised do not matter (weights count in the dtype that the file
 * names). */
#ifndef DYTI_FORMAT_HF_PLANNED_H
#define DYTI_FORMAT_HF_PLANNED_H

#include "format/json_file.h"
#include "vps/arch.h"

/* Whether model_type is one of them. */
bool dyti_hf_planned_has(const char *model_type, enum dyti_family *out_family);

enum dyt_status dyti_hf_planned_read(const struct dyti_json_at *at,
                                     enum dyti_family family,
                                     struct dyti_arch *out_arch);

/* The document that reads back as `arch`; NULL: no memory. */
json_t *dyti_hf_planned_json(const struct dyti_arch *arch);

/* torch_dtype or dtype (hf_config.c). */
enum dyt_status dyti_hf_dtype(const struct dyti_json_at *at,
                              enum dyti_dtype *out_dtype);

#endif /* DYTI_FORMAT_HF_PLANNED_H */
