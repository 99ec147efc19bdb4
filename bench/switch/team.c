/* Workers are forked before anything else runs, open their world as the workers
 * of a job do, and sleep on a futex between two orders. */
#include "team.h"

#include "bench.h"
#include "comm/shm/shm.h"
#include "device/host/clock.h"
#include "device/host/host.h"
#include "device/host/memory.h"
#include "mover/direct/direct.h"
#include "mover/message/message.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct team_board {
    _Alignas(64) _Atomic uint32_t order; /* counts; futex */
    struct team_command command;
    _Alignas(64) _Atomic uint32_t done; /* workers, over all orders; futex */
    _Alignas(64) int32_t status[TEAM_RANKS_MAX];
    uint64_t bytes[TEAM_RANKS_MAX];
    char text[TEAM_RANKS_MAX][256];
};

/* ---- a worker ---------------------------------------------------------------
 */

struct worker {
    const struct team *team;
    uint32_t rank;
    struct dyti_kernels kernels;
    struct dyti_world *world;
    struct dyti_cluster cluster; /* one host, whatever the mover */
    uint32_t host[TEAM_RANKS_MAX];
};

static enum dyt_status maps(const struct team *team, struct dyti_arena_map *out)
{
    enum dyt_status st = DYT_OK;

    for (uint32_t r = 0; r < team->shape.ranks && st == DYT_OK; r++) {
        st = dyti_arena_map_build(
            (const struct dyti_layout *const *)team->layout, r, 0, &out[r]);
    }
    return st;
}

static enum dyt_status open_worker(struct worker *worker)
{
    const struct team *team = worker->team;
    struct dyti_kernel_params kernel = {.struct_size = sizeof(kernel)};
    enum dyti_page_kind pages[TEAM_RANKS_MAX];
    struct dyti_arena_map map[TEAM_RANKS_MAX];
    struct dyti_world_params params = {.struct_size = sizeof(params),
                                       .rank = worker->rank,
                                       .world_size = team->shape.ranks,
                                       .map = map,
                                       .control_handle = team->control,
                                       .control_pages = DYTI_PAGES_4K,
                                       .segment_handle = team->segment,
                                       .segment_pages = pages,
                                       .memory = &dyti_memory_host,
                                       .group = &dyti_group_shm,
                                       .mover = &dyti_mover_direct,
                                       .message = &dyti_mover_message,
                                       .cluster = &worker->cluster,
                                       .wait = &dyti_wait_futex,
                                       .clock = &dyti_clock_host,
                                       .timeout_ns = 120000000000,
                                       .oversubscribed =
                                           sysconf(_SC_NPROCESSORS_ONLN) <
                                           (long)team->shape.ranks};
    enum dyt_status st = maps(team, map);

    for (uint32_t r = 0; r < team->shape.ranks; r++) {
        pages[r] = team->shape.pages;
    }
    worker->cluster = (struct dyti_cluster){.name = "one host",
                                            .rank_count = team->shape.ranks,
                                            .host_count = 1,
                                            .host = worker->host};
    for (int c = 0; c < DYTI_LINK_CLASS_COUNT; c++) {
        worker->cluster.link[c].bytes_per_s = 4e9;
    }
    for (int s = 0; s < DYTI_ARENA_SLOT_COUNT; s++) {
        params.layout[s] = team->layout[s];
    }
    worker->kernels.ops = &dyti_kernels_host;
    if (team->shape.device != NULL) {
        params.device_memory = team->shape.device->memory;
        params.mover = team->shape.device->mover;
        worker->kernels.ops = team->shape.device->kernels;
        st = st == DYT_OK ? params.device_memory->use(NULL) : st;
    }
    if (st == DYT_OK) {
        st = worker->kernels.ops->open(&kernel, &worker->kernels.self);
    }
    params.kernels = worker->kernels;
    return st == DYT_OK ? dyti_world_open(&params, &worker->world) : st;
}

