/* Phase: answers "who is in a job, what do they hold, and what may happen now?"
 * for a trainer and the servers that take its weights.  Pure: no socket, no
 * clock but the time that a caller gives.  Events in, actions out; lib/manager
 * makes messages of both.
 *
 * Terms
 *   group   the trainer, or one replica of a pool: members by rank
 *   link    a source group and a replica, opened once, run once for a version
 *   busy    taking a version, in an opening or running link.  A group takes
 *           from one, or is read by any number, never both: so members never
 *           wait for each other in a circle
 *   late    a replica that was ready only after the offer was made: it takes
 *           the version from a sibling on its host if one has it
 *   apart   not all of the source is on the replica's host: of the replicas
 *           there, one takes the version from the trainer, the others from it
 *   line    the versions of one trainer; a new trainer begins a new one
 *   alone   an offer that no replica has taken, and of whose replicas none is
 *           left: it is kept for one that comes, but not for ever
 *
 *            ready         begin            commit
 *   JOINING ───────► EMPTY ─────► RECEIVING ──────► SERVING ── begin ─► …
 *                      ▲            │ keep: back to where it was
 *                      │            └ break ─► INVALID ── begin ─► …
 *                      └ restore ─ RELEASED ◄─ release ─ EMPTY, SERVING, …
 *   lose, from everywhere ─► DEAD ── join ─► JOINING
 *
 * Whatever is asked (join, publish, offer, receive, release) is answered by
 * exactly one action, as long as the member lives.  Events that come late or
 * twice change nothing.
 */
#ifndef DYTI_PHASE_FLEET_H
#define DYTI_PHASE_FLEET_H

#include "base/error.h"

#include <dynatrain/switch.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DYTI_FLEET_NONE       UINT32_MAX
#define DYTI_FLEET_NAME_BYTES 64u
#define DYTI_FLEET_TEXT_BYTES 512u
/* Of an answer: a list of all that does not fit is told whole. */
#define DYTI_FLEET_ANSWER_BYTES 2048u
#define DYTI_FLEET_MAX_SIZE     4096u /* members of one group */

enum dyti_fleet_role { DYTI_FLEET_TRAINER, DYTI_FLEET_RECEIVER };

enum dyti_group_state {
    DYTI_GROUP_JOINING,   /* members or their memory are missing */
    DYTI_GROUP_EMPTY,     /* all is there, but no version */
    DYTI_GROUP_RECEIVING, /* a link to it opens or runs */
    DYTI_GROUP_SERVING,   /* holds `version` (the trainer: may offer) */
    DYTI_GROUP_INVALID,   /* an update in place broke off */
    DYTI_GROUP_RELEASED,  /* its weights were given back */
    DYTI_GROUP_DEAD,      /* a member is lost */
    DYTI_GROUP_STATE_COUNT
};
const char *dyti_group_state_name(enum dyti_group_state state);

/* Where a member says that it belongs.  Plain value. */
struct dyti_fleet_place {
    enum dyti_fleet_role role;
    char pool[DYTI_FLEET_NAME_BYTES]; /* "" for the trainer */
    uint32_t replica;
    uint32_t rank, size;
    uint32_t tp_rank, tp_size, pp_rank, pp_size, dp_rank, dp_size;
    uint32_t ep_rank, ep_size;
    uint64_t host; /* of the machine: equal hosts can map each other's memory */
    char host_name[DYTI_FLEET_NAME_BYTES];
    uint32_t pid;
    uint32_t commit;                           /* enum dyt_commit_mode */
    uint32_t policy, quorum, max_version_skew; /* the trainer's rank 0 sets */
    int64_t timeout_ns;
};

enum dyti_member_state {
    DYTI_MEMBER_FREE,
    DYTI_MEMBER_JOINED,
    DYTI_MEMBER_LISTED, /* trainer: its rows are known */
    DYTI_MEMBER_FITTED, /* its memory is known */
    DYTI_MEMBER_READY   /* and was told that everything fits */
};

struct dyti_fleet_member {
    enum dyti_member_state state;
    struct dyti_fleet_place place;
    uint32_t group;
    int64_t heard_ns;
    /* What it waits for. */
    bool publishing, offering, taking, receiving, releasing, restoring;
    uint64_t want; /* receive: at least this version */
    bool released;
    uint64_t releases; /* since the last version: more is ahead of others */
    bool pinned;       /* trainer: may not write */
};

