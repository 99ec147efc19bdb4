/* A link between processes that are not ours, beside memcpy: two sources that
 * hold SmolLM2's tensors cut in rows, as FSDP2 does, and one receiver with them
 * whole, in bf16.  ours: GB/s of a run, from its start on the receiver to its
 * end there, with its vote, verify = "sample"; theirs: memcpy of as many bytes
 * from a source's memory, mapped, to the receiver's, by as many threads, in
 * turns with it.  A staged update copies twice: its transfer alone is a case of
 * its own. */
#include "bench.h"
#include "contest.h"
#include "crew.h"
#include "shapes.h"

#include "base/pool.h"
#include "device/host/memory.h"
#include "lib/link.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SOURCES 2u
#define MEMBERS 3u
#define ROUNDS  9u
#define PAGE    4096u

struct board {
    _Atomic uint32_t pid[MEMBERS];
    _Atomic uint64_t start[MEMBERS];
};

/* What the ranks of a crew do a turn of. */
struct setup {
    enum dyt_commit_mode commit;
    uint32_t threads;
    bool transfer_only, is_memcpy;
    struct dyti_model *model;
    int fd[MEMBERS]; /* rows of each member, inherited */
    enum dyti_page_kind pages;
    uint64_t bytes[MEMBERS];
    int control;
    struct board *board;
};

static int64_t lo_of(const struct dyti_tensor *t, uint32_t member)
{
    return member < SOURCES ? t->shape[0] * member / SOURCES : 0;
}

static int64_t hi_of(const struct dyti_tensor *t, uint32_t member)
{
    return member < SOURCES ? t->shape[0] * (member + 1) / SOURCES
                            : t->shape[0];
}

static int64_t cols_of(const struct dyti_tensor *t)
{
    return t->ndim > 1 ? t->shape[1] : 1;
}

static uint64_t rows_bytes(const struct dyti_model *model, uint32_t member)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < model->tensor_count; i++) {
        const struct dyti_tensor *t = &model->tensor[i];
        int64_t elements = (hi_of(t, member) - lo_of(t, member)) * cols_of(t);

        bytes += ((uint64_t)elements * 2 + 63) / 64 * 64;
    }
    return bytes;
}

/* The memory of a member as its owner describes it: all have its descriptor. */
static enum dyt_status describe(const struct setup *s, uint32_t member,
                                unsigned char *base,
                                struct dyti_memory_view *out_memory)
{
    uint32_t count = s->model->tensor_count;
    struct dyt_row *row = calloc(count, sizeof(*row));
    struct dyti_row_piece *piece = calloc(count, sizeof(*piece));
    struct dyt_view view = {.struct_size = sizeof(view),
                            .row_struct_size = sizeof(*row),
                            .row = row,
                            .row_count = count};
    struct dyti_row_pieces pieces = {.piece = piece, .count = count};
    enum dyt_status st = DYT_ERR_NOMEM;
    uint64_t at = 0;

    for (uint32_t i = 0; i < count && row != NULL && piece != NULL; i++) {
        const struct dyti_tensor *t = &s->model->tensor[i];
        int64_t lo = lo_of(t, member), hi = hi_of(t, member);

        row[i] = (struct dyt_row){.struct_size = sizeof(*row),
                                  .kind = DYT_PARAM,
                                  .dtype = DYT_BF16,
                                  .name = t->name,
                                  .ndim = t->ndim,
                                  .shape = {hi - lo, cols_of(t)},
                                  .data = base + at,
                                  .fd = s->fd[member],
                                  .fd_offset = at};
        piece[i] = (struct dyti_row_piece){
            .row = i,
            .tensor = i,
            .box = {.ndim = t->ndim, .lo = {lo, 0}, .hi = {hi, cols_of(t)}},
            .stride = {cols_of(t) * 2, 2}};
        at += ((uint64_t)((hi - lo) * cols_of(t)) * 2 + 63) / 64 * 64;
    }
    if (row != NULL && piece != NULL) {
        st = dyti_memory_view_build(s->model, &view, &pieces, out_memory);
    }
    free(row);
    free(piece);
    return st;
}

/* ---- a rank ---------------------------------------------------------------
 */

