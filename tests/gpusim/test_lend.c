/* Memory that somebody else allocated, lent to another process and borrowed
 * there: allocations, pieces of expandable segments, those that cannot be given
 * and those that are gone.  All on one device, which is simulated or real. */
#include "lend_case.h"

#include <sys/mman.h>

static const uint64_t pieces[] = {2 * MIB, 4 * MIB, 2 * MIB};

/* ---- allocations --------------------------------------------------------- */

static void a_process_borrows_an_allocation(void **state)
{
    struct foreign f = foreign_allocated(3 * MIB);
    struct dyti_memory_loan loan;
    struct peer peer;

    (void)state;
    peer_start(&peer);
    assert_true(words_put(foreign_at(&f, 0), f.bytes, 0));
    loan = lent(foreign_at(&f, MIB), MIB);
    assert_int_equal(DYTI_MEMORY_WAY_IPC, loan.way);
    assert_int_equal(DYTI_MEMORY_DEVICE, loan.kind);
    assert_int_equal(MIB, loan.offset);
    assert_int_equal(0, loan.piece_count);
    asked(DYT_OK, &peer, .what = ORDER_BORROW, .loan = loan);
    asked(DYT_OK, &peer, .what = ORDER_ARE, .value = MIB / 4);
    asked(DYT_OK, &peer, .what = ORDER_GROW);
    assert_true(words_are(foreign_at(&f, MIB), MIB, MIB / 4, 1));
    assert_true(words_are(foreign_at(&f, 0), MIB, 0, 0));
    asked(DYT_OK, &peer, .what = ORDER_GIVE_BACK);
    asked(DYT_OK, &peer, .what = ORDER_GIVE_BACK);
    peer_end(&peer);
    foreign_free(&f);
    assert_int_equal(0, gpusim_leaks());
}

/* The driver opens it once: two ranges of it, and one of them again. */
static void one_allocation_is_opened_once(void **state)
{
    struct foreign f = foreign_allocated(2 * MIB);
    struct dyti_memory_loan low, high;
    struct peer peer;

    (void)state;
    peer_start(&peer);
    assert_true(words_put(foreign_at(&f, 0), f.bytes, 0));
    low = lent(foreign_at(&f, 0), MIB);
    high = lent(foreign_at(&f, MIB), MIB);
    asked(DYT_OK, &peer, .what = ORDER_BORROW, .slot = 0, .loan = low);
    asked(DYT_OK, &peer, .what = ORDER_BORROW, .slot = 1, .loan = high);
    asked(DYT_OK, &peer, .what = ORDER_BORROW, .slot = 2, .loan = high);
    asked(DYT_OK, &peer, .what = ORDER_GIVE_BACK, .slot = 0);
    asked(DYT_OK, &peer, .what = ORDER_GIVE_BACK, .slot = 2);
    asked(DYT_OK, &peer, .what = ORDER_ARE, .slot = 1, .value = MIB / 4);
    asked(DYT_OK, &peer, .what = ORDER_GIVE_BACK, .slot = 1);
    asked(DYT_OK, &peer, .what = ORDER_BORROW, .slot = 1, .loan = low);
    asked(DYT_OK, &peer, .what = ORDER_ARE, .slot = 1, .value = 0);
    asked(DYT_OK, &peer, .what = ORDER_GIVE_BACK, .slot = 1);
    peer_end(&peer);
    foreign_free(&f);
}

/* ---- pieces -------------------------------------------------------------- */

/* From within the first to within the last, at one address, and no file stays
 * open in either process. */
