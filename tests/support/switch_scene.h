/* A scene of a switch test: a case, its memory, and the same body for all ranks
 * of a world over it.  What a scene is besides, its test says. */
#ifndef DYT_SWITCH_SCENE_H
#define DYT_SWITCH_SCENE_H

#include "switch_world.h"

/* From `seed` on the first whose ranks all are in both layouts, and whose
 * rollout parks the optimizer state. */
static inline uint64_t sw_good_seed(uint64_t seed, uint32_t world_size)
{
    for (;; seed++) {
        struct sw_case c;
        bool good;

        assert_ok(sw_case_init(&c, seed, world_size));
        good = c.layout[DYTI_ARENA_TRAIN]->member_count == world_size &&
               c.layout[DYTI_ARENA_ROLLOUT]->member_count == world_size &&
               !c.moves_optimizer;
        sw_case_fini(&c);
        if (good) {
            return seed;
        }
    }
}

struct sw_stage {
    enum dyt_ranks_kind kind;
    uint64_t seed;
    uint32_t world_size;
    uint32_t others;                          /* beside them: a manager */
    const struct dyti_arena_options *options; /* NULL: SW_WORK_BYTES alone */
    int64_t timeout_ns;                       /* 0: long */
};

/* All ranks run `fn`, with `scene` for its argument; *memory, which is part of
 * the scene, is what they open their worlds with. */
static inline void sw_play(const struct sw_stage *stage, dyt_rank_fn fn,
                           void *scene, const struct sw_memory **memory)
{
    const struct dyti_arena_options plain = {.work_bytes = SW_WORK_BYTES};
    struct sw_memory mine;
    struct sw_case c;

    assert_ok(
        sw_case_init_mode(&c, stage->seed, stage->world_size,
                          stage->options != NULL ? stage->options : &plain));
    sw_memory_open(&mine, &c, stage->kind);
    if (stage->timeout_ns > 0) {
        mine.timeout_ns = stage->timeout_ns;
    }
    *memory = &mine;
    dyt_ranks_run(stage->kind, stage->world_size + stage->others, fn, scene);
    *memory = NULL;
    sw_memory_close(&mine, stage->world_size);
    sw_case_fini(&c);
}

/* False: there is no world, and the rank says why.  It is closed either way. */
static inline bool sw_enter(struct sw_rank *rank, struct dyt_rank *me,
                            uint64_t seed, uint32_t world_size,
                            const struct sw_memory *memory)
{
    if (sw_rank_open(rank, me, seed, world_size, memory) == DYT_OK) {
        return true;
    }
    rank_wrong(me, "%s", dyti_error_text());
    return false;
}

/* New values, version n + 1, to the rollout layout and back, looked at in both.
 */
static inline void sw_there_and_back(
    struct sw_rank *rank, uint64_t n,
    const struct dyti_world_switch_options *options, enum dyti_verify verify)
{
    struct dyt_rank *me = rank->me;
    struct dyti_switch_report report;
    struct dyti_switch_order order = {.epoch = 2 * n + 1,
                                      .version = n + 1,
                                      .unmanaged = true,
                                      .verify = verify};

    sw_update(rank, DYTI_ARENA_TRAIN, n + 1);
    rank_ok(me, sw_switch(rank, DYTI_ARENA_TRAIN, DYTI_ARENA_ROLLOUT, options,
                          &order, &report));
    rank_true(me, report.decision == DYTI_DECISION_COMMIT);
    rank_true(me, rank->c.moves_optimizer
                      ? sw_check_all(rank, DYTI_ARENA_ROLLOUT, n + 1)
                      : sw_check(rank, DYTI_ARENA_ROLLOUT, DYTI_PARAM, n + 1));
    order.epoch++;
    rank_ok(me, sw_switch(rank, DYTI_ARENA_ROLLOUT, DYTI_ARENA_TRAIN, options,
                          &order, &report));
    rank_true(me, sw_check_all(rank, DYTI_ARENA_TRAIN, n + 1));
}

/* Until all ranks are here. */
static inline void sw_meet(const struct sw_rank *rank)
{
    struct dyti_group all = dyti_world_all(rank->world);

    rank_ok(rank->me, all.size == 1 ? DYT_OK : all.ops->barrier(all.self));
}

#endif /* DYT_SWITCH_SCENE_H */
