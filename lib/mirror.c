/* What a mirror is made of: which rows have one, and where they lie in it. */
#include "lib/mirror_internal.h"

#include "base/checked.h"
#include "plugin/rows.h"

#include <stdlib.h>
#include <string.h>

#define ALIGN 256u /* of a row: accesses of any width, whatever its dtype */

/* ---- rows -----------------------------------------------------------------
 */

/* Dense, with the dimensions in the order of the row's own strides: so pieces
 * lie in it in the order in which they lie on the device. */
static void dense_strides(const struct dyt_row *row, int64_t out[DYT_MAX_DIMS])
{
    int64_t own[DYT_MAX_DIMS], step = 1;
    uint32_t order[DYT_MAX_DIMS];

    dyti_row_strides(row, own);
    for (uint32_t d = 0; d < row->ndim; d++) {
        uint32_t at = d;

        for (; at > 0 && own[order[at - 1]] < own[d]; at--) {
            order[at] = order[at - 1];
        }
        order[at] = d;
    }
    for (uint32_t i = row->ndim; i-- > 0;) {
        out[order[i]] = step;
        step *= row->shape[order[i]];
    }
}

static uint64_t dense_bytes(const struct dyt_row *row)
{
    uint64_t bytes = dyti_dtype_bytes((enum dyti_dtype)row->dtype);

    for (uint32_t d = 0; d < row->ndim; d++) { /* checked with the view */
        bytes *= (uint64_t)row->shape[d];
    }
    return bytes;
}

static void note_used(struct dyti_mirror *m,
                      const struct dyti_row_pieces *pieces)
{
    for (size_t i = 0; i < pieces->count; i++) {
        m->used[pieces->piece[i].row] = true;
    }
    for (size_t i = 0; i < pieces->pad_count; i++) {
        m->used[pieces->pad[i].row] = true; /* it may have nothing else */
    }
}

/* Offsets in the segment, in `fd_offset`. */
static enum dyt_status place_rows(struct dyti_mirror *m,
                                  const struct dyt_view *rows)
{
    for (uint64_t i = 0; i < m->row_count; i++) {
        const struct dyt_row *row = dyti_row_at(rows, i);
        struct dyt_row *own = &m->row[i];
        size_t bytes = rows->row_struct_size < sizeof(*own)
                           ? rows->row_struct_size
                           : sizeof(*own);

        memcpy(own, row, bytes);
        m->has[i] = dyti_row_is_on_device(row) && m->used[i] &&
                    (row->flags & DYT_ROW_ALIAS) == 0 && dense_bytes(row) > 0;
        if (!m->has[i]) {
            continue;
        }
        dense_strides(row, own->stride);
        own->fd_offset = dyti_align_up(m->bytes, ALIGN);
        m->bytes = own->fd_offset + dense_bytes(row);
        if (m->bytes > INT64_MAX / 4) {
            return DYTI_FAIL(DYT_ERR_OVERFLOW, "the mirror of %s", row->name);
        }
    }
    return DYT_OK;
}

/* An alias has what the row has that it is one of. */
static void point_rows(struct dyti_mirror *m, const struct dyt_view *rows)
{
    for (uint64_t i = 0; i < m->row_count; i++) {
        struct dyt_row *own = &m->row[i];
        bool alias = (own->flags & DYT_ROW_ALIAS) != 0;

        if (!dyti_row_is_on_device(own)) {
            continue;
        }
        if (m->has[i]) {
            own->data = (unsigned char *)m->segment.base + own->fd_offset;
            own->fd = m->segment.handle;
            own->device =
                (struct dyt_device){.struct_size = sizeof(own->device)};
        }
        for (uint64_t j = 0; j < i && alias; j++) {
            const struct dyt_row *other = dyti_row_at(rows, j);

            if (m->has[j] && other->kind == own->kind &&
                other->data == own->data) {
                own->data = m->row[j].data;
                own->fd = m->row[j].fd;
                own->fd_offset = m->row[j].fd_offset;
                own->device = m->row[j].device;
                break;
            }
        }
    }
}

/* What is looked at again before each copy. */
static enum dyt_status note_places(struct dyti_mirror *m,
                                   const struct dyt_view *rows)
{
    m->place = calloc(m->row_count + 1u, sizeof(*m->place));
    if (m->place == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%llu rows",
                         (unsigned long long)m->row_count);
    }
    for (uint64_t i = 0; i < m->row_count; i++) {
        const struct dyt_row *row = dyti_row_at(rows, i);
        struct dyti_device_place *p = &m->place[m->place_count];

        if (!m->has[i]) {
            continue;
        }
        *p = (struct dyti_device_place){.name = strdup(row->name),
                                        .data = row->data,
                                        .bytes = dyti_row_extent(row),
                                        .device =
                                            dyti_devices_of(m->devices, row)};
        if (p->name == NULL) {
            return DYTI_FAIL(DYT_ERR_NOMEM, "the name of row %s", row->name);
        }
        m->place_count++;
    }
    return DYT_OK;
}

