/* What those who work and the one who orders share. */
#ifndef DYT_BENCH_TEAM_INTERNAL_H
#define DYT_BENCH_TEAM_INTERNAL_H

#include "team.h"

struct team_board {
    _Alignas(64) _Atomic uint32_t order; /* counts; futex */
    struct team_command command;
    _Alignas(64) _Atomic uint32_t done; /* workers, over all orders; futex */
    _Alignas(64) int32_t status[TEAM_RANKS_MAX];
    uint64_t bytes[TEAM_RANKS_MAX];
    char text[TEAM_RANKS_MAX][256];
};

/* A worker's life, in its own process: until it is told to quit, or fails. */
void team_work(const struct team *team, uint32_t rank);

#endif /* DYT_BENCH_TEAM_INTERNAL_H */
