/* Streams against an oracle that writes the whole stream element by element:
 * every cut at every byte, every pair of float types, integers untouched. */
#include "dyt_test.h"

#include "base/num.h"
#include "base/rng.h"
#include "device/host/host.h"
#include "exec/pack.h"

#define BOXES_MAX 6u
#define ROOM      65536u /* bytes of memory on either side */

struct stream_case {
    struct dyti_copy box[BOXES_MAX];
    uint64_t at[BOXES_MAX + 1];
    uint32_t box_count;
    unsigned char *src, *dst, *want, *got; /* [ROOM] each */
};

static uint32_t draw(uint64_t seed, uint64_t what, uint64_t i, uint32_t below)
{
    return (uint32_t)(dyti_rng_u64(seed, what, i, 0) % below);
}

/* ---- the oracle: one element, converted by base/num.h -------------------- */

static float widen(const unsigned char *at, enum dyti_dtype dtype)
{
    uint16_t half;
    float x;

    if (dtype == DYTI_F32) {
        memcpy(&x, at, 4);
        return x;
    }
    memcpy(&half, at, 2);
    return dtype == DYTI_BF16 ? dyti_bf16_to_f32(half) : dyti_f16_to_f32(half);
}

static void convert(const unsigned char *from, enum dyti_dtype src,
                    unsigned char *to, enum dyti_dtype dst)
{
    float x;
    uint16_t half;

    if (src == dst) {
        memcpy(to, from, dyti_dtype_bytes(src));
        return;
    }
    x = widen(from, src);
    if (dst == DYTI_F32) {
        memcpy(to, &x, 4);
    } else {
        half = dst == DYTI_BF16 ? dyti_f32_to_bf16(x) : dyti_f32_to_f16(x);
        memcpy(to, &half, 2);
    }
}

typedef void (*element_fn)(struct stream_case *c, const struct dyti_copy *box,
                           int64_t src, int64_t dst, uint64_t at);

static void each_element(struct stream_case *c, element_fn fn)
{
    uint64_t at = 0;

    for (uint32_t b = 0; b < c->box_count; b++) {
        const struct dyti_copy *box = &c->box[b];
        int64_t i[4];

        for (i[0] = 0; i[0] < box->size[0]; i[0]++) {
            for (i[1] = 0; i[1] < box->size[1]; i[1]++) {
                for (i[2] = 0; i[2] < box->size[2]; i[2]++) {
                    for (i[3] = 0; i[3] < box->size[3]; i[3]++) {
                        int64_t src = 0, dst = 0;

                        for (int d = 0; d < 4; d++) {
                            src += i[d] * box->src_stride[d];
                            dst += i[d] * box->dst_stride[d];
                        }
                        fn(c, box, src, dst, at);
                        at += dyti_dtype_bytes((enum dyti_dtype)box->dst_dtype);
                    }
                }
            }
        }
        c->at[b + 1] = at;
    }
}

/* A signalling NaN stays a NaN, but whether it is quiet afterwards depends on
 * the instruction: the sources have quiet ones only. */
static void quiet_nan(struct stream_case *c, const struct dyti_copy *box,
                      int64_t src, int64_t dst, uint64_t at)
{
    unsigned char *from = c->src + ((const unsigned char *)box->src - c->src);
    uint16_t half;

    (void)dst;
    (void)at;
    if (box->src_dtype == DYTI_F16 || box->src_dtype == DYTI_BF16) {
        memcpy(&half, from + src, 2);
        half |=
            (uint16_t)(box->src_dtype == DYTI_F16
                           ? ((half & 0x7c00u) == 0x7c00u &&
                                      (half & 0x3ffu) != 0
                                  ? 0x200u
                                  : 0)
                           : ((half & 0x7f80u) == 0x7f80u && (half & 0x7fu) != 0
                                  ? 0x40u
                                  : 0));
        memcpy(from + src, &half, 2);
    }
}

static void want_packed(struct stream_case *c, const struct dyti_copy *box,
                        int64_t src, int64_t dst, uint64_t at)
{
    (void)dst;
    convert((const unsigned char *)box->src + src,
            (enum dyti_dtype)box->src_dtype, c->want + at,
            (enum dyti_dtype)box->dst_dtype);
}

static void check_unpacked(struct stream_case *c, const struct dyti_copy *box,
                           int64_t src, int64_t dst, uint64_t at)
{
    (void)src;
    assert_memory_equal(c->want + at, (unsigned char *)box->dst + dst,
                        dyti_dtype_bytes((enum dyti_dtype)box->dst_dtype));
}

/* ---- drawing ------------------------------------------------------------ */

