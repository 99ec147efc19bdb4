/* Lent memory and several devices, and every call of the driver that may fail:
 * what the simulator alone can play. */
#include "lend_case.h"

static const uint64_t pieces[] = {2 * MIB, 4 * MIB, 2 * MIB};

static void refuse(int device, int other)
{
    struct gpusim_machine m;

    gpusim_get_machine(&m);
    m.refuses[device] |= 1u << other;
    gpusim_set_machine(&m);
}

/* An allocation, or pieces, of a device, filled there. */
static struct foreign filled(bool is_mapped, const char *device, int ordinal)
{
    struct foreign f;

    assert_ok(ops->use(device));
    f = is_mapped ? foreign_mapped(ordinal, pieces, 3, 7)
                  : foreign_allocated(8 * MIB);
    assert_true(words_put(foreign_at(&f, 0), f.bytes, 0));
    return f;
}

/* ---- one process --------------------------------------------------------- */

static void devices_say_whom_they_reach(void **state)
{
    (void)state;
    gpusim_have_devices(3);
    refuse(0, 2);
    assert_ok(ops->use(UUID_OF("00")));
    assert_ok(ops->reaches(UUID_OF("00"), UUID_OF("00")));
    assert_ok(ops->reaches(UUID_OF("00"), UUID_OF("01")));
    assert_ok(ops->reaches(NULL, UUID_OF("01")));
    assert_ok(ops->reaches(UUID_OF("02"), NULL));
    assert_status(DYT_ERR_UNSUPPORTED, ops->reaches(NULL, UUID_OF("02")));
    assert_error_has(UUID_OF("00") " does not reach the memory of");
    assert_error_has(UUID_OF("02"));
    assert_error_has("peer access");
    assert_status(DYT_ERR_UNSUPPORTED, ops->reaches(NULL, UUID_OF("03")));
    assert_error_has("CUDA_VISIBLE_DEVICES");
    assert_status(DYT_ERR_UNSUPPORTED, ops->reaches("0", NULL));
}

/* The pointer, which the other device's kernels have after that. */
static void a_device_borrows_of_another_one(void **state)
{
    (void)state;
    for (int is_mapped = 0; is_mapped < 2; is_mapped++) {
        struct dyti_memory_borrowed mine = {0}, again = {0};
        struct dyti_memory_loan loan;
        struct foreign f;

        gpusim_reset();
        gpusim_have_devices(2);
        f = filled(is_mapped, UUID_OF("00"), 0);
        assert_ok(ops->use(UUID_OF("01"))); /* whichever lends it */
        loan = lent(foreign_at(&f, MIB), 6 * MIB);
        assert_string_equal(UUID_OF("00"), loan.device);
        assert_ok(ops->borrow(&loan, &mine));
        assert_ok(ops->borrow(&loan, &again)); /* it is open already */
        assert_ptr_equal(foreign_at(&f, MIB), mine.ptr);
        assert_true(words_grow(mine.ptr, mine.bytes));
        ops->give_back(&again);
        assert_ok(ops->use(UUID_OF("00")));
        ops->give_back(&mine);
        assert_ok(ops->use(UUID_OF("00")));
        assert_true(words_are(foreign_at(&f, MIB), 6 * MIB, MIB / 4, 1));
        assert_true(words_grow(foreign_at(&f, 0), MIB)); /* as before */
        foreign_free(&f);
        assert_int_equal(0, gpusim_leaks());
    }
}

