/* Descriptors on their way between processes: who gets what, how few files are
 * open, and everybody who may go away, come uninvited, or never answer.  The
 * memory is made up: a piece is a file that says which one it is. */
#include "dyt_ranks.h"

#include "base/rng.h"
#include "comm/shm/shm.h"
#include "lib/link_lend_internal.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define PIECE       (uint64_t)4096
#define LOANS       3u
#define PATIENCE_NS 20000000000

enum deed { /* of one rank, when it lends its piece `at` */
            DEED_NONE,
            DEED_FREED,
            DEED_DIES,
            DEED_ABORTS,
            DEED_STRANGERS,
            DEED_OTHER_USER
};

struct scene {
    enum deed deed;
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
        _Atomic uint32_t stranger_ok;
        _Atomic uint32_t stranger; /* process of DEED_OTHER_USER */
    } * shared;
    void *region;
    uint64_t region_bytes;
};

/* Of the calling rank: tables have no room for it. */
static _Thread_local struct dyt_rank *current;
static _Thread_local uint32_t deeds;

/* ---- made-up memory ---------------------------------------------------------
 */

struct mark { /* in a piece's file */
    uint64_t address, at;
};

static struct dyti_memory_loan loan_of(uint32_t rank, uint32_t i,
                                       uint32_t pieces)
{
    struct dyti_memory_loan loan = {.way = DYTI_MEMORY_WAY_FD,
                                    .piece_count = pieces,
                                    .address = 1000 * (rank + 1) + i,
                                    .bytes = pieces * PIECE,
                                    .span = pieces * PIECE};

    return loan;
}

static void disturb(const struct scene *s);

static enum dyt_status do_deed(const struct scene *s)
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
    case DEED_STRANGERS:
    case DEED_OTHER_USER:
        disturb(s);
        return DYT_OK;
    default:
        return DYT_OK;
    }
}

static enum dyt_status lend_piece(const struct dyti_memory_loan *loan,
                                  uint64_t at, uint64_t *out_bytes, int *out_fd)
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
static enum dyt_status borrow_piece(struct dyti_memory_borrowed *borrowed,
                                    uint64_t bytes, int fd)
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

/* ---- those who come uninvited -----------------------------------------------
 */

/* Is it a socket of this process? */
static bool is_ours(unsigned long inode)
{
    DIR *folder = opendir("/proc/self/fd");
    const struct dirent *entry;
    char want[64], have[64];
    bool found = false;

    snprintf(want, sizeof(want), "socket:[%lu]", inode);
    while (!found && folder != NULL && (entry = readdir(folder)) != NULL) {
        ssize_t length =
            readlinkat(dirfd(folder), entry->d_name, have, sizeof(have) - 1);

        have[length > 0 ? length : 0] = '\0';
        found = strcmp(want, have) == 0;
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    return found;
}

/* Names that this process listens on now; others' are other runs'. */
static uint32_t names(uint64_t *out, uint32_t room)
{
    FILE *file = fopen("/proc/net/unix", "re");
    char line[256];
    uint32_t count = 0;

    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        const char *at = strstr(line, "@dynatrain-lend-");
        unsigned long inode = 0;

        if (at != NULL && count < room &&
            sscanf(line, "%*s %*s %*s %*s %*s %*s %lu", &inode) == 1 &&
            is_ours(inode)) {
            out[count++] = strtoull(at + strlen("@dynatrain-lend-"), NULL, 16);
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return count;
}

/* Of another user: whoever listens hangs up.  Ends its process. */
static void be_other_user(const struct scene *s, const uint64_t *name,
                          uint32_t count)
{
    char byte;
    uint32_t gone = 0;

    /* No listener lives on in it, nor it after its parent. */
    if (close_range(STDERR_FILENO + 1, ~0u, 0) != 0 ||
        setresuid(65534, 65534, 65534) != 0 ||
        prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
        _exit(1);
    }
    for (uint32_t i = 0; i < count; i++) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int fd = -1, to = socket(AF_UNIX, SOCK_SEQPACKET, 0);
        int text = snprintf(address.sun_path + 1, 64, "dynatrain-lend-%016llx",
                            (unsigned long long)name[i]);

        /* Nor does it listen to us. */
        gone += dyti_lend_connect(name[i], &fd) == DYT_ERR_PEER;
        if (connect(to, (struct sockaddr *)&address,
                    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1u +
                                (size_t)text)) != 0 ||
            recv(to, &byte, 1, 0) <= 0) {
            gone++;
        }
    }
    atomic_store(&s->shared->stranger_ok,
                 count > 0 && gone == 2 * count ? 1u : 2u);
    _exit(0);
}

