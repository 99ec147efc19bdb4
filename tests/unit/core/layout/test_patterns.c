/* Patterns against brute force: the holders of every tensor, read from all
 * ranks' views; and their cost for a world that has no views. */
#include "layout/pattern.h"

#include "layout/dialect.h"
#include "layout_cases.h"

#include <time.h>

#define SEED 771u

/* Whether `rank` holds exactly this box, by its view. */
static bool view_has(const struct dyti_view *view, int kind, uint32_t tensor,
                     const struct dyt_box *box)
{
    for (uint32_t i = view->kind_first[kind]; i < view->kind_first[kind + 1];
         i++) {
        if (view->shard[i].tensor == tensor &&
            dyt_case_same_box(&view->shard[i].box, box)) {
            return true;
        }
    }
    return false;
}

static bool set_has(const struct dyti_patterns *p, uint32_t set, uint32_t rank)
{
    for (uint32_t i = p->set_first[set]; i < p->set_first[set + 1]; i++) {
        if (p->set_rank[i] == rank) {
            return true;
        }
    }
    return false;
}

/* Each holder is what the views say ... */
static void check_holders(const struct dyti_patterns *p, int kind,
                          uint32_t tensor, const struct dyti_pattern *pattern)
{
    const struct dyti_layout *layout = p->layout;

    for (uint32_t h = 0; h < pattern->holder_count; h++) {
        const struct dyti_holder *holder =
            &p->holder[pattern->holder_first + h];

        if (h > 0) { /* in order, no box twice */
            int order = memcmp(holder[-1].box.lo, holder->box.lo, 8);

            assert_true(order != 0 || holder->box.ndim > 1 ||
                        holder[-1].box.hi[0] < holder->box.hi[0]);
            assert_false(dyt_case_same_box(&holder[-1].box, &holder->box));
        }
        assert_true(p->set_first[holder->set] < p->set_first[holder->set + 1]);
        for (uint32_t r = 0; r < layout->desc.world_size; r++) {
            assert_int_equal(
                view_has(&layout->view[r], kind, tensor, &holder->box),
                set_has(p, holder->set, r));
        }
    }
}

/* ... and each shard of the views is in a holder. */
static void check_shards(const struct dyti_patterns *p, int kind)
{
    const struct dyti_layout *layout = p->layout;
    const uint32_t *of = p->pattern_of + (size_t)p->geometry_of[kind] *
                                             layout->model->tensor_count;

    for (uint32_t r = 0; r < layout->desc.world_size; r++) {
        const struct dyti_view *view = &layout->view[r];

        for (uint32_t i = view->kind_first[kind];
             i < view->kind_first[kind + 1]; i++) {
            const struct dyti_shard *s = &view->shard[i];
            const struct dyti_pattern *pattern;
            uint32_t found = 0;

            assert_true(of[s->tensor] < p->pattern_count);
            pattern = &p->pattern[of[s->tensor]];
            for (uint32_t h = 0; h < pattern->holder_count; h++) {
                const struct dyti_holder *holder =
                    &p->holder[pattern->holder_first + h];

                found += dyt_case_same_box(&holder->box, &s->box) &&
                         set_has(p, holder->set, r);
            }
            assert_int_equal(1, found);
        }
    }
}

static void check_sets(const struct dyti_patterns *p)
{
    for (uint32_t s = 0; s < p->set_count; s++) {
        for (uint32_t i = p->set_first[s] + 1; i < p->set_first[s + 1]; i++) {
            assert_true(p->set_rank[i - 1] < p->set_rank[i]);
        }
        for (uint32_t o = 0; o < s; o++) {
            uint32_t count = p->set_first[s + 1] - p->set_first[s];

            assert_false(count == p->set_first[o + 1] - p->set_first[o] &&
                         memcmp(p->set_rank + p->set_first[s],
                                p->set_rank + p->set_first[o], count * 4) == 0);
        }
    }
}

