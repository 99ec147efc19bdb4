/* The native dialect: shares, flat ranges, adjacency, known cases. */
#include "layout_cases.h"

#include "layout/native.h"

static struct dyti_model *model_of(struct dyti_arch arch)
{
    struct dyti_model *model = NULL;

    assert_ok(dyti_model_build(&arch, &model));
    return model;
}

static struct dyti_layout *layout_of(const struct dyti_model *model,
                                     uint32_t tp, uint32_t pp, uint32_t dp,
                                     uint32_t zero)
{
    const struct dyti_layout_desc desc = {.phase = "train",
                                          .world_size = tp * pp * dp,
                                          .tp = tp,
                                          .pp = pp,
                                          .dp = dp,
                                          .zero = zero};
    struct dyti_layout *layout = NULL;

    assert_ok(dyti_layout_build(model, &desc, &layout));
    return layout;
}

static void shares_are_even_and_cover(void **state)
{
    (void)state;
    for (int64_t count = 0; count < 40; count++) {
        for (int64_t parts = 1; parts < 12; parts++) {
            int64_t at = 0, last = count;

            for (int64_t r = 0; r < parts; r++) {
                int64_t lo, hi;

                dyti_native_share(count, parts, r, &lo, &hi);
                assert_int_equal(at, lo);
                assert_true(hi - lo == count / parts ||
                            hi - lo == count / parts + 1);
                assert_true(hi - lo <= last); /* first ones get the extra */
                last = hi - lo;
                at = hi;
            }
            assert_int_equal(count, at);
        }
    }
}

/* Each element of the range once, in order, in at most 2*ndim - 1 boxes. */
static void flat_boxes_cover_the_range_once(void **state)
{
    static const int64_t shapes[][4] = {
        {7, 0, 0, 0}, {3, 5, 0, 0}, {1, 6, 0, 0}, {2, 3, 4, 0}, {2, 1, 3, 2}};

    (void)state;
    for (size_t k = 0; k < DYT_TEST_COUNT(shapes); k++) {
        const int64_t *shape = shapes[k];
        struct dyti_tensor t = {.ndim = 0};
        uint64_t total = 1;

        while (t.ndim < 4 && shape[t.ndim] > 0) {
            t.shape[t.ndim] = shape[t.ndim];
            total *= (uint64_t)shape[t.ndim++];
        }
        for (uint64_t lo = 0; lo <= total; lo++) {
            for (uint64_t hi = lo; hi <= total; hi++) {
                struct dyt_box box[DYTI_FLAT_BOXES];
                uint32_t count =
                    dyti_native_flat_boxes(t.ndim, t.shape, lo, hi, box);
                uint64_t next = lo;

                assert_true(count <= 2 * t.ndim - 1);
                for (uint32_t i = 0; i < count; i++) {
                    int64_t at[DYT_MAX_DIMS];

                    memcpy(at, box[i].lo, sizeof(at));
                    do {
                        assert_int_equal(next, dyt_case_index(&t, at));
                        next++;
                    } while (dyt_case_next(&box[i], at));
                }
                assert_int_equal(hi, next);
            }
        }
    }
}

static void heads_that_do_not_divide_are_shared(void **state)
{
    /* 9 query heads, 3 KV heads: q_lo q_hi kv_lo kv_hi by rank */
    static const struct {
        uint32_t tp;
        int64_t want[6][4];
    } row[] = {
        {2, {{0, 5, 0, 2}, {5, 9, 1, 3}}},
        {3, {{0, 3, 0, 1}, {3, 6, 1, 2}, {6, 9, 2, 3}}},
        {4, {{0, 3, 0, 1}, {3, 5, 1, 2}, {5, 7, 1, 3}, {7, 9, 2, 3}}},
        {6,
         {{0, 2, 0, 1},
          {2, 4, 0, 2},
          {4, 6, 1, 2},
          {6, 7, 2, 3},
          {7, 8, 2, 3},
          {8, 9, 2, 3}}},
    };
    struct dyti_model *model = model_of((struct dyti_arch)DYT_ARCH_TINY_9_3);

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        struct dyti_layout *layout = layout_of(model, row[i].tp, 1, 1, 0);

        for (uint32_t r = 0; r < row[i].tp; r++) {
            const struct dyti_part *p = &layout->view[r].part;

            assert_int_equal(row[i].want[r][0], p->q_lo);
            assert_int_equal(row[i].want[r][1], p->q_hi);
            assert_int_equal(row[i].want[r][2], p->kv_lo);
            assert_int_equal(row[i].want[r][3], p->kv_hi);
        }
        dyti_layout_destroy(layout);
    }
    dyti_model_destroy(model);
}

