/* What memory of a device has besides the contract that all memory keeps
 * (contract.memory_cuda): devices by name, parts, and every call of the driver
 * that may fail. */
#include "lend_case.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FEW 12u /* parts */

static void machine(int devices, uint64_t bytes, bool has_vmm)
{
    struct gpusim_machine m;

    gpusim_get_machine(&m);
    m.device_count = devices;
    m.memory_bytes = bytes;
    m.has_vmm = has_vmm;
    gpusim_set_machine(&m);
}

/* ---- which device -------------------------------------------------------- */

static void devices_have_names(void **state)
{
    int device = -1;

    (void)state;
    assert_ok(ops->use(UUID_OF("00")));
    assert_status(DYT_ERR_INVALID, ops->use("0"));
    assert_error_has("index");
    assert_error_has(UUID_OF("00"));
    assert_status(DYT_ERR_INVALID, ops->use(""));
    machine(2, 64 * MIB, true);
    assert_status(DYT_ERR_INVALID, ops->use(NULL));
    assert_error_has(UUID_OF("00") ", " UUID_OF("01"));
    assert_status(DYT_ERR_INVALID, ops->use(UUID_OF("02")));
    assert_error_has("nobody");
    assert_status(DYT_ERR_INVALID, ops->use(UUID_OF("001")));
    assert_ok(ops->use("gpu-73696D75-6c61-7465-6420-677075202001"));
    assert_cuda(cudaGetDevice(&device));
    assert_int_equal(1, device);
    assert_ok(ops->use("73696d756c617465642067707520"
                       "2000"));
    assert_cuda(cudaGetDevice(&device));
    assert_int_equal(0, device);
    machine(0, 64 * MIB, true);
    assert_status(DYT_ERR_UNSUPPORTED, ops->use(NULL));
    assert_error_has("no device");
}

/* A thread without a device is told so, but what needs none works. */
static void *without_device(void *arg)
{
    struct dyti_segment_mem mem = {0};
    struct dyti_memory_look look;
    void *at = NULL;
    int handle = -1;

    (void)arg;
    assert_ok(ops->create("lost", DYTI_PAGES_VMM, &handle));
    assert_status(DYT_ERR_STATE,
                  ops->resize(handle, DYTI_PAGES_VMM, MIB, NULL, 0));
    assert_error_has("use()");
    assert_status(DYT_ERR_STATE, ops->map(handle, DYTI_PAGES_VMM, MIB, &mem));
    assert_status(DYT_ERR_STATE, ops->host_alloc(MIB, &at));
    assert_status(DYT_ERR_STATE, ops->look(&mem, 1, &look));
    assert_int_equal(DYTI_PAGES_COUNT, ops->probe(MIB));
    assert_true(UINT64_MAX == ops->available(DYTI_PAGES_VMM));
    assert_int_equal(0, ops->available(DYTI_PAGES_4K));
    ops->close(handle);
    return NULL;
}

static void threads_need_a_device(void **state)
{
    pthread_t thread;

    (void)state;
    assert_int_equal(0, pthread_create(&thread, NULL, without_device, NULL));
    assert_int_equal(0, pthread_join(thread, NULL));
}

/* Where the virtual memory calls are missing there is one kind less. */
static void kinds_are_probed(void **state)
{
    struct dyti_segment_mem mem = {0};
    int handle = -1;

    (void)state;
    assert_int_equal(DYTI_PAGES_VMM, ops->probe(MIB));
    machine(1, 1 * MIB, true); /* full: that is no reason */
    assert_true(ops->has(DYTI_PAGES_VMM) && ops->has(DYTI_PAGES_IPC));
    machine(1, 64 * MIB, false);
    assert_false(ops->has(DYTI_PAGES_VMM));
    assert_int_equal(DYTI_PAGES_IPC, ops->probe(MIB));
    assert_ok(ops->create("plain", DYTI_PAGES_IPC, &handle));
    assert_ok(ops->resize(handle, DYTI_PAGES_IPC, 3 * MIB, NULL, 0));
    assert_status(DYT_ERR_INVALID, ops->map(handle, DYTI_PAGES_VMM, MIB, &mem));
    assert_error_has("IPC");
    assert_ok(ops->map(handle, DYTI_PAGES_IPC, MIB, &mem));
    ops->unmap(&mem);
    assert_int_equal(4 * MIB, gpusim_held_bytes());
    ops->close(handle); /* its owner's: the allocation goes */
    assert_int_equal(0, gpusim_held_bytes());
    assert_int_equal(0, gpusim_leaks());
}

/* ---- parts --------------------------------------------------------------- */