/* The upper half of a float is its bf16, and small whole numbers fit in it. */
static void put(unsigned char *at, enum dyti_dtype dtype, int64_t element)
{
    float value = (float)(1 + element % 251);

    if (dtype == DYTI_F32) {
        memcpy(at, &value, sizeof(value));
    } else {
        uint32_t bits;

        memcpy(&bits, &value, sizeof(bits));
        bits >>= 16;
        memcpy(at, &bits, 2);
    }
}

/* By place in the tensor: whoever else holds an element has the same. */
static void fill_shard(const struct dyti_tensor *tensor,
                       const struct dyti_shard *shard, unsigned char *region)
{
    uint32_t last = tensor->ndim - 1;
    int64_t at[DYT_MAX_DIMS];
    uint64_t elements = 0;

    if (dyt_box_count(&shard->box, &elements) != DYT_OK || elements == 0) {
        return;
    }
    memcpy(at, shard->box.lo, sizeof(at));
    for (bool more = true; more;) {
        unsigned char *row = region + shard->offset;
        int64_t index = 0;
        uint32_t d = last;

        for (uint32_t k = 0; k <= last; k++) {
            row += (at[k] - shard->box.lo[k]) * shard->stride[k];
            index = index * tensor->shape[k] + at[k];
        }
        for (int64_t i = shard->box.lo[last]; i < shard->box.hi[last]; i++) {
            put(row, (enum dyti_dtype)shard->dtype, index++);
            row += shard->stride[last];
        }
        while (d > 0 && ++at[d - 1] == shard->box.hi[d - 1]) {
            at[d - 1] = shard->box.lo[d - 1];
            d--;
        }
        more = d > 0;
    }
}

/* A region of a device: made here, and carried there. */
static enum dyt_status fill_region(const struct worker *worker,
                                   enum dyti_kind kind, unsigned char *region)
{
    const struct team *team = worker->team;
    const struct dyti_view *view =
        dyti_layout_view(team->layout[DYTI_ARENA_TRAIN], worker->rank);
    uint64_t bytes = view->region_bytes[kind];
    bool any = dyti_kernels_any_memory(&worker->kernels);
    unsigned char *here = any ? region : calloc(1, bytes);
    enum dyt_status st = DYT_OK;

    if (here == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%llu bytes to fill a region",
                         (unsigned long long)bytes);
    }
    for (uint32_t s = view->kind_first[kind]; s < view->kind_first[kind + 1];
         s++) {
        const struct dyti_shard *shard = &view->shard[s];

        fill_shard(&team->model->tensor[shard->tensor], shard, here);
    }
    if (!any) {
        st = dyti_kernels_carry(&worker->kernels, region, here, bytes);
        free(here);
    }
    return st;
}

/* Something to move: not zeros, which may share a page. */
static enum dyt_status fill_sources(const struct worker *worker)
{
    enum dyt_status st = DYT_OK;

    for (int k = 0; k < DYTI_KIND_COUNT && st == DYT_OK; k++) {
        enum dyti_kind kind = (enum dyti_kind)k;
        unsigned char *region = dyti_world_region(worker->world, worker->rank,
                                                  DYTI_ARENA_TRAIN, kind);

        if (kind != DYTI_GRAD && region != NULL) {
            st = fill_region(worker, kind, region);
        }
    }
    return st;
}

static enum dyt_status do_switch(const struct worker *worker,
                                 const struct team_command *command,
                                 uint64_t *out_bytes)
{
    struct dyti_switch_order order = {.epoch = command->epoch,
                                      .version = command->epoch,
                                      .verify = command->verify,
                                      .unmanaged = true};
    struct dyti_switch_report report;
    struct dyti_switch *self = NULL;
    struct dyti_world_switch_options options = {
        .mover = command->mover,
        .strategy = dyti_strategy_at(command->strategy)};
    enum dyt_status st = dyti_world_prepare(worker->world, command->from,
                                            command->to, &options, &self, NULL);

    if (st == DYT_OK) {
        st = dyti_switch_run(self, &order, &report);
        *out_bytes = report.read_bytes + report.written_bytes;
    }
    return st;
}

