/* More than 2^32 elements that lie whole in the memory of one device, by one
 * launch: where a place on the axis, an index or an offset would lose its upper
 * half.  A simulator would take hours for them (test_large.c gives it windows),
 * and plays a small one, by which the test itself is tested. */
#include "sim_test.h"

#include "base/hash.h"
#include "base/num.h"
#include "device/cuda/table.h"

#define COLS 65536u /* of bf16; all values there are */

static const struct dyti_kernel_ops *const cuda = &dyti_kernels_cuda;

struct whole {
    void *self;
    uint64_t rows;
    uint16_t *row;      /* [COLS] of the device: every row of the source */
    unsigned char *dst; /* [rows][COLS] f16, of the device */
};

static uint16_t wanted(uint32_t col)
{
    return dyti_f32_to_f16(dyti_bf16_to_f32((uint16_t)col));
}

/* All rows from the one, narrowed by the way: elements stay elements. */
static void fill_all(const struct whole *w)
{
    struct dyti_copy copy = {.src = w->row,
                             .dst = w->dst,
                             .size = {1, 1, (int64_t)w->rows, COLS},
                             .src_stride = {0, 0, 0, 2},
                             .dst_stride = {0, 0, COLS * 2, 2},
                             .src_dtype = DYTI_BF16,
                             .dst_dtype = DYTI_F16};

    assert_ok(cuda->copy(w->self, &copy, 1));
    assert_ok(cuda->wait(w->self));
}

static void check_row(const struct whole *w, uint64_t row)
{
    uint16_t *got = dyt_sim_get(w->dst + row * COLS * 2, COLS * 2);

    for (uint32_t i = 0; i < COLS; i++) {
        if (got[i] != wanted(i)) {
            fail_msg("row %" PRIu64 ", column %u: %04x, want %04x", row, i,
                     got[i], wanted(i));
        }
    }
    free(got);
}

static struct dyti_hash_box rows_of(const struct whole *w, uint64_t from,
                                    uint64_t to)
{
    return (struct dyti_hash_box){.data = w->dst + from * COLS * 2,
                                  .size = {1, 1, (int64_t)(to - from), COLS},
                                  .stride = {0, 0, COLS * 2, 2},
                                  .index_stride = {0, 0, COLS, 1},
                                  .index = from * COLS,
                                  .salt = 5,
                                  .dtype = DYTI_F16};
}

/* What is hashed in one box is the sum of what is hashed in two; and of the
 * last rows it is what a host says. */
static void check_hash(const struct whole *w)
{
    uint64_t cut = w->rows / 3, sum[3] = {0}, want = 0, got = 0;
    uint64_t last = w->rows - 2;
    struct dyti_hash_box box[3] = {rows_of(w, 0, w->rows), rows_of(w, 0, cut),
                                   rows_of(w, cut, w->rows)};
    struct dyti_hash_box end = rows_of(w, last, w->rows);

    assert_ok(cuda->hash(w->self, box, 3, sum));
    assert_true(sum[0] == sum[1] + sum[2]);
    for (uint64_t row = last; row < w->rows; row++) {
        for (uint32_t i = 0; i < COLS; i++) {
            want += dyti_content_mix(5, row * COLS + i, wanted(i));
        }
    }
    assert_ok(cuda->hash(w->self, &end, 1, &got));
    assert_true(got == want);
}

static void above_32_bits(void **state)
{
    struct whole w = {.rows = gpusim_simulates() ? 5 : COLS + 3};
    uint64_t bytes = w.rows * COLS * 2;
    size_t free_bytes = 0, total = 0;
    uint16_t row[COLS];

    (void)state;
    assert_ok(cuda->open(NULL, &w.self));
    assert_cuda(cudaMemGetInfo(&free_bytes, &total));
    if (free_bytes < bytes + (1u << 30)) {
        cuda->close(w.self);
        print_message("%zu MiB are free, %" PRIu64 " are wanted\n",
                      free_bytes >> 20, (bytes >> 20) + 1024);
        skip();
    }
    for (uint32_t i = 0; i < COLS; i++) {
        row[i] = (uint16_t)i;
    }
    w.row = dyt_sim_alloc(sizeof(row));
    w.dst = dyt_sim_alloc(bytes);
    assert_cuda(cudaMemcpy(w.row, row, sizeof(row), cudaMemcpyHostToDevice));
    fill_all(&w);
    check_row(&w, 0);
    check_row(&w, w.rows / 2);
    check_row(&w, w.rows - 4); /* before, at and behind 2^32 */
    check_row(&w, w.rows - 3);
    check_row(&w, w.rows - 1);
    check_hash(&w);
    assert_cuda(cudaFree(w.row));
    assert_cuda(cudaFree(w.dst));
    cuda->close(w.self);
    assert_int_equal(0, gpusim_leaks());
}

static const struct CMUnitTest tests[] = {
    sim_test(above_32_bits),
};
DYT_TEST_MAIN(tests)
