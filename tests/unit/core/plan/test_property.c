/* Random switches: moving arrays of unique ids by the transfers with plain
 * loops gives exactly the destination layout; a rank's own plan is what the
 * whole plan says of it. */
#include "plan_cases.h"

#define TRIALS 100u
#define SEED   4242u

/* Carry out one transfer, element by element. */
static void move(const struct dyti_plan *plan, const struct dyti_transfer *t,
                 struct dyt_case_memory *m)
{
    const struct dyti_shard *src = dyti_plan_src(plan, t);
    const struct dyti_shard *dst = dyti_plan_dst(plan, t);
    uint32_t src_bytes = dyti_dtype_bytes((enum dyti_dtype)t->src_dtype);
    uint32_t dst_bytes = dyti_dtype_bytes((enum dyti_dtype)t->dst_dtype);
    int64_t at[DYT_MAX_DIMS];

    assert_int_equal(t->tensor, src->tensor);
    assert_int_equal(t->tensor, dst->tensor);
    for (uint32_t d = 0; d < t->box.ndim; d++) {
        assert_true(t->box.lo[d] >= src->box.lo[d] &&
                    t->box.lo[d] >= dst->box.lo[d]);
        assert_true(t->box.hi[d] <= src->box.hi[d] &&
                    t->box.hi[d] <= dst->box.hi[d]);
    }
    memcpy(at, t->box.lo, sizeof(at));
    do {
        uint32_t *to = m->region[t->dst_slot][t->dst_kind][t->dst_rank] +
                       dyt_case_offset(dst, at) / dst_bytes;

        assert_int_equal(DYT_CASE_NOTHING, *to); /* once only */
        *to = m->region[t->src_slot][t->src_kind][t->src_rank]
                       [dyt_case_offset(src, at) / src_bytes];
    } while (dyt_case_next(&t->box, at));
}

/* Same rank first: whatever the rank itself has in a source is kept. */
static void check_keep(const struct dyti_plan *plan)
{
    for (uint32_t i = 0; i < plan->transfer_count; i++) {
        const struct dyti_transfer *t = &plan->transfer[i];
        const struct dyti_plan_source *s =
            &plan->inputs.want[t->want].source[0];
        const struct dyti_view *view = &s->layout->view[t->dst_rank];

        if (t->src_rank == t->dst_rank) {
            continue;
        }
        for (uint32_t k = view->kind_first[s->kind];
             k < view->kind_first[s->kind + 1]; k++) {
            struct dyt_box both;
            uint64_t count = 0;

            if (view->shard[k].tensor == t->tensor) {
                assert_ok(
                    dyt_box_intersect(&view->shard[k].box, &t->box, &both));
                assert_ok(dyt_box_count(&both, &count));
                assert_int_equal(0, count);
            }
        }
    }
}

static void check_sums(const struct dyti_plan *plan)
{
    struct dyti_plan_rank sum[DYT_CASE_RANKS];

    memset(sum, 0, sizeof(sum));
    for (uint32_t i = 0; i < plan->transfer_count; i++) {
        const struct dyti_transfer *t = &plan->transfer[i];
        uint64_t count = 0;

        assert_ok(dyt_box_count(&t->box, &count));
        assert_true(count > 0);
        if (t->src_rank == t->dst_rank) {
            sum[t->dst_rank].keep_bytes +=
                count * dyti_dtype_bytes((enum dyti_dtype)t->dst_dtype);
        } else {
            sum[t->dst_rank].receive_bytes +=
                count * dyti_dtype_bytes((enum dyti_dtype)t->dst_dtype);
            sum[t->src_rank].send_bytes +=
                count * dyti_dtype_bytes((enum dyti_dtype)t->src_dtype);
        }
    }
    assert_memory_equal(sum, plan->total, plan->world_size * sizeof(sum[0]));
}

/* The rank's own plan: the same transfers, pairs and hashes. */
static void check_rank(const struct dyti_plan *whole, uint32_t rank)
{
    struct dyti_plan *own = NULL;
    uint32_t at = 0;

    assert_ok(dyti_plan_build_rank(&whole->inputs, rank, &own));
    assert_true(own->fingerprint == whole->fingerprint);
    assert_int_equal(rank, own->rank);
    for (uint32_t i = 0; i < whole->transfer_count; i++) {
        const struct dyti_transfer *t = &whole->transfer[i];

        if (t->src_rank == rank || t->dst_rank == rank) {
            assert_true(at < own->transfer_count);
            assert_memory_equal(t, &own->transfer[at],
                                offsetof(struct dyti_transfer, dst_dtype) + 1);
            assert_true(dyt_case_same_box(&t->box, &own->transfer[at].box));
            at++;
        }
    }
    assert_int_equal(at, own->transfer_count);
    for (uint32_t i = 0; i < own->pair_count; i++) {
        const struct dyti_plan_pair *p = &own->pair[i];
        const struct dyti_plan_pair *w =
            dyti_plan_find_pair(whole, p->src_rank, p->dst_rank);

        assert_non_null(w);
        assert_true(p->hash == w->hash);
        assert_int_equal(w->write_bytes, p->write_bytes);
    }
    assert_memory_equal(&whole->total[rank], &own->total[rank],
                        sizeof(own->total[rank]));
    dyti_plan_destroy(own);
}

static void moving_ids_gives_the_destination(void **state)
{
    (void)state;
    for (uint64_t trial = 0; trial < TRIALS; trial++) {
        enum dyt_case_way way = (enum dyt_case_way)(trial % DYT_CASE_WAYS);
        uint32_t world = 1 + (uint32_t)dyt_case_pick(SEED, trial, 0, 12);
        struct dyt_case_switch s;
        struct dyt_case_memory m;
        struct dyti_plan *plan = NULL;

        dyt_case_switch_open(SEED, trial, way, world, &s);
        dyt_case_memory_open(&s.inputs, &m);
        assert_ok(dyti_plan_build(&s.inputs, &plan));
        for (uint32_t i = 0; i < plan->transfer_count; i++) {
            move(plan, &plan->transfer[i], &m);
        }
        dyt_case_memory_check(&s.inputs, &m, -1);
        check_keep(plan);
        check_sums(plan);
        for (uint32_t r = 0; r < world; r++) {
            check_rank(plan, r);
        }
        dyti_plan_destroy(plan);
        dyt_case_memory_close(&m);
        dyt_case_switch_close(&s);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(moving_ids_gives_the_destination),
};
DYT_TEST_MAIN(tests)
