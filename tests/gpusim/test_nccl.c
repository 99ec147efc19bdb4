/* The simulated NCCL: what it does, and that it finds what NCCL would let hang
 * or corrupt.  Both ranks are this one thread's: nothing blocks. */
#include "gpusim/gpusim_nccl.h"
#include "gpusim/sim_test.h"

#include "include/nccl.h"

#define COUNT 1000u

struct pair {
    ncclComm_t comm[2];
    cudaStream_t stream[2];
    float *at[2]; /* COUNT each, of value rank + 1 */
};

static ncclConfig_t config_of(void)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;

    config.blocking = 0;
    return config;
}

/* Until a communicator says something else than "in progress". */
static ncclResult_t settled(ncclComm_t comm)
{
    ncclResult_t now = ncclInProgress;

    while (now == ncclInProgress) {
        if (ncclCommGetAsyncError(comm, &now) != ncclSuccess) {
            return ncclInvalidArgument;
        }
    }
    return now;
}

static void both_settle(const struct pair *p)
{
    assert_int_equal(ncclSuccess, settled(p->comm[0]));
    assert_int_equal(ncclSuccess, settled(p->comm[1]));
}

static struct pair pair_new(void)
{
    struct pair p;
    ncclUniqueId id;

    assert_int_equal(ncclSuccess, ncclGetUniqueId(&id));
    for (int r = 0; r < 2; r++) {
        ncclConfig_t config = config_of();
        float value[COUNT];

        assert_int_equal(ncclInProgress,
                         ncclCommInitRankConfig(&p.comm[r], 2, id, r, &config));
        assert_cuda(
            cudaStreamCreateWithFlags(&p.stream[r], cudaStreamNonBlocking));
        p.at[r] = dyt_sim_alloc(sizeof(value));
        for (uint32_t i = 0; i < COUNT; i++) {
            value[i] = (float)(r + 1);
        }
        assert_cuda(
            cudaMemcpy(p.at[r], value, sizeof(value), cudaMemcpyHostToDevice));
    }
    both_settle(&p);
    return p;
}

static void pair_abort(struct pair *p)
{
    assert_int_equal(ncclSuccess, ncclGroupStart());
    assert_int_equal(ncclSuccess, ncclCommAbort(p->comm[0]));
    assert_int_equal(ncclSuccess, ncclCommAbort(p->comm[1]));
    assert_int_equal(ncclSuccess, ncclGroupEnd());
    for (int r = 0; r < 2; r++) {
        assert_cuda(cudaStreamSynchronize(p->stream[r]));
        assert_cuda(cudaStreamDestroy(p->stream[r]));
        assert_cuda(cudaFree(p->at[r]));
    }
}

static void pair_close(struct pair *p)
{
    assert_int_equal(ncclInProgress, ncclCommFinalize(p->comm[0]));
    assert_int_equal(ncclInProgress, ncclCommFinalize(p->comm[1]));
    both_settle(p);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(ncclSuccess, ncclCommDestroy(p->comm[r]));
        assert_cuda(cudaStreamDestroy(p->stream[r]));
        assert_cuda(cudaFree(p->at[r]));
    }
    assert_int_equal(0, gpusim_leaks());
}

static float first_of(const float *at)
{
    float *here = dyt_sim_get(at, sizeof(*here));
    float value = here[0];

    free(here);
    return value;
}

static ncclResult_t reduce(const struct pair *p, int r, size_t count)
{
    return ncclAllReduce(p->at[r], p->at[r], count, ncclFloat32, ncclSum,
                         p->comm[r], p->stream[r]);
}

static void ranks_add_up(void **state)
{
    struct pair p = pair_new();

    (void)state;
    for (int round = 0; round < 3; round++) {
        assert_int_equal(ncclInProgress, reduce(&p, 0, COUNT));
        assert_int_equal(ncclInProgress, reduce(&p, 1, COUNT));
        both_settle(&p);
        assert_cuda(cudaStreamSynchronize(p.stream[0]));
        assert_cuda(cudaStreamSynchronize(p.stream[1]));
    }
    assert_true(first_of(p.at[0]) == 12 && first_of(p.at[1]) == 12);
    pair_close(&p);
}

/* Sends and receives of one group go together. */
static ncclResult_t swap(const struct pair *p, int r, size_t bytes)
{
    assert_int_equal(ncclSuccess, ncclGroupStart());
    (void)ncclSend(p->at[r], bytes, ncclUint8, 1 - r, p->comm[r], p->stream[r]);
    (void)ncclRecv((char *)p->at[r] + 1000, bytes, ncclUint8, 1 - r, p->comm[r],
                   p->stream[r]);
    return ncclGroupEnd();
}

