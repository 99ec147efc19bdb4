/* A module whose calls fail, each with words of its own copy of base/. */
#include "ops/module.h"

static enum dyt_status use(const char *device)
{
    enum dyt_status st =
        DYTI_FAIL(DYT_ERR_DEVICE, "device %s is asleep", device);

    DYTI_NOTE("waking it");
    return st;
}

static const struct dyti_memory_ops memory = {
    .struct_size = sizeof(memory), .name = "failing", .use = use};

/* As DYTI_MODULE_ENTRY says. */
__attribute__((visibility("default"))) const struct dyti_module *dyt_module(
    void);

const struct dyti_module *dyt_module(void)
{
    static const struct dyti_module module = {.struct_size = sizeof(module),
                                              .abi = DYTI_MODULE_ABI,
                                              .name = "failing",
                                              .memory = &memory,
                                              .error_message =
                                                  dyti_error_message,
                                              .errors_to = dyti_error_forward};

    return &module;
}
