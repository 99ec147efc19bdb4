/* The second run of a link plans and allocates nothing; a thousand leave
 * memory, descriptors and addresses as they were; one source serves several
 * links at once; and stacked experts of three dimensions arrive. */
#include "count_alloc.h"
#include "link_world.h"

#include <malloc.h>

#define SEED 4242u
#define RUNS 1000u

/* ---- counting ------------------------------------------------------------ */

/* Pages of addresses that this process has. */
static uint64_t count_pages(void)
{
    FILE *statm = fopen("/proc/self/statm", "re");
    unsigned long long pages = 0;

    if (statm != NULL) {
        if (fscanf(statm, "%llu", &pages) != 1) {
            pages = 0;
        }
        (void)fclose(statm);
    }
    return pages;
}

static void steady_body(struct dyt_rank *me)
{
    struct lw_member *m = calloc(1, sizeof(*m));
    struct dyti_link_params params;
    struct dyti_switch_report report;
    uint64_t runs = dyt_test_instrumented() ? 100 : RUNS, before;
    uint64_t pages;
    uint32_t files;

    /* A thread's first allocation would reserve an arena of its own. */
    (void)mallopt(M_ARENA_MAX, 1);
    rank_true(me, m != NULL);
    rank_ok(me, lw_member_init(m, me->arg, me->rank, 1));
    rank_true(me, lw_share(m));
    lw_meet(m->c, 0);
    lw_look(m);
    params = lw_params(m);
    rank_ok(me, dyti_link_open(&params, &m->link));
    rank_ok(me, dyti_link_run(m->link, 1, 1, &report));
    files = dyt_open_files();
    pages = count_pages();
    before = atomic_load(&allocations);
    for (uint64_t i = 2; i <= runs; i++) {
        rank_ok(me, dyti_link_run(m->link, i, i, &report));
    }
    rank_true(me, atomic_load(&allocations) == before);
    rank_true(me, dyt_open_files() == files);
    rank_true(me, count_pages() <= pages + 64); /* stdio, stacks */
    rank_true(me, m->is_source ||
                      lw_check(m, dyti_link_live_set(m->link), 1).count == 0);
    lw_member_fini(m);
    free(m);
}

static void the_second_run_allocates_nothing(void **state)
{
    (void)state;
    for (uint32_t trial = 0; trial < 6; trial++) {
        struct lw_case c = {.seed = SEED,
                            .trial = trial,
                            .commit = (enum dyt_commit_mode)(trial % 3),
                            .verify = DYT_VERIFY_SAMPLE,
                            .sources = 1,
                            .members = 2,
                            .source_memory = (enum lw_memory)(trial / 3),
                            .target_memory = LW_SHARED};

        lw_case_init(&c);
        dyt_ranks_run(DYT_RANKS_PROCESSES, c.members, steady_body, &c);
        lw_case_fini(&c);
    }
}

/* ---- several links of one source ----------------------------------------- */

struct pair {
    struct lw_case c[2]; /* the same rows of the source */
    struct lw_member *source;
};

static void serve(struct dyt_rank *me, struct lw_member *m)
{
    struct dyti_link_params params = lw_params(m);
    struct dyti_switch_report report;

    rank_ok(me, dyti_link_open(&params, &m->link));
    for (uint64_t i = 1; i <= 50; i++) {
        rank_ok(me, dyti_link_run(m->link, i, i, &report));
    }
    if (!m->is_source) {
        rank_true(me, lw_check(m, 0, 1).count == 0);
    }
    dyti_link_close(m->link);
    m->link = NULL;
}

/* Ranks 0 and 1 are threads of the source, 2 and 3 its receivers. */
static void pair_body(struct dyt_rank *me)
{
    struct pair *pair = me->arg;
    struct lw_case *c = &pair->c[me->rank % 2];
    struct lw_member *m = calloc(1, sizeof(*m));

    rank_true(me, m != NULL);
    if (me->rank < 2) {
        *m = *pair->source;
        m->c = c;
    } else {
        rank_ok(me, lw_member_init(m, c, 1, 0));
    }
    rank_true(me, lw_share(m));
    lw_meet(c, 0);
    lw_look(m);
    serve(me, m);
    if (me->rank >= 2) {
        lw_member_fini(m);
    }
    free(m);
}

static void one_source_serves_links_side_by_side(void **state)
{
    struct pair pair = {0};

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        pair.c[i] = (struct lw_case){.seed = SEED,
                                     .commit = i == 0 ? DYT_COMMIT_STAGED
                                                      : DYT_COMMIT_IN_PLACE,
                                     .verify = DYT_VERIFY_FULL,
                                     .sources = 1,
                                     .members = 2,
                                     .threads = true,
                                     .source_memory = LW_SHARED};
        lw_case_init(&pair.c[i]);
    }
    pair.source = calloc(1, sizeof(*pair.source));
    assert_non_null(pair.source);
    assert_ok(lw_member_init(pair.source, &pair.c[0], 0, 1));
    dyt_ranks_run(DYT_RANKS_THREADS, 4, pair_body, &pair);
    lw_member_fini(pair.source);
    free(pair.source);
    lw_case_fini(&pair.c[0]);
    lw_case_fini(&pair.c[1]);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_second_run_allocates_nothing),
    cmocka_unit_test(one_source_serves_links_side_by_side),
};
DYT_TEST_MAIN(tests)
