/* Who is refused, and with which words: creating and binding. */
#include "nn_cases.h"

struct fixture {
    struct dyti_model *model;
    struct dyti_layout *layout;
    struct dyti_kernels kernels;
    struct dyti_group alone;
};

static int set_up(void **state)
{
    static struct fixture f;
    struct dyti_layout_desc desc = {
        .phase = "train", .world_size = 3, .tp = 2, .pp = 1, .dp = 1};
    struct dyti_kernel_params params = {.struct_size = sizeof(params)};

    f = (struct fixture){.kernels.ops = &dyti_kernels_reference};
    *state = &f;
    assert_ok(dyti_model_build(&nn_cases[3].arch, &f.model));
    assert_ok(dyti_layout_build(f.model, &desc, &f.layout));
    assert_ok(f.kernels.ops->open(&params, &f.kernels.self));
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    f->kernels.ops->close(f->kernels.self);
    dyti_layout_destroy(f->layout);
    dyti_model_destroy(f->model);
    return 0;
}

static void create_refuses(void **state)
{
    struct fixture *f = *state;
    struct dyti_part part = dyti_layout_view(f->layout, 0)->part;
    struct dyti_part away = dyti_layout_view(f->layout, 2)->part;
    struct dyti_kernels none = {0};
    struct dyti_nn *nn = NULL;

    assert_status(DYT_ERR_INVALID, dyti_nn_create(f->model, &away, &f->kernels,
                                                  &f->alone, 8, &nn));
    assert_error_has("not in the layout");
    assert_status(DYT_ERR_INVALID, dyti_nn_create(f->model, &part, &f->kernels,
                                                  &f->alone, 8, &nn));
    assert_error_has("member 0 of 1");
    part.tp_size = 1;
    assert_status(DYT_ERR_INVALID,
                  dyti_nn_create(f->model, &part, &none, &f->alone, 8, &nn));
    assert_error_has("kernel table");
    assert_status(DYT_ERR_INVALID, dyti_nn_create(f->model, &part, &f->kernels,
                                                  &f->alone, 0, &nn));
    assert_error_has("0 positions");
    part.kv_hi++;
    assert_status(DYT_ERR_LAYOUT, dyti_nn_create(f->model, &part, &f->kernels,
                                                 &f->alone, 8, &nn));
    part.kv_hi--;
    part.layer_hi = 9;
    assert_status(DYT_ERR_LAYOUT, dyti_nn_create(f->model, &part, &f->kernels,
                                                 &f->alone, 8, &nn));
    assert_null(nn);
}

static void create_refuses_what_rope_cannot_turn(void **state)
{
    struct fixture *f = *state;
    struct dyti_model odd = *f->model;
    struct dyti_part part = dyti_layout_view(f->layout, 0)->part;
    struct dyti_nn *nn = NULL;

    part.tp_size = 1;
    odd.arch.head_dim = 3;
    assert_status(DYT_ERR_UNSUPPORTED,
                  dyti_nn_create(&odd, &part, &f->kernels, NULL, 8, &nn));
    odd.arch.head_dim = 4;
    odd.arch.rope.kind = (enum dyti_rope_kind)7;
    assert_status(DYT_ERR_UNSUPPORTED,
                  dyti_nn_create(&odd, &part, &f->kernels, NULL, 8, &nn));
    odd.arch.rope.kind = DYTI_ROPE_LINEAR;
    odd.arch.rope.factor = 0.0;
    assert_status(DYT_ERR_INVALID,
                  dyti_nn_create(&odd, &part, &f->kernels, NULL, 8, &nn));
    odd.arch.rope = (struct dyti_rope){.kind = DYTI_ROPE_LLAMA3,
                                       .theta = 1e4,
                                       .factor = 8.0,
                                       .low_freq = 4.0,
                                       .high_freq = 1.0,
                                       .original_max = 8192};
    assert_status(DYT_ERR_INVALID,
                  dyti_nn_create(&odd, &part, &f->kernels, NULL, 8, &nn));
    assert_error_has("llama3");
    assert_null(nn);
}

/* The same view, shard by shard, that a test may bend. */
static struct dyti_view bendable(const struct dyti_view *view)
{
    struct dyti_view copy = *view;

    copy.shard = malloc(copy.shard_count * sizeof(*copy.shard));
    memcpy(copy.shard, view->shard, copy.shard_count * sizeof(*copy.shard));
    return copy;
}

