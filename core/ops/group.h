/* Collectives among the ranks of one group.  Implemented by bridge/comm/<name>,
 * handed in by cli/.
 *
 * Rules for all functions of the table
 *   threads   one group handle is used by one thread at a time
 *   order     all members call the same collectives in the same order
 *   blocking  everything may block; every wait watches the abort word and the
 *             deadline, and returns DYT_ERR_PEER (naming the rank) within
 *             100 ms of an abort, DYT_ERR_TIMEOUT after the deadline
 *   bits      a reduction gives the same bits on all members and on
 *             repetition; with DYTI_GROUP_CAP_RANK_ORDER the sum is taken in
 *             member order: ((x0 + x1) + x2) + …
 *   buffers   borrowed for the call; in and out may be the same pointer where
 *             the comment says so, and never overlap otherwise
 */
#ifndef DYTI_OPS_GROUP_H
#define DYTI_OPS_GROUP_H

#include "base/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DYTI_GROUP_CAP_RANK_ORDER 1u
#define DYTI_GROUP_CAP_THROUGH    2u /* post() honours dyti_p2p.through */
/* Buffers of all calls are memory of the device on which the member opened the
 * group (or of which that device may read and write); a call comes after what
 * is queued on dyti_group_params.stream, and on DYT_OK all is there for any
 * stream and for the host. */
#define DYTI_GROUP_CAP_DEVICE 4u

/* The one abort word that every wait watches, in memory shared by all ranks:
 * 0 = go on, otherwise (rank + 1) << 32 | (uint32_t)-status. */
struct dyti_abort_word {
    _Atomic uint64_t value;
};

static inline uint64_t dyti_abort_pack(uint32_t rank, enum dyt_status status)
{
    return ((uint64_t)rank + 1) << 32 | (uint32_t)(-(int)status);
}

struct dyti_group;

enum dyti_reduce { DYTI_SUM_F32, DYTI_SUM_F64, DYTI_MAX_F32, DYTI_MAX_U64 };

struct dyti_group_params {
    uint32_t struct_size;
    const char *name; /* "tp", "dp", …: for messages; borrowed until close */
    uint32_t rank, size; /* member number and count */
    const uint32_t
        *world_rank;       /* [size] of each member, for messages; copied */
    void *shared;          /* the group's region, the same memory for all */
    uint64_t shared_bytes; /* >= region_bytes(size) */
    struct dyti_abort_word *abort; /* borrowed until close */
    int64_t timeout_ns;            /* of one wait; <= 0: none */
    bool oversubscribed; /* more ranks than cores: sleep at once, never spin */
    const char *address; /* of this member, for groups that go over a network;
                            NULL: this host's own loopback; copied */
    /* `shared` is a copy of this member's own, because the members are on
     * several hosts: the caller carries what a member leaves in its part to the
     * others' copies while they open, and so it does not tell who is late.
     * `abort` is then this host's alone: a lost connection is not waited on. */
    bool apart;
    void (*changed)(void *arg); /* apart: this member's part has; any thread */
    void *changed_arg;
    /* DYTI_GROUP_CAP_DEVICE: the cudaStream_t on which the caller queues the
     * work that fills and reads buffers; NULL: the default stream.  Borrowed
     * until close.  Other groups do not look at it. */
    void *stream;
    /* A handle of an open group that has all of these members: this group is
     * made of it.  All members of `parent` come to it together, those of one
     * new group with one `color`, and those that are in none by stand_by().
     * NULL, or a table without stand_by(): on its own. */
    void *parent;
    uint32_t color;
    /* apart, of groups that meet in memory that their members share (nccl): a
     * group of hosts of the same members, by the same numbers, that takes
     * post(): through it goes what would lie there.  It is this group's alone,
     * on all of them, until close.  `shared` then is this member's own, and
     * nobody need carry it. */
    const struct dyti_group *carrier;
};

