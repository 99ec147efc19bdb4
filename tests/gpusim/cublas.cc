// cuBLAS as far as it is used: arguments are checked as the real one does, the
// product is work of the handle's stream, and the numbers are the host's.
#include "sim.hpp"

#include "include/cublas_v2.h"

#include "gpusim/host_gemm.h"

#include "base/num.h"

struct cublasContext {
    cudaStream_t stream = nullptr;
    void *workspace = nullptr;
    size_t workspace_bytes = 0;
    cublasMath_t math = CUBLAS_DEFAULT_MATH;
    cublasAtomicsMode_t atomics = CUBLAS_ATOMICS_NOT_ALLOWED;
    cublasPointerMode_t pointers = CUBLAS_POINTER_MODE_HOST;
};

using namespace gpusim;

namespace
{

uint64_t handles;
gpusim_cublas_state settings;

// A factor as it is stored: column-major, `rows` of `cols` columns.
struct matrix {
    const void *data;
    int64_t rows, cols, ld;
    cudaDataType_t type;
};

uint64_t bytes_of(cudaDataType_t type)
{
    return type == CUDA_R_32F ? 4 : 2;
}

// 11 bits of 24, to nearest even.
float tf32(float x)
{
    uint32_t u = dyti_f32_bits(x);

    u += 0xfffu + (u >> 13 & 1u);
    return dyti_bits_f32(u & ~0x1fffu);
}

bool seen(const matrix &m, bool store, bool check_values)
{
    for (int64_t j = 0; j < m.cols; j++) {
        const auto *column = static_cast<const unsigned char *>(m.data) +
                             static_cast<uint64_t>(j * m.ld) * bytes_of(m.type);
        uint64_t bytes = static_cast<uint64_t>(m.rows) * bytes_of(m.type);
        gpusim_fault kind = GPUSIM_OUT_OF_BOUNDS;
        const char *wrong = wrong_with(column, bytes, store, &kind);

        if (wrong != nullptr) {
            note_and_stick(kind, cudaErrorIllegalAddress,
                           (std::string("a product: ") + wrong).c_str());
            return false;
        }
        touched(column, bytes, store, check_values);
    }
    return true;
}

// op(m)'s transpose, dense and row-major: element (j, i) of it is (i, j).
std::vector<float> dense(const matrix &m, cublasOperation_t op, bool is_tf32)
{
    int64_t rows = op == CUBLAS_OP_N ? m.rows : m.cols;
    int64_t cols = op == CUBLAS_OP_N ? m.cols : m.rows;
    std::vector<float> all(static_cast<size_t>(rows * cols) + 1);

    for (int64_t j = 0; j < cols; j++) {
        for (int64_t i = 0; i < rows; i++) {
            int64_t at = op == CUBLAS_OP_N ? j * m.ld + i : i * m.ld + j;
            float x = m.type == CUDA_R_32F
                          ? static_cast<const float *>(m.data)[at]
                          : dyti_bf16_to_f32(
                                static_cast<const uint16_t *>(m.data)[at]);

            all[static_cast<size_t>(j * rows + i)] = is_tf32 ? tf32(x) : x;
        }
    }
    return all;
}

struct product {
    matrix a, b, c;
    cublasOperation_t a_op, b_op;
    int64_t inner;
    bool accumulate, is_tf32;
};

void multiply(const product &p)
{
    matrix c = p.c;

    if (!seen(p.a, false, true) || !seen(p.b, false, true) ||
        (p.accumulate && !seen(c, false, true)) || !seen(c, true, false)) {
        return;
    }
    std::vector<float> a = dense(p.a, p.a_op, p.is_tf32);
    std::vector<float> b = dense(p.b, p.b_op, p.is_tf32);

    // cT = bT·aT, row-major.
    (void)gpusim_host_gemm(c.cols, c.rows, p.inner, b.data(), a.data(),
                           static_cast<float *>(const_cast<void *>(c.data)),
                           c.ld, p.accumulate);
}

bool types_go(cudaDataType_t a, cudaDataType_t b, cudaDataType_t c,
              cublasComputeType_t compute)
{
    return a == b && c == CUDA_R_32F &&
           (a == CUDA_R_32F ||
            (a == CUDA_R_16BF && compute == CUBLAS_COMPUTE_32F));
}

bool strides_go(const product &p)
{
    return p.a.ld >= (p.a.rows > 1 ? p.a.rows : 1) &&
           p.b.ld >= (p.b.rows > 1 ? p.b.rows : 1) &&
           p.c.ld >= (p.c.rows > 1 ? p.c.rows : 1);
}

bool is_aligned(const void *ptr, cudaDataType_t type)
{
    return reinterpret_cast<uint64_t>(ptr) % bytes_of(type) == 0;
}

matrix stored(const void *data, cublasOperation_t op, int64_t rows,
              int64_t cols, int64_t ld, cudaDataType_t type)
{
    return {data, op == CUBLAS_OP_N ? rows : cols,
            op == CUBLAS_OP_N ? cols : rows, ld, type};
}

} // namespace

