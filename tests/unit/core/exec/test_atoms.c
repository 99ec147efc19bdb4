/* Atoms: every element of every tensor lies in exactly one, and its holders are
 * exactly those that hold the element. */
#include "dyt_test.h"

#include "exec/atoms.h"

static struct dyti_arch arch(bool tied)
{
    return (struct dyti_arch){.family = DYTI_LLAMA,
                              .vocab = 13,
                              .hidden = 12,
                              .layers = 2,
                              .q_heads = 6,
                              .kv_heads = 3,
                              .head_dim = 2,
                              .ffn = 10,
                              .max_positions = 8,
                              .rms_eps = 1e-5,
                              .init_std = 0.1,
                              .rope = {.theta = 10000},
                              .tied = tied};
}

static bool in_box(const struct dyt_box *box, const int64_t *at)
{
    for (uint32_t d = 0; d < box->ndim; d++) {
        if (at[d] < box->lo[d] || at[d] >= box->hi[d]) {
            return false;
        }
    }
    return true;
}

/* The slow way: ask every shard of every rank. */
static void check_element(const struct dyti_layout *layout, enum dyti_kind kind,
                          const struct dyti_atoms *atoms, uint32_t tensor,
                          const int64_t *at)
{
    const struct dyti_atom *found = NULL;
    uint32_t holder = 0;

    for (size_t a = 0; a < atoms->atom_count; a++) {
        if (atoms->atom[a].tensor == tensor &&
            in_box(&atoms->atom[a].box, at)) {
            assert_null(found); /* one atom and no other */
            found = &atoms->atom[a];
        }
    }
    for (uint32_t r = 0; r < layout->desc.world_size; r++) {
        const struct dyti_view *view = dyti_layout_view(layout, r);

        for (uint32_t s = view->kind_first[kind];
             s < view->kind_first[kind + 1]; s++) {
            if (view->shard[s].tensor == tensor &&
                in_box(&view->shard[s].box, at)) {
                const struct dyti_atom_holder *h;

                assert_non_null(found);
                assert_true(holder < found->holder_count);
                h = &atoms->holder[found->holder_first + holder++];
                assert_int_equal(r, h->rank);
                assert_int_equal(s, h->shard);
            }
        }
    }
    assert_int_equal(found == NULL ? 0 : found->holder_count, holder);
    assert_non_null(found); /* somebody holds everything */
}

static void check_layout(const struct dyti_layout *layout, enum dyti_kind kind)
{
    struct dyti_atoms atoms = {0};

    assert_ok(dyti_atoms_init(&atoms, layout, kind));
    for (uint32_t t = 0; t < layout->model->tensor_count; t++) {
        const struct dyti_tensor *tensor = &layout->model->tensor[t];
        int64_t cols = tensor->ndim == 2 ? tensor->shape[1] : 1;

        for (int64_t r = 0; r < tensor->shape[0]; r++) {
            for (int64_t c = 0; c < cols; c++) {
                const int64_t at[2] = {r, c};

                check_element(layout, kind, &atoms, t, at);
            }
        }
    }
    dyti_atoms_fini(&atoms);
    assert_null(atoms.atom);
}

static void every_element_is_in_one_atom(void **state)
{
    static const uint32_t degrees[][4] = {/* tp pp dp zero */
                                          {1, 1, 1, 0}, {4, 1, 1, 0},
                                          {2, 2, 1, 1}, {1, 2, 2, 1},
                                          {3, 1, 2, 1}, {1, 1, 4, 1}};

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(degrees); i++) {
        const uint32_t *d = degrees[i];
        struct dyti_layout_desc desc = {.phase = "train",
                                        .world_size = d[0] * d[1] * d[2],
                                        .tp = d[0],
                                        .pp = d[1],
                                        .dp = d[2],
                                        .zero = d[3]};
        struct dyti_arch a = arch(i % 2 == 0);
        struct dyti_layout *layout = NULL;
        struct dyti_model *model = NULL;

        assert_ok(dyti_model_build(&a, &model));
        assert_ok(dyti_layout_build(model, &desc, &layout));
        check_layout(layout, DYTI_PARAM);
        check_layout(layout, DYTI_MASTER);
        dyti_layout_destroy(layout);
        dyti_model_destroy(model);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_element_is_in_one_atom),
};
DYT_TEST_MAIN(tests)
