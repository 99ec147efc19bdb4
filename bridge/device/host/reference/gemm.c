/* Matrix product by its definition. */
#include "device/host/reference/reference.h"

enum dyt_status dyti_reference_gemm(void *self, const struct dyti_gemm *g)
{
    (void)self;
    dyti_assert(!(g->trans_a && g->trans_b));
    for (int64_t i = 0; i < g->m; i++) {
        for (int64_t j = 0; j < g->n; j++) {
            float *c = &g->c[i * g->ldc + j];
            double sum = g->accumulate ? *c : 0.0;

            for (int64_t p = 0; p < g->k; p++) {
                float a = g->a[g->trans_a ? p * g->lda + i : i * g->lda + p];
                float b =
                    ref_load(g->b, g->b_dtype,
                             g->trans_b ? j * g->ldb + p : p * g->ldb + j);

                sum += (double)a * b;
            }
            *c = (float)sum;
        }
    }
    return DYT_OK;
}
