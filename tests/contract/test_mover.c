/* What every mover must do (ops/mover.h): the bytes of its copies and no other,
 * in both directions.  With SW_CUDA: over memory of a device that is simulated.
 */
#include "dyt_test.h"

#include "base/num.h"
#include "base/rng.h"

#ifdef SW_CUDA
#include "device/cuda/table.h"
#include "gpusim.h"
#include "mover/direct_cuda/direct_cuda.h"
#include <cuda_runtime_api.h>
#define KERNELS dyti_kernels_cuda
static const struct dyti_mover_ops *const movers[] = {&dyti_mover_direct_cuda};
#else
#include "device/host/host.h"
#include "mover/direct/direct.h"
#define KERNELS dyti_kernels_reference
static const struct dyti_mover_ops *const movers[] = {&dyti_mover_direct};
#endif

#define ROWS 5
#define COLS 7
#define WIDE 16

struct fixture {
    struct dyti_kernels kernels;
    void *mover;
    float *mine, *peers; /* [ROWS * WIDE] */
};

static void *make(uint64_t bytes)
{
    void *at = NULL;

#ifdef SW_CUDA
    assert_int_equal(cudaSuccess, cudaMalloc(&at, bytes));
#else
    at = malloc(bytes);
    assert_non_null(at);
#endif
    return at;
}

static void give_back(void *at)
{
#ifdef SW_CUDA
    assert_int_equal(cudaSuccess, cudaFree(at));
#else
    free(at);
#endif
}

static void carry(const struct fixture *fixture, void *dst, const void *src,
                  uint64_t bytes)
{
    assert_ok(dyti_kernels_carry(&fixture->kernels, dst, src, bytes));
}

static void setup(const struct dyti_mover_ops *ops, struct fixture *fixture)
{
    struct dyti_kernel_params kernel = {.struct_size = sizeof(kernel)};
    struct dyti_mover_params params = {.struct_size = sizeof(params),
                                       .rank = 1,
                                       .world_size = 3,
                                       .kernels = &fixture->kernels};
    float values[2][ROWS * WIDE];

    fixture->kernels.ops = &KERNELS;
    assert_ok(fixture->kernels.ops->open(&kernel, &fixture->kernels.self));
    assert_ok(ops->open(&params, &fixture->mover));
    for (uint32_t i = 0; i < ROWS * WIDE; i++) {
        values[0][i] = (float)i;
        values[1][i] = 1000.0f + (float)i;
    }
    fixture->mine = make(sizeof(values[0]));
    fixture->peers = make(sizeof(values[1]));
    carry(fixture, fixture->mine, values[0], sizeof(values[0]));
    carry(fixture, fixture->peers, values[1], sizeof(values[1]));
}

static void teardown(const struct dyti_mover_ops *ops, struct fixture *fixture)
{
    ops->close(fixture->mover);
    fixture->kernels.ops->close(fixture->kernels.self);
    give_back(fixture->mine);
    give_back(fixture->peers);
#ifdef SW_CUDA
    assert_int_equal(0, gpusim_leaks());
    assert_int_equal(0, gpusim_unexpected());
#endif
}

static void finish(const struct dyti_mover_ops *ops, struct fixture *fixture,
                   const struct dyti_move *move)
{
    dyti_ticket ticket = 0;
    enum dyt_status st;

    while ((st = ops->post(fixture->mover, move, &ticket)) == DYT_PENDING) {
    }
    assert_ok(st);
    while ((st = ops->poll(fixture->mover, ticket)) == DYT_PENDING) {
    }
    assert_ok(st);
}

/* Box [ROWS, COLS] at column 3 of one, column 1 of the other. */
static struct dyti_copy box(const float *src, float *dst)
{
    return (struct dyti_copy){.src = src + 3,
                              .dst = dst + 1,
                              .size = {1, 1, ROWS, COLS},
                              .src_stride = {0, 0, WIDE * 4, 4},
                              .dst_stride = {0, 0, WIDE * 4, 4},
                              .src_dtype = DYTI_F32,
                              .dst_dtype = DYTI_F32};
}

static void check_box(const struct fixture *fixture, const float *at,
                      float first_want, float first_old)
{
    float got[ROWS * WIDE];

    carry(fixture, got, at, sizeof(got));
    for (int r = 0; r < ROWS; r++) {
        for (int c = 0; c < WIDE; c++) {
            bool inside = c >= 1 && c < 1 + COLS;
            float want = inside ? first_want + (float)(r * WIDE + c + 2)
                                : first_old + (float)(r * WIDE + c);

            assert_true(got[r * WIDE + c] == want);
        }
    }
}

