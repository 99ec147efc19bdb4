/* Arrays that grow (base/array.h) and are sorted (base/sort.h), also where
 * there is no memory. */
#include "base/array.h"
#include "base/rng.h"
#include "base/sort.h"

#include "dyt_test.h"

static bool refuse; /* the next malloc or realloc fails */

void *__real_malloc(size_t size_bytes);
void *__wrap_malloc(size_t size_bytes);
void *__real_realloc(void *ptr, size_t size_bytes);
void *__wrap_realloc(void *ptr, size_t size_bytes);

void *__wrap_malloc(size_t size_bytes)
{
    return refuse ? NULL : __real_malloc(size_bytes);
}

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

/* ---- sorting ------------------------------------------------------------- */

#define SEED 4711u
#define MOST 20000u

struct thing {
    uint32_t first;
    uint64_t second, number;
};

static int by_both(const void *a, const void *b)
{
    const struct thing *x = a, *y = b;

    if (x->first != y->first) {
        return x->first < y->first ? -1 : 1;
    }
    return (x->second > y->second) - (x->second < y->second);
}

static uint64_t first_of(const void *item)
{
    return ((const struct thing *)item)->first;
}

/* Things of which `first` has so many values, spread in one of four ways: far
 * apart, close together, most of them at one end, all of them sorted. */
static void make_things(uint64_t trial, uint32_t count, struct thing *thing)
{
    uint32_t values =
        (uint32_t)(dyti_rng_u64(SEED, trial, 1, 1) % (1u + count)) + 1;
    uint32_t far = UINT32_MAX / values;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t x = (uint32_t)(dyti_rng_u64(SEED, trial, i, 2) % values);
        uint64_t y = dyti_rng_u64(SEED, trial, i, 3) % 50;

        x = trial % 4 == 0   ? x * far
            : trial % 4 == 2 ? (x % 100 == 0 ? UINT32_MAX - x : x % 3)
            : trial % 4 == 3 ? i / 7
                             : x;
        thing[i] = (struct thing){x, trial % 4 == 3 ? i : y, i};
    }
}

static void many_are_sorted_as_qsort_does(void **state)
{
    struct thing *thing = calloc(MOST, sizeof(*thing));
    struct thing *other = calloc(MOST, sizeof(*other));

    (void)state;
    assert_non_null(thing);
    assert_non_null(other);
    for (uint64_t trial = 0; trial < 40; trial++) {
        uint32_t count = (uint32_t)(dyti_rng_u64(SEED, trial, 0, 0) %
                                    (trial % 5 == 0 ? 10 : MOST + 1));
        uint64_t sum = 0;

        make_things(trial, count, thing);
        memcpy(other, thing, count * sizeof(*thing));
        qsort(other, count, sizeof(*other), by_both);
        refuse = trial % 7 == 6; /* qsort() can do without memory */
        dyti_sort(thing, count, sizeof(*thing), first_of, by_both);
        refuse = false;
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(0, by_both(&thing[i], &other[i]));
            sum += thing[i].number;
        }
        /* each is still there */
        assert_int_equal((uint64_t)count * (count - (count > 0)) / 2, sum);
    }
    free(thing);
    free(other);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(grows_at_least_twofold_and_keeps_contents),
    cmocka_unit_test(enough_room_changes_nothing),
    cmocka_unit_test(failure_leaves_the_array_as_it_was),
    cmocka_unit_test(many_are_sorted_as_qsort_does),
};
DYT_TEST_MAIN(tests)
