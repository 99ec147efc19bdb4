/* Sets of ranks with a team: along each dimension, against coordinates that are
 * computed slowly; none of two, none twice, and rounds of disjoint ones. */
#include "arch_cases.h"
#include "dyt_test.h"

#include "base/rng.h"
#include "edm/teams.h"
#include "layout/dialect.h"

#define WORLD_MAX 16u

struct drawn {
    struct dyti_model *model;
    struct dyti_layout *layout[DYTI_ARENA_SLOT_COUNT];
    uint32_t world_size, ranks[DYTI_ARENA_SLOT_COUNT][WORLD_MAX];
};

static uint32_t draw(uint64_t seed, uint64_t what, uint32_t below)
{
    return (uint32_t)(dyti_rng_u64(seed, what, 0, 0) % below);
}

static void draw_layout(struct drawn *d, uint64_t seed, int slot)
{
    static const uint32_t degree[][6] = {
        /* tp, cp, dp, pp, ep, etp */
        {2, 1, 4, 1, 4, 1}, {4, 1, 2, 1, 2, 2}, {1, 2, 3, 2, 3, 1},
        {2, 2, 2, 2, 4, 1}, {3, 1, 1, 3, 1, 3}, {1, 1, 8, 2, 4, 2},
        {4, 1, 1, 4, 2, 2}, {1, 1, 5, 1, 5, 1}, {2, 1, 2, 1, 1, 1}};
    const uint32_t *at = degree[draw(seed, 1, DYT_TEST_COUNT(degree))];
    uint32_t *ranks = d->ranks[slot];
    struct dyti_layout_desc desc = {.phase = "x",
                                    .world_size = d->world_size,
                                    .tp = at[0],
                                    .cp = at[1],
                                    .dp = at[2],
                                    .pp = at[3],
                                    .ep = at[4],
                                    .etp = at[5],
                                    .ranks = ranks};

    for (uint32_t r = 0; r < d->world_size; r++) { /* a random order */
        uint32_t other = draw(seed, 100 + r, r + 1);

        ranks[r] = ranks[other];
        ranks[other] = r;
    }
    assert_ok(dyti_layout_build(d->model, &desc, &d->layout[slot]));
}

static void drawn_init(struct drawn *d, uint64_t seed)
{
    static const struct dyti_arch arch = DYT_ARCH_TINY_MLA;

    *d = (struct drawn){.world_size = WORLD_MAX};
    assert_ok(dyti_model_build(&arch, &d->model));
    draw_layout(d, 2 * seed, DYTI_ARENA_ROLLOUT);
    draw_layout(d, 2 * seed + 1, DYTI_ARENA_TRAIN);
}

static void drawn_fini(struct drawn *d)
{
    for (int s = 0; s < DYTI_ARENA_SLOT_COUNT; s++) {
        dyti_layout_destroy(d->layout[s]);
    }
    dyti_model_destroy(d->model);
}

/* Members by number: tensor parallelism fastest, then context, data, stages;
 * experts see the members of a stage as (etp, ep, edp). */
struct place {
    uint32_t tp, replica, pp, etp, ep, edp;
};

static struct place place_of(const struct dyti_layout_desc *d, uint32_t member)
{
    uint32_t stage = d->tp * d->cp * d->dp, in_stage = member % stage;

    return (struct place){.tp = in_stage % d->tp,
                          .replica = in_stage / d->tp,
                          .pp = member / stage,
                          .etp = in_stage % d->etp,
                          .ep = in_stage / d->etp % d->ep,
                          .edp = in_stage / d->etp / d->ep};
}

static uint32_t mask_of(const struct dyti_team_set *set)
{
    uint32_t mask = 0;

    for (uint32_t i = 0; i < set->size; i++) {
        assert_true(i == 0 || set->member[i - 1] < set->member[i]);
        mask |= 1u << set->member[i];
    }
    return mask;
}

