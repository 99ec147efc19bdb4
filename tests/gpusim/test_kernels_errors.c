/* The table of the cuda device over the simulator, where something goes wrong:
 * memory that is gone or not there, each call and each piece of work that
 * fails, devices that nobody has. */
#include "kernels_case.h"

#include "device/cuda/context.h"
#include "ops/sample.h"

/* A list whose memory is gone: who waits hears what was under way, and nothing
 * works afterwards, in the same words. */
static void an_error_names_what_was_under_way(void **state)
{
    struct boxes_case c = boxes_case_new(3, 4096);
    struct dyti_copy copy[2], there;
    struct dyti_copy_list *list = NULL;
    void *self = open_cuda();
    uint64_t mark = 0, sum = 0;

    (void)state;
    gpusim_expect(GPUSIM_FREED);
    small_copies(&c, copy, 2, 20);
    there = as_device(&c, &copy[0]);
    assert_ok(cuda->list_make(self, &there, 1, &list));
    assert_ok(cuda->fill(self, c.dev_dst, 64, 0));
    assert_ok(cuda->wait(self));
    assert_cuda(cudaFree(c.dev_dst));
    assert_ok(cuda->fill(self, c.dev_src, 64, 0));
    assert_ok(cuda->list_run(self, list));
    assert_ok(cuda->mark(self, &mark));
    assert_status(DYT_ERR_DEVICE, cuda->wait(self));
    assert_error_has("GPU-");
    assert_error_has("cudaErrorIllegalAddress");
    assert_error_has("fill of bytes, of 64 (number 2)");
    assert_error_has("list of boxes, of 1 (number 3)");
    assert_null(strstr(dyti_error_text(), "number 1)"));
    assert_status(DYT_ERR_DEVICE, cuda->passed(self, mark));
    assert_error_has("number 3");
    assert_status(DYT_ERR_DEVICE, cuda->copy(self, &there, 1));
    assert_error_has("number 3");
    assert_status(DYT_ERR_DEVICE, cuda->hash(self, NULL, 0, &sum));
    assert_status(DYT_ERR_DEVICE, cuda->list_run(self, list));
    cuda->list_free(self, list);
    cuda->close(self);
    gpusim_reset();
    free(c.src);
    free(c.dst);
}

/* What has no memory is refused, and all else goes on. */
static void short_memory_is_refused(void **state)
{
    enum { COUNT = 9000 };
    struct boxes_case c = boxes_case_new(4, COUNT * 20);
    struct dyti_copy *copy = calloc(COUNT, sizeof(*copy));
    struct dyti_copy_list *list = NULL;
    struct gpusim_machine machine;
    void *self = open_cuda();

    (void)state;
    assert_non_null(copy);
    small_copies(&c, copy, COUNT, 5);
    for (size_t i = 0; i < COUNT; i++) {
        copy[i] = as_device(&c, &copy[i]);
    }
    gpusim_get_machine(&machine);
    machine.memory_bytes = gpusim_held_bytes();
    gpusim_set_machine(&machine);
    assert_status(DYT_ERR_NOMEM, cuda->list_make(self, copy, COUNT, &list));
    assert_null(list);
    assert_error_has("a list of boxes");
    assert_ok(cuda->copy(self, copy, COUNT));
    assert_ok(cuda->wait(self));
    cuda->close(self);
    machine.memory_bytes = gpusim_held_bytes() + (1u << 20);
    gpusim_set_machine(&machine);
    self = NULL;
    assert_status(DYT_ERR_NOMEM, cuda->open(NULL, &self));
    assert_null(self);
    assert_error_has("opening the cuda kernels");
    free(copy);
    boxes_case_free(&c);
    assert_int_equal(0, gpusim_leaks());
}

/* All that a handle does, once; the first failure ends it. */
static enum dyt_status a_bit_of_all(const struct boxes_case *c)
{
    struct dyti_copy copy[4];
    struct dyti_hash_box box = {.data = c->dev_src,
                                .size = {1, 1, 1, 9},
                                .stride = {0, 0, 0, 2},
                                .dtype = DYTI_BF16};
    struct dyti_sample sample = {.box = box,
                                 .as = DYTI_BF16,
                                 .step = {1, 1, 1, 2},
                                 .count = {1, 1, 1, 4},
                                 .starts = {1, 1, 1, 2}};
    struct dyti_sample_list *drawn = NULL;
    struct dyti_copy_list *list = NULL;
    void *self = NULL;
    uint64_t sum = 0, mark = 0;
    enum dyt_status st = cuda->open(NULL, &self);

