/* Several devices, what they say of themselves, who reaches whose memory; and
 * calls and work that fail on purpose. */
#include "gpusim/cases.h"
#include "gpusim/sim_test.h"

#include <cuda.h>
#include <pthread.h>

#define GRAIN ((size_t)2 << 20)

static void two_devices(uint64_t bytes)
{
    struct gpusim_machine machine;

    gpusim_get_machine(&machine);
    machine.device_count = 2;
    machine.memory_bytes = bytes;
    gpusim_set_machine(&machine);
}

static uint32_t *words_on(int device, uint32_t first)
{
    uint32_t *data;

    assert_cuda(cudaSetDevice(device));
    data = dyt_sim_alloc(64);
    assert_cuda(case_write(data, 16, first, NULL));
    assert_cuda(cudaDeviceSynchronize());
    return data;
}

static void a_device_has_its_own_memory(void **state)
{
    size_t left = 0, all = 0;
    uint32_t *a, *b;
    void *more = NULL;

    (void)state;
    two_devices(4 * GRAIN);
    a = words_on(0, 1);
    b = words_on(1, 2);
    assert_cuda(cudaMalloc(&more, 3 * GRAIN));
    assert_cuda(cudaMemGetInfo(&left, &all));
    assert_int_equal(4 * GRAIN, all);
    assert_true(left < GRAIN);
    assert_cuda(cudaSetDevice(0));
    assert_int_equal(CUDA_SUCCESS, cuMemGetInfo(&left, &all));
    assert_true(left > 3 * GRAIN);
    assert_cuda(cudaFree(more));
    assert_cuda(cudaFree(a));
    assert_cuda(cudaFree(b));
    assert_int_equal(0, gpusim_held_bytes());
    assert_cuda_error(cudaErrorInvalidDevice, cudaSetDevice(2));
}

static void *device_of_thread(void *arg)
{
    assert_cuda(cudaGetDevice(arg));
    return NULL;
}

/* Which device is current is the thread's own business. */
static void a_thread_begins_with_the_first(void **state)
{
    pthread_t thread;
    int device = -1;

    (void)state;
    two_devices(4 * GRAIN);
    assert_cuda(cudaSetDevice(1));
    assert_int_equal(0,
                     pthread_create(&thread, NULL, device_of_thread, &device));
    assert_int_equal(0, pthread_join(thread, NULL));
    assert_int_equal(0, device);
    assert_cuda(cudaGetDevice(&device));
    assert_int_equal(1, device);
}

/* how: 0 no access, 1 with it, 2 taken back; copies need none. */
static void peers_need_access(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        uint32_t *a, *b, *here;
        int can = 0;

        gpusim_reset();
        two_devices(4 * GRAIN);
        a = words_on(0, 1);
        b = words_on(1, 2);
        assert_cuda(cudaMemcpy(b, a, 32, cudaMemcpyDeviceToDevice));
        here = dyt_sim_get(b, 64);
        assert_int_equal(1, here[0]);
        free(here);
        assert_cuda(cudaDeviceCanAccessPeer(&can, 1, 0));
        assert_int_equal(1, can);
        if (how > 0) {
            assert_cuda(cudaDeviceEnablePeerAccess(0, 0));
            assert_cuda_error(cudaErrorPeerAccessAlreadyEnabled,
                              cudaDeviceEnablePeerAccess(0, 0));
            (void)cudaGetLastError();
        }
        if (how > 1) {
            assert_cuda(cudaDeviceDisablePeerAccess(0));
        }
        if (how != 1) {
            gpusim_expect(GPUSIM_UNMAPPED);
        }
        assert_cuda(case_add_one(a, 16, NULL));
        assert_cuda_error(how == 1 ? cudaSuccess : cudaErrorIllegalAddress,
                          cudaDeviceSynchronize());
        assert_int_equal(how != 1, gpusim_faults(GPUSIM_UNMAPPED));
        assert_int_equal(0, gpusim_unexpected());
    }
}