/* More TP ranks than KV heads: each rank holds the one its queries read. */
static void fewer_kv_heads_than_ranks(void **state)
{
    struct dyti_model *model = model_of((struct dyti_arch)DYT_ARCH_TINY_8_2);
    struct dyti_layout *layout = layout_of(model, 8, 1, 1, 0);

    (void)state;
    for (uint32_t r = 0; r < 8; r++) {
        const struct dyti_view *view = &layout->view[r];
        const struct dyti_shard *k = dyti_view_find(
            view, DYTI_PARAM, dyti_model_find(model, 1, DYTI_SLOT_K));
        const struct dyti_shard *o = dyti_view_find(
            view, DYTI_PARAM, dyti_model_find(model, 1, DYTI_SLOT_O));

        assert_int_equal(r / 4, view->part.kv_lo);
        assert_int_equal(r / 4 + 1, view->part.kv_hi);
        assert_int_equal(r / 4 * 2, k->box.lo[0]);
        assert_int_equal(r / 4 * 2 + 2, k->box.hi[0]);
        /* o_proj is cut by columns and dense: 2 columns a row */
        assert_int_equal(r * 2, o->box.lo[1]);
        assert_int_equal(r * 2 + 2, o->box.hi[1]);
        assert_int_equal(2 * 4, o->stride[0]);
    }
    dyti_layout_destroy(layout);
    dyti_model_destroy(model);
}

static const struct dyti_shard *shard_of(const struct dyti_layout *layout,
                                         uint32_t rank, enum dyti_slot slot)
{
    const struct dyti_shard *s =
        dyti_view_find(&layout->view[rank], DYTI_PARAM,
                       dyti_model_find(layout->model, 0, slot));

    assert_non_null(s);
    return s;
}

static void assert_follows(const struct dyti_layout *layout, uint32_t rank,
                           enum dyti_slot slot, enum dyti_slot next)
{
    const struct dyti_shard *a = shard_of(layout, rank, slot);
    const struct dyti_shard *b = shard_of(layout, rank, next);

    assert_int_equal(
        a->offset + (uint64_t)((a->box.hi[0] - a->box.lo[0]) * a->stride[0]),
        b->offset);
}

static void fused_matrices_have_no_gap_and_others_are_aligned(void **state)
{
    struct dyti_model *model = model_of((struct dyti_arch)DYT_ARCH_TINY_QWEN2);

    (void)state;
    for (uint32_t tp = 1; tp <= 6; tp++) {
        struct dyti_layout *layout = layout_of(model, tp, 1, 1, 0);

        for (uint32_t r = 0; r < tp; r++) {
            const struct dyti_view *view = &layout->view[r];

            assert_follows(layout, r, DYTI_SLOT_Q, DYTI_SLOT_K);
            assert_follows(layout, r, DYTI_SLOT_K, DYTI_SLOT_V);
            assert_follows(layout, r, DYTI_SLOT_Q_BIAS, DYTI_SLOT_K_BIAS);
            assert_follows(layout, r, DYTI_SLOT_K_BIAS, DYTI_SLOT_V_BIAS);
            assert_follows(layout, r, DYTI_SLOT_GATE, DYTI_SLOT_UP);
            for (uint32_t i = 0; i < view->kind_first[1]; i++) {
                enum dyti_slot slot = model->tensor[view->shard[i].tensor].slot;

                if (slot != DYTI_SLOT_K && slot != DYTI_SLOT_V &&
                    slot != DYTI_SLOT_K_BIAS && slot != DYTI_SLOT_V_BIAS &&
                    slot != DYTI_SLOT_UP) {
                    assert_int_equal(0, view->shard[i].offset %
                                            (DYTI_REGION_ALIGN * 4));
                }
            }
        }
        dyti_layout_destroy(layout);
    }
    dyti_model_destroy(model);
}

