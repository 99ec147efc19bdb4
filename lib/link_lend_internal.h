/* What the two halves of handing descriptors over share: who lends to whom, and
 * how far they are. */
#ifndef DYTI_LIB_LINK_LEND_INTERNAL_H
#define DYTI_LIB_LINK_LEND_INTERNAL_H

#include "lib/link_lend.h"

#include "lib/link_lend_wire.h"

/* A borrower that has come. */
struct dyti_lend_guest {
    int fd;
    bool is_known; /* it has said who it is: */
    uint32_t rank;
    bool is_asking;
    struct dyti_lend_request request; /* while it is asking */
};

/* A lender that pieces are wanted from. */
struct dyti_lend_host {
    int fd; /* -1: not connected yet, or over */
    bool is_wanted, is_over, is_waiting;
    uint32_t want; /* index of the one that is asked for */
    uint64_t at;   /* bytes of its pieces that have come */
};

/* What a member tells before: where it listens, and whom it asks. */
struct dyti_lend_exchange {
    const struct dyti_lend_params *p;
    uint32_t rank, size, words;  /* words: of a member's line */
    uint64_t *line;              /* [size][words]: name, and bits of lenders */
    bool *is_served;             /* [size] comes no more, or never */
    struct dyti_lend_host *host; /* [size] */
    struct dyti_lend_guest *guest; /* [guest_cap] */
    struct pollfd *poll;           /* [1 + guest_cap + size] */
    uint32_t guest_count, guest_cap;
    int listener;
    enum dyt_status status; /* first failure of this member */
    char text[384];         /* its words */
    bool has_moved;         /* in this turn */
};

/* Does one ask the other? */
bool dyti_lend_wants(const struct dyti_lend_exchange *e, uint32_t who,
                     uint32_t whom);
/* The first failure stays: what others need of this member goes on. */
void dyti_lend_keep(struct dyti_lend_exchange *e, enum dyt_status st);

/* link_lend_serve.c: one turn with all that have come. */
void dyti_lend_serve(struct dyti_lend_exchange *e);
/* link_lend_ask.c: one turn with all that are asked. */
void dyti_lend_ask(struct dyti_lend_exchange *e);

#endif /* DYTI_LIB_LINK_LEND_INTERNAL_H */
