/* Arenas of the device: parts that sleep and wake at one address, peers that
 * map them, and every call of the driver that may fail. */
#include "device/cuda/arena.h"
#include "gpusim/cases.h"
#include "gpusim/sim_test.h"

#include <sys/wait.h>

#define GRAIN ((uint64_t)2 << 20)

static const struct dyti_cuda_memory_calls calls = {
    .error_name = cuGetErrorName,
    .granularity = cuMemGetAllocationGranularity,
    .reserve = cuMemAddressReserve,
    .unreserve = cuMemAddressFree,
    .create = cuMemCreate,
    .release = cuMemRelease,
    .map = cuMemMap,
    .unmap = cuMemUnmap,
    .access = cuMemSetAccess,
    .give = cuMemExportToShareableHandle,
    .take = cuMemImportFromShareableHandle};

static const uint64_t sizes[] = {3 * GRAIN - 5, 1, 2 * GRAIN};
static const uint64_t whole[] = {3 * GRAIN, GRAIN, 2 * GRAIN};

static struct dyti_cuda_arena *arena_of(
    const struct dyti_cuda_memory_calls *with)
{
    struct dyti_cuda_arena *a = NULL;

    assert_ok(dyti_cuda_arena_open(with, 0, sizes, 3, &a));
    return a;
}

static void *part_at(const struct dyti_cuda_arena *a, uint32_t part)
{
    return (void *)(uintptr_t)dyti_cuda_arena_at(a, part);
}

static void write_part(const struct dyti_cuda_arena *a, uint32_t part,
                       uint32_t first)
{
    assert_cuda(case_write(part_at(a, part), 8, first, NULL));
    assert_cuda(cudaDeviceSynchronize());
}

static uint32_t word_of(const struct dyti_cuda_arena *a, uint32_t part,
                        uint32_t index)
{
    uint32_t *here = dyt_sim_get(part_at(a, part), 32), word = here[index];

    free(here);
    return word;
}

/* Any order of sleep and wake, against what should be held; parts that are
 * awake keep what they hold, and every part its address. */
static void parts_come_and_go(void **state)
{
    struct dyti_cuda_arena *a = arena_of(&calls);
    uint32_t first[3] = {0}, seed = 5;
    bool awake[3] = {0};
    CUdeviceptr at[3];

    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        at[i] = dyti_cuda_arena_at(a, i);
        assert_int_equal(whole[i], dyti_cuda_arena_bytes(a, i));
    }
    for (uint32_t round = 0; round < 60; round++) {
        uint64_t held = 0;
        uint32_t part = (seed = seed * 1103515245u + 12345u) / 65536u % 3;
        bool up = seed / 8388608u % 2 == 0;

        assert_ok(up ? dyti_cuda_arena_wake(a, part)
                     : dyti_cuda_arena_sleep(a, part));
        if (up && !awake[part]) {
            write_part(a, part, first[part] = round);
        }
        awake[part] = up;
        for (uint32_t i = 0; i < 3; i++) {
            held += awake[i] ? whole[i] : 0;
            assert_true(at[i] == dyti_cuda_arena_at(a, i));
            assert_int_equal(awake[i], dyti_cuda_arena_is_awake(a, i));
            if (awake[i]) {
                assert_int_equal(first[i] + 7, word_of(a, i, 7));
            }
        }
        assert_int_equal(held, gpusim_held_bytes());
    }
    dyti_cuda_arena_close(a);
    assert_int_equal(0, gpusim_held_bytes());
    assert_int_equal(0, gpusim_leaks());
}

static void a_sleeping_part_is_not_there(void **state)
{
    struct dyti_cuda_arena *a = arena_of(&calls);
    uint32_t *out = dyt_sim_alloc(4);

    (void)state;
    assert_ok(dyti_cuda_arena_wake(a, 0));
    assert_ok(dyti_cuda_arena_wake(a, 1));
    write_part(a, 1, 3);
    assert_ok(dyti_cuda_arena_sleep(a, 1));
    gpusim_expect(GPUSIM_UNMAPPED);
    assert_cuda(case_read(part_at(a, 1), out, NULL));
    assert_cuda_error(cudaErrorIllegalAddress, cudaDeviceSynchronize());
    assert_int_equal(1, gpusim_faults(GPUSIM_UNMAPPED));
    dyti_cuda_arena_close(a);
}

static void a_full_device_refuses(void **state)
{
    struct dyti_cuda_arena *a = arena_of(&calls);
    struct gpusim_machine machine;

    (void)state;
    gpusim_get_machine(&machine);
    machine.memory_bytes = 4 * GRAIN;
    gpusim_set_machine(&machine);
    assert_ok(dyti_cuda_arena_wake(a, 0));
    write_part(a, 0, 40);
    assert_status(DYT_ERR_NOMEM, dyti_cuda_arena_wake(a, 2));
    assert_non_null(strstr(dyti_error_text(), "4 MiB"));
    assert_false(dyti_cuda_arena_is_awake(a, 2));
    assert_int_equal(47, word_of(a, 0, 7));
    assert_ok(dyti_cuda_arena_sleep(a, 0)); /* as the text says */
    assert_ok(dyti_cuda_arena_wake(a, 2));
    dyti_cuda_arena_close(a);
    assert_int_equal(0, gpusim_leaks());
}

