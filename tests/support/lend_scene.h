/* Ranks that hand descriptors round by lib/link_lend.h: what each lends, asks
 * for, does at its n-th piece, and has to find.  The memory is made up: a piece
 * is a file that says which one it is. */
#ifndef DYT_LEND_SCENE_H
#define DYT_LEND_SCENE_H

#include "rank_group.h"

#include "lib/link_lend_internal.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>

#define PIECE       (uint64_t)4096
#define LOANS       3u
#define PATIENCE_NS 20000000000

enum deed { /* of one rank, when it lends its piece `at` */
            DEED_NONE,
            DEED_FREED,
            DEED_DIES,
            DEED_ABORTS,
            DEED_CALLS /* s->call */
};

struct scene {
    enum deed deed;
    void (*call)(const struct scene *s);
    uint32_t doer;
    uint64_t at;
    uint32_t pieces[DYT_RANKS_MAX][LOANS];
    uint64_t want[DYT_RANKS_MAX];     /* bit 4 r + i: loan i of member r */
    rlim_t more_files[DYT_RANKS_MAX]; /* than are open; 0: any number */
    uint32_t refuses; /* this rank: its borrower's first piece */
    bool forges;      /* what rank 0 asks for was never lent */
    int64_t timeout_ns;
    enum dyt_status status[DYT_RANKS_MAX]; /* that each has to find */
    const char *text[DYT_RANKS_MAX];       /* NULL: any */
    struct {
        struct dyti_abort_word abort;
        _Atomic uint32_t call_ok; /* 1: what s->call did went well */
        _Atomic uint32_t is_over; /* for all */
    } * shared;
    void *region;
    uint64_t region_bytes;
};

/* Of the calling rank: tables have no room for it. */
static _Thread_local struct dyt_rank *current;
static _Thread_local uint32_t deeds;

/* ---- made-up memory ------------------------------------------------------ */

struct mark { /* in a piece's file */
    uint64_t address, at;
};

static inline struct dyti_memory_loan loan_of(uint32_t rank, uint32_t i,
                                              uint32_t pieces)
{
    struct dyti_memory_loan loan = {.way = DYTI_MEMORY_WAY_FD,
                                    .piece_count = pieces,
                                    .address = 1000 * (rank + 1) + i,
                                    .bytes = pieces * PIECE,
                                    .span = pieces * PIECE};

    return loan;
}

static inline enum dyt_status do_deed(const struct scene *s)
{
    uint32_t turn = deeds++;

    if (current->rank != s->doer || turn < s->at ||
        (turn > s->at && s->deed != DEED_FREED)) { /* that stays */
        return DYT_OK;
    }
    switch (s->deed) {
    case DEED_FREED:
        return DYTI_FAIL(DYT_ERR_PEER, "the memory was freed");
    case DEED_DIES:
        current->expect_death = true;
        (void)kill(getpid(), SIGKILL);
        return DYT_OK;
    case DEED_ABORTS:
        atomic_store(&s->shared->abort.value,
                     dyti_abort_pack(s->doer, DYT_ERR_CANCELLED));
        return DYT_OK;
    case DEED_CALLS:
        s->call(s);
        return DYT_OK;
    default:
        return DYT_OK;
    }
}

static inline enum dyt_status lend_piece(const struct dyti_memory_loan *loan,
                                         uint64_t at, uint64_t *out_bytes,
                                         int *out_fd)
{
    const struct mark mark = {loan->address, at};
    enum dyt_status st = do_deed(current->arg);
    int fd;

    if (st != DYT_OK) {
        return st;
    }
    fd = memfd_create("piece", MFD_CLOEXEC);
    if (fd < 0 || pwrite(fd, &mark, sizeof(mark), 0) != sizeof(mark)) {
        return DYTI_FAIL(DYT_ERR_IO, "a piece: %s", strerror(errno));
    }
    *out_bytes = PIECE;
    *out_fd = fd;
    return DYT_OK;
}

/* ptr: the address that was lent; self: how many bytes have come. */
static inline enum dyt_status borrow_piece(
    struct dyti_memory_borrowed *borrowed, uint64_t bytes, int fd)
{
    const struct scene *s = current->arg;
    uint64_t *came = borrowed->self;
    struct mark mark = {0, 0};

    if (s->refuses == current->rank + 1) {
        return DYTI_FAIL(DYT_ERR_DEVICE, "no device wants this piece");
    }
    if (pread(fd, &mark, sizeof(mark), 0) != sizeof(mark) || bytes != PIECE ||
        mark.address != (uintptr_t)borrowed->ptr || mark.at != *came) {
        return DYTI_FAIL(DYT_ERR_VERIFY, "piece %llu of %llu, not %llu of %llu",
                         (unsigned long long)mark.at,
                         (unsigned long long)mark.address,
                         (unsigned long long)*came,
                         (unsigned long long)(uintptr_t)borrowed->ptr);
    }
    *came += bytes;
    borrowed->wanted--;
    return DYT_OK;
}

static const struct dyti_memory_ops memory = {.struct_size = sizeof(memory),
                                              .name = "made up",
                                              .lend_piece = lend_piece,
                                              .borrow_piece = borrow_piece};

/* ---- a rank -------------------------------------------------------------- */

