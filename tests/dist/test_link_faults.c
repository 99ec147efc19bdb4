/* A link when something goes wrong at each of its points: whoever is left ends
 * with the old or the new as the commit mode promises, all with the same one,
 * and no wait outlasts a death. */
#include "link_world.h"

#define SEED 777u

struct fault_case {
    struct lw_case link;
    enum dyti_switch_point point; /* where the victim dies */
    uint32_t victim;
    enum dyti_switch_fault fault; /* or what it does wrong instead */
};

struct killing {
    struct dyt_rank *me;
    enum dyti_switch_point point;
};

static void kill_there(void *arg, enum dyti_switch_point point)
{
    const struct killing *k = arg;

    if (point == k->point) {
        k->me->expect_death = true;
        (void)raise(SIGKILL);
    }
}

/* What the parent does when it sees a death. */
static void tell(uint32_t rank, void *arg)
{
    const struct fault_case *f = arg;

    (void)dyti_link_abort(f->link.control, f->link.members, rank, DYT_ERR_PEER);
}

/* Content and validity of a receiver after its run. */
static void check_outcome(struct dyt_rank *me, struct lw_member *m,
                          bool committed)
{
    uint64_t want = committed ? 2 : 1;
    uint32_t set = dyti_link_live_set(m->link);
    enum dyt_status valid = dyti_link_valid(m->link);

    rank_true(me, lw_guards(m));
    if (valid != DYT_OK) { /* only what was written over live may say so */
        rank_true(me, valid == DYT_ERR_STATE && !committed &&
                          m->c->commit == DYT_COMMIT_IN_PLACE);
        return;
    }
    if (lw_check(m, set, want).count != 0) {
        rank_wrong(me, "valid, but not version %" PRIu64, want);
    }
}

static void dying_body(struct dyt_rank *me)
{
    const struct fault_case *f = me->arg;
    struct lw_member *m = calloc(1, sizeof(*m));
    struct killing killing = {me, f->point};
    struct dyti_switch_report report;
    enum dyt_status st;

    rank_true(me, m != NULL && lw_start(me, m, &f->link));
    if (me->rank == f->victim) {
        dyti_link_set_fault(m->link, DYTI_FAULT_NONE, kill_there, &killing);
    }
    st = dyti_link_run(m->link, 2, 2, &report);
    atomic_store(&f->link.board->decision[me->rank],
                 report.decision == DYTI_DECISION_COMMIT ? 1u : 2u);
    if (report.decision == DYTI_DECISION_COMMIT) {
        rank_status(me, DYT_OK, st);
    } else {
        rank_status(me, DYT_ERR_PEER, st);
        rank_true(me, strstr(dyti_error_text(), "rank ") != NULL);
    }
    if (!m->is_source) {
        check_outcome(me, m, report.decision == DYTI_DECISION_COMMIT);
    }
    lw_member_fini(m);
    free(m);
}

/* All that are left have seen one decision; the dead one's memory is known to
 * be whole or not. */
static bool check_board(const struct fault_case *f)
{
    uint32_t seen = 0;

    for (uint32_t r = 0; r < f->link.members; r++) {
        seen |= atomic_load(&f->link.board->decision[r]);
    }
    if (seen == 3) {
        fail_msg("commit %d, point %s, victim %u: some committed",
                 (int)f->link.commit, dyti_switch_point_name(f->point),
                 f->victim);
    }
    return seen == 1;
}