static void a_group_goes_together(void **state)
{
    struct pair p = pair_new();

    (void)state;
    assert_int_equal(ncclInProgress, swap(&p, 0, 400));
    assert_int_equal(ncclInProgress, swap(&p, 1, 400));
    both_settle(&p);
    assert_cuda(cudaStreamSynchronize(p.stream[0]));
    assert_cuda(cudaStreamSynchronize(p.stream[1]));
    assert_true(first_of(p.at[0] + 250) == 2 && first_of(p.at[1] + 250) == 1);
    pair_close(&p);
}

/* Two receives, each before its send: on a device both wait for ever. */
static void a_receive_keeps_what_is_behind_it(void **state)
{
    struct pair p = pair_new();
    cudaEvent_t done;

    (void)state;
    for (int r = 0; r < 2; r++) {
        (void)ncclRecv(p.at[r] + 250, 4, ncclUint8, 1 - r, p.comm[r],
                       p.stream[r]);
        assert_int_equal(ncclSuccess, settled(p.comm[r]));
        (void)ncclSend(p.at[r], 4, ncclUint8, 1 - r, p.comm[r], p.stream[r]);
        assert_int_equal(ncclSuccess, settled(p.comm[r]));
    }
    assert_cuda(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    assert_cuda(cudaEventRecord(done, p.stream[0]));
    for (int i = 0; i < 1000; i++) {
        assert_cuda_error(cudaErrorNotReady, cudaEventQuery(done));
    }
    assert_cuda(cudaEventDestroy(done));
    pair_abort(&p);
    assert_int_equal(0, gpusim_leaks());
}

/* ---- what is found ------------------------------------------------------- */

static void found(uint64_t at_least)
{
    if (gpusim_faults(GPUSIM_COLLECTIVE) < at_least) {
        fail_msg("%" PRIu64 " faults: %s", gpusim_faults(GPUSIM_COLLECTIVE),
                 gpusim_fault_text());
    }
}

/* Both are on their streams; perhaps they have failed there already. */
static void launched(const struct pair *p)
{
    (void)settled(p->comm[0]);
    (void)settled(p->comm[1]);
}

static void counts_that_differ(void **state)
{
    struct pair p = pair_new();
    ncclResult_t ends[2];

    (void)state;
    gpusim_expect(GPUSIM_COLLECTIVE);
    (void)reduce(&p, 0, COUNT);
    (void)reduce(&p, 1, COUNT - 1);
    launched(&p);
    (void)cudaStreamSynchronize(p.stream[0]);
    (void)cudaStreamSynchronize(p.stream[1]);
    ends[0] = settled(p.comm[0]);
    ends[1] = settled(p.comm[1]);
    assert_true(ends[0] == ncclInternalError || ends[1] == ncclInternalError);
    found(1);
    pair_abort(&p);
}

static void types_that_differ(void **state)
{
    struct pair p = pair_new();

    (void)state;
    gpusim_expect(GPUSIM_COLLECTIVE);
    (void)reduce(&p, 0, COUNT / 2);
    (void)ncclAllReduce(p.at[1], p.at[1], COUNT / 2, ncclInt32, ncclSum,
                        p.comm[1], p.stream[1]);
    launched(&p);
    (void)cudaStreamSynchronize(p.stream[0]);
    found(1);
    pair_abort(&p);
}

static void calls_in_another_order(void **state)
{
    struct pair p = pair_new();

    (void)state;
    gpusim_expect(GPUSIM_COLLECTIVE);
    (void)reduce(&p, 0, COUNT);
    (void)ncclBroadcast(p.at[1], p.at[1], COUNT, ncclFloat32, 0, p.comm[1],
                        p.stream[1]);
    launched(&p);
    (void)cudaStreamSynchronize(p.stream[1]);
    found(1);
    pair_abort(&p);
}

static void use_before_it_is_ready(void **state)
{
    struct pair p = pair_new();

    (void)state;
    gpusim_expect(GPUSIM_COLLECTIVE);
    (void)reduce(&p, 0, COUNT);
    assert_int_equal(ncclInvalidArgument, reduce(&p, 0, COUNT));
    found(1);
    pair_abort(&p);
}

static void use_after_an_abort(void **state)
{
    struct pair p = pair_new();
    ncclResult_t now;

    (void)state;
    pair_abort(&p);
    assert_int_equal(0, gpusim_faults(GPUSIM_COLLECTIVE));
    gpusim_expect(GPUSIM_COLLECTIVE);
    assert_int_equal(ncclInvalidArgument, reduce(&p, 0, COUNT));
    assert_int_equal(ncclInvalidArgument,
                     ncclCommGetAsyncError(p.comm[0], &now));
    assert_int_equal(ncclInvalidArgument, ncclCommAbort(p.comm[0]));
    found(3);
}

static void memory_of_the_host(void **state)
{
    struct pair p = pair_new();
    char here[16];

    (void)state;
    gpusim_expect(GPUSIM_COLLECTIVE);
    (void)ncclBroadcast(here, here, 16, ncclUint8, 0, p.comm[0], p.stream[0]);
    (void)settled(p.comm[0]);
    (void)cudaStreamSynchronize(p.stream[0]);
    found(1);
    pair_abort(&p);
}

static void communicators_that_are_left(void **state)
{
    struct pair p = pair_new();

    (void)state;
    gpusim_expect(GPUSIM_LEAK);
    assert_true(gpusim_leaks() >= 2);
    pair_abort(&p);
    assert_int_equal(0, gpusim_leaks());
}

static void memory_freed_while_registered(void **state)
{
    struct pair p = pair_new();
    void *handle[2], *buffer = dyt_sim_alloc(4096);

    (void)state;
    assert_int_equal(ncclSuccess,
                     ncclCommRegister(p.comm[0], p.at[0], 64, &handle[0]));
    assert_int_equal(ncclSuccess,
                     ncclCommRegister(p.comm[0], buffer, 4096, &handle[1]));
    assert_int_equal(ncclSuccess, ncclCommDeregister(p.comm[0], handle[0]));
    assert_int_equal(0, gpusim_faults(GPUSIM_COLLECTIVE));
    assert_cuda(cudaFree(buffer));
    gpusim_expect(GPUSIM_COLLECTIVE);
    (void)ncclCommDeregister(p.comm[0], handle[1]);
    found(1);
    pair_close(&p);
}

/* An event of before the launch does not wait for it; a write that nothing
 * orders behind it is found. */
static void a_missing_wait(void **state)
{
    for (int with = 0; with < 2; with++) {
        struct pair p = pair_new();

        (void)state;
        (void)reduce(&p, 0, COUNT);
        (void)reduce(&p, 1, COUNT);
        both_settle(&p);
        if (with) {
            assert_cuda(cudaStreamSynchronize(p.stream[0]));
            assert_cuda(cudaMemset(p.at[0], 0, 4));
        } else {
            gpusim_expect(GPUSIM_MISSING_WAIT);
            assert_cuda(cudaMemsetAsync(p.at[0], 0, 4, p.stream[1]));
        }
        (void)cudaStreamSynchronize(p.stream[0]);
        (void)cudaStreamSynchronize(p.stream[1]);
        assert_int_equal(!with,
                         gpusim_faults(GPUSIM_MISSING_WAIT) > (uint64_t)with);
        pair_close(&p);
        if (!with) {
            gpusim_reset();
        }
    }
}

static void an_error_that_comes_later(void **state)
{
    struct gpusim_nccl_faults faults = {.fail_launch = 1};
    struct pair p = pair_new();

    (void)state;
    gpusim_nccl_set_faults(&faults);
    assert_int_equal(ncclInProgress, reduce(&p, 0, COUNT));
    (void)settled(p.comm[0]);
    assert_cuda(cudaStreamSynchronize(p.stream[0])); /* it goes on */
    assert_int_equal(ncclInternalError, settled(p.comm[0]));
    pair_abort(&p);
}

static const struct CMUnitTest tests[] = {
    sim_test(ranks_add_up),
    sim_test(a_group_goes_together),
    sim_test(a_receive_keeps_what_is_behind_it),
    sim_test(counts_that_differ),
    sim_test(types_that_differ),
    sim_test(calls_in_another_order),
    sim_test(use_before_it_is_ready),
    sim_test(use_after_an_abort),
    sim_test(memory_of_the_host),
    sim_test(communicators_that_are_left),
    sim_test(memory_freed_while_registered),
    sim_test(a_missing_wait),
    sim_test(an_error_that_comes_later),
};
DYT_TEST_MAIN(tests)
