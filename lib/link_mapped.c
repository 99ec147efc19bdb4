/* Segments of ours that a receiver's rows are re-pointed into. */
#include "lib/link_rows.h"

#include "base/checked.h"
#include "device/host/memory.h"

#include <stdlib.h>
#include <string.h>

#define PAGE 4096u
#define SETS 2u

struct dyti_mapped {
    struct dyti_segment_mem set[SETS];
    uint32_t set_count;
    uint64_t *at, *size; /* [row_count] of each row, an alias has 0; owned */
    uint64_t row_count, bytes;
    unsigned char *kept; /* of released rows, by set, row; owned */
    bool released;
};

/* ---- places ---------------------------------------------------------------
 */

static enum dyt_status bytes_of(const struct dyt_row *row, uint64_t *out_bytes)
{
    uint64_t bytes = row->dtype < DYTI_DTYPE_COUNT
                         ? dyti_dtype_bytes((enum dyti_dtype)row->dtype)
                         : 0;
    bool over = false;

    if (bytes == 0 || row->ndim > DYT_MAX_DIMS) {
        return DYTI_FAIL(DYT_ERR_INVALID, "row %s: dtype %u, %u dimensions",
                         row->name, row->dtype, row->ndim);
    }
    for (uint32_t d = 0; d < row->ndim; d++) {
        if (row->shape[d] < 0 || row->stride[d] < 0) {
            return DYTI_FAIL(DYT_ERR_INVALID,
                             "row %s: a size or stride below 0", row->name);
        }
        over |= dyti_mul_overflow(bytes, (uint64_t)row->shape[d], &bytes);
    }
    if (over || bytes > INT64_MAX / 4) {
        return DYTI_FAIL(DYT_ERR_OVERFLOW, "row %s is too large", row->name);
    }
    *out_bytes = bytes;
    return DYT_OK;
}

static enum dyt_status alias_of(const struct dyt_row *row, uint64_t index,
                                uint64_t *out_of)
{
    for (uint64_t i = 0; i < index; i++) {
        if (row[i].data != NULL && row[i].data == row[index].data) {
            if (row[i].dtype != row[index].dtype ||
                row[i].ndim != row[index].ndim ||
                memcmp(row[i].shape, row[index].shape,
                       row[i].ndim * sizeof(row[i].shape[0])) != 0) {
                return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                                 "rows %s and %s have the same memory and "
                                 "other shapes",
                                 row[i].name, row[index].name);
            }
            *out_of = i;
            return DYT_OK;
        }
    }
    return DYTI_FAIL(DYT_ERR_INVALID,
                     "row %s is an alias, but no row before it has its memory",
                     row[index].name);
}

/* Reads `data` of the rows, so before any of them is re-pointed. */
static enum dyt_status place_rows(struct dyti_mapped *self,
                                  const struct dyt_row *row)
{
    enum dyt_status st = DYT_OK;

    for (uint64_t i = 0; i < self->row_count && st == DYT_OK; i++) {
        uint64_t bytes = 0, of = 0;

        if (row[i].struct_size < sizeof(row[i])) {
            return DYTI_FAIL(DYT_ERR_ABI, "row %llu of %u bytes, not %zu",
                             (unsigned long long)i, row[i].struct_size,
                             sizeof(row[i]));
        }
        if (row[i].device.type != DYT_DEVICE_HOST) {
            continue; /* lib/device_sets.h */
        }
        if ((row[i].flags & DYT_ROW_ALIAS) != 0) {
            st = alias_of(row, i, &of);
            self->at[i] = self->at[of];
            continue;
        }
        st = bytes_of(&row[i], &bytes);
        self->at[i] = self->bytes;
        self->size[i] = bytes;
        if (st == DYT_OK &&
            dyti_add_overflow(self->bytes, dyti_align_up(bytes, PAGE),
                              &self->bytes)) {
            st = DYTI_FAIL(DYT_ERR_OVERFLOW, "the rows of a mapped receiver");
        }
    }
    return st;
}

/* ---- contents -------------------------------------------------------------
 */

/* Row-major and dense from strides; dims from `d` on.  Moves *to. */
static enum dyt_status gather(const struct dyti_kernels *kernels,
                              const struct dyt_row *row,
                              const int64_t *stride_bytes, uint32_t d,
                              const unsigned char *from, unsigned char **to)
{
    int64_t element = dyti_dtype_bytes((enum dyti_dtype)row->dtype);
    bool line = d + 1 == row->ndim && stride_bytes[d] == element;
    enum dyt_status st = DYT_OK;

    if (d == row->ndim || line) {
        uint64_t bytes = (uint64_t)(line ? row->shape[d] * element : element);

        st = dyti_kernels_carry(kernels, *to, from, bytes);
        *to += bytes;
        return st;
    }
    for (int64_t i = 0; i < row->shape[d] && st == DYT_OK; i++) {
        st = gather(kernels, row, stride_bytes, d + 1,
                    from + i * stride_bytes[d], to);
    }
    return st;
}