cublasStatus_t cublasCreate(cublasHandle_t *handle)
{
    guard hold(sim.lock);

    if (sim.sticky != cudaSuccess || sim.machine.device_count == 0) {
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    *handle = new cublasContext();
    handles++;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle)
{
    guard hold(sim.lock);

    handles--;
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetVersion(cublasHandle_t, int *version)
{
    *version = settings.version != 0 ? settings.version : 120400;
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasGetStatusString(cublasStatus_t status)
{
    static const char *const name[] = {
        "CUBLAS_STATUS_SUCCESS",          "CUBLAS_STATUS_NOT_INITIALIZED",
        "CUBLAS_STATUS_ALLOC_FAILED",     "CUBLAS_STATUS_INVALID_VALUE",
        "CUBLAS_STATUS_EXECUTION_FAILED", "CUBLAS_STATUS_NOT_SUPPORTED"};

    return name[status];
}

// As the real one: a stream that is set takes the workspace away.
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream)
{
    guard hold(sim.lock);

    if (stream_of(stream) == nullptr) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    handle->stream = stream;
    handle->workspace = nullptr;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void *workspace,
                                  size_t bytes)
{
    guard hold(sim.lock);

    if (reinterpret_cast<uint64_t>(workspace) % 256 != 0 ||
        !in_arena(workspace)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    handle->workspace = workspace;
    handle->workspace_bytes = bytes;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode)
{
    handle->math = mode;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetAtomicsMode(cublasHandle_t handle,
                                    cublasAtomicsMode_t mode)
{
    handle->atomics = mode;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetPointerMode(cublasHandle_t handle,
                                    cublasPointerMode_t mode)
{
    handle->pointers = mode;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmEx_64(cublasHandle_t handle, cublasOperation_t a_op,
                               cublasOperation_t b_op, int64_t m, int64_t n,
                               int64_t k, const void *alpha, const void *a,
                               cudaDataType_t a_type, int64_t lda,
                               const void *b, cudaDataType_t b_type,
                               int64_t ldb, const void *beta, void *c,
                               cudaDataType_t c_type, int64_t ldc,
                               cublasComputeType_t compute, cublasGemmAlgo_t)
{
    guard hold(sim.lock);
    float scale = *static_cast<const float *>(alpha);
    float keep = *static_cast<const float *>(beta);
    product p = {stored(a, a_op, m, k, lda, a_type),
                 stored(b, b_op, k, n, ldb, b_type),
                 {c, m, n, ldc, c_type},
                 a_op,
                 b_op,
                 k,
                 keep != 0.0f,
                 compute == CUBLAS_COMPUTE_32F_FAST_TF32};

    if (settings.fails_next) {
        settings.fails_next = false;
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    if (stream_of(handle->stream) == nullptr || m < 0 || n < 0 || k < 0 ||
        !strides_go(p) || scale != 1.0f || (keep != 0.0f && keep != 1.0f)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (!types_go(a_type, b_type, c_type, compute) || !is_aligned(a, a_type) ||
        !is_aligned(b, b_type) || !is_aligned(c, c_type)) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    settings.math = handle->math;
    settings.is_deterministic = handle->workspace != nullptr &&
                                handle->stream != nullptr &&
                                handle->atomics == CUBLAS_ATOMICS_NOT_ALLOWED;
    settings.products++;
    enqueue(handle->stream, "product", [p] { multiply(p); });
    return sim.sticky == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                                     : CUBLAS_STATUS_EXECUTION_FAILED;
}

// ---- what tests say and ask ------------------------------------------------

void gpusim_cublas_add(const char *name)
{
#define TEXT_OF(f) #f
#define ADD(f)     gpusim_library_add(name, TEXT_OF(f), reinterpret_cast<void *>(f))
    ADD(cublasCreate);
    ADD(cublasDestroy);
    ADD(cublasGetVersion);
    ADD(cublasGetStatusString);
    ADD(cublasSetStream);
    ADD(cublasSetWorkspace);
    ADD(cublasSetMathMode);
    ADD(cublasSetAtomicsMode);
    ADD(cublasSetPointerMode);
    ADD(cublasGemmEx_64);
#undef ADD
#undef TEXT_OF
    settings = {};
}

struct gpusim_cublas_state *gpusim_cublas(void)
{
    settings.handles = handles;
    return &settings;
}
