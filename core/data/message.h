/* The outside of a message between manager and workers: who says what, in
 * which state of the job.  bridge/wire makes bytes of it, bridge/control
 * carries them, cli/ acts on them. */
#ifndef DYTI_DATA_MESSAGE_H
#define DYTI_DATA_MESSAGE_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

/* Goes up, from one release to the next, when an old peer cannot follow or be
 * followed: a message, a field or a meaning that was there changed or went, or
 * a new field is needed.  It stays for a field at the end of a message that is
 * read where dyti_read_left() says that it came, and else has a default (who
 * does not know it leaves it out by itself), and for a message that may be
 * ignored.  1 is that of the first release. */
#define DYTI_PROTOCOL     1u
#define DYTI_MANAGER_RANK (-1) /* sender of the manager's messages */

enum dyti_message {
    DYTI_MSG_HELLO = 1,    /* worker: I am here */
    DYTI_MSG_ASSIGN,       /* manager: this is the job */
    DYTI_MSG_READY,        /* worker: everything is built and loaded */
    DYTI_MSG_HEARTBEAT,    /* worker: alive, with progress */
    DYTI_MSG_PAUSE,        /* manager: finish what runs, start nothing */
    DYTI_MSG_PAUSED,       /* worker: drained */
    DYTI_MSG_SWITCH,       /* manager: prepare, transfer, verify, vote */
    DYTI_MSG_SWITCH_READY, /* worker: its vote */
    DYTI_MSG_SWITCH_DONE,  /* worker: committed or aborted, with figures */
    DYTI_MSG_GENERATE,
    DYTI_MSG_SAMPLES,
    DYTI_MSG_TRAIN,
    DYTI_MSG_METRICS,
    DYTI_MSG_CHECKPOINT,
    DYTI_MSG_CHECKPOINT_DONE,
    DYTI_MSG_ERROR, /* worker: a call failed, nothing was changed by it */
    DYTI_MSG_BYE,   /* both ways: end */
    /* Sessions of servers and trainers (wire/session.h). */
    DYTI_MSG_JOIN,      /* member: gives its place */
    DYTI_MSG_JOINED,    /* manager: it has it */
    DYTI_MSG_ROWS,      /* trainer: what it holds, by name */
    DYTI_MSG_CATALOGUE, /* manager: the tensors of the job */
    DYTI_MSG_MEMORY,    /* member: what it holds, by address */
    DYTI_MSG_READERS,   /* manager, to a source: make a snapshot for these */
    DYTI_MSG_LINK,      /* manager: open this link */
    DYTI_MSG_ORDER,     /* manager: run, close */
    DYTI_MSG_REPORT,    /* member: how an order ended */
    DYTI_MSG_REQUEST,   /* member: publish, offer, receive, … */
    DYTI_MSG_ANSWER,    /* manager: how a request ended */
    DYTI_MSG_STATUS,    /* anybody asks; the manager answers with JSON */
    DYTI_MSG_MEET, /* member, by way of the manager, to those of its link */
    DYTI_MSG_COUNT
};

const char *dyti_message_name(enum dyti_message type); /* "hello", … */

/* Who says what, in which state of the job. */
struct dyti_envelope {
    uint32_t protocol;
    uint32_t type;     /* enum dyti_message */
    uint64_t job;      /* random, one per run: foreign messages differ */
    int32_t sender;    /* rank, or DYTI_MANAGER_RANK */
    uint64_t epoch;    /* switches begun so far */
    uint64_t sequence; /* of this sender, from 1: late and doubled ones show */
    uint64_t version;  /* committed optimizer updates */
};

struct dyti_buffer {
    unsigned char *bytes;
    size_t size_bytes;
};
void dyti_buffer_fini(struct dyti_buffer *buffer);

/* Bytes of a frame to its envelope; DYT_ERR_FORMAT for anything else. */
typedef enum dyt_status (*dyti_envelope_fn)(const void *bytes,
                                            size_t size_bytes,
                                            struct dyti_envelope *out);

#endif /* DYTI_DATA_MESSAGE_H */
