/* Messages of a session: members (a trainer's ranks, a server's workers) and
 * the job's manager.  Same frames and rules as wire.h.
 *
 *   member                        manager
 *   join ───────────────────────►
 *        ◄──────────────────────── joined
 *   rows (trainer) ─────────────►
 *   request publish ────────────►
 *        ◄──────────────────────── catalogue, when the trainer's rows are in
 *   memory ─────────────────────►
 *        ◄──────────────────────── answer published
 *   request offer, receive ─────►
 *        ◄──────────────────────── link, order run            (the first time)
 *   report ─────────────────────►
 *        ◄──────────────────────── order run                  (each time)
 *   report ─────────────────────►
 *        ◄──────────────────────── answer offered, received, done
 *
 * Numbers of a job are few; rows, extents and shards are arrays of integers, so
 * that 18,000 of them are one frame of a few megabytes.
 */
#ifndef DYTI_WIRE_SESSION_H
#define DYTI_WIRE_SESSION_H

#include "layout/layout.h"
#include "wire/wire.h"

#include <dynatrain/switch.h>
#include <dynatrain/view.h>

/* Where a member belongs, and where it runs. */
struct dyti_msg_join {
    char *job, *pool, *host_name;
    char *no_crossing; /* why it cannot take and send weights between hosts; "":
                          it can */
    uint32_t role, replica, rank, size;
    uint32_t tp_rank, tp_size, pp_rank, pp_size, dp_rank, dp_size;
    uint32_t ep_rank, ep_size;
    uint32_t commit, mapped, verify;
    uint32_t policy, quorum, max_version_skew;
    uint64_t host; /* equal where memory can be mapped */
    uint32_t pid;
    uint64_t pid_start;
    int64_t timeout_ns;
};

struct dyti_msg_joined {
    uint32_t member;
    uint64_t host; /* of the manager */
    uint32_t pid;
    uint64_t pid_start;
};

/* Rows without their memory: name, kind, dtype, flags, shapes, pieces. */
struct dyti_msg_rows {
    struct dyt_row *row; /* [row_count]; names and pieces owned */
    uint32_t row_count;
};

struct dyti_msg_tensor {
    char *name;
    uint32_t ndim;
    int64_t shape[DYT_MAX_DIMS];
    uint32_t kinds;
    int32_t layer, expert;
    bool fixed_dtype;
    uint32_t dtype;
};

struct dyti_msg_catalogue {
    struct dyti_msg_tensor *tensor;
    uint32_t tensor_count;
    uint64_t fingerprint;
};

struct dyti_msg_extent {
    uint64_t offset, bytes, address, fd_offset, device, inode;
    int32_t fd;
    uint32_t kind;
};

/* One address set of a member: lib/link.h's memory view. */
struct dyti_msg_part {
    uint32_t pid;
    uint64_t pid_start;
    uint64_t region_bytes[DYTI_KIND_COUNT];
    struct dyti_msg_extent *extent; /* [extent_count] */
    uint32_t extent_count;
    struct dyti_shard *shard; /* [shard_count] */
    uint32_t shard_count;
};
void dyti_msg_part_fini(struct dyti_msg_part *part);

struct dyti_msg_memory {
    int32_t status; /* not DYT_OK: it does not fit, or there is no snapshot */
    char *text;
    uint32_t link;              /* of the snapshot; UINT32_MAX: its own rows */
    struct dyti_msg_part *part; /* [part_count] address sets */
    uint32_t part_count;
    /* The same rows where they lie on devices, if all do: [direct_count], 0 or
     * as many as there are sets; and why there is none of it, "" where no row
     * lies on a device. */
    struct dyti_msg_part *direct;
    uint32_t direct_count;
    char *indirect;
};

/* dtype[dtype_count] as dyti_snapshot_dtypes() makes it. */
struct dyti_msg_readers {
    uint32_t link;
    uint8_t *dtype;
    uint32_t dtype_count;
};

