/* A kernel that fails at any call of any pass: its status comes out, and the
 * regions are as they were. */
#include "nn_cases.h"

static const struct dyti_kernel_ops *real = &dyti_kernels_reference;
static int64_t calls_left; /* the call after these fails */

static bool fails(void)
{
    return calls_left-- == 0;
}

#define FAIL_OR(call)                                                          \
    (fails() ? DYTI_FAIL(DYT_ERR_DEVICE, "a kernel failed on purpose") : (call))

static enum dyt_status gemm(void *self, const struct dyti_gemm *g)
{
    return FAIL_OR(real->gemm(self, g));
}

static enum dyt_status rmsnorm(void *self, const float *x, const void *w,
                               enum dyti_dtype dtype, float eps, int64_t rows,
                               int64_t cols, float *y, float *inv_rms)
{
    return FAIL_OR(
        real->rmsnorm(self, x, w, dtype, eps, rows, cols, y, inv_rms));
}

static enum dyt_status rmsnorm_back(void *self, const float *dy, const float *x,
                                    const void *w, enum dyti_dtype dtype,
                                    const float *inv_rms, int64_t rows,
                                    int64_t cols, float *dx, bool accumulate,
                                    float *dw)
{
    return FAIL_OR(real->rmsnorm_back(self, dy, x, w, dtype, inv_rms, rows,
                                      cols, dx, accumulate, dw));
}

static enum dyt_status headnorm(void *self, float *x, int64_t ld, int64_t rows,
                                int64_t heads, int64_t d, const void *w,
                                enum dyti_dtype dtype, float eps,
                                float *inv_rms)
{
    return FAIL_OR(
        real->headnorm(self, x, ld, rows, heads, d, w, dtype, eps, inv_rms));
}

static enum dyt_status headnorm_back(void *self, float *dy, const float *x_in,
                                     int64_t ld, int64_t rows, int64_t heads,
                                     int64_t d, const void *w,
                                     enum dyti_dtype dtype,
                                     const float *inv_rms, float *dw)
{
    return FAIL_OR(real->headnorm_back(self, dy, x_in, ld, rows, heads, d, w,
                                       dtype, inv_rms, dw));
}

static enum dyt_status add_bias(void *self, float *x, int64_t ld, int64_t rows,
                                int64_t cols, const void *bias,
                                enum dyti_dtype dtype)
{
    return FAIL_OR(real->add_bias(self, x, ld, rows, cols, bias, dtype));
}

static enum dyt_status bias_back(void *self, const float *dy, int64_t ld,
                                 int64_t rows, int64_t cols, float *db)
{
    return FAIL_OR(real->bias_back(self, dy, ld, rows, cols, db));
}

static enum dyt_status rope(void *self, float *x, int64_t ld, int64_t rows,
                            int64_t heads, int64_t d, const int32_t *position,
                            const float *table, bool inverse)
{
    return FAIL_OR(
        real->rope(self, x, ld, rows, heads, d, position, table, inverse));
}

static enum dyt_status swiglu(void *self, const float *gate_up, int64_t rows,
                              int64_t f, float *y)
{
    return FAIL_OR(real->swiglu(self, gate_up, rows, f, y));
}

static enum dyt_status swiglu_back(void *self, const float *dy,
                                   const float *gate_up, int64_t rows,
                                   int64_t f, float *dgate_up)
{
    return FAIL_OR(real->swiglu_back(self, dy, gate_up, rows, f, dgate_up));
}

static enum dyt_status embed(void *self, const int32_t *ids, int64_t rows,
                             const void *table, enum dyti_dtype dtype,
                             int64_t lo, int64_t hi, int64_t cols, float *out)
{
    return FAIL_OR(
        real->embed(self, ids, rows, table, dtype, lo, hi, cols, out));
}

static enum dyt_status embed_back(void *self, const int32_t *ids, int64_t rows,
                                  const float *dy, int64_t lo, int64_t hi,
                                  int64_t cols, float *dtable)
{
    return FAIL_OR(real->embed_back(self, ids, rows, dy, lo, hi, cols, dtable));
}

static enum dyt_status attention_paged(void *self, const float *qkv, int64_t ld,
                                       const struct dyti_heads *heads,
                                       const struct dyti_kv_layer *cache,
                                       const struct dyti_paged_batch *batch,
                                       float scale, float *out)
{
    return FAIL_OR(
        real->attention_paged(self, qkv, ld, heads, cache, batch, scale, out));
}