static void a_process_borrows_pieces(void **state)
{
    struct foreign f = foreign_mapped(0, pieces, 3, 7);
    struct dyti_memory_loan loan;
    struct peer peer;
    uint64_t here, there;

    (void)state;
    peer_start(&peer);
    assert_true(words_put(foreign_at(&f, 0), f.bytes, 0));
    loan = lent(foreign_at(&f, MIB), 6 * MIB);
    assert_int_equal(DYTI_MEMORY_WAY_FD, loan.way);
    assert_int_equal(DYTI_MEMORY_MAPPED, loan.kind);
    assert_int_equal(3, loan.piece_count);
    assert_int_equal(MIB, loan.offset);
    assert_int_equal(8 * MIB, loan.span);
    /* What keeps files open the first time has kept them. */
    for (uint32_t round = 0; round < 2; round++) {
        here = dyt_open_files();
        there = asked(DYT_OK, &peer, .what = ORDER_FILES).number;
        asked(DYT_OK, &peer, .what = ORDER_BORROW, .loan = loan);
        give_pieces(&peer, 0, &loan);
        asked(DYT_OK, &peer, .what = ORDER_ARE, .value = MIB / 4,
              .grown = round);
        asked(DYT_OK, &peer, .what = ORDER_GROW);
        asked(DYT_OK, &peer, .what = ORDER_GIVE_BACK);
    }
    assert_int_equal(here, dyt_open_files());
    assert_int_equal(there, asked(DYT_OK, &peer, .what = ORDER_FILES).number);
    assert_true(words_are(foreign_at(&f, MIB), 6 * MIB, MIB / 4, 2));
    assert_true(words_are(foreign_at(&f, 7 * MIB), MIB, 7 * MIB / 4, 0));
    peer_end(&peer);
    foreign_free(&f);
    assert_int_equal(0, gpusim_leaks());
}

/* Those that the range touches, and no others. */
static void only_pieces_of_the_range_travel(void **state)
{
    struct foreign f = foreign_mapped(0, pieces, 3, 7);
    struct dyti_memory_loan loan;
    uint64_t bytes = 0;
    int fd = -1;

    (void)state;
    loan = lent(foreign_at(&f, 2 * MIB), 4 * MIB);
    assert_int_equal(1, loan.piece_count);
    assert_int_equal(0, loan.offset);
    assert_int_equal(4 * MIB, loan.span);
    loan = lent(foreign_at(&f, 6 * MIB - 1), 1);
    assert_int_equal(1, loan.piece_count);
    assert_int_equal(4 * MIB - 1, loan.offset);
    loan = lent(foreign_at(&f, 6 * MIB - 1), 2);
    assert_int_equal(2, loan.piece_count);
    assert_status(DYT_ERR_PEER, ops->lend_piece(&loan, MIB, &bytes, &fd));
    assert_status(DYT_ERR_INVALID,
                  ops->lend_piece(&loan, 6 * MIB, &bytes, &fd));
    loan.owner_start++;
    assert_status(DYT_ERR_INVALID, ops->lend_piece(&loan, 0, &bytes, &fd));
    assert_status(DYT_ERR_INVALID,
                  ops->lend(foreign_at(&f, 0), 9 * MIB, &loan));
    foreign_free(&f);
}

/* Pieces that are not as the loan says, or nothing that a device knows. */
static void wrong_pieces_are_refused(void **state)
{
    struct foreign f = foreign_mapped(0, pieces, 2, 3);
    struct dyti_memory_loan loan = lent(foreign_at(&f, 0), 5 * MIB);
    struct order piece = {.what = ORDER_PIECE};
    struct answer answer;
    struct peer peer;
    uint64_t bytes = 0;
    int fd = -1, file = memfd_create("other", MFD_CLOEXEC);

    (void)state;
    peer_start(&peer);
    asked(DYT_ERR_STATE, &peer, .what = ORDER_PIECE, .bytes = 2 * MIB);
    asked(DYT_OK, &peer, .what = ORDER_BORROW, .loan = loan);
    assert_ok(ops->lend_piece(&loan, 0, &bytes, &fd));
    piece.bytes = 8 * MIB; /* more than there is */
    assert_asked(DYT_ERR_INVALID, &peer, piece, fd, __LINE__);
    piece.bytes = 0;
    assert_asked(DYT_ERR_INVALID, &peer, piece, fd, __LINE__);
    piece.bytes = 2 * MIB;
    answer = ask(&peer, piece, file);
    assert_true(answer.status == DYT_ERR_DEVICE ||
                (answer.status != DYT_OK && !gpusim_simulates()));
    assert_asked(DYT_OK, &peer, piece, fd, __LINE__);
    assert_asked(DYT_ERR_INVALID, &peer, piece, fd, __LINE__); /* the last */
    close(fd);
    close(file);
    /* Half of it came: that goes back. */
    asked(DYT_OK, &peer, .what = ORDER_GIVE_BACK);
    peer_end(&peer);
    foreign_free(&f);
    assert_int_equal(0, gpusim_held_bytes());
}

/* ---- what is gone -------------------------------------------------------- */

