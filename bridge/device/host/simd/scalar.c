/* The kernel bodies on scalar. */
#include "device/host/simd/vec_scalar.h"

#include "device/host/simd/simd.h"
#include "device/host/simd/vec_common.h"

#define SIMD_TABLE dyti_host_simd_scalar
#include "device/host/simd/bodies.h"
