/* The reference's backward entries against finite differences of its forward
 * ones: L = Σ c_i y_i with random c, one input at a time moved by ±h. */
#include "kernels_test.h"

#define H (1.0f / 256) /* exact, and large against rounding in f32 */

/* What a check differentiates. */
struct probe {
    struct dyti_kernels k;
    struct bag bag;
    int64_t rows, cols, heads, dim, count;
    float *x, *w, *c, *y, *inv;
    struct dyti_heads h;
    struct dyti_packed packed;
    float *lse, *entropy;
    int32_t *ids;
};

typedef void (*forward_fn)(struct probe *p);

static double loss(struct probe *p, forward_fn forward)
{
    double sum = 0.0;

    forward(p);
    for (int64_t i = 0; i < p->count; i++) {
        sum += (double)p->c[i] * p->y[i];
    }
    return sum;
}

static void check_gradient(struct probe *p, forward_fn forward, float *x,
                           int64_t count, const float *dx)
{
    for (int64_t i = 0; i < count; i++) {
        float keep = x[i];
        double up, down, want;

        x[i] = keep + H;
        up = loss(p, forward);
        x[i] = keep - H;
        down = loss(p, forward);
        x[i] = keep;
        want = (up - down) / (2.0 * (double)H);
        if (!(fabs(dx[i] - want) <= 2e-3 * (fabs(want) + 1.0))) {
            fail_msg("gradient %lld is %g, differences say %g", (long long)i,
                     (double)dx[i], want);
        }
    }
}

static struct probe open_probe(int64_t rows, int64_t cols)
{
    struct probe p = {.k = open_reference(), .rows = rows, .cols = cols};

    p.count = rows * cols;
    p.x = floats(&p.bag, rows * cols, 1, 1.0f);
    p.w = floats(&p.bag, cols, 2, 1.0f);
    p.c = floats(&p.bag, p.count, 3, 1.0f);
    p.y = floats(&p.bag, p.count, 4, 1.0f);
    p.inv = floats(&p.bag, rows * cols, 5, 1.0f);
    return p;
}

static void close_probe(struct probe *p)
{
    bag_empty(&p->bag);
    close_kernels(p->k);
}

static void forward_norm(struct probe *p)
{
    assert_ok(p->k.ops->rmsnorm(p->k.self, p->x, p->w, DYTI_F32, 1e-5f, p->rows,
                                p->cols, p->y, p->inv));
}

static void rmsnorm_gradients(void **state)
{
    struct probe p = open_probe(3, 7);
    float *dx = floats(&p.bag, 21, 6, 0.0f), *dw = floats(&p.bag, 7, 7, 0.0f);

    (void)state;
    forward_norm(&p);
    assert_ok(p.k.ops->rmsnorm_back(p.k.self, p.c, p.x, p.w, DYTI_F32, p.inv, 3,
                                    7, dx, false, dw));
    check_gradient(&p, forward_norm, p.x, 21, dx);
    check_gradient(&p, forward_norm, p.w, 7, dw);
    close_probe(&p);
}

static void forward_headnorm(struct probe *p)
{
    memcpy(p->y, p->x, (size_t)p->count * sizeof(float));
    assert_ok(p->k.ops->headnorm(p->k.self, p->y, p->cols, p->rows, p->heads,
                                 p->dim, p->w, DYTI_F32, 1e-5f, p->inv));
}

static void headnorm_gradients(void **state)
{
    struct probe p = open_probe(3, 9); /* 2 heads of 4 and a column beside */
    float *dx = floats(&p.bag, 27, 6, 0.0f), *dw = floats(&p.bag, 4, 7, 0.0f);

    (void)state;
    p.heads = 2;
    p.dim = 4;
    forward_headnorm(&p);
    memcpy(dx, p.c, 27 * sizeof(float));
    assert_ok(p.k.ops->headnorm_back(p.k.self, dx, p.x, 9, 3, 2, 4, p.w,
                                     DYTI_F32, p.inv, dw));
    check_gradient(&p, forward_headnorm, p.x, 27, dx);
    check_gradient(&p, forward_headnorm, p.w, 4, dw);
    close_probe(&p);
}

static void forward_swiglu(struct probe *p)
{
    assert_ok(p->k.ops->swiglu(p->k.self, p->x, p->rows, p->cols / 2, p->y));
}

static void swiglu_gradients(void **state)
{
    struct probe p = open_probe(3, 10);
    float *dx = floats(&p.bag, 30, 6, 0.0f);

    (void)state;
    p.count = 15;
    assert_ok(p.k.ops->swiglu_back(p.k.self, p.c, p.x, 3, 5, dx));
    check_gradient(&p, forward_swiglu, p.x, 30, dx);
    close_probe(&p);
}

static void forward_rope(struct probe *p)
{
    memcpy(p->y, p->x, (size_t)p->count * sizeof(float));
    assert_ok(p->k.ops->rope(p->k.self, p->y, p->cols, p->rows, 2, 4, p->ids,
                             p->inv, false));
}

static void rope_gradients(void **state)
{
    struct probe p = open_probe(3, 9);
    int32_t position[3] = {2, 0, 4};
    float *dx = copy_of(&p.bag, p.c, 27 * sizeof(float));

    (void)state;
    p.ids = position;
    p.inv = floats(&p.bag, 5 * 4, 8, 1.0f);
    assert_ok(p.k.ops->rope(p.k.self, dx, 9, 3, 2, 4, position, p.inv, true));
    check_gradient(&p, forward_rope, p.x, 27, dx);
    close_probe(&p);
}

