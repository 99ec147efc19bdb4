/* What the files of this folder share: the region, a member's handle, waits.
 *
 * Region of a group of n, zero before the first open:
 *   [home][member 0 … n-1][pairs: source × dest]
 *
 * Two communicators: one for calls that all members make together, one for
 * messages by post(), which may be under way meanwhile.  Nothing is given to
 * NCCL before all that take part have come, as the region says: a call that
 * others never come to so ends on the host, by the abort word or the deadline,
 * and the communicator stays whole.
 *
 * Work of NCCL on a stream is done in order, and a message that waits for its
 * other end keeps all behind it from going.  So messages are launched in one
 * order everywhere: two that meet get their places in the queues of both
 * members under one lock.  The oldest that is not done is then first at both
 * its ends, and goes; nothing waits in a circle.  What stands in a queue when a
 * member looks goes as one group of NCCL.
 *
 * A joint message of a team stands in the queues of all its members likewise,
 * once all have come to it, and so all of them give the team's communicator the
 * same calls in the same order, each on its own: in groups of NCCL that differ
 * between members it might change places.
 */
#ifndef DYTI_COMM_NCCL_GROUP_H
#define DYTI_COMM_NCCL_GROUP_H

#include "comm/nccl/calls.h"
#include "comm/nccl/nccl.h"

#define LINE_BYTES 64u

/* ---- the region ---------------------------------------------------------- */

struct dyti_nccl_home {
    _Alignas(LINE_BYTES) _Atomic uint32_t lock;  /* of messages: member + 1 */
    _Alignas(LINE_BYTES) _Atomic uint32_t id_of; /* the open that id is of */
    unsigned char id[NCCL_UNIQUE_ID_BYTES];
};

/* A message by post(), or a member's part in a joint one, as it describes it.
 * Written under the lock. */
struct dyti_nccl_offer {
    uint64_t bytes;
    uint32_t peer;
    uint16_t next;          /* in its pair's list: index + 1, 0 = last */
    bool is_send, is_wrong; /* wrong: another end has it otherwise */
    uint64_t other_bytes;   /* that size */
    unsigned char head[DYTI_P2P_HEAD_BYTES]; /* of a receive: what has come */
    uint64_t epoch, number, form; /* joint: which one; what it is, as a hash */
};

struct dyti_nccl_member {
    _Alignas(LINE_BYTES) _Atomic uint32_t opened; /* how often */
    _Atomic uint32_t round;    /* the last collective it has come to … */
    _Atomic uint32_t launched; /* … and has given to NCCL */
    uint64_t tag[2];           /* by parity: what that is */
    /* Messages that have met their other end: places, in launch order.
     * `queued` is written under the lock, `taken` by the member. */
    _Alignas(LINE_BYTES) _Atomic uint32_t queued;
    uint32_t taken;
    uint16_t joints; /* its parts that not all have come to: index + 1 */
    uint16_t queue[DYTI_GROUP_POSTS];
    struct dyti_nccl_offer offer[DYTI_GROUP_POSTS];
};

/* Messages of an ordered pair that only one end has posted, oldest first. */
struct dyti_nccl_pair {
    uint16_t first, last; /* index + 1 in the member's offers */
    bool are_sends;
};

/* ---- a member's handle --------------------------------------------------- */

/* Members with collectives of their own: the same parts of the group, a
 * communicator for them. */
struct dyti_nccl_team {
    uint32_t *member; /* [size] of the group, in their order; owned */
    uint32_t size;
    ncclComm_t comm; /* NULL: not made yet, or aborted */
};

/* A message, or a part of a joint one: at the same place as its offer. */
struct dyti_nccl_post {
    struct dyti_p2p message; /* joint: what there is of it besides */
    struct dyti_joint joint;
    bool is_joint;
    cudaEvent_t before; /* what the caller had queued; made when first used */
    uint32_t life;      /* of this place; the ticket holds it */
    uint16_t next;      /* of free ones: index + 1 */
    bool open, is_launched, ended;
    enum dyt_status status; /* ended: of it */
};

#define DYTI_NCCL_BATCHES 32u

/* Messages that were launched together. */
struct dyti_nccl_batch {
    cudaEvent_t after; /* made when first used */
    uint16_t place[DYTI_GROUP_POSTS];
    uint32_t count;
};

