#include "host_crew.h"

#include "bench.h"
#include "comm/gloo/gloo.h"
#include "comm/shm/shm.h"
#include "device/host/clock.h"
#include "device/host/host.h"
#include "device/host/memory.h"
#include "edm/world.h"
#include "mover/direct/direct.h"
#include "mover/message/message.h"
#include "plan/traffic.h"
#include "sched/certificate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define INSIDE_BYTES_PER_S 4e9 /* of a rank, by mapped memory */
#define PAGE_BYTES         4096u
#define HOSTS              2u

struct host_turn {
    enum dyti_arena_slot from, to;
    enum dyti_verify verify;
    uint32_t strategy;
    uint64_t epoch;
    char text[512]; /* of a rank that failed */
};

/* ---- a rank ------------------------------------------------------------- */

struct rank {
    const struct host_crew *crew;
    uint32_t rank;
    struct dyti_kernels kernels;
    struct dyti_world *world;
    struct dyti_cluster cluster;
    uint32_t host[CREW_RANKS];
};

static char own_address[16]; /* of this process, for groups that it opens */

static enum dyt_status open_here(const struct dyti_group_params *params,
                                 void **out_self)
{
    struct dyti_group_params here = *params;

    here.address = own_address;
    return dyti_group_gloo.open(&here, out_self);
}

static void describe(const struct host_crew *crew, uint32_t *host,
                     struct dyti_cluster *out)
{
    for (uint32_t r = 0; r < crew->ranks; r++) {
        host[r] = r * HOSTS / crew->ranks;
    }
    *out = (struct dyti_cluster){.name = "two hosts",
                                 .rank_count = crew->ranks,
                                 .host_count = HOSTS,
                                 .host = host};
    for (int c = 0; c < DYTI_LINK_CLASS_COUNT; c++) {
        out->link[c].bytes_per_s = INSIDE_BYTES_PER_S;
    }
    out->link[DYTI_LINK_NIC] = (struct dyti_link_speed){
        .bytes_per_s = crew->cables.mbit_per_s * 1e6 / 8, .latency_s = 2e-4};
    if (crew->cables.count == HOSTS) {
        out->host_nic_bytes_per_s = out->link[DYTI_LINK_NIC].bytes_per_s;
    }
}

static enum dyt_status open_rank(struct rank *self,
                                 const struct dyti_group_ops *group)
{
    const struct host_crew *crew = self->crew;
    const struct dyti_layout *layout[DYTI_ARENA_SLOT_COUNT] = {0};
    struct dyti_kernel_params kernel = {.struct_size = sizeof(kernel)};
    enum dyti_page_kind pages[CREW_RANKS] = {DYTI_PAGES_4K};
    struct dyti_arena_map map[CREW_RANKS];
    struct dyti_world_params params = {.struct_size = sizeof(params),
                                       .rank = self->rank,
                                       .world_size = crew->ranks,
                                       .map = map,
                                       .control_handle = crew->control,
                                       .control_pages = DYTI_PAGES_4K,
                                       .segment_handle = crew->segment,
                                       .segment_pages = pages,
                                       .memory = &dyti_memory_host,
                                       .group = group,
                                       .mover = &dyti_mover_direct,
                                       .message = &dyti_mover_message,
                                       .host = self->host,
                                       .cluster = &self->cluster,
                                       .wait = &dyti_wait_futex,
                                       .clock = &dyti_clock_host,
                                       .timeout_ns = 60000000000,
                                       .oversubscribed = true};
    enum dyt_status st = DYT_OK;

    layout[DYTI_ARENA_TRAIN] = crew->layout[0];
    layout[DYTI_ARENA_ROLLOUT] = crew->layout[1];
    memcpy(params.layout, layout, sizeof(layout));
    for (uint32_t r = 0; r < crew->ranks && st == DYT_OK; r++) {
        pages[r] = DYTI_PAGES_4K;
        st = dyti_arena_map_build(layout, r, 0, &map[r]);
    }
    self->kernels.ops = &dyti_kernels_host;
    st = st != DYT_OK ? st
                      : self->kernels.ops->open(&kernel, &self->kernels.self);
    params.kernels = self->kernels;
    return st != DYT_OK ? st : dyti_world_open(&params, &self->world);
}