static void wrong_parts_are_refused(void **state)
{
    static const uint64_t odd[] = {2 * MIB, 3 * MIB, 4 * MIB};
    static const uint64_t falling[] = {4 * MIB, 2 * MIB, 4 * MIB};
    static const uint64_t less[] = {2 * MIB}, none[] = {0, 4 * MIB};
    struct dyti_segment_mem mem = {0};
    uint64_t many[DYTI_CUDA_PARTS + 1];
    int handle = -1;

    (void)state;
    for (uint64_t i = 0; i <= DYTI_CUDA_PARTS; i++) {
        many[i] = (i + 1) * 2 * MIB;
    }
    assert_ok(ops->create("parts", DYTI_PAGES_VMM, &handle));
#define REFUSED(parts, count)                                                  \
    assert_status(DYT_ERR_INVALID, ops->resize(handle, DYTI_PAGES_VMM,         \
                                               4 * MIB, (parts), (count)))
    REFUSED(odd, 3);
    REFUSED(falling, 3);
    REFUSED(less, 1);
    REFUSED(none, 2);
    REFUSED(none, 0);
#undef REFUSED
    assert_status(DYT_ERR_INVALID, ops->resize(handle, DYTI_PAGES_VMM,
                                               sizeof(many) / 8 * 2 * MIB, many,
                                               DYTI_CUDA_PARTS + 1));
    assert_error_has("250");
    assert_ok(ops->resize(handle, DYTI_PAGES_VMM, FEW * 2 * MIB, many, FEW));
    assert_ok(ops->map(handle, DYTI_PAGES_VMM, FEW * 2 * MIB, &mem));
    assert_ok(ops->drop(&mem, 0, 5 * 2 * MIB));
    assert_int_equal((FEW - 5) * 2 * MIB, gpusim_held_bytes());
    ops->unmap(&mem);
    /* the handle's */
    assert_int_equal((FEW - 5) * 2 * MIB, gpusim_held_bytes());
    ops->close(handle);
    assert_int_equal(0, gpusim_held_bytes());
    assert_int_equal(0, gpusim_leaks());
}

/* As many descriptors as there may be, each of its own part. */
static void a_note_carries_all_parts(void **state)
{
    static struct dyti_cuda_note note, read;
    int fd[DYTI_CUDA_PARTS], got[DYTI_CUDA_PARTS], handle = -1;
    struct stat other;

    (void)state;
    note = (struct dyti_cuda_note){.generation = 7,
                                   .bytes = DYTI_CUDA_PARTS * 2 * MIB,
                                   .pages = DYTI_PAGES_VMM,
                                   .part_count = DYTI_CUDA_PARTS};
    for (uint64_t i = 0; i < DYTI_CUDA_PARTS; i++) {
        note.part[i].end = (i + 1) * 2 * MIB;
        note.part[i].woken = i % 5 == 3 ? 0 : 7;
        fd[i] =
            note.part[i].woken == 0 ? -1 : memfd_create("part", MFD_CLOEXEC);
        assert_int_equal(0, fd[i] < 0 ? 0 : ftruncate(fd[i], (off_t)(i + 1)));
    }
    assert_ok(dyti_cuda_segment_create("note", &handle));
    assert_int_equal(DYT_PENDING, dyti_cuda_segment_peek(handle, &read));
    assert_ok(dyti_cuda_segment_write(handle, &note, fd));
    for (int again = 0; again < 2; again++) { /* a look takes nothing */
        assert_ok(dyti_cuda_segment_read(handle, &read, got));
        for (uint32_t i = 0; i < DYTI_CUDA_PARTS; i++) {
            assert_int_equal(fd[i] < 0, got[i] < 0);
            if (got[i] >= 0) {
                assert_int_equal(0, fstat(got[i], &other));
                assert_int_equal(i + 1, other.st_size);
            }
        }
        dyti_cuda_segment_close_fds(got);
    }
    note.generation = 8; /* in the place of the first */
    assert_ok(dyti_cuda_segment_write(handle, &note, fd));
    assert_ok(dyti_cuda_segment_peek(handle, &read));
    assert_int_equal(8, read.generation);
    dyti_cuda_segment_clear(handle);
    assert_int_equal(DYT_PENDING, dyti_cuda_segment_peek(handle, &read));
    close(handle);
    handle = memfd_create("other", MFD_CLOEXEC); /* no such handle */
    assert_status(DYT_ERR_INVALID, dyti_cuda_segment_peek(handle, &read));
    close(handle);
    dyti_cuda_segment_close_fds(fd);
}

/* Waking in a full device: what woke stays awake, the rest can come later; a
 * kernel that touches what sleeps is found. */
