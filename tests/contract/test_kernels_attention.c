/* Attention of the host against the reference: packed and paged, forward and
 * backward, grouped heads, odd head sizes; the same bits for 1, 2, 3 threads.
 */
#include "kernels_test.h"

/* Query heads of a rank, as layouts cut them: q_lo and kv_lo need not start a
 * group. */
static const struct dyti_heads head_sets[] = {
    {.q = 4, .kv = 4, .q_lo = 0, .kv_lo = 0, .group = 1, .head_dim = 16},
    {.q = 3, .kv = 2, .q_lo = 4, .kv_lo = 1, .group = 3, .head_dim = 64},
    {.q = 2, .kv = 1, .q_lo = 6, .kv_lo = 2, .group = 3, .head_dim = 20},
    {.q = 2, .kv = 1, .q_lo = 0, .kv_lo = 0, .group = 2, .head_dim = 136},
    {.q = 1, .kv = 1, .q_lo = 0, .kv_lo = 0, .group = 1, .head_dim = 2},
    {.q = 2, .kv = 2, .q_lo = 0, .kv_lo = 0, .group = 4, .head_dim = 8},
};

static int64_t width_of(const struct dyti_heads *h)
{
    return (h->q + 2 * h->kv) * h->head_dim;
}

/* ---- packed ---- */

static void check_packed(struct dyti_kernels host,
                         struct dyti_kernels reference, struct bits *bits,
                         const struct dyti_heads *heads)
{
    static const int32_t first[] = {0, 1, 10, 10, 47, 49, 150};
    struct dyti_packed packed = {6, 150, first, NULL};
    struct bag bag = {0};
    int64_t ld = width_of(heads) + 3, wide = heads->q * heads->head_dim;
    size_t out_bytes = (size_t)(150 * wide) * sizeof(float);
    size_t d_bytes = (size_t)(150 * ld) * sizeof(float);
    float scale = 1.0f / sqrtf((float)heads->head_dim);
    float *qkv = floats(&bag, 150 * ld, 1, 2.0f);
    float *dout = floats(&bag, 150 * wide, 2, 1.0f);
    float *out = bag_bytes(&bag, out_bytes), *want = bag_bytes(&bag, out_bytes);
    float *lse = floats(&bag, 150 * heads->q, 3, 0.0f);
    float *want_lse = floats(&bag, 150 * heads->q, 3, 0.0f);
    float *d = floats(&bag, 150 * ld, 4, 1.0f);
    float *want_d = floats(&bag, 150 * ld, 4, 1.0f);

    assert_ok(host.ops->attention(host.self, qkv, ld, heads, &packed, scale,
                                  out, lse));
    assert_ok(host.ops->attention_back(host.self, dout, qkv, ld, heads, &packed,
                                       scale, out, lse, d));
    keep_bits(bits, out, out_bytes);
    keep_bits(bits, lse, (size_t)(150 * heads->q) * sizeof(float));
    keep_bits(bits, d, d_bytes);
    if (!bits->compare) {
        assert_ok(reference.ops->attention(reference.self, qkv, ld, heads,
                                           &packed, scale, want, want_lse));
        assert_ok(reference.ops->attention_back(reference.self, dout, qkv, ld,
                                                heads, &packed, scale, want,
                                                want_lse, want_d));
        assert_close("out", out, want, 150 * wide, 1e-5, 1.0);
        assert_close("lse", lse, want_lse, 150 * heads->q, 1e-5, 1.0);
        assert_close("dqkv", d, want_d, 150 * ld, 3e-5, 1.0);
        assert_ok(host.ops->attention(host.self, qkv, ld, heads, &packed, scale,
                                      want, NULL));
        assert_memory_equal(out, want, out_bytes);
    }
    bag_empty(&bag);
}

static void check_packed_sets(struct dyti_kernels host,
                              struct dyti_kernels reference, struct bits *bits)
{
    for (size_t i = 0; i < DYT_TEST_COUNT(head_sets); i++) {
        check_packed(host, reference, bits, &head_sets[i]);
    }
}

static void packed_attention(void **state)
{
    (void)state;
    each_isa(check_packed_sets);
}

