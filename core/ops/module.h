/* What is opened with dlopen, because it brings libraries that most have no use
 * for: one entry symbol that gives a table.
 *
 * A module has its own copy of what it needs of core/, and so its own last
 * error: whoever opens it asks for its words by errors_to(), or takes those of
 * a failure from error_message().
 * Threads: as the tables say. */
#ifndef DYTI_OPS_MODULE_H
#define DYTI_OPS_MODULE_H

#include "ops/device.h"
#include "ops/group.h"
#include "ops/kernels.h"
#include "ops/memory.h"
#include "ops/mover.h"

#define DYTI_MODULE_ABI   6u /* goes up with every change of a table in ops/ */
#define DYTI_MODULE_ENTRY "dyt_module"

struct dyti_module {
    uint32_t struct_size;
    uint32_t abi;     /* DYTI_MODULE_ABI of whoever built it */
    const char *name; /* "gloo" */
    const struct dyti_group_ops *group;   /* NULL: it has none */
    const struct dyti_device_ops *device; /* NULL: it has none */
    const char *(*error_message)(void);   /* of the calling thread */
    const struct dyti_memory_ops *memory; /* NULL, these as well */
    const struct dyti_kernel_ops *kernels;
    const struct dyti_mover_ops *mover; /* direct */
    /* NULL, or dyti_error_forward() of its copy of base/: so the words of its
     * failures are its caller's at once, whatever table they come from. */
    void (*errors_to)(dyti_error_put_fn put);
};

typedef const struct dyti_module *(*dyti_module_entry_fn)(void);

#endif /* DYTI_OPS_MODULE_H */
