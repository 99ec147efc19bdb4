/* NVTX is a header that looks for a tool at its first call. */
#include "device/cuda/range.h"

#if defined(__has_include)
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define HAS_NVTX 1
#endif
#endif

#ifdef HAS_NVTX

#include <pthread.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static nvtxDomainHandle_t domain;

static void make_domain(void)
{
    domain = nvtxDomainCreateA("dynatrain");
}

void dyti_cuda_range_push(const char *name)
{
    nvtxEventAttributes_t range = {.version = NVTX_VERSION,
                                   .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                   .messageType = NVTX_MESSAGE_TYPE_ASCII,
                                   .message.ascii = name};

    pthread_once(&once, make_domain);
    (void)nvtxDomainRangePushEx(domain, &range);
}

void dyti_cuda_range_pop(void)
{
    pthread_once(&once, make_domain);
    (void)nvtxDomainRangePop(domain);
}

#else

void dyti_cuda_range_push(const char *name)
{
    (void)name;
}

void dyti_cuda_range_pop(void)
{
}

#endif