struct dyti_nccl_posts {
    struct dyti_nccl_post post[DYTI_GROUP_POSTS];
    struct dyti_nccl_batch batch[DYTI_NCCL_BATCHES];
    uint32_t batch_first, batch_count; /* a ring, oldest first */
    uint16_t unused;                   /* first free post: index + 1 */
    uint32_t open;                     /* not ended */
    int64_t moved_ns; /* when something was last posted, launched or ended */
    uint32_t moves;   /* counts these */
    uint32_t seen;    /* moves at the last wait */
};

enum { DYTI_NCCL_TOGETHER, DYTI_NCCL_MESSAGES, DYTI_NCCL_LANES };

/* A buffer that one communicator knows. */
struct dyti_nccl_attached {
    void *base;
    uint64_t bytes;
    ncclComm_t comm;
    void *handle; /* NULL: it goes without */
};

struct dyti_nccl_desk;   /* desk_ask.c: of a member that asks the first one */
struct dyti_nccl_server; /* of the first one */

struct dyti_nccl_group {
    const struct dyti_nccl_calls *nccl;
    const char *name;
    uint32_t rank, size;
    uint32_t *world_rank; /* [size], owned */
    uint32_t *everybody;  /* [size] 0, 1, …, behind those */
    unsigned char *shared;
    struct dyti_nccl_home *home;
    struct dyti_nccl_member *member; /* [size] */
    struct dyti_nccl_pair *pair;     /* [size * size] */
    struct dyti_abort_word *abort;
    int64_t timeout_ns;
    enum dyt_status broken; /* DYT_OK, or why no call can work any more */
    struct dyti_group_traffic traffic;
    cudaStream_t caller; /* the caller's */
    cudaStream_t stream[DYTI_NCCL_LANES];
    ncclComm_t comm[DYTI_NCCL_LANES]; /* NULL: alone, or aborted */
    ncclComm_t none;                  /* what a split without color makes */
    cudaEvent_t before, after;        /* of calls together */
    uint32_t round;
    struct dyti_nccl_posts posts;
    struct dyti_nccl_attached *attached; /* owned */
    size_t attached_count, attached_cap;
    struct dyti_nccl_team **team; /* [team_count], owned */
    size_t team_count, team_cap;
    struct dyti_nccl_desk *desk;     /* the region is the first member's: */
    struct dyti_nccl_server *server; /* asked for, or kept.  NULL, both: all
                                        share it */
};

/* ---- region.c: where what is, and meeting there -------------------------- */

uint64_t dyti_nccl_region_bytes(uint32_t size);
void dyti_nccl_find_region(struct dyti_nccl_group *group);

/* Who has not come as far as this member, or `size`. */
uint32_t dyti_nccl_who_is_behind(const struct dyti_nccl_group *group);

enum dyti_nccl_call {
    DYTI_NCCL_BARRIER = 1,
    DYTI_NCCL_BROADCAST,
    DYTI_NCCL_ALL_GATHER,
    DYTI_NCCL_REDUCE_SCATTER,
    DYTI_NCCL_ALL_REDUCE,
    DYTI_NCCL_EXCHANGE,
    DYTI_NCCL_SPLIT,
    DYTI_NCCL_TEAM
};

/* First in every call of the table: the group works, the abort word is 0. */
enum dyt_status dyti_nccl_enter(struct dyti_nccl_group *group);
/* All members have come to the same call; messages move on meanwhile. */
enum dyt_status dyti_nccl_meet(struct dyti_nccl_group *group,
                               enum dyti_nccl_call call, uint32_t detail,
                               uint64_t amount);

/* ---- wait.c: waits that end ---------------------------------------------- */

int64_t dyti_nccl_now_ns(void);
/* A short sleep, longer with every turn. */
void dyti_nccl_rest(uint32_t *turn);
enum dyt_status dyti_nccl_look_at_abort(struct dyti_nccl_group *group);
/* No call can work any more: what NCCL has begun is aborted, and nothing
 * touches buffers when this returns.  Returns `status`. */
enum dyt_status dyti_nccl_break(struct dyti_nccl_group *group,
                                enum dyt_status status);
