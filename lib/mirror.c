/* What a mirror is made of: where rows lie in it, and which boxes are copied.
 */
#include "lib/mirror_internal.h"

#include "base/checked.h"
#include "layout/list.h"
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

/* Pinned, or beside a buffer that is. */
static void pin(struct dyti_mirror *m)
{
    const struct dyti_memory_ops *memory = m->devices->module->memory;

    m->pinned = m->segment.base != NULL && memory->host_pin != NULL &&
                memory->host_pin(m->segment.base, m->segment.bytes) == DYT_OK;
}

static enum dyt_status open_segment(struct dyti_mirror *m, uint64_t cap_bytes)
{
    enum dyt_status st;

    if (cap_bytes > 0 && m->bytes > cap_bytes) {
        return DYTI_FAIL(DYT_ERR_NOMEM,
                         "rows on a device need %llu bytes of the host beside "
                         "them (a mirror), the cap is %llu: raise cap_bytes",
                         (unsigned long long)m->bytes,
                         (unsigned long long)cap_bytes);
    }
    st = dyti_segment_open("dynatrain mirror", m->bytes, &m->segment);
    if (st != DYT_OK) {
        DYTI_NOTE("the mirror of rows on a device");
        return st;
    }
    pthread_mutex_lock(&m->devices->lock);
    if (m->segment.base != NULL) {
        st = m->devices->module->memory->use(
            dyti_device_uuid(&m->devices->device[0]));
    }
    if (st == DYT_OK) {
        pin(m);
    }
    if (st == DYT_OK && m->segment.base != NULL && !m->pinned) {
        st = m->devices->module->memory->host_alloc(DYTI_MIRROR_CHUNK,
                                                    &m->chunk);
    }
    pthread_mutex_unlock(&m->devices->lock);
    return st == DYT_OK && m->chunk != NULL
               ? dyti_hands_open(&m->hands, dyti_hands_cores())
               : st;
}

enum dyt_status dyti_mirror_open(struct dyti_devices *devices,
                                 const struct dyt_view *rows,
                                 const struct dyti_row_pieces *pieces,
                                 uint64_t cap_bytes,
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
    st = st != DYT_OK ? st : open_segment(m, cap_bytes);
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
    return mirror->bytes;
}

/* ---- boxes ----------------------------------------------------------------
 */

struct binder {
    struct dyti_mirror *m;
    const struct dyti_model *catalogue;
    const struct dyt_view *rows; /* on the devices */
    const struct dyti_row_pieces *there, *here;
};

static bool is_same(const struct dyti_row_piece *a,
                    const struct dyti_row_piece *b)
{
    return a->row == b->row && a->tensor == b->tensor &&
           memcmp(&a->box, &b->box, sizeof(a->box)) == 0;
}

static void turn(const struct dyti_copy *copy, struct dyti_copy *out)
{
    *out = *copy;
    out->src = copy->dst;
    out->dst = (void *)(uintptr_t)copy->src;
    memcpy(out->src_stride, copy->dst_stride, sizeof(out->src_stride));
    memcpy(out->dst_stride, copy->src_stride, sizeof(out->dst_stride));
}

static enum dyt_status copy_of(const struct binder *b, size_t index,
                               struct dyti_copy *out)
{
    const struct dyti_row_piece *there = &b->there->piece[index];
    const struct dyti_row_piece *here = &b->here->piece[index];
    const struct dyt_row *row = dyti_row_at(b->rows, there->row);
    uint32_t ndim = there->box.ndim, shift = DYTI_COPY_DIMS - ndim;

    if (!is_same(there, here)) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "row %s: strides by which elements share memory",
                         row->name);
    }
    if (ndim > DYTI_COPY_DIMS) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "row %s: tensor %s has %u dims, at most %u are copied "
                         "to and from a device",
                         row->name, b->catalogue->tensor[there->tensor].name,
                         ndim, DYTI_COPY_DIMS);
    }
    *out = (struct dyti_copy){
        .src = (const unsigned char *)row->data + there->offset,
        .dst = (unsigned char *)b->m->row[there->row].data + here->offset,
        .size = {1, 1, 1, 1},
        .src_dtype = (uint8_t)row->dtype,
        .dst_dtype = (uint8_t)row->dtype};
    for (uint32_t d = 0; d < ndim; d++) {
        out->size[d + shift] = there->box.hi[d] - there->box.lo[d];
        out->src_stride[d + shift] = there->stride[d];
        out->dst_stride[d + shift] = here->stride[d];
    }
    if (ndim == 0) {
        out->src_stride[DYTI_COPY_DIMS - 1] =
            out->dst_stride[DYTI_COPY_DIMS - 1] =
                dyti_dtype_bytes((enum dyti_dtype)row->dtype);
    }
    return DYT_OK;
}

