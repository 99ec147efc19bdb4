/* Every detector: a kernel with exactly that fault is found, the same without
 * it passes. */
#include "gpusim/cases.h"
#include "gpusim/sim_test.h"

#include <pthread.h>

#define WORDS 64u

/* What the kernel of a case works on; the good one first, then the wrong. */
static void pair(int (*run)(bool wrong), enum gpusim_fault kind,
                 cudaError_t launch, cudaError_t after)
{
    gpusim_reset();
    assert_cuda(run(false));
    assert_cuda(cudaDeviceSynchronize());
    assert_int_equal(0, gpusim_unexpected());

    gpusim_reset();
    gpusim_expect(kind);
    assert_cuda_error(launch, run(true));
    assert_cuda_error(after, cudaDeviceSynchronize());
    assert_int_equal(1, gpusim_faults(kind));
    assert_int_equal(0, gpusim_unexpected());
    assert_non_null(strstr(gpusim_fault_text(), gpusim_fault_name(kind)));
    if (after != cudaSuccess) { /* as on a device: until the process ends */
        void *p = NULL;

        assert_cuda_error(after, cudaMalloc(&p, 16));
    }
}

static int bounds_checked(bool wrong)
{
    return case_bounds_checked(dyt_sim_alloc(WORDS * 4), WORDS, wrong);
}

static int bounds_plain(bool wrong)
{
    return case_bounds_plain(dyt_sim_alloc(WORDS * 4), WORDS, wrong);
}

static void out_of_bounds_checked(void **state)
{
    (void)state;
    pair(bounds_checked, GPUSIM_OUT_OF_BOUNDS, cudaSuccess,
         cudaErrorIllegalAddress);
    assert_non_null(strstr(gpusim_fault_text(), "bounds_checked"));
    assert_non_null(strstr(gpusim_fault_text(), "thread (63,0,0)"));
    assert_non_null(strstr(gpusim_fault_text(), "4 bytes at offset 256"));
}

static void out_of_bounds_by_a_plain_pointer(void **state)
{
    (void)state;
    pair(bounds_plain, GPUSIM_OUT_OF_BOUNDS, cudaSuccess,
         cudaErrorIllegalAddress);
}

static int store_behind(bool wrong)
{
    return case_store_behind_plain(dyt_sim_alloc(100), 100, wrong);
}

/* Too near for a page; with the address sanitizer the program would end. */
static void out_of_bounds_by_a_plain_pointer_near(void **state)
{
    (void)state;
    if (DYT_TEST_SANITIZED) {
        skip();
    }
    pair(store_behind, GPUSIM_OUT_OF_BOUNDS, cudaSuccess,
         cudaErrorIllegalAddress);
    assert_non_null(strstr(gpusim_fault_text(), "wrote byte 100"));
}

static int misaligned(bool wrong)
{
    return case_misaligned(dyt_sim_alloc(WORDS * 4), wrong);
}

static void misaligned_vector(void **state)
{
    (void)state;
    pair(misaligned, GPUSIM_MISALIGNED, cudaSuccess,
         cudaErrorMisalignedAddress);
    assert_non_null(strstr(gpusim_fault_text(), "4 beside"));
}

static int freed(bool wrong)
{
    uint32_t *data = dyt_sim_filled(WORDS * 4, 1);
    uint32_t *out = dyt_sim_alloc(4);

    if (wrong) {
        assert_cuda(cudaFree(data));
    }
    return case_read(data, out, NULL);
}

static void memory_that_was_given_back(void **state)
{
    (void)state;
    pair(freed, GPUSIM_FREED, cudaSuccess, cudaErrorIllegalAddress);
}

static int uninitialised(bool wrong)
{
    uint32_t *data = dyt_sim_alloc(WORDS * 4);
    uint32_t *out = dyt_sim_alloc(4);

    if (!wrong) {
        assert_cuda(cudaMemset(data, 0, 4));
    }
    return case_read(data, out, NULL);
}

static void memory_without_a_value(void **state)
{
    (void)state;
    pair(uninitialised, GPUSIM_UNINITIALISED, cudaSuccess, cudaSuccess);
}

