/* Which boxes a mirror copies: of every row, between the device and it. */
#include "lib/mirror_internal.h"

#include "layout/list.h"
#include "plugin/rows.h"

#include <stdlib.h>
#include <string.h>

#define ZERO_BYTES 64u

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
    st = st != DYT_OK ? st : room_of(&p->pads, pad_count);
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
    m->hash[m->hash_count].tensor = piece->tensor;
    m->hash[m->hash_count].kind = row->kind;
    dyti_hash_box_of(b->catalogue, &shard, take.src,
                     &m->hash[m->hash_count].box);
    m->hash_count++;
    return DYT_OK;
}

/* The same from one element that is zero, for rows whose mirror sleeps. */
static enum dyt_status add_zeros(struct dyti_mirror *m,
                                 struct dyti_mirror_part *p,
                                 const struct dyti_copy *give)
{
    struct dyti_copy zeros = *give;
    enum dyt_status st = DYT_OK;

    if (m->zero == NULL) {
        pthread_mutex_lock(&m->devices->lock);
        st = m->devices->module->memory->use(
            dyti_device_uuid(&m->devices->device[0]));
        st = st != DYT_OK
                 ? st
                 : m->devices->module->memory->host_alloc(ZERO_BYTES, &m->zero);
        pthread_mutex_unlock(&m->devices->lock);
        if (st != DYT_OK) {
            return st;
        }
        memset(m->zero, 0, ZERO_BYTES);
    }
    zeros.src = m->zero;
    memset(zeros.src_stride, 0, sizeof(zeros.src_stride));
    add_copy(&p->pads, &zeros);
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
    return add_zeros(m, p, &give);
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
    mirror->taken = calloc(count + 1, sizeof(*mirror->taken));
    mirror->now = calloc(count + 1, sizeof(*mirror->now));
    mirror->sum = calloc(count + 1, sizeof(*mirror->sum));
    mirror->use = calloc(count + 1, sizeof(*mirror->use));
    if (st == DYT_OK &&
        (mirror->hash == NULL || mirror->taken == NULL || mirror->now == NULL ||
         mirror->sum == NULL || mirror->use == NULL)) {
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
    return st != DYT_OK ? st : dyti_mirror_upload_pads(mirror);
}