    if (st != DYT_OK) {
        return st;
    }
    small_copies(c, copy, 4, 20);
    for (size_t i = 0; i < 4; i++) {
        copy[i] = as_device(c, &copy[i]);
    }
    st = cuda->copy(self, copy, 4);
    st = st != DYT_OK ? st : cuda->list_make(self, copy, 4, &list);
    st = st != DYT_OK ? st : cuda->list_run(self, list);
    st = st != DYT_OK ? st : cuda->mark(self, &mark);
    st = st != DYT_OK ? st : cuda->hash(self, &box, 1, &sum);
    st = st != DYT_OK ? st : cuda->sample_make(self, &sample, 1, &drawn);
    st = st != DYT_OK ? st : cuda->sample_run(self, drawn, 1, &sum);
    st = st != DYT_OK ? st : cuda->fill(self, c->dev_dst, 10, 1);
    st = st != DYT_OK ? st : cuda->carry(self, c->dev_dst, c->src, 10);
    st = st != DYT_OK ? st : cuda->passed(self, mark);
    st = st != DYT_OK ? st : cuda->wait(self);
    cuda->sample_free(self, drawn);
    cuda->list_free(self, list);
    cuda->close(self);
    return st;
}

/* Whatever call fails, it is said, nothing is left, and the next try works. */
static void each_call_may_fail(void **state)
{
    uint64_t failures = 0, unheard = 0;

    (void)state;
    for (uint64_t nth = 1;; nth++) {
        struct boxes_case c = boxes_case_new(nth, 4096);
        enum dyt_status st;
        bool failed;

        gpusim_fail_call(NULL, nth,
                         nth % 2 == 0 ? 0 : (int)cudaErrorMemoryAllocation);
        st = a_bit_of_all(&c);
        failed = gpusim_has_failed();
        assert_true(failed || st == DYT_OK);
        unheard += failed && st == DYT_OK; /* in close, whose work is done */
        assert_true(!failed || strlen(dyti_error_text()) > 10);
        gpusim_fail_call(NULL, 1u << 30, 0); /* no more of it */
        assert_ok(a_bit_of_all(&c));
        boxes_case_free(&c);
        assert_int_equal(0, gpusim_leaks());
        gpusim_reset();
        failures += failed;
        if (!failed) {
            break;
        }
    }
    assert_true(failures > 80); /* events alone are 64 */
    assert_true(unheard <= 3);
}

/* Whatever work breaks, the next that waits says so. */
static void each_work_may_fail(void **state)
{
    (void)state;
    for (uint64_t nth = 1;; nth++) {
        struct boxes_case c = boxes_case_new(nth, 4096);
        enum dyt_status st;

        gpusim_fail_work(nth, (int)cudaErrorLaunchFailure);
        st = a_bit_of_all(&c);
        if (st != DYT_OK) {
            assert_int_equal(DYT_ERR_DEVICE, st);
            assert_error_has("cudaErrorLaunchFailure");
            assert_error_has("under way");
        }
        gpusim_reset();
        free(c.src);
        free(c.dst);
        if (st == DYT_OK) { /* all that is left is what close gives back */
            assert_true(nth > 8);
            break;
        }
    }
}

static void devices_are_named(void **state)
{
    struct dyti_kernel_params params = {.struct_size = sizeof(params)};
    struct gpusim_machine machine;
    char second[DYTI_CUDA_UUID], here[2] = {0};
    void *self = NULL;
    CUuuid uuid;

    (void)state;
    gpusim_get_machine(&machine);
    machine.device_count = 2;
    gpusim_set_machine(&machine);
    assert_int_equal(CUDA_SUCCESS, cuDeviceGetUuid_v2(&uuid, 1));
    dyti_cuda_uuid_text(&uuid, second);
    machine.device_count = 0;
    gpusim_set_machine(&machine);
    assert_status(DYT_ERR_UNSUPPORTED, cuda->open(NULL, &self));
    assert_error_has("the driver finds no device");
    assert_null(self);
    machine.device_count = 2;
    gpusim_set_machine(&machine);
    assert_status(DYT_ERR_INVALID, cuda->open(NULL, &self));
    assert_error_has("has to be named");
    params.device = "1";
    assert_status(DYT_ERR_INVALID, cuda->open(&params, &self));
    assert_error_has("an index means another device");
    params.device = second;
    assert_ok(cuda->open(&params, &self));
    gpusim_fail_call("cudaMemcpyAsync", 1, (int)cudaErrorUnknown);
    assert_status(DYT_ERR_DEVICE, cuda->carry(self, here, here + 1, 1));
    assert_error_has(second);
    cuda->close(self);
}

static void what_is_not_there_says_so(void **state)
{
    void *self = open_cuda();
    double sum = 0;

    (void)state;
    assert_status(DYT_ERR_UNSUPPORTED, cuda->sum_squares(self, NULL, 0, &sum));
    assert_error_has("sum_squares");
    assert_error_has("the model's kernels are not there yet");
    assert_status(DYT_ERR_UNSUPPORTED, cuda->rmsnorm(self, NULL, NULL, DYTI_F32,
                                                     0, 0, 0, NULL, NULL));
    assert_error_has("no rmsnorm:");
    assert_string_equal("sm_90", cuda->isa(self));
    close_cuda(self);
}

static const struct CMUnitTest tests[] = {
    sim_test(an_error_names_what_was_under_way),
    sim_test(short_memory_is_refused),
    sim_test(each_call_may_fail),
    sim_test(each_work_may_fail),
    sim_test(devices_are_named),
    sim_test(what_is_not_there_says_so),
};
DYT_TEST_MAIN(tests)
