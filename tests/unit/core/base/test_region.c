/* Pieces of a region: addresses, alignment, rewinding, measuring
 * (base/region.h). */
#include "base/region.h"

#include "dyt_test.h"

static void take_examples_give_addresses(void **state)
{
    static const struct {
        const char *what;
        uint64_t used, bytes, align, want;
    } row[] = {
        {"first piece", 0, 10, 1, 0},      {"follows on", 10, 4, 1, 10},
        {"aligned up", 14, 4, 8, 16},      {"already aligned", 16, 4, 8, 16},
        {"nothing", 20, 0, 1, 20},         {"to the end", 0, 256, 64, 0},
        {"big alignment", 1, 1, 128, 128},
    };
    _Alignas(128) unsigned char memory[256];

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        struct dyti_region region;
        void *got = NULL;

        dyti_region_init(&region, memory, sizeof(memory));
        region.used = row[i].used;
        assert_ok(dyti_region_take(&region, row[i].bytes, row[i].align, &got));
        if (got != memory + row[i].want) {
            fail_msg("%s: offset %td, want %" PRIu64, row[i].what,
                     (unsigned char *)got - memory, row[i].want);
        }
        assert_int_equal(row[i].want + row[i].bytes, region.used);
        assert_int_equal(region.used, region.high_water);
    }
}

static void alignment_is_of_the_address_not_of_the_offset(void **state)
{
    _Alignas(64) unsigned char memory[256];
    struct dyti_region region;
    void *got = NULL;

    (void)state;
    dyti_region_init(&region, memory + 1, 200);
    assert_ok(dyti_region_take(&region, 1, 64, &got));
    assert_ptr_equal(memory + 64, got);
}

static void too_much_is_refused_and_nothing_is_taken(void **state)
{
    unsigned char memory[64];
    struct dyti_region region;
    void *got = &region;

    (void)state;
    dyti_region_init(&region, memory, sizeof(memory));
    assert_ok(dyti_region_take(&region, 60, 1, &got));
    got = &region;
    assert_status(DYT_ERR_NOMEM, dyti_region_take(&region, 5, 1, &got));
    assert_error_has("5 bytes do not fit: 60 of 64");
    assert_status(DYT_ERR_NOMEM,
                  dyti_region_take(&region, UINT64_MAX, 1, &got));
    assert_status(DYT_ERR_NOMEM,
                  dyti_region_take(&region, UINT64_MAX - 61, 64, &got));
    assert_status(DYT_ERR_INVALID, dyti_region_take(&region, 1, 0, &got));
    assert_status(DYT_ERR_INVALID, dyti_region_take(&region, 1, 24, &got));
    assert_status(DYT_ERR_OVERFLOW,
                  dyti_region_take_items(&region, UINT64_MAX / 2, 4, &got));
    assert_ptr_equal(&region, got);
    assert_int_equal(60, region.used);
    assert_int_equal(60, region.high_water);
    assert_ok(dyti_region_take(&region, 4, 1, &got));
}

static void rewind_gives_back_and_high_water_stays(void **state)
{
    unsigned char memory[64];
    struct dyti_region region;
    void *first = NULL, *again = NULL;
    uint64_t mark;

    (void)state;
    dyti_region_init(&region, memory, sizeof(memory));
    assert_ok(dyti_region_take(&region, 8, 1, &first));
    mark = dyti_region_mark(&region);
    assert_ok(dyti_region_take(&region, 40, 1, &first));
    dyti_region_rewind(&region, mark);
    assert_ok(dyti_region_take(&region, 4, 1, &again));
    assert_ptr_equal(first, again);
    assert_int_equal(48, region.high_water);
    dyti_region_reset(&region);
    assert_int_equal(0, region.used);
    assert_int_equal(48, region.high_water);
}

/* A region without memory measures what one with memory would take. */
static void measuring_agrees_with_taking(void **state)
{
    static _Alignas(4096) unsigned char memory[1 << 16];
    unsigned seed = 20240601u;

    (void)state;
    for (int round = 0; round < 500; round++) {
        struct dyti_region real, ghost;

        dyti_region_init(&real, memory, sizeof(memory));
        dyti_region_init(&ghost, NULL, UINT64_MAX);
        for (int i = 0; i < 20; i++) {
            uint64_t bytes = (uint64_t)rand_r(&seed) % 900;
            uint64_t align = 1ull << ((uint64_t)rand_r(&seed) % 12);
            void *a = NULL, *b = NULL;

            assert_ok(dyti_region_take(&real, bytes, align, &a));
            assert_ok(dyti_region_take(&ghost, bytes, align, &b));
            assert_int_equal((unsigned char *)a - memory, (uintptr_t)b);
            assert_int_equal(0, (uintptr_t)a % align);
        }
        assert_int_equal(real.high_water, ghost.high_water);
    }
}

static void typed_pieces_are_64_byte_aligned(void **state)
{
    _Alignas(64) unsigned char memory[256];
    struct dyti_region region;
    double *x = NULL;
    uint16_t *y = NULL;

    (void)state;
    dyti_region_init(&region, memory, sizeof(memory));
    assert_ok(DYTI_TAKE(&region, &x, 3));
    assert_ok(DYTI_TAKE(&region, &y, 5));
    assert_ptr_equal(memory, x);
    assert_ptr_equal(memory + 64, y);
    assert_int_equal(74, region.used);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(take_examples_give_addresses),
    cmocka_unit_test(alignment_is_of_the_address_not_of_the_offset),
    cmocka_unit_test(too_much_is_refused_and_nothing_is_taken),
    cmocka_unit_test(rewind_gives_back_and_high_water_stays),
    cmocka_unit_test(measuring_agrees_with_taking),
    cmocka_unit_test(typed_pieces_are_64_byte_aligned),
};
DYT_TEST_MAIN(tests)
