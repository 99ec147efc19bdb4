/* The part of NVTX that the project uses; what is pushed is kept for tests. */
#ifndef DYT_GPUSIM_NVTOOLSEXT_H
#define DYT_GPUSIM_NVTOOLSEXT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NVTX_VERSION                  3
#define NVTX_MESSAGE_TYPE_ASCII       1
#define NVTX_EVENT_ATTRIB_STRUCT_SIZE ((uint16_t)sizeof(nvtxEventAttributes_t))

typedef struct nvtxDomainRegistration_st *nvtxDomainHandle_t;
typedef struct nvtxEventAttributes_v2 {
    uint16_t version, size;
    int32_t messageType;
    union {
        const char *ascii;
    } message;
} nvtxEventAttributes_t;

nvtxDomainHandle_t nvtxDomainCreateA(const char *name);
int nvtxDomainRangePushEx(nvtxDomainHandle_t domain,
                          const nvtxEventAttributes_t *attributes);
int nvtxDomainRangePop(nvtxDomainHandle_t domain);

#ifdef __cplusplus
}
#endif

#endif /* DYT_GPUSIM_NVTOOLSEXT_H */
