/* From strided copies to boxes: which axes are one, which is the fast one, how
 * wide an access may be, and which way of the kernel that is. */
#include "device/cuda/boxes.h"

#include "exec/pack_internal.h"

#include <stdlib.h>
#include <string.h>

#define DIMS ((int)DYTI_COPY_DIMS)
#define LAST (DIMS - 1)

_Static_assert(DYTI_CUDA_DIMS == DYTI_COPY_DIMS, "boxes hold a copy");
_Static_assert(sizeof(struct dyti_cuda_box) == 128, "as kernels read it");

#define ROW_MIN  64u  /* bytes; below, a warp has too few of them */
#define ROW_WIDE 512u /* bytes, of rows that are whole vectors */
#define TURN_MIN                                                               \
    8u /* elements of either axis; below, tiles are mostly empty               \
        */

/* ---- axes ------------------------------------------------------------------
 */

struct axes {
    uint64_t size[DYTI_COPY_DIMS];
    int64_t a[DYTI_COPY_DIMS], b[DYTI_COPY_DIMS];
};

static void swap_axes(struct axes *x, int d, int e)
{
    uint64_t size = x->size[d];
    int64_t a = x->a[d], b = x->b[d];

    x->size[d] = x->size[e];
    x->a[d] = x->a[e];
    x->b[d] = x->b[e];
    x->size[e] = size;
    x->a[e] = a;
    x->b[e] = b;
}

/* Slow axes of `b` first, those of size 1 before all; then what is dense in
 * both is made one.  A copy has no order, so none is kept. */
static struct axes axes_make(const int64_t *size, const int64_t *a,
                             const int64_t *b)
{
    struct axes x, merged = {{1, 1, 1, 1}, {0}, {0}};
    int at = DIMS;

    for (int d = 0; d < DIMS; d++) {
        x.size[d] = (uint64_t)size[d];
        x.a[d] = a[d];
        x.b[d] = b[d];
        for (int e = d; e > 0 && x.size[e] != 1 &&
                        false == (x.size[e - 1] == 1 || x.b[e - 1] >= x.b[e]);
             e--) {
            swap_axes(&x, e, e - 1);
        }
        if (x.size[d] == 1) {
            for (int e = d; e > 0; e--) {
                swap_axes(&x, e, e - 1);
            }
        }
    }
    for (int d = LAST; d >= 0 && x.size[d] != 1; d--) {
        if (at < DIMS && x.a[d] == merged.a[at] * (int64_t)merged.size[at] &&
            x.b[d] == merged.b[at] * (int64_t)merged.size[at]) {
            merged.size[at] *= x.size[d];
            continue;
        }
        at--;
        merged.size[at] = x.size[d];
        merged.a[at] = x.a[d];
        merged.b[at] = x.b[d];
    }
    return merged;
}

/* ---- widths ----------------------------------------------------------------
 */

/* The largest power of two up to `most` that divides all bits. */
static uint8_t width_of(uint64_t bits, uint64_t most)
{
    while (most > 1 && bits % most != 0) {
        most /= 2;
    }
    return (uint8_t)most;
}

/* All bits of the addresses of one side, from axis 0 to `until`. */
static uint64_t address_bits(uint64_t base, const uint64_t *size,
                             const int64_t *stride, int until)
{
    for (int d = 0; d < until; d++) {
        base |= size[d] > 1 ? (uint64_t)stride[d] : 0;
    }
    return base;
}

static bool dense_rows(const struct dyti_cuda_box *box)
{
    return box->size[LAST] == 1 || (box->src_stride[LAST] == box->src_bytes &&
                                    box->dst_stride[LAST] == box->dst_bytes);
}

/* Rows that are not converted are bytes: elements of another width. */
static void set_width(struct dyti_cuda_box *box, uint8_t bytes)
{
    box->size[LAST] = box->size[LAST] * box->src_bytes / bytes;
    box->src_bytes = box->dst_bytes = bytes;
    box->src_stride[LAST] = box->dst_stride[LAST] = bytes;
}

/* Puts the axis that is dense in the source next to the last one; false: there
 * is none that is worth a tile. */
static bool turn(struct dyti_cuda_box *box)
{
    for (int d = 0; d < LAST; d++) {
        if (box->src_stride[d] == box->src_bytes && box->size[d] >= TURN_MIN) {
            struct axes x;

            memcpy(x.size, box->size, sizeof(x.size));
            memcpy(x.a, box->src_stride, sizeof(x.a));
            memcpy(x.b, box->dst_stride, sizeof(x.b));
            swap_axes(&x, d, LAST - 1);
            memcpy(box->size, x.size, sizeof(x.size));
            memcpy(box->src_stride, x.a, sizeof(x.a));
            memcpy(box->dst_stride, x.b, sizeof(x.b));
            return true;
        }
    }
    return false;
}