static void forward_attention(struct probe *p)
{
    assert_ok(p->k.ops->attention(p->k.self, p->x, p->cols, &p->h, &p->packed,
                                  0.5f, p->y, p->lse));
}

/* 3 query heads of this rank (global 1..3) on 2 KV heads, group 2. */
static void attention_gradients(void **state)
{
    static const int32_t first[] = {0, 3, 4, 8};
    struct probe p = open_probe(8, 7 * 4 + 1);
    float *dx = floats(&p.bag, p.count, 6, 0.0f), *out = NULL;

    (void)state;
    p.h = (struct dyti_heads){
        .q = 3, .kv = 2, .q_lo = 1, .kv_lo = 0, .group = 2, .head_dim = 4};
    p.packed = (struct dyti_packed){3, 8, first, NULL};
    p.lse = floats(&p.bag, 8 * 3, 9, 0.0f);
    p.count = 8 * 12;
    forward_attention(&p);
    out = copy_of(&p.bag, p.y, (size_t)p.count * sizeof(float));
    assert_ok(p.k.ops->attention_back(p.k.self, p.c, p.x, p.cols, &p.h,
                                      &p.packed, 0.5f, out,
                                      copy_of(&p.bag, p.lse, 24 * 4), dx));
    check_gradient(&p, forward_attention, p.x, 8 * p.cols, dx);
    close_probe(&p);
}

/* y[2r] = log-probability of the target, y[2r + 1] = entropy. */
static void forward_loss(struct probe *p)
{
    float max[3], sum[3], zsum[3], z[3];
    const float scale = 0.7f;

    assert_ok(p->k.ops->row_max(p->k.self, p->x, p->cols, 3, 6, scale, max));
    assert_ok(p->k.ops->row_sums(p->k.self, p->x, p->cols, 3, 6, scale, max,
                                 p->ids, 10, sum, zsum, z));
    for (int r = 0; r < 3; r++) {
        p->lse[r] = max[r] + logf(sum[r]);
        p->entropy[r] = p->lse[r] - zsum[r] / sum[r];
        p->y[2 * r] = z[r] - p->lse[r];
        p->y[2 * r + 1] = p->entropy[r];
    }
}

static void loss_gradients(void **state)
{
    struct probe p = open_probe(3, 7); /* 6 columns of a matrix of 7 */
    int32_t target[3] = {10, 15, 99};
    float dlogprob[3], dentropy[3], *dx = NULL;

    (void)state;
    p.ids = target;
    p.lse = floats(&p.bag, 3, 9, 0.0f);
    p.entropy = floats(&p.bag, 3, 9, 0.0f);
    p.count = 6;
    forward_loss(&p);
    for (int r = 0; r < 3; r++) {
        dlogprob[r] = p.c[2 * r];
        dentropy[r] = p.c[2 * r + 1];
    }
    dx = copy_of(&p.bag, p.x, 21 * sizeof(float));
    assert_ok(p.k.ops->xent_back(p.k.self, dx, 7, 3, 6, 0.7f, p.lse, p.entropy,
                                 target, 10, dlogprob, dentropy));
    for (int r = 0; r < 3; r++) {
        assert_true(dx[r * 7 + 6] == p.x[r * 7 + 6]); /* beyond: untouched */
        dx[r * 7 + 6] = 0.0f;
    }
    check_gradient(&p, forward_loss, p.x, 21, dx);
    close_probe(&p);
}

static void forward_embed(struct probe *p)
{
    assert_ok(
        p->k.ops->embed(p->k.self, p->ids, 5, p->x, DYTI_F32, 10, 13, 4, p->y));
}

static void embed_gradients(void **state)
{
    struct probe p = open_probe(5, 4);
    int32_t ids[5] = {12, 10, 12, 9, 13};
    float *dx = floats(&p.bag, 12, 6, 0.0f);

    (void)state;
    p.ids = ids;
    assert_ok(p.k.ops->embed_back(p.k.self, ids, 5, p.c, 10, 13, 4, dx));
    check_gradient(&p, forward_embed, p.x, 12, dx);
    close_probe(&p);
}

static void forward_bias(struct probe *p)
{
    memset(p->y, 0, (size_t)p->count * sizeof(float));
    assert_ok(p->k.ops->add_bias(p->k.self, p->y, p->cols, p->rows, 4, p->w,
                                 DYTI_F32));
}

static void bias_gradients(void **state)
{
    struct probe p = open_probe(3, 5);
    float *db = floats(&p.bag, 4, 6, 0.0f);

    (void)state;
    assert_ok(p.k.ops->bias_back(p.k.self, p.c, 5, 3, 4, db));
    check_gradient(&p, forward_bias, p.w, 4, db);
    close_probe(&p);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(rmsnorm_gradients),   cmocka_unit_test(headnorm_gradients),
    cmocka_unit_test(swiglu_gradients),    cmocka_unit_test(rope_gradients),
    cmocka_unit_test(attention_gradients), cmocka_unit_test(loss_gradients),
    cmocka_unit_test(embed_gradients),     cmocka_unit_test(bias_gradients),
};

DYT_TEST_MAIN(tests)
