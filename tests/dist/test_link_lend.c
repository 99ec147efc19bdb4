/* Descriptors on their way between processes: who gets what, how few files are
 * open, and whose failure it is.  Who dies, comes uninvited or never answers:
 * test_link_lend_faults.c. */
#include "lend_scene.h"

#include "base/rng.h"

static void everybody_gets_what_he_asks_for(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < dyt_test_rounds(30, 300); seed++) {
        uint32_t size = 2 + (uint32_t)(dyti_rng_u64(seed, 1, 0, 0) % 5);
        struct scene s = {.doer = 0};

        for (uint32_t r = 0; r < size; r++) {
            for (uint32_t i = 0; i < LOANS; i++) {
                uint64_t draw = dyti_rng_u64(seed, 2, r, i);

                s.pieces[r][i] = (uint32_t)(draw % 40);
                for (uint32_t who = 0; who < size; who++) {
                    uint64_t take = dyti_rng_u64(seed, 3 + who, r, i) % 2;

                    s.want[who] |= take << (4 * r + i);
                }
            }
        }
        play(seed % 2 == 0 ? DYT_RANKS_THREADS : DYT_RANKS_PROCESSES, size, &s);
    }
}

/* More pieces than files may be open. */
static void few_files_are_open(void **state)
{
    struct scene s = one_asks(700);

    (void)state;
    s.want[1] = 2; /* the other way at the same time */
    s.pieces[0][1] = 300;
    s.more_files[0] = s.more_files[1] = 60;
    play(DYT_RANKS_PROCESSES, 2, &s);
    s = one_asks(700); /* fewer than a message holds */
    s.more_files[0] = 40;
    s.more_files[1] = 6;
    play(DYT_RANKS_PROCESSES, 2, &s);
    s = one_asks(700);
    s.more_files[0] = 6;
    s.status[0] = DYT_ERR_IO;
    s.text[0] = "ulimit -n";
    play(DYT_RANKS_PROCESSES, 2, &s);
}

static void one_failure_is_nobody_elses(void **state)
{
    struct scene s = one_asks(40);

    (void)state;
    s.want[2] = 1u << 8 | 1u << 5; /* rank 2: of itself, and of rank 1 */
    s.pieces[1][1] = 20;
    s.pieces[2][0] = 3;
    s.refuses = 1;
    s.status[0] = DYT_ERR_DEVICE;
    s.text[0] = "no device wants";
    play(DYT_RANKS_PROCESSES, 3, &s);
    s = one_asks(40);
    s.deed = DEED_FREED;
    s.at = 20; /* in the second message */
    s.status[0] = DYT_ERR_PEER;
    s.text[0] = "member 1: the memory was freed";
    play(DYT_RANKS_PROCESSES, 2, &s);
    s = one_asks(40);
    s.forges = true;
    s.status[0] = DYT_ERR_INVALID;
    s.text[0] = "has not made";
    play(DYT_RANKS_THREADS, 2, &s);
}

static void wrong_parameters_are_refused(void **state)
{
    struct dyti_group all = {.ops = &dyti_group_shm, .size = 1};
    struct dyti_memory_borrowed borrowed = {.wanted = 1};
    struct dyti_memory_loan loan = loan_of(0, 0, 1);
    struct dyti_lend_want want = {1, &loan, &borrowed};
    struct dyti_lend_params p = {.struct_size = sizeof(p) - 1, .all = &all};
    enum dyt_status met = DYT_OK;

    (void)state;
    assert_status(DYT_ERR_ABI, dyti_lend_pieces(&p, &met));
    assert_int_equal(DYT_ERR_ABI, met);
    p.struct_size = sizeof(p);
    assert_ok(dyti_lend_pieces(&p, &met));
    p.want = &want;
    p.want_count = 1;
    assert_status(DYT_ERR_INVALID, dyti_lend_pieces(&p, &met));
    assert_ok(met);
    want.member = 0; /* which lends nothing */
    assert_status(DYT_ERR_PEER, dyti_lend_pieces(&p, &met));
    assert_error_has("member 0 lends nothing");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(everybody_gets_what_he_asks_for),
    cmocka_unit_test(few_files_are_open),
    cmocka_unit_test(one_failure_is_nobody_elses),
    cmocka_unit_test(wrong_parameters_are_refused),
};
DYT_TEST_MAIN(tests)