static void check_dead_receiver(const struct fault_case *f, bool committed)
{
    struct dyti_control_page *page = NULL;
    uint64_t bytes = dyti_link_control_bytes(f->link.members);
    void *control = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                         f->link.control, 0);
    enum dyt_status want = DYT_OK;

    assert_true(control != MAP_FAILED);
    assert_ok(dyti_control_open(control, f->link.members, &page));
    if (f->victim >= f->link.sources &&
        ((f->link.commit == DYT_COMMIT_IN_PLACE &&
          f->point >= DYTI_AT_TRANSFERRED && f->point < DYTI_AT_DECIDED) ||
         (f->link.commit == DYT_COMMIT_STAGED && committed &&
          f->point <= DYTI_AT_COMMITTING))) { /* still in its scratch */
        want = DYT_ERR_STATE;
    }
    assert_status(want, dyti_control_check_rank(
                            page, f->victim,
                            dyti_region_bit(DYTI_ARENA_ROLLOUT, DYTI_PARAM)));
    (void)munmap(control, bytes);
}

static void a_death_at_any_point_leaves_what_the_mode_promises(void **state)
{
    static const enum dyti_switch_point point[] = {
        DYTI_AT_START,    DYTI_AT_PREPARED, DYTI_AT_TRANSFERRED,
        DYTI_AT_VERIFIED, DYTI_AT_VOTED,    DYTI_AT_COMMITTING,
        DYTI_AT_DECIDED};
    uint64_t rounds = dyt_test_rounds(84, 840);

    (void)state;
    dyt_ranks_on_death = tell;
    for (uint64_t trial = 0; trial < rounds; trial++) {
        struct fault_case f = {
            .link = {.seed = SEED,
                     .trial = trial,
                     .commit = (enum dyt_commit_mode)(trial / 7 % 3),
                     .verify = DYT_VERIFY_SAMPLE,
                     .sources = 2,
                     .members = 4,
                     .source_memory = (enum lw_memory)(trial / 42 % 2),
                     .target_memory = LW_SHARED},
            .point = point[trial % 7],
            .victim = trial / 21 % 2 == 0 ? 3 : 0};
        bool committed;

        lw_case_init(&f.link);
        dyt_ranks_run(DYT_RANKS_PROCESSES, f.link.members, dying_body, &f);
        committed = check_board(&f);
        if (f.point != DYTI_AT_COMMITTING ||
            f.link.commit == DYT_COMMIT_STAGED) {
            check_dead_receiver(&f, committed);
        }
        lw_case_fini(&f.link);
    }
    dyt_ranks_on_death = NULL;
}

/* ---- nobody dies --------------------------------------------------------- */

static void failing_body(struct dyt_rank *me)
{
    const struct fault_case *f = me->arg;
    struct lw_member *m = calloc(1, sizeof(*m));
    struct dyti_switch_report report;
    enum dyt_status st;

    rank_true(me, m != NULL && lw_start(me, m, &f->link));
    if (me->rank == f->victim) {
        dyti_link_set_fault(m->link, f->fault, NULL, NULL);
    }
    st = dyti_link_run(m->link, 2, 2, &report);
    if (f->fault == DYTI_FAULT_COMMIT) {
        rank_status(me, me->rank == f->victim ? DYT_ERR_DEVICE : DYT_OK, st);
        if (me->rank == f->victim) {
            rank_status(me, DYT_ERR_STATE, dyti_link_valid(m->link));
            rank_ok(me, dyti_link_heal(m->link));
        } else if (!m->is_source) {
            rank_status(me, DYT_ERR_STATE, dyti_link_heal(m->link));
        }
    } else {
        rank_true(me, st == DYT_ERR_VERIFY || st == DYT_ERR_PEER ||
                          st == DYT_ERR_DEVICE);
    }
    if (!m->is_source) {
        check_outcome(me, m, report.decision == DYTI_DECISION_COMMIT);
    }
    /* The link still works, and what was INVALID is whole again. */
    dyti_link_set_fault(m->link, DYTI_FAULT_NONE, NULL, NULL);
    rank_ok(me, dyti_link_run(m->link, 3, 3, &report));
    if (!m->is_source) {
        check_outcome(me, m, true);
    }
    lw_member_fini(m);
    free(m);
}