static void freed_memory_is_refused(void **state)
{
    struct foreign f = foreign_mapped(0, pieces, 2, 3), g;
    struct dyti_memory_loan loan = lent(foreign_at(&f, 0), 6 * MIB), plain;
    struct answer answer;
    struct peer peer;
    uint64_t bytes = 0;
    int fd = -1;

    (void)state;
    peer_start(&peer);
    assert_true(words_put(foreign_at(&f, 0), f.bytes, 5));
    asked(DYT_OK, &peer, .what = ORDER_BORROW, .loan = loan);
    give_pieces(&peer, 0, &loan);
    foreign_free(&f);
    /* What is borrowed by pieces stays, but nobody else gets it. */
    asked(DYT_OK, &peer, .what = ORDER_ARE, .value = 5);
    assert_status(DYT_ERR_PEER, ops->lend_piece(&loan, 0, &bytes, &fd));
    assert_error_has("freed");
    asked(DYT_OK, &peer, .what = ORDER_GIVE_BACK);
    g = foreign_allocated(MIB);
    plain = lent(foreign_at(&g, 0), MIB);
    foreign_free(&g);
    if (gpusim_simulates()) { /* a driver may keep what is small for later */
        answer =
            asked(DYT_ERR_PEER, &peer, .what = ORDER_BORROW, .loan = plain);
        assert_non_null(strstr(answer.text, "was it freed"));
        plain.driver++; /* of a library that makes other handles */
        answer = asked(DYT_ERR_UNSUPPORTED, &peer, .what = ORDER_BORROW,
                       .loan = plain);
        assert_non_null(strstr(answer.text, "of CUDA"));
    }
    assert_status(DYT_ERR_INVALID, ops->lend(foreign_at(&g, 0), MIB, &plain));
    peer_end(&peer);
}

static void a_dead_lender_is_named(void **state)
{
    struct dyti_memory_borrowed mine = {0};
    struct answer answer;
    struct peer peer;
    char name[32];

    (void)state;
    peer_start(&peer);
    answer = asked(DYT_OK, &peer, .what = ORDER_LEND, .bytes = MIB, .value = 9);
    assert_ok(ops->borrow(&answer.loan, &mine));
    assert_true(words_are(mine.ptr, MIB, 9, 0));
    ops->give_back(&mine);
    peer_kill(&peer);
    assert_status(DYT_ERR_PEER, ops->borrow(&answer.loan, &mine));
    assert_null(mine.self);
    snprintf(name, sizeof(name), "process %d", (int)peer.pid);
    assert_error_has(name);
    assert_error_has("gone");
}

/* Pieces outlive whoever had them: the descriptors are enough. */
static void pieces_outlive_their_lender(void **state)
{
    struct foreign f = foreign_mapped(0, pieces, 1, 1);
    struct dyti_memory_loan loan = lent(foreign_at(&f, 0), 2 * MIB);
    struct dyti_memory_borrowed mine = {0};
    uint64_t bytes = 0;
    int fd = -1;

    (void)state;
    assert_true(words_put(foreign_at(&f, 0), f.bytes, 3));
    assert_ok(ops->lend_piece(&loan, 0, &bytes, &fd));
    foreign_free(&f);
    loan.owner_start++; /* as of another process, which is gone */
    assert_ok(ops->borrow(&loan, &mine));
    assert_int_equal(1, mine.wanted);
    assert_ok(ops->borrow_piece(&mine, bytes, fd));
    close(fd);
    assert_true(words_are(mine.ptr, 2 * MIB, 3, 0));
    ops->give_back(&mine);
    assert_int_equal(0, gpusim_held_bytes());
    assert_int_equal(0, gpusim_leaks());
}

/* ---- the same process ---------------------------------------------------- */

static void the_own_process_has_the_pointer(void **state)
{
    struct foreign f = foreign_allocated(MIB);
    struct foreign g =
        foreign_mapped(0, pieces, 3, 5); /* one cannot be given */
    struct dyti_memory_borrowed mine = {0};
    struct dyti_memory_loan loan;

    (void)state;
    loan = lent(foreign_at(&f, 100), 16);
    assert_ok(ops->borrow(&loan, &mine));
    assert_ptr_equal(foreign_at(&f, 100), mine.ptr);
    assert_int_equal(16, mine.bytes);
    ops->give_back(&mine);
    loan = lent(foreign_at(&g, 1), 7 * MIB);
    assert_int_equal(DYTI_MEMORY_WAY_NONE, loan.way);
    assert_int_equal(0, loan.piece_count);
    assert_ok(ops->borrow(&loan, &mine));
    assert_int_equal(0, mine.wanted);
    assert_ptr_equal(foreign_at(&g, 1), mine.ptr);
    ops->give_back(&mine);
    assert_null(mine.ptr);
    foreign_free(&f);
    foreign_free(&g);
    assert_int_equal(0, gpusim_leaks());
}