/* Cuts lie on DYTI_ZERO_ALIGN borders, cover the flat buffer once and are
 * balanced within 1 %. */
static void zero_cuts_are_balanced(void **state)
{
    struct dyti_model *model =
        model_of((struct dyti_arch)DYT_ARCH_SMOLLM2_135M);

    (void)state;
    for (uint32_t dp = 1; dp <= 12; dp++) {
        struct dyti_layout *layout = layout_of(model, 1, 2, dp, 1);

        for (uint32_t pp = 0; pp < 2; pp++) {
            uint64_t at = 0;

            for (uint32_t d = 0; d < dp; d++) {
                const struct dyti_view *view = dyti_layout_view(
                    layout, dyti_layout_rank(layout, 0, pp, d));
                double mean = (double)view->flat_elements / dp;
                double share = (double)(view->zero_hi - view->zero_lo);

                assert_int_equal(at, view->zero_lo);
                assert_int_equal(0, view->zero_lo % DYTI_ZERO_ALIGN);
                assert_true(share > 0.99 * mean && share < 1.01 * mean);
                assert_int_equal((view->zero_hi - view->zero_lo) * 4,
                                 view->region_bytes[DYTI_MASTER]);
                at = view->zero_hi;
                if (d == dp - 1) {
                    assert_int_equal(view->flat_elements, at);
                }
            }
        }
        dyti_layout_destroy(layout);
    }
    dyti_model_destroy(model);
}

/* A fused tensor: each segment is cut by its own rule, the local pieces lie
 * one behind the other. */
static void segments_are_cut_each_by_its_rule(void **state)
{
    struct dyti_tensor fused = {
        .name = "qkv",
        .ndim = 2,
        .shape = {30, 5},
        .slot = DYTI_SLOT_Q,
        .segment_count = 3,
        .segment = {{0, 18, DYTI_CUT_Q_HEADS, 2},
                    {18, 24, DYTI_CUT_KV_HEADS, 2},
                    {24, 30, DYTI_CUT_KV_HEADS, 2}},
        .on_first = true,
        .expert = -1,
        .kinds = (1u << DYTI_EXTRA) - 1u,
    };
    struct dyti_model model = {
        .arch = DYT_ARCH(DYTI_LLAMA, 50, 12, 1, 9, 3, 2, 25, .tied = true),
        .tensor = &fused,
        .tensor_count = 1,
        .kinds = (1u << DYTI_EXTRA) - 1u};
    struct dyti_layout *layout;

    (void)state;
    for (uint32_t axis = 0; axis < 2; axis++) {
        fused.cut_axis = axis;
        fused.shape[axis] = 30;
        fused.shape[1 - axis] = 5;
        layout = layout_of(&model, 4, 1, 1, 0);
        for (uint32_t r = 0; r < 4; r++) {
            const struct dyti_view *view = &layout->view[r];
            const struct dyti_part *p = &view->part;
            const int64_t want[3][2] = {{2 * p->q_lo, 2 * p->q_hi},
                                        {18 + 2 * p->kv_lo, 18 + 2 * p->kv_hi},
                                        {24 + 2 * p->kv_lo, 24 + 2 * p->kv_hi}};
            uint64_t at = 0;

            assert_int_equal(3, view->kind_first[1]);
            for (int s = 0; s < 3; s++) {
                const struct dyti_shard *shard = &view->shard[s];

                assert_int_equal(want[s][0], shard->box.lo[axis]);
                assert_int_equal(want[s][1], shard->box.hi[axis]);
                assert_int_equal(at * 4, shard->offset);
                at +=
                    (uint64_t)(want[s][1] - want[s][0]) * (axis == 0 ? 5u : 1u);
            }
        }
        dyti_layout_destroy(layout);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(shares_are_even_and_cover),
    cmocka_unit_test(flat_boxes_cover_the_range_once),
    cmocka_unit_test(heads_that_do_not_divide_are_shared),
    cmocka_unit_test(fewer_kv_heads_than_ranks),
    cmocka_unit_test(fused_matrices_have_no_gap_and_others_are_aligned),
    cmocka_unit_test(zero_cuts_are_balanced),
    cmocka_unit_test(segments_are_cut_each_by_its_rule),
};
DYT_TEST_MAIN(tests)