/* As it lies on the device. */
static struct dyti_shard shard_of(const struct binder *b, size_t index,
                                  uint64_t offset)
{
    const struct dyti_row_piece *piece = &b->there->piece[index];
    const struct dyt_row *row = dyti_row_at(b->rows, piece->row);
    struct dyti_shard shard = {.tensor = piece->tensor,
                               .kind = (uint8_t)row->kind,
                               .dtype = (uint8_t)row->dtype,
                               .box = piece->box,
                               .offset = offset};

    memcpy(shard.stride, piece->stride, sizeof(shard.stride));
    return shard;
}

static bool is_mirrored(const struct binder *b, size_t index)
{
    const struct dyti_row_piece *piece = &b->there->piece[index];
    uint64_t elements = 1;

    for (uint32_t d = 0; d < piece->box.ndim; d++) {
        elements *= (uint64_t)(piece->box.hi[d] - piece->box.lo[d]);
    }
    return b->m->has[piece->row] && elements > 0;
}

/* Two boxes that are written share no byte of a device. */
static enum dyt_status check_targets(const struct binder *b)
{
    struct dyti_faults faults = {.count = 0};
    struct dyti_shard *shard = calloc(b->there->count + 1, sizeof(*shard));
    uint64_t base = UINT64_MAX;
    size_t count = 0;
    enum dyt_status st;

    if (shard == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu pieces", b->there->count);
    }
    for (size_t i = 0; i < b->m->place_count; i++) {
        uint64_t at = (uint64_t)(uintptr_t)b->m->place[i].data;

        base = at < base ? at : base;
    }
    for (size_t i = 0; i < b->there->count; i++) {
        const struct dyti_row_piece *piece = &b->there->piece[i];
        const struct dyt_row *row = dyti_row_at(b->rows, piece->row);

        if (is_mirrored(b, i)) {
            shard[count++] = shard_of(
                b, i, (uint64_t)(uintptr_t)row->data - base + piece->offset);
        }
    }
    st = dyti_find_overlaps(b->catalogue, 0, shard, count, &faults);
    free(shard);
    return st == DYT_OK && faults.count > 0
               ? DYTI_FAIL(DYT_ERR_LAYOUT, "rows on a device: %s", faults.text)
               : st;
}

static enum dyt_status room_of(struct dyti_mirror_way *way, size_t count)
{
    way->copy = calloc(count + 1, sizeof(*way->copy));
    way->at = calloc(count + 1, sizeof(*way->at));
    return way->copy == NULL || way->at == NULL
               ? DYTI_FAIL(DYT_ERR_NOMEM, "%zu copies", count)
               : DYT_OK;
}

static enum dyt_status part_of(struct dyti_mirror_part *p, size_t count,
                               size_t pad_count)
{
    enum dyt_status st = room_of(&p->take, count);

    st = st != DYT_OK ? st : room_of(&p->give, count + pad_count);
    p->stream = calloc(count + pad_count + 1, sizeof(*p->stream));
    return st == DYT_OK && p->stream == NULL
               ? DYTI_FAIL(DYT_ERR_NOMEM, "%zu streams", count)
               : st;
}

static void add_copy(struct dyti_mirror_way *way, const struct dyti_copy *copy)
{
    uint64_t bytes = dyti_dtype_bytes((enum dyti_dtype)copy->dst_dtype);

    for (uint32_t d = 0; d < DYTI_COPY_DIMS; d++) {
        bytes *= (uint64_t)copy->size[d];
    }
    way->copy[way->count] = *copy;
    way->at[way->count + 1] = way->at[way->count] + bytes;
    way->count++;
}

static void note_stream(struct dyti_mirror_part *p, void *stream)
{
    for (uint32_t i = 0; i < p->stream_count; i++) {
        if (p->stream[i] == stream) {
            return;
        }
    }
    p->stream[p->stream_count++] = stream;
}

