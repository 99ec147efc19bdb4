/* gloo as C sees it.  No exception leaves the shim: calls return a result and
 * leave its words in a text. */
#ifndef DYTI_COMM_GLOO_SHIM_H
#define DYTI_COMM_GLOO_SHIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum dyti_gloo_result {
    DYTI_GLOO_OK,
    DYTI_GLOO_PENDING,
    DYTI_GLOO_BROKEN, /* a deadline, an interruption, a lost connection */
    DYTI_GLOO_NOMEM
};

/* Where members find each other's addresses while they open. */
struct dyti_gloo_store {
    void *arg;
    /* 0: stored. */
    int (*set)(void *arg, const char *key, const void *data, size_t bytes);
    /* Bytes, 0 if it is not there yet, negative to give up. */
    long (*get)(void *arg, const char *key, void *data, size_t room);
    /* Not 0: another member has failed; asked while connections are made. */
    int (*given_up)(void *arg);
};

struct dyti_gloo_params {
    uint32_t rank, size;
    const char *address; /* of this member */
    struct dyti_gloo_store store;
    int64_t open_timeout_ms;
    int64_t timeout_ms; /* of a collective; 0: none */
};

struct dyti_gloo;
struct dyti_gloo_message;

enum dyti_gloo_result dyti_gloo_open(const struct dyti_gloo_params *params,
                                     struct dyti_gloo **out, char *text,
                                     size_t text_size);
void dyti_gloo_close(struct dyti_gloo *self);

/* Collectives: block until done, a deadline, or dyti_gloo_interrupt(). */
enum dyti_gloo_result dyti_gloo_all_gather(struct dyti_gloo *self,
                                           const void *in, void *out,
                                           const uint64_t *counts_bytes,
                                           char *text, size_t text_size);
enum dyti_gloo_result dyti_gloo_broadcast(struct dyti_gloo *self, void *buf,
                                          uint64_t bytes, uint32_t root,
                                          char *text, size_t text_size);
/* in: what goes to member m, send_bytes[m], one after the other; out alike. */
enum dyti_gloo_result dyti_gloo_all_to_all(
    struct dyti_gloo *self, const void *in, const uint64_t *send_bytes,
    void *out, const uint64_t *recv_bytes, char *text, size_t text_size);
/* From any thread: every call and message that waits ends as BROKEN, and so do
 * all that come. */
void dyti_gloo_interrupt(struct dyti_gloo *self);
/* From any thread, now and then while something waits: what waits for a
 * connection that has ended, ends as BROKEN. */
void dyti_gloo_finish_lost(struct dyti_gloo *self);

/* Messages.  Both ends give the same slot. */
enum dyti_gloo_result dyti_gloo_post(struct dyti_gloo *self, uint32_t peer,
                                     int is_send, void *buf, uint64_t bytes,
                                     uint64_t slot,
                                     struct dyti_gloo_message **out, char *text,
                                     size_t text_size);
/* OK or BROKEN: the post is gone. */
enum dyti_gloo_result dyti_gloo_poll(struct dyti_gloo *self,
                                     struct dyti_gloo_message *post, char *text,
                                     size_t text_size);
/* Sleep until one more message than `seen` has ended, or max_ms have passed. */
uint64_t dyti_gloo_wait(struct dyti_gloo *self, uint64_t seen, int64_t max_ms);
/* Messages that have ended so far. */
uint64_t dyti_gloo_ended(struct dyti_gloo *self);
/* Forget a message, whatever it does: its memory is not touched any more. */
void dyti_gloo_drop(struct dyti_gloo *self, struct dyti_gloo_message *post);

#ifdef __cplusplus
}
#endif

#endif /* DYTI_COMM_GLOO_SHIM_H */
