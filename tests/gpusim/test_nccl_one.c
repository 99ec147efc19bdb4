/* NCCL itself, as far as one GPU goes: a communicator of one rank that does not
 * block, with each call that groups make of it. */
#include "sim_test.h"

#include "comm/nccl/calls.h"

#include <stddef.h>
#include <time.h>

#define COUNT 1000u

static const struct dyti_nccl_calls *nccl;

#define assert_nccl(comm, call) wait_for((comm), (call), #call)

/* Until it is done: what does not block is "in progress" first. */
static void wait_for(ncclComm_t comm, ncclResult_t result, const char *what)
{
    time_t until = time(NULL) + 60;

    while (result == ncclInProgress && time(NULL) < until) {
        if (nccl->ncclCommGetAsyncError(comm, &result) != ncclSuccess) {
            result = ncclInternalError;
        }
    }
    if (result != ncclSuccess) {
        fail_msg("%s: %s", what, nccl->ncclGetErrorString(result));
    }
}

static ncclComm_t open_one(void)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NULL;
    ncclUniqueId id;
    ncclResult_t result;

    /* As comm/nccl does: the fields of 2.18, whatever the header has. */
    config.size = offsetof(ncclConfig_t, splitShare) + sizeof(int);
    config.version = DYTI_NCCL_MIN;
    config.blocking = 0;
    assert_int_equal(ncclSuccess, nccl->ncclGetUniqueId(&id));
    result = nccl->ncclCommInitRankConfig(&comm, 1, id, 0, &config);
    wait_for(comm, result, "ncclCommInitRankConfig");
    return comm;
}

static ncclComm_t split_one(ncclComm_t comm)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    static ncclComm_t part; /* filled in when it is made, not by the call */
    time_t until = time(NULL) + 60;

    part = NULL;
    config.size = offsetof(ncclConfig_t, splitShare) + sizeof(int);
    config.version = DYTI_NCCL_MIN;
    config.blocking = 0;
    assert_nccl(comm, nccl->ncclCommSplit(comm, 3, 0, &part, &config));
    while (__atomic_load_n(&part, __ATOMIC_ACQUIRE) == NULL) {
        assert_true(time(NULL) < until);
    }
    wait_for(part, ncclInProgress, "a communicator that is split");
    return part;
}

static void close_one(ncclComm_t comm)
{
    assert_nccl(comm, nccl->ncclCommFinalize(comm));
    assert_int_equal(ncclSuccess, nccl->ncclCommDestroy(comm));
}

/* A message to itself, between registered buffers where there is such. */
static void message(ncclComm_t comm, int *from, int *to, cudaStream_t stream)
{
    void *handle = NULL;

    if (nccl->ncclCommRegister != NULL) {
        assert_nccl(comm, nccl->ncclCommRegister(comm, from,
                                                 COUNT * sizeof(int), &handle));
    }
    assert_int_equal(ncclSuccess, nccl->ncclGroupStart());
    assert_nccl(comm, nccl->ncclSend(from, COUNT * sizeof(int), ncclUint8, 0,
                                     comm, stream));
    assert_nccl(comm, nccl->ncclRecv(to, COUNT * sizeof(int), ncclUint8, 0,
                                     comm, stream));
    assert_nccl(comm, nccl->ncclGroupEnd());
    assert_cuda(cudaStreamSynchronize(stream));
    if (handle != NULL) {
        assert_nccl(comm, nccl->ncclCommDeregister(comm, handle));
    }
}

/* What is there now is 7 i + add. */
static void expect(const int *there, int add)
{
    int *got = dyt_sim_get(there, COUNT * sizeof(*got));

    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(7 * (int)i + add, got[i]);
    }
    free(got);
}

static void put(int *there, int add)
{
    int here[COUNT];

    for (uint32_t i = 0; i < COUNT; i++) {
        here[i] = 7 * (int)i + add;
    }
    assert_cuda(cudaMemcpy(there, here, sizeof(here), cudaMemcpyHostToDevice));
}

/* Each call that groups make, with one to talk to. */
static void check(ncclComm_t comm)
{
    int *from = dyt_sim_alloc(COUNT * sizeof(*from));
    int *to = dyt_sim_alloc(COUNT * sizeof(*to));
    cudaStream_t stream = NULL;

    assert_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    put(from, 1);
    put(to, 0);
    message(comm, from, to, stream);
    expect(to, 1);
    put(from, 2);
    assert_nccl(
        comm, nccl->ncclBroadcast(from, to, COUNT, ncclInt32, 0, comm, stream));
    assert_cuda(cudaStreamSynchronize(stream));
    expect(to, 2);
    put(from, 3);
    assert_nccl(comm, nccl->ncclAllReduce(from, to, COUNT, ncclInt32, ncclSum,
                                          comm, stream));
    assert_cuda(cudaStreamSynchronize(stream));
    expect(to, 3);
    put(from, 4);
    assert_nccl(comm,
                nccl->ncclAllGather(from, to, COUNT, ncclInt32, comm, stream));
    assert_cuda(cudaStreamSynchronize(stream));
    expect(to, 4);
    put(from, 5);
    assert_nccl(comm, nccl->ncclReduceScatter(from, to, COUNT, ncclInt32,
                                              ncclSum, comm, stream));
    assert_cuda(cudaStreamSynchronize(stream));
    expect(to, 5);
    put(from, 6);
    assert_nccl(comm, nccl->ncclReduce(from, to, COUNT, ncclInt32, ncclSum, 0,
                                       comm, stream));
    assert_cuda(cudaStreamSynchronize(stream));
    expect(to, 6);
    assert_cuda(cudaStreamDestroy(stream));
    assert_cuda(cudaFree(from));
    assert_cuda(cudaFree(to));
}

static void one_rank_speaks_to_itself(void **state)
{
    ncclComm_t comm, part;

    (void)state;
    comm = open_one();
    check(comm);
    part = split_one(comm);
    check(part);
    close_one(part);
    close_one(comm);
    assert_int_equal(0, gpusim_leaks());
}

static void what_is_aborted_is_gone(void **state)
{
    ncclComm_t comm = open_one();

    (void)state;
    assert_int_equal(ncclSuccess, nccl->ncclCommAbort(comm));
    comm = open_one(); /* and another one can be */
    check(comm);
    close_one(comm);
    assert_int_equal(0, gpusim_leaks());
}

static const struct CMUnitTest tests[] = {
    sim_test(one_rank_speaks_to_itself),
    sim_test(what_is_aborted_is_gone),
};

int main(void)
{
    static struct dyti_nccl_calls calls;
    struct dyti_group_report report = {0};

    if (!dyti_nccl_open(DYTI_NCCL_LIBRARY, &calls, &report)) {
        printf("skipped: NCCL, %s: %s\n", report.state, report.text);
        return 77;
    }
    nccl = &calls;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
