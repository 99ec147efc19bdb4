/* cuBLAS behind dlopen: which library, its handle, and how it multiplies. */
#include "device/cuda/blas.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__has_include)
#if __has_include(<cublas_v2.h>)
#define HAS_HEADER 1
#endif
#endif

#ifdef HAS_HEADER
#include <cublas_v2.h>

#define VERSION_MIN           120000 /* 12.0: the first with sizes of 64 bits */
#define WORKSPACE_BYTES(arch) ((arch) >= 90 ? 32u << 20 : 4u << 20)

/* The header renames some of these to their newest version. */
#define CALLS(X)                                                               \
    X(cublasCreate)                                                            \
    X(cublasDestroy)                                                           \
    X(cublasGetVersion)                                                        \
    X(cublasGetStatusString)                                                   \
    X(cublasSetStream)                                                         \
    X(cublasSetWorkspace)                                                      \
    X(cublasSetMathMode)                                                       \
    X(cublasSetAtomicsMode)                                                    \
    X(cublasSetPointerMode)                                                    \
    X(cublasGemmEx_64)

struct dyti_cuda_blas {
#define MEMBER(f) __typeof__(&(f)) f;
    CALLS(MEMBER)
#undef MEMBER
    cublasHandle_t handle;
    void *workspace;
    cublasMath_t math;
};

/* ---- the library -------------------------------------------------------- */

/* Functions and objects have one size here. */
static bool find(void *library, const char *name, void *out_function)
{
    void *at = dlsym(library, name);

    memcpy(out_function, &at, sizeof(at));
    return at != NULL;
}

static enum dyt_status find_calls(void *library, struct dyti_cuda_blas *blas)
{
#define TEXT_OF(f) #f
#define FIND(f)                                                                \
    if (!find(library, TEXT_OF(f), &blas->f)) {                                \
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,                                  \
                         "cuBLAS has no %s: install the one of CUDA 12.0 or "  \
                         "newer",                                              \
                         TEXT_OF(f));                                          \
    }
    CALLS(FIND)
#undef FIND
#undef TEXT_OF
    return DYT_OK;
}

static enum dyt_status open_library(struct dyti_cuda_blas *blas)
{
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12"};
    const char *why = NULL;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);

        if (library != NULL) {
            return find_calls(library, blas);
        }
        why = i == 0 ? dlerror() : why; /* the newest says it best */
    }
    return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                     "no cuBLAS (%s): install libcublas of CUDA 12 or 13, or "
                     "put its folder into LD_LIBRARY_PATH",
                     why != NULL ? why : names[0]);
}

/* ---- the handle --------------------------------------------------------- */

static enum dyt_status check(struct dyti_cuda *k, cublasStatus_t e,
                             const char *doing)
{
    if (e == CUBLAS_STATUS_SUCCESS) {
        return DYT_OK;
    }
    if (e == CUBLAS_STATUS_ALLOC_FAILED) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%s has no memory for cuBLAS when %s",
                         k->name, doing);
    }
    /* It may only be the first to meet what a kernel did before. */
    return dyti_cuda_wait(k) != DYT_OK
               ? DYT_ERR_DEVICE
               : DYTI_FAIL(DYT_ERR_DEVICE, "%s: cuBLAS answers %s when %s",
                           k->name, k->blas->cublasGetStatusString(e), doing);
}

/* Equal bits need one queue, a workspace of its own, and no atomics. */
static enum dyt_status settle(struct dyti_cuda *k)
{
    struct dyti_cuda_blas *blas = k->blas;
    size_t bytes = WORKSPACE_BYTES(k->arch);
    int version = 0;
    enum dyt_status st =
        check(k, blas->cublasCreate(&blas->handle), "it starts");