static void what_is_not_reached_is_refused(void **state)
{
    struct dyti_memory_borrowed mine = {0};
    struct dyti_memory_loan loan;
    struct foreign f;
    void *pooled = NULL;

    (void)state;
    gpusim_have_devices(2);
    refuse(1, 0);
    f = filled(false, UUID_OF("00"), 0);
    loan = lent(foreign_at(&f, 0), MIB);
    assert_ok(ops->use(UUID_OF("01")));
    assert_status(DYT_ERR_UNSUPPORTED, ops->borrow(&loan, &mine));
    assert_error_has("peer access");
    assert_null(mine.self);
    gpusim_reset();
    gpusim_have_devices(2);
    assert_ok(ops->use(UUID_OF("00")));
    assert_cuda(cudaMallocAsync(&pooled, 100, NULL));
    loan = lent(pooled, 100);
    assert_ok(ops->use(UUID_OF("01")));
    assert_status(DYT_ERR_UNSUPPORTED, ops->borrow(&loan, &mine));
    assert_error_has("only its owner");
    assert_ok(ops->use(UUID_OF("00")));
    assert_cuda(cudaFreeAsync(pooled, NULL));
    gpusim_have_devices(1);
    assert_ok(ops->use(NULL));
    memcpy(loan.device, UUID_OF("01"), sizeof(UUID_OF("01")));
    assert_status(DYT_ERR_UNSUPPORTED, ops->borrow(&loan, &mine));
    assert_error_has("not seen");
}

/* Pieces that lie on several devices are no loan. */
static void pieces_are_of_one_device(void **state)
{
    const struct dyti_cuda_calls *calls = lend_calls();
    CUmemAccessDesc access = {foreign_prop(1, true).location,
                              CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemAllocationProp prop = foreign_prop(1, true);
    CUmemGenericAllocationHandle memory = 0;
    struct dyti_memory_loan loan;
    struct foreign f;

    (void)state;
    gpusim_have_devices(2);
    assert_ok(ops->use(UUID_OF("00")));
    f = foreign_mapped(0, pieces, 3, 7);
    assert_int_equal(CUDA_SUCCESS, calls->cuMemUnmap(f.at + 6 * MIB, 2 * MIB));
    assert_status(DYT_ERR_INVALID,
                  ops->lend(foreign_at(&f, 0), 7 * MIB, &loan));
    assert_error_has("byte 6291456");
    assert_int_equal(CUDA_SUCCESS,
                     calls->cuMemCreate(&memory, 2 * MIB, &prop, 0));
    assert_int_equal(CUDA_SUCCESS,
                     calls->cuMemMap(f.at + 6 * MIB, 2 * MIB, 0, memory, 0));
    assert_int_equal(CUDA_SUCCESS, calls->cuMemRelease(memory));
    assert_int_equal(CUDA_SUCCESS, calls->cuMemSetAccess(f.at + 6 * MIB,
                                                         2 * MIB, &access, 1));
    assert_status(DYT_ERR_INVALID,
                  ops->lend(foreign_at(&f, 0), 7 * MIB, &loan));
    assert_error_has(UUID_OF("01"));
    assert_ok(ops->lend(foreign_at(&f, 0), 6 * MIB, &loan));
    foreign_free(&f);
}

/* ---- processes ----------------------------------------------------------- */

static struct order borrow_of(const struct dyti_memory_loan *loan)
{
    return (struct order){.what = ORDER_BORROW, .loan = *loan};
}

static void use_there(const struct peer *peer, const char *device)
{
    struct order order = {.what = ORDER_USE};

    snprintf(order.loan.device, sizeof(order.loan.device), "%s", device);
    assert_asked(DYT_OK, peer, order, -1, __LINE__);
}

/* Of a process that sees the devices in another order, and has another one in
 * use than the memory's. */
static void processes_borrow_across_devices(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        struct dyti_memory_loan loan;
        struct foreign f;
        struct peer peer;

        gpusim_reset();
        gpusim_have_devices(3);
        peer_start(&peer);
        /* 1, 2, 3: its first one is our second. */
        asked(DYT_OK, &peer, .what = ORDER_MACHINE, .value = 3, .bytes = 1);
        use_there(&peer, kind / 2 == 0 ? UUID_OF("01") : UUID_OF("02"));
        f = filled(kind % 2, UUID_OF("01"), 1);
        loan = lent(foreign_at(&f, MIB), 6 * MIB);
        assert_string_equal(UUID_OF("01"), loan.device);
        assert_asked(DYT_OK, &peer, borrow_of(&loan), -1, __LINE__);
        give_pieces(&peer, 0, &loan);
        asked(DYT_OK, &peer, .what = ORDER_GROW);
        asked(DYT_OK, &peer, .what = ORDER_ARE, .value = MIB / 4, .grown = 1);
        asked(DYT_OK, &peer, .what = ORDER_GIVE_BACK);
        peer_end(&peer);
        assert_true(words_are(foreign_at(&f, MIB), 6 * MIB, MIB / 4, 1));
        foreign_free(&f);
        assert_int_equal(0, gpusim_leaks());
        assert_int_equal(0, gpusim_held_bytes());
    }
}

