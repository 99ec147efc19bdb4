/* What is checked of shards that somebody handed in.  For list.c only. */
#ifndef DYTI_LAYOUT_LIST_H
#define DYTI_LAYOUT_LIST_H

#include "layout/layout.h"

#define DYTI_FAULTS      10u
#define DYTI_FAULT_BYTES 1600u

/* Faults in words, one behind the other: the first ten. */
struct dyti_faults {
    char text[DYTI_FAULT_BYTES];
    uint32_t count; /* all that were found, until ten are in the text */
};

void dyti_fault(struct dyti_faults *faults, const char *fmt, ...)
    DYTI_PRINTF(2, 3);
static inline bool dyti_faults_full(const struct dyti_faults *faults)
{
    return faults->count >= DYTI_FAULTS;
}

/* "[0:4, 8:16]". */
struct dyti_box_text {
    char text[DYT_MAX_DIMS * 44 + 4];
};
struct dyti_box_text dyti_box_words(const struct dyt_box *box);

/* Where a shard's bytes lie: *out_lo is the first, *out_hi behind the last.
 * false: they do not fit into 63 bits. */
bool dyti_shard_extent(const struct dyti_shard *shard, int64_t *out_lo,
                       int64_t *out_hi);

/* Shards of one kind of one rank that share a byte.  They lie in their region
 * and are not empty. */
enum dyt_status dyti_find_overlaps(const struct dyti_model *model,
                                   uint32_t rank,
                                   const struct dyti_shard *shard, size_t count,
                                   struct dyti_faults *faults);

/* Whether boxes of one tensor cover it; *out_missing is the first element that
 * is in none. */
enum dyt_status dyti_find_missing(const struct dyt_box *const *box,
                                  size_t count, const struct dyt_box *whole,
                                  bool *out_covered,
                                  int64_t out_missing[DYT_MAX_DIMS]);

#endif /* DYTI_LAYOUT_LIST_H */
