/* The hash kernel against the host's hash, over drawn boxes; and samples, whose
 * boxes a seed draws on the device. */
#include "gpusim/boxes_case.h"

#include "base/hash.h"
#include "device/cuda/table.h"
#include "ops/sample.h"

enum { MOST = 40 };

static void draw_box(struct boxes_case *c, uint32_t number,
                     struct dyti_hash_box *box)
{
    static const uint32_t most[][DYTI_COPY_DIMS] = {
        {1, 1, 1, 3000}, {1, 1, 20, 200}, {3, 4, 5, 6}, {1, 1, 1, 1}};
    const uint32_t *m = most[draw(&c->random, 4)];
    uint8_t dtype = (uint8_t)draw(&c->random, DYTI_DTYPE_COUNT);
    int64_t bytes = dyti_dtype_bytes(dtype), step = bytes, index = 1;
    size_t room;

    *box = (struct dyti_hash_box){
        .index = draw(&c->random, 1u << 30) * 12345ull,
        .salt = dyti_content_salt(number, draw(&c->random, 5)),
        .dtype = dtype};
    for (int d = (int)DYTI_COPY_DIMS - 1; d >= 0; d--) {
        box->size[d] = 1 + draw(&c->random, m[d]);
        box->stride[d] = step;
        box->index_stride[d] = index;
        step *= box->size[d] + (d < 2 ? 0 : draw(&c->random, 3));
        index *= box->size[d] + draw(&c->random, 3);
    }
    if (draw(&c->random, 4) == 0) { /* a sample: every so-manieth element */
        box->stride[3] *= 3;
        for (uint32_t d = 0; d < 3; d++) {
            box->stride[d] *= 3;
        }
        step *= 3;
    }
    room = c->bytes - (size_t)step;
    assert_true((size_t)step < c->bytes);
    box->data = c->src + draw(&c->random, (uint32_t)(room / 8)) * (size_t)bytes;
}

static void check(uint64_t seed)
{
    struct boxes_case c = boxes_case_new(seed, 220000);
    struct dyti_hash_box box[MOST];
    struct dyti_cuda_hash_box form[MOST];
    uint64_t first[MOST + 1] = {0}, want[MOST], *got;
    uint32_t count = 1 + draw(&c.random, MOST);
    void *dev_box, *dev_first, *dev_sum;

    for (uint32_t i = 0; i < count; i++) {
        struct dyti_hash_box there;
        const uint64_t *n = form[i].size;

        draw_box(&c, i, &box[i]);
        want[i] = i * 3; /* added to, not set */
        there = box[i];
        there.data = c.dev_src + ((const unsigned char *)box[i].data - c.src);
        dyti_cuda_hash_box_make(&there, i, &form[i]);
        first[i + 1] = first[i] + n[0] * n[1] * n[2] * n[3];
    }
    dev_box = on_device(form, count * sizeof(form[0]));
    dev_first = on_device(first, (count + 1) * sizeof(first[0]));
    dev_sum = on_device(want, count * sizeof(want[0]));
    gpusim_set_order(GPUSIM_LATE, seed % 3);
    assert_cuda(dyti_cuda_hash_launch(dev_box, dev_first, count, first[count],
                                      dev_sum, draw(&c.random, 2) * 5, NULL));
    assert_ok(dyti_kernels_reference.hash(NULL, box, count, want));
    got = dyt_sim_get(dev_sum, count * sizeof(want[0]));
    for (uint32_t i = 0; i < count; i++) {
        if (got[i] != want[i]) {
            fail_msg("seed %" PRIu64 ": box %u of dtype %s is %" PRIx64
                     ", want %" PRIx64,
                     seed, i, dyti_dtype_name(box[i].dtype), got[i], want[i]);
        }
    }
    free(got);
    assert_cuda(cudaFree(dev_box));
    assert_cuda(cudaFree(dev_first));
    assert_cuda(cudaFree(dev_sum));
    boxes_case_free(&c);
}

static void hashes_are_those_of_the_host(void **state)
{
    uint64_t rounds = dyt_test_rounds(40, 2000);

    (void)state;
    for (uint64_t seed = 0; seed < rounds; seed++) {
        check(seed);
        assert_int_equal(0, gpusim_unexpected());
        if (seed % 16 == 15) {
            gpusim_reset();
        }
    }
}

