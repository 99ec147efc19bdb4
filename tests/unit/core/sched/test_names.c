/* Eighteen thousand names cost nothing: describing a model looks at each a few
 * times, planning and scheduling a switch at none. */
#include "arch_cases.h"
#include "dyt_test.h"

#include "sched/cache.h"

/* ---- every way to look at a name ----------------------------------------- */

static uint64_t looks;

int __real_strcmp(const char *a, const char *b);
int __wrap_strcmp(const char *a, const char *b);
int __wrap_strcmp(const char *a, const char *b)
{
    looks++;
    return __real_strcmp(a, b);
}

int __real_strncmp(const char *a, const char *b, size_t bytes);
int __wrap_strncmp(const char *a, const char *b, size_t bytes);
int __wrap_strncmp(const char *a, const char *b, size_t bytes)
{
    looks++;
    return __real_strncmp(a, b, bytes);
}

size_t __real_strlen(const char *text);
size_t __wrap_strlen(const char *text);
size_t __wrap_strlen(const char *text)
{
    looks++;
    return __real_strlen(text);
}

char *__real_strstr(const char *text, const char *part);
char *__wrap_strstr(const char *text, const char *part);
char *__wrap_strstr(const char *text, const char *part)
{
    looks++;
    return __real_strstr(text, part);
}

int __real_vsnprintf(char *to, size_t bytes, const char *fmt, va_list args);
int __wrap_vsnprintf(char *to, size_t bytes, const char *fmt, va_list args);
int __wrap_vsnprintf(char *to, size_t bytes, const char *fmt, va_list args)
{
    looks++;
    return __real_vsnprintf(to, bytes, fmt, args);
}

/* ---- the case ------------------------------------------------------------ */

struct fixture {
    struct dyti_model *model;
    struct dyti_layout *rollout, *train;
};

static uint64_t open_case(struct fixture *f, uint32_t layers)
{
    const struct dyti_arch arch =
        DYT_ARCH(DYTI_LLAMA, 16, 4, layers, 2, 1, 2, 4, .tied = false);
    struct dyti_layout_desc r = {
        .phase = "rollout", .world_size = 4, .tp = 2, .pp = 2, .dp = 1};
    struct dyti_layout_desc t = {.phase = "train",
                                 .world_size = 4,
                                 .tp = 1,
                                 .pp = 2,
                                 .dp = 2,
                                 .zero = 1};

    for (int k = 0; k < DYTI_KIND_COUNT; k++) {
        r.residency[k] = k == DYTI_PARAM ? DYTI_HELD : DYTI_PARKED;
    }
    r.residency[DYTI_GRAD] = DYTI_DROPPED;
    looks = 0;
    assert_ok(dyti_model_build(&arch, &f->model));
    assert_ok(dyti_layout_build(f->model, &r, &f->rollout));
    assert_ok(dyti_layout_build(f->model, &t, &f->train));
    return looks;
}

static void close_case(struct fixture *f)
{
    dyti_layout_destroy(f->rollout);
    dyti_layout_destroy(f->train);
    dyti_model_destroy(f->model);
}

/* Twice as many names are twice the work, not four times. */
static void describing_is_linear(void **state)
{
    struct fixture f;
    uint64_t few = open_case(&f, 250), many;

    (void)state;
    close_case(&f);
    many = open_case(&f, 500);
    close_case(&f);
    assert_true(many <= 2 * few + 1000);
    assert_true(many < 500 * 9 * 40);
}

static void planning_looks_at_no_name(void **state)
{
    const struct dyti_schedule_options options = {.side = DYTI_SIDE_PULL};
    const struct dyti_switch_plan *first = NULL, *again = NULL;
    struct dyti_switch_cache *cache = NULL;
    struct dyti_plan_inputs inputs;
    uint64_t hits = 0, builds = 0;
    struct fixture f;

    (void)state;
    (void)open_case(&f, 2000);
    assert_true(f.model->tensor_count >= 18000);
    looks = 0;
    assert_ok(dyti_plan_inputs_init(f.train, DYTI_ARENA_TRAIN, f.rollout,
                                    DYTI_ARENA_ROLLOUT, DYTI_PLAN_KINDS_STATE,
                                    &inputs));
    assert_ok(dyti_switch_cache_create(&cache));
    for (uint32_t rank = 0; rank < 4; rank++) {
        assert_ok(
            dyti_switch_cache_get(cache, &inputs, rank, &options, &first));
        assert_ok(
            dyti_switch_cache_get(cache, &inputs, rank, &options, &again));
        assert_ptr_equal(first, again);
    }
    assert_int_equal(0, looks);
    dyti_switch_cache_counts(cache, &hits, &builds);
    assert_int_equal(4, hits);
    assert_int_equal(4, builds);
    dyti_switch_cache_destroy(cache);
    close_case(&f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(describing_is_linear),
    cmocka_unit_test(planning_looks_at_no_name),
};
DYT_TEST_MAIN(tests)
