/* Spans of host memory and their twins on the device.  Spans that touch are
 * one, so that operands that share memory share it there as well. */
#include "gpusim/mirror.h"
#include "gpusim/gpusim.h"

#include "device/cuda/table.h"

#include <cuda_runtime_api.h>

#include <stdlib.h>

#define ALIGN 256u

struct span {
    uintptr_t lo, hi;
    unsigned char *block; /* of the device, or NULL */
    unsigned char *twin;  /* of lo */
};

struct mirror {
    void *cuda;
    struct span *span;
    size_t count, cap;
};

#define TRY(call)                                                              \
    do {                                                                       \
        enum dyt_status try_st = (call);                                       \
        if (try_st != DYT_OK) {                                                \
            return try_st;                                                     \
        }                                                                      \
    } while (0)

static enum dyt_status mirror_open(const struct dyti_kernel_params *params,
                                   void **out_self)
{
    struct dyti_kernel_params own = {.struct_size = sizeof(own),
                                     .tf32 = params != NULL && params->tf32};
    struct mirror *m = calloc(1, sizeof(*m));
    enum dyt_status st = DYT_OK;

    if (m == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a mirror");
    }
    st = dyti_kernels_cuda.open(&own, &m->cuda);
    if (st != DYT_OK) {
        free(m);
        return st;
    }
    *out_self = m;
    return DYT_OK;
}

static void mirror_close(void *self)
{
    struct mirror *m = self;

    dyti_kernels_cuda.close(m->cuda);
    free(m->span);
    free(m);
}

static const char *mirror_isa(void *self)
{
    return dyti_kernels_cuda.isa(((struct mirror *)self)->cuda);
}

/* ---- spans -------------------------------------------------------------- */

static enum dyt_status want(struct mirror *m, const void *ptr, uint64_t bytes)
{
    if (bytes == 0) {
        return DYT_OK;
    }
    if (m->count == m->cap) {
        size_t cap = m->cap == 0 ? 16 : m->cap * 2;
        struct span *span = realloc(m->span, cap * sizeof(*span));

        if (span == NULL) {
            return DYTI_FAIL(DYT_ERR_NOMEM, "%zu spans", cap);
        }
        m->span = span;
        m->cap = cap;
    }
    m->span[m->count++] =
        (struct span){.lo = (uintptr_t)ptr, .hi = (uintptr_t)ptr + bytes};
    return DYT_OK;
}

