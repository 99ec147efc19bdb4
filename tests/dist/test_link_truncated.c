/* A link among processes when one of them truncates its own file at a point of
 * a run, whoever reads or writes it: nobody dies, all come to one decision, and
 * the next run works when the file has its size again.  A file that is sealed
 * cannot be truncated, and the run works. */
#include "link_world.h"

#define SEED 2026u

struct cut_case {
    struct lw_case link;
    enum dyti_switch_point point;
    uint32_t owner, by; /* whose file, and whose hand */
};

struct cutting {
    const struct cut_case *f;
    struct lw_member *m;
};

/* The file of the owner, from any member: as others map it. */
static void cut(const struct cut_case *f, struct lw_member *m)
{
    char path[64];
    int fd = m->arena_fd;

    if (f->owner != m->rank) {
        const struct dyti_memory_view *of = &m->all[f->owner];

        snprintf(path, sizeof(path), "/proc/%u/fd/%d", of->pid,
                 of->extent_count == 0 ? -1 : of->extent[0].fd);
        fd = open(path, O_RDWR | O_CLOEXEC);
    }
    if (fd >= 0 && ftruncate(fd, (off_t)lw_pick(m->c, 77, 0, 3) * 2000) != 0) {
        assert_true((fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK) != 0);
    }
    if (fd >= 0 && f->owner != m->rank) {
        close(fd);
    }
}

static void cut_at(void *arg, enum dyti_switch_point point)
{
    struct cutting *c = arg;

    if (point == c->f->point) {
        cut(c->f, c->m);
    }
}

/* Its size, what lies between the rows, and a version in them. */
static void restore(struct lw_member *m, uint64_t version)
{
    (void)!ftruncate(m->arena_fd, (off_t)m->arena_bytes);
    memset(m->arena, LW_GUARD, m->arena_bytes);
    lw_fill(m, version);
}

static void truncated_body(struct dyt_rank *me)
{
    const struct cut_case *f = me->arg;
    struct lw_member *m = calloc(1, sizeof(*m));
    struct cutting cutting = {f, m};
    struct dyti_switch_report report;
    bool committed;
    enum dyt_status st;

    rank_true(me, m != NULL && lw_start(me, m, &f->link));
    if (me->rank == f->by) {
        dyti_link_set_fault(m->link, DYTI_FAULT_NONE, cut_at, &cutting);
    }
    st = dyti_link_run(m->link, 2, 2, &report);
    committed = report.decision == DYTI_DECISION_COMMIT;
    atomic_store(&f->link.board->decision[me->rank], committed ? 1u : 2u);
    atomic_store(&f->link.board->word[me->rank], (uint64_t)(-(int)st));
    if (st == DYT_ERR_IO) {
        rank_true(me, strstr(dyti_error_text(), "tensor ") != NULL);
        rank_true(me, strstr(dyti_error_text(), "is gone") != NULL);
    } else {
        rank_true(me, st == DYT_OK || st == DYT_ERR_PEER);
    }
    if (!m->is_source && me->rank != f->owner && committed) {
        rank_true(me, lw_check(m, dyti_link_live_set(m->link), 2).count == 0);
    }
    dyti_link_set_fault(m->link, DYTI_FAULT_NONE, NULL, NULL);
    lw_meet(&f->link, 2);
    if (me->rank == f->owner && m->arena_fd >= 0) {
        restore(m, m->is_source ? 3 : 1);
    }
    if (m->is_source) {
        lw_fill(m, 3);
    }
    lw_meet(&f->link, 3);
    st = dyti_link_run(m->link, 3, 3, &report);
    rank_ok(me, st);
    if (!m->is_source) {
        rank_ok(me, dyti_link_valid(m->link));
        rank_true(me, lw_check(m, dyti_link_live_set(m->link), 3).count == 0);
        rank_true(me, lw_guards(m));
    }
    lw_member_fini(m);
    free(m);
}

static void a_file_is_truncated_at_any_point(void **state)
{
    static const enum dyti_switch_point point[] = {
        DYTI_AT_START,    DYTI_AT_PREPARED, DYTI_AT_TRANSFERRED,
        DYTI_AT_VERIFIED, DYTI_AT_VOTED,    DYTI_AT_COMMITTING,
        DYTI_AT_DECIDED};
    uint64_t rounds = dyt_test_rounds(84, 840);
    uint32_t failed = 0;

    (void)state;
    for (uint64_t trial = 0; trial < rounds; trial++) {
        struct cut_case f = {
            .link = {.seed = SEED,
                     .trial = trial,
                     .commit = (enum dyt_commit_mode)(trial / 7 % 3),
                     .verify = (enum dyt_verify)(trial % 3),
                     .sources = 1 + (uint32_t)(trial / 3 % 2),
                     .members = 4,
                     /* private: the sources write the receivers' */
                     .source_memory =
                         trial / 21 % 2 == 0 ? LW_SHARED : LW_PRIVATE,
                     .target_memory = LW_SHARED},
            .point = point[trial % 7],
            .owner = trial / 21 % 2 == 0 && trial % 2 == 0 ? 0 : 3,
            .by = trial / 2 % 2 == 0 ? 0 : 3};
        uint32_t seen = 0;

        lw_case_init(&f.link);
        dyt_ranks_run(DYT_RANKS_PROCESSES, f.link.members, truncated_body, &f);
        for (uint32_t r = 0; r < f.link.members; r++) {
            seen |= atomic_load(&f.link.board->decision[r]);
            failed += atomic_load(&f.link.board->word[r]) == -DYT_ERR_IO;
        }
        if (seen == 3) {
            fail_msg("trial %" PRIu64 ": some committed", trial);
        }
        lw_case_fini(&f.link);
    }
    print_message("%u members met a file that was gone\n", failed);
    assert_true(failed > rounds / 10);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_file_is_truncated_at_any_point),
};
DYT_TEST_MAIN(tests)
