/* Placement: nothing that keeps hosts together keeps more off the NICs or on
 * its rank, tried out; the target built with its ranks does what was said;
 * resizes with sticky cuts move what theory says. */
#include "layout/sticky.h"
#include "layout_cases.h"
#include "plan/place.h"

#define SEED   8081u
#define TRIALS 30u

struct pair {
    struct dyti_model *model;
    struct dyti_layout *from, *to;
    struct dyt_case_desc from_desc, to_desc;
    struct dyti_plan_inputs in;
    uint32_t host[DYT_CASE_RANKS];
};

static void plan_pair(struct pair *p)
{
    assert_ok(dyti_plan_inputs_init(p->from, DYTI_ARENA_TRAIN, p->to,
                                    DYTI_ARENA_ROLLOUT, DYTI_PLAN_KINDS_STATE,
                                    &p->in));
}

static void open_pair(uint64_t trial, uint32_t world, uint32_t hosts,
                      struct pair *p)
{
    struct dyti_arch arch = dyt_case_arch(SEED, trial);

    memset(p, 0, sizeof(*p));
    for (uint32_t r = 0; r < world; r++) {
        p->host[r] = r * hosts / world;
    }
    assert_ok(dyti_model_build(&arch, &p->model));
    dyt_case_layout(SEED, trial, &arch, world, "from", &p->from_desc);
    dyt_case_layout(SEED + 1, trial, &arch, world, "to", &p->to_desc);
    p->from_desc.desc.host = p->to_desc.desc.host = p->host;
    assert_ok(dyti_layout_build(p->model, &p->from_desc.desc, &p->from));
    assert_ok(dyti_layout_build(p->model, &p->to_desc.desc, &p->to));
    plan_pair(p);
}

static void close_pair(struct pair *p)
{
    dyti_layout_destroy(p->from);
    dyti_layout_destroy(p->to);
    dyti_model_destroy(p->model);
}

struct amount {
    uint64_t keep, nic, all;
};

static struct amount amount_of(const struct dyti_plan_inputs *in)
{
    const struct dyti_traffic_options options = {.fan_out = true};
    struct dyti_traffic *t = NULL;
    struct amount a = {0};

    assert_ok(dyti_traffic_build(in, &options, &t));
    for (int kind = 0; kind < DYTI_KIND_COUNT; kind++) {
        a.keep += t->sum[kind][DYTI_LINK_SELF].write_bytes;
        a.nic += t->sum[kind][DYTI_LINK_NIC].write_bytes;
        a.all += t->sum[kind][DYTI_LINK_SELF].write_bytes +
                 t->sum[kind][DYTI_LINK_HOST].write_bytes +
                 t->sum[kind][DYTI_LINK_NIC].write_bytes;
    }
    dyti_traffic_destroy(t);
    return a;
}

/* The target with rank_of[r] in place of r. */
static struct amount relabelled(struct pair *p, const uint32_t *rank_of)
{
    struct dyti_layout_desc desc = p->to->desc;
    uint32_t ranks[DYT_CASE_RANKS];
    struct dyti_plan_inputs in;
    struct dyti_layout *to = NULL;
    struct amount a;

    for (uint32_t m = 0; m < p->to->member_count; m++) {
        ranks[m] = rank_of[p->to->desc.ranks[m]];
    }
    desc.ranks = ranks;
    assert_ok(dyti_layout_build(p->model, &desc, &to));
    assert_ok(dyti_plan_inputs_init(p->from, DYTI_ARENA_TRAIN, to,
                                    DYTI_ARENA_ROLLOUT, DYTI_PLAN_KINDS_STATE,
                                    &in));
    a = amount_of(&in);
    dyti_layout_destroy(to);
    return a;
}

/* The best over all permutations that take hosts to hosts. */
static void try_all(struct pair *p, uint32_t *rank_of, uint32_t at,
                    uint32_t world, struct amount *best)
{
    if (at == world) {
        struct amount a;

        for (uint32_t r = 0; r < world; r++) {
            for (uint32_t q = 0; q < r; q++) {
                if ((p->host[r] == p->host[q]) !=
                    (p->host[rank_of[r]] == p->host[rank_of[q]])) {
                    return;
                }
            }
        }
        a = relabelled(p, rank_of);
        if (a.nic < best->nic || (a.nic == best->nic && a.keep > best->keep)) {
            *best = a;
        }
        return;
    }
    for (uint32_t i = at; i < world; i++) {
        uint32_t keep = rank_of[at];

        rank_of[at] = rank_of[i];
        rank_of[i] = keep;
        try_all(p, rank_of, at + 1, world, best);
        rank_of[i] = rank_of[at];
        rank_of[at] = keep;
    }
}