/* What a call of NCCL has answered, if not success.  in progress: waits for its
 * end, not longer than until deadline_ns (0: none). */
enum dyt_status dyti_nccl_settle(struct dyti_nccl_group *group, ncclComm_t comm,
                                 ncclResult_t result, const char *what,
                                 int64_t deadline_ns);
enum dyt_status dyti_nccl_cuda(struct dyti_nccl_group *group, cudaError_t error,
                               const char *what);
/* Of a communicator at work: DYT_OK, or what went wrong on it. */
enum dyt_status dyti_nccl_health(struct dyti_nccl_group *group,
                                 ncclComm_t comm);
/* Until `event` has passed; the deadline is that of one wait. */
enum dyt_status dyti_nccl_wait_event(struct dyti_nccl_group *group,
                                     cudaEvent_t event);
/* Deadline of a wait that begins now; 0: none. */
int64_t dyti_nccl_deadline(const struct dyti_nccl_group *group);

/* ---- open.c -------------------------------------------------------------- */

enum dyt_status dyti_nccl_group_open(const struct dyti_group_params *params,
                                     void **out_self);
enum dyt_status dyti_nccl_stand_by(void *parent);
void dyti_nccl_group_close(void *self);
/* Who has not come to open it that often, or `size`. */
uint32_t dyti_nccl_who_has_not_opened(const struct dyti_nccl_group *group,
                                      uint32_t opens);
/* What communicators are made with, and how long that may take. */
ncclConfig_t dyti_nccl_config(void);
int64_t dyti_nccl_open_deadline(const struct dyti_nccl_group *group);
/* A communicator of those of `from` that come with this color, in the order of
 * their places, for `owner`, which may be `from`.  out_comm: where it stays, as
 * NCCL fills it in when it has made it, later than the call.  NULL: this member
 * is in none. */
enum dyt_status dyti_nccl_split(struct dyti_nccl_group *from, int color,
                                uint32_t place, struct dyti_nccl_group *owner,
                                ncclComm_t *out_comm, int64_t deadline_ns);
/* With the others, if they give it back soon as well; else by an abort. */
void dyti_nccl_give_back(struct dyti_nccl_group *group, ncclComm_t comm,
                         int64_t until);

/* ---- team.c: teams, and buffers that communicators know -------------------
 */

enum dyt_status dyti_nccl_make_team(void *self, uint32_t color,
                                    const uint32_t *member, uint32_t size,
                                    void **out_team);
enum dyt_status dyti_nccl_attach(void *self, void *base, uint64_t size_bytes);
void dyti_nccl_detach(void *self, void *base);
void dyti_nccl_detach_all(struct dyti_nccl_group *group);
/* All teams, when their communicators are gone. */
void dyti_nccl_free_teams(struct dyti_nccl_group *group);

/* ---- collective.c, reduce.c ---------------------------------------------- */

/* Calls together: after what the caller has queued, and until all is there. */
enum dyt_status dyti_nccl_begin(struct dyti_nccl_group *group);
enum dyt_status dyti_nccl_end(struct dyti_nccl_group *group,
                              ncclResult_t result, const char *what);
enum dyt_status dyti_nccl_barrier(void *self);
enum dyt_status dyti_nccl_broadcast(void *self, void *buf, uint64_t size_bytes,
                                    uint32_t root);
enum dyt_status dyti_nccl_all_gather(void *self, const void *in, void *out,
                                     const uint64_t *counts_bytes);
enum dyt_status dyti_nccl_exchange(void *self, const struct dyti_p2p *message,
                                   size_t count);
enum dyt_status dyti_nccl_reduce_scatter(void *self, const void *in, void *out,
                                         const uint64_t *counts,
                                         enum dyti_reduce op);
enum dyt_status dyti_nccl_all_reduce(void *self, void *buf, uint64_t count,
                                     enum dyti_reduce op);

/* ---- offers.c: which messages have met ----------------------------------- */

/* The offer in a place of this member's: met with the oldest of the other end,
 * or left for it. */
enum dyt_status dyti_nccl_offer(struct dyti_nccl_group *group, uint16_t place);
/* The same of a part in a joint message of these members: met when all of them
 * have come to it. */
