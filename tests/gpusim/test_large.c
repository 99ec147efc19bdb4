/* Sizes above 2^32 elements: the kernels' own loops over a window of boxes that
 * are longer than memory.  The box's addresses are such that the window falls
 * on memory that is there; nothing else of it is touched. */
#include "gpusim/boxes_case.h"
#include "gpusim/large.h"

#include "base/hash.h"
#include "base/num.h"

#define SPAN (1u << 21) /* bytes of memory under a window */
#define OVER 64         /* elements that rows may be parted later than asked */
#define LONG (1ull << 32)

/* ---- boxes -------------------------------------------------------------- */

enum kind { ROWS, ONE_ROW, NARROWED, TINY_ROWS, SCATTERED, TURNED, KINDS };

struct window {
    struct dyti_copy copy; /* whole; src and dst are set by place() */
    uint64_t elements, lo, hi;
    uint64_t src_at, dst_at; /* offset of element lo */
};

/* Dense strides with up to four elements of padding, or `least` more: addresses
 * grow with the element. */
static void padded(const int64_t *size, int64_t bytes, int64_t least,
                   uint64_t *random, int64_t *stride)
{
    stride[3] = bytes;
    for (int d = 2; d >= 0; d--) {
        stride[d] =
            stride[d + 1] * size[d + 1] + (least + draw(random, 5)) * bytes;
    }
}

static void draw_sizes(uint64_t *random, enum kind kind, int64_t *size)
{
    static const int64_t base[KINDS][4] = {
        [ROWS] = {2, 2, 1 << 20, 4096},     [ONE_ROW] = {1, 1, 3, 1ll << 33},
        [NARROWED] = {1, 3, 1 << 21, 3000}, [TINY_ROWS] = {2, 3, 1 << 30, 5},
        [SCATTERED] = {3, 1, 1 << 30, 4},   [TURNED] = {2, 1 << 22, 40, 50}};

    for (int d = 0; d < 4; d++) {
        size[d] = base[kind][d] + (base[kind][d] > 1 ? draw(random, 3) : 0);
    }
    size[2] += kind == ONE_ROW ? 0 : draw(random, 30);
    size[3] += kind == ONE_ROW ? draw(random, 1000) : 0;
}

static struct dyti_copy draw_copy(uint64_t *random, enum kind kind)
{
    bool narrows = kind == NARROWED || kind == SCATTERED;
    struct dyti_copy c = {.src_dtype = narrows ? DYTI_F32 : DYTI_BF16,
                          .dst_dtype = DYTI_BF16};
    int64_t in = narrows ? 4 : 2;

    draw_sizes(random, kind, c.size);
    padded(c.size, kind == SCATTERED ? in * 3 : in, 0, random, c.src_stride);
    /* dense on both sides, tiny rows would be one long one */
    padded(c.size, 2, kind == TINY_ROWS, random, c.dst_stride);
    if (kind == TURNED) {
        c.src_stride[2] = in;
        c.src_stride[3] = c.size[2] * in + 4;
        c.src_stride[1] = c.src_stride[3] * c.size[3] + 2;
        c.src_stride[0] = c.src_stride[1] * c.size[1];
    }
    return c;
}

static uint64_t offset_of(const struct dyti_copy *c, const int64_t *stride,
                          uint64_t element)
{
    uint64_t offset = 0;

    for (int d = 3; d >= 0; d--) {
        offset += element % (uint64_t)c->size[d] * (uint64_t)stride[d];
        element /= (uint64_t)c->size[d];
    }
    return offset;
}

/* A window behind 2^32 elements: anywhere, or over the end of an outer axis. */
static struct window draw_window(uint64_t *random, enum kind kind)
{
    struct window w = {.copy = draw_copy(random, kind)};
    const int64_t *s = w.copy.size;
    uint64_t plane = (uint64_t)(s[2] * s[3]);
    uint64_t many = kind == ROWS || kind == NARROWED ? 9000 : 2000;
    uint64_t outer = (uint64_t)(s[0] * s[1]);