static void nothing_to_attend(void **state)
{
    static const int32_t first[] = {0};
    struct dyti_packed packed = {0, 0, first, NULL};
    struct dyti_paged_batch batch = {0, 0, first, NULL, NULL, NULL};
    struct dyti_kv_layer cache = {NULL, NULL, DYTI_F32, 16};
    struct dyti_kernels host = open_kernels(&dyti_kernels_host, NULL, NULL);
    float x = 0.0f;

    (void)state;
    assert_ok(host.ops->attention(host.self, &x, 192, &head_sets[0], &packed,
                                  1.0f, &x, NULL));
    assert_ok(host.ops->attention_back(host.self, &x, &x, 192, &head_sets[0],
                                       &packed, 1.0f, &x, &x, &x));
    assert_ok(host.ops->attention_paged(host.self, &x, 192, &head_sets[0],
                                        &cache, &batch, 1.0f, &x));
    close_kernels(host);
}

/* ---- paged ---- */

#define BLOCKS 64

/* A prompt, a decoded token, a continued prompt, a first token, a long one. */
static const int32_t row_first[] = {0, 11, 12, 17, 18, 19};
static const int32_t context[] = {11, 30, 23, 1, 100};

/* Shuffled blocks; 7 is odd, so that every sequence takes different ones. */
static void fill_table(int64_t block_size, int32_t *table_first, int32_t *table)
{
    int32_t next = 0;

    for (int s = 0; s < 5; s++) {
        int64_t count = (context[s] + block_size - 1) / block_size;

        table_first[s] = next;
        for (int64_t b = 0; b < count; b++, next++) {
            assert_true(next < BLOCKS);
            table[next] = (next * 7 + 3) % BLOCKS;
        }
    }
}

static void check_paged(struct dyti_kernels host, struct dyti_kernels reference,
                        struct bits *bits, const struct dyti_heads *heads,
                        enum dyti_dtype dtype, int64_t block_size)
{
    struct bag bag = {0};
    int32_t table_first[5], table[BLOCKS];
    struct dyti_paged_batch batch = {5,       19,          row_first,
                                     context, table_first, table};
    int64_t ld = width_of(heads) + 1, wide = heads->q * heads->head_dim;
    int64_t cached = BLOCKS * block_size * heads->kv * heads->head_dim;
    size_t cache_bytes = (size_t)cached * dyti_dtype_bytes(dtype);
    size_t out_bytes = (size_t)(19 * wide) * sizeof(float);
    float scale = 1.0f / sqrtf((float)heads->head_dim);
    float *qkv = floats(&bag, 19 * ld, 1, 2.0f);
    float *out = bag_bytes(&bag, out_bytes), *want = bag_bytes(&bag, out_bytes);
    struct dyti_kv_layer cache = {weights(&bag, cached, 2, 2.0f, dtype),
                                  weights(&bag, cached, 3, 2.0f, dtype), dtype,
                                  block_size};
    struct dyti_kv_layer other = {copy_of(&bag, cache.k, cache_bytes),
                                  copy_of(&bag, cache.v, cache_bytes), dtype,
                                  block_size};

    fill_table(block_size, table_first, table);
    assert_ok(host.ops->attention_paged(host.self, qkv, ld, heads, &cache,
                                        &batch, scale, out));
    keep_bits(bits, out, out_bytes);
    if (!bits->compare) {
        assert_ok(reference.ops->attention_paged(reference.self, qkv, ld, heads,
                                                 &other, &batch, scale, want));
        assert_close("out", out, want, 19 * wide, 1e-5, 1.0);
        assert_memory_equal(cache.k, other.k, cache_bytes);
        assert_memory_equal(cache.v, other.v, cache_bytes);
    }
    bag_empty(&bag);
}

static void check_paged_sets(struct dyti_kernels host,
                             struct dyti_kernels reference, struct bits *bits)
{
    for (size_t i = 0; i < DYT_TEST_COUNT(head_sets); i++) {
        check_paged(host, reference, bits, &head_sets[i], DYTI_F32, 16);
        check_paged(host, reference, bits, &head_sets[i], DYTI_BF16, 5);
    }
}

static void paged_attention(void **state)
{
    (void)state;
    each_isa(check_paged_sets);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(packed_attention),
    cmocka_unit_test(paged_attention),
    cmocka_unit_test(nothing_to_attend),
};

DYT_TEST_MAIN(tests)