static void choose(struct dyti_cuda_box *box)
{
    bool converts = box->src_dtype != box->dst_dtype;
    bool rows = dense_rows(box);
    uint64_t in = address_bits(box->src, box->size, box->src_stride, LAST);
    uint64_t out = address_bits(box->dst, box->size, box->dst_stride, LAST);
    uint64_t row = box->size[LAST] * box->dst_bytes;
    uint8_t wide = width_of(in | out | row, 16);
    bool aligned = in % box->src_bytes == 0 && out % box->dst_bytes == 0;

    box->variant = DYTI_CUDA_ELEMENTS;
    if (rows && row >= (!converts && wide == 16 ? ROW_WIDE : ROW_MIN) &&
        (aligned || !converts)) {
        box->variant = DYTI_CUDA_ROWS;
        if (!aligned) {
            set_width(box, 1);
        }
    } else if (rows && !converts) {
        set_width(box, wide);
    } else if (aligned && box->dst_stride[LAST] == box->dst_bytes &&
               box->src_bytes <= 4 && box->dst_bytes <= 4 &&
               box->size[LAST] >= TURN_MIN && turn(box)) {
        box->variant = DYTI_CUDA_TURNED;
    }
    in = address_bits(box->src, box->size, box->src_stride, DIMS);
    out = address_bits(box->dst, box->size, box->dst_stride, DIMS);
    box->src_unit = width_of(in, box->src_bytes);
    box->dst_unit = width_of(out, box->dst_bytes);
}

/* ---- the list --------------------------------------------------------------
 */

void dyti_cuda_boxes_fini(struct dyti_cuda_boxes *list)
{
    free(list->box);
    free(list->first);
    *list = (struct dyti_cuda_boxes){0};
}

static enum dyt_status grow(struct dyti_cuda_boxes *list)
{
    uint32_t cap = list->cap == 0 ? 64 : list->cap * 2;
    struct dyti_cuda_box *box;
    uint64_t *first;

    if (list->cap > UINT32_MAX / 2) {
        return DYTI_FAIL(DYT_ERR_OVERFLOW, "more than %u boxes", list->cap);
    }
    box = realloc(list->box, cap * sizeof(*box));
    list->box = box != NULL ? box : list->box;
    first = realloc(list->first, ((size_t)cap + 1) * sizeof(*first));
    list->first = first != NULL ? first : list->first;
    if (box == NULL || first == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a list of %u boxes", cap);
    }
    list->first[0] = 0;
    list->cap = cap;
    return DYT_OK;
}

static enum dyt_status add(struct dyti_cuda_boxes *list,
                           const struct dyti_copy *copy, uint8_t skip,
                           uint8_t take)
{
    struct dyti_cuda_box *box;
    struct axes x = axes_make(copy->size, copy->src_stride, copy->dst_stride);
    uint64_t count = x.size[0] * x.size[1] * x.size[2] * x.size[3];

    if (count == 0) {
        return DYT_OK;
    }
    if (list->count == list->cap) {
        enum dyt_status st = grow(list);

        if (st != DYT_OK) {
            return st;
        }
    }
    box = &list->box[list->count];
    *box = (struct dyti_cuda_box){.src = (uint64_t)(uintptr_t)copy->src,
                                  .dst = (uint64_t)(uintptr_t)copy->dst,
                                  .src_bytes = (uint8_t)dyti_dtype_bytes(
                                      (enum dyti_dtype)copy->src_dtype),
                                  .dst_bytes = (uint8_t)dyti_dtype_bytes(
                                      (enum dyti_dtype)copy->dst_dtype),
                                  .src_dtype = copy->src_dtype,
                                  .dst_dtype = copy->dst_dtype,
                                  .skip = skip,
                                  .take = take};
    memcpy(box->size, x.size, sizeof(box->size));
    memcpy(box->src_stride, x.a, sizeof(box->src_stride));
    memcpy(box->dst_stride, x.b, sizeof(box->dst_stride));
    list->first[list->count + 1] =
        list->first[list->count] + (take > 0 ? take : count * box->dst_bytes);
    if (take > 0) { /* one element, whose bytes go one by one */
        box->variant = DYTI_CUDA_ELEMENTS;
        box->src_unit = width_of(box->src, box->src_bytes);
        box->dst_unit = 1;
    } else {
        choose(box);
    }
    list->count++;
    return DYT_OK;
}

/* Back to `count` boxes, where something failed. */
static enum dyt_status ended(struct dyti_cuda_boxes *list, uint32_t count,
                             enum dyt_status st)
{
    if (st != DYT_OK) {
        list->count = count;
    }
    return st;
}

enum dyt_status dyti_cuda_boxes_add(struct dyti_cuda_boxes *list,
                                    const struct dyti_copy *copy, size_t count)
{
    uint32_t before = list->count;
    enum dyt_status st = DYT_OK;

    for (size_t i = 0; i < count && st == DYT_OK; i++) {
        dyti_assert(
            copy[i].src_dtype == copy[i].dst_dtype ||
            (copy[i].src_dtype <= DYTI_F16 && copy[i].dst_dtype <= DYTI_F16));
        st = add(list, &copy[i], 0, 0);
    }
    return ended(list, before, st);
}

/* ---- streams ---------------------------------------------------------------
 */

