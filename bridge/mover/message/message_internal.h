/* What the files of this folder share: the messages that are open, and what
 * each carries in front of its bytes. */
#ifndef DYTI_MOVER_MESSAGE_INTERNAL_H
#define DYTI_MOVER_MESSAGE_INTERNAL_H

#include "mover/message/message.h"

#define DYTI_MESSAGE_MAGIC      0x6479746d73673031u
#define DYTI_MESSAGE_TO_ALL     UINT32_MAX /* a head that several get */
#define DYTI_MESSAGE_FUSED_MAX  64u
#define DYTI_MESSAGE_LANDED_MAX 64u

struct dyti_message_head {
    uint64_t magic, epoch;
    uint64_t number; /* from 0, of this ordered pair in this switch */
    uint64_t bytes;  /* of the payload */
    uint32_t from, to;
};
_Static_assert(sizeof(struct dyti_message_head) <= DYTI_MOVER_HEAD_BYTES,
               "room of a head");

/* Several messages that end together. */
struct dyti_message_fused {
    uint64_t mark;
    uint32_t life, left; /* of its messages; 0: this place is free */
    enum dyt_status status;
};

struct dyti_message;

struct dyti_message_flight {
    uint64_t group_ticket, number;
    struct dyti_message_head *head;
    uint64_t bytes;
    struct dyti_p2p_through part; /* what the group asks: head and payload */
    const struct dyti_p2p_through *through; /* the payload, borrowed; or NULL */
    const struct dyti_message *mover;
    uint32_t peer;
    uint32_t to;    /* of the head: this rank, or DYTI_MESSAGE_TO_ALL */
    uint16_t fused; /* index + 1; 0: on its own */
    uint64_t mark;
    uint32_t life;  /* of this place; the ticket holds it */
    uint32_t place; /* in mover->open */
    uint16_t next;  /* of the free ones: index + 1 */
    bool open, is_send;
    bool foreign; /* its head is not the one that was due */
    /* Of a group of a device: `head`; else that is in front of the buffer. */
    _Alignas(16) unsigned char own[DYTI_MOVER_HEAD_BYTES];
};

struct dyti_message {
    struct dyti_group group; /* borrowed handle */
    uint32_t rank, world_size;
    bool is_device; /* the group's buffers are */
    uint64_t epoch;
    uint64_t *sent, *received; /* [world_size] posted in this switch, owned */
    uint16_t unused;           /* index + 1 */
    struct dyti_message_flight flight[DYTI_GROUP_POSTS];
    uint16_t open[DYTI_GROUP_POSTS]; /* [open_count] index + 1 */
    uint32_t open_count;
    struct dyti_message_fused fused[DYTI_MESSAGE_FUSED_MAX];
};

/* ---- message.c: what its group can -------------------------------------- */

/* Payloads go through: DYTI_GROUP_CAP_THROUGH. */
bool dyti_message_through(const void *self);
/* Collectives as such. */
bool dyti_message_joint(const void *self);

/* ---- post.c -------------------------------------------------------------- */

enum dyt_status dyti_message_post(void *self, const struct dyti_move *move,
                                  dyti_ticket *out_ticket);

/* ---- poll.c -------------------------------------------------------------- */

enum dyt_status dyti_message_poll(void *self, dyti_ticket ticket);
enum dyt_status dyti_message_landed(void *self, uint64_t *mark, uint32_t cap,
                                    uint32_t *out_count);

#endif /* DYTI_MOVER_MESSAGE_INTERNAL_H */
