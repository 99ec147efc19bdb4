/* All bodies and the table of them, for the instruction set whose vec_*.h was
 * included before; SIMD_TABLE is its name.  Included once per set, so no guard.
 */
/* clang-format off */
#include "device/host/simd/gemm_body.h"
#include "device/host/simd/attention_body.h"
/* clang-format on */

const struct host_simd SIMD_TABLE = {
    .lanes = VL,
    .dot_rows = DOT_MR,
    .dot_cols = DOT_NR,
    .outer_rows = OUTER_MR,
    .outer_cols = OUTER_NC,
    .outer_scratch = (int64_t)OUTER_KC * OUTER_NC,
    .dot = simd_dot_any,
    .outer = simd_outer_any,
    .widen = simd_widen,
    .narrow = simd_narrow,
    .attend = simd_attend_any,
    .attend_back = simd_attend_back,
};
