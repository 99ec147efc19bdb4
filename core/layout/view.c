/* Lists a rank's shards and buffers: what its dialect emits, in order. */
#include "layout/view.h"

#include "base/array.h"
#include "layout/index.h"

#include <stdlib.h>
#include <string.h>

/* The view that is being filled.  While names still grow, a buffer's name is
 * its position in them. */
struct lister {
    struct dyti_view *view;
    size_t shard_cap, buffer_cap, names_cap, names_bytes;
    enum dyti_kind kind;
};

static enum dyt_status take_shard(void *self, const struct dyti_shard *shard)
{
    struct lister *l = self;
    struct dyti_view *view = l->view;
    enum dyt_status st =
        view->shard_count == UINT32_MAX
            ? DYTI_FAIL(DYT_ERR_OVERFLOW, "more than %u shards on one rank",
                        UINT32_MAX)
            : DYTI_GROW(view->shard, l->shard_cap, view->shard_count + 1u);

    if (st == DYT_OK) {
        view->shard[view->shard_count++] = *shard;
    }
    return st;
}

static enum dyt_status take_buffer(void *self,
                                   const struct dyti_view_buffer *buffer)
{
    struct lister *l = self;
    struct dyti_view *view = l->view;
    size_t bytes = strlen(buffer->name) + 1;
    enum dyt_status st =
        DYTI_GROW(view->buffer, l->buffer_cap, view->buffer_count + 1u);

    st = st != DYT_OK
             ? st
             : DYTI_GROW(view->names, l->names_cap, l->names_bytes + bytes);
    if (st != DYT_OK) {
        return st;
    }
    memcpy(view->names + l->names_bytes, buffer->name, bytes);
    view->buffer[view->buffer_count] = *buffer;
    view->buffer[view->buffer_count++].name =
        (const char *)(uintptr_t)l->names_bytes;
    l->names_bytes += bytes;
    return DYT_OK;
}

static int by_tensor(const void *a, const void *b)
{
    const struct dyti_shard *x = a, *y = b;

    if (x->tensor != y->tensor) {
        return x->tensor < y->tensor ? -1 : 1;
    }
    if (x->offset != y->offset) {
        return x->offset < y->offset ? -1 : 1;
    }
    for (uint32_t d = 0; d < x->box.ndim && d < y->box.ndim; d++) {
        if (x->box.lo[d] != y->box.lo[d]) {
            return x->box.lo[d] < y->box.lo[d] ? -1 : 1;
        }
    }
    return 0;
}

void dyti_view_sort(struct dyti_shard *shard, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        if (by_tensor(&shard[i - 1], &shard[i]) > 0) {
            qsort(shard, count, sizeof(*shard), by_tensor);
            return;
        }
    }
}

static int by_offset(const void *a, const void *b)
{
    const struct dyti_view_buffer *x = a, *y = b;

    if (x->kind != y->kind) {
        return x->kind < y->kind ? -1 : 1;
    }
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static void name_buffers(struct dyti_view *view)
{
    for (uint32_t i = 0; i < view->buffer_count; i++) {
        view->buffer[i].name = view->names + (uintptr_t)view->buffer[i].name;
    }
    if (view->buffer_count > 1) {
        qsort(view->buffer, view->buffer_count, sizeof(*view->buffer),
              by_offset);
    }
}

enum dyt_status dyti_view_build(const struct dyti_layout *layout,
                                uint32_t member, struct dyti_view *view)
{
    const struct dyti_dialect_ops *ops = dyti_dialect_ops(layout->desc.dialect);
    struct lister l = {.view = view};
    const struct dyti_shard_sink sink = {
        .self = &l, .shard = take_shard, .buffer = take_buffer};
    enum dyt_status st = DYT_OK;

    dyti_layout_part(layout, member, &view->part);
    for (int kind = 0; kind < DYTI_KIND_COUNT && st == DYT_OK; kind++) {
        uint32_t first = view->shard_count;

        view->kind_first[kind] = first;
        if (dyti_layout_holds(layout, (enum dyti_kind)kind)) {
            st = ops->emit(layout, &view->part, (enum dyti_kind)kind, &sink,
                           &view->region_bytes[kind]);
        }
        if (view->shard_count > first) {
            dyti_view_sort(view->shard + first, view->shard_count - first);
        }
    }
    view->kind_first[DYTI_KIND_COUNT] = view->shard_count;
    name_buffers(view);
    return st == DYT_OK && ops->describe != NULL
               ? ops->describe(layout, &view->part, view)
               : st;
}

/* `count` items, or one byte of none: NULL is a failure. */
static void *duplicate(const void *from, size_t count, size_t item_bytes)
{
    void *copy = calloc(count + 1, item_bytes);

    if (copy != NULL && count > 0) {
        memcpy(copy, from, count * item_bytes);
    }
    return copy;
}

static size_t names_bytes(const struct dyti_view *view)
{
    size_t bytes = 0;

    for (uint32_t i = 0; i < view->buffer_count; i++) {
        bytes += strlen(view->buffer[i].name) + 1;
    }
    return bytes;
}

enum dyt_status dyti_view_copy(const struct dyti_view *view,
                               struct dyti_view *out_view)
{
    struct dyti_view copy = *view;
    size_t at = 0;

    copy.shard =
        duplicate(view->shard, view->shard_count, sizeof(*view->shard));
    copy.buffer =
        duplicate(view->buffer, view->buffer_count, sizeof(*view->buffer));
    copy.zero = duplicate(view->zero, view->zero_count, sizeof(*view->zero));
    copy.names = duplicate(NULL, 0, names_bytes(view) + 1);
    if (copy.shard == NULL || copy.buffer == NULL || copy.zero == NULL ||
        copy.names == NULL) {
        dyti_view_fini(&copy);
        return DYTI_FAIL(DYT_ERR_NOMEM, "a copy of a view of %u shards",
                         view->shard_count);
    }
    for (uint32_t i = 0; i < copy.buffer_count; i++) {
        size_t bytes = strlen(view->buffer[i].name) + 1;

        memcpy(copy.names + at, view->buffer[i].name, bytes);
        copy.buffer[i].name = copy.names + at;
        at += bytes;
    }
    *out_view = copy;
    return DYT_OK;
}

void dyti_view_fini(struct dyti_view *view)
{
    free(view->buffer);
    free(view->names);
    free(view->shard);
    free(view->zero);
    memset(view, 0, sizeof(*view));
}

const struct dyti_shard *dyti_view_find(const struct dyti_view *view,
                                        enum dyti_kind kind, uint32_t tensor)
{
    uint32_t lo = view->kind_first[kind], hi = view->kind_first[kind + 1];
    uint32_t end = hi;

    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;

        if (view->shard[mid].tensor < tensor) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo < end && view->shard[lo].tensor == tensor ? &view->shard[lo]
                                                        : NULL;
}