/* Boxes of one tensor may share a word: the sum does not see the cut. */
static void sums_do_not_depend_on_the_cut(void **state)
{
    enum { COUNT = 1000 };
    struct boxes_case c = boxes_case_new(3, 8192);
    struct dyti_cuda_hash_box form[2];
    uint64_t first[3] = {0}, zero = 0, want = 0, *got;
    struct dyti_hash_box whole = {.data = c.src,
                                  .size = {1, 1, 1, COUNT},
                                  .stride = {0, 0, 0, 4},
                                  .index_stride = {0, 0, 0, 1},
                                  .salt = 99,
                                  .dtype = DYTI_F32};
    void *dev_sum = on_device(&zero, sizeof(zero));

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct dyti_hash_box half = whole;

        half.size[3] = i == 0 ? 333 : COUNT - 333;
        half.data = c.dev_src + (i == 0 ? 0 : 333 * 4);
        half.index = i == 0 ? 0 : 333;
        dyti_cuda_hash_box_make(&half, 0, &form[i]);
        first[i + 1] = first[i] + (uint64_t)half.size[3];
    }
    assert_cuda(dyti_cuda_hash_launch(on_device(form, sizeof(form)),
                                      on_device(first, sizeof(first)), 2,
                                      first[2], dev_sum, 0, NULL));
    assert_ok(dyti_kernels_reference.hash(NULL, &whole, 1, &want));
    got = dyt_sim_get(dev_sum, sizeof(want));
    assert_memory_equal(&want, got, sizeof(want));
    free(got);
    boxes_case_free(&c);
}

/* ---- samples ------------------------------------------------------------ */

/* A piece of a tensor that lies in memory with gaps; any lattice. */
static void draw_sample(struct boxes_case *c, uint32_t number, bool all,
                        struct dyti_sample *s)
{
    static const uint32_t most[][DYTI_COPY_DIMS] = {
        {1, 1, 1, 3000}, {1, 1, 200, 90}, {3, 4, 5, 30}, {1, 1, 2, 2}};
    const uint32_t *m = most[draw(&c->random, 4)];
    bool converts = draw(&c->random, 3) == 0;
    uint8_t dtype = (uint8_t)draw(&c->random, converts ? 3 : DYTI_DTYPE_COUNT);
    int64_t bytes = dyti_dtype_bytes(dtype), step = bytes, index = 1;

    *s = (struct dyti_sample){
        .box = {.salt = dyti_content_salt(number, 1), .dtype = dtype},
        .as = converts ? (uint8_t)draw(&c->random, 3) : dtype,
        .key = draw(&c->random, 5)};
    for (int d = (int)DYTI_COPY_DIMS - 1; d >= 0; d--) {
        int64_t shape = 1 + draw(&c->random, m[d]);

        s->lo[d] = draw(&c->random, (uint32_t)shape);
        s->box.size[d] = 1 + draw(&c->random, (uint32_t)(shape - s->lo[d]));
        s->box.stride[d] = step;
        s->box.index_stride[d] = index;
        s->step[d] = all ? 1 : 1 + draw(&c->random, 9) * draw(&c->random, 9);
        s->starts[d] = all ? 1 : 1 + draw(&c->random, (uint32_t)shape);
        s->count[d] = all ? shape : shape / s->step[d];
        step *= s->box.size[d] + (d < 2 ? 0 : draw(&c->random, 3));
        index *= shape;
    }
    assert_true((size_t)step < c->bytes);
    s->box.data =
        c->src + draw(&c->random, (uint32_t)((c->bytes - (size_t)step) / 8)) *
                     (size_t)bytes;
}

/* What the host makes of it: drawn, stored as it is hashed, hashed. */
static uint64_t sample_want(const struct dyti_sample *s, uint64_t seed)
{
    static unsigned char stored[3000 * 20];
    struct dyti_hash_box box;
    struct dyti_copy copy = {.dst = stored};
    uint64_t sum = 0, elements = 1;
    int64_t step = dyti_dtype_bytes((enum dyti_dtype)s->as);

    if (!dyti_sample_draw(s, seed, &box)) {
        return 0;
    }
    copy.src = box.data;
    copy.src_dtype = box.dtype;
    copy.dst_dtype = s->as;
    for (int d = (int)DYTI_COPY_DIMS - 1; d >= 0; d--) {
        copy.size[d] = box.size[d];
        copy.src_stride[d] = box.stride[d];
        copy.dst_stride[d] = step;
        step *= box.size[d];
        elements *= (uint64_t)box.size[d];
    }
    assert_true(elements <= dyti_sample_most(s));
    if (s->as != box.dtype) {
        assert_true((size_t)step <= sizeof(stored));
        assert_ok(dyti_kernels_reference.copy(NULL, &copy, 1));
        memcpy(box.stride, copy.dst_stride, sizeof(box.stride));
        box.data = stored;
        box.dtype = s->as;
    }
    assert_ok(dyti_kernels_reference.hash(NULL, &box, 1, &sum));
    return sum;
}