/* One of its devices, our first, is not among those that a process sees. */
static void a_device_that_is_not_seen_is_named(void **state)
{
    struct dyti_memory_loan loan;
    struct answer answer;
    struct foreign f;
    struct peer peer;

    (void)state;
    gpusim_have_devices(2);
    peer_start(&peer);
    asked(DYT_OK, &peer, .what = ORDER_MACHINE, .value = 1, .bytes = 1);
    for (int is_mapped = 0; is_mapped < 2; is_mapped++) {
        f = filled(is_mapped, UUID_OF("00"), 0);
        loan = lent(foreign_at(&f, 0), MIB);
        answer = assert_asked(DYT_ERR_UNSUPPORTED, &peer, borrow_of(&loan), -1,
                              __LINE__);
        assert_non_null(strstr(answer.text, UUID_OF("00") " is not seen"));
        foreign_free(&f);
    }
    peer_end(&peer);
}

/* ---- calls that fail ----------------------------------------------------- */

/* Each call of the borrower: it says so, and has nothing afterwards. */
static void every_call_of_a_borrower_may_fail(void **state)
{
    (void)state;
    for (int is_mapped = 0; is_mapped < 2; is_mapped++) {
        struct dyti_memory_loan loan;
        struct foreign f;
        struct peer peer;
        uint32_t nth = 0;
        bool failed = true;

        gpusim_have_devices(1);
        f = filled(is_mapped, UUID_OF("00"), 0);
        loan = lent(foreign_at(&f, MIB), 4 * MIB);
        while (failed) {
            struct answer answer;
            uint64_t at = 0;

            peer_start(&peer);
            asked(DYT_OK, &peer, .what = ORDER_FAIL, .value = ++nth);
            answer = ask(&peer, borrow_of(&loan), -1);
            for (uint32_t i = 0;
                 i < loan.piece_count && answer.status == DYT_OK; i++) {
                struct order piece = {.what = ORDER_PIECE};
                int fd = -1;

                assert_ok(ops->lend_piece(&loan, at, &piece.bytes, &fd));
                answer = ask(&peer, piece, fd);
                close(fd);
                at += piece.bytes;
            }
            failed = answer.has_failed;
            assert_int_equal(failed, answer.status != DYT_OK);
            assert_true(!failed ||
                        strstr(answer.text, "CUDA_ERROR_UNKNOWN") != NULL);
            asked(DYT_OK, &peer, .what = ORDER_GIVE_BACK);
            peer_end(&peer); /* nothing is left there */
        }
        assert_true(nth > (is_mapped ? 7 : 1));
        foreign_free(&f);
        assert_int_equal(0, gpusim_held_bytes());
    }
}

