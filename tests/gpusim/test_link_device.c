/* Links whose bytes go once, from device to device: members with random rows of
 * random dtypes and strides on several devices, in all modes.  What arrives is
 * what an oracle says, element by element; nothing besides is touched; nothing
 * of it was on the host. */
#include "lend_case.h"
#include "link_world.h"

#include "device/cuda/memory.h"
#include "device/cuda/table.h"
#include "mover/direct_cuda/direct_cuda.h"

#define SEED    41107u
#define DEVICES 3u

static const struct dyti_module module = {.struct_size = sizeof(module),
                                          .abi = DYTI_MODULE_ABI,
                                          .name = "cuda",
                                          .memory = &dyti_memory_cuda,
                                          .kernels = &dyti_kernels_cuda,
                                          .mover = &dyti_mover_direct_cuda,
                                          .error_message = dyti_error_message};

/* How a member's rows were allocated. */
enum allocated {
    BY_MALLOC,
    BY_PIECES, /* an expandable segment, rows across its pieces */
    BY_POOL    /* which cannot be lent to other processes */
};

/* What is asked of members besides. */
struct scene {
    struct lw_case c;
    uint32_t devices;      /* of a pool one: nobody else's device reaches it */
    bool scattered;        /* rows of one member on several devices */
    enum allocated how[2]; /* of receivers', of sources' memory */
    bool direct;           /* what all must find */
    uint32_t cannot;       /* member that says so; UINT32_MAX: none */
    struct slot {
        struct dyti_memory_view view[2];
        struct dyti_extent extent[2][LW_EXTENTS];
        struct dyti_shard shard[2][LW_SHARDS];
    } * slot; /* [members] */
};

/* A member and its twin on devices: a row of the arena lies there at the same
 * place, of mapped sets at the same place behind the arena. */
struct there {
    struct scene *s;
    struct lw_member *m;
    unsigned char *base[DEVICES]; /* [bytes] on each device; NULL */
    struct foreign mapped[DEVICES];
    uint64_t bytes, set_bytes;
    char name[DYTI_CUDA_UUID];
    int device; /* that copies */
    struct dyti_memory_view view[2], all[LW_MEMBERS], other[LW_MEMBERS];
    struct dyti_link_direct direct;
    uint64_t asked; /* that bytes go by memory */
};

/* ---- memory -------------------------------------------------------------- */

static int device_of_row(const struct there *t, uint32_t row)
{
    return t->s->scattered ? (int)(row % t->s->devices) : t->device;
}

static uint64_t place_of(const struct there *t, uint32_t row, uint32_t set)
{
    const struct lw_member *m = t->m;

    return m->mapped == NULL
               ? (uint64_t)((unsigned char *)m->row[row].data - m->arena)
               : (uint64_t)((unsigned char *)dyti_mapped_row(m->mapped, row,
                                                             set) -
                            (unsigned char *)dyti_mapped_row(m->mapped, 0,
                                                             set)) +
                     set * t->set_bytes;
}

static void size_it(struct there *t)
{
    const struct lw_member *m = t->m;

    t->bytes = m->arena_bytes;
    if (m->mapped != NULL) {
        uint32_t last = m->row_count - 1;

        t->set_bytes = 0;
        t->set_bytes = place_of(t, last, 0) + lw_row_bytes(&m->row[last]);
        t->set_bytes = (t->set_bytes + 4095) / 4096 * 4096;
        t->bytes = 2 * t->set_bytes;
    }
}

/* Bytes of a row of a set, here and there. */
static void carry_rows(struct dyt_rank *me, struct there *t, uint32_t set,
                       bool to_there)
{
    struct lw_member *m = t->m;

    for (uint32_t i = 0; i < m->row_count; i++) {
        unsigned char *here = m->mapped == NULL
                                  ? m->row[i].data
                                  : dyti_mapped_row(m->mapped, i, set);
        unsigned char *there =
            t->base[device_of_row(t, i)] + place_of(t, i, set);
        uint64_t bytes = lw_row_bytes(&m->row[i]);

        rank_true(me,
                  bytes == 0 || cudaMemcpy(to_there ? there : here,
                                           to_there ? here : there, bytes,
                                           to_there ? cudaMemcpyHostToDevice
                                                    : cudaMemcpyDeviceToHost) ==
                                    cudaSuccess);
    }
}

static enum dyt_status describe(struct there *t, uint32_t set)
{
    struct lw_member *m = t->m;
    struct dyt_row row[LW_ROWS];
    struct dyt_view rows = {.struct_size = sizeof(rows),
                            .row_struct_size = sizeof(struct dyt_row),
                            .row = row,
                            .row_count = m->row_count};
    struct dyti_row_pieces pieces = {.piece = m->piece,
                                     .count = m->piece_count};

    memcpy(row, m->row, m->row_count * sizeof(row[0]));
    for (uint32_t i = 0; i < m->row_count; i++) {
        row[i].data = t->base[device_of_row(t, i)] + place_of(t, i, set);
        row[i].fd = -1;
        row[i].fd_offset = 0;
        row[i].device = (struct dyt_device){
            .struct_size = sizeof(row[i].device), .type = DYT_DEVICE_CUDA};
    }
    return dyti_memory_view_build_there(m->c->model, &rows, &pieces,
                                        &t->view[set]);
}

