/* Allocations of other processes by their handles.  The driver opens one once
 * for a process's context, so that whoever needs it too counts. */
#include "device/cuda/memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct opening {
    struct opening *next;
    CUipcMemHandle handle;
    CUdevice device; /* that it is opened for */
    CUdeviceptr at;
    uint64_t count;
};

/* The process's, as the driver's openings are. */
static struct {
    pthread_mutex_t lock;
    struct opening *first;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Under the lock. */
static struct opening *find(CUdevice device, const CUipcMemHandle *handle)
{
    struct opening *o = all.first;

    while (o != NULL && (o->device != device ||
                         memcmp(&o->handle, handle, sizeof(*handle)) != 0)) {
        o = o->next;
    }
    return o;
}

static CUresult open_new(const struct dyti_cuda_calls *calls, CUdevice device,
                         const CUipcMemHandle *handle, struct opening **out)
{
    struct opening *o = calloc(1, sizeof(*o));
    CUresult error;

    if (o == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    error = calls->cuIpcOpenMemHandle(&o->at, *handle,
                                      CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    if (error != CUDA_SUCCESS) {
        free(o);
        return error;
    }
    o->handle = *handle;
    o->device = device;
    o->next = all.first;
    all.first = o;
    *out = o;
    return CUDA_SUCCESS;
}

CUresult dyti_cuda_ipc_open(const struct dyti_cuda_calls *calls,
                            CUdevice device, const CUipcMemHandle *handle,
                            CUdeviceptr *out_at)
{
    CUresult error = CUDA_SUCCESS;
    struct opening *o;

    pthread_mutex_lock(&all.lock);
    o = find(device, handle);
    if (o == NULL) {
        error = open_new(calls, device, handle, &o);
    }
    if (error == CUDA_SUCCESS) {
        o->count++;
        *out_at = o->at;
    }
    pthread_mutex_unlock(&all.lock);
    return error;
}

void dyti_cuda_ipc_close(const struct dyti_cuda_calls *calls, CUdeviceptr at)
{
    struct opening **link = &all.first, *o;

    pthread_mutex_lock(&all.lock);
    while (*link != NULL && (*link)->at != at) {
        link = &(*link)->next;
    }
    o = *link;
    if (o != NULL && --o->count == 0) {
        *link = o->next;
        (void)calls->cuIpcCloseMemHandle(o->at);
        free(o);
    }
    pthread_mutex_unlock(&all.lock);
}