static void a_full_device_wakes_in_part(void **state)
{
    static const uint64_t part[] = {2 * MIB, 4 * MIB, 6 * MIB};
    struct dyti_segment_mem mem = {0}, peer = {0};
    int handle = -1;
    uint64_t bytes = 0;

    (void)state;
    machine(1, 6 * MIB, true);
    assert_ok(ops->create("full", DYTI_PAGES_VMM, &handle));
    assert_status(DYT_ERR_NOMEM,
                  ops->resize(handle, DYTI_PAGES_VMM, 8 * MIB, NULL, 0));
    assert_error_has("8 MiB wanted, 6 MiB of the device's 6 are free");
    assert_ok(ops->resize(handle, DYTI_PAGES_VMM, 6 * MIB, part, 3));
    assert_ok(ops->map(handle, DYTI_PAGES_VMM, 6 * MIB, &mem));
    assert_ok(ops->map(handle, DYTI_PAGES_VMM, 6 * MIB, &peer));
    assert_int_equal(0, ops->available(DYTI_PAGES_VMM));
    assert_ok(ops->drop(&mem, 2 * MIB, 4 * MIB));
    assert_int_equal(0, ops->available(DYTI_PAGES_VMM)); /* a peer has it */
    assert_ok(ops->refresh(&peer));
    assert_int_equal(4 * MIB, ops->available(DYTI_PAGES_VMM));
    machine(1, 4 * MIB, true);
    assert_status(DYT_ERR_NOMEM, ops->wake(&mem, 2 * MIB, 4 * MIB));
    assert_error_has("2 MiB wanted, 0 MiB of the device's 4 are free");
    assert_ok(ops->touched(&mem, 0, 6 * MIB, &bytes));
    assert_int_equal(4 * MIB, bytes);
    assert_ok(ops->refresh(&peer));
    assert_ok(ops->touched(&peer, 0, 6 * MIB, &bytes));
    assert_int_equal(4 * MIB, bytes);
    machine(1, 6 * MIB, true);
    assert_ok(ops->wake(&mem, 2 * MIB, 4 * MIB));
    assert_ok(ops->drop(&mem, 4 * MIB, 2 * MIB));
    gpusim_expect(GPUSIM_UNMAPPED);
    assert_cuda_error(cudaErrorIllegalAddress,
                      (cudaMemset((char *)mem.base + 4 * MIB, 1, 8),
                       cudaDeviceSynchronize()));
    ops->unmap(&peer);
    ops->unmap(&mem);
    ops->close(handle);
}

/* The owner may map it twice: whichever mapping changes, the other follows. */
static void an_owner_maps_twice(void **state)
{
    static const uint64_t part[] = {2 * MIB, 4 * MIB};
    struct dyti_segment_mem one = {0}, two = {0};
    uint64_t bytes = 0;
    int handle = -1;

    (void)state;
    assert_ok(ops->create("twice", DYTI_PAGES_VMM, &handle));
    assert_ok(ops->resize(handle, DYTI_PAGES_VMM, 4 * MIB, part, 2));
    assert_ok(ops->map(handle, DYTI_PAGES_VMM, 4 * MIB, &one));
    assert_ok(ops->map(handle, DYTI_PAGES_VMM, 4 * MIB, &two));
    assert_ok(ops->drop(&one, 0, 2 * MIB));
    assert_ok(ops->wake(&two, 0, 2 * MIB)); /* had not heard of it */
    assert_cuda(cudaMemset(two.base, 6, 16));
    assert_cuda(cudaDeviceSynchronize());
    assert_ok(ops->drop(&one, 2 * MIB, 2 * MIB)); /* nor this one */
    assert_ok(ops->touched(&one, 0, 4 * MIB, &bytes));
    assert_int_equal(2 * MIB, bytes);
    for (int i = 0; i < 2; i++) {
        unsigned char *value = dyt_sim_get(i == 0 ? one.base : two.base, 4);

        assert_int_equal(6, value[3]);
        free(value);
    }
    assert_ok(ops->refresh(&two));
    assert_int_equal(2 * MIB, gpusim_held_bytes());
    ops->unmap(&one);
    ops->unmap(&two);
    ops->close(handle);
    assert_int_equal(0, gpusim_held_bytes());
    assert_int_equal(0, gpusim_leaks());
}

