/* The copy kernel against the reference: drawn lists of boxes of any size,
 * stride, alignment and dtypes; parts of streams; every conversion; and how
 * much memory it touches. */
#include "gpusim/boxes_case.h"

#include "base/num.h"
#include "exec/pack.h"

/* ---- drawn lists --------------------------------------------------------- */

static void draw_order(uint64_t *random, uint32_t *order, bool same)
{
    for (uint32_t i = 0; i < DYTI_COPY_DIMS; i++) {
        order[i] = i;
    }
    for (uint32_t i = DYTI_COPY_DIMS - 1; i > 0 && !same; i--) {
        uint32_t j = draw(random, i + 1), kept = order[i];

        order[i] = order[j];
        order[j] = kept;
    }
}

static void draw_sizes(uint64_t *random, int64_t *size)
{
    static const uint32_t most[][DYTI_COPY_DIMS] = {
        {1, 1, 1, 2000}, {1, 1, 30, 300}, {4, 5, 6, 40},
        {1, 2, 70, 70},  {3, 3, 3, 3},    {1, 1, 1, 20}};
    const uint32_t *m = most[draw(random, 6)];

    for (uint32_t d = 0; d < DYTI_COPY_DIMS; d++) {
        size[d] = 1 + draw(random, m[d]);
        if (draw(random, 100) == 0) {
            size[d] = 0;
        }
    }
}

static void draw_pads(uint64_t *random, int64_t *pad)
{
    for (uint32_t d = 0; d < DYTI_COPY_DIMS; d++) {
        pad[d] = draw(random, 2) == 0 ? 0 : draw(random, 9);
    }
}

/* False: there is no room for it any more. */
static bool draw_copy(struct boxes_case *c, struct dyti_copy *out)
{
    static const int64_t none[DYTI_COPY_DIMS] = {0};
    uint32_t kind = draw(&c->random, 5), order[DYTI_COPY_DIMS];
    uint8_t from = (uint8_t)(kind < 3 ? draw(&c->random, 3) : kind);
    uint8_t to = (uint8_t)(kind < 3 ? draw(&c->random, 3) : kind);
    int64_t in = dyti_dtype_bytes(from), pad[DYTI_COPY_DIMS];
    int64_t into = dyti_dtype_bytes(to);
    bool plain = draw(&c->random, 2) == 0;
    /* Odd bytes only where nothing is converted, as packing makes them. */
    size_t beside = from == to && draw(&c->random, 4) == 0 ? 1 : 0;
    size_t src, dst;

    *out = (struct dyti_copy){.src_dtype = from, .dst_dtype = to};
    draw_sizes(&c->random, out->size);
    draw_pads(&c->random, pad);
    draw_order(&c->random, order, plain);
    src = strides_in(out->size, plain ? none : pad, order, in, out->src_stride);
    draw_pads(&c->random, pad);
    draw_order(&c->random, order, plain || draw(&c->random, 2) == 0);
    dst = strides_in(out->size, pad, order, into, out->dst_stride);
    c->src_used = (c->src_used + 15) / 16 * 16 +
                  (size_t)in * draw(&c->random, 5) +
                  beside * draw(&c->random, 8);
    c->dst_used = (c->dst_used + 15) / 16 * 16 +
                  (size_t)into * draw(&c->random, 5) +
                  beside * draw(&c->random, 8);
    if (c->src_used + src > c->bytes || c->dst_used + dst > c->bytes) {
        return false;
    }
    out->src = c->src + c->src_used;
    out->dst = c->dst + c->dst_used;
    c->src_used += src;
    c->dst_used += dst;
    return true;
}

