/* Streams and events: what was not waited for is found, in every order, and
 * gives wrong bytes in some. */
#include "gpusim/cases.h"
#include "gpusim/sim_test.h"

#include <pthread.h>

#define COUNT 100u

static cudaStream_t stream_new(void)
{
    cudaStream_t stream = NULL;

    assert_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

static cudaEvent_t event_new(void)
{
    cudaEvent_t event = NULL;

    assert_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    return event;
}

/* Writes in one stream, adds in another, with or without the event between;
 * *out_first is the first word then. */
static void two_streams(bool with_event, uint32_t *out_first)
{
    uint32_t *data = dyt_sim_filled(COUNT * 4, 0), *here;
    cudaStream_t a = stream_new(), b = stream_new();
    cudaEvent_t event = event_new();

    assert_cuda(case_write(data, COUNT, 10, a));
    assert_cuda(cudaEventRecord(event, a));
    if (with_event) {
        assert_cuda(cudaStreamWaitEvent(b, event, 0));
    }
    assert_cuda(case_add_one(data, COUNT, b));
    assert_cuda(cudaStreamSynchronize(b));
    assert_cuda(cudaStreamSynchronize(a));
    here = dyt_sim_get(data, COUNT * 4);
    *out_first = here[0];
    free(here);
    assert_cuda(cudaStreamDestroy(a));
    assert_cuda(cudaStreamDestroy(b));
    assert_cuda(cudaEventDestroy(event));
    assert_cuda(cudaFree(data));
    assert_int_equal(0, gpusim_leaks());
}

static const enum gpusim_order orders[] = {GPUSIM_LATE, GPUSIM_EARLY,
                                           GPUSIM_SHUFFLED};

static void an_event_orders_two_streams(void **state)
{
    uint32_t first = 0;

    (void)state;
    for (uint64_t i = 0; i < 30; i++) {
        gpusim_reset();
        gpusim_set_order(orders[i % 3], i);
        two_streams(true, &first);
        assert_int_equal(11, first);
        assert_int_equal(0, gpusim_unexpected());
    }
}

static void a_missing_wait_is_found_in_every_order(void **state)
{
    uint32_t first = 0, wrong = 0;

    (void)state;
    for (uint64_t i = 0; i < 30; i++) {
        gpusim_reset();
        gpusim_set_order(orders[i % 3], i);
        gpusim_expect(GPUSIM_MISSING_WAIT);
        two_streams(false, &first);
        assert_int_equal(1, gpusim_faults(GPUSIM_MISSING_WAIT));
        wrong += first != 11;
    }
    assert_true(wrong >= 10); /* at least in the late order */
}

/* The host reads what was not waited for: it has not happened. */
static void the_host_must_wait(void **state)
{
    uint32_t *data = dyt_sim_filled(8, 0);
    uint32_t *here = NULL;
    cudaStream_t a = stream_new();

    (void)state;
    assert_cuda(cudaHostAlloc((void **)&here, 8, cudaHostAllocDefault));
    here[0] = 5;
    assert_cuda(case_write(data, 2, 10, a));
    assert_cuda(cudaMemcpyAsync(here, data, 8, cudaMemcpyDeviceToHost, a));
    assert_int_equal(5, here[0]);
    assert_cuda_error(cudaErrorNotReady, cudaStreamQuery(a));
    assert_cuda(cudaStreamSynchronize(a));
    assert_int_equal(10, here[0]);
    assert_int_equal(11, here[1]);
    assert_cuda(cudaStreamQuery(a));
    assert_cuda(cudaFreeHost(here));
}

/* A copy in a stream, read by another that nobody told. */
static void a_copy_is_work_like_other(void **state)
{
    uint32_t *data = dyt_sim_filled(8, 0), *other = dyt_sim_alloc(8);
    cudaStream_t a = stream_new(), b = stream_new();

    (void)state;
    gpusim_expect(GPUSIM_MISSING_WAIT);
    assert_cuda(case_write(data, 2, 10, a));
    assert_cuda(cudaMemcpyAsync(other, data, 8, cudaMemcpyDeviceToDevice, b));
    assert_cuda(cudaDeviceSynchronize());
    assert_int_equal(1, gpusim_faults(GPUSIM_MISSING_WAIT));
    /* What the host has waited for is behind everything. */
    assert_cuda(case_add_one(data, 2, b));
    assert_cuda(cudaDeviceSynchronize());
    assert_int_equal(1, gpusim_faults(GPUSIM_MISSING_WAIT));
}

struct turn {
    uint32_t *data, *out;
    cudaStream_t stream;
    cudaEvent_t event;
    bool waits;
};

static void *reads_in_a_thread(void *arg)
{
    struct turn *t = arg;

    if (t->waits) {
        assert_cuda(cudaStreamWaitEvent(t->stream, t->event, 0));
    }
    assert_cuda(cudaMemcpyAsync(t->out, t->data, 8, cudaMemcpyDeviceToDevice,
                                t->stream));
    assert_cuda(cudaStreamSynchronize(t->stream));
    return NULL;
}

/* Copies to and fro in the streams of two threads: an event between them is
 * enough, and nothing less, whatever runs first. */
static void events_order_the_streams_of_threads(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 30; i++) {
        bool waits = i % 2 == 0;
        uint32_t *pinned = NULL, *here;
        struct turn t;
        pthread_t thread;
        cudaStream_t a;

        gpusim_reset();
        gpusim_set_order(orders[i % 3], i);
        if (!waits) {
            gpusim_expect(GPUSIM_MISSING_WAIT);
        }
        a = stream_new();
        t = (struct turn){dyt_sim_filled(8, 0), dyt_sim_filled(8, 0),
                          stream_new(), event_new(), waits};
        assert_cuda(cudaHostAlloc((void **)&pinned, 8, cudaHostAllocDefault));
        pinned[0] = pinned[1] = 9;
        assert_cuda(
            cudaMemcpyAsync(t.data, pinned, 8, cudaMemcpyHostToDevice, a));
        assert_cuda(cudaEventRecord(t.event, a));
        assert_int_equal(0,
                         pthread_create(&thread, NULL, reads_in_a_thread, &t));
        assert_int_equal(0, pthread_join(thread, NULL));
        assert_cuda(cudaDeviceSynchronize());
        here = dyt_sim_get(t.out, 8);
        assert_int_equal(!waits, gpusim_faults(GPUSIM_MISSING_WAIT));
        if (waits) {
            assert_int_equal(9, here[1]);
        }
        free(here);
        assert_int_equal(0, gpusim_unexpected());
    }
}

