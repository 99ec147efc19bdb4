/* What a member's memory looks like, snapshots of it, mapped rows, and memory
 * of other processes: examples, and each refusal by name. */
#include "dyt_test.h"

#include "base/num.h"
#include "device/host/memory.h"
#include "lib/link_internal.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define COUNT 3u

struct fixture {
    struct dyti_model *model; /* a [4, 6], b [3, 6], c [5] */
    struct dyt_row row[4];
    struct dyti_row_piece piece[3];
    float data[256];
    struct dyt_view view;
    struct dyti_row_pieces pieces;
};

/* a and b touch, c lies apart, the fourth is an alias of a. */
static void setup(struct fixture *f)
{
    static const int64_t shape[COUNT][2] = {{4, 6}, {3, 6}, {5, 0}};
    static const char *const name[4] = {"a", "b", "c", "tied"};
    float *at[4] = {f->data, f->data + 24, f->data + 100, f->data};
    struct dyti_listed_desc desc[COUNT];

    memset(f, 0, sizeof(*f));
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t t = i % COUNT, ndim = t == 2 ? 1 : 2;

        f->row[i] = (struct dyt_row){.struct_size = sizeof(f->row[i]),
                                     .kind = DYT_PARAM,
                                     .dtype = DYT_F32,
                                     .name = name[i],
                                     .ndim = ndim,
                                     .data = at[i],
                                     .fd = -1};
        memcpy(f->row[i].shape, shape[t], sizeof(shape[t]));
        if (i == 3) {
            f->row[i].flags = DYT_ROW_ALIAS;
            break;
        }
        desc[i] = (struct dyti_listed_desc){.name = name[i],
                                            .ndim = ndim,
                                            .kinds = 1u << DYTI_PARAM,
                                            .layer = -1,
                                            .expert = -1};
        memcpy(desc[i].shape, shape[t], sizeof(shape[t]));
        f->piece[i] = (struct dyti_row_piece){
            .row = i, .tensor = i, .box = {.ndim = ndim}, .stride = {24, 4}};
        memcpy(f->piece[i].box.hi, shape[t], sizeof(shape[t]));
    }
    f->piece[2].stride[0] = 4;
    assert_ok(dyti_model_build_listed(desc, COUNT, &f->model));
    f->view = (struct dyt_view){.struct_size = sizeof(f->view),
                                .row_struct_size = sizeof(f->row[0]),
                                .row = f->row,
                                .row_count = 4};
    f->pieces = (struct dyti_row_pieces){.piece = f->piece, .count = COUNT};
    for (uint32_t i = 0; i < 256; i++) {
        f->data[i] = (float)i + 0.125f;
    }
}

static void teardown(struct fixture *f)
{
    dyti_model_destroy(f->model);
}

static enum dyt_status build(struct fixture *f, struct dyti_memory_view *out)
{
    return dyti_memory_view_build(f->model, &f->view, &f->pieces, out);
}

/* ---- views --------------------------------------------------------------- */

static void rows_that_touch_share_an_extent(void **state)
{
    struct dyti_memory_view memory = {0};
    struct dyti_reach reach;
    struct dyti_guard guard = {0}; /* of private memory: none */
    struct fixture f;

    (void)state;
    setup(&f);
    assert_ok(build(&f, &memory));
    assert_int_equal(2, memory.extent_count);
    assert_int_equal((24 + 18) * 4, memory.extent[0].bytes);
    assert_true(memory.extent[1].offset >=
                memory.extent[0].offset + memory.extent[0].bytes + 64);
    assert_int_equal(COUNT, memory.view.shard_count);
    assert_int_equal(4, memory.row_count);
    assert_int_equal(0, memory.row_as[3]);
    assert_int_equal((uint32_t)getpid(), memory.pid);
    assert_false(dyti_memory_view_is_shared(&memory));
    assert_ok(
        dyti_reach_init(&reach, &memory, DYTI_LINK_KINDS_ALL, false, &guard));
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_ptr_equal(f.row[memory.shard_row[i]].data,
                         dyti_reach_address(&reach, DYTI_PARAM,
                                            memory.view.shard[i].offset));
    }
    assert_int_equal(0, guard.count);
    assert_null(dyti_reach_address(&reach, DYTI_MASTER, 0));
    assert_null(dyti_reach_address(&reach, DYTI_PARAM,
                                   memory.view.region_bytes[DYTI_PARAM] + 9));
    dyti_reach_fini(&reach);
    dyti_memory_view_fini(&memory);
    teardown(&f);
}