struct asked {
    struct dyti_memory_loan loan[DYT_RANKS_MAX * LOANS];
    struct dyti_memory_borrowed borrowed[DYT_RANKS_MAX * LOANS];
    uint64_t came[DYT_RANKS_MAX * LOANS];
    struct dyti_lend_want want[DYT_RANKS_MAX * LOANS];
    uint32_t count;
};

static inline void ask_for(const struct scene *s, const struct dyt_rank *me,
                           struct asked *a)
{
    for (uint32_t r = 0; r < me->size; r++) {
        for (uint32_t i = 0; i < LOANS; i++) {
            uint32_t n = a->count;

            if ((s->want[me->rank] >> (4 * r + i) & 1u) == 0) {
                continue;
            }
            a->loan[n] = loan_of(r, i, s->pieces[r][i]);
            a->loan[n].kind = s->forges && me->rank == 0;
            a->borrowed[n] = (struct dyti_memory_borrowed){
                .ptr = (void *)(uintptr_t)a->loan[n].address,
                .wanted = a->loan[n].piece_count,
                .self = &a->came[n]};
            a->want[n] =
                (struct dyti_lend_want){r, &a->loan[n], &a->borrowed[n]};
            a->count++;
        }
    }
}

static inline void check_asked(struct dyt_rank *me, const struct asked *a)
{
    for (uint32_t i = 0; i < a->count; i++) {
        rank_true(me, a->borrowed[i].wanted == 0);
        rank_true(me, a->came[i] == a->loan[i].span);
    }
}

static inline void limit_files(struct dyt_rank *me, const struct scene *s)
{
    struct rlimit limit;

    if (s->more_files[me->rank] > 0) {
        rank_true(me, getrlimit(RLIMIT_NOFILE, &limit) == 0);
        limit.rlim_cur = dyt_open_files() + s->more_files[me->rank];
        rank_true(me, setrlimit(RLIMIT_NOFILE, &limit) == 0);
    }
}

static inline enum dyt_status open_group(const struct dyt_rank *me,
                                         struct dyti_group *out)
{
    const struct scene *s = me->arg;

    return rank_group_open(me, s->region, &s->shared->abort, PATIENCE_NS, out);
}

static inline void lend_body(struct dyt_rank *me)
{
    const struct scene *s = me->arg;
    struct dyti_group all;
    struct dyti_memory_loan own[LOANS];
    struct asked *a = calloc(1, sizeof(*a));
    struct dyti_lend_params p = {.struct_size = sizeof(p),
                                 .memory = &memory,
                                 .all = &all,
                                 .abort = &s->shared->abort,
                                 .timeout_ns = s->timeout_ns,
                                 .loan = own,
                                 .loan_count = LOANS,
                                 .want = a->want};
    enum dyt_status met = DYT_OK, st;
    uint32_t files;

    current = me;
    deeds = 0;
    for (uint32_t i = 0; i < LOANS; i++) {
        own[i] = loan_of(me->rank, i, s->pieces[me->rank][i]);
    }
    ask_for(s, me, a);
    p.want_count = a->count;
    rank_ok(me, open_group(me, &all));
    limit_files(me, s);
    files = dyt_open_files();
    st = dyti_lend_pieces(&p, &met);
    rank_ok(me, met);
    if (st != s->status[me->rank] ||
        (s->text[me->rank] != NULL &&
         strstr(dyti_error_text(), s->text[me->rank]) == NULL)) {
        rank_wrong(me, "it ended with %s: %s", dyt_status_name(st),
                   dyti_error_text());
    }
    if (me->kind == DYT_RANKS_PROCESSES) { /* threads share theirs */
        rank_true(me, dyt_open_files() == files);
    }
    if (st == DYT_OK) {
        check_asked(me, a);
    }
    dyti_group_shm.close(all.self);
    free(a);
}

static inline void abort_for(uint32_t rank, void *arg)
{
    struct scene *s = arg;

    atomic_store(&s->shared->abort.value, dyti_abort_pack(rank, DYT_ERR_PEER));
}

static inline void play_as(enum dyt_ranks_kind kind, uint32_t size,
                           dyt_rank_fn fn, struct scene *s)
{
    s->region_bytes = dyti_group_shm.region_bytes(size);
    s->region = dyt_ranks_shared(s->region_bytes);
    s->shared = dyt_ranks_shared(sizeof(*s->shared));
    s->timeout_ns = s->timeout_ns != 0 ? s->timeout_ns : PATIENCE_NS;
    dyt_ranks_on_death = abort_for;
    dyt_ranks_run(kind, size, fn, s);
    if (s->call != NULL) {
        assert_int_equal(1, atomic_load(&s->shared->call_ok));
    }
    munmap(s->region, s->region_bytes);
    munmap(s->shared, sizeof(*s->shared));
}

static inline void play(enum dyt_ranks_kind kind, uint32_t size,
                        struct scene *s)
{
    play_as(kind, size, lend_body, s);
}

/* Rank 0 asks rank 1 for a loan of so many pieces. */
static inline struct scene one_asks(uint32_t pieces)
{
    struct scene s = {.doer = 1, .want = {1u << 4}};

    s.pieces[1][0] = pieces;
    return s;
}

#endif /* DYT_LEND_SCENE_H */