static void lists_are_moved_as_the_reference_moves_them(void **state)
{
    enum { MOST = 60 };
    uint64_t rounds = dyt_test_rounds(40, 2000);

    (void)state;
    for (uint64_t seed = 0; seed < rounds; seed++) {
        struct boxes_case c = boxes_case_new(seed, 300000);
        struct dyti_copy copy[MOST];
        size_t count = 0, want = 1 + draw(&c.random, MOST);

        while (count < want && draw_copy(&c, &copy[count])) {
            count++;
        }
        gpusim_set_order(GPUSIM_LATE, seed % 3);
        boxes_run(&c, copy, count, draw(&c.random, 2) * 3, seed);
        boxes_case_free(&c);
        assert_int_equal(0, gpusim_unexpected());
        if (seed % 16 == 15) {
            gpusim_reset();
        }
    }
}

/* ---- streams ------------------------------------------------------------- */

/* Boxes one behind the other, as bytes of a stream. */
static uint32_t draw_stream(struct boxes_case *c, struct dyti_copy *box,
                            uint64_t *at, uint32_t most)
{
    uint32_t count = 0, want = 1 + draw(&c->random, most);

    at[0] = 0;
    while (count < want && draw_copy(c, &box[count])) {
        const int64_t *n = box[count].size;

        if (n[0] * n[1] * n[2] * n[3] > 0) {
            at[count + 1] =
                at[count] + (uint64_t)(n[0] * n[1] * n[2] * n[3]) *
                                dyti_dtype_bytes(box[count].dst_dtype);
            count++;
        }
    }
    return count;
}

static void pack_and_unpack(uint64_t seed)
{
    enum { MOST = 12 };
    struct boxes_case c = boxes_case_new(seed, 200000);
    struct dyti_copy box[MOST], there[MOST];
    uint64_t at[MOST + 1];
    uint32_t count = draw_stream(&c, box, at, MOST);
    struct dyti_stream_boxes here = {.box = box, .at = at, .box_count = count};
    struct dyti_stream_boxes far = {.box = there, .at = at, .box_count = count};
    struct dyti_kernels kernels = {.ops = &dyti_kernels_reference};
    uint64_t lo = 0, length = count > 0 ? at[count] : 0;
    unsigned char *dense = calloc(1, length + 64);
    unsigned char *dev_dense = dyt_sim_filled(length + 64, 0), *got;
    size_t beside = draw(&c.random, 3) == 0 ? draw(&c.random, 16) : 0;

    assert_non_null(dense);
    for (uint32_t i = 0; i < count; i++) {
        there[i] = as_device(&c, &box[i]);
    }
    while (lo < length) { /* message by message, both ways in each */
        struct dyti_cuda_boxes out = {0}, in = {0};
        uint64_t hi = lo + 1 + draw(&c.random, (uint32_t)length);
        struct dyti_stream_cursor cursor;

        hi = hi < length ? hi : length;
        dyti_stream_seek(&here, lo, &cursor);
        assert_ok(
            dyti_pack(&kernels, &here, &cursor, dense + beside + lo, hi - lo));
        assert_ok(
            dyti_cuda_boxes_pack(&out, &far, lo, hi, dev_dense + beside + lo));
        boxes_launch(&out, 0);
        assert_int_equal(hi - lo, out.first[out.count]);
        dyti_stream_seek(&here, lo, &cursor);
        assert_ok(dyti_unpack(&kernels, &here, &cursor, dense + beside + lo,
                              hi - lo));
        assert_ok(
            dyti_cuda_boxes_unpack(&in, &far, lo, hi, dev_dense + beside + lo));
        boxes_launch(&in, 0);
        dyti_cuda_boxes_fini(&out);
        dyti_cuda_boxes_fini(&in);
        lo = hi;
    }
    got = dyt_sim_get(dev_dense, length + 64);
    assert_memory_equal(dense, got, length + 64);
    boxes_compare(&c, seed);
    free(got);
    free(dense);
    assert_cuda(cudaFree(dev_dense));
    boxes_case_free(&c);
}

static void messages_are_packed_and_unpacked_as_on_the_host(void **state)
{
    uint64_t rounds = dyt_test_rounds(30, 1000);

    (void)state;
    for (uint64_t seed = 1000; seed < 1000 + rounds; seed++) {
        pack_and_unpack(seed);
        assert_int_equal(0, gpusim_unexpected());
        if (seed % 16 == 15) {
            gpusim_reset();
        }
    }
}

