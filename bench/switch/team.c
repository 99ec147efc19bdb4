/* The one who orders: forks the workers before anything else runs, hands each
 * order to all of them and waits until they are done. */
#include "team.h"

#include "bench.h"
#include "comm/shm/shm.h"
#include "device/host/memory.h"
#include "team_internal.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

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
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            team_work(team, r);
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
