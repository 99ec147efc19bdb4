/* What every memory backend must do (ops/memory.h), its other processes
 * included.  With SW_CUDA: over memory of a device, which is simulated or
 * real. */
#include "memory_case.h"

/* ---- one process --------------------------------------------------------- */

static void check_map(enum dyti_page_kind pages)
{
    struct dyti_segment_mem mine = {0}, peer = {0};
    int handle = segment(pages, 5 * MIB, &mine);

    assert_ok(ops->map(handle, pages, 5 * MIB, &peer));
    assert_int_equal(6 * MIB, mine.bytes); /* whole 2 MiB */
    if (pages != DYTI_PAGES_IPC) { /* its owner has it once, as it comes */
        assert_int_equal(0, (uintptr_t)mine.base % (2 * MIB));
        assert_int_equal(0, (uintptr_t)peer.base % (2 * MIB));
        assert_ptr_not_equal(mine.base, peer.base);
    }
    assert_int_equal(0, (uintptr_t)mine.base % 256);
    assert_int_equal(0, get(byte_of(&peer, 5 * MIB - 1)));
    put(byte_of(&mine, 5 * MIB - 1), 7, 1);
    put(mine.base, 9, 1);
    assert_int_equal(7, get(byte_of(&peer, 5 * MIB - 1)));
    assert_int_equal(9, get(peer.base));
    ops->unmap(&peer);
    assert_null(peer.base);
    assert_int_equal(9, get(mine.base));
    let_go(&mine);
}

/* Memory of the host is there when it is touched, a device's from the start;
 * one allocation never goes. */
static void check_sleeps(enum dyti_page_kind pages)
{
    const uint64_t part[] = {2 * MIB, 4 * MIB, 8 * MIB};
    struct dyti_segment_mem mem = {0};
    int handle = sized(pages, 8 * MIB, part, 3);
    bool is_host = dyti_pages_are_host(pages), stays = pages == DYTI_PAGES_IPC;
    uint64_t bytes = 1;

    assert_ok(ops->map(handle, pages, 8 * MIB, &mem));
    assert_ok(ops->touched(&mem, 0, mem.bytes, &bytes));
    assert_int_equal(is_host ? 0 : 8 * MIB, bytes);
    put(byte_of(&mem, 2 * MIB), 1, 2 * MIB);
    assert_ok(ops->touched(&mem, 2 * MIB, 100, &bytes));
    assert_int_equal(100, bytes);
    if (!is_host) {
        put(byte_of(&mem, 4 * MIB), 3, 1);
    }
    assert_ok(ops->drop(&mem, 2 * MIB, 2 * MIB));
    assert_ok(ops->drop(&mem, 2 * MIB, 2 * MIB)); /* it sleeps already */
    assert_ok(ops->touched(&mem, 0, mem.bytes, &bytes));
    assert_int_equal(is_host ? 0 : stays ? 8 * MIB : 6 * MIB, bytes);
    assert_ok(ops->wake(&mem, 2 * MIB, 2 * MIB));
    assert_ok(ops->wake(&mem, 2 * MIB, 6 * MIB));
    assert_ok(ops->refresh(&mem));
    if (!stays) {
        assert_int_equal(0, get(byte_of(&mem, 2 * MIB + 5)));
    }
    if (!is_host) {
        assert_int_equal(3, get(byte_of(&mem, 4 * MIB)));
        assert_status(DYT_ERR_INVALID, ops->drop(&mem, 2 * MIB, MIB));
        assert_status(DYT_ERR_INVALID, ops->wake(&mem, 3 * MIB, MIB));
        assert_ok(ops->touched(&mem, 0, mem.bytes, &bytes));
        assert_int_equal(8 * MIB, bytes);
    }

    bytes = 77;
    assert_status(DYT_ERR_INVALID, ops->touched(&mem, 1, mem.bytes, &bytes));
    assert_int_equal(77, bytes);
    assert_status(DYT_ERR_INVALID, ops->drop(&mem, mem.bytes, 1));
    assert_ok(ops->drop(&mem, mem.bytes, 0));
    assert_status(DYT_ERR_INVALID, ops->wake(&mem, mem.bytes, 1));
    let_go(&mem);
}

static void check_refused(enum dyti_page_kind pages)
{
    struct dyti_segment_mem mem = {0};
    int handle = -1;

    assert_ok(ops->create("test", pages, &handle));
    assert_status(DYT_ERR_INVALID, ops->map(handle, pages, MIB, &mem));
    assert_null(mem.base);
    assert_status(DYT_ERR_NOMEM,
                  ops->resize(handle, pages, MIB << 30, NULL, 0));
    assert_non_null(strstr(dyti_error_text(), "1073741824 MiB"));
    assert_status(DYT_ERR_INVALID, ops->resize(handle, pages, 0, NULL, 0));
    assert_ok(ops->resize(handle, pages, MIB, NULL, 0)); /* still usable */
    assert_status(DYT_ERR_STATE, ops->resize(handle, pages, 4 * MIB, NULL, 0));
    assert_status(DYT_ERR_INVALID, ops->map(handle, pages, 3 * MIB, &mem));
    assert_status(DYT_ERR_INVALID,
                  ops->map(handle, DYTI_PAGES_COUNT, MIB, &mem));
    assert_null(mem.base);
    ops->close(handle);
    ops->close(-1);
    assert_true(ops->available(pages) >= MIB);
    assert_true(ops->available(pages) < MIB << 30);
    assert_false(ops->has(DYTI_PAGES_COUNT));
    assert_status(DYT_ERR_INVALID,
                  ops->create("test", DYTI_PAGES_COUNT, &handle));
}