    w.elements = outer * plane;
    if (kind == TURNED) { /* whole planes */
        w.lo = (LONG / plane + 1 + draw(random, 1u << 20)) * plane;
        w.hi = w.lo + 2 * plane;
        return w;
    }
    w.lo = LONG + draw(random, 1u << 30) % (w.elements - LONG - many - OVER);
    if (plane < LONG && outer > 2 && draw(random, 2) == 0) {
        w.lo = (outer - 1) * plane - draw(random, (uint32_t)many);
    }
    w.lo = w.lo / 16 * 16; /* whole units, however wide they are */
    w.hi = w.lo + (1 + draw(random, (uint32_t)many / 16)) * 16;
    return w;
}

/* Addresses of the whole from those of the window. */
static void place(struct window *w, void *src, void *dst)
{
    w->src_at = offset_of(&w->copy, w->copy.src_stride, w->lo);
    w->dst_at = offset_of(&w->copy, w->copy.dst_stride, w->lo);
    w->copy.src = (void *)((uintptr_t)src - w->src_at);
    w->copy.dst = (void *)((uintptr_t)dst - w->dst_at);
}

/* ---- copies ------------------------------------------------------------- */

static uint16_t element_of(const struct boxes_case *c, const struct window *w,
                           uint64_t e)
{
    const unsigned char *at =
        c->src + (offset_of(&w->copy, w->copy.src_stride, e) - w->src_at);
    uint32_t wide = 0;
    uint16_t bits = 0;

    if (w->copy.src_dtype == DYTI_F32) {
        memcpy(&wide, at, sizeof(wide));
        return dyti_f32_to_bf16(dyti_bits_f32(wide));
    }
    memcpy(&bits, at, sizeof(bits));
    return bits;
}

/* What the host's memory must be like; rows may be parted up to OVER elements
 * later, at either end, which `got` tells. */
static void expect(struct boxes_case *c, const struct window *w, bool is_rows,
                   const unsigned char *got)
{
    uint64_t end = w->hi + (is_rows ? OVER : 0);

    for (uint64_t e = w->lo; e < end; e++) {
        uint64_t at = offset_of(&w->copy, w->copy.dst_stride, e) - w->dst_at;
        uint16_t bits = element_of(c, w, e);
        bool may = is_rows && (e < w->lo + OVER || e >= w->hi);

        if (!may || memcmp(got + at, &bits, sizeof(bits)) == 0) {
            memcpy(c->dst + at, &bits, sizeof(bits));
        }
    }
}

/* Tiles of 32 along an axis, the first of which ends where a sector ends. */
static uint64_t tiles_of(uint64_t address, uint64_t bytes, uint64_t size)
{
    uint64_t before = (32 - address % 32) % 32 / bytes;

    before = before < size ? before : 0;
    return (before > 0) + (size - before + 31) / 32;
}

/* The planes of a window, in the units that turned boxes are cut into. */
static void in_tiles(const struct dyti_cuda_boxes *list, const struct window *w,
                     uint64_t *lo, uint64_t *hi)
{
    const struct dyti_cuda_box *b = &list->box[1];
    uint64_t plane = (uint64_t)(w->copy.size[2] * w->copy.size[3]);
    uint64_t flat = tiles_of(b->dst, b->dst_bytes, b->size[3]) *
                    tiles_of(b->src, b->src_bytes, b->size[2]);
    uint64_t each =
        (list->first[2] - list->first[1]) / (flat * b->size[0] * b->size[1]);

    *lo = list->first[1] + w->lo / plane * flat * each;
    *hi = list->first[1] + w->hi / plane * flat * each;
}

static const uint8_t variant_of[KINDS] = {
    [ROWS] = DYTI_CUDA_ROWS,          [ONE_ROW] = DYTI_CUDA_ROWS,
    [NARROWED] = DYTI_CUDA_ROWS,      [TINY_ROWS] = DYTI_CUDA_ELEMENTS,
    [SCATTERED] = DYTI_CUDA_ELEMENTS, [TURNED] = DYTI_CUDA_TURNED};

