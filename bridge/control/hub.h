/* A job's meeting point for processes that nobody of us started: a *hub* at an
 * address, and *links* of members to it.  Frames go whole and in order; who a
 * peer is, is known to the kernel (unix) or by its key (tcp).
 *
 *   unix:PATH      a socket file.  Its folder is made with mode 0700 and must
 *                  be this user's alone; the kernel lets in no other user.
 *                  PATH/ (or a folder that is there): PATH/JOB.sock
 *   tcp:HOST:PORT  CURVE: each side has a key pair (`dynatrain keys`)
 *
 * A hub holds PATH.lock while it lives: a socket file that a crash left behind
 * is told from one that serves, and two hubs never share a path.  What its
 * process has forked may outlive it: another hub takes the path over.
 *
 * Threads: one handle by one thread.  Blocking: wait, up to its timeout.
 */
#ifndef DYTI_CONTROL_HUB_H
#define DYTI_CONTROL_HUB_H

#include "data/message.h"

#include <stdbool.h>
#include <stdint.h>

#define DYTI_KEY_CHARS     40u
#define DYTI_ADDRESS_BYTES 108u
#define DYTI_HUB_NO_PEER   UINT32_MAX

/* A frame that promises more is not received: its connection is dropped before
 * anything is allocated for it. */
#define DYTI_FRAME_MOST_BYTES (256u << 20)

/* What bridge/wire knows of frames; handed in, as bridge folders stand alone.
 */
struct dyti_hub_codec {
    dyti_envelope_fn envelope;
    /* The protocol number alone; DYT_ERR_FORMAT: not a frame. */
    enum dyt_status (*protocol)(const void *bytes, size_t size_bytes,
                                uint32_t *out_protocol);
};

/* ---- addresses ----------------------------------------------------------- */

struct dyti_address {
    bool is_tcp;
    char path[DYTI_ADDRESS_BYTES];          /* unix: of the socket file */
    char endpoint[DYTI_ADDRESS_BYTES + 16]; /* as ZeroMQ writes it */
};

/**
 * @param job  for a folder as PATH; NULL: folders are refused
 * @return DYT_ERR_CONFIG  neither form, or too long: names both forms
 */
enum dyt_status dyti_address_parse(const char *text, const char *job,
                                   struct dyti_address *out_address);
/* The folder of a unix address: made if it is not there.
 * DYT_ERR_CONFIG: others may write there, or it is another user's */
enum dyt_status dyti_address_prepare(const struct dyti_address *address,
                                     bool make);

/* ---- keys ---------------------------------------------------------------- */

/* NAME.secret (0600) and NAME.public in `folder`, which is made (0700) if it is
 * not there.  DYT_ERR_BUSY: they are there already, and stay. */
enum dyt_status dyti_keys_make(const char *folder, const char *name);
/* DYT_ERR_CONFIG: not a key, or others may read a secret one: says chmod. */
enum dyt_status dyti_key_read(const char *path, bool secret,
                              char out_key[DYTI_KEY_CHARS + 1]);

/* ---- the hub ------------------------------------------------------------- */

struct dyti_hub_params {
    struct dyti_address address;
    struct dyti_hub_codec codec;
    /* tcp */
    const char *key;        /* file: its secret key */
    const char *authorized; /* folder: *.public of who may come; NULL: the
                               key's own folder */
};

struct dyti_hub;

/**
 * @return DYT_ERR_BUSY    another one serves this address: names its process
 * @return DYT_ERR_CONFIG  folder, keys; an address of another machine
 * @return DYT_ERR_IO
 */
enum dyt_status dyti_hub_open(const struct dyti_hub_params *params,
                              struct dyti_hub **out_hub);
/* The socket file goes too. */
void dyti_hub_close(struct dyti_hub *hub);

struct dyti_hub_frame {
    uint32_t peer;
    uint32_t protocol; /* not ours: envelope and bytes mean nothing */
    struct dyti_envelope envelope;
    struct dyti_buffer buffer;
};
void dyti_hub_frame_fini(struct dyti_hub_frame *frame);

enum dyti_hub_event { DYTI_HUB_FRAME, DYTI_HUB_FD, DYTI_HUB_TIMEOUT };

/* The next frame, or a readable one of fd[fd_count] (< 0: skipped), which come
 * first.  Malformed and doubled frames are dropped and counted. */
enum dyt_status dyti_hub_wait(struct dyti_hub *hub, const int *fd,
                              size_t fd_count, int64_t timeout_ms,
                              enum dyti_hub_event *out_event,
                              struct dyti_hub_frame *out_frame,
                              size_t *out_fd_index);

struct dyti_envelope dyti_hub_stamp(struct dyti_hub *hub,
                                    enum dyti_message type, uint64_t job);
/* Takes the buffer over, also on failure.  DYT_ERR_PEER: it cannot be reached.
 * DYT_ERR_UNSUPPORTED: above DYTI_FRAME_MOST_BYTES. */
enum dyt_status dyti_hub_send(struct dyti_hub *hub, uint32_t peer,
                              struct dyti_buffer *buffer);
/* Its number may be given to another. */
void dyti_hub_forget(struct dyti_hub *hub, uint32_t peer);

struct dyti_hub_counts {
    uint64_t received, sent, malformed, stale, refused;
};
void dyti_hub_counts(const struct dyti_hub *hub, struct dyti_hub_counts *out);

/* ---- a member's end ------------------------------------------------------ */

struct dyti_hub_client_params {
    struct dyti_address address;
    struct dyti_hub_codec codec;
    uint64_t job;
    const char *key, *manager_key; /* tcp: files */
};

struct dyti_hub_client;

enum dyt_status dyti_hub_client_open(
    const struct dyti_hub_client_params *params,
    struct dyti_hub_client **out_client);
void dyti_hub_client_close(struct dyti_hub_client *client);

struct dyti_envelope dyti_hub_client_stamp(struct dyti_hub_client *client,
                                           enum dyti_message type,
                                           int32_t sender);
/* Takes the buffer over, also on failure.  DYT_ERR_UNSUPPORTED: above
 * DYTI_FRAME_MOST_BYTES. */
enum dyt_status dyti_hub_client_send(struct dyti_hub_client *client,
                                     struct dyti_buffer *buffer);
/**
 * @param fd  one more to wait for, or -1
 * @return DYT_OK           a frame, or *out_fd is true
 * @return DYT_PENDING      the time is over
 * @return DYT_ERR_ABI      the hub speaks another protocol: both numbers
 * @return DYT_ERR_CONFIG   tcp: it refuses this key, or is not who
 *                          manager_key says; unix: it is another user's
 * @return DYT_ERR_PEER     the connection was there and is lost
 */
enum dyt_status dyti_hub_client_wait(struct dyti_hub_client *client, int fd,
                                     int64_t timeout_ms,
                                     struct dyti_hub_frame *out_frame,
                                     bool *out_fd);

#endif /* DYTI_CONTROL_HUB_H */
