/* Control messages between the manager (server) and its workers (clients) over
 * ZeroMQ.  Weights never come this way.
 *
 * A message is accepted only if it is whole, speaks our protocol, belongs to
 * this job and carries a sequence number above the sender's last one.  All
 * others are harmless: dropped, and counted by reason.
 *
 * Threads: one handle is used by one thread.  Blocking: wait and receive, up to
 * their timeout.
 */
#ifndef DYTI_CONTROL_CONTROL_H
#define DYTI_CONTROL_CONTROL_H

#include "data/message.h"

#include <stdbool.h>

#include <stdint.h>

#define DYTI_ENDPOINT_BYTES  108u
#define DYTI_CONTROL_MAX_FDS 1024u /* descriptors of one wait */

/* An address nobody else has: an abstract ipc name that holds the job's random
 * number, so no file is left behind and two jobs never meet. */
void dyti_control_endpoint(uint64_t job, char out[DYTI_ENDPOINT_BYTES]);

/* A random, non-zero number from the system. */
enum dyt_status dyti_control_random(uint64_t *out_number);

struct dyti_control_counts {
    uint64_t received, sent;
    uint64_t malformed; /* not msgpack, wrong fields, wrong protocol */
    uint64_t foreign;   /* another job, an unknown rank, a rank already taken */
    uint64_t stale;     /* late or doubled: sequence not above the last */
};

/* A frame that was accepted.  Owned: give back with dyti_frame_fini. */
struct dyti_frame {
    struct dyti_envelope envelope;
    struct dyti_buffer buffer;
};
void dyti_frame_fini(struct dyti_frame *frame);

/* ---- manager ------------------------------------------------------------- */

struct dyti_control_server;

/* decode: of bridge/wire; handed in because bridge folders stand alone. */
enum dyt_status dyti_control_server_open(const char *endpoint, uint64_t job,
                                         uint32_t rank_count,
                                         dyti_envelope_fn decode,
                                         struct dyti_control_server **out);
void dyti_control_server_close(struct dyti_control_server *server);

enum dyti_control_event {
    DYTI_EVENT_MESSAGE, /* *out_frame is filled */
    DYTI_EVENT_FD,      /* *out_fd_index is readable */
    DYTI_EVENT_TIMEOUT
};

/**
 * Wait for a message or one of `fd` (pidfds, signalfd, pipes; [fd_count],
 * entries < 0 are skipped).  Descriptors come before messages, so that a death
 * is seen before what the dead said last is acted upon.  DYTI_EVENT_TIMEOUT may
 * come early: the caller keeps its own deadline.
 * @param timeout_ms  < 0: no limit
 */
enum dyt_status dyti_control_wait(struct dyti_control_server *server,
                                  const int *fd, size_t fd_count,
                                  int64_t timeout_ms,
                                  enum dyti_control_event *out_event,
                                  struct dyti_frame *out_frame,
                                  size_t *out_fd_index);

/* Fill in job, sender and sequence of an envelope for this rank. */
struct dyti_envelope dyti_control_stamp(struct dyti_control_server *server,
                                        enum dyti_message type, uint64_t epoch,
                                        uint64_t version);

/* Takes the buffer over, also on failure.  DYT_ERR_PEER: that rank has not said
 * hello, or is gone. */
enum dyt_status dyti_control_send(struct dyti_control_server *server,
                                  uint32_t rank, struct dyti_buffer *buffer);
/* The same bytes to ranks 0 .. rank_count. */
enum dyt_status dyti_control_send_all(struct dyti_control_server *server,
                                      struct dyti_buffer *buffer);

void dyti_control_server_counts(const struct dyti_control_server *server,
                                struct dyti_control_counts *out);

/* ---- worker -------------------------------------------------------------- */

struct dyti_control_client;

enum dyt_status dyti_control_client_open(const char *endpoint, uint64_t job,
                                         uint32_t rank, dyti_envelope_fn decode,
                                         struct dyti_control_client **out);
void dyti_control_client_close(struct dyti_control_client *client);

struct dyti_envelope dyti_control_client_stamp(
    struct dyti_control_client *client, enum dyti_message type, uint64_t epoch,
    uint64_t version);
/* Takes the buffer over, also on failure. */
enum dyt_status dyti_control_client_send(struct dyti_control_client *client,
                                         struct dyti_buffer *buffer);
/* Next accepted message; DYT_PENDING after the timeout (< 0: no limit). */
enum dyt_status dyti_control_client_receive(struct dyti_control_client *client,
                                            int64_t timeout_ms,
                                            struct dyti_frame *out_frame);
void dyti_control_client_counts(const struct dyti_control_client *client,
                                struct dyti_control_counts *out);

#endif /* DYTI_CONTROL_CONTROL_H */
