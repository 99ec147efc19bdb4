/* Plans and schedules by fingerprint: the second switch between two layouts
 * plans nothing.  One cache per rank.
 * Threads: one at a time. */
#ifndef DYTI_SCHED_CACHE_H
#define DYTI_SCHED_CACHE_H

#include "sched/sched.h"

/* What exec needs for one switch: both artifacts of one rank.  Owned by the
 * cache, never changes, lives until the cache is destroyed. */
struct dyti_switch_plan {
    const struct dyti_plan *plan;
    const struct dyti_schedule *schedule;
    uint64_t fingerprint; /* of both: what ranks compare before a byte moves */
};

struct dyti_switch_cache;

enum dyt_status dyti_switch_cache_create(struct dyti_switch_cache **out_cache);
void dyti_switch_cache_destroy(struct dyti_switch_cache *cache);

/* What is built is told, stage by stage: fn(arg, "plan"), fn(arg, NULL) when it
 * has ended, and likewise "sched".  What is found is not.  NULL: nobody. */
typedef void (*dyti_switch_cache_stage_fn)(const void *arg, const char *stage);
void dyti_switch_cache_watch(struct dyti_switch_cache *cache,
                             dyti_switch_cache_stage_fn fn, const void *arg);

/**
 * The plan and schedule of `rank`, built the first time.  The layouts must
 * outlive their use of the result; layouts that were built anew with equal
 * inputs find what the old ones left.
 * @return what dyti_plan_build_rank and dyti_schedule_build return
 */
enum dyt_status dyti_switch_cache_get(
    struct dyti_switch_cache *cache, const struct dyti_plan_inputs *inputs,
    uint32_t rank, const struct dyti_schedule_options *options,
    const struct dyti_switch_plan **out_plan);

/* How often something was found / built since the cache was created. */
void dyti_switch_cache_counts(const struct dyti_switch_cache *cache,
                              uint64_t *out_hits, uint64_t *out_builds);

#endif /* DYTI_SCHED_CACHE_H */
