/* What ranks do beside their links: memory that is read and written, or cores
 * that copy, pack and unpack.
 * in: what a simulation has   out: seconds of each rank, and who needs most */
#ifndef DYTI_EXPLAIN_WORK_H
#define DYTI_EXPLAIN_WORK_H

#include "explain/simulate.h"

struct dyti_work {
    double seconds;
    uint32_t at; /* rank; host */
    bool cores;  /* cores of a host, else memory of a rank */
};

/* piece: of all that moves.  Adds each rank's seconds to work_s [rank_count].
 * DYT_ERR_NOMEM. */
enum dyt_status dyti_work_of(const struct dyti_simulate_inputs *in,
                             const struct dyti_piece *piece, size_t count,
                             double *work_s, struct dyti_work *out_work);

#endif /* DYTI_EXPLAIN_WORK_H */