static void run_failing(enum dyt_ranks_kind kind, uint64_t trial,
                        enum dyt_commit_mode commit,
                        enum dyti_switch_fault fault, enum lw_memory source)
{
    bool pushes = source == LW_PRIVATE && kind == DYT_RANKS_PROCESSES;
    struct fault_case f = {.link = {.seed = SEED,
                                    .trial = trial,
                                    .commit = commit,
                                    .verify = DYT_VERIFY_FULL,
                                    .sources = 1,
                                    .members = 3,
                                    .source_memory = source,
                                    .target_memory = LW_SHARED},
                           .victim = 2,
                           .fault = fault};

    if (pushes && fault != DYTI_FAULT_COMMIT) { /* who copies does wrong */
        f.victim = 0;
        f.fault = fault == DYTI_FAULT_FLIP ? DYTI_FAULT_SKIP : fault;
    }
    f.link.threads = kind == DYT_RANKS_THREADS;
    lw_case_init(&f.link);
    dyt_ranks_run(kind, f.link.members, failing_body, &f);
    lw_case_fini(&f.link);
}

static void a_failure_aborts_all_and_the_next_run_works(void **state)
{
    (void)state;
    for (uint64_t trial = 0; trial < 12; trial++) {
        run_failing(trial / 6 == 0 ? DYT_RANKS_PROCESSES : DYT_RANKS_THREADS,
                    trial, (enum dyt_commit_mode)(trial % 3),
                    trial % 2 == 0 ? DYTI_FAULT_FAIL : DYTI_FAULT_FLIP,
                    trial / 3 % 2 == 0 ? LW_SHARED : LW_PRIVATE);
    }
}

static void a_commit_that_fails_is_healed_from_its_scratch(void **state)
{
    (void)state;
    for (uint64_t trial = 0; trial < 4; trial++) {
        run_failing(trial % 2 == 0 ? DYT_RANKS_PROCESSES : DYT_RANKS_THREADS,
                    trial, DYT_COMMIT_STAGED, DYTI_FAULT_COMMIT,
                    trial / 2 == 0 ? LW_SHARED : LW_PRIVATE);
    }
}

/* ---- a source that is written while it is read --------------------------- */

struct writing {
    struct lw_member *m;
    _Atomic uint32_t *flag; /* [2] of the board */
};

static void wait_for(const _Atomic uint32_t *flag)
{
    while (atomic_load(flag) == 0) {
        (void)sched_yield();
    }
}

static void half_version(struct lw_member *m, unsigned char *at, uint32_t bytes,
                         uint32_t tensor, uint64_t index, void *arg)
{
    uint64_t version = tensor % 2 == 0 ? 2 : *(const uint64_t *)arg;

    lw_put(m, at, bytes, tensor, index, &version);
}

/* The source shows a mixture while the receiver reads, and then what it
 * offered. */
static void write_meanwhile(void *arg, enum dyti_switch_point point)
{
    struct writing *w = arg;
    uint64_t other = 9;

    if (w->m->is_source && point == DYTI_AT_PREPARED) {
        lw_each(w->m, 0, half_version, &other);
        atomic_store(&w->flag[0], 1);
        wait_for(&w->flag[1]);
        lw_fill(w->m, 2);
    } else if (!w->m->is_source && point == DYTI_AT_PREPARED) {
        wait_for(&w->flag[0]);
    } else if (!w->m->is_source && point == DYTI_AT_TRANSFERRED) {
        atomic_store(&w->flag[1], 1);
    }
}

static void overwritten_body(struct dyt_rank *me)
{
    const struct fault_case *f = me->arg;
    struct lw_member *m = calloc(1, sizeof(*m));
    struct writing w = {m, &f->link.board->met[8]};
    struct dyti_switch_report report;
    enum dyt_status st;

    rank_true(me, m != NULL && lw_start(me, m, &f->link));
    dyti_link_set_fault(m->link, DYTI_FAULT_NONE, write_meanwhile, &w);
    st = dyti_link_run(m->link, 2, 2, &report);
    rank_status(me, DYT_ERR_VERIFY, st);
    if (!m->is_source) {
        check_outcome(me, m, false);
    }
    lw_member_fini(m);
    free(m);
}