static void run_window(uint64_t seed, enum kind kind)
{
    struct boxes_case c = boxes_case_new(seed, SPAN);
    struct window w = draw_window(&c.random, kind);
    struct dyti_copy before = {.size = {1, 1, 3, 1ll << 33},
                               .src_stride = {0, 0, 1ll << 35, 2},
                               .dst_stride = {0, 0, 1ll << 35, 2},
                               .src_dtype = DYTI_BF16,
                               .dst_dtype = DYTI_BF16};
    struct dyti_cuda_boxes list = {0};
    unsigned char *got;
    void *box, *first;
    uint64_t lo, hi;

    place(&w, c.dev_src, c.dev_dst);
    assert_ok(dyti_cuda_boxes_add(&list, &before, 1));
    assert_ok(dyti_cuda_boxes_add(&list, &w.copy, 1));
    lo = list.first[1] + w.lo * 2;
    hi = list.first[1] + w.hi * 2;
    assert_int_equal(variant_of[kind], list.box[1].variant);
    if (kind == TURNED) {
        in_tiles(&list, &w, &lo, &hi);
    }
    box = on_device(list.box, list.count * sizeof(*list.box));
    first = on_device(list.first, (list.count + 1) * sizeof(*list.first));
    assert_cuda(
        large_copy_launch(box, first, list.count, lo, hi, 1 + seed % 4));
    assert_cuda(cudaDeviceSynchronize());
    got = dyt_sim_get(c.dev_dst, SPAN);
    expect(&c, &w, list.box[1].variant == DYTI_CUDA_ROWS, got);
    if (memcmp(got, c.dst, SPAN) != 0) {
        fail_msg("seed %" PRIu64 ", kind %d, elements [%" PRIu64 ", %" PRIu64
                 ") of %" PRIu64,
                 seed, kind, w.lo, w.hi, w.elements);
    }
    free(got);
    assert_cuda(cudaFree(box));
    assert_cuda(cudaFree(first));
    dyti_cuda_boxes_fini(&list);
    boxes_case_free(&c);
    assert_int_equal(0, gpusim_unexpected());
}

static void windows_of_long_boxes_are_moved(void **state)
{
    uint64_t rounds = dyt_test_rounds(6, 300);

    (void)state;
    for (uint64_t seed = 0; seed < rounds; seed++) {
        for (int kind = 0; kind < KINDS; kind++) {
            run_window(seed * KINDS + (uint64_t)kind, (enum kind)kind);
        }
        gpusim_reset();
    }
}

/* ---- hashes ------------------------------------------------------------- */

static void hash_window(uint64_t seed, enum kind kind)
{
    struct boxes_case c = boxes_case_new(seed, SPAN);
    struct window w = draw_window(&c.random, kind);
    struct dyti_hash_box b = {.index = seed << 40 | 7,
                              .salt = dyti_content_salt((uint32_t)seed, 3),
                              .dtype = w.copy.src_dtype};
    uint64_t first[3] = {0, LONG * 5, LONG * 5 + w.elements}, want = 0, *got;
    uint64_t bytes = dyti_dtype_bytes((enum dyti_dtype)b.dtype);
    struct dyti_cuda_hash_box box[2];
    void *there, *there_first, *sum = dyt_sim_filled(16, 0);

    place(&w, c.dev_src, c.dev_dst);
    b.data = w.copy.src;
    memcpy(b.size, w.copy.size, sizeof(b.size));
    memcpy(b.stride, w.copy.src_stride, sizeof(b.stride));
    b.index_stride[3] = 1;
    for (int d = 2; d >= 0; d--) {
        b.index_stride[d] = b.index_stride[d + 1] * b.size[d + 1] + 3;
    }
    dyti_cuda_hash_box_make(&b, 1, &box[1]);
    box[0] = box[1];
    box[0].word = 0;
    for (uint64_t e = w.lo; e < w.hi; e++) {
        uint64_t at = offset_of(&w.copy, w.copy.src_stride, e) - w.src_at;
        uint64_t bits = 0;

        memcpy(&bits, c.src + at, bytes);
        want += dyti_content_mix(
            b.salt, b.index + offset_of(&w.copy, b.index_stride, e), bits);
    }
    there = on_device(box, sizeof(box));
    there_first = on_device(first, sizeof(first));
    assert_cuda(large_hash_launch(there, there_first, 2, first[1] + w.lo,
                                  first[1] + w.hi, sum, 1 + seed % 4));
    got = dyt_sim_get(sum, 16);
    assert_int_equal(0, got[0]);
    assert_true(got[1] == want);
    free(got);
    assert_cuda(cudaFree(there));
    assert_cuda(cudaFree(there_first));
    assert_cuda(cudaFree(sum));
    boxes_case_free(&c);
    assert_int_equal(0, gpusim_unexpected());
}

