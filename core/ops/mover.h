/* What carries the bytes of a schedule.  Implemented by bridge/mover/<name>.
 *
 * Rules for all functions of the table
 *   threads  one mover is used by one thread at a time
 *   memory   no allocation in post and poll
 *   calls up a mover never calls back into the runtime, but for the parts of a
 *            message that was posted with `through` */
#ifndef DYTI_OPS_MOVER_H
#define DYTI_OPS_MOVER_H

#include "ops/group.h"
#include "ops/kernels.h"

#include <stddef.h>

#define DYTI_MOVER_CAP_PULL    1u /* reads a peer's memory */
#define DYTI_MOVER_CAP_PUSH    2u /* writes a peer's memory */
#define DYTI_MOVER_CAP_MESSAGE 4u /* sends and receives dense bytes */
/* post() queues behind what the kernels of its params have queued so far, and
 * before what they queue from then on: it is done when they have passed a later
 * mark, and its tickets need not be asked for. */
#define DYTI_MOVER_CAP_QUEUED 8u

/* Bytes before the buffer of a message that are the mover's own. */
#define DYTI_MOVER_HEAD_BYTES 64u

typedef uint64_t dyti_ticket;

struct dyti_mover_params {
    uint32_t struct_size;
    uint32_t rank, world_size;
    const struct dyti_kernels *kernels; /* borrowed until close */
    const struct dyti_group *group; /* MESSAGE: all ranks, by rank; borrowed */
};

enum dyti_move_kind {
    DYTI_MOVE_COPY, /* PULL, PUSH */
    DYTI_MOVE_SEND, /* MESSAGE */
    DYTI_MOVE_RECV,
    DYTI_MOVE_COLLECTIVE /* MESSAGE: this rank's part of a fused exchange */
};

/* One message of a COLLECTIVE; fields as in struct dyti_move.  Sends may share
 * a buffer, with the head before it. */
struct dyti_move_part {
    uint32_t peer;
    bool is_send;
    void *buf;
    const struct dyti_p2p_through *through;
};

/* COPY: a batch of strided copies between this rank's memory and one peer's,
 * both mapped here: src and dst in each copy are addresses of this process.
 * SEND, RECV: one message of dense bytes; those of one ordered pair of ranks
 * are posted in the same order on both sides.
 * COLLECTIVE: several messages of `size_bytes` each, at most one to and one
 * from a rank, all posted at once; one ticket, done when all are.  Or one call
 * of a team, which the group makes.  Every member of it gives the same
 * `number`. */
struct dyti_move {
    uint32_t struct_size;
    uint32_t peer;
    const struct dyti_copy *copy; /* borrowed until the ticket completes */
    size_t copy_count;
    struct dyti_copy_list *list; /* the same, made by the kernels of the mover's
                                    params; NULL: they have made none */
    enum dyti_move_kind kind;
    void *buf; /* DYTI_MOVER_HEAD_BYTES before it are written too, unless the
                  mover is queued(); borrowed until the ticket completes */
    uint64_t size_bytes;
    /* SEND, RECV of movers whose through() says so: the bytes come from there
     * and not from `buf`, whose head alone is used; borrowed until the ticket
     * completes. */
    const struct dyti_p2p_through *through;
    uint64_t mark; /* SEND, RECV, COLLECTIVE: the caller's own, that landed()
                      gives back */
    const struct dyti_move_part *part; /* COLLECTIVE: borrowed for the call */
    uint32_t part_count;               /* at least 1, if there is no joint */
    uint32_t number;
    /* COLLECTIVE of movers whose joint() says so: the group does all of it, and
     * there are no parts.  `epoch` and `number` are filled in here.  NULL: by
     * messages. */
    const struct dyti_joint *joint;
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
     * visible to every rank that passes a barrier afterwards.  A ticket that
     * was answered with anything else is spent.
     * DYT_ERR_PEER: a message is missing, came twice or is another's: named */
    enum dyt_status (*poll)(void *self, dyti_ticket ticket);
    /* Stop, and wait until no buffer is touched any more. */
    void (*cancel)(void *self);

    /* Only of movers with DYTI_MOVER_CAP_MESSAGE, else NULL.
     * begin  before the ranks meet for switch `epoch`, on all of them: nothing
     *        of an earlier switch is taken for one of this
     * wait   sleep until something may have moved, at most 40 ms; statuses of
     *        the group's wait() */
    void (*begin)(void *self, uint64_t epoch);
    enum dyt_status (*wait)(void *self);
    /* Does post() take a move's `through`?  NULL: no. */
    bool (*through)(const void *self);
    /* Instead of poll() for each: one look; the marks of at most `cap` messages
     * that have ended, whose tickets are spent.  NULL: there is no such way. */
    enum dyt_status (*landed)(void *self, uint64_t *mark, uint32_t cap,
                              uint32_t *out_count);
    /* Do messages come after what kernels have queued, and need not wait for
     * it?  Their buffers are a device's, and all but the head of a message is
     * there.  NULL: no. */
    bool (*queued)(const void *self);
    /* Does post() take a move's `joint`?  NULL: no. */
    bool (*joint)(const void *self);
    /* Memory that messages will often come from or go to, until detach(), which
     * comes before it is given back.  A hint.  NULL: of no use. */
    void (*attach)(void *self, void *base, uint64_t size_bytes);
    void (*detach)(void *self, void *base);
};

#endif /* DYTI_OPS_MOVER_H */