/* Plain memcpy, over and over where a region is shorter than the share. */
static enum dyt_status do_memcpy(const struct worker *worker,
                                 const struct team_command *command,
                                 uint64_t *out_bytes)
{
    uint32_t peer = (worker->rank + 1) % worker->team->shape.ranks;
    const struct dyti_layout *from = worker->team->layout[command->from];
    const struct dyti_layout *to = worker->team->layout[command->to];
    const unsigned char *src =
        dyti_world_region(worker->world, peer, command->from, command->kind);
    unsigned char *dst =
        dyti_world_region(worker->world, worker->rank, command->to, DYTI_PARAM);
    uint64_t have = dyti_layout_view(from, peer)->region_bytes[command->kind];
    uint64_t room =
        dyti_layout_view(to, worker->rank)->region_bytes[DYTI_PARAM];
    uint64_t left = command->bytes / worker->team->shape.ranks;
    enum dyt_status st = DYT_OK;

    room = room < have ? room : have;
    *out_bytes = 2 * left;
    while (left > 0 && room > 0 && st == DYT_OK) {
        uint64_t now = left < room ? left : room;

        st = dyti_kernels_carry(&worker->kernels, dst, src, now);
        left -= now;
    }
    return st;
}

static void finish(struct team_board *board, uint32_t rank, enum dyt_status st)
{
    board->status[rank] = (int32_t)st;
    if (st != DYT_OK) {
        (void)snprintf(board->text[rank], sizeof(board->text[rank]), "%s",
                       dyti_error_text());
    }
    (void)atomic_fetch_add(&board->done, 1);
    dyti_wait_futex.wake(&board->done);
}

static void work(struct worker *worker)
{
    struct team_board *board = worker->team->board;
    uint32_t seen = 0;
    enum dyt_status st = open_worker(worker);

    if (st == DYT_OK) {
        st = fill_sources(worker);
    }
    finish(board, worker->rank, st);
    while (st == DYT_OK) {
        struct team_command command;

        while (atomic_load(&board->order) == seen) {
            dyti_wait_futex.wait(&board->order, seen, 1000000000);
        }
        seen++;
        command = board->command;
        if (command.order == TEAM_QUIT) {
            break;
        }
        st = command.order == TEAM_SWITCH
                 ? do_switch(worker, &command, &board->bytes[worker->rank])
                 : do_memcpy(worker, &command, &board->bytes[worker->rank]);
        finish(board, worker->rank, st);
    }
    dyti_world_close(worker->world);
    if (worker->kernels.self != NULL) {
        worker->kernels.ops->close(worker->kernels.self);
    }
}

/* ---- the one who orders ------------------------------------------------- */

/* What the first worker said that failed. */
static enum dyt_status worker_status(const struct team_board *board,
                                     uint32_t ranks)
{
    for (uint32_t r = 0; r < ranks; r++) {
        if (board->status[r] != DYT_OK) {
            return DYTI_FAIL((enum dyt_status)board->status[r], "worker %u: %s",
                             r, board->text[r]);
        }
    }
    return DYT_OK;
}

static enum dyt_status await(struct team *team, uint32_t orders)
{
    struct team_board *board = team->board;
    uint32_t want = orders * team->shape.ranks, done;

    while ((done = atomic_load(&board->done)) != want) {
        int code = 0;

        dyti_wait_futex.wait(&board->done, done, 200000000);
        if (waitpid(-1, &code, WNOHANG) > 0) {
            enum dyt_status st = worker_status(board, team->shape.ranks);

            return st != DYT_OK ? st
                                : DYTI_FAIL(DYT_ERR_PEER, "a worker ended");
        }
    }
    return worker_status(board, team->shape.ranks);
}

