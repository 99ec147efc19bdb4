/* libdynatrain-cuda.so: what a machine's GPUs are, and what runs on them, for
 * programs that are not linked with anything of CUDA (ops/module.h). */
#include "ops/module.h"
#include "base/error.h"
#include "device/cuda/driver.h"
#include "device/cuda/memory.h"
#include "device/cuda/table.h"

/* Of another folder, which says so where it is built. */
#ifdef DYTI_MODULE_GROUP
extern const struct dyti_group_ops DYTI_MODULE_GROUP;
#define GROUP &DYTI_MODULE_GROUP
#else
#define GROUP NULL
#endif

/* As DYTI_MODULE_ENTRY says. */
__attribute__((visibility("default"))) const struct dyti_module *dyt_module(
    void);

const struct dyti_module *dyt_module(void)
{
    static const struct dyti_module module = {.struct_size = sizeof(module),
                                              .abi = DYTI_MODULE_ABI,
                                              .name = "cuda",
                                              .group = GROUP,
                                              .device = &dyti_device_cuda,
                                              .memory = &dyti_memory_cuda,
                                              .kernels = &dyti_kernels_cuda,
                                              .error_message =
                                                  dyti_error_message,
                                              .errors_to = dyti_error_forward};

    return &module;
}