/* Reading what another reads is fine, overwriting it is not. */
static void readers_are_waited_for_too(void **state)
{
    uint32_t *data = dyt_sim_filled(8, 0), *out = dyt_sim_alloc(8);
    cudaStream_t a = stream_new(), b = stream_new();

    (void)state;
    assert_cuda(case_read(data, out, a));
    assert_cuda(case_read(data, out + 1, b));
    assert_cuda(cudaDeviceSynchronize());
    assert_int_equal(0, gpusim_unexpected());
    gpusim_expect(GPUSIM_MISSING_WAIT);
    assert_cuda(case_read(data, out, a));
    assert_cuda(case_write(data, 1, 3, b));
    assert_cuda(cudaDeviceSynchronize());
    assert_int_equal(1, gpusim_faults(GPUSIM_MISSING_WAIT));
}

/* An event that is recorded again stands for its last time. */
static void events_are_recorded_again(void **state)
{
    uint32_t *data = dyt_sim_filled(8, 0);
    cudaStream_t a = stream_new(), b = stream_new();
    cudaEvent_t event = event_new();

    (void)state;
    for (uint32_t round = 0; round < 5; round++) {
        assert_cuda(case_write(data, 2, round * 10, a));
        assert_cuda(cudaEventRecord(event, a));
        assert_cuda(cudaStreamWaitEvent(b, event, 0));
        assert_cuda(case_add_one(data, 2, b));
        assert_cuda(cudaEventRecord(event, b));
        assert_cuda(cudaStreamWaitEvent(a, event, 0));
    }
    assert_cuda(cudaEventSynchronize(event));
    assert_cuda(cudaEventQuery(event));
    {
        uint32_t *here = dyt_sim_get(data, 8);

        assert_int_equal(41, here[0]);
        assert_int_equal(42, here[1]);
        free(here);
    }
    assert_cuda(cudaStreamSynchronize(a));
}

static void the_default_stream_waits_for_blocking_ones(void **state)
{
    uint32_t *data = dyt_sim_filled(8, 0), *here;
    cudaStream_t a = NULL;

    (void)state;
    assert_cuda(cudaStreamCreateWithFlags(&a, 0));
    assert_cuda(case_write(data, 2, 10, a));
    assert_cuda(case_add_one(data, 2, NULL));
    assert_cuda(case_add_one(data, 2, a));
    here = dyt_sim_get(data, 8);
    assert_int_equal(12, here[0]);
    free(here);
}

static void memory_of_a_stream(void **state)
{
    cudaStream_t a = stream_new(), b = stream_new();
    uint32_t *scratch = NULL;
    uint32_t *out = dyt_sim_alloc(8);

    (void)state;
    assert_cuda(cudaMallocAsync((void **)&scratch, 8, a));
    assert_cuda(case_write(scratch, 2, 10, a));
    assert_cuda(case_read(scratch, out, a));
    assert_cuda(cudaFreeAsync(scratch, a));
    assert_cuda(cudaStreamSynchronize(a));
    assert_int_equal(8u, 8u * (gpusim_held_bytes() == 4096));
    gpusim_expect(GPUSIM_FREED);
    assert_cuda(case_read(scratch, out, b));
    assert_cuda_error(cudaErrorIllegalAddress, cudaStreamSynchronize(b));
}

static void wrong_handles_are_refused(void **state)
{
    cudaStream_t a = stream_new();
    cudaEvent_t event = event_new();

    (void)state;
    assert_cuda(cudaStreamDestroy(a));
    assert_cuda(cudaEventDestroy(event));
    assert_cuda_error(cudaErrorInvalidResourceHandle, cudaStreamDestroy(a));
    assert_cuda_error(cudaErrorInvalidResourceHandle, cudaStreamSynchronize(a));
    assert_cuda_error(cudaErrorInvalidResourceHandle, cudaEventDestroy(event));
    assert_cuda_error(cudaErrorInvalidResourceHandle,
                      cudaEventRecord(event, NULL));
    assert_cuda_error(cudaErrorInvalidResourceHandle, cudaGetLastError());
    assert_cuda(cudaGetLastError());
}

static const struct CMUnitTest tests[] = {
    sim_test(an_event_orders_two_streams),
    sim_test(a_missing_wait_is_found_in_every_order),
    sim_test(the_host_must_wait),
    sim_test(a_copy_is_work_like_other),
    sim_test(events_order_the_streams_of_threads),
    sim_test(readers_are_waited_for_too),
    sim_test(events_are_recorded_again),
    sim_test(the_default_stream_waits_for_blocking_ones),
    sim_test(memory_of_a_stream),
    sim_test(wrong_handles_are_refused),
};
DYT_TEST_MAIN(tests)
