/* What every memory backend must do (ops/memory.h). */
#include "dyt_test.h"

#include "device/host/memory.h"

#include <fcntl.h>
#include <sys/wait.h>

#define MIB ((uint64_t)1 << 20)

static const struct dyti_memory_ops *const backends[] = {&dyti_memory_host};

typedef void (*check_fn)(const struct dyti_memory_ops *ops,
                         enum dyti_page_kind pages);

/* Every backend in every page kind that this machine has. */
static void each(check_fn check)
{
    for (size_t i = 0; i < sizeof(backends) / sizeof(backends[0]); i++) {
        enum dyti_page_kind best = backends[i]->probe(8 * MIB);

        assert_true(best < DYTI_PAGES_COUNT);
        for (int pages = (int)best; pages < DYTI_PAGES_COUNT; pages++) {
            if (backends[i]->has((enum dyti_page_kind)pages)) {
                check(backends[i], (enum dyti_page_kind)pages);
            }
        }
    }
}

static int segment(const struct dyti_memory_ops *ops, enum dyti_page_kind pages,
                   uint64_t bytes, struct dyti_segment_mem *mem)
{
    int handle = -1;

    assert_ok(ops->create("test", pages, &handle));
    assert_ok(ops->resize(handle, pages, bytes, NULL, 0));
    assert_ok(ops->map(handle, pages, bytes, mem));
    return handle;
}

static void check_map(const struct dyti_memory_ops *ops,
                      enum dyti_page_kind pages)
{
    struct dyti_segment_mem mine = {0}, peer = {0};
    int handle = segment(ops, pages, 5 * MIB, &mine);
    unsigned char *a, *b;

    assert_ok(ops->map(handle, pages, 5 * MIB, &peer));
    a = mine.base;
    b = peer.base;
    assert_int_equal(6 * MIB, mine.bytes); /* whole 2 MiB */
    assert_int_equal(0, (uintptr_t)a % (2 * MIB));
    assert_int_equal(0, (uintptr_t)b % (2 * MIB));
    assert_ptr_not_equal(a, b);
    assert_int_equal(0, b[5 * MIB - 1]);
    a[5 * MIB - 1] = 7;
    a[0] = 9;
    assert_int_equal(7, b[5 * MIB - 1]);
    assert_int_equal(9, b[0]);
    ops->unmap(&peer);
    assert_null(peer.base);
    ops->unmap(&peer); /* twice is fine */
    assert_int_equal(9, a[0]);
    ops->unmap(&mine);
    ops->close(handle);
}

static void check_touched(const struct dyti_memory_ops *ops,
                          enum dyti_page_kind pages)
{
    struct dyti_segment_mem mem = {0};
    int handle = segment(ops, pages, 8 * MIB, &mem);
    uint64_t bytes = 1;
    unsigned char *base = mem.base;

    assert_ok(ops->touched(&mem, 0, mem.bytes, &bytes));
    assert_int_equal(0, bytes);
    memset(base + 2 * MIB, 1, 2 * MIB);
    assert_ok(ops->touched(&mem, 0, mem.bytes, &bytes));
    assert_int_equal(2 * MIB, bytes);
    assert_ok(ops->touched(&mem, 2 * MIB, 100, &bytes));
    assert_int_equal(100, bytes);

    assert_ok(ops->drop(&mem, 2 * MIB, 2 * MIB));
    assert_ok(ops->touched(&mem, 0, mem.bytes, &bytes));
    assert_int_equal(0, bytes);
    assert_ok(ops->wake(&mem, 2 * MIB, 2 * MIB));
    assert_ok(ops->refresh(&mem));
    assert_int_equal(0, base[2 * MIB + 5]); /* back, and zero */

    bytes = 77;
    assert_status(DYT_ERR_INVALID, ops->touched(&mem, 1, mem.bytes, &bytes));
    assert_int_equal(77, bytes);
    assert_status(DYT_ERR_INVALID, ops->drop(&mem, mem.bytes, 1));
    assert_ok(ops->drop(&mem, mem.bytes, 0));
    assert_status(DYT_ERR_INVALID, ops->wake(&mem, mem.bytes, 1));
    ops->unmap(&mem);
    ops->close(handle);
}

static void check_refused(const struct dyti_memory_ops *ops,
                          enum dyti_page_kind pages)
{
    struct dyti_segment_mem mem = {0};
    int handle = -1;

    assert_ok(ops->create("test", pages, &handle));
    assert_status(DYT_ERR_INVALID, ops->map(handle, pages, MIB, &mem));
    assert_null(mem.base);
    assert_status(DYT_ERR_NOMEM,
                  ops->resize(handle, pages, MIB << 30, NULL, 0));
    assert_non_null(strstr(dyti_error_text(), "MiB"));
    assert_status(DYT_ERR_INVALID, ops->resize(handle, pages, 0, NULL, 0));
    assert_ok(ops->resize(handle, pages, MIB, NULL, 0)); /* still usable */
    assert_status(DYT_ERR_STATE, ops->resize(handle, pages, 4 * MIB, NULL, 0));
    assert_status(DYT_ERR_INVALID, ops->map(handle, pages, 3 * MIB, &mem));
    assert_null(mem.base);
    ops->close(handle);
    ops->close(-1);
    assert_true(ops->available(pages) >= MIB);
    assert_true(ops->available(pages) < MIB << 30);
}

/* A worker gets the handle by inheritance. */
static void check_inherited(const struct dyti_memory_ops *ops,
                            enum dyti_page_kind pages)
{
    struct dyti_segment_mem mem = {0};
    int handle = segment(ops, pages, MIB, &mem), code = -1;
    pid_t child;

    assert_int_equal(0, fcntl(handle, F_GETFD) & FD_CLOEXEC);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct dyti_segment_mem theirs = {0};
        bool good = ops->map(handle, pages, MIB, &theirs) == DYT_OK;

        if (good) {
            *(unsigned char *)theirs.base = 42;
        }
        _exit(good ? 0 : 1);
    }
    assert_int_equal(child, waitpid(child, &code, 0));
    assert_true(WIFEXITED(code) && WEXITSTATUS(code) == 0);
    assert_int_equal(42, *(unsigned char *)mem.base);
    ops->unmap(&mem);
    ops->close(handle);
}

static void maps_twice_at_2_mib(void **state)
{
    (void)state;
    each(check_map);
}

static void counts_and_gives_back_pages(void **state)
{
    (void)state;
    each(check_touched);
}

static void refuses_by_number(void **state)
{
    (void)state;
    each(check_refused);
}

static void is_inherited(void **state)
{
    (void)state;
    each(check_inherited);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(maps_twice_at_2_mib),
    cmocka_unit_test(counts_and_gives_back_pages),
    cmocka_unit_test(refuses_by_number),
    cmocka_unit_test(is_inherited),
};
DYT_TEST_MAIN(tests)