/* A box somewhere in memory: rows with gaps, or elements with gaps. */
static uint64_t draw_side(uint64_t seed, uint64_t what, const int64_t size[],
                          uint32_t bytes, int64_t stride[])
{
    int64_t step = (int64_t)bytes * (draw(seed, what, 9, 4) == 0 ? 2 : 1);
    int64_t extent = 0;

    for (uint32_t d = 4; d-- > 0;) {
        stride[d] = step;
        extent += (size[d] - 1) * step;
        step *= size[d];
        step += (int64_t)bytes * draw(seed, what, d, 3);
    }
    return (uint64_t)extent + bytes;
}

static void draw_case(uint64_t seed, struct stream_case *c)
{
    static const enum dyti_dtype pairs[][2] = {
        {DYTI_F32, DYTI_F32},  {DYTI_F32, DYTI_BF16},  {DYTI_F32, DYTI_F16},
        {DYTI_BF16, DYTI_F32}, {DYTI_BF16, DYTI_BF16}, {DYTI_BF16, DYTI_F16},
        {DYTI_F16, DYTI_F32},  {DYTI_F16, DYTI_BF16},  {DYTI_F16, DYTI_F16},
        {DYTI_I32, DYTI_I32},  {DYTI_I64, DYTI_I64}};
    uint64_t src = 0, dst = 0;

    c->box_count = 1 + draw(seed, 1, 0, BOXES_MAX);
    for (uint32_t b = 0; b < c->box_count; b++) {
        const enum dyti_dtype *pair = pairs[(seed + b) % DYT_TEST_COUNT(pairs)];
        struct dyti_copy *box = &c->box[b];

        *box = (struct dyti_copy){.src_dtype = (uint8_t)pair[0],
                                  .dst_dtype = (uint8_t)pair[1]};
        for (uint32_t d = 0; d < 4; d++) {
            box->size[d] = 1 + draw(seed, 10 + b, d, d == 3 ? 9 : 4);
        }
        src = (src + 7) / 8 * 8;
        dst = (dst + 7) / 8 * 8;
        box->src = c->src + src;
        box->dst = c->dst + dst;
        src += draw_side(seed, 30 + b, box->size, dyti_dtype_bytes(pair[0]),
                         box->src_stride);
        dst += draw_side(seed, 50 + b, box->size, dyti_dtype_bytes(pair[1]),
                         box->dst_stride);
        assert_true(src <= ROOM && dst <= ROOM);
    }
    for (uint32_t i = 0; i < ROOM; i++) { /* NaN, infinities, subnormals too */
        c->src[i] = (unsigned char)dyti_rng_u64(seed, 99, i, 0);
    }
    each_element(c, quiet_nan);
    each_element(c, want_packed);
}

static void open_case(struct stream_case *c)
{
    *c = (struct stream_case){.src = aligned_alloc(64, ROOM),
                              .dst = aligned_alloc(64, ROOM),
                              .want = aligned_alloc(64, ROOM),
                              .got = aligned_alloc(64, ROOM + 64)};
    assert_true(c->src && c->dst && c->want && c->got);
}

static void close_case(struct stream_case *c)
{
    free(c->src);
    free(c->dst);
    free(c->want);
    free(c->got);
}

/* ---- tests -------------------------------------------------------------- */

struct both {
    struct dyti_kernels kernels[2];
};

static int open_kernels(void **state)
{
    static struct both both = {
        {{.ops = &dyti_kernels_host}, {.ops = &dyti_kernels_reference}}};

    for (int i = 0; i < 2; i++) {
        struct dyti_kernel_params params = {.struct_size = sizeof(params)};

        if (both.kernels[i].ops->open(&params, &both.kernels[i].self) !=
            DYT_OK) {
            return -1;
        }
    }
    *state = &both;
    return 0;
}

static int close_kernels(void **state)
{
    struct both *both = *state;

    for (int i = 0; i < 2; i++) {
        both->kernels[i].ops->close(both->kernels[i].self);
    }
    return 0;
}

static struct dyti_stream_boxes stream_of(const struct stream_case *c)
{
    return (struct dyti_stream_boxes){.box = c->box,
                                      .at = c->at,
                                      .box_count = c->box_count,
                                      .past_caches = c->box_count % 2 != 0};
}

