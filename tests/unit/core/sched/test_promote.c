/* What is one collective, what is none, and that nothing is lost. */
#include "dyt_test.h"

#include "base/rng.h"
#include "sched/promote.h"

static const struct dyti_collective *only(const struct dyti_promotion *p,
                                          enum dyti_collective_kind kind,
                                          uint32_t members)
{
    assert_int_equal(1, p->count);
    assert_int_equal(kind, p->collective[0].kind);
    assert_int_equal(members, p->collective[0].member_count);
    return &p->collective[0];
}

/* Two contents that go the same way are one; a third that does not is left. */
static void broadcasts_of_the_same_ranks_join(void **state)
{
    const struct dyti_promotable item[] = {
        {2, 0, 7, 10, 0}, {2, 1, 7, 10, 0}, {2, 5, 7, 10, 0}, {2, 0, 8, 5, 0},
        {2, 1, 8, 5, 0},  {2, 5, 8, 5, 0},  {2, 0, 9, 3, 0}};
    struct dyti_promotion p = {0};
    const struct dyti_collective *c;

    (void)state;
    assert_ok(dyti_promote(item, 7, NULL, &p));
    c = only(&p, DYTI_COLLECTIVE_BROADCAST, 4);
    assert_int_equal(2, c->root);
    assert_int_equal(15, c->bytes);
    assert_int_equal(6, c->item_count);
    assert_int_equal(0, p.member[0]);
    assert_int_equal(2, p.member[2]);
    assert_int_equal(5, p.member[3]);
    assert_int_equal(1, p.rest_count);
    assert_int_equal(6, p.rest[0]);
    dyti_promotion_fini(&p);
}

static void everybody_to_everybody_is_an_all_gather(void **state)
{
    struct dyti_promotable item[12];
    struct dyti_promote_options no = {.kinds = 1u << DYTI_COLLECTIVE_BROADCAST};
    struct dyti_promotion p = {0};
    size_t n = 0;

    (void)state;
    for (uint32_t i = 0; i < 16; i++) {
        if (i / 4 != i % 4) {
            item[n++] =
                (struct dyti_promotable){i / 4, i % 4, 100 + i / 4, 64, 1};
        }
    }
    assert_ok(dyti_promote(item, n, NULL, &p));
    assert_int_equal(64, only(&p, DYTI_COLLECTIVE_ALL_GATHER, 4)->bytes);
    assert_int_equal(1, p.collective[0].wave);
    assert_int_equal(12, p.collective[0].item_count);
    dyti_promotion_fini(&p);

    item[0].bytes = 65; /* not the same content to all: not even a broadcast */
    assert_ok(dyti_promote(item, n, NULL, &p));
    assert_int_equal(3, p.count);
    assert_int_equal(DYTI_COLLECTIVE_BROADCAST, p.collective[2].kind);
    assert_int_equal(3, p.rest_count);
    dyti_promotion_fini(&p);

    item[0].bytes = 64;
    assert_ok(dyti_promote(item, n, &no, &p));
    assert_int_equal(4, p.count);
    dyti_promotion_fini(&p);
}

static void equal_parts_are_a_scatter_or_a_gather(void **state)
{
    struct dyti_promotable item[] = {
        {0, 1, 1, 8, 0}, {0, 2, 2, 8, 0}, {0, 3, 3, 8, 0}};
    struct dyti_promotion p = {0};

    (void)state;
    assert_ok(dyti_promote(item, 3, NULL, &p));
    assert_int_equal(8, only(&p, DYTI_COLLECTIVE_SCATTER, 4)->bytes);
    dyti_promotion_fini(&p);

    item[2].bytes = 9; /* not equal */
    assert_ok(dyti_promote(item, 3, NULL, &p));
    assert_int_equal(0, p.count);
    assert_int_equal(3, p.rest_count);
    dyti_promotion_fini(&p);

    for (uint32_t i = 0; i < 3; i++) {
        item[i] = (struct dyti_promotable){i + 1, 4, i, 8, 0};
    }
    assert_ok(dyti_promote(item, 3, NULL, &p));
    assert_int_equal(4, only(&p, DYTI_COLLECTIVE_GATHER, 4)->root);
    dyti_promotion_fini(&p);
}