static void disturb(const struct scene *s)
{
    static const char rubbish[] = "who is there?";
    uint64_t name[64];
    uint32_t count = names(name, 64);

    if (s->deed == DEED_OTHER_USER) {
        pid_t child = fork();

        if (child == 0) {
            be_other_user(s, name, count);
        }
        atomic_store(&s->shared->stranger, (uint32_t)child);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct dyti_lend_request wrong = {.rank = 99};
        int fd = -1;

        if (dyti_lend_connect(name[i], &fd) == DYT_OK) {
            (void)send(fd, rubbish, sizeof(rubbish), MSG_NOSIGNAL);
            (void)close(fd);
        }
        if (dyti_lend_connect(name[i], &fd) == DYT_OK) {
            (void)dyti_lend_send_request(fd, &wrong);
            (void)close(fd);
        }
        if (dyti_lend_connect(name[i], &fd) == DYT_OK) {
            (void)close(fd);
        }
    }
    atomic_store(&s->shared->stranger_ok, count > 0 ? 1u : 2u);
}

/* By now nobody listens any more: it ends, and has said what it met. */
static void await_stranger(const struct scene *s, uint32_t rank)
{
    pid_t child = (pid_t)atomic_load(&s->shared->stranger);

    if (s->deed == DEED_OTHER_USER && rank == s->doer && child > 0) {
        (void)waitpid(child, NULL, 0);
    }
}

/* ---- a rank ----------------------------------------------------------------
 */

struct asked {
    struct dyti_memory_loan loan[DYT_RANKS_MAX * LOANS];
    struct dyti_memory_borrowed borrowed[DYT_RANKS_MAX * LOANS];
    uint64_t came[DYT_RANKS_MAX * LOANS];
    struct dyti_lend_want want[DYT_RANKS_MAX * LOANS];
    uint32_t count;
};

static void ask_for(const struct scene *s, const struct dyt_rank *me,
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

static void check_asked(struct dyt_rank *me, const struct asked *a)
{
    for (uint32_t i = 0; i < a->count; i++) {
        rank_true(me, a->borrowed[i].wanted == 0);
        rank_true(me, a->came[i] == a->loan[i].span);
    }
}

static void limit_files(struct dyt_rank *me, const struct scene *s)
{
    struct rlimit limit;

    if (s->more_files[me->rank] > 0) {
        rank_true(me, getrlimit(RLIMIT_NOFILE, &limit) == 0);
        limit.rlim_cur = dyt_open_files() + s->more_files[me->rank];
        rank_true(me, setrlimit(RLIMIT_NOFILE, &limit) == 0);
    }
}

static struct dyti_group_params group_of(const struct dyt_rank *me)
{
    const struct scene *s = me->arg;

    return (struct dyti_group_params){.struct_size =
                                          sizeof(struct dyti_group_params),
                                      .name = "lend",
                                      .rank = me->rank,
                                      .size = me->size,
                                      .shared = s->region,
                                      .shared_bytes = s->region_bytes,
                                      .abort = &s->shared->abort,
                                      .timeout_ns = PATIENCE_NS,
                                      .oversubscribed = true};
}

static void body(struct dyt_rank *me)
{
    const struct scene *s = me->arg;
    struct dyti_group_params group = group_of(me);
    struct dyti_group all = {
        .ops = &dyti_group_shm, .rank = me->rank, .size = me->size};
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
    rank_ok(me, dyti_group_shm.open(&group, &all.self));
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
    await_stranger(s, me->rank);
    if (st == DYT_OK) {
        check_asked(me, a);
    }
    dyti_group_shm.close(all.self);
    free(a);
}

static void abort_for(uint32_t rank, void *arg)
{
    struct scene *s = arg;

    atomic_store(&s->shared->abort.value, dyti_abort_pack(rank, DYT_ERR_PEER));
}

static void play(enum dyt_ranks_kind kind, uint32_t size, struct scene *s)
{
    s->region_bytes = dyti_group_shm.region_bytes(size);
    s->region = dyt_ranks_shared(s->region_bytes);
    s->shared = dyt_ranks_shared(sizeof(*s->shared));
    s->timeout_ns = s->timeout_ns != 0 ? s->timeout_ns : PATIENCE_NS;
    dyt_ranks_on_death = abort_for;
    dyt_ranks_run(kind, size, body, s);
    if (s->deed == DEED_STRANGERS || s->deed == DEED_OTHER_USER) {
        assert_int_equal(1, atomic_load(&s->shared->stranger_ok));
    }
    munmap(s->region, s->region_bytes);
    munmap(s->shared, sizeof(*s->shared));
}

/* Rank 0 asks rank 1 for a loan of so many pieces. */
static struct scene one_asks(uint32_t pieces)
{
    struct scene s = {.doer = 1, .want = {1u << 4}};

    s.pieces[1][0] = pieces;
    return s;
}

/* ---- tests ------------------------------------------------------------------
 */

static void everybody_gets_what_he_asks_for(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < dyt_test_rounds(30, 300); seed++) {
        uint32_t size = 2 + (uint32_t)(dyti_rng_u64(seed, 1, 0, 0) % 5);
        struct scene s = {.doer = 0};

        for (uint32_t r = 0; r < size; r++) {
            for (uint32_t i = 0; i < LOANS; i++) {
                uint64_t draw = dyti_rng_u64(seed, 2, r, i);

                s.pieces[r][i] = (uint32_t)(draw % 40);
                for (uint32_t who = 0; who < size; who++) {
                    uint64_t take = dyti_rng_u64(seed, 3 + who, r, i) % 2;

                    s.want[who] |= take << (4 * r + i);
                }
            }
        }
        play(seed % 2 == 0 ? DYT_RANKS_THREADS : DYT_RANKS_PROCESSES, size, &s);
    }
}

