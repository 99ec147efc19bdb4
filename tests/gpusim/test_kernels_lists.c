/* The table of the cuda device over the simulator: lists that are sent once,
 * the ring, marks, results.  What its entries compute is for the contract tests
 * of kernels; what becomes of errors, for test_kernels_errors.c. */
#include "kernels_case.h"

#include "base/hash.h"
#include "exec/pack.h"

/* ---- copies ------------------------------------------------------------- */

/* More boxes than one upload holds, more uploads than the ring: nobody waits
 * but the ring. */
static void many(uint64_t seed)
{
    enum { COUNT = 9000, ROUNDS = 40 };
    struct boxes_case c = boxes_case_new(seed, COUNT * 20);
    struct dyti_copy *copy = calloc(COUNT, sizeof(*copy));
    struct dyti_copy *there = calloc(COUNT, sizeof(*there));
    void *self = open_cuda();

    assert_non_null(copy);
    assert_non_null(there);
    small_copies(&c, copy, COUNT, 7);
    for (size_t i = 0; i < COUNT; i++) {
        there[i] = as_device(&c, &copy[i]);
    }
    assert_ok(cuda->copy(self, there, COUNT));
    for (size_t i = 0; i < ROUNDS * 2; i++) { /* more uses than are kept */
        assert_ok(cuda->copy(self, &there[i], 1));
    }
    for (size_t i = 0; i < (seed == 0 ? ROUNDS / 10 : 1); i++) {
        /* more than the ring has */
        assert_ok(cuda->copy(self, &there[i * 9], 3000));
    }
    assert_ok(cuda->wait(self));
    assert_ok(dyti_kernels_reference.copy(NULL, copy, COUNT));
    boxes_compare(&c, seed);
    free(copy);
    free(there);
    boxes_case_free(&c);
    close_cuda(self);
}

static void many_copies_go_through_a_small_ring(void **state)
{
    (void)state;
    in_each_order(many);
}

/* ---- lists -------------------------------------------------------------- */

static void thousand_runs(uint64_t seed)
{
    enum { COUNT = 50 };
    const uint32_t runs = seed == 0 ? 1000 : 30;
    struct boxes_case c = boxes_case_new(seed, COUNT * 60);
    struct dyti_copy copy[COUNT], there[COUNT];
    struct dyti_copy_list *list = NULL;
    void *self = open_cuda();
    uint64_t uploads, launches;

    small_copies(&c, copy, COUNT, 20);
    for (size_t i = 0; i < COUNT; i++) {
        there[i] = as_device(&c, &copy[i]);
    }
    assert_ok(cuda->list_make(self, there, COUNT, &list));
    memset(there, 0x7f, sizeof(there)); /* it has been read */
    uploads = gpusim_uploads();
    launches = gpusim_launches();
    for (uint32_t i = 0; i < runs; i++) {
        assert_ok(cuda->list_run(self, list));
    }
    assert_ok(cuda->wait(self));
    assert_int_equal(uploads, gpusim_uploads());
    assert_int_equal(launches + runs, gpusim_launches());
    assert_ok(dyti_kernels_reference.copy(NULL, copy, COUNT));
    boxes_compare(&c, seed);
    assert_ok(cuda->list_run(self, list));
    cuda->list_free(self, list); /* while it runs */
    cuda->list_free(self, NULL);
    assert_ok(cuda->wait(self));
    boxes_case_free(&c);
    close_cuda(self);
}

static void a_list_is_sent_once(void **state)
{
    (void)state;
    in_each_order(thousand_runs);
}

/* A list longer than an upload, and one of nothing. */
static void long_lists(uint64_t seed)
{
    enum { COUNT = 9000 };
    struct boxes_case c = boxes_case_new(seed, COUNT * 20);
    struct dyti_copy *copy = calloc(COUNT, sizeof(*copy));
    struct dyti_copy *there = calloc(COUNT, sizeof(*there));
    struct dyti_copy_list *list = NULL, *none = NULL;
    void *self = open_cuda();
    uint64_t launches;

    assert_non_null(copy);
    assert_non_null(there);
    small_copies(&c, copy, COUNT, 5);
    for (size_t i = 0; i < COUNT; i++) {
        there[i] = as_device(&c, &copy[i]);
    }
    assert_ok(cuda->list_make(self, NULL, 0, &none));
    assert_ok(cuda->list_make(self, there, COUNT, &list));
    launches = gpusim_launches();
    assert_ok(cuda->list_run(self, none));
    assert_ok(cuda->list_run(self, list));
    assert_ok(cuda->wait(self));
    assert_int_equal(launches + 1, gpusim_launches());
    assert_ok(dyti_kernels_reference.copy(NULL, copy, COUNT));
    boxes_compare(&c, seed);
    cuda->list_free(self, list);
    cuda->list_free(self, none);
    free(copy);
    free(there);
    boxes_case_free(&c);
    close_cuda(self);
}

static void long_and_empty_lists_are_one_launch_or_none(void **state)
{
    (void)state;
    in_each_order(long_lists);
}

