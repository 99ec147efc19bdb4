/* Sets of ranks, interned: equal sets have equal numbers.  Each knows its ranks
 * by host. */
#ifndef DYTI_PLAN_SETS_H
#define DYTI_PLAN_SETS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DYTI_NO_SET UINT32_MAX

/* Ranks of one host of a set: rank[first .. + count). */
struct dyti_host_run {
    uint32_t host, first, count;
    uint32_t set; /* these ranks alone; the set itself if it has one run */
};

struct dyti_rank_set {
    size_t first; /* into sets.rank: by host, then rank */
    uint32_t count;
    uint32_t run_count; /* hosts; 0: not split yet */
    size_t run_first;
    uint64_t hash;
};

struct dyti_sets {
    const uint32_t *host; /* [world_size], borrowed */
    uint32_t world_size;
    struct dyti_rank_set *set;
    size_t set_count, set_cap;
    uint32_t *rank;
    size_t rank_count, rank_cap;
    struct dyti_host_run *run;
    size_t run_count, run_cap;
    uint32_t *slot; /* hash table of set numbers + 1 */
    size_t slot_count;
    uint32_t *scratch; /* [2 * world_size] */
};

enum dyt_status dyti_sets_init(struct dyti_sets *sets, const uint32_t *host,
                               uint32_t world_size);
void dyti_sets_fini(struct dyti_sets *sets); /* a zeroed one is fine */

/* The number of a set; `rank` in any order, each once.  DYT_ERR_INVALID: a rank
 * outside the world. */
enum dyt_status dyti_sets_intern(struct dyti_sets *sets, const uint32_t *rank,
                                 uint32_t count, uint32_t *out_set);
enum dyt_status dyti_sets_union(struct dyti_sets *sets, uint32_t a, uint32_t b,
                                uint32_t *out_set);
/* Fill in the runs of a set. */
enum dyt_status dyti_sets_split(struct dyti_sets *sets, uint32_t set);

static inline const uint32_t *dyti_sets_ranks(const struct dyti_sets *sets,
                                              uint32_t set)
{
    return sets->rank + sets->set[set].first;
}

static inline uint32_t dyti_sets_count(const struct dyti_sets *sets,
                                       uint32_t set)
{
    return sets->set[set].count;
}

#endif /* DYTI_PLAN_SETS_H */