static enum dyt_status attention(void *self, const float *qkv, int64_t ld,
                                 const struct dyti_heads *heads,
                                 const struct dyti_packed *packed, float scale,
                                 float *out, float *lse)
{
    return FAIL_OR(
        real->attention(self, qkv, ld, heads, packed, scale, out, lse));
}

static enum dyt_status attention_back(void *self, const float *dout,
                                      const float *qkv, int64_t ld,
                                      const struct dyti_heads *heads,
                                      const struct dyti_packed *packed,
                                      float scale, const float *out,
                                      const float *lse, float *dqkv)
{
    return FAIL_OR(real->attention_back(self, dout, qkv, ld, heads, packed,
                                        scale, out, lse, dqkv));
}

static enum dyt_status row_max(void *self, const float *logits, int64_t ld,
                               int64_t rows, int64_t cols, float scale,
                               float *max)
{
    return FAIL_OR(real->row_max(self, logits, ld, rows, cols, scale, max));
}

static enum dyt_status row_sums(void *self, const float *logits, int64_t ld,
                                int64_t rows, int64_t cols, float scale,
                                const float *max, const int32_t *target,
                                int64_t vocab_lo, float *sum_exp,
                                float *sum_zexp, float *target_z)
{
    return FAIL_OR(real->row_sums(self, logits, ld, rows, cols, scale, max,
                                  target, vocab_lo, sum_exp, sum_zexp,
                                  target_z));
}

static enum dyt_status row_finish(void *self, int64_t rows, const float *max,
                                  const float *sum_exp, const float *sum_zexp,
                                  const float *target_z, float *lse,
                                  float *logprob, float *entropy)
{
    return FAIL_OR(real->row_finish(self, rows, max, sum_exp, sum_zexp,
                                    target_z, lse, logprob, entropy));
}

static enum dyt_status xent_back(void *self, float *logits, int64_t ld,
                                 int64_t rows, int64_t cols, float scale,
                                 const float *lse, const float *entropy,
                                 const int32_t *target, int64_t vocab_lo,
                                 const float *dlogprob, const float *dentropy)
{
    return FAIL_OR(real->xent_back(self, logits, ld, rows, cols, scale, lse,
                                   entropy, target, vocab_lo, dlogprob,
                                   dentropy));
}

static enum dyt_status copy(void *self, const struct dyti_copy *list,
                            size_t count)
{
    return FAIL_OR(real->copy(self, list, count));
}

static struct dyti_kernel_ops failing_table(void)
{
    struct dyti_kernel_ops ops = dyti_kernels_reference;

    ops.gemm = gemm;
    ops.rmsnorm = rmsnorm;
    ops.rmsnorm_back = rmsnorm_back;
    ops.headnorm = headnorm;
    ops.headnorm_back = headnorm_back;
    ops.add_bias = add_bias;
    ops.bias_back = bias_back;
    ops.rope = rope;
    ops.swiglu = swiglu;
    ops.swiglu_back = swiglu_back;
    ops.embed = embed;
    ops.embed_back = embed_back;
    ops.attention_paged = attention_paged;
    ops.attention = attention;
    ops.attention_back = attention_back;
    ops.row_max = row_max;
    ops.row_sums = row_sums;
    ops.row_finish = row_finish;
    ops.xent_back = xent_back;
    ops.copy = copy;
    return ops;
}

struct fixture {
    struct nn_rank *rank;
    struct nn_batch batch;
    struct dyti_region saved, work;
    struct dyti_nn_saved *kept;
    float *hidden, *dhidden, logprob[NN_ROWS], entropy[NN_ROWS];
    struct dyti_nn_head_chunk chunk;
    struct dyti_nn_cache cache;
};

static enum dyt_status infer_once(struct fixture *f)
{
    static const int32_t context[] = {5, 1, 9, 3}, table[] = {0, 2, 3, 6};
    static const int32_t blocks[] = {0, 1, 2, 3, 4, 5, 6};
    struct dyti_paged_batch batch = {4,       NN_ROWS, nn_first,
                                     context, table,   blocks};

    return dyti_nn_infer(f->rank->nn, &f->rank->w, &f->cache, &batch,
                         f->batch.ids, f->batch.position, f->hidden, &f->work);
}

static enum dyt_status logits_once(struct fixture *f)
{
    static const int32_t row[] = {4, 5, 14, 17};
    static float logits[4 * 37];

    return dyti_nn_logits(f->rank->nn, &f->rank->w, f->hidden, row, 4, logits,
                          &f->work);
}

