/* What lender and borrower say to each other, and the socket they say it on. */
#ifndef DYTI_LIB_LINK_LEND_WIRE_H
#define DYTI_LIB_LINK_LEND_WIRE_H

#include "ops/memory.h"

#define DYTI_LEND_BATCH 16u /* pieces of one message */

enum dyti_lend_ask {
    DYTI_LEND_PIECES,
    DYTI_LEND_END /* of all that the asker wanted */
};

struct dyti_lend_request {
    char magic[8];
    uint32_t ask;  /* enum dyti_lend_ask */
    uint32_t rank; /* who asks */
    uint64_t at;   /* bytes of the loan's pieces that came before */
    struct dyti_memory_loan loan;
};

struct dyti_lend_reply {
    char magic[8];
    int32_t status; /* enum dyt_status; not DYT_OK: `text` */
    uint32_t count; /* pieces, each with a descriptor */
    uint64_t bytes[DYTI_LEND_BATCH];
    char text[256];
};

/* A name that is free, by its number, and who comes does not block. */
enum dyt_status dyti_lend_listen(int *out_fd, uint64_t *out_name);
/* DYT_PENDING: nobody is there.  A process of another user is sent away. */
enum dyt_status dyti_lend_accept(int listener, int *out_fd);
/* DYT_PENDING: too many are coming at once, try again.  DYT_ERR_PEER: nobody
 * listens, or another user does. */
enum dyt_status dyti_lend_connect(uint64_t name, int *out_fd);

/* The one message that is on its way fits.  DYT_ERR_PEER: the other is gone.
 * DYT_PENDING: the system holds too many descriptors on their way, try again.
 */
enum dyt_status dyti_lend_send_request(int fd,
                                       const struct dyti_lend_request *request);
enum dyt_status dyti_lend_send_reply(int fd,
                                     const struct dyti_lend_reply *reply,
                                     const int *piece);
/* DYT_PENDING: nothing came yet.  DYT_ERR_PEER: the other is gone.
 * DYT_ERR_FORMAT: it speaks otherwise. */
enum dyt_status dyti_lend_receive_request(
    int fd, struct dyti_lend_request *out_request);
/* piece: [DYTI_LEND_BATCH], reply->count of them are the caller's to close,
 * also with a failure; the others are -1. */
enum dyt_status dyti_lend_receive_reply(int fd,
                                        struct dyti_lend_reply *out_reply,
                                        int *piece);

#endif /* DYTI_LIB_LINK_LEND_WIRE_H */
