/* Switches of four ranks on one GPU, a process each: rollout TP 4 <-> train
 * PP 2 x DP 2 with ZeRO-1.  The opponent is the device's memcpy of as many
 * bytes by the same processes, in turns. */
#include "gpu.h"

#include "bench/switch/team.h"
#include "contest.h"
#include "device/cuda/memory.h"
#include "device/cuda/table.h"
#include "mover/direct_cuda/direct_cuda.h"
#include "shapes.h"

#include <stdio.h>

static const struct dyti_arch gibibyte = {.family = DYTI_LLAMA,
                                          .vocab = 24576,
                                          .hidden = 1024,
                                          .layers = 16,
                                          .q_heads = 16,
                                          .kv_heads = 4,
                                          .head_dim = 64,
                                          .ffn = 4096,
                                          .max_positions = 4096,
                                          .rms_eps = 1e-5,
                                          .init_std = 0.02,
                                          .rope = {.theta = 10000},
                                          .tied = true};

static const struct team_device device = {.memory = &dyti_memory_cuda,
                                          .kernels = &dyti_kernels_cuda,
                                          .mover = &dyti_mover_direct_cuda};

struct trip {
    struct team *team;
    uint64_t bytes[2]; /* of the way there and back: (read + written) / 2 */
};

static uint32_t said(enum dyt_status st, const struct trip *t, double seconds,
                     double *out_values)
{
    if (st != DYT_OK) {
        (void)fprintf(stderr, "gpu: %s\n", dyti_error_text());
        return 0;
    }
    out_values[0] = (double)(t->bytes[0] + t->bytes[1]) / seconds / 1e9;
    return 1;
}

static uint32_t turn_switch(void *arg, double *out_values, uint32_t most)
{
    struct trip *t = arg;
    double there = 0, back = 0;
    struct team_command c = {.order = TEAM_SWITCH,
                             .from = DYTI_ARENA_TRAIN,
                             .to = DYTI_ARENA_ROLLOUT,
                             .verify = DYTI_VERIFY_SAMPLE};
    enum dyt_status st = team_run(t->team, &c, &there, &t->bytes[0]);

    (void)most;
    c.from = DYTI_ARENA_ROLLOUT;
    c.to = DYTI_ARENA_TRAIN;
    if (st == DYT_OK) {
        st = team_run(t->team, &c, &back, &t->bytes[1]);
    }
    t->bytes[0] /= 2;
    t->bytes[1] /= 2;
    return said(st, t, there + back, out_values);
}

static uint32_t turn_memcpy(void *arg, double *out_values, uint32_t most)
{
    struct trip *t = arg;
    double there = 0, back = 0;
    struct team_command c = {.order = TEAM_MEMCPY,
                             .from = DYTI_ARENA_TRAIN,
                             .to = DYTI_ARENA_ROLLOUT,
                             .kind = DYTI_MASTER,
                             .bytes = t->bytes[0]};
    enum dyt_status st = team_run(t->team, &c, &there, NULL);

    (void)most;
    c.from = DYTI_ARENA_ROLLOUT;
    c.to = DYTI_ARENA_TRAIN;
    c.kind = DYTI_PARAM;
    c.bytes = t->bytes[1];
    if (st == DYT_OK) {
        st = team_run(t->team, &c, &back, NULL);
    }
    return said(st, t, there + back, out_values);
}

static enum dyt_status measure(struct bench *bench, enum dyti_dtype dtype)
{
    struct team_shape shape = {
        .ranks = 4, .dtype = dtype, .pages = DYTI_PAGES_VMM, .device = &device};
    struct team team;
    struct trip trip = {.team = &team};
    struct player player[2] = {
        {.name = "switch", .turn = turn_switch, .arg = &trip},
        {.name = "memcpy", .turn = turn_memcpy, .arg = &trip}};
    enum dyt_status st;
    char name[96];

    (void)snprintf(name, sizeof(name), "switch %s 4 ranks %s",
                   bench->quick ? "tiny" : "1-gib", dyti_dtype_name(dtype));
    if (!bench_wants(bench, name)) {
        return DYT_OK;
    }
    st = team_open(&team, bench->quick ? &bench_tiny : &gibibyte, &shape);
    if (st != DYT_OK) {
        return st;
    }
    contest(player, 2, bench_rounds(bench, bench->quick ? 1 : 9));
    team_close(&team);
    if (player[0].out || player[1].out) {
        return DYTI_FAIL(DYT_ERR_DEVICE, "%s ended early", name);
    }
    bench_record(bench, name, contest_median(&player[0]), "device memcpy",
                 contest_median(&player[1]), 0, "GB/s");
    return DYT_OK;
}

enum dyt_status gpu_bench_switch(struct bench *bench)
{
    enum dyt_status st = measure(bench, DYTI_F32);

    return st == DYT_OK ? measure(bench, DYTI_BF16) : st;
}
