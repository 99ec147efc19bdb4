/* Min-max flow: against the definition.  The least load of ranks R is the
 * largest, over all subsets A of ranks, of the demands that only A can serve
 * divided by A's size (Hall); hosts likewise. */
#include "dyt_test.h"

#include "base/rng.h"
#include "plan/choose.h"

#define SEED   777u
#define TRIALS 400u
#define RANKS  9u

static uint64_t pick(uint64_t trial, uint64_t what, uint64_t count)
{
    return dyti_rng_u64(SEED, trial, what, 0xf10) % count;
}

struct fixture {
    struct dyti_choose c;
    struct dyti_choose_key key[12];
    uint32_t rank[12][RANKS], host[RANKS];
    uint64_t unit[RANKS];
};

static void make(uint64_t trial, struct fixture *f)
{
    uint32_t world = 2 + (uint32_t)pick(trial, 0, RANKS - 1);

    memset(f, 0, sizeof(*f));
    f->c = (struct dyti_choose){.key = f->key,
                                .key_count = 1 + pick(trial, 1, 12),
                                .world_size = world,
                                .host_count = 1 + (uint32_t)pick(trial, 2, 3),
                                .host = f->host};
    for (uint32_t r = 0; r < world; r++) {
        f->host[r] = r * f->c.host_count / world;
    }
    for (uint32_t h = 0; h < f->c.host_count; h++) {
        f->unit[h] = DYTI_CHOOSE_UNIT / 2 * (1 + pick(trial, 50 + h, 4));
    }
    f->c.host_unit = pick(trial, 3, 2) == 0 ? NULL : f->unit;
    for (size_t k = 0; k < f->c.key_count; k++) {
        f->key[k].rank = f->rank[k];
        f->key[k].demand = pick(trial, 100 + k, 2000);
        for (uint32_t r = 0; r < world; r++) {
            if (pick(trial, 1000 + k * 100 + r, 3) == 0) {
                f->rank[k][f->key[k].count++] = r;
            }
        }
        if (f->key[k].count == 0) {
            f->rank[k][f->key[k].count++] = (uint32_t)k % world;
        }
    }
}

/* Ceil of need / units over every subset of ranks, each host counting as its
 * ranks or as its own link, whichever is less. */
static double least_load(const struct fixture *f)
{
    double most = 0;

    for (uint32_t a = 1; a < 1u << f->c.world_size; a++) {
        double need = 0, units = 0;

        for (size_t k = 0; k < f->c.key_count; k++) {
            bool inside = true;

            for (uint32_t i = 0; i < f->key[k].count; i++) {
                inside = inside && (a >> f->rank[k][i] & 1u) != 0;
            }
            need += inside ? (double)f->key[k].demand : 0;
        }
        for (uint32_t h = 0; h < f->c.host_count; h++) {
            double ranks = 0, link = (double)f->unit[h] / DYTI_CHOOSE_UNIT;

            for (uint32_t r = 0; r < f->c.world_size; r++) {
                ranks += (a >> r & 1u) != 0 && f->host[r] == h;
            }
            units += f->c.host_unit != NULL && link < ranks ? link : ranks;
        }
        most = units > 0 && need / units > most ? need / units : most;
    }
    return most;
}

static void the_load_is_the_least(void **state)
{
    (void)state;
    for (uint64_t trial = 0; trial < TRIALS; trial++) {
        struct fixture f;
        uint64_t load[RANKS] = {0}, host[RANKS] = {0};
        double least;

        make(trial, &f);
        assert_ok(dyti_choose(&f.c));
        for (size_t k = 0; k < f.c.key_count; k++) {
            uint64_t sum = 0;

            for (uint32_t i = 0; i < f.key[k].count; i++) {
                uint64_t x = f.c.share[f.key[k].share + i];

                sum += x;
                load[f.rank[k][i]] += x;
                host[f.host[f.rank[k][i]]] += x;
            }
            assert_int_equal(f.key[k].demand, sum);
        }
        for (uint32_t r = 0; r < f.c.world_size; r++) {
            assert_true(load[r] <= f.c.load);
        }
        for (uint32_t h = 0; f.c.host_unit != NULL && h < f.c.host_count; h++) {
            assert_true((double)host[h] <= (double)f.c.load *
                                               (double)f.unit[h] /
                                               DYTI_CHOOSE_UNIT);
        }
        least = least_load(&f);
        if ((double)f.c.load < least - 1e-6 ||
            (double)f.c.load > least + 4.0) { /* whole bytes on each link */
            fail_msg("trial %llu: load %llu, least %g",
                     (unsigned long long)trial, (unsigned long long)f.c.load,
                     least);
        }
        free(f.c.share);
    }
}

/* Where it costs nothing everybody serves the same. */
static void equals_serve_equal_parts(void **state)
{
    static const uint32_t all[] = {0, 1, 2, 3}, host[] = {0, 0, 1, 1};
    struct dyti_choose_key key[] = {{.demand = 4000, .rank = all, .count = 4},
                                    {.demand = 402, .rank = all, .count = 4}};
    struct dyti_choose c = {.key = key,
                            .key_count = 2,
                            .world_size = 4,
                            .host_count = 2,
                            .host = host};

    (void)state;
    assert_ok(dyti_choose(&c));
    assert_int_equal(1101, c.load);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(1000, c.share[i]);
    }
    free(c.share);
}

static void who_alone_can_serve_is_spared_the_rest(void **state)
{
    static const uint32_t one[] = {1}, three[] = {0, 1, 2}, host[3] = {0};
    struct dyti_choose_key key[] = {
        {.demand = 900, .rank = one, .count = 1},
        {.demand = 1200, .rank = three, .count = 3}};
    struct dyti_choose c = {.key = key,
                            .key_count = 2,
                            .world_size = 3,
                            .host_count = 1,
                            .host = host};

    (void)state;
    assert_ok(dyti_choose(&c));
    assert_int_equal(900, c.load);
    assert_int_equal(0, c.share[2]);
    assert_int_equal(600, c.share[1]);
    assert_int_equal(600, c.share[3]);
    free(c.share);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_load_is_the_least),
    cmocka_unit_test(equals_serve_equal_parts),
    cmocka_unit_test(who_alone_can_serve_is_spared_the_rest),
};
DYT_TEST_MAIN(tests)