struct rank {
    const struct setup *s;
    uint32_t member;
    struct dyti_segment_mem mem[MEMBERS]; /* own, and the sources' */
    struct dyti_memory_view memory[MEMBERS];
    struct dyti_link *link;
    struct dyti_pool *pool;
    uint64_t epoch;
};

static bool open_rank(struct rank *r)
{
    const struct setup *s = r->s;
    struct dyti_link_params params = {.struct_size = sizeof(params),
                                      .rank = r->member,
                                      .member_count = MEMBERS,
                                      .source_count = SOURCES,
                                      .catalogue = s->model,
                                      .memory = r->memory,
                                      .control_fd = s->control,
                                      .commit = s->commit,
                                      .verify = DYT_VERIFY_SAMPLE,
                                      .kinds = 1u << DYTI_PARAM,
                                      .timeout_ns = 60000000000,
                                      .threads = s->threads};
    enum dyt_status st = DYT_OK;

    for (uint32_t m = 0; m < MEMBERS && st == DYT_OK; m++) {
        st = dyti_memory_host.map(s->fd[m], s->pages, s->bytes[m], &r->mem[m]);
        if (st == DYT_OK && m == r->member) {
            memset(r->mem[m].base, (int)m + 1, s->bytes[m]);
        }
        st = st != DYT_OK ? st : describe(s, m, r->mem[m].base, &r->memory[m]);
    }
    if (st == DYT_OK) {
        atomic_store(&s->board->start[r->member],
                     r->memory[r->member].pid_start);
        atomic_store(&s->board->pid[r->member], (uint32_t)getpid());
    }
    for (uint32_t m = 0; m < MEMBERS && st == DYT_OK; m++) {
        while (atomic_load(&s->board->pid[m]) == 0) {
            (void)usleep(1000);
        }
        r->memory[m].pid = atomic_load(&s->board->pid[m]);
        r->memory[m].pid_start = atomic_load(&s->board->start[m]);
    }
    if (st == DYT_OK && s->is_memcpy) {
        st = dyti_pool_create(s->threads, &r->pool);
    } else if (st == DYT_OK) {
        st = dyti_link_open(&params, &r->link);
    }
    if (st != DYT_OK) {
        fprintf(stderr, "link: member %u: %s\n", r->member, dyti_error_text());
    }
    return st == DYT_OK;
}

static void copy_part(void *arg, size_t index, uint32_t thread)
{
    const struct rank *r = arg;
    uint64_t part = r->s->bytes[index % SOURCES];
    size_t parts = r->s->threads == 1 ? 1 : 2;

    (void)thread;
    if (parts == 1) {
        for (uint32_t m = 0; m < SOURCES; m++) {
            memcpy((char *)r->mem[SOURCES].base + m * r->s->bytes[0],
                   r->mem[m].base, r->s->bytes[m]);
        }
        return;
    }
    memcpy((char *)r->mem[SOURCES].base + index * r->s->bytes[0],
           r->mem[index].base, part);
}

/* Seconds that count; < 0: it failed. */
static double turn(struct rank *r)
{
    struct dyti_switch_report report;
    double start = bench_seconds();
    enum dyt_status st;

    if (r->s->is_memcpy) {
        if (r->member == SOURCES) {
            dyti_pool_run(r->pool, r->s->threads == 1 ? 1 : 2, copy_part, r);
        }
        return bench_seconds() - start;
    }
    r->epoch++;
    st = dyti_link_run(r->link, r->epoch, r->epoch, &report);
    if (st != DYT_OK) {
        fprintf(stderr, "link: member %u: %s\n", r->member, dyti_error_text());
        return -1;
    }
    return r->s->transfer_only ? (double)report.transfer_ns / 1e9
                               : bench_seconds() - start;
}

/* The clock of a crew is its rank 0's, so that is the receiver. */
static void rank_body(void *arg, uint32_t rank, struct crew *crew)
{
    struct rank r = {.s = arg, .member = (rank + SOURCES) % MEMBERS};
    bool good = open_rank(&r);

    while (crew_wait(crew, rank)) {
        double seconds = good ? turn(&r) : -1;

        good = good && seconds >= 0;
        crew_done(crew, rank, seconds, good);
    }
    dyti_link_close(r.link);
    dyti_pool_destroy(r.pool);
}