/* A mapping is for the device in use, wherever the memory is. */
static void a_device_maps_another_ones_memory(void **state)
{
    struct dyti_segment_mem mem = {0}, peer = {0};
    unsigned char *value;
    int handle = -1;

    (void)state;
    machine(2, 64 * MIB, true);
    assert_ok(ops->use(UUID_OF("00")));
    assert_ok(ops->create("near", DYTI_PAGES_VMM, &handle));
    assert_ok(ops->resize(handle, DYTI_PAGES_VMM, 2 * MIB, NULL, 0));
    assert_ok(ops->map(handle, DYTI_PAGES_VMM, 2 * MIB, &mem));
    assert_cuda(cudaMemset(mem.base, 3, 2 * MIB));
    assert_cuda(cudaDeviceSynchronize());
    assert_ok(ops->use(UUID_OF("01")));
    assert_int_equal(64 * MIB, ops->available(DYTI_PAGES_VMM));
    assert_ok(ops->map(handle, DYTI_PAGES_VMM, 2 * MIB, &peer));
    value = dyt_sim_get(peer.base, 4);
    assert_int_equal(3, value[2]);
    free(value);
    ops->unmap(&peer);
    machine(1, 64 * MIB, true); /* its device is the first one alone */
    assert_ok(ops->use(NULL));
    ops->unmap(&mem);
    ops->close(handle);
    assert_int_equal(0, gpusim_leaks());
}

/* ---- calls that fail ----------------------------------------------------- */

/* What is still there afterwards is given back, whatever has failed. */
static bool whole_life(enum dyti_page_kind pages)
{
    static const uint64_t part[] = {2 * MIB, 4 * MIB};
    struct dyti_segment_mem mem = {0}, peer = {0};
    struct dyti_memory_look look;
    void *pinned = NULL;
    int handle = -1;
    bool good = ops->use(NULL) == DYT_OK &&
                ops->create("life", pages, &handle) == DYT_OK &&
                ops->resize(handle, pages, 4 * MIB, part, 2) == DYT_OK &&
                ops->map(handle, pages, 4 * MIB, &mem) == DYT_OK &&
                ops->map(handle, pages, 4 * MIB, &peer) == DYT_OK &&
                ops->drop(&mem, 2 * MIB, 2 * MIB) == DYT_OK &&
                ops->refresh(&peer) == DYT_OK &&
                ops->wake(&mem, 2 * MIB, 2 * MIB) == DYT_OK &&
                ops->refresh(&peer) == DYT_OK &&
                ops->host_alloc(MIB, &pinned) == DYT_OK &&
                ops->look(pinned, 8, &look) == DYT_OK &&
                ops->look(mem.base, 8, &look) == DYT_OK;

    ops->host_free(pinned);
    ops->unmap(&peer);
    ops->unmap(&mem);
    if (handle >= 0) {
        ops->close(handle);
    }
    return good;
}

static void every_call_may_fail(void **state)
{
    static const enum dyti_page_kind kinds[] = {DYTI_PAGES_VMM, DYTI_PAGES_IPC};

    (void)state;
    for (size_t k = 0; k < 2; k++) {
        uint64_t nth = 0, failed = 0;

        do {
            gpusim_fail_call(NULL, ++nth, 0);
            if (!whole_life(kinds[k])) {
                failed++;
                assert_true(gpusim_has_failed());
                assert_true(strstr(dyti_error_text(), "CUDA_ERROR_UNKNOWN") ||
                            strstr(dyti_error_text(), "cudaErrorUnknown"));
            }
            assert_int_equal(0, gpusim_leaks());
            assert_int_equal(0, gpusim_held_bytes());
        } while (gpusim_has_failed());
        /* All but what only finds out how memory can be given. */
        assert_in_range(nth - 1 - failed, 0, 3);
        assert_true(failed > (k == 0 ? 20 : 3));
    }
}

/* Calls that "any" leaves out: they give back, or ask. */
static void calls_that_give_back_may_fail(void **state)
{
    static const char *const calls[] = {
        "cuMemUnmap",        "cuMemRelease",   "cuDeviceGetCount",
        "cuMemGetInfo",      "cuCtxGetDevice", "cuMemGetAllocationGranularity",
        "cuIpcGetMemHandle", "cuStreamDestroy"};

    (void)state;
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        for (uint64_t nth = 1; nth <= 3; nth++) {
            gpusim_reset();
            gpusim_fail_call(calls[i], nth, CUDA_ERROR_UNKNOWN);
            /* In good order or with a failure that has words, and never a
             * fault; what could not be given back is the simulator's to
             * close. */
            if (!whole_life(DYTI_PAGES_VMM)) {
                assert_true(gpusim_has_failed());
                assert_true(dyti_error_text()[0] != '\0');
            }
            assert_int_equal(0, gpusim_unexpected());
        }
    }
    gpusim_reset();
}

static const struct CMUnitTest tests[] = {
    lend_test(devices_have_names),
    lend_test(threads_need_a_device),
    lend_test(kinds_are_probed),
    lend_test(wrong_parts_are_refused),
    lend_test(a_note_carries_all_parts),
    lend_test(a_full_device_wakes_in_part),
    lend_test(an_owner_maps_twice),
    lend_test(a_device_maps_another_ones_memory),
    lend_test(every_call_may_fail),
    lend_test(calls_that_give_back_may_fail),
};
DYT_TEST_MAIN(tests)