static void has_memory_that_a_device_reaches(void **state)
{
    struct dyti_memory_look look = {0};
    unsigned char *at = NULL;

    (void)state;
    assert_status(DYT_ERR_INVALID, ops->host_alloc(0, (void **)&at));
    assert_null(at);
    assert_ok(ops->host_alloc(3 * MIB + 1, (void **)&at));
    assert_int_equal(0, (uintptr_t)at % 4096);
    memset(at, 5, 3 * MIB + 1);
    assert_int_equal(5, at[3 * MIB]);
    assert_ok(ops->look(at + MIB, 10, &look));
    assert_true(look.kind == DYTI_MEMORY_HOST ||
                look.kind == DYTI_MEMORY_PINNED);
    assert_int_equal(DYTI_MEMORY_WAY_NONE, look.way);
    assert_true(look.why[0] != '\0');
    assert_status(DYT_ERR_INVALID, ops->look(NULL, 10, &look));
    assert_status(DYT_ERR_INVALID, ops->look(at, 0, &look));
    ops->host_free(at);
    ops->host_free(NULL);
    end_clean();
}

/* A file's pages, which others map as well. */
static void pins_memory_that_is_there(void **state)
{
    struct dyti_memory_look look = {0};
    int fd = memfd_create("test", MFD_CLOEXEC);
    unsigned char *at;

    (void)state;
    assert_int_equal(0, ftruncate(fd, (off_t)MIB));
    at = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(MAP_FAILED, at);
    assert_status(DYT_ERR_INVALID, ops->host_pin(NULL, MIB));
    assert_status(DYT_ERR_INVALID, ops->host_pin(at, 0));
    assert_ok(ops->host_pin(at, MIB));
    assert_ok(ops->look(at + 4096, 10, &look));
#ifdef SW_CUDA
    assert_int_equal(DYTI_MEMORY_PINNED, look.kind);
#endif
    memset(at, 7, MIB);
    ops->host_unpin(at);
    ops->host_unpin(NULL);
    assert_ok(ops->look(at + 4096, 10, &look));
    assert_int_equal(DYTI_MEMORY_HOST, look.kind);
    assert_int_equal(7, at[MIB - 1]);
    munmap(at, MIB);
    close(fd);
    end_clean();
}

#ifndef SW_CUDA
/* Within its process it is the pointer; other processes have files. */
static void lends_its_own(void **state)
{
    struct dyti_memory_borrowed mine = {0}, again = {0};
    struct dyti_memory_loan loan = {0}, other;
    unsigned char byte[40];
    uint64_t bytes = 0;
    int fd = -1;

    (void)state;
    assert_status(DYT_ERR_INVALID, ops->lend(NULL, 3, &loan));
    assert_status(DYT_ERR_INVALID, ops->lend(byte, 0, &loan));
    assert_status(DYT_ERR_INVALID, ops->borrow(&loan, &mine));
    assert_error_has("no loan");
    assert_ok(ops->lend(byte + 7, 30, &loan));
    assert_int_equal(DYTI_MEMORY_WAY_NONE, loan.way);
    assert_int_equal(0, loan.piece_count);
    assert_true(loan.why[0] != '\0');
    assert_status(DYT_ERR_UNSUPPORTED, ops->lend_piece(&loan, 0, &bytes, &fd));
    assert_ok(ops->borrow(&loan, &mine));
    assert_ok(ops->borrow(&loan, &again));
    assert_ptr_equal(byte + 7, mine.ptr);
    assert_ptr_equal(byte + 7, again.ptr);
    assert_int_equal(30, mine.bytes);
    assert_int_equal(0, mine.wanted);
    assert_status(DYT_ERR_STATE, ops->borrow_piece(&mine, 30, 0));
    ops->give_back(&mine);
    ops->give_back(&mine);
    assert_null(mine.ptr);
    ops->give_back(&again);
    other = loan;
    other.owner_start++; /* the number is another process's by now */
    assert_status(DYT_ERR_UNSUPPORTED, ops->borrow(&other, &mine));
    assert_error_has("its own means");
    assert_status(DYT_ERR_PEER, dyti_memory_loan_alive(&other));
    assert_ok(dyti_memory_loan_alive(&loan));
    other = loan;
    other.span = 29;
    assert_status(DYT_ERR_INVALID, ops->borrow(&other, &mine));
    other = loan;
    other.piece_count = 1;
    assert_status(DYT_ERR_INVALID, ops->borrow(&other, &mine));
    other = loan;
    memset(other.why, 'x', sizeof(other.why));
    assert_status(DYT_ERR_INVALID, ops->borrow(&other, &mine));
    assert_ok(ops->reaches(NULL, "any"));
}
#endif