/* What cannot be given says why, in the other process too. */
static void what_cannot_be_given_says_why(void **state)
{
    struct foreign g = foreign_mapped(0, pieces, 3, 5);
    void *pooled = NULL, *pinned = NULL, *managed = NULL;
    struct dyti_memory_borrowed mine = {0};
    struct dyti_memory_loan loan;
    struct answer answer;
    struct peer peer;
    char host[8];

    (void)state;
    peer_start(&peer);
    assert_cuda(cudaMallocAsync(&pooled, 1000, NULL));
    assert_cuda(cudaMallocManaged(&managed, 1000, 1));
    assert_ok(ops->host_alloc(4096, &pinned));
    loan = lent(foreign_at(&g, MIB), 2 * MIB);
    answer =
        asked(DYT_ERR_UNSUPPORTED, &peer, .what = ORDER_BORROW, .loan = loan);
    assert_non_null(strstr(answer.text, "requestedHandleTypes"));
    for (uint32_t i = 0; i < 3; i++) {
        static const char *const why[] = {"pool", "managed", "its own means"};
        char *at = i == 0 ? pooled : i == 1 ? managed : pinned;

        loan = lent(at + 4, 8);
        assert_int_equal(DYTI_MEMORY_WAY_NONE, loan.way);
        answer = asked(DYT_ERR_UNSUPPORTED, &peer, .what = ORDER_BORROW,
                       .loan = loan);
        assert_non_null(strstr(answer.text, why[i]));
        assert_ok(ops->borrow(&loan, &mine));
        assert_ptr_equal(at + 4, mine.ptr);
        ops->give_back(&mine);
    }
    assert_status(DYT_ERR_INVALID, ops->lend(host, 8, &loan));
    assert_error_has("no device knows");
    assert_status(DYT_ERR_INVALID, ops->lend(NULL, 8, &loan));
    assert_status(DYT_ERR_INVALID, ops->lend(pooled, 0, &loan));
    if (gpusim_simulates()) { /* a driver may have rounded it up */
        assert_status(DYT_ERR_INVALID,
                      ops->lend((char *)pooled + 999, 2, &loan));
    }
    assert_cuda(cudaFreeAsync(pooled, NULL));
    assert_cuda(cudaFree(managed));
    ops->host_free(pinned);
    peer_end(&peer);
    foreign_free(&g);
    assert_int_equal(0, gpusim_leaks());
}

/* Bytes from elsewhere are looked at. */
static void what_is_no_loan_is_refused(void **state)
{
    struct foreign f = foreign_allocated(MIB);
    struct dyti_memory_loan good = lent(foreign_at(&f, 0), MIB), bad;
    struct dyti_memory_borrowed mine = {0};

    (void)state;
    good.span = MIB; /* whatever the driver has rounded it up to */
#define REFUSED(member, value)                                                 \
    bad = good;                                                                \
    bad.member = (value);                                                      \
    assert_status(DYT_ERR_INVALID, ops->borrow(&bad, &mine))
    REFUSED(magic[3], 'x');
    REFUSED(way, 9);
    REFUSED(kind, DYTI_MEMORY_KIND_COUNT);
    REFUSED(kind, DYTI_MEMORY_HOST);
    REFUSED(bytes, 0);
    REFUSED(bytes, MIB + 1);
    REFUSED(offset, 1);
    REFUSED(address, 0);
    REFUSED(piece_count, 2);
    REFUSED(device[0], '\0');
#undef REFUSED
    assert_null(mine.self);
    foreign_free(&f);
}

static const struct CMUnitTest tests[] = {
    lend_test(a_process_borrows_an_allocation),
    lend_test(one_allocation_is_opened_once),
    lend_test(a_process_borrows_pieces),
    lend_test(only_pieces_of_the_range_travel),
    lend_test(wrong_pieces_are_refused),
    lend_test(freed_memory_is_refused),
    lend_test(a_dead_lender_is_named),
    lend_test(pieces_outlive_their_lender),
    lend_test(the_own_process_has_the_pointer),
    lend_test(what_cannot_be_given_says_why),
    lend_test(what_is_no_loan_is_refused),
};
LEND_TEST_MAIN(tests)