static void check_patterns(const struct dyti_patterns *p)
{
    uint32_t tensors = p->layout->model->tensor_count;

    check_sets(p);
    for (int kind = 0; kind < DYTI_KIND_COUNT; kind++) {
        uint32_t g = p->geometry_of[kind];

        if (!dyti_layout_holds(p->layout, (enum dyti_kind)kind)) {
            assert_int_equal(DYTI_NO_GEOMETRY, g);
            continue;
        }
        assert_true(g < p->geometry_count);
        for (uint32_t t = 0; t < tensors; t++) {
            uint32_t at = p->pattern_of[(size_t)g * tensors + t];

            if ((p->layout->model->tensor[t].kinds >> kind & 1u) == 0) {
                assert_int_equal(DYTI_NO_PATTERN, at);
            } else {
                assert_true(at < p->pattern_count);
                check_holders(p, kind, t, &p->pattern[at]);
            }
        }
        check_shards(p, kind);
    }
}

static void check_same(const struct dyti_patterns *a,
                       const struct dyti_patterns *b)
{
    uint32_t tensors = a->layout->model->tensor_count;

    assert_int_equal(a->pattern_count, b->pattern_count);
    assert_int_equal(a->holder_count, b->holder_count);
    assert_int_equal(a->set_count, b->set_count);
    assert_int_equal(a->geometry_count, b->geometry_count);
    assert_memory_equal(a->geometry_of, b->geometry_of, sizeof(a->geometry_of));
    assert_memory_equal(a->pattern_of, b->pattern_of,
                        (size_t)a->geometry_count * tensors * 4);
    for (uint32_t h = 0; h < a->holder_count; h++) {
        assert_true(dyt_case_same_box(&a->holder[h].box, &b->holder[h].box));
        assert_int_equal(a->holder[h].set, b->holder[h].set);
    }
}

static void patterns_equal_brute_force(void **state)
{
    (void)state;
    for (uint64_t trial = 0; trial < dyt_test_rounds(200, 2000); trial++) {
        struct dyti_model *model = dyt_case_any_model(SEED, trial);
        struct dyt_case_desc desc;
        struct dyti_layout *layout = dyt_case_build(
            SEED, trial, model, 1 + (uint32_t)dyt_case_pick(SEED, trial, 0, 12),
            DYTI_DIALECT_NATIVE, &desc);
        struct dyti_layout *lazy = NULL;
        struct dyti_patterns *patterns = NULL, *again = NULL;

        desc.desc.lazy = true;
        assert_ok(dyti_layout_build(model, &desc.desc, &lazy));
        assert_null(lazy->view);
        assert_int_equal(layout->fingerprint, lazy->fingerprint);
        assert_ok(dyti_patterns_build(layout, &patterns));
        assert_ok(dyti_patterns_build(lazy, &again));
        check_patterns(patterns);
        check_same(patterns, again);
        dyti_patterns_destroy(patterns);
        dyti_patterns_destroy(again);
        dyti_layout_destroy(layout);
        dyti_layout_destroy(lazy);
        dyti_model_destroy(model);
    }
}

/* Equal layers, experts and kinds share. */
static void equal_layers_and_kinds_share(void **state)
{
    const struct dyti_arch arch = DYT_ARCH_QWEN3_30B;
    const struct dyti_layout_desc desc = {.phase = "train",
                                          .world_size = 64,
                                          .tp = 4,
                                          .pp = 2,
                                          .dp = 8,
                                          .ep = 8,
                                          .lazy = true};
    struct dyti_model *model = NULL;
    struct dyti_layout *layout = NULL;
    struct dyti_patterns *p = NULL;

    (void)state;
    assert_ok(dyti_model_build(&arch, &model));
    assert_ok(dyti_layout_build(model, &desc, &layout));
    assert_ok(dyti_patterns_build(layout, &p));
    assert_int_equal(1, p->geometry_count); /* no ZeRO: all kinds alike */
    /* per stage: norms, router, q k v o, q/k norms, three of 8 ep ranks; and
     * embedding, final norm, head */
    assert_true(p->pattern_count <= 2 * (9 + 3 * 8) + 3);
    assert_int_equal(p->pattern_of[dyti_model_find_expert(
                         model, 0, 0, DYTI_SLOT_EXPERT_GATE)],
                     p->pattern_of[dyti_model_find_expert(
                         model, 23, 15, DYTI_SLOT_EXPERT_UP)]);
    dyti_patterns_destroy(p);
    dyti_layout_destroy(layout);
    dyti_model_destroy(model);
}

