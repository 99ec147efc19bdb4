/* What a model is, for commands that need no weights: a folder with
 * config.json, that file itself, a model of the cache, or a preset of `model
 * init`. */
#ifndef DYTI_CLI_FIND_ARCH_H
#define DYTI_CLI_FIND_ARCH_H

#include "base/error.h"
#include "vps/arch.h"

/* DYT_ERR_CONFIG, DYT_ERR_IO, DYT_ERR_FORMAT: the text names `model`. */
enum dyt_status dyti_find_arch(const char *model, struct dyti_arch *out_arch);

#endif /* DYTI_CLI_FIND_ARCH_H */
