/* What is in a rank's file, and where: from its view. */
#include "format/shards.h"

#include "base/banned.h"

#include <stdlib.h>
#include <string.h>

#define NAME_BYTES 256u

void dyti_shards_file_name(uint32_t rank, char buf[32])
{
    snprintf(buf, 32, "rank-%05u.safetensors", rank);
}

/* The file while it is made. */
struct maker {
    const struct dyti_layout *layout;
    struct dyti_shards_file *file;
    struct dyti_safetensors_entry *entry;
    size_t count;
    bool plain;
};

static enum dyt_status add_entry(struct maker *m, int kind, const char *name,
                                 uint32_t copy, enum dyti_dtype dtype,
                                 uint32_t ndim, const int64_t *shape)
{
    struct dyti_safetensors_entry *e = &m->entry[m->count];
    char text[NAME_BYTES], number[16] = "";

    if (copy > 0) {
        snprintf(number, sizeof(number), "#%u", copy);
    }
    snprintf(text, sizeof(text), "%s%s%s%s",
             kind == DYTI_PARAM || m->plain
                 ? ""
                 : dyti_kind_name((enum dyti_kind)kind),
             kind == DYTI_PARAM || m->plain ? "" : "/", name, number);
    m->file->name[m->count] = strdup(text);
    if (m->file->name[m->count] == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "names of a file");
    }
    e->name = m->file->name[m->count++];
    e->dtype = dtype;
    e->ndim = ndim;
    memcpy(e->shape, shape, ndim * sizeof(*shape));
    return DYT_OK;
}

static void add_place(struct maker *m, uint32_t shard, size_t entry,
                      uint64_t offset, const int64_t *stride)
{
    struct dyti_shards_place *p = &m->file->place[m->file->place_count++];

    p->shard = shard;
    p->entry = entry;
    p->offset = offset;
    memcpy(p->stride, stride, sizeof(p->stride));
}

/* Buffers of one kind, and the shards in them: both are sorted, buffers by
 * offset, so that each shard's is found by halving. */
static enum dyt_status add_buffers(struct maker *m, int kind, uint32_t first,
                                   uint32_t end)
{
    const struct dyti_view *v = &m->file->view;
    size_t *entry_of = calloc(end - first + 1u, sizeof(*entry_of));
    enum dyt_status st = entry_of == NULL
                             ? DYTI_FAIL(DYT_ERR_NOMEM, "buffers of a file")
                             : DYT_OK;

    for (uint32_t i = first; i < end && st == DYT_OK; i++) {
        const struct dyti_view_buffer *b = &v->buffer[i];

        entry_of[i - first] = m->count;
        st = b->bytes == 0
                 ? DYT_OK
                 : add_entry(m, kind, b->name, 0, (enum dyti_dtype)b->dtype,
                             b->ndim, b->shape);
    }
    for (uint32_t i = v->kind_first[kind];
         i < v->kind_first[kind + 1] && st == DYT_OK; i++) {
        uint64_t at = v->shard[i].offset;
        uint32_t lo = first, hi = end;

        while (hi - lo > 1) { /* the last buffer that starts at or before */
            uint32_t mid = lo + (hi - lo) / 2;

            if (v->buffer[mid].offset <= at) {
                lo = mid;
            } else {
                hi = mid;
            }
        }
        /* Empty buffers may start where a full one does. */
        while (lo > first && v->buffer[lo].bytes == 0) {
            lo--;
        }
        add_place(m, i, entry_of[lo - first], at - v->buffer[lo].offset,
                  v->shard[i].stride);
    }
    free(entry_of);
    return st;
}

/* Native: each shard is an entry of its own, dense. */
static enum dyt_status add_shards(struct maker *m, int kind)
{
    const struct dyti_view *v = &m->file->view;
    uint32_t copy = 0;
    enum dyt_status st = DYT_OK;

    for (uint32_t i = v->kind_first[kind];
         i < v->kind_first[kind + 1] && st == DYT_OK; i++) {
        const struct dyti_shard *s = &v->shard[i];
        int64_t shape[DYT_MAX_DIMS], stride[DYT_MAX_DIMS] = {0};
        int64_t step = dyti_dtype_bytes((enum dyti_dtype)s->dtype);

        copy = i > v->kind_first[kind] && v->shard[i - 1].tensor == s->tensor
                   ? copy + 1
                   : 0;
        for (uint32_t d = s->box.ndim; d-- > 0;) {
            shape[d] = s->box.hi[d] - s->box.lo[d];
            stride[d] = step;
            step *= shape[d];
        }
        add_place(m, i, m->count, 0, stride);
        st = add_entry(m, kind, m->layout->model->tensor[s->tensor].name, copy,
                       (enum dyti_dtype)s->dtype, s->box.ndim, shape);
    }
    return st;
}

static enum dyt_status add_kinds(struct maker *m, uint32_t kinds)
{
    const struct dyti_view *v = &m->file->view;
    uint32_t end = 0;
    enum dyt_status st = DYT_OK;

    for (int kind = 0; kind < DYTI_KIND_COUNT && st == DYT_OK; kind++) {
        uint32_t first = end;

        while (end < v->buffer_count && v->buffer[end].kind == kind) {
            end++;
        }
        if ((kinds >> kind & 1u) == 0) {
            continue;
        }
        st = end > first ? add_buffers(m, kind, first, end)
                         : add_shards(m, kind);
    }
    return st;
}

enum dyt_status dyti_shards_file_build(const struct dyti_layout *layout,
                                       uint32_t rank, uint32_t kinds,
                                       bool plain,
                                       struct dyti_shards_file *out_file)
{
    static const char *const metadata[] = {"format", "pt", NULL};
    struct dyti_shards_file file = {.place_count = 0};
    struct maker m = {.layout = layout, .file = &file, .plain = plain};
    enum dyt_status st = dyti_layout_view_build(layout, rank, &file.view);
    size_t most;

    if (st != DYT_OK) {
        return st;
    }
    most = (size_t)file.view.buffer_count + file.view.shard_count + 1u;
    file.name = calloc(most, sizeof(*file.name));
    file.place = calloc(most, sizeof(*file.place));
    m.entry = calloc(most, sizeof(*m.entry));
    if (file.name == NULL || file.place == NULL || m.entry == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "the file of rank %u", rank);
    }
    st = st != DYT_OK ? st : add_kinds(&m, kinds);
    st = st != DYT_OK ? st
                      : dyti_safetensors_plan_build(m.entry, m.count, metadata,
                                                    &file.plan);
    free(m.entry);
    if (st == DYT_OK) {
        *out_file = file;
    } else {
        file.plan.count = m.count;
        dyti_shards_file_fini(&file);
        DYTI_NOTE("laying out the file of rank %u", rank);
    }
    return st;
}

void dyti_shards_file_fini(struct dyti_shards_file *file)
{
    for (size_t i = 0; file->name != NULL && i < file->plan.count; i++) {
        free(file->name[i]);
    }
    free(file->name);
    free(file->place);
    dyti_safetensors_plan_fini(&file->plan);
    dyti_view_fini(&file->view);
    memset(file, 0, sizeof(*file));
}