static void what_is_wrong_with_a_row_is_said_by_its_name(void **state)
{
    struct dyti_memory_view memory = {0};
    struct fixture f;

    (void)state;
    setup(&f);
    f.row[1].data = NULL;
    assert_status(DYT_ERR_INVALID, build(&f, &memory));
    assert_error_has("row b has neither");
    f.row[1].data = (char *)(f.data + 24) + 1;
    assert_status(DYT_ERR_UNSUPPORTED, build(&f, &memory));
    assert_error_has("row b begins at");
    f.row[1].data = f.data + 24;
    f.row[3].data = f.data + 200;
    assert_status(DYT_ERR_INVALID, build(&f, &memory));
    assert_error_has("row tied is an alias");
    f.row[3].data = f.data;
    f.row[2].fd = 1 << 20;
    assert_status(DYT_ERR_INVALID, build(&f, &memory));
    assert_error_has("row c: descriptor");
    f.row[2].fd = -1;
    f.row[0].device.type = DYT_DEVICE_CUDA;
    assert_status(DYT_ERR_UNSUPPORTED, build(&f, &memory));
    assert_error_has("row a lies on a device");
    f.row[0].device.type = DYT_DEVICE_HOST;
    f.piece[0].box.hi[0] = 5;
    assert_status(DYT_ERR_INVALID, build(&f, &memory));
    assert_error_has("row a: its piece");
    assert_null(memory.extent); /* untouched by all of them */
    teardown(&f);
}

/* ---- snapshots ----------------------------------------------------------- */

static void a_snapshot_narrows_what_its_readers_want_narrow(void **state)
{
    struct dyti_memory_view memory = {0}, reader = {0};
    uint8_t dtype[DYTI_KIND_COUNT * COUNT];
    struct dyti_snapshot *snapshot = NULL;
    const struct dyti_memory_view *seen;
    struct dyti_guard guard = {0}; /* ours are sealed */
    struct dyti_reach reach;
    struct fixture f;

    (void)state;
    setup(&f);
    assert_ok(build(&f, &memory));
    f.row[0].dtype = f.row[1].dtype = DYT_BF16; /* c stays as it is */
    f.piece[0].stride[0] = f.piece[1].stride[0] = 12;
    f.piece[0].stride[1] = f.piece[1].stride[1] = 2;
    assert_ok(build(&f, &reader));
    assert_ok(
        dyti_snapshot_dtypes(f.model, &reader, 1, 1u << DYTI_PARAM, dtype));
    assert_int_equal(DYTI_BF16, dtype[DYTI_MASTER * COUNT + 1]);
    assert_int_equal(DYTI_SNAPSHOT_SKIP, dtype[DYTI_GRAD * COUNT]);
    assert_status(DYT_ERR_NOMEM,
                  dyti_snapshot_open(f.model, &memory, dtype, 100, &snapshot));
    assert_error_has("the cap is 100");
    assert_null(snapshot);
    assert_ok(dyti_snapshot_open(f.model, &memory, dtype, 0, &snapshot));
    assert_ok(dyti_snapshot_take(snapshot));
    seen = dyti_snapshot_view(snapshot);
    assert_true(dyti_memory_view_is_shared(seen));
    assert_int_equal(COUNT, seen->view.shard_count);
    assert_ok(
        dyti_reach_init(&reach, seen, DYTI_LINK_KINDS_ALL, false, &guard));
    assert_int_equal(0, guard.count);
    for (uint32_t i = 0; i < 18; i++) { /* b, rounded to nearest even */
        uint16_t got, want = dyti_f32_to_bf16(f.data[24 + i]);

        memcpy(&got,
               dyti_reach_address(&reach, DYTI_PARAM,
                                  seen->view.shard[1].offset + 2 * i),
               sizeof(got));
        assert_int_equal(want, got);
    }
    assert_memory_equal(
        f.data + 100,
        dyti_reach_address(&reach, DYTI_PARAM, seen->view.shard[2].offset),
        5 * sizeof(float));
    dyti_reach_fini(&reach);
    dyti_snapshot_close(snapshot);
    dyti_snapshot_close(NULL);
    dyti_memory_view_fini(&memory);
    dyti_memory_view_fini(&reader);
    teardown(&f);
}

/* ---- mapped rows --------------------------------------------------------- */

