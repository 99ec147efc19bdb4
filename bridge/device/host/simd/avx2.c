/* The kernel bodies on avx2. */
#include "device/host/simd/vec_avx2.h"

#include "device/host/simd/simd.h"
#include "device/host/simd/vec_common.h"

#define SIMD_TABLE dyti_host_simd_avx2
#include "device/host/simd/bodies.h"
