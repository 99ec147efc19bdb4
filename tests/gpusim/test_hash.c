/* The hash kernel against the host's hash, over drawn boxes. */
#include "gpusim/boxes_case.h"

#include "base/hash.h"

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

static const struct CMUnitTest tests[] = {
    sim_test(hashes_are_those_of_the_host),
    sim_test(sums_do_not_depend_on_the_cut),
};
DYT_TEST_MAIN(tests)