static void fill_sources(const struct rank *self)
{
    static const enum dyti_kind kinds[] = {DYTI_PARAM, DYTI_MASTER};
    const struct dyti_view *view =
        dyti_layout_view(self->crew->layout[0], self->rank);

    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        float *at = dyti_world_region(self->world, self->rank, DYTI_ARENA_TRAIN,
                                      kinds[k]);
        uint64_t count = view->region_bytes[kinds[k]] / sizeof(float);

        for (uint64_t i = 0; at != NULL && i < count; i++) {
            at[i] = (float)(i % 8191) * 0.001f;
        }
    }
}

static enum dyt_status do_turn(const struct rank *self,
                               const struct host_turn *turn)
{
    struct dyti_switch_order order = {.epoch = turn->epoch,
                                      .version = turn->epoch,
                                      .verify = turn->verify,
                                      .unmanaged = true};
    struct dyti_world_switch_options options = {
        .mover = DYTI_WORLD_AUTO, .strategy = dyti_strategy_at(turn->strategy)};
    struct dyti_switch_report report;
    struct dyti_switch *one = NULL;
    enum dyt_status st = dyti_world_prepare(self->world, turn->from, turn->to,
                                            &options, &one, NULL);

    return st == DYT_OK ? dyti_switch_run(one, &order, &report) : st;
}

static void be_rank(void *arg, uint32_t number, struct crew *crew)
{
    const struct host_crew *team = arg;
    struct rank self = {.crew = team, .rank = number};
    uint32_t end = team->cables.count * number / team->ranks;
    struct dyti_group_ops group = dyti_group_gloo;
    enum dyt_status st = DYT_OK;

    group.open = open_here;
    cables_address(end, own_address, sizeof(own_address));
    describe(team, self.host, &self.cluster);
    if (!crew_wait(crew, number)) {
        return;
    }
    st = cables_enter(&team->cables, end)
             ? open_rank(&self, &group)
             : DYTI_FAIL(DYT_ERR_UNSUPPORTED, "rank %u has no host", number);
    if (st == DYT_OK) {
        fill_sources(&self);
    }
    do { /* the first turn is to open */
        if (st != DYT_OK) {
            (void)snprintf(team->turn->text, sizeof(team->turn->text),
                           "rank %u: %s", number, dyti_error_text());
        }
        crew_done(crew, number, 0, st == DYT_OK);
        if (st != DYT_OK || !crew_wait(crew, number)) {
            break;
        }
        st = do_turn(&self, team->turn);
    } while (true);
    dyti_world_close(self.world);
    if (self.kernels.self != NULL) {
        self.kernels.ops->close(self.kernels.self);
    }
}

/* ---- the one who orders -------------------------------------------------- */

static enum dyt_status turn(struct host_crew *self, double *out_seconds)
{
    double start = bench_seconds(), of_rank;

    if (!crew_turn(self->crew, &of_rank)) {
        return DYTI_FAIL(DYT_ERR_PEER, "%s",
                         self->turn->text[0] == '\0' ? "a rank is gone"
                                                     : self->turn->text);
    }
    *out_seconds = bench_seconds() - start;
    return DYT_OK;
}

/* Parameters in both; ZeRO's owners keep the copy that they come from. */
static enum dyt_status build_layout(const struct host_crew *self,
                                    const struct host_layout *degrees,
                                    bool trains, struct dyti_layout **out)
{
    struct dyti_layout_desc desc = {.phase = trains ? "train" : "rollout",
                                    .world_size = self->ranks,
                                    .tp = degrees->tp,
                                    .pp = degrees->pp,
                                    .dp = degrees->dp,
                                    .zero = degrees->zero};

    for (int k = 0; k < DYTI_KIND_COUNT; k++) {
        desc.residency[k] = trains ? DYTI_DROPPED : DYTI_PARKED;
        desc.dtype[k] = DYTI_F32;
    }
    desc.residency[DYTI_PARAM] = DYTI_HELD;
    if (trains && degrees->zero > 0) {
        desc.residency[DYTI_MASTER] = DYTI_HELD;
    }
    return dyti_layout_build(self->model, &desc, out);
}

static enum dyt_status make_segments(struct host_crew *self)
{
    const struct dyti_memory_ops *memory = &dyti_memory_host;
    const struct dyti_layout *layout[DYTI_ARENA_SLOT_COUNT] = {0};
    uint64_t bytes = 0;
    enum dyt_status st;