static void mapped_rows_hold_what_they_held(void **state)
{
    struct dyti_mapped *mapped = NULL;
    struct fixture f;
    void *before[4];

    (void)state;
    setup(&f);
    f.row[1].shape[0] = 6; /* b as columns: turned, strided */
    f.row[1].shape[1] = 3;
    f.row[1].stride[0] = 1;
    f.row[1].stride[1] = 6;
    assert_ok(dyti_mapped_open(f.row, 4, 2, &mapped));
    for (uint32_t i = 0; i < 4; i++) {
        before[i] = f.row[i].data;
        assert_int_equal(0, (uintptr_t)before[i] % 4096);
        assert_int_equal(0, f.row[i].fd_offset % 4096);
        assert_ptr_equal(before[i], dyti_mapped_row(mapped, i, 0));
        assert_true(f.row[i].fd == dyti_mapped_fd(mapped, 0));
    }
    assert_ptr_equal(f.row[0].data, f.row[3].data); /* the alias */
    assert_int_equal(3, f.row[1].stride[0]);
    assert_int_equal(1, f.row[1].stride[1]);
    for (uint32_t set = 0; set < 2; set++) {
        const float *b = dyti_mapped_row(mapped, 1, set);

        assert_memory_equal(f.data, dyti_mapped_row(mapped, 0, set), 96);
        for (uint32_t i = 0; i < 18; i++) {
            assert_true(b[i] == f.data[24 + i / 3 + i % 3 * 6]);
        }
    }
    assert_null(dyti_mapped_row(mapped, 4, 0));
    assert_null(dyti_mapped_row(mapped, 0, 2));
    assert_ok(dyti_mapped_release(mapped, NULL, 0));
    assert_ok(dyti_mapped_restore(mapped, NULL, 0));
    assert_ptr_equal(before[0], dyti_mapped_row(mapped, 0, 0));
    assert_true(*(const float *)before[0] == 0.0f);
    *(float *)before[0] = 1.5f;
    dyti_mapped_close(mapped);
    dyti_mapped_close(NULL);
    teardown(&f);
}

static void an_alias_of_nothing_is_not_mapped(void **state)
{
    struct dyti_mapped *mapped = NULL;
    struct fixture f;

    (void)state;
    setup(&f);
    f.row[3].data = f.data + 200;
    assert_status(DYT_ERR_INVALID, dyti_mapped_open(f.row, 4, 1, &mapped));
    assert_error_has("row tied is an alias");
    f.row[3].data = f.data;
    f.row[3].shape[0] = 2;
    assert_status(DYT_ERR_UNSUPPORTED, dyti_mapped_open(f.row, 4, 1, &mapped));
    assert_error_has("other shapes");
    assert_status(DYT_ERR_INVALID, dyti_mapped_open(f.row, 4, 3, &mapped));
    assert_null(mapped);
    assert_ptr_equal(f.data, f.row[0].data); /* none was re-pointed */
    teardown(&f);
}

/* ---- other processes ----------------------------------------------------- */

static void a_descriptor_is_looked_at_before_it_is_mapped(void **state)
{
    int fd = memfd_create("bytes", MFD_CLOEXEC);
    struct dyti_process_fd of = {.fd = fd};
    struct dyti_guard guard = {0};
    unsigned char *at = NULL;
    struct stat info;
    void *base = NULL;
    uint64_t bytes = 0;

    (void)state;
    assert_true(fd >= 0);
    assert_return_code(ftruncate(fd, 10000), 0);
    assert_int_equal(4, pwrite(fd, "here", 4, 5001));
    assert_return_code(fstat(fd, &info), 0);
    assert_ok(dyti_process_self(&of.pid, &of.pid_start));
    assert_true(dyti_process_is_self(of.pid, of.pid_start));
    assert_false(dyti_process_is_self(of.pid, of.pid_start + 1));
    of.device = (uint64_t)info.st_dev;
    of.inode = (uint64_t)info.st_ino;
    assert_ok(dyti_process_map(&of, 5001, 5005, true, &guard, NULL, &base,
                               &bytes, &at));
    assert_memory_equal("here", at, 4); /* at no border of a page */
    assert_int_equal(1, guard.count);
    assert_ptr_equal(&guard.range[0], dyti_guard_find(&guard, at));
    (void)munmap(base, bytes);
    assert_status(DYT_ERR_IO, dyti_process_map(&of, 0, 10001, false, &guard,
                                               NULL, &base, &bytes, &at));
    assert_error_has("has 10000, 10001");
    of.inode++;
    assert_status(DYT_ERR_IO, dyti_process_map(&of, 0, 10, false, &guard, NULL,
                                               &base, &bytes, &at));
    assert_error_has("another file");
    of.inode--;
    of.pid_start++;
    assert_status(DYT_ERR_PEER, dyti_process_map(&of, 0, 10, false, &guard,
                                                 NULL, &base, &bytes, &at));
    assert_error_has("another one by now");
    of.pid_start--;
    of.fd = 1 << 20;
    assert_status(DYT_ERR_IO, dyti_process_map(&of, 0, 10, false, &guard, NULL,
                                               &base, &bytes, &at));
    of.pid = 1u << 30;
    assert_status(DYT_ERR_PEER, dyti_process_map(&of, 0, 10, false, &guard,
                                                 NULL, &base, &bytes, &at));
    assert_error_has("is not there");
    assert_int_equal(1, guard.count); /* of those that failed, nothing */
    dyti_guard_fini(&guard);
    (void)close(fd);
}