/* ---- conversions --------------------------------------------------------- */

/* f32 whose rounding is of interest. */
static const uint32_t special[] = {
    0x00000000, 0x80000000, 0x3f808000, 0x3f818000, 0x3f807fff, 0x3f808001,
    0x7f7fffff, 0x7f800000, 0xff800000, 0x7fc00001, 0xffc12345, 0x7f800001,
    0x00000001, 0x807fffff, 0x33000000, 0x33000001, 0x477fefff, 0x477ff000,
    0x38801000, 0x387fffff, 0x387fe000, 0x33800000, 0x7f7f7fff, 0x7f7f8000};

static void every_value_is_converted_as_on_the_host(void **state)
{
    enum { COUNT = 65536 };
    struct boxes_case c = boxes_case_new(5, COUNT * 4);
    struct dyti_copy copy = {
        .src = c.src, .dst = c.dst, .size = {1, 1, 1, COUNT}};

    (void)state;
    for (uint8_t from = 0; from < 3; from++) {
        for (uint32_t i = 0; i < COUNT; i++) {
            if (from > 0) {
                ((uint16_t *)(void *)c.src)[i] = (uint16_t)i;
            } else { /* all exponents and signs, halves, and what is special */
                ((uint32_t *)(void *)c.src)[i] =
                    i < DYT_TEST_COUNT(special) ? special[i]
                    : i % 3 == 0                ? i << 16 | 0x8000u
                                 : i << 16 | draw(&c.random, 65536);
            }
        }
        assert_cuda(
            cudaMemcpy(c.dev_src, c.src, c.bytes, cudaMemcpyHostToDevice));
        for (uint8_t to = 0; to < 3; to++) {
            copy.src_dtype = from;
            copy.dst_dtype = to;
            copy.src_stride[3] = dyti_dtype_bytes(from);
            copy.dst_stride[3] = dyti_dtype_bytes(to);
            boxes_run(&c, &copy, 1, 0, from * 3u + to);
            dyti_cuda_boxes_fini(&c.list);
        }
    }
    boxes_case_free(&c);
}

/* ---- sectors ------------------------------------------------------------- */

/* Touched over needed, both ways together. */
static double sector_ratio(struct gpusim_traffic *t)
{
    gpusim_traffic_get(t);
    return (double)(t->load_sectors + t->store_sectors) /
           (double)(t->load_needed + t->store_needed);
}

