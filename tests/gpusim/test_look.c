/* What memory is that somebody else allocated, and how it can be given away:
 * allocations, pools, managed and pinned memory, pieces of expandable
 * segments. */
#include "lend_case.h"

static struct dyti_memory_look look_at(const void *at, uint64_t bytes)
{
    struct dyti_memory_look look = {0};

    assert_ok(ops->look(at, bytes, &look));
    assert_int_equal(look.way == DYTI_MEMORY_WAY_NONE, look.why[0] != '\0');
    return look;
}

static void allocations_are_known(void **state)
{
    struct dyti_memory_look look;
    char *plain = NULL, *pooled = NULL, *managed = NULL, host[64];

    (void)state;
    assert_cuda(cudaMalloc((void **)&plain, 1000));
    assert_cuda(cudaMallocAsync((void **)&pooled, 1000, NULL));
    assert_cuda(cudaMallocManaged((void **)&managed, 1000, 1));
    look = look_at(plain + 10, 990);
    assert_int_equal(DYTI_MEMORY_DEVICE, look.kind);
    assert_int_equal(DYTI_MEMORY_WAY_IPC, look.way);
    assert_ptr_equal(plain, look.base);
    assert_int_equal(1000, look.bytes);
    assert_string_equal(UUID_OF("00"), look.device);
    look = look_at(pooled, 1000);
    assert_int_equal(DYTI_MEMORY_POOL, look.kind);
    assert_int_equal(DYTI_MEMORY_WAY_NONE, look.way);
    assert_int_equal(DYTI_MEMORY_MANAGED, look_at(managed, 4).kind);
    assert_int_equal(DYTI_MEMORY_HOST, look_at(host, 4).kind);
    assert_int_equal(CUDA_SUCCESS, cuMemHostRegister(host, sizeof(host), 0));
    look = look_at(host + 1, 4);
    assert_int_equal(DYTI_MEMORY_PINNED, look.kind);
    assert_string_equal("", look.device);
    assert_status(DYT_ERR_INVALID, ops->look(host + 1, 64, &look));
    assert_status(DYT_ERR_INVALID, ops->look(plain + 999, 2, &look));
    assert_error_has("ends after 1 bytes");
    assert_int_equal(CUDA_SUCCESS, cuMemHostUnregister(host));
    assert_cuda(cudaFree(plain));
    assert_cuda(cudaFreeAsync(pooled, NULL));
    assert_cuda(cudaFree(managed));
    /* What is gone is nobody's. */
    assert_int_equal(DYTI_MEMORY_HOST, look_at(plain, 4).kind);
    assert_int_equal(0, gpusim_leaks());
}

/* Pieces of an expandable segment, one with a descriptor and one without. */
static void mapped_memory_is_known(void **state)
{
    CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemAccessDesc open = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle memory[2] = {0};
    struct dyti_memory_look look;
    CUdeviceptr at = 0;
    char *base;

    (void)state;
    assert_int_equal(CUDA_SUCCESS, cuMemAddressReserve(&at, 8 * MIB, 0, 0, 0));
    base = (char *)(uintptr_t)at;
    for (unsigned i = 0; i < 2; i++) {
        prop.requestedHandleTypes =
            i == 0 ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                   : CU_MEM_HANDLE_TYPE_NONE;
        assert_int_equal(CUDA_SUCCESS,
                         cuMemCreate(&memory[i], 2 * MIB, &prop, 0));
        assert_int_equal(CUDA_SUCCESS,
                         cuMemMap(at + i * 2 * MIB, 2 * MIB, 0, memory[i], 0));
        assert_int_equal(CUDA_SUCCESS, cuMemRelease(memory[i]));
    }
    assert_int_equal(CUDA_SUCCESS, cuMemSetAccess(at, 4 * MIB, &open, 1));
    look = look_at(base + 5, 2 * MIB - 5);
    assert_int_equal(DYTI_MEMORY_MAPPED, look.kind);
    assert_int_equal(DYTI_MEMORY_WAY_FD, look.way);
    assert_ptr_equal(base, look.base);
    assert_int_equal(2 * MIB, look.bytes);
    look = look_at(base + 2 * MIB, MIB);
    assert_int_equal(DYTI_MEMORY_MAPPED, look.kind);
    assert_int_equal(DYTI_MEMORY_WAY_NONE, look.way);
    assert_non_null(strstr(look.why, "requestedHandleTypes"));
    assert_status(DYT_ERR_INVALID, ops->look(base, 3 * MIB, &look));
    /* Addresses of the same reservation that nothing lies at. */
    look = look_at(base + 5 * MIB, 4);
    assert_int_equal(DYTI_MEMORY_HOST, look.kind);
    /* It says it can, and cannot. */
    gpusim_fail_call("cuMemExportToShareableHandle", 1,
                     CUDA_ERROR_NOT_SUPPORTED);
    look = look_at(base, 4);
    assert_int_equal(DYTI_MEMORY_WAY_NONE, look.way);
    assert_non_null(strstr(look.why, "CUDA_ERROR_NOT_SUPPORTED"));
    assert_int_equal(CUDA_SUCCESS, cuMemUnmap(at, 4 * MIB));
    assert_int_equal(CUDA_SUCCESS, cuMemAddressFree(at, 8 * MIB));
    assert_int_equal(0, gpusim_leaks());
}

static const struct CMUnitTest tests[] = {
    lend_test(allocations_are_known),
    lend_test(mapped_memory_is_known),
};
LEND_TEST_MAIN(tests)
