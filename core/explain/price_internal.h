/* What the files of a price share. */
#ifndef DYTI_EXPLAIN_PRICE_INTERNAL_H
#define DYTI_EXPLAIN_PRICE_INTERNAL_H

#include "explain/price.h"

/* What does not move: [world_size] each, owned by price.c. */
struct dyti_price_rest {
    uint64_t *resident;            /* lies in each rank's memory all along */
    uint64_t *keep;                /* copied inside the rank */
    int64_t *reads_more;           /* over what is written */
    struct dyti_rank_boxes *boxes; /* a transfer is one, whatever its strides */
};

/* Fills promotion and promoted. */
enum dyt_status dyti_price_promote(struct dyti_price *p,
                                   const struct dyti_price_rest *rest);

#endif /* DYTI_EXPLAIN_PRICE_INTERNAL_H */
