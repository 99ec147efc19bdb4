/* Links between members with random rows: what arrives is what an oracle says,
 * element by element, on both routes and in all commit modes; nothing besides
 * is touched; the second run plans nothing. */
#include "link_world.h"

#define SEED 20260u

/* ---- one link, several versions ------------------------------------------ */

static void run_versions(struct dyt_rank *me, struct lw_member *m)
{
    struct dyti_link_params params = lw_params(m);

    rank_ok(me, dyti_link_open(&params, &m->link));
    for (uint64_t version = 1; version <= 3; version++) {
        struct dyti_switch_report report;

        if (m->is_source) {
            lw_fill(m, version);
        }
        if (m->snapshot != NULL) {
            rank_ok(me, dyti_snapshot_take(m->snapshot));
        }
        rank_ok(me, dyti_link_run(m->link, version, version, &report));
        rank_true(me, report.decision == DYTI_DECISION_COMMIT);
        if (!m->is_source) {
            lw_check_arrived(me, m, version);
        }
    }
}

static void body(struct dyt_rank *me)
{
    struct lw_member *m = calloc(1, sizeof(*m));

    rank_true(me, m != NULL);
    rank_ok(me, lw_member_init(m, me->arg, me->rank, 0));
    rank_true(me, lw_share(m));
    lw_meet(m->c, 0);
    lw_look(m);
    run_versions(me, m);
    lw_member_fini(m);
    free(m);
}

static void run_case(struct lw_case *c, enum dyt_ranks_kind kind)
{
    c->threads = kind == DYT_RANKS_THREADS;
    lw_case_init(c);
    dyt_ranks_run(kind, c->members, body, c);
    lw_case_fini(c);
}

static void any_case(uint64_t trial, enum dyt_ranks_kind kind)
{
    struct lw_case c = {.seed = SEED, .trial = trial};

    c.commit = (enum dyt_commit_mode)(trial % 3);
    c.verify = (enum dyt_verify)(trial / 3 % 3);
    c.sources = 1 + (uint32_t)lw_pick(&c, 1, 0, 3);
    c.members = c.sources + 1 + (uint32_t)lw_pick(&c, 2, 0, 3);
    c.source_memory = (enum lw_memory)(trial / 9 % 2);
    c.target_memory = LW_SHARED;
    c.master = lw_pick(&c, 5, 0, 4) == 0;
    if (c.source_memory == LW_SHARED || c.commit == DYT_COMMIT_STAGED) {
        c.target_memory = (enum lw_memory)lw_pick(&c, 3, 0, 2);
    } else if (lw_pick(&c, 4, 0, 2) == 0) {
        c.snapshot = true;
        c.target_memory = LW_PRIVATE;
    }
    run_case(&c, kind);
}

static void processes_get_what_the_oracle_says(void **state)
{
    (void)state;
    for (uint64_t t = 0; t < dyt_test_rounds(72, 720); t++) {
        any_case(t, DYT_RANKS_PROCESSES);
    }
}

static void threads_get_what_the_oracle_says(void **state)
{
    (void)state;
    for (uint64_t t = 0; t < dyt_test_rounds(36, 360); t++) {
        any_case(t, DYT_RANKS_THREADS);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(processes_get_what_the_oracle_says),
    cmocka_unit_test(threads_get_what_the_oracle_says),
};
DYT_TEST_MAIN(tests)
