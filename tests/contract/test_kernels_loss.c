/* Statistics of logits, and flat arrays, of the host against the reference; the
 * same bits for 1, 2, 3 threads. */
#include "kernels_test.h"

static void same(struct bits *bits, const char *what, const float *got,
                 const float *want, int64_t count, double tolerance)
{
    keep_bits(bits, got, (size_t)count * sizeof(float));
    if (!bits->compare) {
        assert_close(what, got, want, count, tolerance, 1.0);
    }
}

/* ---- logits ---- */

/* lse, log-probability and entropy from the sums of row_sums. */
static void check_finish(struct dyti_kernels host,
                         struct dyti_kernels reference, struct bits *bits,
                         int64_t rows, float *const stat[4])
{
    static const char *const name[] = {"lse", "logprob", "entropy"};
    struct bag bag = {0};
    float *got[3], *want[3];

    for (int i = 0; i < 3; i++) {
        got[i] = floats(&bag, rows, 3, 1.0f);
        want[i] = floats(&bag, rows, 4, 1.0f);
    }
    assert_ok(host.ops->row_finish(host.self, rows, stat[0], stat[1], stat[2],
                                   stat[3], got[0], got[1], got[2]));
    assert_ok(reference.ops->row_finish(reference.self, rows, stat[0], stat[1],
                                        stat[2], stat[3], want[0], want[1],
                                        want[2]));
    for (int i = 0; i < 3; i++) {
        same(bits, name[i], got[i], want[i], rows, 1e-7);
    }
    bag_empty(&bag);
}

/* Two equally likely tokens, by hand. */
static void a_row_is_finished(void **state)
{
    const float max = 3.0f, sum = 2.0f, zsum = 6.0f, z = 3.0f;
    float lse, logprob, entropy;

    (void)state;
    assert_ok(dyti_kernels_reference.row_finish(NULL, 1, &max, &sum, &zsum, &z,
                                                &lse, &logprob, &entropy));
    assert_true(fabs((double)lse - 3.0 - 0.6931471805599453) < 1e-6);
    assert_true(fabs((double)logprob + 0.6931471805599453) < 1e-7);
    assert_true(fabs((double)entropy - 0.6931471805599453) < 1e-6);
}

static void check_loss(struct dyti_kernels host, struct dyti_kernels reference,
                       struct bits *bits, int64_t rows, int64_t cols,
                       float scale)
{
    struct bag bag = {0};
    int64_t ld = cols + 2, count = rows * ld;
    float *x = floats(&bag, count, 1, 20.0f),
          *want = floats(&bag, count, 1, 20);
    float *got[4], *stat[4];
    float *entropy = floats(&bag, rows, 7, 5.0f);
    float *dl = floats(&bag, rows, 8, 1.0f), *dh = floats(&bag, rows, 9, 1.0f);
    int32_t *target = bag_bytes(&bag, (size_t)rows * sizeof(int32_t));

    for (int i = 0; i < 4; i++) {
        got[i] = floats(&bag, rows, 2, 0.0f);
        stat[i] = floats(&bag, rows, 2, 0.0f);
    }
    for (int64_t r = 0; r < rows; r++) { /* some are of other ranks */
        target[r] = (int32_t)random_int(6, r, 2 * cols);
    }
    assert_ok(host.ops->row_max(host.self, x, ld, rows, cols, scale, got[0]));
    assert_ok(reference.ops->row_max(reference.self, x, ld, rows, cols, scale,
                                     stat[0]));
    same(bits, "max", got[0], stat[0], rows, 0.0);
    assert_ok(host.ops->row_sums(host.self, x, ld, rows, cols, scale, stat[0],
                                 target, 5, got[1], got[2], got[3]));
    assert_ok(reference.ops->row_sums(reference.self, x, ld, rows, cols, scale,
                                      stat[0], target, 5, stat[1], stat[2],
                                      stat[3]));
    same(bits, "sum_exp", got[1], stat[1], rows, 5e-6);
    same(bits, "sum_zexp", got[2], stat[2], rows, 2e-5);
    same(bits, "target_z", got[3], stat[3], rows, 0.0);
    check_finish(host, reference, bits, rows, stat);
    for (int64_t r = 0; r < rows; r++) {
        stat[0][r] += logf(stat[1][r]);
    }
    assert_ok(host.ops->xent_back(host.self, x, ld, rows, cols, scale, stat[0],
                                  entropy, target, 5, dl, dh));
    assert_ok(reference.ops->xent_back(reference.self, want, ld, rows, cols,
                                       scale, stat[0], entropy, target, 5, dl,
                                       dh));
    same(bits, "dlogits", x, want, count, 1e-5);
    bag_empty(&bag);
}

static void check_losses(struct dyti_kernels host,
                         struct dyti_kernels reference, struct bits *bits)
{
    check_loss(host, reference, bits, 3, 1, 1.0f);
    check_loss(host, reference, bits, 500, 42, 1.0f);
    check_loss(host, reference, bits, 9, 2049, 0.7f);
    check_loss(host, reference, bits, 4, 12288, 1.3f);
}

static void losses(void **state)
{
    (void)state;
    each_isa(check_losses);
}

/* A broken logit must not look like a good probability. */
static void check_broken(struct dyti_kernels host,
                         struct dyti_kernels reference, struct bits *bits)
{
    float x[40] = {0.0f}, max = 0.0f, sum = 0.0f, zsum = 0.0f, z = 0.0f;
    int32_t target = 0;

