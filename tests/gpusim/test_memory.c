/* Virtual memory, memory of other processes, and how much there is. */
#include "gpusim/cases.h"
#include "gpusim/sim_test.h"

#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#define GRAIN ((size_t)2 << 20)

static const CUmemAllocationProp prop = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
static const CUmemAccessDesc both = {
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static CUmemGenericAllocationHandle mapped(CUdeviceptr at, size_t bytes)
{
    CUmemGenericAllocationHandle handle = 0;

    assert_int_equal(CUDA_SUCCESS, cuMemCreate(&handle, bytes, &prop, 0));
    assert_int_equal(CUDA_SUCCESS, cuMemMap(at, bytes, 0, handle, 0));
    assert_int_equal(CUDA_SUCCESS, cuMemSetAccess(at, bytes, &both, 1));
    return handle;
}

static CUdeviceptr reserved(size_t bytes)
{
    CUdeviceptr at = 0;

    assert_int_equal(CUDA_SUCCESS, cuMemAddressReserve(&at, bytes, 0, 0, 0));
    return at;
}

static void *pointer(CUdeviceptr at)
{
    return (void *)(uintptr_t)at;
}

/* Sleep and wake: other memory, the same address. */
static void memory_comes_and_goes_at_one_address(void **state)
{
    CUdeviceptr at = reserved(2 * GRAIN);
    CUmemGenericAllocationHandle handle;

    (void)state;
    for (uint32_t round = 0; round < 3; round++) {
        uint32_t *here;

        handle = mapped(at, 2 * GRAIN);
        assert_int_equal(2 * GRAIN, gpusim_held_bytes());
        assert_cuda(case_write(pointer(at), 8, round, NULL));
        here = dyt_sim_get(pointer(at), 32);
        assert_int_equal(round + 7, here[7]);
        free(here);
        assert_int_equal(CUDA_SUCCESS, cuMemUnmap(at, 2 * GRAIN));
        assert_int_equal(CUDA_SUCCESS, cuMemRelease(handle));
        assert_int_equal(0, gpusim_held_bytes());
    }
    /* New memory has no value. */
    handle = mapped(at, 2 * GRAIN);
    gpusim_expect(GPUSIM_UNINITIALISED);
    free(dyt_sim_get(pointer(at), 4));
    assert_int_equal(1, gpusim_faults(GPUSIM_UNINITIALISED));
    assert_int_equal(CUDA_SUCCESS, cuMemUnmap(at, 2 * GRAIN));
    assert_int_equal(CUDA_SUCCESS, cuMemRelease(handle));
    assert_int_equal(CUDA_SUCCESS, cuMemAddressFree(at, 2 * GRAIN));
    assert_int_equal(0, gpusim_leaks());
}

/* Each way not to be mapped, and a kernel that goes there. */
static void unmapped_memory_is_found(void **state)
{
    (void)state;
    for (int how = 0; how < 4; how++) {
        CUmemGenericAllocationHandle handle = 0;
        uint32_t *out;
        CUdeviceptr at;

        gpusim_reset();
        out = dyt_sim_alloc(4);
        at = reserved(GRAIN);
        if (how > 0) {
            assert_int_equal(CUDA_SUCCESS,
                             cuMemCreate(&handle, GRAIN, &prop, 0));
            assert_int_equal(CUDA_SUCCESS, cuMemMap(at, GRAIN, 0, handle, 0));
        }
        if (how > 1) {
            assert_int_equal(CUDA_SUCCESS, cuMemSetAccess(at, GRAIN, &both, 1));
            assert_cuda(case_write(pointer(at), 4, 3, NULL));
            assert_cuda(cudaDeviceSynchronize());
        }
        if (how == 2) {
            assert_int_equal(CUDA_SUCCESS, cuMemUnmap(at, GRAIN));
        }
        if (how < 3) {
            gpusim_expect(GPUSIM_UNMAPPED);
        }
        assert_cuda(case_read(pointer(at), out, NULL));
        assert_cuda_error(how < 3 ? cudaErrorIllegalAddress : cudaSuccess,
                          cudaDeviceSynchronize());
        assert_int_equal(how < 3 ? 1 : 0, gpusim_faults(GPUSIM_UNMAPPED));
        assert_int_equal(0, gpusim_unexpected());
    }
}

/* Unmapped while work is queued: the work fails, and not by luck. */
static void queued_work_keeps_nothing_mapped(void **state)
{
    CUdeviceptr at = reserved(GRAIN);
    CUmemGenericAllocationHandle handle = mapped(at, GRAIN);

    (void)state;
    assert_cuda(case_write(pointer(at), 4, 3, NULL));
    assert_int_equal(CUDA_SUCCESS, cuMemUnmap(at, GRAIN));
    gpusim_expect(GPUSIM_UNMAPPED);
    assert_cuda_error(cudaErrorIllegalAddress, cudaDeviceSynchronize());
    assert_int_equal(CUDA_SUCCESS, cuMemRelease(handle));
}

static void wrong_virtual_calls_are_refused(void **state)
{
    CUdeviceptr at = reserved(2 * GRAIN), other = 0;
    CUmemGenericAllocationHandle handle = mapped(at, GRAIN);
    struct gpusim_machine machine;

    (void)state;
    assert_int_equal(CUDA_ERROR_INVALID_VALUE,
                     cuMemAddressReserve(&other, 4096, 0, 0, 0));
    assert_int_equal(CUDA_ERROR_INVALID_VALUE,
                     cuMemCreate(&handle, 4096, &prop, 0));
    assert_int_equal(CUDA_ERROR_INVALID_VALUE, /* something is there */
                     cuMemMap(at, GRAIN, 0, handle, 0));
    assert_int_equal(CUDA_ERROR_INVALID_VALUE, /* not reserved */
                     cuMemMap(at + 2 * GRAIN, GRAIN, 0, handle, 0));
    assert_int_equal(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(at, 2 * GRAIN));
    assert_int_equal(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(at, 2 * GRAIN));
    assert_int_equal(CUDA_SUCCESS, cuMemUnmap(at, GRAIN));
    assert_int_equal(CUDA_SUCCESS, cuMemRelease(handle));
    assert_int_equal(CUDA_ERROR_INVALID_VALUE, cuMemRelease(handle));
    gpusim_get_machine(&machine);
    machine.has_vmm = false;
    gpusim_set_machine(&machine);
    assert_int_equal(CUDA_ERROR_NOT_SUPPORTED,
                     cuMemCreate(&handle, GRAIN, &prop, 0));
    assert_int_equal(CUDA_ERROR_NOT_SUPPORTED,
                     cuMemAddressReserve(&other, GRAIN, 0, 0, 0));
}

static void memory_ends(void **state)
{
    struct gpusim_machine machine;
    CUmemGenericAllocationHandle handle = 0;
    size_t left = 0, all = 0;
    void *a = NULL;

    (void)state;
    gpusim_get_machine(&machine);
    machine.memory_bytes = 3 * GRAIN;
    gpusim_set_machine(&machine);
    assert_cuda(cudaMalloc(&a, GRAIN));
    assert_cuda(cudaMemGetInfo(&left, &all));
    assert_int_equal(3 * GRAIN, all);
    assert_int_equal(2 * GRAIN, left);
    assert_int_equal(CUDA_ERROR_OUT_OF_MEMORY,
                     cuMemCreate(&handle, 4 * GRAIN, &prop, 0));
    assert_cuda_error(cudaErrorMemoryAllocation, cudaMalloc(&a, 4 * GRAIN));
    assert_cuda_error(cudaErrorMemoryAllocation, cudaGetLastError());
    assert_cuda(cudaFree(a));
    assert_cuda(cudaMalloc(&a, 3 * GRAIN));
    assert_cuda(cudaFree(a));
}

/* ---- another process ----------------------------------------------------- */

/* What a child does, and whether it was content. */
static bool in_a_child(bool (*what)(void *arg), void *arg)
{
    int code = -1;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        _exit(what(arg) && gpusim_unexpected() == 0 ? 0 : 1);
    }
    assert_int_equal(child, waitpid(child, &code, 0));
    return WIFEXITED(code) && WEXITSTATUS(code) == 0;
}