/* A message packed into pinned memory and unpacked from it, cut inside an
 * element, as the host does it. */
static void message(uint64_t seed)
{
    enum { COUNT = 9 };
    struct boxes_case c = boxes_case_new(seed, 4096);
    struct dyti_copy copy[COUNT], there[COUNT];
    uint64_t at[COUNT + 1] = {0};
    struct dyti_stream_boxes here = {.box = copy, .at = at, .box_count = COUNT};
    struct dyti_stream_boxes far = {.box = there, .at = at, .box_count = COUNT};
    struct dyti_kernels reference = {.ops = &dyti_kernels_reference};
    struct dyti_copy_list *out = NULL, *in = NULL;
    struct dyti_stream_cursor cursor;
    unsigned char want[COUNT * 40];
    void *self = open_cuda(), *pinned = NULL;
    const uint64_t lo = 3, hi = COUNT * 20 * 2 - 5;

    small_copies(&c, copy, COUNT, 20);
    for (size_t i = 0; i < COUNT; i++) {
        there[i] = as_device(&c, &copy[i]);
        at[i + 1] = at[i] + 40;
    }
    assert_cuda(cudaHostAlloc(&pinned, sizeof(want), cudaHostAllocDefault));
    assert_ok(cuda->list_pack(self, &far, lo, hi, pinned, &out));
    assert_ok(cuda->list_unpack(self, &far, lo, hi, pinned, &in));
    for (uint32_t i = 0; i < 3; i++) {
        memset(pinned, 0xEE, sizeof(want));
        assert_ok(cuda->list_run(self, out));
        assert_ok(cuda->wait(self));
        dyti_stream_seek(&here, lo, &cursor);
        assert_ok(dyti_pack(&reference, &here, &cursor, want, hi - lo));
        assert_memory_equal(want, pinned, hi - lo);
        assert_int_equal(0xEE, ((unsigned char *)pinned)[hi - lo]);
        assert_ok(cuda->list_run(self, in));
        assert_ok(cuda->wait(self));
        dyti_stream_seek(&here, lo, &cursor);
        assert_ok(dyti_unpack(&reference, &here, &cursor, want, hi - lo));
        boxes_compare(&c, seed);
    }
    cuda->list_free(self, out);
    cuda->list_free(self, in);
    assert_cuda(cudaFreeHost(pinned));
    boxes_case_free(&c);
    close_cuda(self);
}

static void messages_are_packed_into_pinned_memory(void **state)
{
    (void)state;
    in_each_order(message);
}

/* ---- hashes ------------------------------------------------------------- */

/* More boxes than results, some without elements; sums are added. */
static void hashes(uint64_t seed)
{
    enum { COUNT = 9000 };
    struct boxes_case c = boxes_case_new(seed, COUNT * 16);
    struct dyti_hash_box *box = calloc(COUNT, sizeof(*box));
    uint64_t *got = calloc(COUNT, sizeof(*got));
    uint64_t *want = calloc(COUNT, sizeof(*want));
    void *self = open_cuda();

    assert_true(box != NULL && got != NULL && want != NULL);
    for (size_t i = 0; i < COUNT; i++) {
        box[i] =
            (struct dyti_hash_box){.data = c.src + i * 16,
                                   .size = {1, 1, i % 5 == 4 ? 0 : 2, 3},
                                   .stride = {0, 0, 6, 2},
                                   .index_stride = {0, 0, 100, 1},
                                   .index = i * 7,
                                   .salt = dyti_content_salt((uint32_t)i, 1),
                                   .dtype = DYTI_BF16};
        got[i] = want[i] = i;
    }
    assert_ok(dyti_kernels_reference.hash(NULL, box, COUNT, want));
    for (size_t i = 0; i < COUNT; i++) {
        box[i].data = c.dev_src + i * 16;
    }
    assert_ok(cuda->hash(self, box, COUNT, got));
    assert_memory_equal(want, got, COUNT * sizeof(*got));
    assert_ok(cuda->hash(self, box, 0, NULL));
    free(box);
    free(got);
    free(want);
    boxes_case_free(&c);
    close_cuda(self);
}

static void sums_of_any_number_of_boxes_come_back(void **state)
{
    (void)state;
    in_each_order(hashes);
}

/* ---- marks and bytes ---------------------------------------------------- */

/* The first word, onto itself; by kernels that nobody has to load now. */
static void copy_one(void *self, void *there)
{
    const struct dyti_copy copy = {.src = there,
                                   .dst = there,
                                   .size = {1, 1, 1, 1},
                                   .src_dtype = DYTI_F32,
                                   .dst_dtype = DYTI_F32};

    assert_ok(cuda->copy(self, &copy, 1));
    assert_int_equal(0, gpusim_late_loads());
}