static void copy_to_the_host_without_a_value(void **state)
{
    unsigned char *data = dyt_sim_alloc(8), here[8];

    (void)state;
    assert_cuda(cudaMemset(data, 0, 7));
    assert_cuda(cudaMemcpy(here, data, 7, cudaMemcpyDeviceToHost));
    assert_int_equal(0, gpusim_unexpected());
    gpusim_expect(GPUSIM_UNINITIALISED);
    assert_cuda(cudaMemcpy(here, data, 8, cudaMemcpyDeviceToHost));
    assert_int_equal(1, gpusim_faults(GPUSIM_UNINITIALISED));
}

/* ---- shared memory ------------------------------------------------------- */

static int shared_race(bool wrong)
{
    return case_shared_race(dyt_sim_alloc(WORDS * 4), wrong);
}

static int shared_race_warp(bool wrong)
{
    return case_shared_race_warp(dyt_sim_alloc(WORDS * 4), wrong);
}

static int shared_bounds(bool wrong)
{
    return case_shared_bounds(dyt_sim_alloc(4), wrong);
}

static int shared_uninitialised(bool wrong)
{
    return case_shared_uninitialised(dyt_sim_alloc(4), wrong);
}

static int shared_rest(bool wrong)
{
    return case_shared_rest(dyt_sim_alloc(4), 64, wrong ? 17 : 16);
}

/* What a thread reads too early has no value yet: that is seen as well. */
static int shared_race_early(bool wrong)
{
    gpusim_expect(GPUSIM_UNINITIALISED);
    return shared_race(wrong);
}

static int shared_race_warp_early(bool wrong)
{
    gpusim_expect(GPUSIM_UNINITIALISED);
    return shared_race_warp(wrong);
}

static void race_between_barriers(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 8; seed++) {
        gpusim_reset();
        gpusim_set_order(GPUSIM_LATE, seed);
        gpusim_expect(GPUSIM_SHARED_RACE);
        gpusim_expect(GPUSIM_UNINITIALISED);
        assert_cuda(shared_race(true));
        assert_cuda(cudaDeviceSynchronize());
        assert_int_equal(1, gpusim_faults(GPUSIM_SHARED_RACE));
    }
    pair(shared_race_early, GPUSIM_SHARED_RACE, cudaSuccess, cudaSuccess);
}

static void race_inside_a_warp(void **state)
{
    (void)state;
    pair(shared_race_warp_early, GPUSIM_SHARED_RACE, cudaSuccess, cudaSuccess);
}

static void behind_a_shared_array(void **state)
{
    (void)state;
    pair(shared_bounds, GPUSIM_SHARED_BOUNDS, cudaSuccess,
         cudaErrorIllegalAddress);
    pair(shared_rest, GPUSIM_SHARED_BOUNDS, cudaSuccess,
         cudaErrorIllegalAddress);
}

static void shared_memory_without_a_value(void **state)
{
    (void)state;
    pair(shared_uninitialised, GPUSIM_UNINITIALISED, cudaSuccess, cudaSuccess);
}

/* ---- meeting ------------------------------------------------------------- */

static int warp_left_out(bool wrong)
{
    return case_warp_left_out(dyt_sim_alloc(WORDS * 4), wrong);
}

static int warp_reads_absent(bool wrong)
{
    return case_warp_reads_absent(dyt_sim_alloc(WORDS * 4), wrong);
}

static void divergent_barriers(void **state)
{
    (void)state;
    pair(case_barrier_left_out, GPUSIM_DIVERGENT, cudaSuccess,
         cudaErrorLaunchFailure);
    assert_non_null(strstr(gpusim_fault_text(), "thread 40 has ended"));
    pair(case_barrier_two_places, GPUSIM_DIVERGENT, cudaSuccess,
         cudaErrorLaunchFailure);
}

static void divergent_warps(void **state)
{
    (void)state;
    pair(warp_left_out, GPUSIM_DIVERGENT, cudaSuccess, cudaErrorLaunchFailure);
    assert_non_null(strstr(gpusim_fault_text(), "lane 5"));
    pair(warp_reads_absent, GPUSIM_DIVERGENT, cudaSuccess,
         cudaErrorLaunchFailure);
}