    (void)reference;
    x[37] = NAN;
    assert_ok(host.ops->row_max(host.self, x, 40, 1, 40, 1.0f, &max));
    assert_ok(host.ops->row_sums(host.self, x, 40, 1, 40, 1.0f, &max, &target,
                                 0, &sum, &zsum, &z));
    assert_true(isnan(sum));
    x[37] = -INFINITY; /* a token that cannot be */
    assert_ok(host.ops->row_sums(host.self, x, 40, 1, 40, 1.0f, &z, &target, 0,
                                 &sum, &zsum, &z));
    assert_true(sum == 39.0f);
    keep_bits(bits, &sum, sizeof(sum));
}

static void broken_logits(void **state)
{
    (void)state;
    each_isa(check_broken);
}

/* e^x over its whole range, as the sum of a row of one. */
static void check_exp(struct dyti_kernels host, struct dyti_kernels reference,
                      struct bits *bits)
{
    (void)reference;
    for (int64_t i = -2000; i <= 2000; i++) {
        float z = (float)i * 0.05f, zero = 0.0f, sum, zsum, out;
        int32_t target = -1;
        double want = exp((double)z);

        assert_ok(host.ops->row_sums(host.self, &z, 1, 1, 1, 1.0f, &zero,
                                     &target, 0, &sum, &zsum, &out));
        if (want > 3.4028234e38) {
            assert_true(isinf(sum));
        } else if (want < 1.2e-38) {
            assert_true(sum >= 0.0f && sum < 1.2e-38f);
        } else {
            assert_true(fabs(sum - want) <= want * 0x1p-22);
        }
        keep_bits(bits, &sum, sizeof(sum));
    }
}

static void exponential(void **state)
{
    (void)state;
    each_isa(check_exp);
}

/* ---- flat arrays ---- */

static void check_flat(struct dyti_kernels host, struct dyti_kernels reference,
                       struct bits *bits, int64_t count)
{
    struct bag bag = {0};
    float *x = floats(&bag, count, 1, 3.0f), *want = floats(&bag, count, 1, 3);
    float *y = floats(&bag, count, 2, 1.0f);
    double sum = -1.0, other = 0.0;

    assert_ok(host.ops->add(host.self, x, y, count));
    assert_ok(reference.ops->add(reference.self, want, y, count));
    same(bits, "added", x, want, count, 0.0);
    assert_ok(host.ops->scale(host.self, x, count, 0.3f));
    assert_ok(reference.ops->scale(reference.self, want, count, 0.3f));
    same(bits, "scaled", x, want, count, 0.0);
    assert_ok(host.ops->sum_squares(host.self, x, count, &sum));
    assert_ok(reference.ops->sum_squares(reference.self, want, count, &other));
    keep_bits(bits, &sum, sizeof(sum));
    assert_true(fabs(sum - other) <= 1e-12 * other);
    bag_empty(&bag);
}

static void check_adamw(struct dyti_kernels host, struct dyti_kernels reference,
                        struct bits *bits, int64_t count, enum dyti_dtype dtype)
{
    static const struct dyti_adamw how = {.lr = 1e-2f,
                                          .beta1 = 0.9f,
                                          .beta2 = 0.95f,
                                          .eps = 1e-8f,
                                          .weight_decay = 0.1f,
                                          .bias1 = 0.271f,
                                          .bias2 = 0.142625f,
                                          .grad_scale = 0.5f};
    struct bag bag = {0};
    float *grad = floats(&bag, count, 1, 1.0f), *set[2][3];
    uint16_t *param = bag_bytes(&bag, (size_t)count * sizeof(float));
    float *wide = (float *)(void *)param;
    const char *what[3] = {"exp_avg", "exp_avg_sq", "master"};

    for (int i = 0; i < 2; i++) {
        set[i][0] = floats(&bag, count, 2, 1.0f);
        set[i][1] = floats(&bag, count, 3, 1.0f);
        set[i][2] = floats(&bag, count, 4, 1.0f);
        for (int64_t e = 0; e < count; e++) {
            set[i][1][e] = fabsf(set[i][1][e]);
        }
    }
    assert_ok(host.ops->adamw(host.self, &how, count, grad, set[0][2],
                              set[0][0], set[0][1], param, dtype));
    assert_ok(reference.ops->adamw(reference.self, &how, count, grad, set[1][2],
                                   set[1][0], set[1][1], NULL, dtype));
    for (int a = 0; a < 3; a++) {
        same(bits, what[a], set[0][a], set[1][a], count, 1e-6);
    }
    for (int64_t e = 0; e < count; e++) { /* param is master, rounded */
        if (dtype == DYTI_F32) {
            assert_true(wide[e] == set[0][2][e]);
        } else {
            assert_int_equal(dyti_f32_to_bf16(set[0][2][e]), param[e]);
        }
    }
    bag_empty(&bag);
}

static void check_flats(struct dyti_kernels host, struct dyti_kernels reference,
                        struct bits *bits)
{
    static const int64_t counts[] = {0, 1, 15, 1000, 32768, 100001};

    for (size_t i = 0; i < DYT_TEST_COUNT(counts); i++) {
        check_flat(host, reference, bits, counts[i]);
        check_adamw(host, reference, bits, counts[i], DYTI_F32);
        check_adamw(host, reference, bits, counts[i], DYTI_BF16);
    }
}

static void flats(void **state)
{
    (void)state;
    each_isa(check_flats);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(losses),        cmocka_unit_test(a_row_is_finished),
    cmocka_unit_test(broken_logits), cmocka_unit_test(exponential),
    cmocka_unit_test(flats),
};

DYT_TEST_MAIN(tests)