static void pulls_and_pushes_exactly_the_box(void **state)
{
    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(movers); i++) {
        for (int push = 0; push < 2; push++) {
            struct fixture fixture = {0};
            struct dyti_copy copy;
            struct dyti_move move = {.struct_size = sizeof(move),
                                     .peer = 2,
                                     .copy = &copy,
                                     .copy_count = 1};

            if (!(movers[i]->caps &
                  (push ? DYTI_MOVER_CAP_PUSH : DYTI_MOVER_CAP_PULL))) {
                continue;
            }
            setup(movers[i], &fixture);
            copy = push ? box(fixture.mine, fixture.peers)
                        : box(fixture.peers, fixture.mine);
            finish(movers[i], &fixture, &move);
            check_box(&fixture, push ? fixture.peers : fixture.mine,
                      push ? 0 : 1000, push ? 1000 : 0);
            teardown(movers[i], &fixture);
        }
    }
}

/* The same nine moves, done here one by one. */
static void check_shifted(const struct fixture *fixture)
{
    float want[2][ROWS * WIDE], got[ROWS * WIDE];

    for (uint32_t i = 0; i < ROWS * WIDE; i++) {
        want[0][i] = (float)i;
        want[1][i] = 1000.0f + (float)i;
    }
    for (uint32_t n = 0; n < 9; n++) {
        for (uint32_t r = 0; r < ROWS; r++) {
            memcpy(want[(n + 1) % 2] + r * WIDE + 1, want[n % 2] + r * WIDE + 3,
                   COLS * sizeof(float));
        }
    }
    carry(fixture, got, fixture->peers, sizeof(got));
    assert_memory_equal(want[1], got, sizeof(got));
}

static void narrows_to_nearest_even(void **state)
{
    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(movers); i++) {
        struct fixture fixture = {0};
        float values[WIDE];
        uint16_t got[WIDE];
        struct dyti_copy copy = {.size = {1, 1, 1, WIDE},
                                 .src_stride = {0, 0, 0, 4},
                                 .dst_stride = {0, 0, 0, 2},
                                 .src_dtype = DYTI_F32,
                                 .dst_dtype = DYTI_BF16};
        struct dyti_move move = {.struct_size = sizeof(move),
                                 .peer = 0,
                                 .copy = &copy,
                                 .copy_count = 1};

        setup(movers[i], &fixture);
        for (uint32_t c = 0; c < WIDE; c++) {
            values[c] = (float)dyti_rng_unit(dyti_rng_u64(1, c, 0, 0)) - 0.5f;
        }
        carry(&fixture, fixture.mine, values, sizeof(values));
        copy.src = fixture.mine;
        copy.dst = fixture.peers;
        finish(movers[i], &fixture, &move);
        carry(&fixture, got, fixture.peers, sizeof(got));
        for (uint32_t c = 0; c < WIDE; c++) {
            assert_int_equal(dyti_f32_to_bf16(values[c]), got[c]);
        }
        teardown(movers[i], &fixture);
    }
}

/* Copy after copy of the same bytes, and only the last is asked for. */
static void posts_are_done_in_their_order(void **state)
{
    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(movers); i++) {
        struct fixture fixture = {0};
        struct dyti_copy there, back;
        struct dyti_move move = {
            .struct_size = sizeof(move), .peer = 2, .copy_count = 1};
        dyti_ticket ticket = 0, first = 0;
        enum dyt_status st;

        setup(movers[i], &fixture);
        there = box(fixture.mine, fixture.peers);
        back = box(fixture.peers, fixture.mine);
        for (uint32_t n = 0; n < 9; n++) { /* each moves it by two columns */
            move.copy = n % 2 == 0 ? &there : &back;
            while ((st = movers[i]->post(fixture.mover, &move, &ticket)) ==
                   DYT_PENDING) {
            }
            assert_ok(st);
            first = n == 0 ? ticket : first;
        }
        while ((st = movers[i]->poll(fixture.mover, ticket)) == DYT_PENDING) {
        }
        assert_ok(st);
        assert_ok(movers[i]->poll(fixture.mover, first));
        check_shifted(&fixture);
        teardown(movers[i], &fixture);
    }
}

static void refuses_what_it_cannot(void **state)
{
    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(movers); i++) {
        struct fixture fixture = {0};
        struct dyti_move move = {.struct_size = sizeof(move), .peer = 3};
        struct dyti_mover_params params = {.struct_size = sizeof(params),
                                           .world_size = 1};
        dyti_ticket ticket = 77;
        void *self = NULL;

        setup(movers[i], &fixture);
        assert_status(DYT_ERR_INVALID,
                      movers[i]->post(fixture.mover, &move, &ticket));
        assert_int_equal(77, ticket);
        assert_status(DYT_ERR_INVALID, movers[i]->poll(fixture.mover, 1));
        assert_status(DYT_ERR_INVALID, movers[i]->open(&params, &self));
        assert_null(self);
        move.peer = 0; /* an empty batch is fine */
        finish(movers[i], &fixture, &move);
        movers[i]->cancel(fixture.mover);
        teardown(movers[i], &fixture);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(pulls_and_pushes_exactly_the_box),
    cmocka_unit_test(narrows_to_nearest_even),
    cmocka_unit_test(posts_are_done_in_their_order),
    cmocka_unit_test(refuses_what_it_cannot),
};
DYT_TEST_MAIN(tests)