static void dense_strides(const struct dyt_row *row, int64_t *stride)
{
    int64_t step = 1;

    for (uint32_t d = row->ndim; d-- > 0;) {
        stride[d] = step;
        step *= row->shape[d] > 0 ? row->shape[d] : 1;
    }
}

static enum dyt_status copy_in(const struct dyti_kernels *kernels,
                               const struct dyt_row *row, unsigned char *to)
{
    int64_t stride[DYT_MAX_DIMS] = {0};
    int64_t element = dyti_dtype_bytes((enum dyti_dtype)row->dtype);
    bool strided = false;

    if (row->data == NULL || (row->flags & DYT_ROW_ALIAS) != 0 ||
        row->device.type != DYT_DEVICE_HOST) {
        return DYT_OK;
    }
    for (uint32_t d = 0; d < row->ndim; d++) {
        if (row->shape[d] == 0) {
            return DYT_OK;
        }
        strided |= row->stride[d] != 0;
    }
    dense_strides(row, stride);
    for (uint32_t d = 0; d < row->ndim; d++) {
        stride[d] = (strided ? row->stride[d] : stride[d]) * element;
    }
    return gather(kernels, row, stride, 0, row->data, &to);
}

static void point_rows(const struct dyti_mapped *self, struct dyt_row *row)
{
    for (uint64_t i = 0; i < self->row_count; i++) {
        if (row[i].device.type != DYT_DEVICE_HOST) {
            continue;
        }
        dense_strides(&row[i], row[i].stride);
        row[i].data = dyti_mapped_row(self, i, 0);
        row[i].fd = self->set[0].handle;
        row[i].fd_offset = self->at[i];
    }
}

/* ---- open, close ----------------------------------------------------------
 */

/* What the rows hold may be of a file that is truncated meanwhile. */
static enum dyt_status guard_rows(const struct dyti_mapped *self,
                                  const struct dyt_row *row,
                                  struct dyti_guard *guard)
{
    enum dyt_status st = DYT_OK;

    for (uint64_t i = 0; i < self->row_count && st == DYT_OK; i++) {
        uint64_t bytes = 0;

        if (row[i].data != NULL && row[i].fd >= 0 &&
            dyti_link_row_bytes(&row[i], &bytes)) {
            st = dyti_guard_add(guard, row[i].data, bytes, row[i].fd,
                                row[i].fd_offset, NULL, row[i].fd);
        }
    }
    return st;
}

static enum dyt_status copy_rows(struct dyti_mapped *self,
                                 const struct dyt_row *row)
{
    struct dyti_guard guard = {.catalogue = NULL};
    struct dyti_hands hands;
    enum dyt_status st = guard_rows(self, row, &guard);

    st = st != DYT_OK ? st : dyti_hands_open(&hands, 1, &guard);
    if (st != DYT_OK) {
        dyti_guard_fini(&guard);
        return st;
    }
    for (uint32_t s = 0; s < self->set_count; s++) {
        for (uint64_t i = 0; i < self->row_count && st == DYT_OK; i++) {
            st = copy_in(&hands.kernels, &row[i],
                         (unsigned char *)self->set[s].base + self->at[i]);
            if (st != DYT_OK) {
                DYTI_NOTE("copying row %s", row[i].name);
            }
        }
    }
    dyti_hands_close(&hands);
    dyti_guard_fini(&guard);
    return st;
}

static enum dyt_status open_sets(struct dyti_mapped *self,
                                 const struct dyt_row *row)
{
    enum dyt_status st = DYT_OK;

    for (uint32_t s = 0; s < self->set_count && st == DYT_OK; s++) {
        st = dyti_segment_open("dynatrain mapped", self->bytes, &self->set[s]);
    }
    return st != DYT_OK ? st : copy_rows(self, row);
}

enum dyt_status dyti_mapped_open(struct dyt_row *row, uint64_t row_count,
                                 uint32_t set_count,
                                 struct dyti_mapped **out_mapped)
{
    struct dyti_mapped *self = NULL;
    enum dyt_status st;