static enum dyt_status add_box(const struct binder *b, size_t index)
{
    struct dyti_mirror *m = b->m;
    const struct dyti_row_piece *piece = &b->there->piece[index];
    const struct dyt_row *row = dyti_row_at(b->rows, piece->row);
    uint32_t device = dyti_devices_of(m->devices, row);
    struct dyti_mirror_part *p = &m->part[device];
    struct dyti_shard shard = shard_of(b, index, 0);
    struct dyti_copy take = {0}, give = {0};
    enum dyt_status st = copy_of(b, index, &take);

    if (st != DYT_OK) {
        return st;
    }
    turn(&take, &give);
    add_copy(&p->take, &take);
    add_copy(&p->give, &give);
    note_stream(p, row->device.stream);
    m->hash[m->hash_count].row = piece->row;
    m->hash[m->hash_count].device = device;
    dyti_hash_box_of(b->catalogue, &shard, take.src,
                     &m->hash[m->hash_count].box);
    m->hash_count++;
    return DYT_OK;
}

/* Padding is zero in the mirror from the start, and nobody writes it there. */
static enum dyt_status add_pad(const struct binder *b, size_t index)
{
    struct dyti_mirror *m = b->m;
    const struct dyti_row_pad *there = &b->there->pad[index];
    const struct dyti_row_pad *here = &b->here->pad[index];
    const struct dyt_row *row = dyti_row_at(b->rows, there->row);
    uint32_t shift = DYTI_COPY_DIMS - there->ndim;
    struct dyti_mirror_part *p;
    struct dyti_copy give = {.size = {1, 1, 1, 1},
                             .src_dtype = (uint8_t)row->dtype,
                             .dst_dtype = (uint8_t)row->dtype};

    if (!m->has[there->row]) {
        return DYT_OK;
    }
    if (there->ndim > DYTI_COPY_DIMS || here->row != there->row) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "row %s: padding of %u dims, at most %u are copied to "
                         "a device",
                         row->name, there->ndim, DYTI_COPY_DIMS);
    }
    give.src = (const unsigned char *)m->row[there->row].data + here->offset;
    give.dst = (unsigned char *)row->data + there->offset;
    for (uint32_t d = 0; d < there->ndim; d++) {
        if (there->shape[d] == 0) {
            return DYT_OK;
        }
        give.size[d + shift] = there->shape[d];
        give.src_stride[d + shift] = here->stride[d];
        give.dst_stride[d + shift] = there->stride[d];
    }
    p = &m->part[dyti_devices_of(m->devices, row)];
    add_copy(&p->give, &give);
    note_stream(p, row->device.stream);
    return DYT_OK;
}

enum dyt_status dyti_mirror_bind(struct dyti_mirror *mirror,
                                 const struct dyti_model *catalogue,
                                 const struct dyt_view *rows,
                                 const struct dyti_row_pieces *there,
                                 const struct dyti_row_pieces *here,
                                 bool is_target)
{
    struct binder b = {.m = mirror,
                       .catalogue = catalogue,
                       .rows = rows,
                       .there = there,
                       .here = here};
    size_t count = there->count;
    enum dyt_status st = count == here->count
                             ? DYT_OK
                             : DYTI_FAIL(DYT_ERR_INVALID,
                                         "%zu pieces of rows on a device, and "
                                         "%zu of their mirror",
                                         count, here->count);

    mirror->hash = calloc(count + 1, sizeof(*mirror->hash));
    if (st == DYT_OK && mirror->hash == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "%zu pieces", count);
    }
    for (size_t i = 0; i < mirror->devices->count && st == DYT_OK; i++) {
        st = part_of(&mirror->part[i], count, there->pad_count);
    }
    for (size_t i = 0; i < count && st == DYT_OK; i++) {
        st = is_mirrored(&b, i) ? add_box(&b, i) : DYT_OK;
    }
    for (size_t i = 0; i < there->pad_count && st == DYT_OK && is_target; i++) {
        st = add_pad(&b, i);
    }
    if (st == DYT_OK && is_target) {
        st = check_targets(&b);
    }
    return st != DYT_OK ? st : dyti_mirror_upload(mirror);
}
