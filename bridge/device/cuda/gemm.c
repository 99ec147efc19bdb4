/* Products of a handle, as cuBLAS wants them.  A row-major matrix is its own
 * transpose column-major, so c = a·b becomes cT = bT·aT: the factors change
 * places, and what is stored the other way stays so.
 *
 *   weights f32    multiplied as they are, in TF32 where that is configured
 *   weights bf16   activations are rounded to bf16: both are what tensor cores
 *                  multiply, and sums are f32
 *   weights f16    widened, and multiplied as f32: activations and gradients
 *                  need not fit in f16.  TF32 keeps all of their bits */
#include "device/cuda/blas.h"

#define WHOLE 16 /* bytes: rows of scratch begin at such */

/* `rows` rows of `cols` elements, rounded or widened into scratch; *out_ld of
 * its elements. */
static enum dyt_status convert(struct dyti_cuda *k, const void *from,
                               enum dyti_dtype from_dtype, int64_t rows,
                               int64_t cols, int64_t ld, enum dyti_dtype dtype,
                               void **out_to, int64_t *out_ld)
{
    int64_t in = dyti_dtype_bytes(from_dtype), out = dyti_dtype_bytes(dtype);
    int64_t pitch = (cols * out + WHOLE - 1) / WHOLE * WHOLE;
    struct dyti_copy copy = {.src = from,
                             .size = {1, 1, rows, cols},
                             .src_stride = {0, 0, ld * in, in},
                             .dst_stride = {0, 0, pitch, out},
                             .src_dtype = (uint8_t)from_dtype,
                             .dst_dtype = (uint8_t)dtype};
    enum dyt_status st =
        dyti_cuda_scratch(k, (uint64_t)(rows * pitch), &copy.dst);

    if (st == DYT_OK) {
        st = dyti_cuda_copy(k, &copy, 1);
    }
    if (st == DYT_OK) {
        *out_to = copy.dst;
        *out_ld = pitch / out;
    }
    return st;
}

enum dyt_status dyti_cuda_gemm(void *self, const struct dyti_gemm *gemm)
{
    struct dyti_cuda *k = self;
    const struct dyti_gemm g = *gemm;
    struct dyti_cuda_blas_gemm there = {.rows = g.n,
                                        .cols = g.m,
                                        .inner = g.k,
                                        .a = g.b,
                                        .lda = g.ldb,
                                        .a_t = g.trans_b,
                                        .b = g.a,
                                        .ldb = g.lda,
                                        .b_t = g.trans_a,
                                        .c = g.c,
                                        .ldc = g.ldc,
                                        .accumulate = g.accumulate,
                                        .product = g.b_dtype == DYTI_BF16
                                                       ? DYTI_CUDA_BF16
                                                   : k->tf32 ? DYTI_CUDA_TF32
                                                             : DYTI_CUDA_F32};
    enum dyt_status st = dyti_cuda_begin(k);
    void *to = NULL;

    dyti_assert(!(g.trans_a && g.trans_b));
    if (st == DYT_OK) {
        st = dyti_cuda_blas_open(k);
    }
    if (st != DYT_OK || g.m == 0 || g.n == 0) {
        return st;
    }
    if (g.b_dtype == DYTI_BF16 && g.k > 0) {
        st = convert(k, g.a, DYTI_F32, g.trans_a ? g.k : g.m,
                     g.trans_a ? g.m : g.k, g.lda, DYTI_BF16, &to, &there.ldb);
        there.b = to;
    } else if (g.b_dtype == DYTI_F16 && g.k > 0) {
        st = convert(k, g.b, DYTI_F16, g.trans_b ? g.n : g.k,
                     g.trans_b ? g.k : g.n, g.ldb, DYTI_F32, &to, &there.lda);
        there.a = to;
    }
    if (st == DYT_OK) {
        st = dyti_cuda_blas_gemm(k, &there);
    }
    if (st == DYT_OK) {
        dyti_cuda_queued(k, "product with columns,", (uint64_t)g.n);
    }
    return st;
}