static enum dyt_status build_layouts(struct team *team,
                                     const struct dyti_arch *arch)
{
    uint32_t n = team->shape.ranks, pp = n > 2 && n % 2 == 0 ? 2 : 1;
    struct dyti_layout_desc rollout = {
        .phase = "rollout", .world_size = n, .tp = n, .pp = 1, .dp = 1};
    struct dyti_layout_desc train = {.phase = "train",
                                     .world_size = n,
                                     .tp = 1,
                                     .pp = pp,
                                     .dp = n / pp,
                                     .zero = 1};
    bool all = team->shape.all_state;
    enum dyt_status st = dyti_model_build(arch, &team->model);

    for (int k = 0; k < DYTI_KIND_COUNT; k++) {
        rollout.residency[k] = all ? DYTI_HELD : DYTI_PARKED;
        train.residency[k] = all ? DYTI_HELD : DYTI_DROPPED;
        rollout.dtype[k] = train.dtype[k] = DYTI_F32;
    }
    if (team->shape.no_master) {
        rollout.residency[DYTI_MASTER] = DYTI_PARKED;
    }
    rollout.residency[DYTI_PARAM] = DYTI_HELD;
    rollout.residency[DYTI_GRAD] = train.residency[DYTI_GRAD] = DYTI_DROPPED;
    rollout.dtype[DYTI_PARAM] = train.dtype[DYTI_PARAM] = team->shape.dtype;
    train.residency[DYTI_PARAM] = train.residency[DYTI_MASTER] = DYTI_HELD;
    if (st == DYT_OK) {
        st = dyti_layout_build(team->model, &rollout,
                               &team->layout[DYTI_ARENA_ROLLOUT]);
    }
    if (st == DYT_OK) {
        st = dyti_layout_build(team->model, &train,
                               &team->layout[DYTI_ARENA_TRAIN]);
    }
    return st;
}

static const struct dyti_memory_ops *segments_of(const struct team *team)
{
    return team->shape.device != NULL ? team->shape.device->memory
                                      : &dyti_memory_host;
}

static enum dyt_status make_segments(struct team *team)
{
    const struct dyti_memory_ops *memory = &dyti_memory_host;
    uint64_t bytes = 0;
    enum dyt_status st = dyti_world_control_bytes(
        (const struct dyti_layout *const *)team->layout, team->shape.ranks,
        &dyti_group_shm, &bytes);

    if (st == DYT_OK) {
        st = memory->create("bench-control", DYTI_PAGES_4K, &team->control);
    }
    if (st == DYT_OK) {
        st = memory->resize(team->control, DYTI_PAGES_4K, bytes, NULL, 0);
    }
    for (uint32_t r = 0; r < team->shape.ranks && st == DYT_OK; r++) {
        st = segments_of(team)->create("bench-rank", team->shape.pages,
                                       &team->segment[r]);
    }
    return st;
}

static enum dyt_status start(struct team *team)
{
    (void)fflush(NULL);
    for (uint32_t r = 0; r < team->shape.ranks; r++) {
        pid_t pid = fork();

        if (pid == 0) {
            struct worker worker = {.team = team, .rank = r};

            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            work(&worker);
            _exit(0);
        }
        if (pid < 0) {
            return DYTI_FAIL(DYT_ERR_IO, "cannot start worker %u", r);
        }
        team->worker[team->worker_count++] = pid;
    }
    return await(team, 1);
}

