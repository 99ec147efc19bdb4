/* What a worker does: opens its world as the workers of a job do, fills what is
 * its own, and sleeps on a futex between two orders. */
#include "comm/shm/shm.h"
#include "device/host/clock.h"
#include "device/host/host.h"
#include "device/host/memory.h"
#include "mover/direct/direct.h"
#include "mover/message/message.h"
#include "team_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

void team_work(const struct team *team, uint32_t rank)
{
    struct worker self = {.team = team, .rank = rank}, *worker = &self;
    struct team_board *board = team->board;
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
