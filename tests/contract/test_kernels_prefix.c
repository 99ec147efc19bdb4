/* Sequences that share a prefix give what the same sequences give written out
 * one by one, and the prefix's gradient is the sum of theirs. */
#include "kernels_test.h"

#define SEQUENCES 8
#define ROWS      42
/* Roots 0, 4 and 5; 4 has no followers; 2 has no rows. */
static const int32_t first[SEQUENCES + 1] = {0, 5, 8, 8, 12, 14, 15, 17, ROWS};
static const int32_t prefix[SEQUENCES] = {-1, 0, 0, 0, -1, -1, 5, 5};

static const struct dyti_heads head_sets[] = {
    {.q = 4, .kv = 4, .q_lo = 0, .kv_lo = 0, .group = 1, .head_dim = 16},
    {.q = 3, .kv = 2, .q_lo = 4, .kv_lo = 1, .group = 3, .head_dim = 20},
};

/* Results, [ROWS] rows each. */
struct results {
    float *out, *lse, *d;
};

struct shapes {
    const struct dyti_heads *heads;
    int64_t ld, wide;
    float scale;
    const float *qkv, *dout;
};

static struct results results_new(struct bag *bag, const struct shapes *s)
{
    return (struct results){floats(bag, ROWS * s->wide, 1, 0.0f),
                            floats(bag, ROWS * s->heads->q, 1, 0.0f),
                            floats(bag, ROWS * s->ld, 1, 0.0f)};
}

static void shared(struct dyti_kernels k, const struct shapes *s,
                   struct results *r)
{
    struct dyti_packed packed = {SEQUENCES, ROWS, first, prefix};

    assert_ok(k.ops->attention(k.self, s->qkv, s->ld, s->heads, &packed,
                               s->scale, r->out, r->lse));
    assert_ok(k.ops->attention_back(k.self, s->dout, s->qkv, s->ld, s->heads,
                                    &packed, s->scale, r->out, r->lse, r->d));
}

/* One sequence with its prefix written out before it: rows `row[0..n)` of the
 * arrays, of which the first `before` have no gradient of their own. */
static void alone(struct dyti_kernels k, const struct shapes *s,
                  const int32_t *row, int32_t before, int32_t n,
                  struct results *r)
{
    int32_t whole[2] = {0, n};
    struct dyti_packed packed = {1, n, whole, NULL};
    struct bag bag = {0};
    float *qkv = floats(&bag, n * s->ld, 1, 0.0f);
    float *dout = floats(&bag, n * s->wide, 1, 0.0f);
    struct results one = results_new(&bag, s);
    size_t ld_bytes = (size_t)s->ld * sizeof(float);
    size_t wide_bytes = (size_t)s->wide * sizeof(float);

    for (int32_t i = 0; i < n; i++) {
        memcpy(qkv + i * s->ld, s->qkv + row[i] * s->ld, ld_bytes);
        if (i >= before) {
            memcpy(dout + i * s->wide, s->dout + row[i] * s->wide, wide_bytes);
        }
    }
    assert_ok(k.ops->attention(k.self, qkv, s->ld, s->heads, &packed, s->scale,
                               one.out, one.lse));
    assert_ok(k.ops->attention_back(k.self, dout, qkv, s->ld, s->heads, &packed,
                                    s->scale, one.out, one.lse, one.d));
    for (int32_t i = 0; i < n; i++) {
        for (int64_t c = 0; c < s->ld; c++) {
            r->d[row[i] * s->ld + c] += one.d[i * s->ld + c];
        }
        if (i >= before) {
            memcpy(r->out + row[i] * s->wide, one.out + i * s->wide,
                   wide_bytes);
            memcpy(r->lse + row[i] * s->heads->q, one.lse + i * s->heads->q,
                   (size_t)s->heads->q * sizeof(float));
        }
    }
    bag_empty(&bag);
}

static void written_out(struct dyti_kernels k, const struct shapes *s,
                        struct results *r)
{
    for (int32_t i = 0; i < SEQUENCES; i++) {
        int32_t row[ROWS], before = 0, n = 0;

        for (int32_t p = prefix[i]; p >= 0; p = prefix[p]) {
            for (int32_t j = first[p]; j < first[p + 1]; j++) {
                row[before++] = j;
            }
        }
        n = before;
        for (int32_t j = first[i]; j < first[i + 1]; j++) {
            row[n++] = j;
        }
        alone(k, s, row, before, n, r);
    }
}

static void same(const struct shapes *s, const struct results *got,
                 const struct results *want)
{
    assert_close("out", got->out, want->out, ROWS * s->wide, 1e-5, 1.0);
    assert_close("lse", got->lse, want->lse, ROWS * s->heads->q, 1e-5, 1.0);
    assert_close("dqkv", got->d, want->d, ROWS * s->ld, 3e-5, 1.0);
}

static void check_heads(struct dyti_kernels host, struct dyti_kernels reference,
                        struct bits *bits, const struct dyti_heads *heads)
{
    struct bag bag = {0};
    struct shapes s = {.heads = heads,
                       .ld = (heads->q + 2 * heads->kv) * heads->head_dim,
                       .wide = heads->q * heads->head_dim,
                       .scale = 0.3f};
    struct results want, got, slow;

    s.qkv = floats(&bag, ROWS * s.ld, 5, 2.0f);
    s.dout = floats(&bag, ROWS * s.wide, 6, 1.0f);
    got = results_new(&bag, &s);
    shared(host, &s, &got);
    keep_bits(bits, got.out, (size_t)(ROWS * s.wide) * sizeof(float));
    keep_bits(bits, got.d, (size_t)(ROWS * s.ld) * sizeof(float));
    if (!bits->compare) {
        want = results_new(&bag, &s);
        slow = results_new(&bag, &s);
        written_out(reference, &s, &want);
        shared(reference, &s, &slow);
        same(&s, &slow, &want);
        same(&s, &got, &want);
    }
    bag_empty(&bag);
}

static void check(struct dyti_kernels host, struct dyti_kernels reference,
                  struct bits *bits)
{
    for (size_t i = 0; i < DYT_TEST_COUNT(head_sets); i++) {
        check_heads(host, reference, bits, &head_sets[i]);
    }
}

static void shared_prefixes(void **state)
{
    (void)state;
    each_isa(check);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(shared_prefixes),
};
DYT_TEST_MAIN(tests)