/* ---- a case ---------------------------------------------------------------
 */

static uint32_t crew_player(void *arg, double *out_values, uint32_t most)
{
    return most > 0 && crew_turn(arg, out_values) ? 1 : 0;
}

static bool make_memory(struct setup *s)
{
    uint64_t bytes = dyti_link_control_bytes(MEMBERS);
    enum dyt_status st = DYT_OK;

    for (uint32_t m = 0; m < MEMBERS; m++) {
        s->bytes[m] = rows_bytes(s->model, m);
    }
    s->pages = dyti_memory_host.probe(s->bytes[SOURCES] * 2);
    for (uint32_t m = 0; m < MEMBERS && st == DYT_OK; m++) {
        st = dyti_memory_host.create("rows", s->pages, &s->fd[m]);
        st = st != DYT_OK
                 ? st
                 : dyti_memory_host.resize(s->fd[m], s->pages,
                                           s->bytes[m] + PAGE, NULL, 0);
    }
    s->control = memfd_create("control", 0);
    s->board = crew_memory(PAGE, MAP_SHARED);
    return st == DYT_OK && s->board != NULL && s->control >= 0 &&
           ftruncate(s->control, (off_t)bytes) == 0;
}

static void drop_memory(struct setup *s)
{
    for (uint32_t m = 0; m < MEMBERS; m++) {
        (void)close(s->fd[m]);
    }
    (void)close(s->control);
}

static void run_case(struct bench *bench, const char *name, double goal,
                     const struct setup *like)
{
    struct setup ours = *like, theirs = *like;
    struct player player[2] = {{.name = "link", .turn = crew_player},
                               {.name = "memcpy", .turn = crew_player}};
    struct crew *crew[2] = {NULL, NULL};
    double gb;

    theirs.is_memcpy = true;
    if (!make_memory(&ours) || !make_memory(&theirs)) {
        fprintf(stderr, "link: %s: %s\n", name, dyti_error_text());
        return;
    }
    gb = (double)ours.bytes[SOURCES] / 1e9;
    crew[0] = crew_start(MEMBERS, rank_body, &ours);
    crew[1] = crew_start(MEMBERS, rank_body, &theirs);
    player[0].arg = crew[0];
    player[1].arg = crew[1];
    if (crew[0] != NULL && crew[1] != NULL) {
        double a, b;

        contest(player, 2, bench_rounds(bench, bench->quick ? 3 : ROUNDS));
        a = contest_median(&player[0]);
        b = contest_median(&player[1]);
        if (a > 0 && b > 0) {
            bench_record(bench, name, gb / a, "memcpy", gb / b, goal, "GB/s");
        }
    }
    crew_stop(crew[0]);
    crew_stop(crew[1]);
    drop_memory(&ours);
    drop_memory(&theirs);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        enum dyt_commit_mode commit;
        uint32_t threads;
        bool transfer_only;
        double goal;
    } cases[] = {{"in_place/1", DYT_COMMIT_IN_PLACE, 1, false, 0.6},
                 {"in_place/2", DYT_COMMIT_IN_PLACE, 2, false, 0.6},
                 {"staged/1", DYT_COMMIT_STAGED, 1, false, 0},
                 {"staged/2", DYT_COMMIT_STAGED, 2, false, 0},
                 {"staged-transfer/1", DYT_COMMIT_STAGED, 1, true, 0.6},
                 {"staged-transfer/2", DYT_COMMIT_STAGED, 2, true, 0.6}};
    struct dyti_arch arch = bench_smollm2;
    struct setup setup = {0};
    struct bench bench;

    if (!bench_open(&bench, "link", argc, argv)) {
        return bench.exit_code;
    }
    if (bench.quick) {
        arch.layers = 2;
        arch.vocab = 512;
    }
    if (dyti_model_build(&arch, &setup.model) == DYT_OK) {
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
            setup.commit = cases[i].commit;
            setup.threads = cases[i].threads;
            setup.transfer_only = cases[i].transfer_only;
            if (bench_wants(&bench, cases[i].name)) {
                run_case(&bench, cases[i].name, cases[i].goal, &setup);
            }
        }
    }
    dyti_model_destroy(setup.model);
    return bench_close(&bench);
}