    if (st == DYT_OK) {
        st = check(k, blas->cublasGetVersion(blas->handle, &version),
                   "asked for its version");
    }
    if (st == DYT_OK && version < VERSION_MIN) {
        st = DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                       "cuBLAS is of version %d, and 12.0 is needed: install "
                       "the one of CUDA 12 or 13",
                       version);
    }
    if (st == DYT_OK) {
        st = dyti_cuda_alloc(k, bytes, "the workspace of cuBLAS",
                             &blas->workspace);
    }
    if (st == DYT_OK) { /* the stream first: it takes the workspace away */
        st = check(k, blas->cublasSetStream(blas->handle, k->stream),
                   "given its stream");
    }
    if (st == DYT_OK) {
        st = check(
            k, blas->cublasSetWorkspace(blas->handle, blas->workspace, bytes),
            "given its workspace");
    }
    if (st == DYT_OK) {
        st = check(k,
                   blas->cublasSetAtomicsMode(blas->handle,
                                              CUBLAS_ATOMICS_NOT_ALLOWED),
                   "forbidden atomics");
    }
    return st == DYT_OK ? check(k,
                                blas->cublasSetPointerMode(
                                    blas->handle, CUBLAS_POINTER_MODE_HOST),
                                "told where factors are")
                        : st;
}

enum dyt_status dyti_cuda_blas_open(struct dyti_cuda *k)
{
    enum dyt_status st = DYT_OK;

    if (k->blas != NULL) {
        return DYT_OK;
    }
    k->blas = calloc(1, sizeof(*k->blas));
    if (k->blas == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "handle of cuBLAS");
    }
    k->blas->math = CUBLAS_DEFAULT_MATH;
    st = open_library(k->blas);
    if (st == DYT_OK) {
        st = settle(k);
    }
    if (st != DYT_OK) {
        dyti_cuda_blas_close(k);
    }
    return st;
}

void dyti_cuda_blas_close(struct dyti_cuda *k)
{
    if (k->blas != NULL) {
        if (k->blas->handle != NULL) {
            (void)k->blas->cublasDestroy(k->blas->handle);
        }
        dyti_cuda_free(k, k->blas->workspace);
        free(k->blas);
        k->blas = NULL;
    }
}

/* ---- products ----------------------------------------------------------- */

static cublasMath_t math_of(enum dyti_cuda_product product)
{
    switch (product) {
    case DYTI_CUDA_TF32:
        return CUBLAS_TF32_TENSOR_OP_MATH;
    case DYTI_CUDA_BF16:
        return (cublasMath_t)(CUBLAS_DEFAULT_MATH |
                              CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    default:
        return CUBLAS_PEDANTIC_MATH;
    }
}

static enum dyt_status set_math(struct dyti_cuda *k, cublasMath_t math)
{
    enum dyt_status st;

    if (k->blas->math == math) {
        return DYT_OK;
    }
    st = check(k, k->blas->cublasSetMathMode(k->blas->handle, math),
               "told how to multiply");
    k->blas->math = st == DYT_OK ? math : k->blas->math;
    return st;
}

enum dyt_status dyti_cuda_blas_gemm(struct dyti_cuda *k,
                                    const struct dyti_cuda_blas_gemm *g)
{
    const float one = 1.0f, keep = g->accumulate ? 1.0f : 0.0f;
    cudaDataType_t type =
        g->product == DYTI_CUDA_BF16 ? CUDA_R_16BF : CUDA_R_32F;
    cublasComputeType_t compute =
        g->product == DYTI_CUDA_TF32  ? CUBLAS_COMPUTE_32F_FAST_TF32
        : g->product == DYTI_CUDA_F32 ? CUBLAS_COMPUTE_32F_PEDANTIC
                                      : CUBLAS_COMPUTE_32F;
    enum dyt_status st = set_math(k, math_of(g->product));

    if (st != DYT_OK) {
        return st;
    }
    return check(k,
                 k->blas->cublasGemmEx_64(
                     k->blas->handle, g->a_t ? CUBLAS_OP_T : CUBLAS_OP_N,
                     g->b_t ? CUBLAS_OP_T : CUBLAS_OP_N, g->rows, g->cols,
                     g->inner, &one, g->a, type, g->lda, g->b, type, g->ldb,
                     &keep, g->c, CUDA_R_32F, g->ldc, compute,
                     CUBLAS_GEMM_DEFAULT),
                 "asked for a product");
}

#else

enum dyt_status dyti_cuda_blas_open(struct dyti_cuda *k)
{
    (void)k;
    return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                     "this build has no products on GPUs: cublas_v2.h was not "
                     "there when it was made");
}

void dyti_cuda_blas_close(struct dyti_cuda *k)
{
    (void)k;
}

enum dyt_status dyti_cuda_blas_gemm(struct dyti_cuda *k,
                                    const struct dyti_cuda_blas_gemm *g)
{
    (void)g;
    return dyti_cuda_blas_open(k);
}

#endif