/* ---- host code ----------------------------------------------------------- */

/* Device memory of each kind, and how the host goes there: 0 reads, 1 writes,
 * 2 by a call of the C library. */
static void host_goes_to(unsigned char *at, int how)
{
    unsigned char here[4] = {1, 2, 3, 4};

    if (how == 0) {
        here[0] = *(volatile unsigned char *)at;
    } else if (how == 1) {
        *(volatile unsigned char *)at = here[1];
    } else {
        memcpy(at, here, sizeof(here));
    }
}

static void host_touches_device_memory(void **state)
{
    char text[64];

    (void)state;
    for (int how = 0; how < 3; how++) {
        unsigned char *at = dyt_sim_filled(100, 7), *got;

        gpusim_expect(GPUSIM_HOST_ACCESS);
        host_goes_to(at + 40, how);
        assert_int_equal(how + 1, gpusim_faults(GPUSIM_HOST_ACCESS));
        (void)snprintf(text, sizeof(text),
                       "the host touches byte 40 of an "
                       "allocation of 100");
        assert_non_null(strstr(gpusim_fault_text(), text));
        got = dyt_sim_get(at, 100); /* goes on, and is closed again */
        assert_int_equal(how == 0 ? 7 : how == 1 ? 2 : 1, got[40]);
        free(got);
        assert_cuda(cudaFree(at));
    }
    assert_int_equal(3, gpusim_faults(GPUSIM_HOST_ACCESS));
}

static void *host_thread(void *at)
{
    host_goes_to(at, 1);
    return NULL;
}

/* While nothing runs, from any thread; also what a kernel has just had. */
static void host_threads_touch_device_memory(void **state)
{
    uint32_t *data = dyt_sim_alloc(WORDS * 4);
    pthread_t thread;

    (void)state;
    gpusim_expect(GPUSIM_HOST_ACCESS);
    assert_cuda(case_write(data, WORDS, 10, NULL));
    assert_cuda(cudaDeviceSynchronize());
    assert_int_equal(0, pthread_create(&thread, NULL, host_thread, data));
    assert_int_equal(0, pthread_join(thread, NULL));
    assert_int_equal(1, gpusim_faults(GPUSIM_HOST_ACCESS));
    assert_cuda(case_add_one(data, WORDS, NULL));
    assert_cuda(cudaDeviceSynchronize());
    host_goes_to((unsigned char *)data, 0);
    assert_int_equal(2, gpusim_faults(GPUSIM_HOST_ACCESS));
}

/* What is meant for both, the host may touch; and kernels as well. */
static void host_touches_pinned_and_managed_memory(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        unsigned char *pinned = NULL, *managed = NULL;

        assert_cuda(cudaHostAlloc((void **)&pinned, 100, cudaHostAllocDefault));
        assert_cuda(
            cudaMallocManaged((void **)&managed, 100, cudaMemAttachGlobal));
        assert_cuda(case_write((uint32_t *)(void *)pinned, 25, 3, NULL));
        assert_cuda(case_write((uint32_t *)(void *)managed, 25, 3, NULL));
        assert_cuda(cudaDeviceSynchronize());
        assert_int_equal(27, pinned[96]);
        assert_int_equal(27, managed[96]);
        host_goes_to(pinned + 40, how);
        host_goes_to(managed + 40, how);
        assert_cuda(cudaFreeHost(pinned));
        assert_cuda(cudaFree(managed));
    }
    assert_int_equal(0, gpusim_faults(GPUSIM_HOST_ACCESS));
    assert_int_equal(0, gpusim_leaks());
}

/* ---- launches ------------------------------------------------------------ */

static int many_threads(bool wrong)
{
    return case_launch(1, 1, wrong ? 1025 : 1024, 0);
}

static int tall_grid(bool wrong)
{
    return case_launch(1, wrong ? 65536 : 65, 1, 0);
}

static int no_grid(bool wrong)
{
    return case_launch(wrong ? 0 : 1, 1, 1, 0);
}

