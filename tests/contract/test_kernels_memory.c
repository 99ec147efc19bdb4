/* Strided copies and the content hash of the host, and of cuda under the
 * simulator, against the reference; the same bits for 1, 2, 3 threads. */
#include "kernels_test.h"

#include "base/hash.h"

static const enum dyti_dtype floats_types[] = {DYTI_F32, DYTI_BF16, DYTI_F16};

/* Bytes of a random array that hold ordinary and extreme values of a dtype. */
static void *elements_of(struct bag *bag, int64_t count, uint64_t seed,
                         enum dyti_dtype dtype)
{
    unsigned char *p = bag_bytes(bag, (size_t)count * dyti_dtype_bytes(dtype));

    if (dtype == DYTI_F32 || dtype == DYTI_BF16 || dtype == DYTI_F16) {
        void *w = weights(bag, count, seed, 3.0f, dtype);

        memcpy(p, w, (size_t)count * dyti_dtype_bytes(dtype));
    } else {
        for (int64_t i = 0; i < count * dyti_dtype_bytes(dtype); i++) {
            p[i] = (unsigned char)random_int(seed, i, 256);
        }
    }
    return p;
}

/* A box inside a padded array: what the strides of each dimension are. */
static void dense_strides(const int64_t *size, const int64_t *pad,
                          int64_t bytes, int64_t *stride)
{
    int64_t step = bytes;

    for (int d = (int)DYTI_COPY_DIMS - 1; d >= 0; d--) {
        stride[d] = step;
        step *= size[d] + pad[d];
    }
}

struct shape {
    int64_t size[DYTI_COPY_DIMS], src_pad[DYTI_COPY_DIMS],
        dst_pad[DYTI_COPY_DIMS];
};

static const struct shape shapes[] = {
    {{1, 1, 1, 1}, {0}, {0}},
    {{1, 1, 1, 1000}, {0}, {0}},
    {{1, 1, 37, 21}, {0, 0, 0, 3}, {0, 0, 0, 1}},
    {{2, 3, 5, 7}, {0, 0, 2, 0}, {0, 1, 0, 0}},
    {{3, 2, 1, 17}, {0, 0, 1, 1}, {0}},
    {{1, 3, 40, 300}, {0, 0, 0, 0}, {0, 0, 3, 8}},
    {{1, 1, 1, 140003}, {0, 0, 0, 5}, {0, 0, 0, 0}},
    {{4, 0, 3, 2}, {0}, {0}},
    /* short rows, of lengths that have a way of their own and of others */
    {{2, 3, 5, 1}, {0, 1, 2, 3}, {1, 0, 1, 2}},
    {{2, 3, 5, 2}, {0, 1, 2, 3}, {1, 0, 1, 2}},
    {{2, 3, 5, 4}, {0, 1, 2, 3}, {1, 0, 1, 2}},
    {{2, 3, 5, 8}, {0, 1, 2, 3}, {1, 0, 1, 2}},
    {{1, 3, 5, 16}, {0, 1, 2, 3}, {1, 0, 1, 2}},
    {{2, 1, 5, 32}, {0, 1, 2, 3}, {1, 0, 1, 2}},
    {{2, 3, 1, 33}, {0, 1, 2, 3}, {1, 0, 1, 2}},
    {{1, 1, 9, 64}, {0, 0, 0, 1}, {0, 0, 0, 64}},
    {{1, 1, 9, 128}, {0, 0, 0, 1}, {0, 0, 0, 64}},
};

static int64_t extent(const int64_t *size, const int64_t *pad)
{
    int64_t count = 1;

    for (unsigned d = 0; d < DYTI_COPY_DIMS; d++) {
        count *= size[d] + pad[d];
    }
    return count;
}

static struct dyti_copy make_copy(struct bag *bag, const struct shape *shape,
                                  enum dyti_dtype from, enum dyti_dtype to)
{
    struct dyti_copy c = {.src_dtype = (uint8_t)from, .dst_dtype = (uint8_t)to};

    c.src = elements_of(bag, extent(shape->size, shape->src_pad), 1, from);
    c.dst = elements_of(bag, extent(shape->size, shape->dst_pad), 2, to);
    memcpy(c.size, shape->size, sizeof(c.size));
    dense_strides(shape->size, shape->src_pad, dyti_dtype_bytes(from),
                  c.src_stride);
    dense_strides(shape->size, shape->dst_pad, dyti_dtype_bytes(to),
                  c.dst_stride);
    return c;
}

/* The same dimensions walked in another order: scattered elements. */
static void transpose(struct dyti_copy *c)
{
    for (unsigned d = 0; d < DYTI_COPY_DIMS / 2; d++) {
        unsigned e = DYTI_COPY_DIMS - 1 - d;
        int64_t size = c->size[d], src = c->src_stride[d];
        int64_t dst = c->dst_stride[d];

        c->size[d] = c->size[e];
        c->src_stride[d] = c->src_stride[e];
        c->dst_stride[d] = c->dst_stride[e];
        c->size[e] = size;
        c->src_stride[e] = src;
        c->dst_stride[e] = dst;
    }
}

