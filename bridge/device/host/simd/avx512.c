/* The kernel bodies on avx512. */
#include "device/host/simd/vec_avx512.h"

#include "device/host/simd/simd.h"
#include "device/host/simd/vec_common.h"

#define SIMD_TABLE dyti_host_simd_avx512
#include "device/host/simd/bodies.h"
