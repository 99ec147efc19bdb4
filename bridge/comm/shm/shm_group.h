/* What the files of this folder share: the region, a member's handle, the two
 * ways to wait.
 *
 * Region of a group of n, zero before the first open:
 *   [rendezvous][member 0 … n-1][slots: member × parity][rings: source × dest]
 *
 * A collective is one or more rounds.  In a round every member publishes at
 * most SLOT bytes in its slot of the round's parity, arrives, waits until all
 * have arrived, and reads the others' slots.  A slot is written again two
 * rounds later, when everybody has arrived at the round between, and so has
 * finished reading: two slots and one rendezvous a round are enough.
 */
#ifndef DYTI_COMM_SHM_GROUP_H
#define DYTI_COMM_SHM_GROUP_H

#include "comm/shm/shm.h"

#define LINE_BYTES 64u

struct dyti_shm_rendezvous {
    _Alignas(LINE_BYTES) _Atomic uint32_t arrived; /* members, all rounds */
    _Alignas(LINE_BYTES) _Atomic uint32_t round;   /* completed; futex */
    _Atomic uint32_t sleepers;
};

/* tag: what a member is doing in the round; must be equal on all. */
struct dyti_shm_member {
    _Alignas(LINE_BYTES) _Atomic uint32_t round; /* the last it arrived at */
    uint64_t tag[2];                             /* by parity */
    /* Rung by peers that filled or drained a ring of this member's. */
    _Alignas(LINE_BYTES) _Atomic uint32_t bell; /* futex */
    _Atomic uint32_t asleep;
};

/* Bytes of one ordered pair, a stream of (size, payload) messages, each of
 * which begins at a multiple of a line: what is copied straight from or to the
 * ring is aligned there as it is in its message. */
struct dyti_shm_ring {
    _Alignas(LINE_BYTES) _Atomic uint64_t head; /* written by the source */
    _Alignas(LINE_BYTES) _Atomic uint64_t tail; /* written by the destination */
    _Alignas(LINE_BYTES) unsigned char data[];
};

/* Where a member is in the messages with one peer during an exchange. */
struct dyti_shm_cursor {
    size_t message;  /* index, or count when there is none left */
    uint64_t offset; /* bytes of header and payload done */
};

/* One wait: what it has used up of its patience. */
struct dyti_shm_patience {
    int64_t deadline_ns; /* 0: none */
    uint32_t spins;
};

/* A message by post(): in a list per peer and direction, oldest first. */
struct dyti_shm_post {
    struct dyti_p2p message;
    uint64_t done;      /* bytes of header and payload */
    uint32_t life;      /* of this place; the ticket holds it */
    uint16_t next;      /* in its list, or of the free ones; 0 = last */
    bool open, arrived; /* in use; done, and not yet polled */
};

struct dyti_shm_list {
    uint16_t first, last; /* index + 1, 0 = empty */
};

struct dyti_shm_posts {
    struct dyti_shm_post post[DYTI_GROUP_POSTS];
    struct dyti_shm_list *send, *recv; /* [size], owned */
    struct dyti_shm_list ended;        /* arrived, and not yet polled */
    uint16_t unused;                   /* first free one: index + 1 */
    uint32_t open;                     /* in flight, not done */
    uint32_t seen; /* this member's bell before the last look */
    bool moved;    /* the last look found something */
};

struct dyti_shm_group {
    const char *name;
    uint32_t rank, size;
    uint32_t *world_rank; /* [size], owned */
    unsigned char *shared;
    struct dyti_abort_word *abort;
    int64_t timeout_ns;
    bool oversubscribed;
    uint32_t round;         /* the last this member arrived at */
    enum dyt_status broken; /* DYT_OK, or why no call can work any more */
    struct dyti_group_traffic traffic;
    uint64_t slot_bytes, ring_bytes;
    uint64_t part_bytes; /* of a message, before the peer is told */
    struct dyti_shm_rendezvous *rendezvous;
    struct dyti_shm_member *member;      /* [size] */
    struct dyti_shm_cursor *send, *recv; /* [size], owned */
    struct dyti_shm_posts posts;
    struct dyti_shm_patience posts_patience;
};

/* ---- group.c: addresses ------------------------------------------------- */

unsigned char *dyti_shm_slot(const struct dyti_shm_group *group,
                             uint32_t member, uint32_t parity);