static enum dyt_status forward_once(struct fixture *f)
{
    enum dyt_status st =
        dyti_nn_forward(f->rank->nn, &f->rank->w, &f->batch.micro, f->hidden,
                        DYTI_RECOMPUTE_LAYER, &f->saved, &f->work, &f->kept);

    if (st != DYT_OK) {
        assert_int_equal(f->saved.used, 0);
    }
    return st;
}

static enum dyt_status head_once(struct fixture *f)
{
    f->chunk = (struct dyti_nn_head_chunk){.hidden = f->hidden,
                                           .rows = NN_ROWS,
                                           .target = f->batch.target,
                                           .scale = 1.0f,
                                           .logprob = f->logprob,
                                           .entropy = f->entropy};
    return dyti_nn_head_forward(f->rank->nn, &f->rank->w, &f->chunk, &f->work);
}

static enum dyt_status head_back_once(struct fixture *f)
{
    return dyti_nn_head_backward(f->rank->nn, &f->rank->w, &f->rank->g,
                                 &f->chunk, f->batch.dlogprob,
                                 f->batch.dentropy, f->dhidden, &f->work);
}

static enum dyt_status backward_once(struct fixture *f)
{
    return dyti_nn_backward(f->rank->nn, &f->rank->w, &f->rank->g,
                            &f->batch.micro, f->kept, f->dhidden, &f->work);
}

/* Fail the first call, then the second, … until the pass gets through. */
static int64_t fail_everywhere(struct fixture *f,
                               enum dyt_status (*pass)(struct fixture *f))
{
    uint64_t mark = dyti_region_mark(&f->work);
    int64_t n = 0;

    for (;; n++) {
        enum dyt_status st;

        calls_left = n;
        st = pass(f);
        if (st == DYT_OK) {
            assert_true(calls_left >= 0);
            return n;
        }
        assert_int_equal(st, DYT_ERR_DEVICE);
        assert_error_has("on purpose");
        assert_int_equal(f->work.used, mark);
    }
}

static void run_case(struct fixture *f)
{
    int64_t layers = f->rank->nn->model->arch.layers;

    assert_true(fail_everywhere(f, infer_once) >= 1 + 10 * layers);
    assert_int_equal(fail_everywhere(f, logits_once), 4);
    assert_true(fail_everywhere(f, forward_once) >= 1 + 10 * layers);
    assert_int_equal(fail_everywhere(f, head_once), 5);
    assert_int_equal(fail_everywhere(f, head_back_once), 4);
    dyti_region_reset(&f->work);
    assert_true(fail_everywhere(f, backward_once) >= 20 * layers + 1);
}

static void a_failing_kernel_is_reported_from_everywhere(void **state)
{
    (void)state;
    struct dyti_kernel_ops ops = failing_table();
    struct dyti_arch arch = nn_cases[4].arch;
    struct dyti_model *model;
    struct nn_world w;
    struct fixture f = {0};
    uint64_t bytes;
    float **full;

    arch.qkv_bias = true; /* every kernel there is */
    assert_ok(dyti_model_build(&arch, &model));
    full = nn_full_random(model, 3);
    nn_world_init(
        &w,
        &(struct nn_world_desc){
            .model = model, .tp = 1, .pp = 1, .kernels = &ops, .positions = 16},
        full);
    f.rank = &w.rank[0];
    nn_batch_init(&f.batch, arch.vocab);
    f.hidden = calloc((size_t)(NN_ROWS * arch.hidden), sizeof(float));
    f.dhidden = calloc((size_t)(NN_ROWS * arch.hidden), sizeof(float));
    bytes = dyti_nn_cache_layer_bytes(f.rank->nn, DYTI_F32, 4, 7);
    f.cache = (struct dyti_nn_cache){.k = nn_zeros(3 * bytes),
                                     .v = nn_zeros(3 * bytes),
                                     .block_size = 4,
                                     .block_count = 7,
                                     .layer_bytes = bytes};
    nn_region_new(&f.work, dyti_nn_train_bytes(f.rank->nn, NN_ROWS, NN_ROWS));
    nn_region_new(&f.saved, dyti_nn_saved_bytes(f.rank->nn, NN_ROWS, 4,
                                                DYTI_RECOMPUTE_LAYER));
    run_case(&f);
    nn_region_free(&f.work);
    nn_region_free(&f.saved);
    nn_free(f.cache.k, 3 * bytes);
    nn_free(f.cache.v, 3 * bytes);
    free(f.hidden);
    free(f.dhidden);
    nn_world_fini(&w);
    nn_full_free(model, full);
    dyti_model_destroy(model);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_failing_kernel_is_reported_from_everywhere),
};
DYT_TEST_MAIN(tests)
