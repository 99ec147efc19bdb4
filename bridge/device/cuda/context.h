/* Which device a thread works for, by UUID: indices mean another device in
 * another process.  A device's (primary) context is the runtime's, and stays as
 * long as the process.
 * Threads: any; the device is the thread's. */
#ifndef DYTI_DEVICE_CUDA_CONTEXT_H
#define DYTI_DEVICE_CUDA_CONTEXT_H

#include "device/cuda/calls.h"

#define DYTI_CUDA_UUID 48u /* bytes of its text */

/* As ops/memory.h's use(). */
enum dyt_status dyti_cuda_context_use(const char *device);

/* The thread's device, and the calls.  DYT_ERR_STATE: it has none. */
enum dyt_status dyti_cuda_context_get(const struct dyti_cuda_calls **out_calls,
                                      CUdevice *out_device);

/* Another device's context for a while, whose allocations it knows; -1 or the
 * thread's own: nothing.  *out_before: for leave(). */
enum dyt_status dyti_cuda_context_enter(CUdevice device, CUdevice *out_before);
void dyti_cuda_context_leave(CUdevice before);

/* The device with this UUID here; DYT_ERR_UNSUPPORTED: not seen by this
 * process. */
enum dyt_status dyti_cuda_device_find(const struct dyti_cuda_calls *calls,
                                      const CUuuid *uuid, CUdevice *out_device);

/* … and its text.  NULL: the thread's. */
enum dyt_status dyti_cuda_device_named(const struct dyti_cuda_calls *calls,
                                       const char *name, CUdevice *out_device);

/* DYT_ERR_UNSUPPORTED: work of `device` does not reach memory of `other`. */
enum dyt_status dyti_cuda_device_reaches(const struct dyti_cuda_calls *calls,
                                         CUdevice device, CUdevice other);

/* "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" */
void dyti_cuda_uuid_text(const CUuuid *uuid, char out[DYTI_CUDA_UUID]);

#endif /* DYTI_DEVICE_CUDA_CONTEXT_H */