static void nothing_is_better(void **state)
{
    (void)state;
    for (uint64_t trial = 0; trial < TRIALS; trial++) {
        bool one_host = trial % 2 == 0;
        uint32_t world = one_host ? 4 : 4 + 2 * (uint32_t)(trial % 4 == 1);
        uint32_t rank_of[DYT_CASE_RANKS];
        struct dyti_placement placement = {0};
        struct amount best, said;
        struct pair p;

        open_pair(trial, world, one_host ? 1 : world / 2, &p);
        best = amount_of(&p.in);
        assert_ok(dyti_place(&p.in, NULL, &placement));
        assert_int_equal(best.keep, placement.keep_before);
        assert_int_equal(best.nic, placement.nic_before);
        said = relabelled(&p, placement.rank_of);
        assert_int_equal(said.keep, placement.keep_after);
        assert_int_equal(said.nic, placement.nic_after);
        for (uint32_t m = 0; m < p.to->member_count; m++) {
            assert_int_equal(placement.rank_of[p.to->desc.ranks[m]],
                             placement.ranks[m]);
        }
        for (uint32_t r = 0; r < world; r++) {
            rank_of[r] = r;
        }
        try_all(&p, rank_of, 0, world, &best);
        if (placement.changed) {
            assert_int_equal(best.nic, placement.nic_after);
        }
        if (placement.changed && one_host) {
            assert_int_equal(best.keep, placement.keep_after);
        }
        dyti_placement_fini(&placement);
        close_pair(&p);
    }
}

/* DP a to b with a sticky cut: (b - a) / b of the sharded kinds move growing,
 * (a - b) / a shrinking, within 1 %. */
static void a_resize_moves_the_least(void **state)
{
    static const uint32_t sizes[][2] = {{4, 6}, {6, 8}, {8, 4}, {8, 6}};
    const struct dyti_arch arch = DYT_ARCH_SMOLLM2_135M;
    const uint32_t state_kinds =
        1u << DYTI_MASTER | 1u << DYTI_EXP_AVG | 1u << DYTI_EXP_AVG_SQ;

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(sizes); i++) {
        uint32_t a = sizes[i][0], b = sizes[i][1], most = a > b ? a : b;
        struct dyti_layout_desc desc = {.phase = "from",
                                        .world_size = most,
                                        .tp = 1,
                                        .pp = 1,
                                        .dp = a,
                                        .zero = 1,
                                        .dtype = {DYTI_BF16}};
        struct dyti_sticky_cut cut = {0};
        struct dyti_placement placement = {0};
        struct dyti_plan_inputs in;
        struct dyti_model *model = NULL;
        struct dyti_layout *from = NULL, *to = NULL;
        double moved, least;

        assert_ok(dyti_model_build(&arch, &model));
        assert_ok(dyti_layout_build(model, &desc, &from));
        assert_ok(dyti_sticky_resize(NULL, 0, a, 0, NULL, b, &cut));
        desc.dp = b;
        desc.zero_range = cut.range;
        desc.zero_range_count = cut.range_count;
        assert_ok(dyti_layout_build(model, &desc, &to));
        assert_ok(dyti_plan_inputs_init(from, DYTI_ARENA_TRAIN, to,
                                        DYTI_ARENA_ROLLOUT, state_kinds, &in));
        assert_ok(dyti_place(&in, NULL, &placement));
        moved =
            1 - (double)placement.keep_after / (double)placement.total_bytes;
        least = (double)(most - (a < b ? a : b)) / most;
        if (moved > least + 0.01) {
            fail_msg("dp %u to %u moves %g of the state, %g would do", a, b,
                     moved, least);
        }
        dyti_placement_fini(&placement);
        dyti_sticky_fini(&cut);
        dyti_layout_destroy(from);
        dyti_layout_destroy(to);
        dyti_model_destroy(model);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(nothing_is_better),
    cmocka_unit_test(a_resize_moves_the_least),
};
DYT_TEST_MAIN(tests)