/* ---- another process ----------------------------------------------------- */

/* A worker gets the handle by inheritance, before or after it has a size. */
static void check_inherited(enum dyti_page_kind pages)
{
    struct dyti_segment_mem mem = {0};
    struct peer peer;
    int handle = -1;

    assert_ok(ops->create("test", pages, &handle));
    start_peer(&peer, handle, pages);
    assert_ok(ops->resize(handle, pages, 4 * MIB, NULL, 0));
    assert_ok(ops->map(handle, pages, 4 * MIB, &mem));
    tell(&peer, 'm');
    tell(&peer, 'w');
    assert_int_equal(42, get(byte_of(&mem, 2 * MIB + 1)));
    tell(&peer, 'u');
    end_peer(&peer);
    let_go(&mem);
}

/* Memory that can be given as a file outlives whoever made it. */
static void check_outlives(enum dyti_page_kind pages)
{
    struct dyti_segment_mem mem = {0};
    struct peer peer;
    int handle = -1;

    if (pages == DYTI_PAGES_IPC) {
        return;
    }
    assert_ok(ops->create("test", pages, &handle));
    start_peer(&peer, handle, pages);
    tell(&peer, 's');
    tell(&peer, 'm');
    tell(&peer, 'w');
    end_peer(&peer);
    assert_ok(ops->map(handle, pages, 4 * MIB, &mem));
    assert_int_equal(42, get(byte_of(&mem, 2 * MIB + 1)));
    if (!dyti_pages_are_host(pages)) {
        assert_status(DYT_ERR_STATE, ops->drop(&mem, 0, 4 * MIB));
    }
    let_go(&mem);
}

/* A peer maps what the owner has made of it, when it looks; until then it keeps
 * the memory. */
static void check_follows(enum dyti_page_kind pages)
{
    const uint64_t part[] = {2 * MIB, 4 * MIB};
    struct dyti_segment_mem mem = {0};
    struct peer peer;
    int handle = sized(pages, 4 * MIB, part, 2);
    uint64_t before;

    if (pages != DYTI_PAGES_VMM) {
        ops->close(handle);
        return;
    }
    assert_ok(ops->map(handle, pages, 4 * MIB, &mem));
    start_peer(&peer, handle, pages);
    tell(&peer, 'm');
    tell(&peer, 'd');
    before = ops->available(pages);
    assert_ok(ops->drop(&mem, 2 * MIB, 2 * MIB));
#ifdef DYT_GPUSIM
    assert_int_equal(before, ops->available(pages));
#endif
    tell(&peer, 'r');
    tell(&peer, '2');
    assert_true(ops->available(pages) >= before + 2 * MIB);
    tell(&peer, 'r'); /* nothing new */
    assert_ok(ops->wake(&mem, 2 * MIB, 2 * MIB));
    assert_int_equal(0, get(byte_of(&mem, 2 * MIB + 1)));
    tell(&peer, 'r');
    tell(&peer, 'w');
    assert_int_equal(42, get(byte_of(&mem, 2 * MIB + 1)));
    /* Between two looks it slept and woke: it is other memory. */
    assert_ok(ops->drop(&mem, 2 * MIB, 2 * MIB));
    assert_ok(ops->wake(&mem, 2 * MIB, 2 * MIB));
    tell(&peer, 'r');
    tell(&peer, 'w');
    assert_int_equal(42, get(byte_of(&mem, 2 * MIB + 1)));
    /* Somebody who comes late finds it as it is. */
    assert_ok(ops->drop(&mem, 0, 2 * MIB));
    tell(&peer, 'u');
    tell(&peer, 'm');
    tell(&peer, '2');
    tell(&peer, 'w');
    tell(&peer, 'u');
    end_peer(&peer);
    let_go(&mem);
}

/* ---- all of it ----------------------------------------------------------- */

static void maps_twice(void **state)
{
    (void)state;
    each(check_map);
}

static void sleeps_and_wakes(void **state)
{
    (void)state;
    each(check_sleeps);
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

static void outlives_its_owner(void **state)
{
    (void)state;
    each(check_outlives);
}

static void peers_follow(void **state)
{
    (void)state;
    each(check_follows);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(maps_twice),
    cmocka_unit_test(sleeps_and_wakes),
    cmocka_unit_test(refuses_by_number),
    cmocka_unit_test(has_memory_that_a_device_reaches),
    cmocka_unit_test(pins_memory_that_is_there),
#ifndef SW_CUDA
    cmocka_unit_test(lends_its_own),
#endif
    cmocka_unit_test(is_inherited),
    cmocka_unit_test(outlives_its_owner),
    cmocka_unit_test(peers_follow),
};

int main(int argc, char **argv)
{
    if (argc == 4) {
        return be_peer(argv);
    }
    if (ops->use(NULL) != DYT_OK) {
        print_message("skipped: %s\n", dyti_error_text());
        return 77;
    }
    return dyt_test_verdict(
        cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL));
}
