/* Stage 5 of 5: execute.  How a new version arrives, and what is left if it
 * does not.  in: settings of session.h   out: reports of session.h
 */
#ifndef DYNATRAIN_SWITCH_H
#define DYNATRAIN_SWITCH_H

#include <dynatrain/status.h>

#include <stdint.h>

DYT_BEGIN_DECLS

/* What a receiver keeps while a version arrives.  Values are ABI. */
enum dyt_commit_mode {
    DYT_COMMIT_STAGED = 0,  /* scratch of ours, copied when all of the replica
                               have verified (default) */
    DYT_COMMIT_DOUBLE = 1,  /* two mapped segments; commit flips the pointer */
    DYT_COMMIT_IN_PLACE = 2 /* straight into the live memory: marked INVALID
                               before the first byte, until whole again */
};

enum dyt_verify {
    DYT_VERIFY_SAMPLE = 0, /* at most 1 % of the bytes, others every time */
    DYT_VERIFY_FULL = 1,
    DYT_VERIFY_OFF = 2
};

/* When several replicas get a version. */
enum dyt_policy {
    DYT_POLICY_ALL = 0,     /* it counts when every living replica has it */
    DYT_POLICY_ROLLING = 1, /* one replica after the other */
    DYT_POLICY_QUORUM = 2   /* … when `quorum` of them have it */
};

/** What one member did in one switch.  Times in nanoseconds. */
struct dyt_switch_report {
    uint32_t struct_size;
    uint32_t committed;      /* 0 or 1 */
    uint64_t epoch, version; /* version: visible afterwards */
    int64_t wait_ns;         /* from the call until the transfer began */
    int64_t transfer_ns, verify_ns, commit_ns, total_ns;
    uint64_t moved_bytes;   /* from other processes */
    uint64_t written_bytes; /* into this member's rows */
    uint64_t scratch_bytes; /* of ours, beside the member's own memory */
    uint64_t rows_changed;  /* that were written: dyt_session_changed() */
    uint32_t source;        /* 0: the trainer, 1: a sibling replica */
    uint32_t reserved;
};

DYT_END_DECLS

#endif /* DYNATRAIN_SWITCH_H */