static void a_source_that_is_overwritten_is_noticed(void **state)
{
    (void)state;
    for (uint32_t mode = 0; mode < 3; mode++) {
        struct fault_case f = {.link = {.seed = SEED,
                                        .trial = mode,
                                        .commit = (enum dyt_commit_mode)mode,
                                        .verify = DYT_VERIFY_FULL,
                                        .sources = 1,
                                        .members = 2,
                                        .source_memory = LW_SHARED,
                                        .target_memory = LW_SHARED}};

        lw_case_init(&f.link);
        dyt_ranks_run(DYT_RANKS_PROCESSES, 2, overwritten_body, &f);
        lw_case_fini(&f.link);
    }
}

/* ---- opening ------------------------------------------------------------- */

static void refused_body(struct dyt_rank *me)
{
    const struct fault_case *f = me->arg;
    struct lw_member *m = calloc(1, sizeof(*m));
    struct dyti_link_params params;
    enum dyt_status st;

    rank_true(me, m != NULL);
    rank_ok(me, lw_member_init(m, &f->link, me->rank, 0));
    rank_true(me, lw_share(m));
    lw_meet(m->c, 0);
    lw_look(m);
    params = lw_params(m);
    if (f->victim == me->rank && f->fault == DYTI_FAULT_FAIL) {
        params.cap_bytes = 64;
    }
    if (f->victim == me->rank && f->fault == DYTI_FAULT_SKIP) {
        me->expect_death = true;
        (void)raise(SIGKILL);
    }
    st = dyti_link_open(&params, &m->link);
    if (f->fault == DYTI_FAULT_FAIL) {
        rank_status(me, DYT_ERR_NOMEM, st);
        rank_true(me, strstr(dyti_error_text(), me->rank == f->victim
                                                    ? "the cap is 64"
                                                    : "member 1") != NULL);
    } else if (f->fault == DYTI_FAULT_SKIP) {
        rank_status(me, DYT_ERR_PEER, st);
        rank_true(me, strstr(dyti_error_text(), "rank 1") != NULL);
    } else {
        rank_status(me, DYT_ERR_UNSUPPORTED, st);
        rank_true(me, strstr(dyti_error_text(), "snapshot") != NULL);
    }
    lw_member_fini(m);
    free(m);
}

static void run_refused(enum dyti_switch_fault fault,
                        enum dyt_commit_mode commit)
{
    struct fault_case f = {.link = {.seed = SEED,
                                    .commit = commit,
                                    .sources = 1,
                                    .members = 3,
                                    .source_memory = LW_PRIVATE,
                                    .target_memory = LW_PRIVATE},
                           .victim = 1,
                           .fault = fault};

    lw_case_init(&f.link);
    dyt_ranks_run(DYT_RANKS_PROCESSES, 3, refused_body, &f);
    lw_case_fini(&f.link);
}

static void what_cannot_be_is_refused_by_all(void **state)
{
    (void)state;
    run_refused(DYTI_FAULT_FAIL, DYT_COMMIT_STAGED);   /* the cap */
    run_refused(DYTI_FAULT_NONE, DYT_COMMIT_IN_PLACE); /* private both */
    dyt_ranks_on_death = tell;
    run_refused(DYTI_FAULT_SKIP, DYT_COMMIT_STAGED); /* dies before */
    dyt_ranks_on_death = NULL;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_death_at_any_point_leaves_what_the_mode_promises),
    cmocka_unit_test(a_failure_aborts_all_and_the_next_run_works),
    cmocka_unit_test(a_commit_that_fails_is_healed_from_its_scratch),
    cmocka_unit_test(a_source_that_is_overwritten_is_noticed),
    cmocka_unit_test(what_cannot_be_is_refused_by_all),
};
DYT_TEST_MAIN(tests)