/* As much as no machine has, of which only what is touched is taken. */
static void reserved_memory_takes_none(void **state)
{
    /* Sanitizers leave a program fewer addresses in one piece than 1 TiB (how
     * many is drawn anew each run), valgrind fewer than there is memory. */
    const uint64_t there = dyti_memory_host.available(DYTI_PAGES_THP);
    const bool few = dyt_test_stride(2) == 2 ||
                     (dyt_test_instrumented() && there >= 1ull << 38);
    const uint64_t most = few ? 1ull << 30
                          : dyt_test_instrumented()
                              ? (there >> 21 << 21) + (8ull << 30)
                              : 1ull << 43;
    struct dyti_segment_mem mem;
    uint64_t touched = 1;
    char needed[64];

    (void)state;
    snprintf(needed, sizeof(needed), "%llu MiB of the host are needed",
             (unsigned long long)(most >> 20));
    assert_ok(dyti_segment_reserve("reserved", most, &mem));
    assert_non_null(mem.base);
    assert_ok(dyti_memory_host.touched(&mem, 0, 1ull << 30, &touched));
    assert_int_equal(0, touched);
    if (!few) {
        assert_status(DYT_ERR_NOMEM, dyti_segment_check_room(&mem));
        assert_error_has(needed);
    }
    memset(mem.base, 1, 4096);
    dyti_segment_close(&mem);
    assert_null(mem.base);
    assert_ok(dyti_segment_reserve("none", 0, &mem));
    assert_null(mem.base);
    assert_ok(dyti_segment_check_room(&mem));
    dyti_segment_close(&mem);
}

/* Allocations of a device may touch, and are two. */
static void rows_of_devices_have_an_extent_each(void **state)
{
    struct dyti_memory_view memory = {0};
    struct fixture f;

    (void)state;
    setup(&f);
    for (uint32_t i = 0; i < 4; i++) {
        f.row[i].device = (struct dyt_device){
            .struct_size = sizeof(f.row[i].device), .type = DYT_DEVICE_CUDA};
    }
    assert_status(DYT_ERR_UNSUPPORTED,
                  dyti_memory_view_build(f.model, &f.view, &f.pieces, &memory));
    assert_ok(
        dyti_memory_view_build_there(f.model, &f.view, &f.pieces, &memory));
    assert_int_equal(3, memory.extent_count);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(-1, memory.extent[i].fd);
        assert_ptr_equal(f.row[i].data,
                         (void *)(uintptr_t)memory.extent[i].address);
        assert_true(i == 0 ||
                    memory.extent[i].offset > memory.extent[i - 1].offset +
                                                  memory.extent[i - 1].bytes);
    }
    assert_int_equal(0, memory.row_as[3]);
    dyti_memory_view_fini(&memory);
    f.row[1].device.type = DYT_DEVICE_HOST;
    assert_status(
        DYT_ERR_UNSUPPORTED,
        dyti_memory_view_build_there(f.model, &f.view, &f.pieces, &memory));
    assert_error_has("row b lies on the host");
    dyti_model_destroy(f.model);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(reserved_memory_takes_none),
    cmocka_unit_test(rows_of_devices_have_an_extent_each),
    cmocka_unit_test(rows_that_touch_share_an_extent),
    cmocka_unit_test(what_is_wrong_with_a_row_is_said_by_its_name),
    cmocka_unit_test(a_snapshot_narrows_what_its_readers_want_narrow),
    cmocka_unit_test(mapped_rows_hold_what_they_held),
    cmocka_unit_test(an_alias_of_nothing_is_not_mapped),
    cmocka_unit_test(a_descriptor_is_looked_at_before_it_is_mapped),
};
DYT_TEST_MAIN(tests)
