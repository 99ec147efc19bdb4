/* The execution model: blocks, warps, barriers, atomics, and the counters. */
#include "gpusim/cases.h"
#include "gpusim/sim_test.h"

static void barriers_and_shared_memory_sum(void **state)
{
    enum { COUNT = 5000 };
    uint32_t *data = dyt_sim_alloc(COUNT * 4), *out, *here;

    (void)state;
    for (uint64_t seed = 0; seed < 4; seed++) {
        gpusim_set_order(GPUSIM_LATE, seed);
        out = dyt_sim_filled(4, 0);
        assert_cuda(case_write(data, COUNT, 0, NULL));
        assert_cuda(case_block_sum(data, COUNT, out));
        here = dyt_sim_get(out, 4);
        assert_int_equal(COUNT * (COUNT - 1) / 2, here[0]);
        free(here);
    }
}

static void warps_exchange(void **state)
{
    uint32_t *out = dyt_sim_alloc(64 * 6 * 4), *here;

    (void)state;
    for (uint64_t seed = 0; seed < 4; seed++) {
        gpusim_set_order(GPUSIM_LATE, seed);
        assert_cuda(case_warp_calls(out));
        here = dyt_sim_get(out, 64 * 6 * 4);
        for (uint32_t t = 0; t < 64; t++) {
            uint32_t lane = t % 32, *mine = here + t * 6;

            assert_int_equal(27, mine[0]);
            assert_int_equal(lane < 4 ? lane : lane - 4, mine[1]);
            assert_int_equal(lane > 27 ? lane : lane + 4, mine[2]);
            assert_int_equal(0x49249249, mine[3]);
            assert_int_equal(31 - lane, mine[4]);
            assert_int_equal(2, mine[5]);
        }
        free(here);
    }
}

static void every_thread_runs_once(void **state)
{
    static const uint32_t sizes[][2] = {{1, 1}, {3, 31}, {17, 33}, {50, 1024}};

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(sizes); i++) {
        unsigned long long *out = dyt_sim_filled(8, 0), *here;

        assert_cuda(case_count_all(out, sizes[i][0], sizes[i][1]));
        here = dyt_sim_get(out, 8);
        assert_int_equal(sizes[i][0] * sizes[i][1], *here);
        free(here);
    }
    if (gpusim_simulates()) {
        assert_int_equal(DYT_TEST_COUNT(sizes), gpusim_launches());
    }
}

static void threads_know_where_they_are(void **state)
{
    const uint32_t blocks = 12, threads = 60;
    uint32_t *out = dyt_sim_alloc(blocks * threads * 4), *here;

    (void)state;
    assert_cuda(case_indices(out));
    here = dyt_sim_get(out, blocks * threads * 4);
    for (uint32_t b = 0; b < blocks; b++) {
        for (uint32_t t = 0; t < threads; t++) {
            assert_int_equal(b * 1000 + t, here[b * threads + t]);
        }
    }
    free(here);
}

/* A seed is an order: the same again, another for another. */
static void orders_come_back(void **state)
{
    enum { THREADS = 96, BYTES = (THREADS + 1) * 4 };
    uint32_t *kept[4];

    (void)state;
    if (!gpusim_simulates()) {
        skip();
    }
    for (uint64_t i = 0; i < 4; i++) {
        uint32_t *out = dyt_sim_filled(BYTES, 0);
        uint64_t sum = 0;

        gpusim_set_order(GPUSIM_LATE, i < 2 ? 7 : i == 2 ? 8 : 0);
        assert_cuda(case_order(out, THREADS));
        kept[i] = dyt_sim_get(out, BYTES);
        for (uint32_t t = 1; t <= THREADS; t++) {
            sum += kept[i][t];
        }
        assert_int_equal(THREADS * (THREADS - 1) / 2, sum);
    }
    assert_memory_equal(kept[0], kept[1], BYTES);
    assert_memory_not_equal(kept[0], kept[2], BYTES);
    assert_int_equal(0, kept[3][1]); /* seed 0: in order */
    assert_int_equal(THREADS - 1, kept[3][THREADS]);
    for (uint64_t i = 0; i < 4; i++) {
        free(kept[i]);
    }
}

static void blocks_are_resident_together(void **state)
{
    uint32_t *flag = dyt_sim_filled(4, 0), *out = dyt_sim_alloc(4), *here;

    (void)state;
    assert_cuda(case_flag(flag, out));
    here = dyt_sim_get(out, 4);
    assert_int_equal(77, here[0]);
    free(here);
}

/* Dense vectors touch what they need; every second one twice of it. */
static void sectors_are_counted(void **state)
{
    enum { VECTORS = 256 };
    uint32_t *src = dyt_sim_filled(VECTORS * 16, 1);
    uint32_t *dst = dyt_sim_alloc(VECTORS * 32);
    struct gpusim_traffic t;

    (void)state;
    if (!gpusim_simulates()) {
        skip();
    }
    assert_cuda(case_copy_vectors(src, dst, VECTORS, 1));
    assert_cuda(cudaDeviceSynchronize());
    gpusim_traffic_get(&t);
    assert_int_equal(VECTORS, t.load_calls);
    assert_int_equal(VECTORS, t.load_wide);
    assert_int_equal(VECTORS / 2, t.load_sectors);
    assert_int_equal(VECTORS / 2, t.load_needed);
    assert_int_equal(VECTORS / 2, t.store_sectors);
    gpusim_traffic_clear();
    assert_cuda(case_copy_vectors(src, dst, VECTORS, 2));
    assert_cuda(cudaDeviceSynchronize());
    gpusim_traffic_get(&t);
    assert_int_equal(VECTORS, t.store_sectors);
    assert_int_equal(VECTORS, t.store_needed);
}

static void states_of_a_machine(void **state)
{
    struct gpusim_machine machine;
    int count = -1, can = -1;

    (void)state;
    if (!gpusim_simulates()) {
        skip();
    }
    gpusim_get_machine(&machine);
    assert_cuda(cudaGetDeviceCount(&count));
    assert_int_equal(1, count);
    machine.device_count = 0;
    gpusim_set_machine(&machine);
    assert_cuda_error(cudaErrorNoDevice, cudaGetDeviceCount(&count));
    assert_int_equal(0, count);
    assert_cuda_error(cudaErrorNoDevice, case_launch(1, 1, 1, 0));
    machine.device_count = 2;
    machine.driver_version = 11080;
    gpusim_set_machine(&machine);
    assert_cuda_error(cudaErrorInsufficientDriver, cudaGetDeviceCount(&count));
    machine.driver_version = 13000;
    gpusim_set_machine(&machine);
    assert_cuda(cudaGetDeviceCount(&count));
    assert_int_equal(2, count);
    assert_cuda(cudaDeviceCanAccessPeer(&can, 0, 1));
    assert_int_equal(1, can);
    assert_cuda_error(cudaErrorInvalidDevice, cudaSetDevice(2));
}

static const struct CMUnitTest tests[] = {
    sim_test(barriers_and_shared_memory_sum),
    sim_test(warps_exchange),
    sim_test(every_thread_runs_once),
    sim_test(threads_know_where_they_are),
    sim_test(orders_come_back),
    sim_test(blocks_are_resident_together),
    sim_test(sectors_are_counted),
    sim_test(states_of_a_machine),
};
DYT_TEST_MAIN(tests)
