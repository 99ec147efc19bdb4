/* Modules (ops/module.h): where they are looked for, and how they are opened.
 *
 * A module lies beside libdynatrain.so, in the lib/ beside the program's
 * folder, in the folder DYNATRAIN_MODULES, or where the system looks. */
#ifndef DYTI_LIB_MODULE_H
#define DYTI_LIB_MODULE_H

#include "ops/module.h"

/* Is one of this name in a place of ours?  Opens nothing. */
bool dyti_module_exists(const char *name);
/* It stays open as long as the process, and the words of all its failures are
 * the calling thread's as if they were ours.  DYT_ERR_UNSUPPORTED: it is not
 * there, or of another build; the text says what to do. */
enum dyt_status dyti_module_open(const char *name,
                                 const struct dyti_module **out_module);

/* A group of the module. */
enum dyt_status dyti_module_group(const struct dyti_module *module,
                                  const struct dyti_group_params *params,
                                  struct dyti_group *out_group);

#endif /* DYTI_LIB_MODULE_H */