/* Addresses and a descriptor, which cost nothing until they are touched: others
 * are told of them before anybody knows whether they will be. */
static enum dyt_status open_segment(struct dyti_mirror *m)
{
    enum dyt_status st =
        dyti_segment_reserve("dynatrain mirror", m->bytes, &m->segment);

    if (st != DYT_OK) {
        DYTI_NOTE("the mirror of rows on a device");
    }
    return st;
}

enum dyt_status dyti_mirror_open(struct dyti_devices *devices,
                                 const struct dyt_view *rows,
                                 const struct dyti_row_pieces *pieces,
                                 struct dyti_mirror **out_mirror)
{
    struct dyti_mirror *m = calloc(1, sizeof(*m));
    enum dyt_status st = DYT_OK;

    if (m == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a mirror");
    }
    m->devices = devices;
    m->segment.handle = -1;
    m->row_count = rows->row_count;
    m->row = calloc(m->row_count + 1u, sizeof(*m->row));
    m->has = calloc(m->row_count + 1u, sizeof(*m->has));
    m->used = calloc(m->row_count + 1u, sizeof(*m->used));
    m->part = calloc(devices->count, sizeof(*m->part));
    if (m->row == NULL || m->has == NULL || m->used == NULL ||
        m->part == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "a mirror of %llu rows",
                       (unsigned long long)m->row_count);
    }
    if (st == DYT_OK) {
        note_used(m, pieces);
        st = place_rows(m, rows);
    }
    st = st != DYT_OK ? st : note_places(m, rows);
    st = st != DYT_OK ? st : open_segment(m);
    if (st != DYT_OK) {
        dyti_mirror_close(m);
        return st;
    }
    point_rows(m, rows);
    *out_mirror = m;
    return DYT_OK;
}

static void close_way(const struct dyti_kernels *k, struct dyti_mirror_way *way)
{
    k->ops->list_free(k->self, way->list);
    free(way->copy);
    free(way->at);
}

static void close_part(const struct dyti_mirror *m, uint32_t device)
{
    const struct dyti_kernels *k = &m->devices->device[device].kernels;

    close_way(k, &m->part[device].take);
    close_way(k, &m->part[device].give);
    close_way(k, &m->part[device].pads);
    free(m->part[device].stream);
}

void dyti_mirror_close(struct dyti_mirror *m)
{
    const struct dyti_memory_ops *memory;

    if (m == NULL) {
        return;
    }
    memory = m->devices->module->memory;
    pthread_mutex_lock(&m->devices->lock);
    for (uint32_t i = 0; m->part != NULL && i < m->devices->count; i++) {
        (void)dyti_kernels_wait(&m->devices->device[i].kernels);
        close_part(m, i);
    }
    if (m->pinned) {
        memory->host_unpin(m->segment.base);
    }
    memory->host_free(m->chunk);
    memory->host_free(m->zero);
    pthread_mutex_unlock(&m->devices->lock);
    dyti_hands_close(&m->hands);
    dyti_segment_close(&m->segment);
    for (size_t i = 0; i < m->place_count; i++) {
        free((void *)(uintptr_t)m->place[i].name);
    }
    free(m->place);
    free(m->row);
    free(m->has);
    free(m->used);
    free(m->part);
    free(m->hash);
    free(m->taken);
    free(m->now);
    free(m->sum);
    free(m->use);
    free(m);
}

const struct dyt_row *dyti_mirror_rows(const struct dyti_mirror *mirror)
{
    return mirror->row;
}

const bool *dyti_mirror_has(const struct dyti_mirror *mirror)
{
    return mirror->has;
}

bool dyti_mirror_has_all(const struct dyti_mirror *mirror)
{
    for (uint64_t i = 0; i < mirror->row_count; i++) {
        if (mirror->used[i] && !mirror->has[i] &&
            dense_bytes(&mirror->row[i]) > 0) {
            return false;
        }
    }
    return true;
}

uint64_t dyti_mirror_bytes(const struct dyti_mirror *mirror)
{
    return mirror->awake ? mirror->bytes : 0;
}