/* Where the bytes of a message lie, if not in a buffer: the group asks for a
 * part when it has room for it, or hands out one that has come, in memory that
 * the members share.  Parts of a message come in order and do not overlap; a
 * message that is posted twice is asked for twice. */
struct dyti_p2p_through {
    /* Bytes [at, at + bytes) of the message: write them to `dense`, or take
     * them from there.  It may not call the group.  An error ends the poll. */
    enum dyt_status (*part)(void *arg, uint64_t at, void *dense,
                            uint64_t bytes);
    void *arg;
};

#define DYTI_P2P_HEAD_BYTES 64u

/* One message of an exchange. */
struct dyti_p2p {
    uint32_t peer; /* member number */
    bool is_send;
    void *buf; /* read only if is_send */
    uint64_t size_bytes;
    /* Instead of `buf`, for post() of groups with DYTI_GROUP_CAP_THROUGH;
     * borrowed until the ticket is done. */
    const struct dyti_p2p_through *through;
    /* DYTI_P2P_HEAD_BYTES of the host that go with the message, for post() of
     * groups with DYTI_GROUP_CAP_DEVICE: read by the call if is_send, else
     * written before the ticket is done.  NULL: none. */
    void *head;
};

/* A collective of a team that travels as messages do: each member posts its
 * part, and has a ticket for it. */
enum dyti_joint_kind {
    DYTI_JOINT_BROADCAST, /* buf: the same size_bytes on all, the root's go */
    DYTI_JOINT_ALL_GATHER /* buf: a part of size_bytes for each of the team, in
                             its order; one's own is filled */
};

struct dyti_joint {
    enum dyti_joint_kind kind;
    void *team;    /* of make_team(); NULL: all members of the group */
    uint32_t root; /* BROADCAST: number in the team */
    /* Which one it is, the same on all of the team, and never the same twice:
     * the order in which members post them is theirs. */
    uint64_t epoch, number;
    void *buf; /* borrowed until the ticket is done */
    uint64_t size_bytes;
};

/* Messages of one member that may be in flight by post() and post_joint(). */
#define DYTI_GROUP_POSTS 256u

/* What a backend's library is on this machine. */
struct dyti_group_report {
    const char *state; /* "ready", "no library", … */
    uint32_t version;  /* as the library counts; 0: not known */
    char text[512];    /* what is there, or what is wrong and its remedy */
};

struct dyti_group_traffic { /* bytes this member wrote for and read from others
                             */
    uint64_t sent_bytes, received_bytes, calls;
};

struct dyti_group_ops {
    uint32_t struct_size;
    const char *name; /* "shm", "gloo", … */
    uint64_t caps;    /* DYTI_GROUP_CAP_* */

    /* Bytes of shared memory that a group of `size` needs; 0 = none.  The
     * memory is zero before the first member opens it. */
    uint64_t (*region_bytes)(uint32_t size);
    /* Collective over the members. */
    enum dyt_status (*open)(const struct dyti_group_params *params,
                            void **out_self);
    void (*close)(void *self); /* not collective, cannot fail */

    enum dyt_status (*barrier)(void *self);
    enum dyt_status (*broadcast)(void *self, void *buf, uint64_t size_bytes,
                                 uint32_t root);
    /* out: members' inputs in order; counts_bytes[m] from member m.  `in` may
     * be this member's place in `out`. */
    enum dyt_status (*all_gather)(void *self, const void *in, void *out,
                                  const uint64_t *counts_bytes);
    /* in: [sum of counts] elements; out: this member's counts[rank] elements
     * of the reduction.  `out` may be this member's place in `in`. */
    enum dyt_status (*reduce_scatter)(void *self, const void *in, void *out,
                                      const uint64_t *counts,
                                      enum dyti_reduce op);
    enum dyt_status (*all_reduce)(void *self, void *buf, uint64_t count,
                                  enum dyti_reduce op);
    /* All messages make progress together, so that a cycle of sends and
     * receives cannot deadlock.  Messages of one ordered pair arrive in
     * order, and sizes must match on both sides. */
    enum dyt_status (*exchange)(void *self, const struct dyti_p2p *message,
                                size_t count);

