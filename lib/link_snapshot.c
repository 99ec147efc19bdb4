/* A copy of a member's rows in memory of ours that others can map. */
#include "lib/link_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct dyti_snapshot {
    struct dyti_guard guard; /* of the rows, what may be truncated */
    struct dyti_reach rows;
    struct dyti_dense dense;
    struct dyti_segment_mem segment;
    struct dyti_copy *copy; /* [dense.view.shard_count] */
    struct dyti_hands hands;
    struct dyti_memory_view view;
};

/* One extent for each kind. */
static enum dyt_status describe(struct dyti_snapshot *self)
{
    struct dyti_memory_view *out = &self->view;
    struct stat info = {0};

    if (self->segment.base != NULL && fstat(self->segment.handle, &info) != 0) {
        return DYTI_FAIL(DYT_ERR_IO, "the segment of a snapshot: %s",
                         strerror(errno));
    }
    out->pid = self->rows.memory->pid;
    out->pid_start = self->rows.memory->pid_start;
    out->extent = calloc(DYTI_KIND_COUNT, sizeof(*out->extent));
    out->shard_row = calloc((size_t)self->dense.view.shard_count + 1,
                            sizeof(*out->shard_row));
    out->row_as =
        calloc((size_t)self->rows.memory->row_count + 1, sizeof(*out->row_as));
    if (out->extent == NULL || out->shard_row == NULL || out->row_as == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a snapshot");
    }
    for (uint32_t k = 0; k < DYTI_KIND_COUNT; k++) {
        if (self->dense.view.region_bytes[k] > 0) {
            out->extent[out->extent_count++] = (struct dyti_extent){
                .bytes = self->dense.view.region_bytes[k],
                .address = (uint64_t)(uintptr_t)self->segment.base +
                           self->dense.region_at[k],
                .fd = self->segment.handle,
                .kind = k,
                .fd_offset = self->dense.region_at[k],
                .device = (uint64_t)info.st_dev,
                .inode = (uint64_t)info.st_ino};
        }
    }
    out->row_count = self->rows.memory->row_count;
    for (uint32_t i = 0; i < self->dense.view.shard_count; i++) {
        out->shard_row[i] =
            self->rows.memory->shard_row == NULL
                ? UINT32_MAX
                : self->rows.memory->shard_row[self->dense.from[i]];
    }
    if (self->rows.memory->row_as != NULL) {
        memcpy(out->row_as, self->rows.memory->row_as,
               out->row_count * sizeof(*out->row_as));
    }
    out->view = self->dense.view; /* moved: the dense one keeps the order */
    return DYT_OK;
}

static enum dyt_status open_snapshot(struct dyti_snapshot *self,
                                     const struct dyti_model *catalogue,
                                     const struct dyti_memory_view *memory,
                                     const uint8_t *dtype, uint64_t cap_bytes)
{
    enum dyt_status st = dyti_reach_init(
        &self->rows, memory, DYTI_LINK_KINDS_ALL, false, &self->guard);

    st = st != DYT_OK
             ? st
             : dyti_dense_init(&self->dense, &memory->view, DYTI_LINK_KINDS_ALL,
                               dtype, catalogue->tensor_count);
    if (st == DYT_OK && cap_bytes > 0 && self->dense.bytes > cap_bytes) {
        st = DYTI_FAIL(DYT_ERR_NOMEM,
                       "a snapshot needs %llu bytes, the cap is %llu",
                       (unsigned long long)self->dense.bytes,
                       (unsigned long long)cap_bytes);
    }
    st = st != DYT_OK ? st
                      : dyti_segment_open("dynatrain snapshot",
                                          self->dense.bytes, &self->segment);
    st = st != DYT_OK
             ? st
             : dyti_dense_copies(&self->dense, &self->rows, self->segment.base,
                                 true, &self->copy);
    st = st != DYT_OK
             ? st
             : dyti_hands_open(&self->hands, dyti_hands_cores(), &self->guard);
    return st != DYT_OK ? st : describe(self);
}

enum dyt_status dyti_snapshot_open(const struct dyti_model *catalogue,
                                   const struct dyti_memory_view *memory,
                                   const uint8_t *dtype, uint64_t cap_bytes,
                                   struct dyti_snapshot **out_snapshot)
{
    struct dyti_snapshot *self = calloc(1, sizeof(*self));
    enum dyt_status st;

    if (self == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a snapshot");
    }
    self->segment.handle = -1;
    self->guard.catalogue = catalogue;
    st = open_snapshot(self, catalogue, memory, dtype, cap_bytes);
    if (st != DYT_OK) {
        DYTI_NOTE("opening a snapshot of %u shards", memory->view.shard_count);
        dyti_snapshot_close(self);
        return st;
    }
    *out_snapshot = self;
    return DYT_OK;
}

enum dyt_status dyti_snapshot_take(struct dyti_snapshot *snapshot)
{
    return snapshot->hands.kernels.ops->copy(snapshot->hands.kernels.self,
                                             snapshot->copy,
                                             snapshot->view.view.shard_count);
}

const struct dyti_memory_view *dyti_snapshot_view(
    const struct dyti_snapshot *snapshot)
{
    return &snapshot->view;
}

void dyti_snapshot_close(struct dyti_snapshot *snapshot)
{
    if (snapshot == NULL) {
        return;
    }
    if (snapshot->view.view.shard != NULL) { /* it was moved there */
        snapshot->dense.view = (struct dyti_view){0};
    }
    dyti_memory_view_fini(&snapshot->view);
    dyti_hands_close(&snapshot->hands);
    dyti_guard_fini(&snapshot->guard);
    dyti_dense_fini(&snapshot->dense);
    dyti_reach_fini(&snapshot->rows);
    dyti_segment_close(&snapshot->segment);
    free(snapshot->copy);
    free(snapshot);
}