/* More pieces than files may be open. */
static void few_files_are_open(void **state)
{
    struct scene s = one_asks(700);

    (void)state;
    s.want[1] = 2; /* the other way at the same time */
    s.pieces[0][1] = 300;
    s.more_files[0] = s.more_files[1] = 60;
    play(DYT_RANKS_PROCESSES, 2, &s);
    s = one_asks(700); /* fewer than a message holds */
    s.more_files[0] = 40;
    s.more_files[1] = 6;
    play(DYT_RANKS_PROCESSES, 2, &s);
    s = one_asks(700);
    s.more_files[0] = 6;
    s.status[0] = DYT_ERR_IO;
    s.text[0] = "ulimit -n";
    play(DYT_RANKS_PROCESSES, 2, &s);
}

static void one_failure_is_nobody_elses(void **state)
{
    struct scene s = one_asks(40);

    (void)state;
    s.want[2] = 1u << 8 | 1u << 5; /* rank 2: of itself, and of rank 1 */
    s.pieces[1][1] = 20;
    s.pieces[2][0] = 3;
    s.refuses = 1;
    s.status[0] = DYT_ERR_DEVICE;
    s.text[0] = "no device wants";
    play(DYT_RANKS_PROCESSES, 3, &s);
    s = one_asks(40);
    s.deed = DEED_FREED;
    s.at = 20; /* in the second message */
    s.status[0] = DYT_ERR_PEER;
    s.text[0] = "member 1: the memory was freed";
    play(DYT_RANKS_PROCESSES, 2, &s);
    s = one_asks(40);
    s.forges = true;
    s.status[0] = DYT_ERR_INVALID;
    s.text[0] = "has not made";
    play(DYT_RANKS_THREADS, 2, &s);
}

static void a_killed_lender_ends_it(void **state)
{
    (void)state;
    for (uint64_t at = 0; at < 40; at += 13) {
        struct scene s = one_asks(40);

        s.want[2] = 1u << 4;
        s.deed = DEED_DIES;
        s.at = at;
        s.status[0] = s.status[2] = DYT_ERR_PEER;
        play(DYT_RANKS_PROCESSES, 3, &s);
    }
}

static void an_abort_ends_it(void **state)
{
    struct scene s = one_asks(200);

    (void)state;
    s.deed = DEED_ABORTS;
    s.at = 20;
    s.status[0] = s.status[1] = DYT_ERR_PEER;
    s.text[0] = s.text[1] = "member 1 ended it";
    play(DYT_RANKS_PROCESSES, 2, &s);
}

