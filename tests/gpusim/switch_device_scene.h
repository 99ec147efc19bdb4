/* A switch of ranks with memory of devices, of which each plays the same part.
 */
#ifndef DYT_SWITCH_DEVICE_SCENE_H
#define DYT_SWITCH_DEVICE_SCENE_H

#include "switch_scene.h"

struct scene {
    uint64_t seed;
    uint32_t world_size;
    const struct sw_memory *memory;
    struct dyti_world_switch_options options;
    void (*body)(struct sw_rank *rank, const struct scene *scene);
    _Atomic uint64_t *shared; /* [2] of all ranks */
};

static inline void scene_rank(struct dyt_rank *me)
{
    const struct scene *scene = me->arg;
    struct sw_rank rank;

    if (sw_enter(&rank, me, scene->seed, scene->world_size, scene->memory)) {
        scene->body(&rank, scene);
    }
    sw_rank_close(&rank);
}

static inline void play(enum dyt_ranks_kind kind,
                        const struct dyti_arena_options *options,
                        struct scene *scene)
{
    struct sw_stage stage = {.kind = kind,
                             .seed = scene->seed,
                             .world_size = scene->world_size,
                             .options = options};

    scene->shared = dyt_ranks_shared(2 * sizeof(*scene->shared));
    sw_play(&stage, scene_rank, scene, &scene->memory);
    munmap((void *)scene->shared, 2 * sizeof(*scene->shared));
}

#endif /* DYT_SWITCH_DEVICE_SCENE_H */