    void (*traffic)(void *self, struct dyti_group_traffic *out_traffic);

    /* Messages that travel while the caller works: post, then poll now and
     * then.  Order and sizes as in exchange(); its messages and these never
     * are under way together, other collectives may be.  `message` is borrowed
     * for the call, its buffer until the ticket is done.  None of these calls
     * blocks but wait(), and none allocates where the backend is of one host.
     *
     * post    DYT_PENDING: DYTI_GROUP_POSTS are in flight; poll, try again
     * poll    DYT_OK: done, the ticket is spent; DYT_PENDING: not yet.  All
     *         that is in flight moves on, whichever ticket is asked for.
     * wait    sleep until something may have moved, at most 40 ms.
     *         DYT_ERR_PEER after an abort; DYT_ERR_TIMEOUT, with the rank, when
     *         nothing has moved for the group's timeout
     * landed  one look at all that is in flight; the tickets of at most
     *         `cap` messages that have ended, which are spent.  Costs what has
     *         moved.  NULL: poll() each
     * cancel  forget what is in flight, and drop what has come and nobody
     *         received.  For when no member sends: all call it, then meet */
    enum dyt_status (*post)(void *self, const struct dyti_p2p *message,
                            uint64_t *out_ticket);
    enum dyt_status (*poll)(void *self, uint64_t ticket);
    enum dyt_status (*wait)(void *self);
    void (*cancel)(void *self);
    enum dyt_status (*landed)(void *self, uint64_t *ticket, uint32_t cap,
                              uint32_t *out_count);

    /* ---- each may be NULL ---- */

    /* As params.parent says: this member of `parent` is in no new group. */
    enum dyt_status (*stand_by)(void *parent);
    /* Memory of the device that messages will often come from or go to, until
     * close or detach().  Not collective; a hint, that changes no result. */
    enum dyt_status (*attach)(void *self, void *base, uint64_t size_bytes);
    void (*detach)(void *self, void *base);
    /* Finds the library that the backend opens when it is asked for. */
    void (*probe)(struct dyti_group_report *out_report);

    /* Members that have collectives of their own, by post_joint().  Collective
     * over the group: those of one team come with one `color`, and with equal
     * lists of its members (in their order in it; copied); who is in none, with
     * size 0.  Teams live as long as the group, and break with it.  NULL, and
     * post_joint as well: there are none, use messages. */
    enum dyt_status (*make_team)(void *self, uint32_t color,
                                 const uint32_t *member, uint32_t size,
                                 void **out_team);
    /* As post(): poll, landed, wait and cancel are for both.
     * DYT_ERR_INVALID, by poll: members describe the same number otherwise */
    enum dyt_status (*post_joint)(void *self, const struct dyti_joint *joint,
                                  uint64_t *out_ticket);
};

/* A group as rooms get it: the table and its handle.  ops == NULL or size 1:
 * alone, nothing to do. */
struct dyti_group {
    const struct dyti_group_ops *ops;
    void *self;
    uint32_t rank, size;
};

/* For backends: the messages of an exchange that a member sends itself, each
 * with the receive that it comes in by, in order.  `copy` is called for those
 * with bytes; the first error ends it.
 * @return DYT_ERR_INVALID  a send that nothing waits for, or of another size */
typedef enum dyt_status (*dyti_own_copy_fn)(void *arg, void *to,
                                            const void *from,
                                            uint64_t size_bytes);
enum dyt_status dyti_group_own_messages(const char *name, uint32_t rank,
                                        const struct dyti_p2p *message,
                                        size_t count, dyti_own_copy_fn copy,
                                        void *arg);

#endif /* DYTI_OPS_GROUP_H */