/* All copies of a list in one call. */
static void check_list(struct dyti_kernels host, struct dyti_kernels reference,
                       struct bits *bits, enum dyti_dtype from,
                       enum dyti_dtype to, bool turned)
{
    struct bag bag = {0};
    struct dyti_copy list[DYT_TEST_COUNT(shapes)];
    void *got[DYT_TEST_COUNT(shapes)], *want[DYT_TEST_COUNT(shapes)];
    size_t bytes[DYT_TEST_COUNT(shapes)];

    for (size_t i = 0; i < DYT_TEST_COUNT(shapes); i++) {
        list[i] = make_copy(&bag, &shapes[i], from, to);
        bytes[i] = (size_t)extent(shapes[i].size, shapes[i].dst_pad) *
                   dyti_dtype_bytes(to);
        got[i] = list[i].dst;
        want[i] = copy_of(&bag, got[i], bytes[i]);
        if (turned) {
            transpose(&list[i]);
        }
    }
    assert_ok(host.ops->copy(host.self, list, DYT_TEST_COUNT(shapes)));
    for (size_t i = 0; i < DYT_TEST_COUNT(shapes); i++) {
        keep_bits(bits, got[i], bytes[i]);
        list[i].dst = want[i];
    }
    if (!bits->compare) {
        void *past[DYT_TEST_COUNT(shapes)];

        for (size_t i = 0; i < DYT_TEST_COUNT(shapes); i++) {
            past[i] = copy_of(&bag, want[i], bytes[i]);
            list[i].dst = past[i];
        }
        assert_ok(dyti_kernels_copy_past(&host, list, DYT_TEST_COUNT(shapes)));
        for (size_t i = 0; i < DYT_TEST_COUNT(shapes); i++) {
            assert_memory_equal(got[i], past[i], bytes[i]);
            list[i].dst = want[i];
        }
        assert_ok(
            reference.ops->copy(reference.self, list, DYT_TEST_COUNT(shapes)));
        for (size_t i = 0; i < DYT_TEST_COUNT(shapes); i++) {
            assert_memory_equal(got[i], want[i], bytes[i]);
        }
    }
    bag_empty(&bag);
}

static void check_copies(struct dyti_kernels host,
                         struct dyti_kernels reference, struct bits *bits)
{
    for (size_t f = 0; f < DYT_TEST_COUNT(floats_types); f++) {
        for (size_t t = 0; t < DYT_TEST_COUNT(floats_types); t++) {
            check_list(host, reference, bits, floats_types[f], floats_types[t],
                       (f + t) % 2 == 1);
        }
    }
    check_list(host, reference, bits, DYTI_F32, DYTI_F32, true);
    check_list(host, reference, bits, DYTI_I32, DYTI_I32, false);
    check_list(host, reference, bits, DYTI_I64, DYTI_I64, true);
}

static void copies(void **state)
{
    (void)state;
    each_isa(check_copies);
}

/* Large enough for stores past the caches, at odd addresses. */
static void check_large(struct dyti_kernels host, struct dyti_kernels reference,
                        struct bits *bits)
{
    struct bag bag = {0};
    size_t bytes = ((size_t)17 << 20) + 2 * 7;
    uint16_t *src = bag_bytes(&bag, bytes + 8), *dst = NULL;
    struct dyti_copy c = {.size = {1, 1, 1, (int64_t)bytes / 2},
                          .src_stride = {0, 0, 0, 2},
                          .dst_stride = {0, 0, 0, 2},
                          .src_dtype = DYTI_BF16,
                          .dst_dtype = DYTI_BF16};

    (void)reference;
    for (size_t i = 0; i < bytes / 2; i++) {
        src[i] = (uint16_t)(i * 40503u >> 3);
    }
    dst = bag_bytes(&bag, bytes + 8);
    c.src = src + 1;
    c.dst = dst + 3;
    assert_ok(host.ops->copy(host.self, &c, 1));
    assert_memory_equal(src + 1, dst + 3, bytes - 2);
    assert_int_equal(0, dst[2]);
    keep_bits(bits, dst + 3, 64);
    bag_empty(&bag);
}

/* The same with conversion, in rows that end inside a line. */
static void check_large_conversion(struct dyti_kernels host,
                                   struct dyti_kernels reference,
                                   struct bits *bits)
{
    struct bag bag = {0};
    const int64_t rows = 3, cols = (int64_t)(6 << 18) + 5;
    size_t count = (size_t)(rows * cols);
    float *src = bag_bytes(&bag, count * 4);
    uint16_t *got = bag_bytes(&bag, count * 2 + 64);
    uint16_t *want = bag_bytes(&bag, count * 2 + 64);
    struct dyti_copy c = {.src = src,
                          .dst = got + 1,
                          .size = {1, 1, rows, cols},
                          .src_stride = {0, 0, cols * 4, 4},
                          .dst_stride = {0, 0, cols * 2, 2},
                          .src_dtype = DYTI_F32,
                          .dst_dtype = DYTI_BF16};

