/* How the parts of a price are worded: shared by its text, JSON and page. */
#ifndef DYTI_EXPLAIN_PRICE_WORDS_H
#define DYTI_EXPLAIN_PRICE_WORDS_H

#include "explain/price.h"
#include "explain/words.h"
#include "layout/dialect.h"

/* "megatron TP 4 PP 8 DP 4 ep 16 ZeRO 1" */
struct dyti_words dyti_words_degrees(const struct dyti_layout_desc *desc);
/* "6.74 billion parameters", "97.28 thousand parameters" */
struct dyti_words dyti_words_parameters(const struct dyti_model *model);
const char *dyti_words_link(enum dyti_link_class link); /* static */

/* Bytes of the rank that has the most. */
struct dyti_price_peaks {
    uint64_t src, dst;
    uint64_t both; /* source and destination beside each other */
    uint64_t most; /* the larger of the two: overlaid */
    uint32_t both_rank;
};
struct dyti_price_peaks dyti_price_peaks(const struct dyti_price *price);

/* The collectives of one kind together. */
struct dyti_collective_sum {
    uint32_t count, members; /* members: of the largest */
    uint64_t bytes;          /* of the contents, or of one member's parts */
};
struct dyti_collective_sum dyti_collective_sum(
    const struct dyti_promotion *promotion, enum dyti_collective_kind kind);

#endif /* DYTI_EXPLAIN_PRICE_WORDS_H */