/* Half of it before, half of it behind the end of a piece. */
static void *map_there(struct there *t, int device)
{
    static const uint64_t piece[] = {2 * MIB, 2 * MIB, 2 * MIB};
    struct foreign *f = &t->mapped[device];

    *f = foreign_mapped(device, piece, 3, 7);
    return foreign_at(f, 2 * MIB - t->bytes / 8192 * 4096);
}

/* Memory with the guard's value between rows. */
static void make_on(struct dyt_rank *me, struct there *t, int device)
{
    enum allocated how = t->s->how[t->m->is_source];
    void *at = NULL;

    rank_true(me, cudaSetDevice(device) == cudaSuccess);
    rank_true(me, t->bytes < 4 * MIB);
    if (how == BY_PIECES) {
        at = map_there(t, device);
    } else if (how == BY_POOL) {
        rank_true(me, cudaMallocAsync(&at, t->bytes, NULL) == cudaSuccess);
    } else {
        rank_true(me, cudaMalloc(&at, t->bytes) == cudaSuccess);
    }
    rank_true(me, cudaMemset(at, LW_GUARD, t->bytes) == cudaSuccess &&
                      cudaDeviceSynchronize() == cudaSuccess);
    t->base[device] = at;
}

static void make_there(struct dyt_rank *me, struct there *t)
{
    CUuuid uuid;

    t->device = (int)(me->rank % t->s->devices);
    rank_true(me, cuDeviceGetUuid_v2(&uuid, t->device) == CUDA_SUCCESS);
    dyti_cuda_uuid_text(&uuid, t->name);
    size_it(t);
    for (int d = 0; d < (int)t->s->devices; d++) {
        if (t->s->scattered || d == t->device) {
            make_on(me, t, d);
        }
    }
    rank_true(me, cudaSetDevice(0) == cudaSuccess);
}

static void free_there(struct there *t)
{
    for (int d = 0; d < (int)DEVICES; d++) {
        (void)cudaSetDevice(d);
        if (t->mapped[d].count > 0) {
            foreign_free(&t->mapped[d]);
        } else if (t->base[d] != NULL) {
            (void)cudaFree(t->base[d]);
        }
    }
    (void)cudaSetDevice(0);
}

/* ---- the board ----------------------------------------------------------- */

static void show(struct there *t)
{
    struct slot *slot = &t->s->slot[t->m->rank];

    for (uint32_t set = 0; set < 2; set++) {
        slot->view[set] = t->view[set];
        if (t->view[set].extent_count == 0) {
            continue;
        }
        memcpy(slot->extent[set], t->view[set].extent,
               t->view[set].extent_count * sizeof(slot->extent[0][0]));
        memcpy(slot->shard[set], t->view[set].view.shard,
               t->view[set].view.shard_count * sizeof(slot->shard[0][0]));
    }
}

static void look(struct there *t)
{
    for (uint32_t r = 0; r < t->s->c.members; r++) {
        struct slot *slot = &t->s->slot[r];

        for (uint32_t set = 0; set < 2; set++) {
            struct dyti_memory_view *to = set == 0 ? &t->all[r] : &t->other[r];

            *to = slot->view[set];
            to->extent = slot->extent[set];
            to->view.shard = slot->shard[set];
            if (r != t->m->rank) {
                to->shard_row = to->row_as = NULL;
            }
        }
    }
}

static enum dyt_status note_memory(void *arg, const char *why,
                                   uint64_t *cap_bytes)
{
    struct there *t = arg;

    (void)why;
    (void)cap_bytes;
    t->asked++;
    return DYT_OK;
}

static struct dyti_link_params params_of(struct there *t)
{
    struct dyti_link_params p = lw_params(t->m);

    t->direct = (struct dyti_link_direct){
        .why = t->s->cannot == t->m->rank ? "it was told not to" : NULL,
        .module = &module,
        .device = t->name,
        .memory = t->all,
        .second = p.second != NULL ? t->other : NULL};
    p.direct = &t->direct;
    p.by_memory = note_memory;
    p.by_memory_arg = t;
    return p;
}

/* ---- one link, several versions ------------------------------------------ */

static void check_arrived(struct dyt_rank *me, struct there *t,
                          uint64_t version)
{
    struct lw_member *m = t->m;

    if (dyti_link_is_direct(m->link)) {
        carry_rows(me, t, dyti_link_live_set(m->link), false);
    }
    lw_check_arrived(me, m, version);
}