/* A part of one element: converted on the way out, bytes on the way in. */
static enum dyt_status add_piece(struct dyti_cuda_boxes *list,
                                 const struct dyti_pack_part *part, bool packs,
                                 unsigned char *dense)
{
    const int64_t *stride =
        packs ? part->box->src_stride : part->box->dst_stride;
    int64_t offset = dyti_pack_offset(part->box, stride, part->element);
    struct dyti_copy copy = {.size = {1, 1, 1, 1},
                             .src_dtype = part->box->src_dtype,
                             .dst_dtype = part->box->dst_dtype};

    if (packs) {
        copy.src = (const unsigned char *)part->box->src + offset;
        copy.dst = dense;
        return add(list, &copy, (uint8_t)part->skip, (uint8_t)part->bytes);
    }
    copy.src = dense - part->skip; /* which are not read */
    copy.dst = (unsigned char *)part->box->dst + offset;
    copy.src_dtype = copy.dst_dtype;
    for (uint32_t i = 0; i < part->bytes; i++) {
        struct dyti_cuda_box *box;
        enum dyt_status st = add(list, &copy, 0, 1);

        if (st != DYT_OK) {
            return st;
        }
        box = &list->box[list->count - 1];
        box->src = (uint64_t)(uintptr_t)dense + i;
        box->dst += part->skip + i;
        box->src_bytes = box->dst_bytes = box->src_unit = 1;
        box->src_dtype = box->dst_dtype;
    }
    return DYT_OK;
}

static enum dyt_status add_whole(struct dyti_cuda_boxes *list,
                                 const struct dyti_pack_part *part, bool packs,
                                 unsigned char *dense)
{
    uint64_t element = part->element;
    uint64_t count = part->bytes / part->element_bytes;
    enum dyt_status st = DYT_OK;

    while (count > 0 && st == DYT_OK) {
        struct dyti_copy copy;
        int64_t offset;
        uint64_t taken;

        dyti_pack_cut(part->box, packs, &element, &count, &copy, &offset,
                      &taken);
        if (packs) {
            copy.src = (const unsigned char *)part->box->src + offset;
            copy.dst = dense;
        } else {
            copy.src = dense;
            copy.dst = (unsigned char *)part->box->dst + offset;
            copy.src_dtype = copy.dst_dtype;
        }
        dense += taken * part->element_bytes;
        st = add(list, &copy, 0, 0);
    }
    return st;
}

static enum dyt_status add_range(struct dyti_cuda_boxes *list,
                                 const struct dyti_stream_boxes *stream,
                                 uint64_t lo, uint64_t hi, bool packs,
                                 unsigned char *dense)
{
    struct dyti_stream_cursor cursor;
    uint32_t before = list->count;
    enum dyt_status st = DYT_OK;

    dyti_stream_seek(stream, lo, &cursor);
    while (lo < hi && st == DYT_OK) {
        struct dyti_pack_part part = dyti_pack_next(stream, &cursor, hi - lo);
        bool is_whole = part.skip == 0 && part.bytes >= part.element_bytes;

        st = is_whole ? add_whole(list, &part, packs, dense)
                      : add_piece(list, &part, packs, dense);
        dense += part.bytes;
        lo += part.bytes;
    }
    return ended(list, before, st);
}

enum dyt_status dyti_cuda_boxes_pack(struct dyti_cuda_boxes *list,
                                     const struct dyti_stream_boxes *stream,
                                     uint64_t lo, uint64_t hi, void *dense)
{
    return add_range(list, stream, lo, hi, true, dense);
}

enum dyt_status dyti_cuda_boxes_unpack(struct dyti_cuda_boxes *list,
                                       const struct dyti_stream_boxes *stream,
                                       uint64_t lo, uint64_t hi,
                                       const void *dense)
{
    /* Only read: add_range() fills in one of two sides. */
    return add_range(list, stream, lo, hi, false,
                     (unsigned char *)(uintptr_t)dense);
}

/* ---- hashes ----------------------------------------------------------------
 */

void dyti_cuda_hash_box_make(const struct dyti_hash_box *box, uint32_t word,
                             struct dyti_cuda_hash_box *out_box)
{
    /* The index runs with the bytes where both are dense. */
    int64_t scaled[DYTI_COPY_DIMS];
    int64_t bytes = dyti_dtype_bytes((enum dyti_dtype)box->dtype);
    struct axes x;

    for (int d = 0; d < DIMS; d++) {
        scaled[d] = box->index_stride[d] * bytes;
    }
    x = axes_make(box->size, scaled, box->stride);
    *out_box =
        (struct dyti_cuda_hash_box){.data = (uint64_t)(uintptr_t)box->data,
                                    .index = box->index,
                                    .salt = box->salt,
                                    .word = word,
                                    .bytes = (uint8_t)bytes,
                                    .dtype = box->dtype,
                                    .as = box->dtype};
    memcpy(out_box->size, x.size, sizeof(x.size));
    for (int d = 0; d < DIMS; d++) {
        out_box->stride[d] = x.b[d];
        out_box->index_stride[d] = x.a[d] / bytes;
    }
}
