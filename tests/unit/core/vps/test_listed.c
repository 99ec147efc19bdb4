/* Catalogues by a list: what they hold, what they refuse, and who refuses them.
 */
#include "dyt_test.h"

#include "layout/layout.h"
#include "vps/model.h"

#define TENSOR(n, ...)                                                         \
    {                                                                          \
        .name = (n),                                                           \
        .ndim = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t),            \
        .shape = {__VA_ARGS__}, .layer = -1, .expert = -1                      \
    }

static struct dyti_model *build(const struct dyti_listed_desc *d, size_t count)
{
    struct dyti_model *model = NULL;

    assert_ok(dyti_model_build_listed(d, count, &model));
    return model;
}

static void lists_tensors_in_order(void **state)
{
    struct dyti_listed_desc d[] = {TENSOR("b", 3, 4), TENSOR("a", 5),
                                   TENSOR("step", 1)};
    struct dyti_model *model;

    (void)state;
    d[2].kinds = 1u << DYTI_EXTRA;
    d[2].dtype = DYTI_I64;
    model = build(d, 3);
    assert_int_equal(model->tensor_count, 3);
    assert_string_equal(model->tensor[0].name, "b");
    assert_int_equal(dyti_model_find_name(model, "a"), 1);
    assert_int_equal(dyti_model_find_name(model, "c"), UINT32_MAX);
    assert_int_equal(dyti_model_elements(model), 17);
    assert_true(model->tensor[2].fixed_dtype);
    assert_int_equal(model->tensor[2].extra, DYTI_EXTRA_EVERY);
    assert_int_equal(dyti_model_find(model, -1, DYTI_SLOT_EMBED), UINT32_MAX);
    assert_int_equal(dyti_model_find(model, -1, DYTI_SLOT_LISTED), UINT32_MAX);
    assert_true(dyti_model_is_listed(model));
    dyti_model_destroy(model);
}

static void fingerprint_depends_on_names_and_shapes(void **state)
{
    struct dyti_listed_desc a[] = {TENSOR("a", 3), TENSOR("b", 4)};
    struct dyti_listed_desc b[] = {TENSOR("a", 3), TENSOR("b", 5)};
    struct dyti_listed_desc c[] = {TENSOR("b", 4), TENSOR("a", 3)};
    struct dyti_model *x = build(a, 2), *again = build(a, 2);
    struct dyti_model *y = build(b, 2), *z = build(c, 2);

    (void)state;
    assert_true(x->fingerprint == again->fingerprint);
    assert_true(x->fingerprint != y->fingerprint);
    assert_true(x->fingerprint != z->fingerprint);
    dyti_model_destroy(x);
    dyti_model_destroy(again);
    dyti_model_destroy(y);
    dyti_model_destroy(z);
}

static void refuses_what_is_no_catalogue(void **state)
{
    struct dyti_listed_desc empty[] = {TENSOR("a", 3, 0)};
    struct dyti_listed_desc twice[] = {TENSOR("a", 3), TENSOR("a", 3)};
    struct dyti_listed_desc huge[] = {
        TENSOR("a", INT64_C(1) << 40, INT64_C(1) << 40)};
    struct dyti_listed_desc mixed[] = {TENSOR("a", 3)};
    struct dyti_listed_desc nameless[] = {TENSOR(NULL, 3)};
    struct dyti_model *model = NULL;

    (void)state;
    assert_status(DYT_ERR_INVALID, dyti_model_build_listed(NULL, 0, &model));
    assert_status(DYT_ERR_INVALID, dyti_model_build_listed(empty, 1, &model));
    assert_error_has("dimension 1 is 0");
    assert_status(DYT_ERR_INVALID, dyti_model_build_listed(twice, 2, &model));
    assert_error_has("two tensors are called a");
    assert_status(DYT_ERR_OVERFLOW, dyti_model_build_listed(huge, 1, &model));
    mixed[0].kinds = 1u << DYTI_EXTRA | 1u << DYTI_PARAM;
    assert_status(DYT_ERR_INVALID, dyti_model_build_listed(mixed, 1, &model));
    assert_status(DYT_ERR_INVALID,
                  dyti_model_build_listed(nameless, 1, &model));
    assert_null(model);
}

static void degrees_and_running_refuse_a_list(void **state)
{
    struct dyti_listed_desc d[] = {TENSOR("a", 3)};
    struct dyti_model *model = build(d, 1);
    struct dyti_layout_desc desc = {
        .phase = "train", .world_size = 1, .tp = 1, .pp = 1, .dp = 1};
    struct dyti_layout *layout = NULL;

    (void)state;
    assert_status(DYT_ERR_INVALID, dyti_layout_build(model, &desc, &layout));
    assert_error_has("list of 1 tensors");
    assert_status(DYT_ERR_UNSUPPORTED, dyti_arch_check_runs(&model->arch));
    assert_string_equal(dyti_family_name(model->arch.family), "listed");
    dyti_model_destroy(model);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(lists_tensors_in_order),
    cmocka_unit_test(fingerprint_depends_on_names_and_shapes),
    cmocka_unit_test(refuses_what_is_no_catalogue),
    cmocka_unit_test(degrees_and_running_refuse_a_list),
};
DYT_TEST_MAIN(tests)
