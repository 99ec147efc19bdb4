/* libdynatrain-gloo.so: groups over TCP for programs that were not linked with
 * gloo (ops/module.h). */
#include "ops/module.h"
#include "comm/gloo/gloo.h"

/* As DYTI_MODULE_ENTRY says. */
__attribute__((visibility("default"))) const struct dyti_module *dyt_module(
    void);

const struct dyti_module *dyt_module(void)
{
    static const struct dyti_module module = {.struct_size = sizeof(module),
                                              .abi = DYTI_MODULE_ABI,
                                              .name = "gloo",
                                              .group = &dyti_group_gloo,
                                              .error_message =
                                                  dyti_error_message,
                                              .errors_to = dyti_error_forward};

    return &module;
}