struct dyti_fleet_group {
    bool used;
    enum dyti_fleet_role role;
    char pool[DYTI_FLEET_NAME_BYTES];
    uint32_t number, size;
    uint32_t *member; /* [size] by rank, DYTI_FLEET_NONE: missing; owned */
    uint64_t host;
    enum dyti_group_state state, before; /* before: of RECEIVING */
    bool checking;                       /* an answer to CHECK is awaited */
    bool shared; /* other processes can map all of its memory */
    uint64_t version;
    bool current;      /* `version` is of this trainer's line */
    bool alone;        /* a sibling could not be read: ask the trainer */
    uint64_t ready_at; /* offers made when it became ready */
    bool wanted;       /* the offer waits for it */
    uint32_t busy;     /* link that it takes from */
    uint32_t readers;  /* links that take from it */
    uint64_t bytes;    /* moved into it so far */
    enum dyt_status why_status;
    char why[DYTI_FLEET_TEXT_BYTES]; /* its last error */
};

enum dyti_link_state {
    DYTI_LINK_FREE,
    DYTI_LINK_SNAPPING, /* the source makes memory that can be mapped */
    DYTI_LINK_OPENING,
    DYTI_LINK_READY,
    DYTI_LINK_RUNNING
};

struct dyti_fleet_link {
    enum dyti_link_state state;
    uint32_t source, receiver; /* groups */
    uint32_t source_count, member_count;
    uint32_t *member; /* [member_count] sources first; owned */
    bool *answered;   /* [member_count]; owned */
    uint32_t awaited;
    bool snapshot; /* reads a snapshot of the source */
    bool whole;    /* … that offers with `snapshot` fill, not one of its own
                      for this link, which the others fill */
    bool apart;    /* its members are on several hosts */
    bool reads;    /* counted in the source's readers */
    bool aborted, committed, broken;
    bool receiver_failed; /* not only a source */
    bool retry;           /* a sibling failed: take it from somebody else */
    bool told; /* who received was answered at a death: not by its end */
    uint64_t epoch, version, moved_bytes;
    uint64_t line; /* of the version */
    int64_t deadline_ns;
    enum dyt_status status; /* first failure */
    char text[DYTI_FLEET_TEXT_BYTES];
};

struct dyti_fleet_offer {
    uint64_t version;
    bool open;      /* receivers may take it from the trainer */
    bool taking;    /* ranks copy it to their snapshots */
    bool snapshot;  /* asked for: the rows are free once it was taken */
    bool met;       /* the policy is met: no new reader */
    bool telling;   /* the ticket hears so when nobody reads any more */
    bool cancelled; /* ends when nobody reads it any more: with this */
    enum dyt_status end_status;
    char end_text[DYTI_FLEET_TEXT_BYTES];
    bool had_takers; /* a replica was there when it was made, or came */
    bool left_alone; /* … and none is left: it ends at `alone_until_ns` */
    int64_t alone_until_ns;
    char last_lost[256]; /* who went last */
    uint64_t serial;
    uint32_t asked, taken; /* ranks that offered, that copied */
};

enum dyti_fleet_action_kind {
    DYTI_ACT_CATALOGUE, /* the trainer's rows are all in: build it, then BUILT
                         */
    DYTI_ACT_SHARE,     /* catalogue to `member` */
    DYTI_ACT_CHECK,     /* `group` is complete: compare, then CHECKED */
    DYTI_ACT_PUBLISHED, /* member, status, text */
    DYTI_ACT_SNAP,      /* link: the sources make snapshots, then READY each */
    DYTI_ACT_OPEN,      /* link: all open it, then READY each */
    DYTI_ACT_RUN,       /* link, epoch, version: all run it, then RAN each */
    DYTI_ACT_CLOSE,     /* link: idle; forget it */
    DYTI_ACT_ABORT,     /* link, rank, status: wake who waits in it */
    DYTI_ACT_OFFERED,   /* member, version, status */
    DYTI_ACT_DONE,      /* member, version, status: the ticket */
    DYTI_ACT_RECEIVED,  /* member, version, status */
    DYTI_ACT_RELEASED,  /* member, status: release or restore */
    DYTI_ACT_DROP       /* member: it hung; tell it if it still hears */
};
const char *dyti_fleet_action_name(enum dyti_fleet_action_kind kind);

struct dyti_fleet_action {
    enum dyti_fleet_action_kind kind;
    uint32_t member, group, link, rank;
    uint64_t epoch, version;
    enum dyt_status status;
    char text[DYTI_FLEET_ANSWER_BYTES]; /* of a status that is no DYT_OK */
};