static int by_address(const void *a, const void *b)
{
    const struct span *x = a, *y = b;

    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

static void join(struct mirror *m)
{
    size_t kept = 0;

    qsort(m->span, m->count, sizeof(*m->span), by_address);
    for (size_t i = 1; i < m->count; i++) {
        if (m->span[i].lo <= m->span[kept].hi) {
            if (m->span[i].hi > m->span[kept].hi) {
                m->span[kept].hi = m->span[i].hi;
            }
        } else {
            m->span[++kept] = m->span[i];
        }
    }
    m->count = m->count > 0 ? kept + 1 : 0;
}

static enum dyt_status bring(struct mirror *m)
{
    join(m);
    for (size_t i = 0; i < m->count; i++) {
        struct span *s = &m->span[i];
        void *block = NULL;

        if (cudaMalloc(&block, s->hi - s->lo + ALIGN) != cudaSuccess) {
            return DYTI_FAIL(DYT_ERR_NOMEM, "twin of %zu bytes",
                             (size_t)(s->hi - s->lo));
        }
        s->block = block;
        s->twin = s->block + (s->lo - (uintptr_t)block) % ALIGN;
        TRY(dyti_kernels_cuda.carry(m->cuda, s->twin, (const void *)s->lo,
                                    s->hi - s->lo));
    }
    return DYT_OK;
}

static void *twin_of(const struct mirror *m, const void *ptr)
{
    for (size_t i = 0; i < m->count; i++) {
        if ((uintptr_t)ptr >= m->span[i].lo && (uintptr_t)ptr < m->span[i].hi) {
            return m->span[i].twin + ((uintptr_t)ptr - m->span[i].lo);
        }
    }
    return NULL; /* of nothing */
}

static enum dyt_status give_back(struct mirror *m, enum dyt_status st)
{
    for (size_t i = 0; i < m->count; i++) {
        struct span *s = &m->span[i];

        if (st == DYT_OK) {
            st = dyti_kernels_cuda.carry(m->cuda, (void *)s->lo, s->twin,
                                         s->hi - s->lo);
        }
        if (s->block != NULL) {
            (void)cudaFree(s->block);
        }
    }
    m->count = 0;
    return st;
}

/* Bytes from a box's first element to behind its last. */
static uint64_t reach(const int64_t *size, const int64_t *stride, uint8_t dtype)
{
    uint64_t bytes = dyti_dtype_bytes((enum dyti_dtype)dtype);

    for (uint32_t d = 0; d < DYTI_COPY_DIMS; d++) {
        if (size[d] == 0) {
            return 0;
        }
        bytes += (uint64_t)((size[d] - 1) * stride[d]);
    }
    return bytes;
}

/* ---- entries ------------------------------------------------------------ */

static enum dyt_status copy_there(struct mirror *m,
                                  const struct dyti_copy *copy, size_t count,
                                  struct dyti_copy *there)
{
    for (size_t i = 0; i < count; i++) {
        const struct dyti_copy *c = &copy[i];

        TRY(want(m, c->src, reach(c->size, c->src_stride, c->src_dtype)));
        TRY(want(m, c->dst, reach(c->size, c->dst_stride, c->dst_dtype)));
    }
    TRY(bring(m));
    for (size_t i = 0; i < count; i++) {
        there[i] = copy[i];
        there[i].src = twin_of(m, copy[i].src);
        there[i].dst = twin_of(m, copy[i].dst);
    }
    return dyti_kernels_cuda.copy(m->cuda, there, count);
}

static enum dyt_status mirror_copy(void *self, const struct dyti_copy *copy,
                                   size_t count)
{
    struct dyti_copy *there = calloc(count, sizeof(*there));
    enum dyt_status st = there == NULL
                             ? DYTI_FAIL(DYT_ERR_NOMEM, "%zu copies", count)
                             : copy_there(self, copy, count, there);

    free(there);
    return give_back(self, st);
}

static enum dyt_status hash_there(struct mirror *m,
                                  const struct dyti_hash_box *box, size_t count,
                                  struct dyti_hash_box *there,
                                  uint64_t *out_hash)
{
    for (size_t i = 0; i < count; i++) {
        TRY(want(m, box[i].data,
                 reach(box[i].size, box[i].stride, box[i].dtype)));
    }
    TRY(bring(m));
    for (size_t i = 0; i < count; i++) {
        there[i] = box[i];
        there[i].data = twin_of(m, box[i].data);
    }
    return dyti_kernels_cuda.hash(m->cuda, there, count, out_hash);
}

static enum dyt_status mirror_hash(void *self, const struct dyti_hash_box *box,
                                   size_t count, uint64_t *out_hash)
{
    struct dyti_hash_box *there = calloc(count, sizeof(*there));
    enum dyt_status st = there == NULL
                             ? DYTI_FAIL(DYT_ERR_NOMEM, "%zu boxes", count)
                             : hash_there(self, box, count, there, out_hash);

    free(there);
    return give_back(self, st);
}

static enum dyt_status gemm_there(struct mirror *m, const struct dyti_gemm *g)
{
    struct dyti_gemm there = *g;
    int64_t a_rows = g->trans_a ? g->k : g->m,
            b_rows = g->trans_b ? g->n : g->k;
    int64_t a_cols = g->trans_a ? g->m : g->k,
            b_cols = g->trans_b ? g->k : g->n;
    const int64_t a_size[] = {1, 1, a_rows, a_cols},
                  b_size[] = {1, 1, b_rows, b_cols};
    const int64_t c_size[] = {1, 1, g->m, g->n};
    int64_t b = dyti_dtype_bytes(g->b_dtype);
    const int64_t a_stride[] = {0, 0, g->lda * 4, 4};
    const int64_t b_stride[] = {0, 0, g->ldb * b, b};
    const int64_t c_stride[] = {0, 0, g->ldc * 4, 4};

    TRY(want(m, g->a, reach(a_size, a_stride, DYTI_F32)));
    TRY(want(m, g->b, reach(b_size, b_stride, (uint8_t)g->b_dtype)));
    TRY(want(m, g->c, reach(c_size, c_stride, DYTI_F32)));
    TRY(bring(m));
    there.a = twin_of(m, g->a);
    there.b = twin_of(m, g->b);
    there.c = twin_of(m, g->c);
    return dyti_kernels_cuda.gemm(m->cuda, &there);
}

static enum dyt_status mirror_gemm(void *self, const struct dyti_gemm *g)
{
    return give_back(self, gemm_there(self, g));
}

const struct dyti_kernel_ops dyt_kernels_cuda_mirror = {
    .struct_size = sizeof(struct dyti_kernel_ops),
    .name = "cuda",
    .open = mirror_open,
    .close = mirror_close,
    .isa = mirror_isa,
    .gemm = mirror_gemm,
    .copy = mirror_copy,
    .hash = mirror_hash,
    .caps = DYTI_KERNELS_ANY_MEMORY,
};