struct dyti_shm_ring *dyti_shm_ring(const struct dyti_shm_group *group,
                                    uint32_t source, uint32_t dest);

/* ---- wait.c ------------------------------------------------------------- */

/* Where this member publishes the next round. */
unsigned char *dyti_shm_publish(const struct dyti_shm_group *group);
/* End the publishing, and wait for all.  `tag` says what this round is; a
 * member with another one is an error that names it. */
enum dyt_status dyti_shm_rendezvous(struct dyti_shm_group *group, uint64_t tag);
/* What a member published in the round that has just been completed. */
const unsigned char *dyti_shm_published(const struct dyti_shm_group *group,
                                        uint32_t member);

/* Wait until *word is no longer `seen`, a little while.  *sleeping counts or
 * marks the sleepers for the waker.  DYT_OK: look again. */
enum dyt_status dyti_shm_wait_word(struct dyti_shm_group *group,
                                   struct dyti_shm_patience *patience,
                                   _Atomic uint32_t *word, uint32_t seen,
                                   _Atomic uint32_t *sleeping);
void dyti_shm_wake(_Atomic uint32_t *word, _Atomic uint32_t *sleeping);
/* First in every call of the table: the group works, the abort word is 0. */
enum dyt_status dyti_shm_enter(struct dyti_shm_group *group);

/* A tag: which call, and how many bytes or elements in all. */
enum dyti_shm_call {
    DYTI_SHM_BARRIER = 1,
    DYTI_SHM_BROADCAST,
    DYTI_SHM_ALL_GATHER,
    DYTI_SHM_REDUCE_SCATTER,
    DYTI_SHM_ALL_REDUCE
};

static inline uint64_t dyti_shm_tag(enum dyti_shm_call call, uint32_t detail,
                                    uint64_t amount)
{
    return (uint64_t)call << 56 | (uint64_t)(detail & 0xffffu) << 40 |
           (amount & 0xffffffffffu);
}

/* ---- collective.c ------------------------------------------------------- */

enum dyt_status dyti_shm_barrier(void *self);
enum dyt_status dyti_shm_broadcast(void *self, void *buf, uint64_t size_bytes,
                                   uint32_t root);
enum dyt_status dyti_shm_all_gather(void *self, const void *in, void *out,
                                    const uint64_t *counts_bytes);

/* ---- reduce.c ----------------------------------------------------------- */

enum dyt_status dyti_shm_reduce_scatter(void *self, const void *in, void *out,
                                        const uint64_t *counts,
                                        enum dyti_reduce op);
enum dyt_status dyti_shm_all_reduce(void *self, void *buf, uint64_t count,
                                    enum dyti_reduce op);

/* ---- exchange.c --------------------------------------------------------- */

#define DYTI_SHM_HEADER_BYTES LINE_BYTES /* begins with the payload's size */

enum dyt_status dyti_shm_exchange(void *self, const struct dyti_p2p *message,
                                  size_t count);

/* Where the next message begins. */
static inline uint64_t dyti_shm_next_line(uint64_t place)
{
    return (place + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
}

/* As much of one message as the ring takes or has, from *done bytes of header
 * and payload on.  *out_moved: was that anything? */
enum dyt_status dyti_shm_send_some(struct dyti_shm_group *group,
                                   const struct dyti_p2p *message,
                                   uint64_t *done, bool *out_moved);
enum dyt_status dyti_shm_receive_some(struct dyti_shm_group *group,
                                      const struct dyti_p2p *message,
                                      uint64_t *done, bool *out_moved);
/* Say so to the peer. */
void dyti_shm_ring_bell(struct dyti_shm_group *group, uint32_t peer);

/* ---- post.c ------------------------------------------------------------- */

enum dyt_status dyti_shm_posts_init(struct dyti_shm_group *group);
void dyti_shm_posts_fini(struct dyti_shm_group *group);
enum dyt_status dyti_shm_post(void *self, const struct dyti_p2p *message,
                              uint64_t *out_ticket);
enum dyt_status dyti_shm_poll(void *self, uint64_t ticket);
enum dyt_status dyti_shm_wait(void *self);
enum dyt_status dyti_shm_landed(void *self, uint64_t *ticket, uint32_t cap,
                                uint32_t *out_count);
void dyti_shm_cancel(void *self);

#endif /* DYTI_COMM_SHM_GROUP_H */