static void windows_of_long_boxes_are_hashed(void **state)
{
    uint64_t rounds = dyt_test_rounds(4, 300);

    (void)state;
    for (uint64_t seed = 0; seed < rounds; seed++) {
        for (int kind = 0; kind < TURNED; kind++) {
            hash_window(seed * KINDS + (uint64_t)kind, (enum kind)kind);
        }
        gpusim_reset();
    }
}

/* ---- arithmetic --------------------------------------------------------- */

static void parts_are_equal_and_all(void **state)
{
    static const uint64_t total[] = {
        0,        1,    11,           12,         13,
        LONG - 1, LONG, LONG * 3 + 7, 1ull << 62, UINT64_MAX / 2};
    enum { BLOCKS = 3, WARPS = BLOCKS * 4 };
    void *lo = dyt_sim_alloc(WARPS * 8), *hi = dyt_sim_alloc(WARPS * 8);

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(total); i++) {
        uint64_t *from, *to, behind = 0;

        assert_cuda(large_parts_launch(total[i], lo, hi, BLOCKS));
        from = dyt_sim_get(lo, WARPS * 8);
        to = dyt_sim_get(hi, WARPS * 8);
        for (int w = 0; w < WARPS; w++) {
            uint64_t each = to[w] - from[w];

            assert_true(from[w] == behind);
            assert_true(each == total[i] / WARPS ||
                        each == total[i] / WARPS + 1);
            behind = to[w];
        }
        assert_true(behind == total[i]);
        free(from);
        free(to);
    }
    assert_cuda(cudaFree(lo));
    assert_cuda(cudaFree(hi));
}

/* Any number of bits in either. */
static void quotients_are_those_of_the_host(void **state)
{
    enum { COUNT = 128, ROUNDS = 20 };
    uint64_t random = 1, a[COUNT], b[COUNT], *quotient, *rest;
    void *q = dyt_sim_alloc(sizeof(a)), *r = dyt_sim_alloc(sizeof(a));

    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        void *there_a, *there_b;

        for (int i = 0; i < COUNT; i++) {
            a[i] = ((uint64_t)draw(&random, UINT32_MAX) << 33 |
                    draw(&random, UINT32_MAX)) >>
                   draw(&random, 64);
            b[i] = (((uint64_t)draw(&random, UINT32_MAX) << 32 |
                     draw(&random, UINT32_MAX)) >>
                    (1 + draw(&random, 63))) +
                   1;
        }
        a[0] = UINT64_MAX;
        b[0] = 1;
        a[1] = b[1] = 1ull << 63;
        there_a = on_device(a, sizeof(a));
        there_b = on_device(b, sizeof(b));
        assert_cuda(large_divide_launch(there_a, there_b, q, r));
        quotient = dyt_sim_get(q, sizeof(a));
        rest = dyt_sim_get(r, sizeof(a));
        for (int i = 0; i < COUNT; i++) {
            assert_true(quotient[i] == a[i] / b[i] && rest[i] == a[i] % b[i]);
        }
        free(quotient);
        free(rest);
        assert_cuda(cudaFree(there_a));
        assert_cuda(cudaFree(there_b));
    }
    assert_cuda(cudaFree(q));
    assert_cuda(cudaFree(r));
}

static const struct CMUnitTest tests[] = {
    sim_test(windows_of_long_boxes_are_moved),
    sim_test(windows_of_long_boxes_are_hashed),
    sim_test(parts_are_equal_and_all),
    sim_test(quotients_are_those_of_the_host),
};
DYT_TEST_MAIN(tests)
