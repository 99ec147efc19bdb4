/* All bodies and the table of them, for the instruction set whose vec_*.h was
 * included before; SIMD_TABLE is its name.  Included once per set, so no guard.
 */
/* clang-format off */
#include "device/host/simd/turn_body.h"
#include "device/host/simd/gemm_body.h"
#include "device/host/simd/flat_body.h"
#include "device/host/simd/norm_body.h"
#include "device/host/simd/rows_body.h"
#include "device/host/simd/loss_body.h"
#include "device/host/simd/attention_body.h"
#include "device/host/simd/tile_body.h"
#include "device/host/simd/attention_tile_body.h"
#include "device/host/simd/memory_body.h"
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
    .attend_scratch = simd_attend_scratch,
    .attend = simd_attend,
    .attend_back = simd_attend_back,
    .norm = simd_norm,
    .norm_back = simd_norm_back,
    .add_weight = simd_add_weight,
    .take_weight = simd_take_weight,
    .rope = simd_rope,
    .swiglu = simd_swiglu,
    .swiglu_back = simd_swiglu_back,
    .row_max = simd_row_max,
    .row_sums = simd_row_sums,
    .xent_back = simd_xent_back,
    .convert = simd_convert,
    .stream = simd_stream,
    .fence = v_fence,
    .rows = simd_rows,
    .stream_rows = simd_stream_rows,
    .hash = simd_hash,
    .add = simd_add,
    .scale = simd_scale,
    .sum_squares = simd_sum_squares,
    .adamw = simd_adamw,
};
