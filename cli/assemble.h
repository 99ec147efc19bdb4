/* From a job and a model to everything that is pure: catalogue, layouts, arena
 * maps, settings of the roles.  Manager, workers, `plan` and --dry-run all make
 * it from the same inputs, so all have the same. */
#ifndef DYTI_CLI_ASSEMBLE_H
#define DYTI_CLI_ASSEMBLE_H

#include "format/job.h"
#include "layout/arena.h"
#include "rollout/engine.h"
#include "trainer/trainer.h"

#define DYTI_RANKS_MAX 64u /* that one manager starts; plans may have more */

struct dyti_assembly {
    const struct dyti_job *job; /* borrowed */
    struct dyti_arch arch;
    struct dyti_model *model;
    struct dyti_layout
        *layout[DYTI_ARENA_SLOT_COUNT];  /* NULL: not in the job */
    struct dyti_arena_map *map;          /* [world_size] */
    uint64_t *rollout_work, *train_work; /* [world_size] bytes asked, 0: none */
    enum dyti_switch_mode mode; /* the job's, or what low memory makes of it */
    uint64_t staging_bytes;     /* of each rank, in_place */
    uint32_t world_size;
    uint32_t positions; /* longest prompt + response */
};

/* DYT_ERR_LAYOUT, DYT_ERR_CONFIG: the text names the setting. */
enum dyt_status dyti_assembly_build(const struct dyti_job *job,
                                    const struct dyti_arch *arch,
                                    struct dyti_assembly *out);
void dyti_assembly_fini(struct dyti_assembly *assembly);

/* Everything of the role's params that is known without memory: handles,
 * addresses and kernels stay zero. */
struct dyti_rollout_params dyti_assembly_rollout(
    const struct dyti_assembly *assembly, uint32_t rank);
struct dyti_trainer_config dyti_assembly_trainer(
    const struct dyti_assembly *assembly);

/* Sequences that one step trains on. */
uint32_t dyti_assembly_batch(const struct dyti_job *job);

bool dyti_assembly_member(const struct dyti_assembly *assembly,
                          enum dyti_arena_slot slot, uint32_t rank);

#endif /* DYTI_CLI_ASSEMBLE_H */