static void run_versions(struct dyt_rank *me, struct there *t)
{
    struct lw_member *m = t->m;
    struct dyti_link_params params = params_of(t);
    bool direct = t->s->direct;

    rank_ok(me, dyti_link_open(&params, &m->link));
    if (dyti_link_is_direct(m->link) != direct) {
        rank_wrong(me, "by memory: %s", dyti_link_why_not(m->link));
        return;
    }
    rank_true(me, t->asked == !direct);
    rank_true(me, !direct || dyti_link_is_push(m->link) ==
                                 (t->s->how[1] == BY_POOL && !m->c->threads));
    for (uint64_t version = 1; version <= 3; version++) {
        struct dyti_switch_report report;

        if (m->is_source) {
            lw_fill(m, version);
            carry_rows(me, t, 0, true);
            if (direct) { /* what is on the host is of no use */
                lw_fill(m, version + 1000);
                rank_ok(me, dyti_link_check_lent(m->link));
            }
        }
        lw_meet(m->c, (uint32_t)version + 4);
        rank_ok(me, dyti_link_run(m->link, version, version, &report));
        rank_true(me, report.decision == DYTI_DECISION_COMMIT);
        if (!m->is_source) {
            check_arrived(me, t, version);
        }
    }
}

static void play_member(struct dyt_rank *me, struct there *t)
{
    struct lw_member *m = t->m;

    rank_ok(me, lw_member_init(m, &t->s->c, me->rank, 0));
    rank_true(me, lw_share(m));
    make_there(me, t);
    rank_ok(me, describe(t, 0));
    if (m->mapped != NULL && !m->is_source) {
        rank_ok(me, describe(t, 1));
    }
    carry_rows(me, t, 0, true);
    show(t);
    lw_meet(m->c, 0);
    lw_look(m);
    look(t);
    run_versions(me, t);
    lw_meet(m->c, 1);
}

static void body(struct dyt_rank *me)
{
    struct there *t = calloc(1, sizeof(*t));

    rank_true(me, t != NULL);
    t->s = me->arg;
    t->m = calloc(1, sizeof(*t->m));
    rank_true(me, t->m != NULL);
    play_member(me, t);
    lw_member_fini(t->m);
    free_there(t);
    dyti_memory_view_fini(&t->view[0]);
    dyti_memory_view_fini(&t->view[1]);
    free(t->m);
    free(t);
}

static void run_scene(struct scene *s, enum dyt_ranks_kind kind)
{
    static const enum gpusim_order order[] = {GPUSIM_LATE, GPUSIM_SHUFFLED,
                                              GPUSIM_EARLY};

    gpusim_reset();
    gpusim_have_devices(DEVICES);
    gpusim_set_order(order[s->c.trial % 3], s->c.trial + 1);
    s->c.threads = kind == DYT_RANKS_THREADS;
    s->slot = dyt_ranks_shared(LW_MEMBERS * sizeof(*s->slot));
    lw_case_init(&s->c);
    dyt_ranks_run(kind, s->c.members, body, s);
    lw_case_fini(&s->c);
    munmap(s->slot, LW_MEMBERS * sizeof(*s->slot));
    assert_int_equal(0, gpusim_leaks());
    assert_int_equal(0, gpusim_unexpected());
}

static void any_scene(uint64_t trial, enum dyt_ranks_kind kind)
{
    struct scene s = {.c = {.seed = SEED, .trial = trial},
                      .cannot = UINT32_MAX};
    struct lw_case *c = &s.c;

    c->commit = (enum dyt_commit_mode)(trial % 3);
    c->verify = (enum dyt_verify)(trial / 3 % 3);
    c->sources = 1 + (uint32_t)lw_pick(c, 1, 0, 3);
    c->members = c->sources + 1 + (uint32_t)lw_pick(c, 2, 0, 3);
    c->source_memory = c->target_memory = LW_SHARED;
    c->master = lw_pick(c, 5, 0, 4) == 0;
    s.scattered = lw_pick(c, 6, 0, 3) == 0;
    if (lw_pick(c, 7, 0, 6) == 0) {
        s.cannot = (uint32_t)lw_pick(c, 8, 0, c->members);
    }
    s.how[0] = (enum allocated)lw_pick(c, 9, 0, 3);
    s.how[1] = (enum allocated)lw_pick(c, 10, 0, 3);
    s.devices = s.how[0] == BY_POOL || s.how[1] == BY_POOL ? 1 : DEVICES;
    /* scratch is ours, and can be written by others */
    s.direct = s.cannot == UINT32_MAX &&
               (kind == DYT_RANKS_THREADS || s.how[1] != BY_POOL ||
                c->commit == DYT_COMMIT_STAGED);
    run_scene(&s, kind);
}

static void threads_get_what_the_oracle_says(void **state)
{
    (void)state;
    for (uint64_t t = 0; t < dyt_test_rounds(36, 360); t++) {
        any_scene(t, DYT_RANKS_THREADS);
    }
}

/* Each with a simulator of its own. */
static void processes_get_what_the_oracle_says(void **state)
{
    (void)state;
    for (uint64_t t = 0; t < dyt_test_rounds(24, 240); t++) {
        any_scene(1000 + t, DYT_RANKS_PROCESSES);
    }
}

static const struct CMUnitTest tests[] = {
    sim_test(processes_get_what_the_oracle_says),
    sim_test(threads_get_what_the_oracle_says),
};
DYT_TEST_MAIN(tests)