static void wrong_calls_are_refused(void **state)
{
    static const uint64_t none[] = {GRAIN, 0}, huge[] = {UINT64_MAX - 9, 1};
    static const uint64_t both[] = {UINT64_MAX - GRAIN, GRAIN + 1};
    struct dyti_cuda_arena *a = NULL;
    struct gpusim_machine machine;
    int fd = -7;

    (void)state;
    assert_status(DYT_ERR_INVALID,
                  dyti_cuda_arena_open(&calls, 0, none, 0, &a));
    assert_status(DYT_ERR_INVALID,
                  dyti_cuda_arena_open(&calls, 0, none, 2, &a));
    assert_status(DYT_ERR_OVERFLOW,
                  dyti_cuda_arena_open(&calls, 0, huge, 2, &a));
    assert_status(DYT_ERR_OVERFLOW,
                  dyti_cuda_arena_open(&calls, 0, both, 2, &a));
    assert_null(a);
    a = arena_of(&calls);
    assert_status(DYT_ERR_INVALID, dyti_cuda_arena_wake(a, 3));
    assert_status(DYT_ERR_INVALID, dyti_cuda_arena_sleep(a, 3));
    assert_status(DYT_ERR_INVALID, dyti_cuda_arena_export(a, 3, &fd));
    assert_status(DYT_ERR_INVALID, dyti_cuda_arena_adopt(a, 3, 0));
    assert_status(DYT_ERR_STATE, dyti_cuda_arena_export(a, 0, &fd));
    assert_status(DYT_ERR_DEVICE, dyti_cuda_arena_adopt(a, 0, -1));
    assert_ok(dyti_cuda_arena_wake(a, 0));
    assert_status(DYT_ERR_STATE, dyti_cuda_arena_adopt(a, 0, 0));
    assert_int_equal(-7, fd);
    dyti_cuda_arena_close(a);
    dyti_cuda_arena_close(NULL);
    gpusim_get_machine(&machine);
    machine.has_vmm = false;
    gpusim_set_machine(&machine);
    assert_status(DYT_ERR_UNSUPPORTED,
                  dyti_cuda_arena_open(&calls, 0, sizes, 3, &a));
    assert_int_equal(0, gpusim_leaks());
}

/* ---- calls that fail ----------------------------------------------------- */

static CUresult no_map(CUdeviceptr at, size_t bytes, size_t offset,
                       CUmemGenericAllocationHandle handle,
                       unsigned long long flags)
{
    (void)at, (void)bytes, (void)offset, (void)handle, (void)flags;
    return CUDA_ERROR_UNKNOWN;
}

static CUresult no_access(CUdeviceptr at, size_t bytes,
                          const CUmemAccessDesc *desc, size_t count)
{
    (void)at, (void)bytes, (void)desc, (void)count;
    return CUDA_ERROR_UNKNOWN;
}

static CUresult no_unmap(CUdeviceptr at, size_t bytes)
{
    (void)at, (void)bytes;
    return CUDA_ERROR_UNKNOWN;
}

/* Whichever step of waking fails, nothing is left of it. */
static void a_failed_step_is_taken_back(void **state)
{
    (void)state;
    for (int how = 0; how < 2; how++) {
        struct dyti_cuda_memory_calls bad = calls;
        struct dyti_cuda_arena *a = arena_of(&bad);

        bad.map = how == 0 ? no_map : calls.map;
        bad.access = how == 1 ? no_access : calls.access;
        assert_status(DYT_ERR_DEVICE, dyti_cuda_arena_wake(a, 0));
        assert_false(dyti_cuda_arena_is_awake(a, 0));
        assert_int_equal(0, gpusim_held_bytes());
        bad = calls;
        assert_ok(dyti_cuda_arena_wake(a, 0));
        bad.unmap = no_unmap;
        assert_status(DYT_ERR_DEVICE, dyti_cuda_arena_sleep(a, 0));
        assert_true(dyti_cuda_arena_is_awake(a, 0));
        bad = calls;
        dyti_cuda_arena_close(a);
        assert_int_equal(0, gpusim_leaks());
    }
}

/* ---- another process ----------------------------------------------------- */

static bool child_adopts(int fd)
{
    struct dyti_cuda_arena *a = arena_of(&calls);
    bool good =
        dyti_cuda_arena_adopt(a, 2, fd) == DYT_OK && word_of(a, 2, 3) == 13;

    assert_cuda(case_add_one(part_at(a, 2), 4, NULL));
    assert_cuda(cudaDeviceSynchronize());
    return dyti_cuda_arena_sleep(a, 2) == DYT_OK && good &&
           gpusim_unexpected() == 0;
}

/* The address differs between processes; the memory does not. */
static void a_peer_maps_a_part(void **state)
{
    struct dyti_cuda_arena *a = arena_of(&calls);
    int fd = -1, code = -1;
    pid_t child;

    (void)state;
    assert_ok(dyti_cuda_arena_wake(a, 2));
    write_part(a, 2, 10);
    assert_ok(dyti_cuda_arena_export(a, 2, &fd));
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(child_adopts(fd) ? 0 : 1);
    }
    assert_int_equal(child, waitpid(child, &code, 0));
    assert_true(WIFEXITED(code) && WEXITSTATUS(code) == 0);
    close(fd);
    assert_int_equal(14, word_of(a, 2, 3));
    dyti_cuda_arena_close(a);
    assert_int_equal(0, gpusim_leaks());
}

static const struct CMUnitTest tests[] = {
    sim_test(parts_come_and_go),
    sim_test(a_sleeping_part_is_not_there),
    sim_test(a_full_device_refuses),
    sim_test(wrong_calls_are_refused),
    sim_test(a_failed_step_is_taken_back),
    sim_test(a_peer_maps_a_part),
};
DYT_TEST_MAIN(tests)