static void check_samples(void *self, uint64_t round)
{
    struct boxes_case c = boxes_case_new(round, 220000);
    struct dyti_sample sample[MOST], there[MOST];
    struct dyti_sample_list *list = NULL;
    uint32_t count = 1 + draw(&c.random, MOST);
    bool all = draw(&c.random, 4) == 0;
    uint64_t sent;

    for (uint32_t i = 0; i < count; i++) {
        draw_sample(&c, i, all, &sample[i]);
        there[i] = sample[i];
        there[i].box.data =
            c.dev_src + ((const unsigned char *)sample[i].box.data - c.src);
    }
    assert_ok(dyti_kernels_cuda.sample_make(self, there, count, &list));
    assert_ok(dyti_kernels_cuda.wait(self));
    sent = gpusim_uploads();
    for (uint64_t seed = round; seed < round + 4; seed++) {
        uint64_t got[MOST];

        for (uint32_t i = 0; i < count; i++) {
            got[i] = i; /* added to, not set */
        }
        assert_ok(dyti_kernels_cuda.sample_run(self, list, seed, got));
        for (uint32_t i = 0; i < count; i++) {
            uint64_t want = i + sample_want(&sample[i], seed);

            if (got[i] != want) {
                fail_msg("round %" PRIu64 ", seed %" PRIu64
                         ": sample %u of %s as %s is %" PRIx64
                         ", want %" PRIx64,
                         round, seed, i, dyti_dtype_name(sample[i].box.dtype),
                         dyti_dtype_name(sample[i].as), got[i], want);
            }
        }
    }
    assert_int_equal(sent, gpusim_uploads()); /* a seed is all that is sent */
    dyti_kernels_cuda.sample_free(self, list);
    boxes_case_free(&c);
}

static void samples_are_drawn_as_by_the_host(void **state)
{
    uint64_t rounds = dyt_test_rounds(40, 1000);

    (void)state;
    for (uint64_t round = 0; round < rounds; round++) {
        void *self = NULL;

        gpusim_set_order(GPUSIM_LATE, round % 3);
        assert_ok(dyti_kernels_cuda.open(NULL, &self));
        check_samples(self, round);
        dyti_kernels_cuda.close(self);
        assert_int_equal(0, gpusim_unexpected());
        if (round % 16 == 15) {
            gpusim_reset();
        }
    }
}

/* More of them than results come at a time, and nothing to draw. */
static void a_list_of_samples_has_any_length(void **state)
{
    enum { COUNT = 9000 };
    struct boxes_case c = boxes_case_new(11, COUNT * 4);
    struct dyti_sample *sample = calloc(COUNT, sizeof(*sample));
    uint64_t *got = calloc(COUNT, sizeof(*got));
    struct dyti_sample_list *list = NULL;
    void *self = NULL;

    (void)state;
    assert_true(sample != NULL && got != NULL);
    assert_ok(dyti_kernels_cuda.open(NULL, &self));
    for (uint32_t i = 0; i < COUNT; i++) {
        sample[i] = (struct dyti_sample){.box = {.data = c.dev_src + i * 4,
                                                 .size = {1, 1, 1, 2},
                                                 .stride = {0, 0, 0, 2},
                                                 .index_stride = {0, 0, 0, 1},
                                                 .salt = i,
                                                 .dtype = DYTI_BF16},
                                         .as = DYTI_BF16,
                                         .step = {1, 1, 1, 1},
                                         .count = {1, 1, 1, i % 7 == 0 ? 0 : 1},
                                         .starts = {1, 1, 1, 3},
                                         .key = i};
    }
    assert_ok(dyti_kernels_cuda.sample_make(self, sample, COUNT, &list));
    assert_ok(dyti_kernels_cuda.sample_run(self, list, 5, got));
    for (uint32_t i = 0; i < COUNT; i++) {
        sample[i].box.data = c.src + i * 4;
        assert_int_equal(sample_want(&sample[i], 5), got[i]);
    }
    dyti_kernels_cuda.sample_free(self, list);
    for (uint32_t i = 0; i < COUNT; i++) {
        sample[i].count[3] = 0;
    }
    assert_ok(dyti_kernels_cuda.sample_make(self, sample, COUNT, &list));
    memset(got, 0, COUNT * sizeof(*got));
    assert_ok(dyti_kernels_cuda.sample_run(self, list, 5, got));
    assert_int_equal(0, got[COUNT - 1]);
    dyti_kernels_cuda.sample_free(self, list);
    dyti_kernels_cuda.sample_free(self, NULL);
    dyti_kernels_cuda.close(self);
    free(sample);
    free(got);
    boxes_case_free(&c);
}

static const struct CMUnitTest tests[] = {
    sim_test(hashes_are_those_of_the_host),
    sim_test(sums_do_not_depend_on_the_cut),
    sim_test(samples_are_drawn_as_by_the_host),
    sim_test(a_list_of_samples_has_any_length),
};
DYT_TEST_MAIN(tests)
