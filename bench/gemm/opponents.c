#include "opponents.h"

#include <dlfcn.h>
#include <dnnl.h>

extern void omp_set_num_threads(int threads);

static bool run_onednn(const struct dyti_gemm *g, int threads)
{
    omp_set_num_threads(threads);
    return dnnl_sgemm(g->trans_a ? 'T' : 'N', g->trans_b ? 'T' : 'N', g->m,
                      g->n, g->k, 1.0f, g->a, g->lda, g->b, g->ldb,
                      g->accumulate ? 1.0f : 0.0f, g->c,
                      g->ldc) == dnnl_success;
}

/* cblas.h's numbers. */
enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 };

typedef void (*sgemm_fn)(int order, int trans_a, int trans_b, int m, int n,
                         int k, float alpha, const float *a, int lda,
                         const float *b, int ldb, float beta, float *c,
                         int ldc);
typedef void (*threads_fn)(int threads);

static sgemm_fn openblas_sgemm;
static threads_fn openblas_threads;

static bool run_openblas(const struct dyti_gemm *g, int threads)
{
    openblas_threads(threads);
    openblas_sgemm(ROW_MAJOR, g->trans_a ? TRANSPOSED : PLAIN,
                   g->trans_b ? TRANSPOSED : PLAIN, (int)g->m, (int)g->n,
                   (int)g->k, 1.0f, g->a, (int)g->lda, g->b, (int)g->ldb,
                   g->accumulate ? 1.0f : 0.0f, g->c, (int)g->ldc);
    return true;
}

int opponents_find(struct opponent out[2])
{
    void *blas = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    int count = 0;

    out[count++] = (struct opponent){"onednn", run_onednn};
    if (blas != NULL) {
        *(void **)&openblas_sgemm = dlsym(blas, "cblas_sgemm");
        *(void **)&openblas_threads = dlsym(blas, "openblas_set_num_threads");
        if (openblas_sgemm != NULL && openblas_threads != NULL) {
            out[count++] = (struct opponent){"openblas", run_openblas};
        }
    }
    return count;
}
