/* config.json of families that are laid out, planned and converted, but not
 * run. */
#ifndef DYTI_FORMAT_HF_PLANNED_H
#define DYTI_FORMAT_HF_PLANNED_H

#include "format/json_file.h"
#include "vps/arch.h"

/* The document that reads back as `arch`; NULL: no memory. */
json_t *dyti_hf_planned_json(const struct dyti_arch *arch);

#endif /* DYTI_FORMAT_HF_PLANNED_H */
