/* Shards of one kind of a layout by tensor, over all ranks: so that planning a
 * shard looks only at shards that touch it. */
#ifndef DYTI_PLAN_INDEX_H
#define DYTI_PLAN_INDEX_H

#include "layout/layout.h"

struct dyti_index_entry {
    uint32_t rank, shard; /* shard of that rank's view */
    int64_t lo, hi;       /* along the tensor's cut axis */
    int64_t reach;        /* largest hi of this and all entries before it */
};

struct dyti_index {
    const struct dyti_layout *layout; /* borrowed */
    enum dyti_kind kind;
    size_t *first;                  /* [tensor_count + 1] */
    struct dyti_index_entry *entry; /* by tensor, lo, rank, shard */
};

/* fini on a zeroed index is fine. */
enum dyt_status dyti_index_init(struct dyti_index *index,
                                const struct dyti_layout *layout,
                                enum dyti_kind kind);
void dyti_index_fini(struct dyti_index *index);

/* Entries [*out_first, *out_end) may touch [lo, hi) of the tensor's cut axis;
 * all others do not. */
void dyti_index_range(const struct dyti_index *index, uint32_t tensor,
                      int64_t lo, int64_t hi, size_t *out_first,
                      size_t *out_end);

static inline const struct dyti_shard *dyti_index_shard(
    const struct dyti_index *index, const struct dyti_index_entry *entry)
{
    return &index->layout->view[entry->rank].shard[entry->shard];
}

#endif /* DYTI_PLAN_INDEX_H */
