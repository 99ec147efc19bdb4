/* Stage 1 of 5: VPS.  A Hugging Face config.json, flattened, → arch.h.
 * in: pairs of keys and values (bridge/format flattens the file, the C
 * interface takes them)   out: vps/arch.h
 *
 * Every key that changes what the model computes is either understood or
 * refused by name. */
#ifndef DYTI_VPS_CONFIG_H
#define DYTI_VPS_CONFIG_H

#include "base/error.h"
#include "vps/arch.h"

#include <dynatrain/model.h>

enum dyti_config_type {
    DYTI_CONFIG_ANY, /* by what its text looks like */
    DYTI_CONFIG_NULL,
    DYTI_CONFIG_BOOL,
    DYTI_CONFIG_INTEGER,
    DYTI_CONFIG_REAL,
    DYTI_CONFIG_TEXT,
    DYTI_CONFIG_OBJECT, /* its members follow, "key.member" */
    DYTI_CONFIG_ARRAY   /* its elements follow, "key.0" */
};

struct dyti_config_entry {
    const char *key, *value;
    enum dyti_config_type type;
};

struct dyti_config {
    const struct dyti_config_entry *entry; /* [count] */
    size_t count;
};

/* `file` is shown in messages.
 * @return DYT_ERR_FORMAT       a key is missing or has a bad value
 * @return DYT_ERR_UNSUPPORTED  needs what we do not have, by name */
enum dyt_status dyti_config_arch(const struct dyti_config *config,
                                 const char *file, struct dyti_arch *out_arch);

/* The same of pairs without types; what dyti_config_arch() refuses is
 * DYT_ERR_CONFIG here. */
enum dyt_status dyti_config_from_pairs(const struct dyt_config_pair *pair,
                                       size_t count, const char *file,
                                       struct dyti_arch *out_arch);

/* How files name a family that is not run; false: it is another one. */
bool dyti_config_planned_words(enum dyti_family family, const char **out_type,
                               const char **out_architecture);

#endif /* DYTI_VPS_CONFIG_H */