enum dyt_status dyti_nccl_offer_joint(struct dyti_nccl_group *group,
                                      uint16_t place, const uint32_t *member,
                                      uint32_t size);
/* Who of them has not come to the one in a place of this member's, or
 * UINT32_MAX if all have, or nobody can tell. */
uint32_t dyti_nccl_who_lacks(struct dyti_nccl_group *group, uint16_t place,
                             const uint32_t *member, uint32_t size);
/* Places that have met and were not taken yet, in launch order: how many. */
enum dyt_status dyti_nccl_take_met(struct dyti_nccl_group *group,
                                   uint16_t place[DYTI_GROUP_POSTS],
                                   uint32_t *out_count);
/* … at most so many. */
enum dyt_status dyti_nccl_take_some(struct dyti_nccl_group *group,
                                    uint16_t *place, uint32_t cap,
                                    uint32_t *out_count);
/* Take back this member's offers that have not met; is_met[place - 1]: has. */
enum dyt_status dyti_nccl_withdraw(struct dyti_nccl_group *group,
                                   bool is_met[DYTI_GROUP_POSTS]);

/* ---- desk.c, desk_ask.c: members that share no memory --------------------
 */

enum dyt_status dyti_nccl_desk_init(struct dyti_nccl_group *group,
                                    const struct dyti_group *carrier);
/* The first one waits until all have closed, for a while. */
void dyti_nccl_desk_fini(struct dyti_nccl_group *group);
/* What a member asks for, instead of looking into the region.
 * open      *out_who: has not come to open, or `size`; then the id is there
 * meet      *out_behind: has not come to this round, or `size`; then
 *           *out_wrong: who came with another tag, or `size`
 * the rest  as those of offers.c */
enum dyt_status dyti_nccl_desk_open(struct dyti_nccl_group *group,
                                    uint32_t opens, uint32_t *out_who);
enum dyt_status dyti_nccl_desk_meet(struct dyti_nccl_group *group, uint64_t tag,
                                    uint32_t *out_behind, uint32_t *out_wrong);
enum dyt_status dyti_nccl_desk_offer(struct dyti_nccl_group *group,
                                     uint16_t place, const uint32_t *member,
                                     uint32_t size);
uint32_t dyti_nccl_desk_who_lacks(struct dyti_nccl_group *group, uint16_t place,
                                  const uint32_t *member, uint32_t size);
enum dyt_status dyti_nccl_desk_take(struct dyti_nccl_group *group,
                                    uint16_t place[DYTI_GROUP_POSTS],
                                    uint32_t *out_count);
enum dyt_status dyti_nccl_desk_withdraw(struct dyti_nccl_group *group,
                                        bool is_met[DYTI_GROUP_POSTS]);

/* ---- launch.c ------------------------------------------------------------ */

/* Something was posted, launched or ended. */
void dyti_nccl_moved(struct dyti_nccl_posts *posts);
/* *event, made when first used. */
enum dyt_status dyti_nccl_event(struct dyti_nccl_group *group,
                                cudaEvent_t *event);
/* One look at all messages: launches what has met, ends what is done. */
enum dyt_status dyti_nccl_look(struct dyti_nccl_group *group);

/* ---- post.c -------------------------------------------------------------- */

void dyti_nccl_posts_init(struct dyti_nccl_group *group);
void dyti_nccl_posts_fini(struct dyti_nccl_group *group);
enum dyt_status dyti_nccl_post(void *self, const struct dyti_p2p *message,
                               uint64_t *out_ticket);
enum dyt_status dyti_nccl_post_joint(void *self, const struct dyti_joint *joint,
                                     uint64_t *out_ticket);
/* Its team; of all members: none. */
static inline struct dyti_nccl_team *dyti_nccl_team_of(
    const struct dyti_nccl_post *post)
{
    return post->is_joint ? post->joint.team : NULL;
}
enum dyt_status dyti_nccl_poll(void *self, uint64_t ticket);
enum dyt_status dyti_nccl_wait(void *self);
void dyti_nccl_cancel(void *self);
enum dyt_status dyti_nccl_landed(void *self, uint64_t *ticket, uint32_t cap,
                                 uint32_t *out_count);

#endif /* DYTI_COMM_NCCL_GROUP_H */