static bool child_maps(void *arg)
{
    CUdeviceptr at = reserved(GRAIN);
    CUmemGenericAllocationHandle handle = 0;
    uint32_t *here;
    bool good;

    if (cuMemImportFromShareableHandle(
            &handle, (void *)(intptr_t) * (int *)arg,
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != CUDA_SUCCESS ||
        cuMemMap(at, GRAIN, 0, handle, 0) != CUDA_SUCCESS ||
        cuMemSetAccess(at, GRAIN, &both, 1) != CUDA_SUCCESS) {
        return false;
    }
    here = dyt_sim_get(pointer(at), 16); /* has a value here too */
    good = here[3] == 13;
    free(here);
    assert_cuda(case_add_one(pointer(at), 4, NULL));
    assert_cuda(cudaDeviceSynchronize());
    return good;
}

static void another_process_maps_by_descriptor(void **state)
{
    CUdeviceptr at = reserved(GRAIN);
    CUmemGenericAllocationHandle handle = mapped(at, GRAIN);
    uint32_t *here;
    int fd = -1;

    (void)state;
    assert_cuda(case_write(pointer(at), 4, 10, NULL));
    assert_cuda(cudaDeviceSynchronize());
    assert_int_equal(
        CUDA_SUCCESS,
        cuMemExportToShareableHandle(
            &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    assert_true(in_a_child(child_maps, &fd));
    close(fd);
    here = dyt_sim_get(pointer(at), 16);
    assert_int_equal(14, here[3]);
    free(here);
}

static bool child_opens(void *arg)
{
    void *at = NULL;
    uint32_t *here;
    bool good;

    if (cudaIpcOpenMemHandle(&at, *(cudaIpcMemHandle_t *)arg,
                             cudaIpcMemLazyEnablePeerAccess) != cudaSuccess) {
        return false;
    }
    here = dyt_sim_get(at, 16);
    good = here[3] == 13;
    free(here);
    assert_cuda(case_add_one(at, 4, NULL));
    assert_cuda(cudaDeviceSynchronize());
    return good && cudaIpcCloseMemHandle(at) == cudaSuccess;
}

static void another_process_opens_by_handle(void **state)
{
    uint32_t *data = dyt_sim_alloc(100), *here;
    cudaIpcMemHandle_t handle;
    void *own = NULL;

    (void)state;
    assert_cuda(case_write(data, 4, 10, NULL));
    assert_cuda(cudaDeviceSynchronize());
    assert_cuda(cudaIpcGetMemHandle(&handle, data));
    assert_cuda_error(cudaErrorInvalidResourceHandle,
                      cudaIpcOpenMemHandle(&own, handle, 0));
    (void)cudaGetLastError();
    assert_true(in_a_child(child_opens, &handle));
    here = dyt_sim_get(data, 16);
    assert_int_equal(14, here[3]);
    free(here);
    assert_cuda_error(cudaErrorInvalidValue,
                      cudaIpcGetMemHandle(&handle, data + 1));
}

static _Atomic bool is_called;

/* Calls all the time, until it is told to end. */
static void *calls(void *arg)
{
    struct gpusim_machine machine;

    (void)arg;
    while (atomic_load(&is_called)) {
        gpusim_get_machine(&machine);
    }
    return NULL;
}

static bool child_allocates(void *arg)
{
    void *at = NULL;

    (void)arg;
    (void)alarm(20);
    return cudaMalloc(&at, 64) == cudaSuccess && cudaFree(at) == cudaSuccess;
}

/* In the middle of whose call a child begins: it does not have that thread. */
static void a_child_finds_nothing_held(void **state)
{
    pthread_t thread;
    bool all = true;

    (void)state;
    atomic_store(&is_called, true);
    assert_int_equal(0, pthread_create(&thread, NULL, calls, NULL));
    for (uint32_t i = 0; i < 50 && all; i++) {
        all = in_a_child(child_allocates, NULL);
    }
    atomic_store(&is_called, false);
    assert_int_equal(0, pthread_join(thread, NULL));
    assert_true(all);
}

static void pointers_say_what_they_are(void **state)
{
    struct cudaPointerAttributes attributes;
    void *device = dyt_sim_alloc(64), *pinned = NULL;

    (void)state;
    assert_cuda(cudaHostAlloc(&pinned, 64, cudaHostAllocDefault));
    assert_cuda(cudaPointerGetAttributes(&attributes, (char *)device + 63));
    assert_int_equal(cudaMemoryTypeDevice, attributes.type);
    assert_cuda(cudaPointerGetAttributes(&attributes, pinned));
    assert_int_equal(cudaMemoryTypeHost, attributes.type);
    assert_cuda(cudaPointerGetAttributes(&attributes, &attributes));
    assert_int_equal(cudaMemoryTypeUnregistered, attributes.type);
    assert_cuda_error(cudaErrorInvalidValue,
                      cudaMemcpy(pinned, device, 4, cudaMemcpyHostToDevice));
}

static const struct CMUnitTest tests[] = {
    sim_test(memory_comes_and_goes_at_one_address),
    sim_test(unmapped_memory_is_found),
    sim_test(queued_work_keeps_nothing_mapped),
    sim_test(wrong_virtual_calls_are_refused),
    sim_test(memory_ends),
    sim_test(another_process_maps_by_descriptor),
    sim_test(another_process_opens_by_handle),
    sim_test(a_child_finds_nothing_held),
    sim_test(pointers_say_what_they_are),
};
DYT_TEST_MAIN(tests)
