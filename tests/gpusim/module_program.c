/* libdynatrain-cuda.so for a test whose device is in the test's own program:
 * the simulated one, or a real one that it was linked with. */
#include "ops/module.h"

#include <dlfcn.h>

/* As DYTI_MODULE_ENTRY says. */
__attribute__((visibility("default"))) const struct dyti_module *dyt_module(
    void);

const struct dyti_module *dyt_module(void)
{
    union {
        void *object;
        dyti_module_entry_fn function;
    } at = {.object = dlsym(RTLD_DEFAULT, "dyt_program_module")};

    return at.function == NULL ? NULL : at.function();
}
