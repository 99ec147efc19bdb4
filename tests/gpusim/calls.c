/* The driver's calls of the device's sources, as the simulator has them. */
#include "device/cuda/calls.h"

#include <pthread.h>

static const struct dyti_cuda_calls simulated = {
#define CALL(f) .f = f,
    DYTI_CUDA_CALLS(CALL)
#undef CALL
};

static struct dyti_cuda_calls complete;

static void complete_once(void)
{
    complete = simulated;
    dyti_cuda_calls_complete(&complete);
}

enum dyt_status dyti_cuda_calls(const struct dyti_cuda_calls **out_calls)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, complete_once);
    *out_calls = &complete;
    return DYT_OK;
}
