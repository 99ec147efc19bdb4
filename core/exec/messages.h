/* The messages of a switch on one rank: what is made ready once (messages.c)
 * and what every run does with it (move.c). */
#ifndef DYTI_EXEC_MESSAGES_H
#define DYTI_EXEC_MESSAGES_H

#include "exec/joint.h"
#include "exec/pack.h"
#include "exec/staging.h"

struct dyti_flight {
    uint32_t step;
    dyti_ticket ticket;
};

/* The payload of the one message that uses a slot now. */
struct dyti_payload {
    struct dyti_p2p_through through;
    const struct dyti_kernels *kernels;
    const struct dyti_stream_boxes *stream;
    struct dyti_stream_cursor cursor;
    uint64_t lo, next; /* bytes of the stream: of the message; the cursor's */
    bool is_send;
};

struct dyti_messages {
    const struct dyti_mover_ops *mover;
    void *mover_self;
    struct dyti_staging memory; /* slots, then buffers of joints */
    unsigned char *staging;     /* [schedule->staging_bytes] and more: there */
    struct dyti_joints joints;
    struct dyti_stream_boxes *stream; /* [stream_count], owned */
    uint32_t *link; /* [2 * world_size] next to post of each link, owned */
    bool *ready;    /* [step_count] may be posted when its turn comes, owned */
    struct dyti_flight flight[DYTI_SLOTS_MAX];
    uint32_t flight_count;
    bool refused; /* the mover had no room: something waits on some link */
    /* [step_count] of a MOVE whose payload goes through, and of the PACK or
     * UNPACK that has nothing left to do: its stream; of others DYTI_NO_STREAM.
     * NULL: none does.  Owned. */
    uint32_t *through;
    /* [part_count] likewise, of messages of a COLLECTIVE, and their payloads:
     * several may share a slot.  Owned. */
    uint32_t *part_through;
    struct dyti_payload *part_payload;
    struct dyti_payload payload[DYTI_SLOTS_MAX]; /* by slot */
};

#endif /* DYTI_EXEC_MESSAGES_H */