/* Everybody sends everybody something else: rows are no scatters. */
static void all_to_all_is_left_alone(void **state)
{
    struct dyti_promotable item[12];
    struct dyti_promotion p = {0};
    size_t n = 0;

    (void)state;
    for (uint32_t i = 0; i < 16; i++) {
        if (i / 4 != i % 4) {
            item[n++] = (struct dyti_promotable){i / 4, i % 4, i, 64, 0};
        }
    }
    assert_ok(dyti_promote(item, n, NULL, &p));
    assert_int_equal(0, p.count);
    assert_int_equal(12, p.rest_count);
    dyti_promotion_fini(&p);
}

/* Random transfers: each is in one collective or in the rest; members are who
 * takes part; shuffled input finds as much. */
static void nothing_is_lost(void **state)
{
    uint64_t rounds = dyt_test_rounds(200, 2000);

    (void)state;
    for (uint64_t seed = 0; seed < rounds; seed++) {
        struct dyti_promotable item[64];
        unsigned char seen[64] = {0};
        struct dyti_promotion p = {0};
        size_t n = 0;
        uint32_t total = 0;

        for (uint32_t c = 0; c < 8; c++) {
            uint32_t src = (uint32_t)(dyti_rng_u64(seed, c, 0, 0) % 5);
            uint64_t to = dyti_rng_u64(seed, c, 1, 0) % 32;

            to = dyti_rng_u64(seed, c, 2, 0) % 2 == 0 ? 31 : to;
            for (uint32_t d = 0; d < 5; d++) {
                if (d != src && (to >> d & 1) != 0) {
                    item[n++] = (struct dyti_promotable){src, d, c, 16, c % 2};
                }
            }
        }
        assert_ok(dyti_promote(item, n, NULL, &p));
        for (size_t i = 0; i < p.count; i++) {
            const struct dyti_collective *c = &p.collective[i];
            uint64_t ranks = 0, want = 0;

            for (uint32_t k = 0; k < c->member_count; k++) {
                ranks |= 1ull << p.member[c->member_first + k];
            }
            assert_true(ranks >> c->root & 1);
            for (uint32_t k = 0; k < c->item_count; k++) {
                uint32_t x = p.item[c->item_first + k];

                assert_false(seen[x]++);
                assert_int_equal(c->wave, item[x].wave);
                want |= 1ull << item[x].src | 1ull << item[x].dst;
                total++;
            }
            assert_true(ranks == want);
        }
        for (uint32_t i = 0; i < p.rest_count; i++) {
            assert_false(seen[p.rest[i]]++);
            total++;
        }
        assert_int_equal(n, total);
        dyti_promotion_fini(&p);
    }
}

static void what_cannot_be_is_refused(void **state)
{
    const struct dyti_promotable self[] = {{1, 1, 0, 1, 0}};
    const struct dyti_promotable twice[] = {{0, 1, 4, 1, 0}, {0, 1, 4, 1, 0}};
    struct dyti_promotion p = {0};

    (void)state;
    assert_status(DYT_ERR_INVALID, dyti_promote(self, 1, NULL, &p));
    assert_status(DYT_ERR_INVALID, dyti_promote(twice, 2, NULL, &p));
    assert_error_has("the same content 4 twice");
    assert_null(p.collective);
    assert_ok(dyti_promote(NULL, 0, NULL, &p));
    assert_int_equal(0, p.count + p.rest_count);
    dyti_promotion_fini(&p);
    assert_string_equal("all-gather",
                        dyti_collective_kind_name(DYTI_COLLECTIVE_ALL_GATHER));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(broadcasts_of_the_same_ranks_join),
    cmocka_unit_test(everybody_to_everybody_is_an_all_gather),
    cmocka_unit_test(equal_parts_are_a_scatter_or_a_gather),
    cmocka_unit_test(all_to_all_is_left_alone),
    cmocka_unit_test(nothing_is_lost),
    cmocka_unit_test(what_cannot_be_is_refused),
};
DYT_TEST_MAIN(tests)