static void marks_are_passed_in_order(void **state)
{
    enum { MARKS = 200 };
    void *self = open_cuda(), *there = dyt_sim_alloc(MARKS);
    uint64_t mark[MARKS], last = 0;
    unsigned char *got;
    enum dyt_status st;

    (void)state;
    for (uint32_t i = 0; i < MARKS; i++) {
        assert_ok(cuda->fill(self, (char *)there + i, 1, (uint8_t)i));
        assert_ok(cuda->mark(self, &mark[i]));
        assert_true(mark[i] > last);
        last = mark[i];
    }
    assert_int_equal(DYT_PENDING, cuda->passed(self, mark[0]));
    assert_int_equal(DYT_PENDING, cuda->passed(self, last));
    copy_one(self, there); /* "not ready" is no error of a launch */
    while ((st = cuda->passed(self, mark[MARKS - 10])) == DYT_PENDING) {
    }
    assert_ok(st);
    assert_ok(cuda->passed(self, mark[0]));
    assert_int_equal(DYT_PENDING, cuda->passed(self, last));
    assert_ok(cuda->wait(self));
    assert_ok(cuda->passed(self, last));
    got = dyt_sim_get(there, MARKS);
    for (uint32_t i = 0; i < MARKS; i++) {
        assert_int_equal(i, got[i]);
    }
    free(got);
    assert_cuda(cudaFree(there));
    close_cuda(self);
}

static void bytes_are_carried_both_ways(void **state)
{
    unsigned char from[300], to[300] = {0};
    void *self = open_cuda(), *a = dyt_sim_alloc(300), *b = dyt_sim_alloc(300);

    (void)state;
    for (uint32_t i = 0; i < sizeof(from); i++) {
        from[i] = (unsigned char)(i * 5);
    }
    assert_ok(cuda->carry(self, a, from, 300));
    assert_ok(cuda->fill(self, b, 300, 0xff));
    assert_ok(cuda->carry(self, (char *)b + 1, (char *)a + 1, 298));
    assert_ok(cuda->carry(self, to, b, 300));
    assert_int_equal(0xff, to[0]);
    assert_memory_equal(from + 1, to + 1, 298);
    assert_int_equal(0xff, to[299]);
    assert_ok(cuda->carry(self, NULL, NULL, 0));
    assert_ok(cuda->fill(self, NULL, 0, 1));
    assert_cuda(cudaFree(a));
    assert_cuda(cudaFree(b));
    close_cuda(self);
}

/* ---- the helpers -------------------------------------------------------- */

/* The same words for a table that does everything at once. */
static void helpers_know_both(void **state)
{
    struct dyti_kernels host = {.ops = &dyti_kernels_reference};
    struct dyti_kernels device = {.ops = cuda, .self = open_cuda()};
    unsigned char here[8] = {1, 2, 3}, back[8] = {0};
    void *there = dyt_sim_alloc(8);
    uint64_t mark = 1;

    (void)state;
    assert_true(dyti_kernels_any_memory(&host));
    assert_false(dyti_kernels_any_memory(&device));
    assert_null(dyti_kernels_stream(&host));
    assert_non_null(dyti_kernels_stream(&device));
    assert_ok(dyti_kernels_mark(&host, &mark));
    assert_ok(dyti_kernels_passed(&host, mark));
    assert_ok(dyti_kernels_wait(&host));
    assert_ok(dyti_kernels_fill(&host, here + 4, 4, 9));
    assert_ok(dyti_kernels_carry(&device, there, here, 8));
    assert_ok(dyti_kernels_fill(&device, there, 2, 7));
    assert_ok(dyti_kernels_mark(&device, &mark));
    assert_ok(dyti_kernels_wait(&device));
    assert_ok(dyti_kernels_passed(&device, mark));
    assert_ok(dyti_kernels_carry(&device, back, there, 8));
    assert_ok(dyti_kernels_carry(&host, here, (unsigned char[]){7, 7}, 2));
    assert_memory_equal(here, back, 8);
    gpusim_ranges_clear();
    dyti_kernels_push(&host, "plan");
    dyti_kernels_pop(&host);
    dyti_kernels_push(&device, "exec");
    dyti_kernels_push(&device, "pack");
    dyti_kernels_pop(&device);
    dyti_kernels_pop(&device);
    assert_string_equal("exec(pack())", gpusim_ranges());
    assert_cuda(cudaFree(there));
    close_cuda(device.self);
}
/* ---- older devices ------------------------------------------------------ */

static void without_pools_all_is_the_same(void **state)
{
    struct gpusim_machine machine;

    (void)state;
    gpusim_get_machine(&machine);
    machine.has_vmm = false;
    gpusim_set_machine(&machine);
    many(9);
    gpusim_reset();
    gpusim_set_machine(&machine);
    thousand_runs(9);
}

static const struct CMUnitTest tests[] = {
    sim_test(many_copies_go_through_a_small_ring),
    sim_test(a_list_is_sent_once),
    sim_test(long_and_empty_lists_are_one_launch_or_none),
    sim_test(messages_are_packed_into_pinned_memory),
    sim_test(sums_of_any_number_of_boxes_come_back),
    sim_test(marks_are_passed_in_order),
    sim_test(bytes_are_carried_both_ways),
    sim_test(helpers_know_both),
    sim_test(without_pools_all_is_the_same),
};
DYT_TEST_MAIN(tests)
