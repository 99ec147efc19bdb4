/* What the files of this room share about the building of a catalogue. */
#ifndef DYTI_VPS_CATALOGUE_H
#define DYTI_VPS_CATALOGUE_H

#include "vps/model.h"

#define DYTI_NAME_BYTES 80u /* of a tensor's name, with its end */

/* DYT_ERR_INVALID, DYT_ERR_OVERFLOW: what no model can have, by name. */
enum dyt_status dyti_arch_check(const struct dyti_arch *arch);

/* Check an extra against the parameters and describe it as a tensor; name_buf
 * takes its name. */
enum dyt_status dyti_extra_fill(const struct dyti_model *model,
                                const struct dyti_extra_desc *desc,
                                char name_buf[DYTI_NAME_BYTES],
                                struct dyti_tensor *out_tensor);

/* The table of names: room for `count`, then each tensor once.  Two of one
 * name: DYT_ERR_INVALID. */
enum dyt_status dyti_names_init(struct dyti_model *model, uint32_t count);
enum dyt_status dyti_names_add(struct dyti_model *model, uint32_t index);

#endif /* DYTI_VPS_CATALOGUE_H */
