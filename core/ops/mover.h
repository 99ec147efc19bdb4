/* What carries the bytes of a schedule.  Implemented by bridge/mover/<name>.
 *
 * Rules for all functions of the table
 *   threads  one mover is used by one thread at a time
 *   memory   no allocation in post and poll
 *   calls up a mover never calls back into the runtime */
#ifndef DYTI_OPS_MOVER_H
#define DYTI_OPS_MOVER_H

#include "ops/kernels.h"

#include <stddef.h>

#define DYTI_MOVER_CAP_PULL 1u /* reads a peer's memory */
#define DYTI_MOVER_CAP_PUSH 2u /* writes a peer's memory */

typedef uint64_t dyti_ticket;

struct dyti_mover_params {
    uint32_t struct_size;
    uint32_t rank, world_size;
    const struct dyti_kernels *kernels; /* borrowed until close */
};

/* A batch of strided copies between this rank's memory and one peer's, both
 * mapped here: src and dst in each copy are addresses of this process. */
struct dyti_move {
    uint32_t struct_size;
    uint32_t peer;
    const struct dyti_copy *copy; /* borrowed until the ticket completes */
    size_t copy_count;
};

struct dyti_mover_ops {
    uint32_t struct_size;
    const char *name;
    uint64_t caps;

    enum dyt_status (*open)(const struct dyti_mover_params *params,
                            void **out_self);
    void (*close)(void *self);
    /* DYT_PENDING: no room now, nothing was started; poll and try again. */
    enum dyt_status (*post)(void *self, const struct dyti_move *move,
                            dyti_ticket *out_ticket);
    /* DYT_PENDING while running; on DYT_OK all dst bytes are in place and
     * visible to every rank that passes a barrier afterwards. */
    enum dyt_status (*poll)(void *self, dyti_ticket ticket);
    /* Stop, and wait until no buffer is touched any more. */
    void (*cancel)(void *self);
};

#endif /* DYTI_OPS_MOVER_H */
