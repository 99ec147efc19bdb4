/* All ranks of a test (dyt_ranks.h) as a group over shared memory. */
#ifndef DYT_RANK_GROUP_H
#define DYT_RANK_GROUP_H

#include "dyt_ranks.h"

#include "comm/shm/shm.h"

/* On success close with dyti_group_shm.close(out->self).
 *   region  dyti_group_shm.region_bytes(me->size) of memory that all share */
static inline enum dyt_status rank_group_open(const struct dyt_rank *me,
                                              void *region,
                                              struct dyti_abort_word *abort,
                                              int64_t timeout_ns,
                                              struct dyti_group *out)
{
    struct dyti_group_params params = {
        .struct_size = sizeof(params),
        .name = "test",
        .rank = me->rank,
        .size = me->size,
        .shared = region,
        .shared_bytes = dyti_group_shm.region_bytes(me->size),
        .abort = abort,
        .timeout_ns = timeout_ns,
        .oversubscribed = true};

    *out = (struct dyti_group){&dyti_group_shm, NULL, me->rank, me->size};
    return dyti_group_shm.open(&params, &out->self);
}

#endif /* DYT_RANK_GROUP_H */
