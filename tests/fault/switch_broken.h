/* What goes wrong in a switch: a mover and a group of which the n-th copy, or
 * message, of the calling thread fails, gets lost, comes twice or late. */
#ifndef DYT_SWITCH_BROKEN_H
#define DYT_SWITCH_BROKEN_H

#include "switch_scene.h"

#include "mover/message/message.h"

enum fault {
    COPY_FAILS,
    COPY_HAS_NO_MEMORY,
    COPY_LOST,
    COPY_TWICE,
    COPY_LATE,
    BIT_FLIPS,
    TENSOR_STALE,
    DIES,
    COMMIT_FAILS,
    FAULTS, /* those of copies; these are of messages */
    MESSAGE_LOST = FAULTS,
    MESSAGE_TWICE,
    MESSAGE_LATE,
    ALL_FAULTS
};

static const char *const fault_name[ALL_FAULTS] = {
    "a copy fails",       "a copy has no memory",  "a copy is lost",
    "a copy comes twice", "a copy comes late",     "a bit flips",
    "a tensor is stale",  "a rank dies",           "the local copy fails",
    "a message is lost",  "a message comes twice", "a message comes late"};

/* ---- a mover that makes the n-th copy of this thread go wrong --------------
 */

static _Thread_local struct {
    enum fault fault;
    int64_t left; /* copies until then; < 0: never */
    bool deferred;
    struct dyti_move late;
} broken;

static inline enum dyt_status broken_open(
    const struct dyti_mover_params *params, void **out_self)
{
    return dyti_mover_direct.open(params, out_self);
}

static inline void broken_close(void *self)
{
    dyti_mover_direct.close(self);
}

static inline enum dyt_status broken_post(void *self,
                                          const struct dyti_move *move,
                                          dyti_ticket *out_ticket)
{
    enum dyt_status st;

    if (broken.left < 0 || broken.left-- > 0) {
        return dyti_mover_direct.post(self, move, out_ticket);
    }
    switch (broken.fault) {
    case COPY_FAILS:
        return DYTI_FAIL(DYT_ERR_DEVICE, "a copy from rank %u", move->peer);
    case COPY_HAS_NO_MEMORY:
        return DYTI_FAIL(DYT_ERR_NOMEM, "a copy from rank %u", move->peer);
    case COPY_LOST: {
        struct dyti_move nothing = {.struct_size = sizeof(nothing),
                                    .peer = move->peer};

        return dyti_mover_direct.post(self, &nothing, out_ticket);
    }
    case COPY_TWICE:
        st = dyti_mover_direct.post(self, move, out_ticket);
        return st != DYT_OK ? st
                            : dyti_mover_direct.post(self, move, out_ticket);
    default: /* late: when somebody asks whether it has come */
        broken.late = *move;
        broken.deferred = true;
        *out_ticket = 0;
        return DYT_OK;
    }
}

static inline enum dyt_status broken_poll(void *self, dyti_ticket ticket)
{
    if (broken.deferred) {
        enum dyt_status st;

        broken.deferred = false;
        st = dyti_mover_direct.post(self, &broken.late, &ticket);
        if (st != DYT_OK) {
            return st;
        }
    }
    return dyti_mover_direct.poll(self, ticket);
}

static inline void broken_cancel(void *self)
{
    dyti_mover_direct.cancel(self);
}

static const struct dyti_mover_ops broken_mover = {
    .struct_size = sizeof(struct dyti_mover_ops),
    .name = "broken",
    .caps = DYTI_MOVER_CAP_PULL | DYTI_MOVER_CAP_PUSH,
    .open = broken_open,
    .close = broken_close,
    .post = broken_post,
    .poll = broken_poll,
    .cancel = broken_cancel,
};

/* ---- a group that makes the n-th message of this thread go wrong ----------
 */

#define FAKE_TICKET UINT64_MAX

static _Thread_local struct {
    enum fault fault;
    int64_t left;
    uint32_t polls; /* until the late one is sent */
    struct dyti_p2p late;
    uint64_t ticket; /* of the late one; FAKE_TICKET: not sent yet */
} post;

static struct dyti_group_ops broken_group;

static inline enum dyt_status group_post(void *self,
                                         const struct dyti_p2p *message,
                                         uint64_t *out_ticket)
{
    enum dyt_status st;

    if (!message->is_send || post.left < 0 || post.left-- > 0) {
        return dyti_group_shm.post(self, message, out_ticket);
    }
    switch (post.fault) {
    case MESSAGE_LOST:
        *out_ticket = FAKE_TICKET;
        return DYT_OK;
    case MESSAGE_TWICE:
        st = dyti_group_shm.post(self, message, out_ticket);
        return st != DYT_OK ? st
                            : dyti_group_shm.post(self, message, out_ticket);
    default:
        post.late = *message;
        post.polls = 3;
        post.ticket = FAKE_TICKET;
        *out_ticket = FAKE_TICKET;
        return DYT_OK;
    }
}

static inline enum dyt_status group_poll(void *self, uint64_t ticket)
{
    enum dyt_status st;

    if (ticket != FAKE_TICKET) {
        return dyti_group_shm.poll(self, ticket);
    }
    if (post.fault == MESSAGE_LOST) {
        return DYT_OK;
    }
    if (post.ticket == FAKE_TICKET) {
        if (post.polls > 0) {
            post.polls--;
            return DYT_PENDING;
        }
        st = dyti_group_shm.post(self, &post.late, &post.ticket);
        if (st != DYT_OK) {
            return st;
        }
    }
    return dyti_group_shm.poll(self, post.ticket);
}

#endif /* DYT_SWITCH_BROKEN_H */