static bool has_set(const struct dyti_team_table *table, uint32_t mask)
{
    for (size_t i = 0; i < table->count; i++) {
        if (mask_of(&table->set[i]) == mask) {
            return true;
        }
    }
    return false;
}

/* 0: tp, 1: pp, 2: replicas, 3: a replica's ranks but for context parallelism,
 * 4: ep, 5: expert replicas */
static bool is_along(int which, const struct place *a, const struct place *b)
{
    switch (which) {
    case 0:
        return a->replica == b->replica && a->pp == b->pp;
    case 1:
        return a->replica == b->replica && a->tp == b->tp;
    case 2:
        return a->tp == b->tp && a->pp == b->pp;
    case 3:
        return a->replica == b->replica;
    case 4:
        return a->pp == b->pp && a->etp == b->etp && a->edp == b->edp;
    default:
        return a->pp == b->pp && a->etp == b->etp && a->ep == b->ep;
    }
}

static void check_layout(const struct drawn *d, int slot,
                         const struct dyti_team_table *table)
{
    const struct dyti_layout *layout = d->layout[slot];

    for (int which = 0; which < 6; which++) {
        for (uint32_t a = 0; a < layout->member_count; a++) {
            struct place pa = place_of(&layout->desc, a);
            uint32_t mask = 0, size = 0;

            for (uint32_t b = 0; b < layout->member_count; b++) {
                struct place pb = place_of(&layout->desc, b);

                if (is_along(which, &pa, &pb)) {
                    mask |= 1u << layout->desc.ranks[b];
                    size++;
                }
            }
            assert_int_equal(size >= DYTI_TEAM_LEAST && size < d->world_size,
                             has_set(table, mask));
        }
    }
}

static void check_rounds(const struct dyti_team_table *table)
{
    for (uint32_t round = 0; round < table->round_count; round++) {
        uint32_t seen = 0, count = 0;

        for (size_t i = 0; i < table->count; i++) {
            uint32_t mask = mask_of(&table->set[i]);

            assert_true(table->set[i].size >= DYTI_TEAM_LEAST);
            for (size_t k = 0; k < i; k++) {
                assert_true(mask_of(&table->set[k]) != mask);
            }
            if (table->set[i].round == round) {
                assert_int_equal(0, seen & mask);
                seen |= mask;
                count++;
            }
        }
        assert_true(count > 0);
    }
}

static void each_dimension_has_its_teams(void **state)
{
    size_t most = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct dyti_team_table table;
        struct drawn d;

        drawn_init(&d, seed);
        assert_ok(dyti_team_table_init(
            &table, (const struct dyti_layout *const *)d.layout, d.world_size));
        check_layout(&d, DYTI_ARENA_ROLLOUT, &table);
        check_layout(&d, DYTI_ARENA_TRAIN, &table);
        check_rounds(&table);
        most = table.count > most ? table.count : most;
        dyti_team_table_fini(&table);
        drawn_fini(&d);
    }
    assert_true(most > 6);
}

static void two_ranks_have_none(void **state)
{
    static const struct dyti_arch arch = DYT_ARCH_TINY_MLA;
    const uint32_t ranks[] = {0, 1};
    const struct dyti_layout_desc desc = {.phase = "x",
                                          .world_size = 2,
                                          .tp = 2,
                                          .pp = 1,
                                          .dp = 1,
                                          .ranks = ranks};
    struct dyti_team_table table;
    struct drawn d = {.world_size = 2};

    (void)state;
    assert_ok(dyti_model_build(&arch, &d.model));
    assert_ok(dyti_layout_build(d.model, &desc, &d.layout[0]));
    assert_ok(dyti_team_table_init(
        &table, (const struct dyti_layout *const *)d.layout, 2));
    assert_int_equal(0, table.count);
    assert_int_equal(0, table.round_count);
    dyti_team_table_fini(&table);
    drawn_fini(&d);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(each_dimension_has_its_teams),
    cmocka_unit_test(two_ranks_have_none),
};
DYT_TEST_MAIN(tests)
