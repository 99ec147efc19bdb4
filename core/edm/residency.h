/* Sleep and wake: memory of this rank that nobody needs now goes back to the
 * system, and its addresses stay.  What slept holds nothing when it wakes: it
 * is INVALID (exec/control.h) until a switch has filled it.
 *
 *   weights    the rollout layout's param, in all its address sets
 *   kv_cache   work memory: KV cache, activations
 *   optimizer  master, exp_avg, exp_avg_sq of the train layout
 *   grad       of the train layout
 *
 * Optimizer state of a device may be kept in pinned host memory meanwhile, as
 * far as the world was given some (world.h): then it wakes as it was, and its
 * release is no loss.
 *
 * Threads: as the world's. */
#ifndef DYTI_EDM_RESIDENCY_H
#define DYTI_EDM_RESIDENCY_H

#include "edm/world.h"

enum dyti_tag {
    DYTI_TAG_WEIGHTS,
    DYTI_TAG_KV_CACHE,
    DYTI_TAG_OPTIMIZER,
    DYTI_TAG_GRAD,
    DYTI_TAG_COUNT
};

#define DYTI_TAG_BIT(tag) (1u << (uint32_t)(tag))

struct dyti_residency_report {
    uint64_t bytes; /* physical memory given back, or addresses woken */
    int64_t ns;
};

/**
 * Give the memory of `tags` (bits) back.  Each rank for itself.  What sleeps
 * already is left alone.
 * @param received  of those, the tags whose next restore is a receive: a switch
 *                  will fill them, so it is no loss that no other rank and no
 *                  other kind holds the values
 * @return DYT_ERR_STATE  a switch runs; or values would be lost: the text names
 *                        kind and rank.  Nothing was released
 * @return DYT_ERR_NOMEM  more optimizer state than host memory may keep, with
 *                        both numbers.  Nothing was released
 */
enum dyt_status dyti_world_release(struct dyti_world *world, uint32_t tags,
                                   uint32_t received,
                                   struct dyti_residency_report *out_report);

/* Make `tags` usable again: pages come as they are touched, zeroed.  Weights
 * and optimizer state are INVALID until they have been received, but for what
 * was kept in host memory. */
enum dyt_status dyti_world_restore(struct dyti_world *world, uint32_t tags,
                                   struct dyti_residency_report *out_report);

/* Bits of the tags that sleep on this rank. */
uint32_t dyti_world_asleep(const struct dyti_world *world);

/* What a switch gave back and woke, and the most memory that it stood at. */
struct dyti_world_switch_memory {
    struct dyti_residency_report before, after, woken;
    uint64_t peak_bytes; /* of the segment, physical: between the two */
};

/**
 * A switch that gives memory back as it goes: first what the ended phase leaves
 * and the switch does not read (KV cache and activations, gradients), then the
 * destination wakes and is filled, and once all have committed the source's
 * regions that are abandoned go.  The peak is so what is resident and the two
 * layouts, never the caches of a phase besides.  Logs bytes and seconds.
 * @param self  what dyti_world_prepare() gave for these two slots
 * @return as dyti_switch_run(); after a failure the source is as it was
 */
enum dyt_status dyti_world_switch(struct dyti_world *world,
                                  enum dyti_arena_slot from,
                                  enum dyti_arena_slot to,
                                  struct dyti_switch *self,
                                  const struct dyti_switch_order *order,
                                  struct dyti_switch_report *out_report,
                                  struct dyti_world_switch_memory *out_memory);

#endif /* DYTI_EDM_RESIDENCY_H */
