/* What the files of this folder share: the region and a member's handle. */
#ifndef DYTI_COMM_GLOO_GROUP_H
#define DYTI_COMM_GLOO_GROUP_H

#include "comm/gloo/gloo.h"
#include "comm/gloo/shim.h"

#include <pthread.h>

#define DYTI_GLOO_SLICE_MS      20   /* an abort is seen within 100 ms */
#define DYTI_GLOO_ADDRESS_BYTES 256u /* of one connection */

#define DYTI_GLOO_KEYS 4u /* that a member leaves */

struct dyti_gloo_key {
    char name[40];
    uint32_t offset, bytes; /* of its data */
};

/* One of `size` in the region; zero before the first open. */
struct dyti_gloo_member {
    _Atomic uint32_t key_opens; /* `opens` that the keys are of */
    _Atomic uint32_t key_count;
    _Atomic uint32_t round; /* collectives it has come to */
    uint32_t opens;         /* how often it has opened the group */
    struct dyti_gloo_key key[DYTI_GLOO_KEYS];
    char data[];
};

struct dyti_gloo_flight {
    struct dyti_gloo_message *message; /* NULL: nothing to wait for */
    struct dyti_p2p p2p;
    uint32_t life; /* of this place; the ticket holds it */
    uint16_t next; /* of the free ones: index + 1 */
    bool open, ended;
};

struct dyti_gloo_group {
    const char *name;
    uint32_t rank, size;
    uint32_t *world_rank; /* [size], owned */
    unsigned char *shared;
    struct dyti_abort_word *abort;
    int64_t timeout_ns;
    bool apart; /* as the parameters say */
    void (*told)(void *arg);
    void *told_arg;
    enum dyt_status broken; /* DYT_OK, or why no call can work any more */
    struct dyti_group_traffic traffic;
    struct dyti_gloo *gloo; /* NULL: alone */
    char text[256];         /* of the last failure */
    uint32_t round;
    uint64_t *tags, *tag_bytes, *parts, *takes; /* [size], owned */
    unsigned char *scratch;                     /* grows, owned */
    uint64_t scratch_bytes;

    /* messages */
    struct dyti_gloo_flight flight[DYTI_GROUP_POSTS];
    uint16_t unused;        /* index + 1 */
    uint64_t *sent, *taken; /* [size] messages of this life, owned */
    uint32_t life;          /* counts cancels: equal on all members */
    uint32_t open;          /* in flight, not ended */
    uint64_t seen;          /* messages that had ended at the last look */
    int64_t moved_ns;       /* when something was last posted or ended */

    /* the thread that watches the abort word while a call blocks */
    pthread_t watcher;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool watching, busy, interrupted, closing;
};

/* ---- region.c ----------------------------------------------------------- */

uint64_t dyti_gloo_region_bytes(uint32_t size);
struct dyti_gloo_member *dyti_gloo_member_at(
    const struct dyti_gloo_group *group, uint32_t member);
/* As struct dyti_gloo_store asks; `arg` is the group. */
int dyti_gloo_store_set(void *arg, const char *key, const void *data,
                        size_t bytes);
long dyti_gloo_store_get(void *arg, const char *key, void *data, size_t room);
int dyti_gloo_store_given_up(void *arg);

/* ---- watch.c ------------------------------------------------------------ */

int64_t dyti_gloo_now_ns(void);
void *dyti_gloo_watch(void *group); /* the watcher's thread */
/* This rank's thread goes into gloo, or has come back. */
void dyti_gloo_busy(struct dyti_gloo_group *group, bool busy);
/* First in every call of the table: the group works, the abort word is 0. */
enum dyt_status dyti_gloo_enter(struct dyti_gloo_group *group);
enum dyt_status dyti_gloo_look_at_abort(struct dyti_gloo_group *group);
/* No call can work any more; returns `status`. */
enum dyt_status dyti_gloo_broken(struct dyti_gloo_group *group,
                                 enum dyt_status status);
/* What to return for a call of the shim, begun at `start`, that failed. */
enum dyt_status dyti_gloo_why(struct dyti_gloo_group *group,
                              enum dyti_gloo_result result, int64_t start);

/* ---- collective.c, reduce.c --------------------------------------------- */

enum dyti_gloo_call {
    DYTI_GLOO_BARRIER = 1,
    DYTI_GLOO_BROADCAST,
    DYTI_GLOO_ALL_GATHER,
    DYTI_GLOO_REDUCE_SCATTER,
    DYTI_GLOO_ALL_REDUCE
};

/* What a member says of the call that it makes. */
uint64_t dyti_gloo_tag(enum dyti_gloo_call call, uint32_t detail,
                       uint64_t amount);
/* First in every collective: all members have come to the same one. */
enum dyt_status dyti_gloo_begin(struct dyti_gloo_group *group, uint64_t tag);
/* After it: the parts of all, in member order. */
enum dyt_status dyti_gloo_gather(struct dyti_gloo_group *group, const void *in,
                                 void *out, const uint64_t *counts_bytes);
enum dyt_status dyti_gloo_group_barrier(void *self);
enum dyt_status dyti_gloo_group_broadcast(void *self, void *buf,
                                          uint64_t size_bytes, uint32_t root);
enum dyt_status dyti_gloo_group_all_gather(void *self, const void *in,
                                           void *out,
                                           const uint64_t *counts_bytes);
enum dyt_status dyti_gloo_group_reduce_scatter(void *self, const void *in,
                                               void *out,
                                               const uint64_t *counts,
                                               enum dyti_reduce op);
enum dyt_status dyti_gloo_group_all_reduce(void *self, void *buf,
                                           uint64_t count, enum dyti_reduce op);

/* ---- post.c ------------------------------------------------------------- */

enum dyt_status dyti_gloo_posts_init(struct dyti_gloo_group *group);
void dyti_gloo_posts_fini(struct dyti_gloo_group *group);
enum dyt_status dyti_gloo_exchange(void *self, const struct dyti_p2p *message,
                                   size_t count);
enum dyt_status dyti_gloo_group_post(void *self, const struct dyti_p2p *message,
                                     uint64_t *out_ticket);
enum dyt_status dyti_gloo_group_poll(void *self, uint64_t ticket);
enum dyt_status dyti_gloo_group_wait(void *self);
void dyti_gloo_group_cancel(void *self);

#endif /* DYTI_COMM_GLOO_GROUP_H */