static void strangers_change_nothing(void **state)
{
    struct scene s = one_asks(100);

    (void)state;
    s.deed = DEED_STRANGERS;
    s.at = 3;
    play(DYT_RANKS_PROCESSES, 2, &s);
    if (geteuid() == 0) {
        s = one_asks(100);
        s.deed = DEED_OTHER_USER;
        s.at = 3;
        play(DYT_RANKS_PROCESSES, 2, &s);
    }
}

/* ---- who never answers ------------------------------------------------------
 */

/* Meets the others and listens, but never lends. */
static void silent_body(struct dyt_rank *me)
{
    const struct scene *s = me->arg;
    struct dyti_group_params group = group_of(me);
    uint64_t line[2] = {0}, lines[4], counts[2] = {sizeof(line), sizeof(line)};
    void *self = NULL;
    int fd = -1;

    if (me->rank == 0) {
        body(me);
        atomic_store(&s->shared->stranger_ok, 1);
        return;
    }
    rank_ok(me, dyti_group_shm.open(&group, &self));
    rank_ok(me, dyti_lend_listen(&fd, &line[0]));
    rank_ok(me, dyti_group_shm.all_gather(self, line, lines, counts));
    if (s->deed == DEED_ABORTS) {
        atomic_store(&s->shared->abort.value,
                     dyti_abort_pack(1, DYT_ERR_CANCELLED));
    }
    while (atomic_load(&s->shared->stranger_ok) == 0) {
        sched_yield();
    }
    close(fd);
    dyti_group_shm.close(self);
}

static void a_silent_lender_is_named(void **state)
{
    (void)state;
    for (int aborts = 0; aborts < 2; aborts++) {
        struct scene s = one_asks(3);

        s.deed = aborts ? DEED_ABORTS : DEED_NONE;
        s.timeout_ns = aborts ? PATIENCE_NS : 50000000;
        s.status[0] = aborts ? DYT_ERR_PEER : DYT_ERR_TIMEOUT;
        s.text[0] = aborts ? "member 1 ended it" : "of member 1 for 50 ms";
        s.region_bytes = dyti_group_shm.region_bytes(2);
        s.region = dyt_ranks_shared(s.region_bytes);
        s.shared = dyt_ranks_shared(sizeof(*s.shared));
        dyt_ranks_run(DYT_RANKS_PROCESSES, 2, silent_body, &s);
        munmap(s.region, s.region_bytes);
        munmap(s.shared, sizeof(*s.shared));
    }
}

static void wrong_parameters_are_refused(void **state)
{
    struct dyti_group all = {.ops = &dyti_group_shm, .size = 1};
    struct dyti_memory_borrowed borrowed = {.wanted = 1};
    struct dyti_memory_loan loan = loan_of(0, 0, 1);
    struct dyti_lend_want want = {1, &loan, &borrowed};
    struct dyti_lend_params p = {.struct_size = sizeof(p) - 1, .all = &all};
    enum dyt_status met = DYT_OK;

    (void)state;
    assert_status(DYT_ERR_ABI, dyti_lend_pieces(&p, &met));
    assert_int_equal(DYT_ERR_ABI, met);
    p.struct_size = sizeof(p);
    assert_ok(dyti_lend_pieces(&p, &met));
    p.want = &want;
    p.want_count = 1;
    assert_status(DYT_ERR_INVALID, dyti_lend_pieces(&p, &met));
    assert_ok(met);
    want.member = 0; /* which lends nothing */
    assert_status(DYT_ERR_PEER, dyti_lend_pieces(&p, &met));
    assert_error_has("member 0 lends nothing");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(everybody_gets_what_he_asks_for),
    cmocka_unit_test(few_files_are_open),
    cmocka_unit_test(one_failure_is_nobody_elses),
    cmocka_unit_test(a_killed_lender_ends_it),
    cmocka_unit_test(an_abort_ends_it),
    cmocka_unit_test(strangers_change_nothing),
    cmocka_unit_test(a_silent_lender_is_named),
    cmocka_unit_test(wrong_parameters_are_refused),
};
DYT_TEST_MAIN(tests)