static void sectors_are_touched_about_once(void **state)
{
    /* rows, bytes of one, and how far apart; address beside 16; dtypes. */
    static const struct {
        const char *what;
        int64_t rows, cols, src_pitch, dst_pitch;
        uint32_t src_beside, dst_beside; /* elements */
        uint8_t from, to;
        bool turned, wide;
    } row[] = {
        {"one run", 1, 100000, 0, 0, 0, 0, 0, 0, false, true},
        {"one run, beside", 1, 100000, 0, 0, 1, 3, 0, 0, false, false},
        {"rows of 512 B out", 200, 256, 1000, 256, 0, 0, 1, 1, false, true},
        {"rows of 512 B in", 200, 256, 256, 1008, 0, 0, 1, 1, false, true},
        {"odd rows out", 100, 333, 1001, 333, 3, 0, 1, 1, false, false},
        {"odd rows in", 100, 333, 333, 1001, 0, 5, 1, 1, false, false},
        {"long rows, odd", 20, 4099, 5001, 4099, 1, 0, 1, 1, false, false},
        {"short rows", 500, 20, 64, 20, 0, 0, 0, 0, false, false},
        {"narrowing", 60, 1000, 1200, 1000, 0, 0, 0, 1, false, true},
        {"narrowing, odd", 60, 999, 1201, 999, 1, 1, 0, 1, false, false},
        {"widening", 60, 1000, 1200, 1000, 0, 0, 1, 0, false, false},
        {"turned", 256, 256, 256, 256, 0, 0, 0, 0, true, false},
        {"turned, narrow", 256, 512, 256, 512, 0, 0, 1, 1, true, false},
    };

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        struct boxes_case c = boxes_case_new(i, 800000);
        int64_t in = dyti_dtype_bytes(row[i].from);
        int64_t out = dyti_dtype_bytes(row[i].to);
        struct dyti_copy copy = {
            .src = c.src + row[i].src_beside * in,
            .dst = c.dst + row[i].dst_beside * out,
            .size = {1, 1, row[i].rows, row[i].cols},
            .src_stride = {0, 0, row[i].src_pitch * in, in},
            .dst_stride = {0, 0, row[i].dst_pitch * out, out},
            .src_dtype = row[i].from,
            .dst_dtype = row[i].to};
        struct gpusim_traffic t;

        if (row[i].turned) {
            copy.src_stride[2] = in;
            copy.src_stride[3] = row[i].src_pitch * in;
        }
        gpusim_traffic_clear();
        boxes_run(&c, &copy, 1, 0, i);
        if (sector_ratio(&t) > 1.05) {
            fail_msg("%s: loads %llu of %llu, stores %llu of %llu", row[i].what,
                     (unsigned long long)t.load_sectors,
                     (unsigned long long)t.load_needed,
                     (unsigned long long)t.store_sectors,
                     (unsigned long long)t.store_needed);
        }
        if (row[i].wide && (t.load_wide * 10 < t.load_calls * 9 ||
                            t.store_wide * 10 < t.store_calls * 9)) {
            fail_msg("%s: %llu of %llu loads with 16 bytes, %llu of %llu "
                     "stores",
                     row[i].what, (unsigned long long)t.load_wide,
                     (unsigned long long)t.load_calls,
                     (unsigned long long)t.store_wide,
                     (unsigned long long)t.store_calls);
        }
        boxes_case_free(&c);
        gpusim_reset();
    }
}

/* Thousands of tiny boxes and one large: one launch, and sectors once. */
static void thousands_of_pieces_are_one_launch(void **state)
{
    enum { COUNT = 3000 };
    struct boxes_case c = boxes_case_new(77, 700000);
    static struct dyti_copy copy[COUNT];
    struct gpusim_traffic t;
    size_t dst = 0;

    (void)state;
    for (size_t i = 0; i < COUNT; i++) {
        int64_t n = i == COUNT / 2 ? 90000 : 1 + (int64_t)draw(&c.random, 30);

        copy[i] = (struct dyti_copy){
            .src = c.src + (i <= COUNT / 2 ? i * 96 : 280000 + (i - 1500) * 96),
            .dst = c.dst + dst,
            .size = {1, 1, 1, n},
            .src_stride = {0, 0, 0, 2},
            .dst_stride = {0, 0, 0, 2},
            .src_dtype = DYTI_BF16,
            .dst_dtype = DYTI_BF16};
        dst += (size_t)n * 2;
    }
    gpusim_traffic_clear();
    boxes_run(&c, copy, COUNT, 0, 77);
    assert_false(sector_ratio(&t) > 1.05); /* none on a device */
    boxes_case_free(&c);
}

static void an_empty_list_is_no_launch(void **state)
{
    struct dyti_copy none = {.size = {1, 0, 1, 4}};
    struct dyti_cuda_boxes list = {0};

    (void)state;
    assert_ok(dyti_cuda_boxes_add(&list, &none, 1));
    assert_int_equal(0, list.count);
    assert_cuda(dyti_cuda_copy_launch(NULL, NULL, 0, 0, 0, NULL));
    assert_int_equal(0, gpusim_launches());
    dyti_cuda_boxes_fini(&list);
}

static const struct CMUnitTest tests[] = {
    sim_test(lists_are_moved_as_the_reference_moves_them),
    sim_test(messages_are_packed_and_unpacked_as_on_the_host),
    sim_test(every_value_is_converted_as_on_the_host),
    sim_test(sectors_are_touched_about_once),
    sim_test(thousands_of_pieces_are_one_launch),
    sim_test(an_empty_list_is_no_launch),
};
DYT_TEST_MAIN(tests)