struct dyti_msg_link {
    uint32_t link, rank, source_count, member_count;
    uint32_t commit, verify, kinds, live_set;
    uint32_t pid; /* of the manager, who holds the control segment */
    int32_t control_fd;
    int64_t timeout_ns;
    uint32_t set_count;         /* 2: part[member_count + i] is the second set
                                   of member i */
    struct dyti_msg_part *part; /* [part_count] */
    uint32_t part_count;
    /* Hosts: members with equal numbers, each that of the first of them, are on
     * one.  The manager's segment is of island `manager_island`, UINT32_MAX: of
     * none; elsewhere the first member makes one. */
    uint32_t *island; /* [island_count] == member_count, owned */
    uint32_t island_count, manager_island;
    bool apart; /* weights go by messages */
    /* Bytes may go from device to device: as `part`, [direct_count]; 0: not
     * asked for, and why not ("": no member has rows on a device). */
    struct dyti_msg_part *direct;
    uint32_t direct_count;
    char *indirect;
};

/* What members of a link leave for each other while they open it. */
enum dyti_meet {
    DYTI_MEET_CONTROL, /* int32_t: the descriptor of an island's segment */
    DYTI_MEET_REGION,  /* the sender's part of the group's region */
    DYTI_MEET_COUNT
};

struct dyti_msg_meet {
    uint32_t link, rank;
    uint32_t what;        /* enum dyti_meet */
    unsigned char *bytes; /* [byte_count], owned */
    uint32_t byte_count;
};

/* ABORT: member `rank` of the link is lost or has failed, with `status`. */
enum dyti_session_order {
    DYTI_ORDER_RUN,
    DYTI_ORDER_CLOSE,
    DYTI_ORDER_ABORT,
    DYTI_ORDER_COUNT
};

struct dyti_msg_order {
    uint32_t what; /* enum dyti_session_order */
    uint32_t link;
    uint64_t epoch, version;
    uint32_t from_sibling; /* 0 or 1 */
    uint32_t rank;
    int32_t status;
};

struct dyti_msg_report {
    uint32_t link;
    uint64_t epoch; /* 0: of the opening */
    int32_t status;
    char *text;
    bool committed, broken;
    uint32_t live_set;
    uint64_t moved_bytes;
    bool direct;    /* bytes go from device to device */
    char *indirect; /* not so: why; "": nobody asked */
};

enum dyti_request {
    DYTI_REQUEST_PUBLISH,
    DYTI_REQUEST_OFFER,
    DYTI_REQUEST_TAKEN,
    DYTI_REQUEST_CANCEL,
    DYTI_REQUEST_RECEIVE,
    DYTI_REQUEST_WITHDRAW,
    DYTI_REQUEST_RELEASE,
    DYTI_REQUEST_RESTORE,
    DYTI_REQUEST_COUNT
};

struct dyti_msg_request {
    uint32_t what; /* enum dyti_request */
    uint64_t version;
    bool snapshot, takes;
    bool renewed; /* TAKEN: rows' memory is another: links that read it are of
                     no use */
    int32_t status;
    char *text;
};

enum dyti_answer {
    DYTI_ANSWER_PUBLISHED,
    DYTI_ANSWER_OFFERED,
    DYTI_ANSWER_DONE,
    DYTI_ANSWER_RECEIVED,
    DYTI_ANSWER_RELEASED,
    DYTI_ANSWER_COUNT
};

struct dyti_msg_answer {
    uint32_t what; /* enum dyti_answer */
    uint64_t version;
    int32_t status;
    char *text;
};

struct dyti_msg_status {
    char *json; /* "" in the question */
};

DYTI_WIRE_PAIR(join);
DYTI_WIRE_PAIR(joined);
DYTI_WIRE_PAIR(rows);
DYTI_WIRE_PAIR(catalogue);
DYTI_WIRE_PAIR(memory);
DYTI_WIRE_PAIR(readers);
DYTI_WIRE_PAIR(link);
DYTI_WIRE_PAIR(meet);
DYTI_WIRE_PAIR(order);
DYTI_WIRE_PAIR(report);
DYTI_WIRE_PAIR(request);
DYTI_WIRE_PAIR(answer);
DYTI_WIRE_PAIR(status);

#endif /* DYTI_WIRE_SESSION_H */
