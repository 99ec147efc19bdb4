/* What a .cu file includes: the runtime API, and for C++ the device language as
 * the simulator understands it. */
#ifndef DYT_GPUSIM_CUDA_RUNTIME_H
#define DYT_GPUSIM_CUDA_RUNTIME_H

#include "cuda_runtime_api.h"

#ifdef __cplusplus
#include "gpusim_device.hpp"
#endif

#endif /* DYT_GPUSIM_CUDA_RUNTIME_H */