/* … and of the lender, those that only ask among them. */
static void every_call_of_a_lender_may_fail(void **state)
{
    static const char *const calls[] = {
        "cuMemRetainAllocationHandle",
        "cuMemGetAllocationPropertiesFromHandle",
        "cuMemExportToShareableHandle",
        "cuPointerGetAttributes",
        "cuMemGetAddressRange",
        "cuIpcGetMemHandle"};

    (void)state;
    for (size_t c = 0; c < DYT_TEST_COUNT(calls); c++) {
        for (int is_mapped = 0; is_mapped < 2; is_mapped++) {
            uint64_t nth = 0;

            do {
                struct dyti_memory_loan loan = {0};
                enum dyt_status st;
                struct foreign f;
                uint64_t bytes = 0;
                int fd = -1;

                gpusim_reset();
                gpusim_have_devices(1);
                f = filled(is_mapped, UUID_OF("00"), 0);
                gpusim_fail_call(calls[c], ++nth, CUDA_ERROR_UNKNOWN);
                st = ops->lend(foreign_at(&f, 0), 6 * MIB, &loan);
                if (st == DYT_OK && loan.way == DYTI_MEMORY_WAY_FD) {
                    st = ops->lend_piece(&loan, 2 * MIB, &bytes, &fd);
                }
                /* It fails, or says that others cannot have it, or it is taken
                 * for another kind. */
                if (st == DYT_OK && gpusim_has_failed()) {
                    assert_true(loan.offset == 0 && loan.bytes == 6 * MIB);
                    assert_true(loan.way != DYTI_MEMORY_WAY_FD ||
                                strcmp(calls[c],
                                       "cuMemGetAllocationPropertiesFrom"
                                       "Handle") == 0);
                }
                if (fd >= 0) {
                    close(fd);
                }
                foreign_free(&f);
                assert_int_equal(0, gpusim_leaks());
                assert_int_equal(0, gpusim_unexpected());
            } while (gpusim_has_failed());
        }
    }
}

/* A card that reaches so many others and no more. */
static void peer_access_may_be_refused_late(void **state)
{
    struct dyti_memory_borrowed mine = {0};
    struct dyti_memory_loan loan;
    struct foreign f;

    (void)state;
    gpusim_have_devices(2);
    f = filled(false, UUID_OF("00"), 0);
    loan = lent(foreign_at(&f, 0), MIB);
    assert_ok(ops->use(UUID_OF("01")));
    gpusim_fail_call("cudaDeviceEnablePeerAccess", 1,
                     cudaErrorPeerAccessUnsupported);
    assert_status(DYT_ERR_UNSUPPORTED, ops->borrow(&loan, &mine));
    assert_error_has("cudaErrorPeerAccessUnsupported");
    assert_ok(ops->borrow(&loan, &mine));
    ops->give_back(&mine);
    foreign_free(&f);
}

static void openings_that_are_refused_late_are_named(void **state)
{
    static const struct {
        int error;
        enum dyt_status status;
        const char *text;
    } cases[] = {
        {CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, DYT_ERR_UNSUPPORTED, "refuses"},
        {CUDA_ERROR_TOO_MANY_PEERS, DYT_ERR_UNSUPPORTED, "refuses"},
        {CUDA_ERROR_MAP_FAILED, DYT_ERR_PEER, "another container"},
        {CUDA_ERROR_OUT_OF_MEMORY, DYT_ERR_NOMEM, "MiB"},
        {CUDA_ERROR_NOT_SUPPORTED, DYT_ERR_UNSUPPORTED, "cannot"}};
    struct dyti_memory_borrowed mine = {0};
    struct answer answer;
    struct peer peer;

    (void)state;
    peer_start(&peer);
    answer = asked(DYT_OK, &peer, .what = ORDER_LEND, .bytes = MIB);
    for (size_t i = 0; i < DYT_TEST_COUNT(cases); i++) {
        gpusim_fail_call("cuIpcOpenMemHandle", 1, cases[i].error);
        assert_status(cases[i].status, ops->borrow(&answer.loan, &mine));
        assert_error_has(cases[i].text);
    }
    assert_ok(ops->borrow(&answer.loan, &mine));
    ops->give_back(&mine);
    asked(DYT_OK, &peer, .what = ORDER_FREE);
    peer_end(&peer);
}

static const struct CMUnitTest tests[] = {
    lend_test(devices_say_whom_they_reach),
    lend_test(a_device_borrows_of_another_one),
    lend_test(what_is_not_reached_is_refused),
    lend_test(pieces_are_of_one_device),
    lend_test(processes_borrow_across_devices),
    lend_test(a_device_that_is_not_seen_is_named),
    lend_test(every_call_of_a_borrower_may_fail),
    lend_test(every_call_of_a_lender_may_fail),
    lend_test(peer_access_may_be_refused_late),
    lend_test(openings_that_are_refused_late_are_named),
};
LEND_TEST_MAIN(tests)