    if (set_count < 1 || set_count > SETS || row_count == 0) {
        return DYTI_FAIL(DYT_ERR_INVALID, "%llu rows in %u sets",
                         (unsigned long long)row_count, set_count);
    }
    self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "mapped rows");
    }
    self->set[0].handle = self->set[1].handle = -1;
    self->set_count = set_count;
    self->row_count = row_count;
    self->at = calloc(row_count, sizeof(*self->at));
    self->size = calloc(row_count, sizeof(*self->size));
    st = self->at == NULL || self->size == NULL
             ? DYTI_FAIL(DYT_ERR_NOMEM, "%llu rows",
                         (unsigned long long)row_count)
             : place_rows(self, row);
    if (st == DYT_OK && self->bytes == 0) {
        self->bytes = PAGE; /* only empty rows: they have an address too */
    }
    st = st != DYT_OK ? st : open_sets(self, row);
    if (st != DYT_OK) {
        DYTI_NOTE("memory for %llu mapped rows", (unsigned long long)row_count);
        dyti_mapped_close(self);
        return st;
    }
    point_rows(self, row);
    *out_mapped = self;
    return DYT_OK;
}

void *dyti_mapped_row(const struct dyti_mapped *mapped, uint64_t row,
                      uint32_t set)
{
    return row >= mapped->row_count || set >= mapped->set_count
               ? NULL
               : (unsigned char *)mapped->set[set].base + mapped->at[row];
}

int dyti_mapped_fd(const struct dyti_mapped *mapped, uint32_t set)
{
    return set >= mapped->set_count ? -1 : mapped->set[set].handle;
}

static bool is_kept(const bool *moved, uint64_t count, uint64_t row)
{
    return row < count && !moved[row];
}

/* Every kept row of every set: to `kept`, or back. */
static void move_kept(const struct dyti_mapped *mapped, const bool *moved,
                      uint64_t count, bool back)
{
    unsigned char *at = mapped->kept;

    for (uint32_t s = 0; s < mapped->set_count; s++) {
        for (uint64_t i = 0; i < mapped->row_count; i++) {
            unsigned char *row = dyti_mapped_row(mapped, i, s);

            if (is_kept(moved, count, i)) {
                memcpy(back ? row : at, back ? at : row, mapped->size[i]);
                at += mapped->size[i];
            }
        }
    }
}

static enum dyt_status keep_rows(struct dyti_mapped *mapped, const bool *moved,
                                 uint64_t count)
{
    uint64_t bytes = 0;

    for (uint64_t i = 0; i < mapped->row_count; i++) {
        bytes +=
            is_kept(moved, count, i) ? mapped->size[i] * mapped->set_count : 0;
    }
    if (bytes == 0 || mapped->kept != NULL) {
        return DYT_OK;
    }
    mapped->kept = malloc(bytes);
    if (mapped->kept == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM,
                         "%llu bytes of rows that no version brings",
                         (unsigned long long)bytes);
    }
    move_kept(mapped, moved, count, false);
    return DYT_OK;
}

enum dyt_status dyti_mapped_release(struct dyti_mapped *mapped,
                                    const bool *moved, uint64_t count)
{
    enum dyt_status st = keep_rows(mapped, moved, count);

    for (uint32_t s = 0; s < mapped->set_count && st == DYT_OK; s++) {
        st = dyti_memory_host.drop(&mapped->set[s], 0, mapped->set[s].bytes);
    }
    mapped->released |= st == DYT_OK;
    return st;
}

enum dyt_status dyti_mapped_restore(struct dyti_mapped *mapped,
                                    const bool *moved, uint64_t count)
{
    uint64_t need = 0, have = UINT64_MAX;

    for (uint32_t s = 0; s < mapped->set_count; s++) {
        /* reserved pages are ours still */
        if (mapped->set[s].pages != DYTI_PAGES_HUGETLB) {
            need += mapped->set[s].bytes;
            have = dyti_memory_host.available(mapped->set[s].pages);
        }
    }
    if (mapped->released && need > have) {
        return DYTI_FAIL(DYT_ERR_NOMEM,
                         "%llu bytes of released weights, %llu are available",
                         (unsigned long long)need, (unsigned long long)have);
    }
    mapped->released = false;
    if (mapped->kept != NULL) {
        move_kept(mapped, moved, count, true);
        free(mapped->kept);
        mapped->kept = NULL;
    }
    return DYT_OK;
}

void dyti_mapped_close(struct dyti_mapped *mapped)
{
    if (mapped == NULL) {
        return;
    }
    for (uint32_t s = 0; s < SETS; s++) {
        dyti_segment_close(&mapped->set[s]);
    }
    free(mapped->at);
    free(mapped->size);
    free(mapped->kept);
    free(mapped);
}
