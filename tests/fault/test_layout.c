/* Each allocation of the layout room made to fail in turn: DYT_ERR_NOMEM, no
 * output, and (under the address sanitizer) nothing lost. */
#include "failing_alloc.h"
#include "layout/pattern.h"
#include "layout/sticky.h"
#include "layout_cases.h"

/* ---- what is built ------------------------------------------------------- */

struct built {
    struct dyti_layout *layout, *list;
    struct dyti_patterns *patterns;
    struct dyti_view view[4];
    struct dyti_sticky_cut cut;
};

static enum dyt_status build(const struct dyti_model *model,
                             const struct dyti_layout_desc *desc,
                             struct built *b)
{
    uint64_t bytes;
    enum dyt_status st = dyti_layout_build(model, desc, &b->layout);

    st = st != DYT_OK ? st : dyti_patterns_build(b->layout, &b->patterns);
    for (uint32_t r = 0; r < 4 && st == DYT_OK; r++) {
        st = dyti_layout_region_bytes(b->layout, r, DYTI_MASTER, &bytes);
        st = st != DYT_OK ? st
                          : dyti_layout_view_build(b->layout, r, &b->view[r]);
    }
    st = st != DYT_OK ? st
                      : dyti_layout_from_views(model, desc, b->view, &b->list);
    return st != DYT_OK ? st
                        : dyti_sticky_resize(NULL, 0, 6, 0, NULL, 7, &b->cut);
}

static void drop(struct built *b)
{
    dyti_sticky_fini(&b->cut);
    for (uint32_t r = 0; r < 4; r++) {
        dyti_view_fini(&b->view[r]);
    }
    dyti_layout_destroy(b->list);
    dyti_patterns_destroy(b->patterns);
    dyti_layout_destroy(b->layout);
    memset(b, 0, sizeof(*b));
}

static void each_allocation_fails_once(const struct dyti_model *model,
                                       const struct dyti_layout_desc *desc)
{
    enum dyt_status st = DYT_ERR_NOMEM;
    long step = dyt_test_stride(7);
    struct built b = {0};
    long n = 0;

    for (; st != DYT_OK; n += step) {
        dyt_alloc_countdown = n;
        st = build(model, desc, &b);
        dyt_alloc_countdown = -1;
        if (st != DYT_OK) {
            assert_status(DYT_ERR_NOMEM, st);
            assert_null(b.cut.range);
        }
        drop(&b);
        assert_true(n < 20000);
    }
    assert_true(n > 20);
}

static void native_with_everything(void **state)
{
    static const int32_t slot[] = {0, 1, 2, 0, 3, 4, 1, -1};
    static const struct dyti_zero_range range[] = {
        {0, 1u << 30, 1}, {1u << 30, 2u << 30, 0}, {2u << 30, 1ull << 32, 1}};
    static const uint32_t host[] = {0, 0, 1, 1}, ranks[] = {3, 2, 1, 0};
    const struct dyti_layout_desc desc = {.phase = "train",
                                          .world_size = 4,
                                          .tp = 2,
                                          .pp = 1,
                                          .dp = 2,
                                          .ep = 2,
                                          .etp = 2,
                                          .zero = 3,
                                          .experts = DYTI_EXPERTS_EXPLICIT,
                                          .expert_slot = slot,
                                          .expert_slots = 4,
                                          .host = host,
                                          .ranks = ranks,
                                          .zero_range = range,
                                          .zero_range_count = 3};
    struct dyti_arch arch = DYT_ARCH_TINY_MOE;
    struct dyti_model *model = NULL;

    (void)state;
    arch.layers = 1;
    assert_ok(dyti_model_build(&arch, &model));
    each_allocation_fails_once(model, &desc);
    dyti_model_destroy(model);
}

static void every_dialect(void **state)
{
    (void)state;
    for (int d = 0; d < DYTI_DIALECT_LIST; d++) {
        struct dyti_model *model = dyt_case_any_model(55, (uint64_t)d);
        struct dyt_case_desc desc;
        struct dyti_layout *layout = dyt_case_build(
            56, (uint64_t)d, model, 4, (enum dyti_dialect)d, &desc);

        dyti_layout_destroy(layout);
        each_allocation_fails_once(model, &desc.desc);
        dyti_model_destroy(model);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(native_with_everything),
    cmocka_unit_test(every_dialect),
};
DYT_TEST_MAIN(tests)