static void bind_wants_partners_side_by_side(void **state)
{
    static const enum dyti_slot slots[] = {DYTI_SLOT_K, DYTI_SLOT_V,
                                           DYTI_SLOT_K_BIAS, DYTI_SLOT_V_BIAS,
                                           DYTI_SLOT_UP};
    struct fixture *f = *state;
    static float base[4];

    for (size_t i = 0; i < DYT_TEST_COUNT(slots); i++) {
        struct dyti_view view = bendable(dyti_layout_view(f->layout, 1));
        uint32_t tensor = dyti_model_find(f->model, 2, slots[i]);
        struct dyti_nn_weights w = {0};

        for (uint32_t s = 0; s < view.kind_first[DYTI_PARAM + 1]; s++) {
            view.shard[s].offset += view.shard[s].tensor == tensor ? 64u : 0u;
        }
        assert_status(DYT_ERR_LAYOUT,
                      dyti_nn_bind(f->model, &view, DYTI_PARAM, base, &w));
        assert_error_has("model.layers.2.");
        assert_null(w.layer);
        free(view.shard);
    }
}

static void bind_refuses(void **state)
{
    struct fixture *f = *state;
    struct dyti_view view = bendable(dyti_layout_view(f->layout, 0));
    struct dyti_nn_weights w = {0};
    static float base[4];

    assert_status(DYT_ERR_LAYOUT,
                  dyti_nn_bind(f->model, dyti_layout_view(f->layout, 2),
                               DYTI_PARAM, base, &w));
    assert_error_has("holds no param");
    view.shard[view.kind_first[DYTI_PARAM]].dtype = DYTI_F16;
    assert_status(DYT_ERR_UNSUPPORTED,
                  dyti_nn_bind(f->model, &view, DYTI_PARAM, base, &w));
    assert_error_has("f16");
    view.shard[view.kind_first[DYTI_GRAD]].dtype = DYTI_BF16;
    assert_status(DYT_ERR_UNSUPPORTED,
                  dyti_nn_bind(f->model, &view, DYTI_GRAD, base, &w));
    view.shard[view.kind_first[DYTI_PARAM]].dtype = DYTI_F32;
    view.kind_first[DYTI_PARAM + 1]--; /* the last tensor is gone */
    assert_status(DYT_ERR_LAYOUT,
                  dyti_nn_bind(f->model, &view, DYTI_PARAM, base, &w));
    assert_error_has("model.norm.weight");
    free(view.shard);
}

static void passes_refuse_rows_outside(void **state)
{
    (void)state;
    struct dyti_model *model;
    struct nn_world w;
    struct nn_batch b;
    float hidden[NN_ROWS * 24];
    struct dyti_region none;
    float **full;

    assert_ok(dyti_model_build(&nn_cases[0].arch, &model));
    full = nn_full_random(model, 1);
    nn_batch_init(&b, model->arch.vocab);
    nn_world_init(&w,
                  &(struct nn_world_desc){.model = model,
                                          .tp = 1,
                                          .pp = 1,
                                          .kernels = &dyti_kernels_reference,
                                          .positions = 9},
                  full);
    dyti_region_init(&none, hidden, 0);
    b.ids[3] = 37;
    assert_status(DYT_ERR_INVALID,
                  dyti_nn_forward(w.rank[0].nn, &w.rank[0].w, &b.micro, hidden,
                                  DYTI_RECOMPUTE_NONE, NULL, &none, NULL));
    assert_error_has("row 3 has id 37");
    b.ids[3] = 0;
    b.position[14] = 9;
    assert_status(DYT_ERR_INVALID,
                  dyti_nn_forward(w.rank[0].nn, &w.rank[0].w, &b.micro, hidden,
                                  DYTI_RECOMPUTE_NONE, NULL, &none, NULL));
    assert_error_has("row 14 is at position 9");
    b.position[14] = 8;
    assert_status(DYT_ERR_NOMEM,
                  dyti_nn_forward(w.rank[0].nn, &w.rank[0].w, &b.micro, hidden,
                                  DYTI_RECOMPUTE_NONE, NULL, &none, NULL));
    nn_full_free(model, full);
    nn_world_fini(&w);
    dyti_model_destroy(model);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(create_refuses, set_up, tear_down),
    cmocka_unit_test_setup_teardown(create_refuses_what_rope_cannot_turn,
                                    set_up, tear_down),
    cmocka_unit_test_setup_teardown(bind_wants_partners_side_by_side, set_up,
                                    tear_down),
    cmocka_unit_test_setup_teardown(bind_refuses, set_up, tear_down),
    cmocka_unit_test(passes_refuse_rows_outside),
};
DYT_TEST_MAIN(tests)