enum dyti_fleet_event_kind {
    DYTI_FLEET_LISTED,   /* member: the trainer's rows are in */
    DYTI_FLEET_BUILT,    /* status: the catalogue */
    DYTI_FLEET_PUBLISH,  /* member: waits to hear that it fits */
    DYTI_FLEET_FITTED,   /* member, status: its memory is known */
    DYTI_FLEET_CHECKED,  /* group, status, shared */
    DYTI_FLEET_OFFER,    /* member, version, snapshot, takes */
    DYTI_FLEET_TAKEN,    /* member, version, status */
    DYTI_FLEET_CANCEL,   /* member, version */
    DYTI_FLEET_RECEIVE,  /* member, version: at least, 0: the newest */
    DYTI_FLEET_WITHDRAW, /* member, status: gives up its receive */
    DYTI_FLEET_READY,    /* member, link, status: snapshot made, link open */
    DYTI_FLEET_RAN,      /* member, link, epoch, status, committed, broken */
    DYTI_FLEET_RELEASE,  /* member */
    DYTI_FLEET_RESTORE,  /* member */
    DYTI_FLEET_GONE,     /* member, status DYT_OK: it left; else: how it died */
    DYTI_FLEET_ALIVE,    /* member */
    DYTI_FLEET_TICK,
    DYTI_FLEET_EVENT_COUNT
};

struct dyti_fleet_event {
    enum dyti_fleet_event_kind kind;
    uint32_t member, group, link;
    uint64_t epoch, version, moved_bytes;
    enum dyt_status status;
    const char *text; /* borrowed; NULL: none */
    bool snapshot, takes, shared, committed, broken;
    bool renewed; /* TAKEN: links that read the trainer are of no use */
};

struct dyti_fleet {
    struct dyti_fleet_member *member;
    size_t member_count, member_cap;
    struct dyti_fleet_group *group; /* [0] is the trainer's */
    size_t group_count, group_cap;
    struct dyti_fleet_link *link;
    size_t link_count, link_cap;
    struct dyti_fleet_action *action; /* what is to be done, in order */
    size_t action_count, action_cap;
    struct dyti_fleet_offer offer;
    bool catalogue;        /* known */
    bool building;         /* an answer to CATALOGUE is awaited */
    uint64_t last_version; /* offered on this line, if any_version */
    bool any_version;      /* the first may be 0: no update yet */
    uint64_t epoch;        /* runs begun */
    uint64_t line;         /* trainers that came */
    uint64_t offers;       /* made */
    uint32_t policy, quorum, max_version_skew;
    /* By the manager: the trainer's does not count. */
    bool policy_given, skew_given;
    bool out_of_memory;
};

enum dyt_status dyti_fleet_init(struct dyti_fleet *fleet);
void dyti_fleet_fini(struct dyti_fleet *fleet);

/**
 * A member asks for its place.
 * @return DYT_ERR_BUSY    the place is taken: names who has it
 * @return DYT_ERR_CONFIG  the place contradicts itself or the others of its
 *                         group: both numbers
 */
enum dyt_status dyti_fleet_join(struct dyti_fleet *fleet,
                                const struct dyti_fleet_place *place,
                                int64_t now_ns, uint32_t *out_member);

/* Take one event; what follows is in fleet->action, which the caller empties.
 * An error is the answer to the member whose event it was (nothing changed), or
 * DYT_ERR_NOMEM: the fleet is as it was, and dead. */
enum dyt_status dyti_fleet_take(struct dyti_fleet *fleet,
                                const struct dyti_fleet_event *event,
                                int64_t now_ns);

/* When TICK must be called at the latest; INT64_MAX: nothing is awaited. */
int64_t dyti_fleet_next_ns(const struct dyti_fleet *fleet);

/* "the trainer", "replica rollout/1". */
void dyti_fleet_group_text(const struct dyti_fleet *fleet, uint32_t group,
                           char *out, size_t out_bytes);
/* "rank 1 of replica rollout/0 (pid 12 on host)". */
void dyti_fleet_member_text(const struct dyti_fleet *fleet, uint32_t member,
                            char *out, size_t out_bytes);

/* Breaks an invariant, or NULL: for tests. */
const char *dyti_fleet_broken(const struct dyti_fleet *fleet);

#endif /* DYTI_PHASE_FLEET_H */