/* Two parts, cut at each byte in turn. */
static void every_cut_at_every_byte(void **state)
{
    const struct dyti_kernels *kernels = &((struct both *)*state)->kernels[0];
    struct stream_case c;

    open_case(&c);
    for (uint64_t seed = 1; seed <= 22; seed++) {
        struct dyti_stream_boxes stream;
        uint64_t total;

        draw_case(seed, &c);
        stream = stream_of(&c);
        total = c.at[c.box_count];
        for (uint64_t cut = 0; cut <= total; cut++) {
            struct dyti_stream_cursor at;

            memset(c.got, 0xa5, total + 1);
            dyti_stream_seek(&stream, 0, &at);
            assert_ok(dyti_pack(kernels, &stream, &at, c.got, cut));
            dyti_stream_seek(&stream, cut, &at);
            assert_ok(
                dyti_pack(kernels, &stream, &at, c.got + cut, total - cut));
            assert_memory_equal(c.want, c.got, total);
            assert_int_equal(0xa5, c.got[total]);
        }
        for (uint64_t cut = 0; cut <= total; cut += 1 + cut % 3) {
            struct dyti_stream_cursor at;

            memset(c.dst, 0x5a, ROOM);
            dyti_stream_seek(&stream, cut, &at);
            assert_ok(
                dyti_unpack(kernels, &stream, &at, c.want + cut, total - cut));
            dyti_stream_seek(&stream, 0, &at);
            assert_ok(dyti_unpack(kernels, &stream, &at, c.want, cut));
            each_element(&c, check_unpacked);
        }
    }
    close_case(&c);
}

/* One cursor, many parts of random length, dense memory at any address. */
static void a_cursor_goes_on_where_it_stopped(void **state)
{
    const struct both *both = *state;
    const uint64_t count = 400;
    struct stream_case c;

    open_case(&c);
    for (uint64_t seed = 100; seed < 100 + count; seed++) {
        const struct dyti_kernels *kernels = &both->kernels[seed % 2];
        struct dyti_stream_cursor in = {0}, out = {0};
        struct dyti_stream_boxes stream;
        uint64_t total, at = 0, n = 0;
        unsigned char *got = c.got + draw(seed, 2, 0, 16);

        draw_case(seed, &c);
        stream = stream_of(&c);
        total = c.at[c.box_count];
        memset(c.dst, 0x5a, ROOM);
        while (at < total) {
            uint64_t now = draw(seed, 3, n++, 50);

            now = now < total - at ? now : total - at;
            assert_ok(dyti_pack(kernels, &stream, &in, got + at, now));
            assert_ok(dyti_unpack(kernels, &stream, &out, got + at, now));
            at += now;
        }
        assert_memory_equal(c.want, got, total);
        each_element(&c, check_unpacked);
    }
    close_case(&c);
}

/* Nothing between the elements of a box is written. */
static void unpacking_writes_the_box_and_no_more(void **state)
{
    const struct dyti_kernels *kernels = &((struct both *)*state)->kernels[0];
    struct stream_case c;

    open_case(&c);
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct dyti_stream_cursor at = {0};
        struct dyti_stream_boxes stream;
        unsigned char *clean;

        draw_case(seed, &c);
        stream = stream_of(&c);
        memset(c.dst, 0x11, ROOM);
        assert_ok(
            dyti_unpack(kernels, &stream, &at, c.want, c.at[c.box_count]));
        clean = malloc(ROOM);
        assert_non_null(clean);
        memcpy(clean, c.dst, ROOM);
        memset(c.dst, 0x22, ROOM);
        at = (struct dyti_stream_cursor){0};
        assert_ok(
            dyti_unpack(kernels, &stream, &at, c.want, c.at[c.box_count]));
        for (uint32_t i = 0; i < ROOM; i++) {
            assert_true(clean[i] == c.dst[i] ||
                        (clean[i] == 0x11 && c.dst[i] == 0x22));
        }
        free(clean);
    }
    close_case(&c);
}

/* cases.md: a blanket cast of a routing table turned 383 into 384. */
static void integers_pass_bit_exact(void **state)
{
    const struct dyti_kernels *kernels = &((struct both *)*state)->kernels[0];
    int64_t table[5] = {383, -1, INT64_MAX, INT64_MIN, 1ll << 53 | 1}, got[5];
    struct dyti_copy box = {.src = table,
                            .size = {1, 1, 1, 5},
                            .src_stride = {0, 0, 0, 8},
                            .src_dtype = DYTI_I64,
                            .dst_dtype = DYTI_I64};
    uint64_t at[2] = {0, sizeof(table)};
    struct dyti_stream_boxes stream = {.box = &box, .at = at, .box_count = 1};
    struct dyti_stream_cursor cursor = {0};

    assert_ok(dyti_pack(kernels, &stream, &cursor, got, sizeof(got)));
    assert_memory_equal(table, got, sizeof(got));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_cut_at_every_byte),
    cmocka_unit_test(a_cursor_goes_on_where_it_stopped),
    cmocka_unit_test(unpacking_writes_the_box_and_no_more),
    cmocka_unit_test(integers_pass_bit_exact),
};

int main(void)
{
    return cmocka_run_group_tests(tests, open_kernels, close_kernels);
}