static int much_shared(bool wrong)
{
    return case_launch(1, 1, 1, (48u << 10) + (wrong ? 1u : 0u));
}

static void over_the_limits(void **state)
{
    (void)state;
    pair(many_threads, GPUSIM_LIMITS, cudaErrorInvalidConfiguration,
         cudaSuccess);
    pair(tall_grid, GPUSIM_LIMITS, cudaErrorInvalidConfiguration, cudaSuccess);
    pair(no_grid, GPUSIM_LIMITS, cudaErrorInvalidConfiguration, cudaSuccess);
    pair(much_shared, GPUSIM_LIMITS, cudaErrorInvalidConfiguration,
         cudaSuccess);
    pair(case_shared_static_large, GPUSIM_LIMITS, cudaSuccess,
         cudaErrorLaunchOutOfResources);
}

/* More shared memory is there for those that ask, and as much as there is. */
static void limits_are_of_the_architecture(void **state)
{
    static const struct {
        int arch, kib;
    } row[] = {{70, 96}, {75, 64}, {80, 163}, {86, 99}, {90, 227}, {120, 99}};

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        struct gpusim_machine machine;

        gpusim_reset();
        gpusim_get_machine(&machine);
        machine.arch = row[i].arch;
        gpusim_set_machine(&machine);
        assert_cuda_error(cudaErrorInvalidValue,
                          cudaFuncSetAttribute(
                              NULL, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              (row[i].kib << 10) + 1));
        assert_cuda(cudaFuncSetAttribute(
            NULL, cudaFuncAttributeMaxDynamicSharedMemorySize,
            row[i].kib << 10));
        assert_cuda(case_launch(1, 1, 1, (uint32_t)row[i].kib << 10));
        gpusim_expect(GPUSIM_LIMITS);
        assert_cuda_error(
            cudaErrorInvalidConfiguration,
            case_launch(1, 1, 1, ((uint32_t)row[i].kib << 10) + 1));
    }
}

/* ---- what is left -------------------------------------------------------- */

static void leaked_handles(void **state)
{
    void *memory = dyt_sim_alloc(100), *pinned = NULL;
    cudaStream_t stream;
    cudaEvent_t event;

    (void)state;
    assert_cuda(cudaHostAlloc(&pinned, 10, cudaHostAllocDefault));
    assert_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    assert_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    gpusim_expect(GPUSIM_LEAK);
    assert_int_equal(4, gpusim_leaks());
    assert_int_equal(4, gpusim_faults(GPUSIM_LEAK));
    assert_cuda(cudaFree(memory));
    assert_cuda(cudaFreeHost(pinned));
    assert_cuda(cudaStreamDestroy(stream));
    assert_cuda(cudaEventDestroy(event));
    assert_int_equal(0, gpusim_leaks());
}

static void given_back_twice(void **state)
{
    void *memory = dyt_sim_alloc(100);

    (void)state;
    assert_cuda(cudaFree(memory));
    gpusim_expect(GPUSIM_FREED);
    assert_cuda_error(cudaErrorInvalidValue, cudaFree(memory));
    assert_int_equal(1, gpusim_faults(GPUSIM_FREED));
}

static const struct CMUnitTest tests[] = {
    sim_test(out_of_bounds_checked),
    sim_test(out_of_bounds_by_a_plain_pointer),
    sim_test(out_of_bounds_by_a_plain_pointer_near),
    sim_test(misaligned_vector),
    sim_test(memory_that_was_given_back),
    sim_test(memory_without_a_value),
    sim_test(copy_to_the_host_without_a_value),
    sim_test(race_between_barriers),
    sim_test(race_inside_a_warp),
    sim_test(behind_a_shared_array),
    sim_test(shared_memory_without_a_value),
    sim_test(divergent_barriers),
    sim_test(divergent_warps),
    sim_test(host_touches_device_memory),
    sim_test(host_threads_touch_device_memory),
    sim_test(host_touches_pinned_and_managed_memory),
    sim_test(over_the_limits),
    sim_test(limits_are_of_the_architecture),
    sim_test(leaked_handles),
    sim_test(given_back_twice),
};
DYT_TEST_MAIN(tests)