/* Mapped memory is opened to each device on its own. */
static void mapped_memory_is_opened_to_devices(void **state)
{
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}};
    CUmemAccessDesc to[2] = {
        {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
        {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr at = 0;

    (void)state;
    two_devices(4 * GRAIN);
    assert_int_equal(CUDA_SUCCESS, cuMemAddressReserve(&at, GRAIN, 0, 0, 0));
    assert_int_equal(CUDA_SUCCESS, cuMemCreate(&handle, GRAIN, &prop, 0));
    assert_int_equal(CUDA_SUCCESS, cuMemMap(at, GRAIN, 0, handle, 0));
    assert_int_equal(CUDA_SUCCESS, cuMemSetAccess(at, GRAIN, to, 2));
    for (int device = 0; device < 2; device++) {
        assert_cuda(cudaSetDevice(device));
        assert_cuda(case_write((void *)(uintptr_t)at, 4, 3, NULL));
        assert_cuda(cudaDeviceSynchronize());
    }
    to[1].flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    assert_int_equal(CUDA_SUCCESS, cuMemSetAccess(at, GRAIN, to + 1, 1));
    assert_cuda(cudaSetDevice(1));
    assert_cuda(case_write((void *)(uintptr_t)at, 4, 3, NULL));
    assert_cuda(cudaDeviceSynchronize());
    assert_cuda(cudaSetDevice(0));
    gpusim_expect(GPUSIM_UNMAPPED);
    assert_cuda(case_write((void *)(uintptr_t)at, 4, 3, NULL));
    assert_cuda_error(cudaErrorIllegalAddress, cudaDeviceSynchronize());
}

static void a_stream_belongs_to_its_device(void **state)
{
    cudaStream_t stream = NULL;
    uint32_t *data;

    (void)state;
    two_devices(4 * GRAIN);
    data = words_on(1, 0);
    assert_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    assert_cuda(case_add_one(data, 16, stream));
    assert_cuda(cudaStreamSynchronize(stream));
    assert_cuda(cudaSetDevice(0));
    assert_cuda_error(cudaErrorInvalidResourceHandle,
                      case_add_one(data, 16, stream));
    assert_cuda(cudaMemsetAsync(data, 0, 4, stream)); /* any device may */
    assert_cuda(cudaStreamSynchronize(stream));
}

static void devices_say_what_they_are(void **state)
{
    int value = -1, count = 0;
    CUcontext context = NULL;
    CUuuid a, b;

    (void)state;
    two_devices(4 * GRAIN);
    assert_int_equal(CUDA_SUCCESS, cuDeviceGetCount(&count));
    assert_int_equal(2, count);
    assert_int_equal(CUDA_SUCCESS, cuDeviceGetUuid_v2(&a, 0));
    assert_int_equal(CUDA_SUCCESS, cuDeviceGetUuid_v2(&b, 1));
    assert_memory_not_equal(&a, &b, sizeof(a));
    assert_cuda(
        cudaDeviceGetAttribute(&value, cudaDevAttrMemoryPoolsSupported, 1));
    assert_int_equal(1, value);
    assert_int_equal(
        CUDA_SUCCESS,
        cuDeviceGetAttribute(&value,
                             CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 1));
    assert_int_equal(9, value);
    assert_int_equal(CUDA_SUCCESS, cuDevicePrimaryCtxRetain(&context, 1));
    assert_int_equal(CUDA_SUCCESS, cuCtxSetCurrent(context));
    assert_cuda(cudaGetDevice(&value));
    assert_int_equal(1, value);
    gpusim_expect(GPUSIM_LEAK);
    assert_int_equal(1, gpusim_leaks());
    assert_int_equal(CUDA_SUCCESS, cuDevicePrimaryCtxRelease(1));
    assert_int_equal(0, gpusim_leaks());
    assert_int_equal(CUDA_ERROR_INVALID_VALUE, cuDevicePrimaryCtxRelease(1));
    assert_cuda(cudaSetDevice(0));
}

/* ---- on purpose ---------------------------------------------------------- */

static void the_nth_call_fails(void **state)
{
    void *a = NULL, *b = NULL;

    (void)state;
    gpusim_fail_call("cudaMalloc", 2, cudaErrorMemoryAllocation);
    assert_cuda(cudaMalloc(&a, 16));
    assert_false(gpusim_has_failed());
    assert_cuda_error(cudaErrorMemoryAllocation, cudaMalloc(&b, 16));
    assert_true(gpusim_has_failed());
    assert_null(b);
    assert_cuda(cudaMalloc(&b, 16)); /* once */
    gpusim_fail_call("launch", 1, cudaErrorLaunchOutOfResources);
    assert_cuda_error(cudaErrorLaunchOutOfResources, case_write(a, 4, 1, NULL));
    assert_cuda(case_write(a, 4, 1, NULL));
    assert_cuda(cudaDeviceSynchronize());
    assert_int_equal(1, gpusim_launches());
}

/* What uses five calls meets five failures, and then none. */
static void any_call_fails_in_turn(void **state)
{
    uint32_t failures = 0;

    (void)state;
    for (uint64_t nth = 1;; nth++) {
        uint32_t *data = NULL;
        cudaEvent_t event = NULL;

        gpusim_reset();
        gpusim_fail_call(NULL, nth, 0);
        if (cudaMalloc((void **)&data, 64) == cudaSuccess &&
            cudaMemset(data, 0, 64) == cudaSuccess &&
            case_add_one(data, 16, NULL) == cudaSuccess &&
            cudaEventCreateWithFlags(&event, 0) == cudaSuccess) {
            bool good = cudaEventRecord(event, NULL) == cudaSuccess;

            assert_int_equal(good, !gpusim_has_failed());
        }
        if (!gpusim_has_failed()) {
            break;
        }
        failures++;
    }
    assert_int_equal(5, failures);
}

static void work_that_breaks_sticks(void **state)
{
    uint32_t *data = dyt_sim_filled(64, 0);
    uint32_t here[16] = {0};

    (void)state;
    gpusim_fail_work(2, cudaErrorLaunchFailure);
    assert_cuda(case_write(data, 16, 5, NULL));
    assert_cuda(cudaDeviceSynchronize());
    assert_cuda(case_add_one(data, 16, NULL)); /* found later */
    assert_cuda_error(cudaErrorLaunchFailure, cudaDeviceSynchronize());
    assert_cuda_error(cudaErrorLaunchFailure,
                      cudaMemcpy(here, data, 64, cudaMemcpyDeviceToHost));
    assert_int_equal(0, here[0]);
    assert_true(gpusim_has_failed());
    assert_int_equal(1, gpusim_launches());
}

static const struct CMUnitTest tests[] = {
    sim_test(a_device_has_its_own_memory),
    sim_test(a_thread_begins_with_the_first),
    sim_test(peers_need_access),
    sim_test(mapped_memory_is_opened_to_devices),
    sim_test(a_stream_belongs_to_its_device),
    sim_test(devices_say_what_they_are),
    sim_test(the_nth_call_fails),
    sim_test(any_call_fails_in_turn),
    sim_test(work_that_breaks_sticks),
};
DYT_TEST_MAIN(tests)