    for (size_t i = 0; i < count; i++) {
        src[i] = (float)(i * 2654435761u % 100003u) * 1e-3f;
    }
    assert_ok(host.ops->copy(host.self, &c, 1));
    c.dst = want + 1;
    assert_ok(reference.ops->copy(reference.self, &c, 1));
    assert_memory_equal(want, got, count * 2 + 64);
    keep_bits(bits, got, 64);
    bag_empty(&bag);
}

static void large_copies(void **state)
{
    (void)state;
    each_isa(check_large);
    each_isa(check_large_conversion);
}

/* Halfway cases, subnormals, infinities and NaN, in every lane. */
static void check_rounding(struct dyti_kernels host,
                           struct dyti_kernels reference, struct bits *bits)
{
    static const uint32_t special[] = {
        0x3f808000, 0x3f818000, 0x3f807fff, 0x3f808001, 0x7f7fffff, 0x7f800000,
        0xff800000, 0x7fc00001, 0xffc12345, 0x00000001, 0x807fffff, 0x33000000,
        0x33000001, 0x477fefff, 0x477ff000, 0x38801000, 0x387fffff, 0x80000000};
    float x[64];
    uint16_t got[64], want[64];

    for (unsigned i = 0; i < 64; i++) {
        x[i] = dyti_bits_f32(special[i % DYT_TEST_COUNT(special)]);
    }
    for (size_t t = 1; t < DYT_TEST_COUNT(floats_types); t++) {
        struct dyti_copy c = {.src = x,
                              .dst = got,
                              .size = {1, 1, 1, 61},
                              .src_stride = {0, 0, 0, 4},
                              .dst_stride = {0, 0, 0, 2},
                              .src_dtype = DYTI_F32,
                              .dst_dtype = (uint8_t)floats_types[t]};

        assert_ok(host.ops->copy(host.self, &c, 1));
        c.dst = want;
        assert_ok(reference.ops->copy(reference.self, &c, 1));
        assert_memory_equal(want, got, 61 * sizeof(got[0]));
        keep_bits(bits, got, 61 * sizeof(got[0]));
    }
}

static void rounding(void **state)
{
    (void)state;
    each_isa(check_rounding);
}

/* ---- hash ---- */

static void check_hash(struct dyti_kernels host, struct dyti_kernels reference,
                       struct bits *bits, enum dyti_dtype dtype, bool turned)
{
    struct bag bag = {0};
    struct dyti_hash_box list[DYT_TEST_COUNT(shapes)];
    uint64_t got[DYT_TEST_COUNT(shapes)], want[DYT_TEST_COUNT(shapes)];

    for (size_t i = 0; i < DYT_TEST_COUNT(shapes); i++) {
        struct dyti_copy c = make_copy(&bag, &shapes[i], dtype, dtype);

        if (turned) {
            transpose(&c);
        }
        list[i] =
            (struct dyti_hash_box){.data = c.src,
                                   .index = i * 12345678901u,
                                   .salt = dyti_content_salt((uint32_t)i, 2),
                                   .dtype = (uint8_t)dtype};
        memcpy(list[i].size, c.size, sizeof(c.size));
        memcpy(list[i].stride, c.src_stride, sizeof(c.src_stride));
        for (unsigned d = 0; d < DYTI_COPY_DIMS; d++) {
            list[i].index_stride[d] = c.dst_stride[d] / dyti_dtype_bytes(dtype);
        }
        got[i] = want[i] = i; /* added to, not set */
    }
    assert_ok(host.ops->hash(host.self, list, DYT_TEST_COUNT(shapes), got));
    if (!bits->compare) {
        assert_ok(reference.ops->hash(reference.self, list,
                                      DYT_TEST_COUNT(shapes), want));
        assert_memory_equal(got, want, sizeof(got));
    }
    keep_bits(bits, got, sizeof(got));
    bag_empty(&bag);
}

static void check_hashes(struct dyti_kernels host,
                         struct dyti_kernels reference, struct bits *bits)
{
    check_hash(host, reference, bits, DYTI_F32, false);
    check_hash(host, reference, bits, DYTI_F32, true);
    check_hash(host, reference, bits, DYTI_BF16, false);
    check_hash(host, reference, bits, DYTI_I64, false);
    check_hash(host, reference, bits, DYTI_I64, true);
}

static void hashes(void **state)
{
    (void)state;
    each_isa(check_hashes);
}

static void cuda_does_the_same(void **state)
{
    (void)state;
    on_cuda(check_copies);
    on_cuda(check_rounding);
    on_cuda(check_hashes);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(copies),
    cmocka_unit_test(large_copies),
    cmocka_unit_test(rounding),
    cmocka_unit_test(hashes),
    cmocka_unit_test(cuda_does_the_same),
};

DYT_TEST_MAIN(tests)
