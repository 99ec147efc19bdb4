/* A module as another version of dynatrain would bring it: found, opened, and
 * never used. */
#include "ops/module.h"

__attribute__((visibility("default"))) const struct dyti_module *dyt_module(
    void);

const struct dyti_module *dyt_module(void)
{
    static const struct dyti_module module = {.struct_size = sizeof(module),
                                              .abi = DYTI_MODULE_ABI + 1,
                                              .name = "gloo"};

    return &module;
}