enum dyt_status team_open(struct team *team, const struct dyti_arch *arch,
                          const struct team_shape *shape)
{
    enum dyt_status st;

    *team = (struct team){.shape = *shape, .control = -1};
    for (uint32_t r = 0; r < TEAM_RANKS_MAX; r++) {
        team->segment[r] = -1;
    }
    st = build_layouts(team, arch);
    if (st == DYT_OK) {
        team->board = mmap(NULL, sizeof(*team->board), PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (team->board == MAP_FAILED) {
            team->board = NULL;
            st = DYTI_FAIL(DYT_ERR_NOMEM, "a page to share");
        }
    }
    if (st == DYT_OK) {
        st = make_segments(team);
    }
    if (st == DYT_OK) {
        st = start(team);
    }
    if (st != DYT_OK) {
        team_close(team);
    }
    return st;
}

static void give_order(struct team *team, const struct team_command *command)
{
    team->board->command = *command;
    (void)atomic_fetch_add(&team->board->order, 1);
    dyti_wait_futex.wake(&team->board->order);
}

enum dyt_status team_run(struct team *team, const struct team_command *command,
                         double *out_seconds, uint64_t *out_bytes)
{
    struct team_command full = *command;
    double start;
    enum dyt_status st;

    full.epoch = ++team->epoch;
    start = bench_seconds();
    give_order(team, &full);
    st = await(team, atomic_load(&team->board->order) + 1);
    *out_seconds = bench_seconds() - start;
    if (out_bytes != NULL) {
        *out_bytes = 0;
        for (uint32_t r = 0; r < team->shape.ranks; r++) {
            *out_bytes += team->board->bytes[r];
        }
    }
    return st;
}

enum dyt_status team_switch_trip(struct team *team,
                                 const struct team_command *how,
                                 struct team_trip *out_trip)
{
    struct team_command command = *how;
    enum dyt_status st;

    command.order = TEAM_SWITCH;
    command.from = DYTI_ARENA_TRAIN;
    command.to = DYTI_ARENA_ROLLOUT;
    st = team_run(team, &command, &out_trip->seconds[0], &out_trip->bytes[0]);
    command.from = DYTI_ARENA_ROLLOUT;
    command.to = DYTI_ARENA_TRAIN;
    st = st != DYT_OK ? st
                      : team_run(team, &command, &out_trip->seconds[1],
                                 &out_trip->bytes[1]);
    out_trip->bytes[0] /= 2; /* read and written */
    out_trip->bytes[1] /= 2;
    return st;
}

enum dyt_status team_copy_trip(struct team *team, const uint64_t bytes[2],
                               struct team_trip *out_trip)
{
    const struct team_command there = {.order = TEAM_MEMCPY,
                                       .from = DYTI_ARENA_TRAIN,
                                       .to = DYTI_ARENA_ROLLOUT,
                                       .kind = DYTI_MASTER,
                                       .bytes = bytes[0]};
    const struct team_command back = {.order = TEAM_MEMCPY,
                                      .from = DYTI_ARENA_ROLLOUT,
                                      .to = DYTI_ARENA_TRAIN,
                                      .kind = DYTI_PARAM,
                                      .bytes = bytes[1]};
    enum dyt_status st = team_run(team, &there, &out_trip->seconds[0], NULL);

    st = st != DYT_OK ? st : team_run(team, &back, &out_trip->seconds[1], NULL);
    out_trip->bytes[0] = bytes[0];
    out_trip->bytes[1] = bytes[1];
    return st;
}

void team_close(struct team *team)
{
    const struct team_command quit = {.order = TEAM_QUIT};

    if (team->worker_count > 0) {
        give_order(team, &quit);
    }
    for (uint32_t r = 0; r < team->worker_count; r++) {
        int code = 0;

        if (waitpid(team->worker[r], &code, 0) == team->worker[r] &&
            code != 0) {
            (void)fprintf(stderr, "worker %u ended badly\n", r);
        }
    }
    for (uint32_t r = 0; r < TEAM_RANKS_MAX; r++) {
        segments_of(team)->close(team->segment[r]);
    }
    dyti_memory_host.close(team->control);
    if (team->board != NULL) {
        (void)munmap(team->board, sizeof(*team->board));
    }
    dyti_layout_destroy(team->layout[DYTI_ARENA_ROLLOUT]);
    dyti_layout_destroy(team->layout[DYTI_ARENA_TRAIN]);
    dyti_model_destroy(team->model);
    *team = (struct team){0};
}