/* Not timed: a world of this size would take minutes and gigabytes if it cost
 * ranks times tensors. */
static void ten_thousand_ranks_are_described(void **state)
{
    const struct dyti_arch arch = DYT_ARCH_QWEN3_235B;
    const struct dyti_layout_desc desc = {.phase = "train",
                                          .world_size = 10240,
                                          .tp = 4,
                                          .pp = 8,
                                          .dp = 320,
                                          .ep = 16,
                                          .zero = 1,
                                          .lazy = true};
    struct dyti_model *model = NULL;
    struct dyti_layout *layout = NULL;
    struct dyti_patterns *p = NULL;
    struct timespec a, b;

    (void)state;
    assert_ok(dyti_model_build(&arch, &model));
    clock_gettime(CLOCK_MONOTONIC, &a);
    assert_ok(dyti_layout_build(model, &desc, &layout));
    assert_ok(dyti_patterns_build(layout, &p));
    clock_gettime(CLOCK_MONOTONIC, &b);
    print_message("235B on 10,240 ranks: %.0f ms, %u patterns, %u holders, %u "
                  "sets\n",
                  (double)(b.tv_sec - a.tv_sec) * 1e3 +
                      (double)(b.tv_nsec - a.tv_nsec) * 1e-6,
                  p->pattern_count, p->holder_count, p->set_count);
    assert_int_equal(2, p->geometry_count);
    dyti_patterns_destroy(p);
    dyti_layout_destroy(layout);
    dyti_model_destroy(model);
}

/* Equal layers, which dialects list once, are held as their views say. */
static void layers_listed_once_are_all_there(void **state)
{
    static const struct dyti_layout_desc desc[] = {
        {.dialect = DYTI_DIALECT_HF, .tp = 1, .pp = 1, .dp = 4},
        {.dialect = DYTI_DIALECT_ZERO12, .zero = 1, .tp = 2, .pp = 2, .dp = 3},
        {.dialect = DYTI_DIALECT_ZERO12, .zero = 2, .tp = 1, .pp = 1, .dp = 4},
        {.dialect = DYTI_DIALECT_ZERO3, .zero = 3, .tp = 2, .pp = 1, .dp = 3},
        {.dialect = DYTI_DIALECT_FSDP2, .zero = 3, .tp = 2, .pp = 2, .dp = 3},
        {.dialect = DYTI_DIALECT_MEGATRON, .tp = 2, .pp = 2, .dp = 2},
        {.dialect = DYTI_DIALECT_MEGATRON,
         .zero = 1,
         .tp = 2,
         .pp = 1,
         .dp = 2},
        {.dialect = DYTI_DIALECT_VLLM, .tp = 2, .pp = 2, .dp = 2},
    };
    struct dyti_arch arch[] = {DYT_ARCH_TINY_8_2, DYT_ARCH_TINY_MOE};

    (void)state;
    for (size_t i = 0; i < 2 * DYT_TEST_COUNT(desc); i++) {
        struct dyti_layout_desc d = desc[i / 2];
        struct dyti_model *model = NULL;
        struct dyti_layout *layout = NULL;
        struct dyti_patterns *p = NULL;

        arch[i % 2].layers = 5; /* 3 and 2 of them on two stages */
        arch[1].moe.count = 4;
        d.phase = "train";
        d.world_size = d.tp * d.pp * d.dp;
        d.etp = i % 2 == 1 && d.dialect != DYTI_DIALECT_VLLM ? d.tp : 1;
        d.ep = i % 2 == 1 && d.dialect != DYTI_DIALECT_HF && d.dp == 2 ? 2 : 1;
        assert_ok(dyti_model_build(&arch[i % 2], &model));
        assert_ok(dyti_layout_build(model, &d, &layout));
        assert_ok(dyti_patterns_build(layout, &p));
        check_patterns(p);
        dyti_patterns_destroy(p);
        dyti_layout_destroy(layout);
        dyti_model_destroy(model);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(layers_listed_once_are_all_there),
    cmocka_unit_test(patterns_equal_brute_force),
    cmocka_unit_test(equal_layers_and_kinds_share),
    cmocka_unit_test(ten_thousand_ranks_are_described),
};
DYT_TEST_MAIN(tests)