    layout[DYTI_ARENA_TRAIN] = self->layout[0];
    layout[DYTI_ARENA_ROLLOUT] = self->layout[1];
    st =
        dyti_world_control_bytes(layout, self->ranks, &dyti_group_gloo, &bytes);
    st = st != DYT_OK
             ? st
             : memory->create("bench-control", DYTI_PAGES_4K, &self->control);
    st = st != DYT_OK
             ? st
             : memory->resize(self->control, DYTI_PAGES_4K, bytes, NULL, 0);
    for (uint32_t r = 0; r < self->ranks && st == DYT_OK; r++) {
        st = memory->create("bench-rank", DYTI_PAGES_4K, &self->segment[r]);
    }
    return st;
}

enum dyt_status host_crew_open(struct host_crew *self,
                               const struct dyti_arch *arch,
                               uint32_t ranks_of_host, bool shared,
                               uint32_t mbit_per_s,
                               const struct host_layout *train,
                               const struct host_layout *rollout)
{
    enum dyt_status st;
    double seconds;

    *self = (struct host_crew){.ranks = HOSTS * ranks_of_host, .control = -1};
    for (uint32_t r = 0; r < CREW_RANKS; r++) {
        self->segment[r] = -1;
    }
    if (!cables_lay(&self->cables, shared ? HOSTS : self->ranks, mbit_per_s)) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED, "no hosts to switch between");
    }
    st = dyti_model_build(arch, &self->model);
    st = st != DYT_OK ? st : build_layout(self, train, true, &self->layout[0]);
    st = st != DYT_OK ? st
                      : build_layout(self, rollout, false, &self->layout[1]);
    st = st != DYT_OK ? st : make_segments(self);
    if (st == DYT_OK) {
        self->turn = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (self->turn == MAP_FAILED) {
            self->turn = NULL;
            st = DYTI_FAIL(DYT_ERR_NOMEM, "a page to share");
        }
    }
    if (st == DYT_OK) {
        self->crew = crew_start(self->ranks, be_rank, self);
        st = self->crew != NULL ? turn(self, &seconds)
                                : DYTI_FAIL(DYT_ERR_NOMEM, "no ranks");
    }
    if (st != DYT_OK) {
        host_crew_close(self);
    }
    return st;
}

void host_crew_close(struct host_crew *self)
{
    crew_stop(self->crew);
    for (uint32_t r = 0; r < CREW_RANKS; r++) {
        dyti_memory_host.close(self->segment[r]);
    }
    dyti_memory_host.close(self->control);
    cables_close(&self->cables);
    if (self->turn != NULL) {
        (void)munmap(self->turn, PAGE_BYTES);
    }
    dyti_layout_destroy(self->layout[0]);
    dyti_layout_destroy(self->layout[1]);
    dyti_model_destroy(self->model);
    *self = (struct host_crew){0};
}

enum dyt_status host_crew_switch(struct host_crew *self, uint32_t strategy,
                                 bool back, bool verify_all,
                                 double *out_seconds)
{
    self->turn->from = back ? DYTI_ARENA_ROLLOUT : DYTI_ARENA_TRAIN;
    self->turn->to = back ? DYTI_ARENA_TRAIN : DYTI_ARENA_ROLLOUT;
    self->turn->strategy = strategy;
    self->turn->verify = verify_all ? DYTI_VERIFY_FULL : DYTI_VERIFY_SAMPLE;
    self->turn->epoch++;
    return turn(self, out_seconds);
}

enum dyt_status host_crew_bound(const struct host_crew *self, bool back,
                                double *out_seconds)
{
    uint32_t host[CREW_RANKS];
    struct dyti_cluster cluster;
    const struct dyti_traffic_options options = {.cluster = &cluster,
                                                 .fan_out = true};
    struct dyti_plan_inputs inputs;
    struct dyti_traffic *traffic = NULL;
    struct dyti_flow *flow = NULL;
    struct dyti_busiest busiest = {0};
    size_t count = 0;
    enum dyt_status st = dyti_plan_inputs_init(
        self->layout[back], back ? DYTI_ARENA_ROLLOUT : DYTI_ARENA_TRAIN,
        self->layout[!back], back ? DYTI_ARENA_TRAIN : DYTI_ARENA_ROLLOUT,
        DYTI_PLAN_KINDS_STATE, &inputs);

    describe(self, host, &cluster);
    st = st != DYT_OK ? st : dyti_traffic_build(&inputs, &options, &traffic);
    st = st != DYT_OK ? st : dyti_traffic_flows(traffic, &flow, &count);
    st = st != DYT_OK ? st
                      : dyti_busiest_of_flows(&cluster, flow, count, &busiest);
    *out_seconds = busiest.seconds;
    free(flow);
    dyti_traffic_destroy(traffic);
    return st;
}
