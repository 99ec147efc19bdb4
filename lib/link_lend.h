/* Descriptors of lent memory (ops/memory.h) on their way from the processes
 * that lend to those that borrow, which need not be related.
 *
 * A lender listens on a socket of an abstract name for as long as this takes;
 * borrowers come and ask for pieces, a few at a time, so that few files are
 * open on either side.  Both sides look who the other one is: the same user, or
 * it is not heard.  No thread: all members do it together, serving and asking
 * in one loop, which ends with the abort word and the deadline.  Nothing is
 * left behind, however it ends: the name goes with its socket. */
#ifndef DYTI_LIB_LINK_LEND_H
#define DYTI_LIB_LINK_LEND_H

#include "ops/group.h"
#include "ops/memory.h"

/* A loan that was borrowed and wants its pieces. */
struct dyti_lend_want {
    uint32_t member; /* that lends it */
    const struct dyti_memory_loan *loan;
    struct dyti_memory_borrowed *borrowed; /* wanted: 0 afterwards */
};

struct dyti_lend_params {
    uint32_t struct_size;
    const struct dyti_memory_ops *memory; /* a device is in use */
    const struct dyti_group *all;         /* the members, on one host */
    const struct dyti_abort_word *abort;  /* NULL: none */
    int64_t timeout_ns;                   /* without progress; <= 0: none */
    /* What others may ask this member for: equal bytes. */
    const struct dyti_memory_loan *loan; /* [loan_count] */
    uint32_t loan_count;
    const struct dyti_lend_want *want; /* [want_count] of any members; those
                                          that want no pieces are left alone */
    uint32_t want_count;
};

/**
 * Collective: all members, also those without a want.  Costs one meeting where
 * nobody has any.
 *
 * One member's failure does not fail the others, who may need him: he goes on
 * serving, and returns it at the end.  Members tell each other how it went
 * afterwards.
 * @param out_met  how they met before it: not DYT_OK is what all find, and what
 *                 is returned
 * @return DYT_ERR_PEER     a member is gone; was aborted; has freed the memory;
 *                          is another user's
 *         DYT_ERR_TIMEOUT  names one that is waited for
 *         DYT_ERR_IO       no more files may be open
 *         what lend_piece() and borrow_piece() say
 *         After a failure only give_back() is left for what was wanted.
 */
enum dyt_status dyti_lend_pieces(const struct dyti_lend_params *params,
                                 enum dyt_status *out_met);

#endif /* DYTI_LIB_LINK_LEND_H */
