/* Arrays that grow (base/array.h), also where memory does not. */
#include "base/array.h"

#include "dyt_test.h"

static bool refuse; /* the next realloc fails */

void *__real_realloc(void *ptr, size_t size_bytes);
void *__wrap_realloc(void *ptr, size_t size_bytes);

void *__wrap_realloc(void *ptr, size_t size_bytes)
{
    return refuse ? NULL : __real_realloc(ptr, size_bytes);
}

static void grows_at_least_twofold_and_keeps_contents(void **state)
{
    int *item = NULL;
    size_t cap = 0, steps = 0;

    (void)state;
    for (int i = 0; i < 5000; i++) {
        size_t before = cap;

        assert_ok(DYTI_GROW(item, cap, (size_t)i + 1));
        item[i] = i;
        if (cap != before) {
            assert_true(cap >= 2 * before && cap >= 8);
            steps++;
        }
    }
    assert_true(steps < 12); /* amortised, not one by one */
    for (int i = 0; i < 5000; i++) {
        assert_int_equal(i, item[i]);
    }
    free(item);
}

static void enough_room_changes_nothing(void **state)
{
    int *item = NULL;
    size_t cap = 0;
    int *before;

    (void)state;
    assert_ok(DYTI_GROW(item, cap, 100));
    assert_int_equal(100, cap);
    before = item;
    refuse = true; /* would fail if it tried */
    assert_ok(DYTI_GROW(item, cap, 100));
    assert_ok(DYTI_GROW(item, cap, 0));
    refuse = false;
    assert_ptr_equal(before, item);
    free(item);
}

static void failure_leaves_the_array_as_it_was(void **state)
{
    int64_t *item = NULL;
    size_t cap = 0;
    int64_t *before;

    (void)state;
    assert_ok(DYTI_GROW(item, cap, 10));
    before = item;
    refuse = true;
    assert_status(DYT_ERR_NOMEM, DYTI_GROW(item, cap, 11));
    refuse = false;
    assert_status(DYT_ERR_OVERFLOW, DYTI_GROW(item, cap, SIZE_MAX / 4));
    assert_ptr_equal(before, item);
    assert_int_equal(10, cap);
    free(item);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(grows_at_least_twofold_and_keeps_contents),
    cmocka_unit_test(enough_room_changes_nothing),
    cmocka_unit_test(failure_leaves_the_array_as_it_was),
};
DYT_TEST_MAIN(tests)
