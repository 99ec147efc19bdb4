/* Every tile of a job runs once, on as many threads as there are (base/pool.h).
 */
#include "base/pool.h"

#include "dyt_test.h"

#include <pthread.h>
#include <stdatomic.h>

static long calls_left = -1; /* < 0: never fail */

void *__real_calloc(size_t n, size_t size_bytes);
void *__wrap_calloc(size_t n, size_t size_bytes);
void *__real_malloc(size_t size_bytes);
void *__wrap_malloc(size_t size_bytes);

/* True if this allocation shall fail; the helpers' own are not counted since
 * they make none. */
static bool refuse(void)
{
    if (calls_left == 0) {
        return true;
    }
    calls_left -= calls_left > 0;
    return false;
}

void *__wrap_calloc(size_t n, size_t size_bytes)
{
    return refuse() ? NULL : __real_calloc(n, size_bytes);
}

void *__wrap_malloc(size_t size_bytes)
{
    return refuse() ? NULL : __real_malloc(size_bytes);
}

struct tiles {
    uint32_t threads;
    atomic_uint ran[64];
    atomic_uint bad_thread;
    uint64_t plain[64]; /* written without atomics: visible afterwards? */
};

static void run_tile(void *arg, size_t index, uint32_t thread)
{
    struct tiles *tiles = arg;

    atomic_fetch_add(&tiles->ran[index], 1);
    if (thread >= tiles->threads) {
        atomic_fetch_add(&tiles->bad_thread, 1);
    }
    tiles->plain[index] += index + 1;
}

static void every_tile_runs_once_per_job(void **state)
{
    static const uint32_t threads[] = {1, 2, 3, 5};
    static const size_t counts[] = {0, 1, 2, 3, 17, 64};

    (void)state;
    for (size_t t = 0; t < DYT_TEST_COUNT(threads); t++) {
        struct dyti_pool *pool = NULL;
        struct tiles *tiles = calloc(1, sizeof(*tiles));
        uint32_t want[64] = {0};

        assert_non_null(tiles);
        tiles->threads = threads[t];
        assert_ok(dyti_pool_create(threads[t], &pool));
        assert_int_equal(threads[t], dyti_pool_threads(pool));
        for (int job = 0; job < 300; job++) {
            size_t count = counts[(size_t)job % DYT_TEST_COUNT(counts)];

            dyti_pool_run(pool, count, run_tile, tiles);
            for (size_t i = 0; i < 64; i++) {
                want[i] += i < count;
                assert_int_equal(want[i], atomic_load(&tiles->ran[i]));
                assert_int_equal(want[i] * (i + 1), tiles->plain[i]);
            }
        }
        assert_int_equal(0, atomic_load(&tiles->bad_thread));
        dyti_pool_destroy(pool);
        free(tiles);
    }
}

static void no_pool_is_a_pool_of_one(void **state)
{
    struct tiles *tiles = calloc(1, sizeof(*tiles));

    (void)state;
    assert_non_null(tiles);
    tiles->threads = 1;
    assert_int_equal(1, dyti_pool_threads(NULL));
    dyti_pool_run(NULL, 5, run_tile, tiles);
    assert_int_equal(1, atomic_load(&tiles->ran[4]));
    assert_int_equal(0, atomic_load(&tiles->bad_thread));
    dyti_pool_destroy(NULL);
    free(tiles);
}

struct meeting {
    pthread_barrier_t barrier;
};

static void meet(void *arg, size_t index, uint32_t thread)
{
    struct meeting *meeting = arg;

    (void)index;
    (void)thread;
    pthread_barrier_wait(&meeting->barrier);
}

/* Three tiles that wait for each other end only if three threads run them. */
static void threads_really_work_side_by_side(void **state)
{
    struct dyti_pool *pool = NULL;
    struct meeting meeting;

    (void)state;
    assert_int_equal(0, pthread_barrier_init(&meeting.barrier, NULL, 3));
    assert_ok(dyti_pool_create(3, &pool));
    for (int job = 0; job < 50; job++) {
        dyti_pool_run(pool, 3, meet, &meeting);
    }
    dyti_pool_destroy(pool);
    pthread_barrier_destroy(&meeting.barrier);
}

static void pool_of_none_is_refused(void **state)
{
    struct dyti_pool *pool = NULL;

    (void)state;
    assert_status(DYT_ERR_INVALID, dyti_pool_create(0, &pool));
    assert_null(pool);
}

static void every_allocation_may_fail(void **state)
{
    struct dyti_pool *pool = NULL;
    long fail_at = 0;
    enum dyt_status st;

    (void)state;
    do {
        calls_left = fail_at++;
        st = dyti_pool_create(2, &pool);
        calls_left = -1;
        if (st != DYT_OK) {
            assert_int_equal(DYT_ERR_NOMEM, st);
            assert_null(pool);
        }
    } while (st != DYT_OK);
    assert_true(fail_at > 3); /* pool, thread table, one helper */
    dyti_pool_destroy(pool);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_tile_runs_once_per_job),
    cmocka_unit_test(no_pool_is_a_pool_of_one),
    cmocka_unit_test(threads_really_work_side_by_side),
    cmocka_unit_test(pool_of_none_is_refused),
    cmocka_unit_test(every_allocation_may_fail),
};
DYT_TEST_MAIN(tests)
