/* Shared parts against counting: for every element of a rank's region, the
 * part that names it (or none) and the holders found by asking all shards. */
#include "layout_cases.h"

#define TRIALS 60u
#define SEED   77u

/* Ranks of the same dp whose param shards hold the element, ascending. */
static uint32_t holders_of(const struct dyti_layout *layout, uint32_t tensor,
                           const int64_t *at, uint32_t dp,
                           uint32_t holder[DYT_CASE_RANKS])
{
    uint32_t count = 0;

    for (uint32_t r = 0; r < layout->desc.world_size; r++) {
        const struct dyti_view *view = &layout->view[r];

        if (!view->part.member || view->part.dp_rank != dp) {
            continue;
        }
        for (uint32_t i = 0; i < view->kind_first[1]; i++) {
            const struct dyti_shard *s = &view->shard[i];
            bool in = s->tensor == tensor;

            for (uint32_t d = 0; in && d < s->box.ndim; d++) {
                in = at[d] >= s->box.lo[d] && at[d] < s->box.hi[d];
            }
            if (in) {
                holder[count++] = r;
                break;
            }
        }
    }
    return count;
}

/* The part whose flat range has the element, NULL if none. */
static const struct dyti_shared_part *part_of(
    const struct dyti_shared_part *part, size_t count, uint64_t flat)
{
    for (size_t i = 0; i < count; i++) {
        if (flat >= part[i].flat_lo && flat < part[i].flat_hi) {
            return &part[i];
        }
    }
    return NULL;
}

static void check_rank(const struct dyti_layout *layout, uint32_t rank)
{
    const struct dyti_view *view = &layout->view[rank];
    struct dyti_shared_part *part = NULL;
    size_t count = 99;
    uint64_t covered = 0, seen = 0;

    assert_ok(dyti_layout_shared(layout, rank, &part, &count));
    for (size_t i = 0; i < count; i++) {
        assert_true(part[i].flat_lo < part[i].flat_hi);
        assert_true(i == 0 || part[i - 1].flat_hi <= part[i].flat_lo);
        assert_int_equal(layout->model->tensor[part[i].tensor].grad_partial,
                         part[i].grad_partial);
        covered += part[i].flat_hi - part[i].flat_lo;
    }
    for (uint32_t i = 0; i < view->kind_first[1]; i++) {
        const struct dyti_shard *s = &view->shard[i];
        int64_t at[DYT_MAX_DIMS];

        memcpy(at, s->box.lo, sizeof(at));
        do {
            uint32_t holder[DYT_CASE_RANKS];
            uint32_t want =
                holders_of(layout, s->tensor, at, view->part.dp_rank, holder);
            const struct dyti_shared_part *p =
                part_of(part, count, dyt_case_offset(s, at) / 4);

            assert_int_equal(want > 1, p != NULL);
            if (p != NULL) {
                seen++;
                assert_int_equal(s->tensor, p->tensor);
                assert_int_equal(want, p->holder_count);
                assert_int_equal(holder[0], p->first_holder);
                assert_memory_equal(holder, p->holder, want * sizeof(*holder));
                for (uint32_t d = 0; d < s->box.ndim; d++) {
                    assert_true(at[d] >= p->box.lo[d] && at[d] < p->box.hi[d]);
                }
            }
        } while (dyt_case_next(&s->box, at));
    }
    assert_int_equal(covered, seen);
    free(part);
}

static void shared_parts_equal_counting(void **state)
{
    (void)state;
    for (uint64_t trial = 0; trial < TRIALS; trial++) {
        struct dyti_arch arch = dyt_case_arch(SEED, trial);
        struct dyt_case_desc desc;
        struct dyti_model *model = NULL;
        struct dyti_layout *layout = NULL;

        dyt_case_layout(SEED, trial, &arch,
                        1 + (uint32_t)dyt_case_pick(SEED, trial, 0, 9), "train",
                        &desc);
        assert_ok(dyti_model_build(&arch, &model));
        assert_ok(dyti_layout_build(model, &desc.desc, &layout));
        for (uint32_t r = 0; r < desc.desc.world_size; r++) {
            check_rank(layout, r);
        }
        dyti_layout_destroy(layout);
        dyti_model_destroy(model);
    }
}

/* 9 query heads and 3 KV heads over 4 ranks: KV head 1 is read by ranks 1 and
 * 2, KV head 2 by ranks 2 and 3. */
static void kv_heads_read_by_two_ranks(void **state)
{
    const struct dyti_arch arch = DYT_ARCH_TINY_9_3;
    const struct dyti_layout_desc desc = {
        .world_size = 4, .tp = 4, .pp = 1, .dp = 1};
    struct dyti_model *model = NULL;
    struct dyti_layout *layout = NULL;
    struct dyti_shared_part *part = NULL;
    size_t count = 0, found = 0;
    uint32_t k;

    (void)state;
    assert_ok(dyti_model_build(&arch, &model));
    assert_ok(dyti_layout_build(model, &desc, &layout));
    assert_ok(dyti_layout_shared(layout, 2, &part, &count));
    k = dyti_model_find(model, 0, DYTI_SLOT_K);
    for (size_t i = 0; i < count; i++) {
        if (part[i].tensor == k) {
            assert_int_equal(2, part[i].holder_count);
            assert_int_equal(found == 0 ? 1 : 2, part[i].holder[0]);
            assert_int_equal(found == 0 ? 2 : 3, part[i].holder[1]);
            assert_int_equal(found == 0 ? 2 : 4, part[i].box.lo[0]);
            assert_true(part[i].grad_partial);
            found++;
        }
    }
    assert_int_equal(2, found);
    free(part);
    dyti_layout_destroy(layout);
    dyti_model_destroy(model);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(shared_parts_equal_counting),
    cmocka_unit_test(kv_heads_read_by_two_ranks),
};
DYT_TEST_MAIN(tests)
