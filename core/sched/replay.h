/* Plays pieces on a cluster: when does each start and end?  A fluid model: a
 * piece has its link's speed, less where a host's NICs, the core of the fabric
 * or a link of one direction at a time are shared: then everybody on it gets
 * an equal part.
 * in: pieces   out: the certificate, explain/simulate.h */
#ifndef DYTI_SCHED_REPLAY_H
#define DYTI_SCHED_REPLAY_H

#include "sched/strategy.h"

#define DYTI_REPLAY_NONE UINT32_MAX

struct dyti_replay_span {
    double start_s;  /* both ends are free: the message is posted */
    double bytes_s;  /* the first byte leaves */
    double end_s;    /* the last byte has left: the ends are free */
    double arrive_s; /* and is there: what waits for it may start */
    /* Which piece was the last that it waited for; NONE: it started at once */
    uint32_t held_by;
};

/* Zeroed: no costs, no fences, nobody looks. */
struct dyti_replay_options {
    bool costs; /* links' latency and per-message cost count */
    /* Pieces from fence[k] on start after all before it have arrived: a wave
     * of staging memory.  Rising; borrowed. */
    const size_t *fence;
    size_t fence_count;
    void (*ended)(void *arg, size_t piece, const struct dyti_replay_span *span);
    void *arg;
};

/**
 * Play them in the order of strategy.h: a piece waits for the piece before it
 * at each of its two ends (per link class and direction), for its hop before,
 * for the waves below.  Pure.  Cost: O(n log n) where nothing is shared.
 *
 * @param out_seconds  when the last piece has arrived
 * @return DYT_ERR_INVALID  pieces wait in a circle or for later ones
 * @return DYT_ERR_NOMEM, DYT_ERR_OVERFLOW
 */
enum dyt_status dyti_replay(const struct dyti_cluster *cluster,
                            const struct dyti_piece *piece, size_t count,
                            const struct dyti_replay_options *options,
                            double *out_seconds);

/* ---- what waits for what: also for checks and tests --------------------- */

struct dyti_waits {
    uint32_t *count; /* [pieces]: pieces (and fences, waves) it waits for */
    uint32_t *next_send, *next_receive; /* [pieces] that wait for it, or NONE */
    uint32_t *next_hop;
    uint32_t wave_count;
    uint32_t *gate;      /* [wave_count][rank_count]: pieces of lower waves that
                            still go to that rank */
    uint32_t *gate_head; /* [wave_count][rank_count]: who waits for it, … */
    uint32_t *gate_next; /* … [pieces] */
};

enum dyt_status dyti_waits_build(const struct dyti_cluster *cluster,
                                 const struct dyti_piece *piece, size_t count,
                                 struct dyti_waits *out_waits);
void dyti_waits_fini(struct dyti_waits *waits);

/* Piece `index` has arrived: calls `ready` for each that waits for nothing
 * any more. `ends`: its two ends are free; `arrived`: its bytes are there. */
void dyti_waits_done(struct dyti_waits *waits,
                     const struct dyti_cluster *cluster,
                     const struct dyti_piece *piece, uint32_t index, bool ends,
                     bool arrived, void (*ready)(void *arg, uint32_t piece),
                     void *arg);

#endif /* DYTI_SCHED_REPLAY_H */
