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

static const struct team_device device = {.memory = &dyti_memory_cuda,
                                          .kernels = &dyti_kernels_cuda,
                                          .mover = &dyti_mover_direct_cuda};

/* The switch says how many bytes there are, and the memcpy moves as many. */
struct match {
    struct team *team;
    uint64_t bytes[2];
};

static uint32_t said(enum dyt_status st, const struct team_trip *trip,
                     double *out_values)
{
    if (st != DYT_OK) {
        (void)fprintf(stderr, "gpu: %s\n", dyti_error_text());
        return 0;
    }
    out_values[0] = (double)(trip->bytes[0] + trip->bytes[1]) /
                    (trip->seconds[0] + trip->seconds[1]) / 1e9;
    return 1;
}

static uint32_t turn_switch(void *arg, double *out_values, uint32_t most)
{
    const struct team_command how = {.verify = DYTI_VERIFY_SAMPLE};
    struct match *m = arg;
    struct team_trip trip = {0};
    enum dyt_status st = team_switch_trip(m->team, &how, &trip);

    (void)most;
    m->bytes[0] = trip.bytes[0];
    m->bytes[1] = trip.bytes[1];
    return said(st, &trip, out_values);
}

static uint32_t turn_memcpy(void *arg, double *out_values, uint32_t most)
{
    const struct match *m = arg;
    struct team_trip trip = {0};

    (void)most;
    return said(team_copy_trip(m->team, m->bytes, &trip), &trip, out_values);
}

static enum dyt_status measure(struct bench *bench, enum dyti_dtype dtype)
{
    struct team_shape shape = {
        .ranks = 4, .dtype = dtype, .pages = DYTI_PAGES_VMM, .device = &device};
    struct team team;
    struct match match = {.team = &team};
    struct player player[2] = {
        {.name = "switch", .turn = turn_switch, .arg = &match},
        {.name = "memcpy", .turn = turn_memcpy, .arg = &match}};
    enum dyt_status st;
    char name[96];

    (void)snprintf(name, sizeof(name), "switch %s 4 ranks %s",
                   bench->quick ? "tiny" : "1-gib", dyti_dtype_name(dtype));
    if (!bench_wants(bench, name)) {
        return DYT_OK;
    }
    st = team_open(&team, bench->quick ? &bench_tiny : &bench_gibibyte, &shape);
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
