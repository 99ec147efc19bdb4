/* Which instruction set the kernels use. */
#ifndef DYTI_DEVICE_HOST_ISA_H
#define DYTI_DEVICE_HOST_ISA_H

#include "base/error.h"

/* Each includes those before it. */
enum host_isa {
    HOST_SCALAR,      /* what every x86-64 has, or another machine */
    HOST_AVX2,        /* AVX2, FMA, F16C */
    HOST_AVX512,      /* F, BW, DQ, VL */
    HOST_AVX512_BF16, /* … and BF16 products */
    HOST_ISA_COUNT
};

/* "scalar", "avx2", "avx512", "avx512_bf16".  Static. */
const char *dyti_host_isa_name(enum host_isa isa);

/* The best this machine has. */
enum host_isa dyti_host_isa_best(void);

/* By name; NULL means the best.  DYT_ERR_INVALID: no such name;
 * DYT_ERR_UNSUPPORTED: this machine has not got it. */
enum dyt_status dyti_host_isa_find(const char *name, enum host_isa *out_isa);

#endif /* DYTI_DEVICE_HOST_ISA_H */
