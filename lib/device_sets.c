#include "lib/device_sets.h"

#include "base/checked.h"
#include "plugin/rows.h"

#include <stdlib.h>
#include <string.h>

#define PAGE 4096u
#define SETS 2u

/* Of one device. */
struct part {
    uint64_t bytes;
    struct dyti_segment_mem set[SETS]; /* handle -1: none */
    enum dyti_page_kind pages;
};

struct place {
    uint64_t at, bytes; /* an alias has 0 bytes, and where its row lies */
    uint32_t device;    /* UINT32_MAX: a row of the host */
};

struct dyti_device_sets {
    struct dyti_devices *devices;
    struct part *part;   /* [devices->count]; owned */
    struct place *place; /* [row_count]; owned */
    uint64_t row_count;
    uint32_t set_count;
    unsigned char *kept; /* of released rows, by set, row; owned */
};

void *dyti_device_sets_row(const struct dyti_device_sets *sets, uint64_t row,
                           uint32_t set)
{
    const struct place *p;

    if (row >= sets->row_count || set >= sets->set_count) {
        return NULL;
    }
    p = &sets->place[row];
    return p->device == UINT32_MAX
               ? NULL
               : (unsigned char *)sets->part[p->device].set[set].base + p->at;
}

/* ---- places ---------------------------------------------------------------
 */

static enum dyt_status alias_of(const struct dyt_row *row, uint64_t index,
                                uint64_t *out_of)
{
    for (uint64_t i = 0; i < index; i++) {
        if (dyti_row_is_on_device(&row[i]) && row[i].data == row[index].data) {
            *out_of = i;
            return DYT_OK;
        }
    }
    return DYTI_FAIL(DYT_ERR_INVALID,
                     "row %s is an alias, but no row before it has its memory",
                     row[index].name);
}

static enum dyt_status place_row(struct dyti_device_sets *sets,
                                 const struct dyt_row *row, uint64_t index)
{
    const struct dyt_row *own = &row[index];
    struct place *p = &sets->place[index];
    uint64_t bytes = own->dtype < DYTI_DTYPE_COUNT
                         ? dyti_dtype_bytes((enum dyti_dtype)own->dtype)
                         : 0;
    uint64_t of = 0;
    bool over = bytes == 0 || own->ndim > DYT_MAX_DIMS;
    struct part *part;
    enum dyt_status st;

    *p = (struct place){.device = UINT32_MAX};
    if (!dyti_row_is_on_device(own)) {
        return DYT_OK;
    }
    if ((own->flags & DYT_ROW_ALIAS) != 0) {
        st = alias_of(row, index, &of);
        *p = sets->place[of];
        p->bytes = 0;
        return st;
    }
    for (uint32_t d = 0; d < own->ndim && !over; d++) {
        over = own->shape[d] < 0 || own->stride[d] < 0 ||
               dyti_mul_overflow(bytes, (uint64_t)own->shape[d], &bytes);
    }
    if (over || bytes > INT64_MAX / 4) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "row %s: dtype %u, %u dimensions, or a size that "
                         "cannot be",
                         own->name, own->dtype, own->ndim);
    }
    if (own->ndim > DYTI_COPY_DIMS) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "row %s has %u dims, at most %u are copied to and "
                         "from a device",
                         own->name, own->ndim, DYTI_COPY_DIMS);
    }
    p->device = dyti_devices_of(sets->devices, own);
    part = &sets->part[p->device];
    p->at = part->bytes;
    p->bytes = bytes;
    return dyti_add_overflow(part->bytes, dyti_align_up(bytes, PAGE),
                             &part->bytes)
               ? DYTI_FAIL(DYT_ERR_OVERFLOW, "the rows of a mapped receiver")
               : DYT_OK;
}

/* ---- memory ---------------------------------------------------------------
 */

static enum dyt_status use(const struct dyti_device_sets *sets, uint32_t device)
{
    return sets->devices->module->memory->use(
        dyti_device_uuid(&sets->devices->device[device]));
}

static enum dyt_status open_segment(const struct dyti_device_sets *sets,
                                    struct part *part,
                                    struct dyti_segment_mem *out)
{
    const struct dyti_memory_ops *memory = sets->devices->module->memory;
    int handle = -1;
    enum dyt_status st =
        memory->create("dynatrain mapped", part->pages, &handle);

    st = st != DYT_OK
             ? st
             : memory->resize(handle, part->pages, part->bytes, NULL, 0);
    st = st != DYT_OK ? st : memory->map(handle, part->pages, part->bytes, out);
    if (st != DYT_OK && handle >= 0) {
        memory->close(handle);
        *out = (struct dyti_segment_mem){.handle = -1};
    }
    return st;
}

static enum dyt_status open_part(struct dyti_device_sets *sets, uint32_t device)
{
    struct part *part = &sets->part[device];
    enum dyt_status st = part->bytes == 0 ? DYT_OK : use(sets, device);

    if (st != DYT_OK || part->bytes == 0) {
        return st;
    }
    part->pages = sets->devices->module->memory->probe(part->bytes);
    if (part->pages == DYTI_PAGES_COUNT) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "%s has no memory that can be mapped: join with "
                         "memory OWN",
                         sets->devices->device[device].name);
    }
    for (uint32_t s = 0; s < sets->set_count && st == DYT_OK; s++) {
        st = open_segment(sets, part, &part->set[s]);
    }
    return st;
}

/* ---- contents -------------------------------------------------------------
 */

static void dense_strides(const struct dyt_row *row, int64_t *stride)
{
    int64_t step = 1;

    for (uint32_t d = row->ndim; d-- > 0;) {
        stride[d] = step;
        step *= row->shape[d] > 0 ? row->shape[d] : 1;
    }
}

static enum dyt_status copy_row(const struct dyti_device_sets *sets,
                                const struct dyt_row *row, uint64_t index)
{
    const struct place *p = &sets->place[index];
    const struct dyti_kernels *k = &sets->devices->device[p->device].kernels;
    int64_t element = dyti_dtype_bytes((enum dyti_dtype)row->dtype);
    int64_t own[DYT_MAX_DIMS], dense[DYT_MAX_DIMS];
    struct dyti_copy copy = {.src = row->data,
                             .size = {1, 1, 1, 1},
                             .src_stride = {0, 0, 0, element},
                             .dst_stride = {0, 0, 0, element},
                             .src_dtype = (uint8_t)row->dtype,
                             .dst_dtype = (uint8_t)row->dtype};
    enum dyt_status st = k->ops->after_stream(k->self, row->device.stream);

    dyti_row_strides(row, own);
    dense_strides(row, dense);
    for (uint32_t d = 0; d < row->ndim; d++) {
        uint32_t at = d + DYTI_COPY_DIMS - row->ndim;

        copy.size[at] = row->shape[d];
        copy.src_stride[at] = own[d] * element;
        copy.dst_stride[at] = dense[d] * element;
    }
    for (uint32_t s = 0; s < sets->set_count && st == DYT_OK; s++) {
        copy.dst = dyti_device_sets_row(sets, index, s);
        st = k->ops->copy(k->self, &copy, 1);
    }
    return st;
}

static enum dyt_status copy_rows(const struct dyti_device_sets *sets,
                                 const struct dyt_row *row)
{
    enum dyt_status st = DYT_OK;

    for (uint64_t i = 0; i < sets->row_count && st == DYT_OK; i++) {
        if (sets->place[i].device != UINT32_MAX && sets->place[i].bytes > 0 &&
            row[i].data != NULL) {
            st = copy_row(sets, &row[i], i);
        }
    }
    for (uint32_t d = 0; d < sets->devices->count && st == DYT_OK; d++) {
        st = dyti_kernels_wait(&sets->devices->device[d].kernels);
    }
    return st;
}

static void point_rows(const struct dyti_device_sets *sets, struct dyt_row *row)
{
    for (uint64_t i = 0; i < sets->row_count; i++) {
        if (sets->place[i].device != UINT32_MAX) {
            dense_strides(&row[i], row[i].stride);
            row[i].data = dyti_device_sets_row(sets, i, 0);
        }
    }
}

/* ---- open, close ----------------------------------------------------------
 */

static enum dyt_status fill(struct dyti_device_sets *sets,
                            const struct dyt_row *row)
{
    struct dyt_view view = {.struct_size = sizeof(view),
                            .row_struct_size = sizeof(*row),
                            .row = row,
                            .row_count = sets->row_count};
    struct dyti_found found = {.count = 0};
    enum dyt_status st = DYT_OK;

    for (uint64_t i = 0; i < sets->row_count && st == DYT_OK; i++) {
        st = place_row(sets, row, i);
    }
    if (st == DYT_OK) {
        dyti_devices_look_at(sets->devices, &view, &found);
        st = dyti_found_finish(&found, NULL);
    }
    pthread_mutex_lock(&sets->devices->lock);
    for (uint32_t d = 0; d < sets->devices->count && st == DYT_OK; d++) {
        st = open_part(sets, d);
    }
    st = st != DYT_OK ? st : copy_rows(sets, row);
    pthread_mutex_unlock(&sets->devices->lock);
    return st;
}

enum dyt_status dyti_device_sets_open(struct dyti_devices *devices,
                                      struct dyt_row *row, uint64_t row_count,
                                      uint32_t set_count,
                                      struct dyti_device_sets **out_sets)
{
    struct dyti_device_sets *sets = calloc(1, sizeof(*sets));
    enum dyt_status st = DYT_OK;

    if (sets == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "mapped rows of a device");
    }
    sets->devices = devices;
    sets->row_count = row_count;
    sets->set_count = set_count;
    sets->part = calloc(devices->count, sizeof(*sets->part));
    sets->place = calloc(row_count + 1u, sizeof(*sets->place));
    if (sets->part == NULL || sets->place == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "%llu rows",
                       (unsigned long long)row_count);
    }
    for (size_t d = 0; d < devices->count && st == DYT_OK; d++) {
        sets->part[d].set[0].handle = sets->part[d].set[1].handle = -1;
    }
    st = st != DYT_OK ? st : fill(sets, row);
    if (st != DYT_OK) {
        DYTI_NOTE("memory of a device for %llu mapped rows",
                  (unsigned long long)row_count);
        dyti_device_sets_close(sets);
        return st;
    }
    point_rows(sets, row);
    *out_sets = sets;
    return DYT_OK;
}

void dyti_device_sets_close(struct dyti_device_sets *sets)
{
    if (sets == NULL) {
        return;
    }
    pthread_mutex_lock(&sets->devices->lock);
    for (uint32_t d = 0; sets->part != NULL && d < sets->devices->count; d++) {
        const struct dyti_memory_ops *memory = sets->devices->module->memory;

        (void)dyti_kernels_wait(&sets->devices->device[d].kernels);
        for (uint32_t s = 0; s < SETS; s++) {
            struct dyti_segment_mem *mem = &sets->part[d].set[s];
            int handle = mem->handle;

            if (mem->base != NULL && handle >= 0) {
                (void)use(sets, d);
                memory->unmap(mem);
                memory->close(handle);
            }
        }
    }
    pthread_mutex_unlock(&sets->devices->lock);
    free(sets->part);
    free(sets->place);
    free(sets->kept);
    free(sets);
}

/* ---- sleep ----------------------------------------------------------------
 */

static bool is_kept(const struct dyti_device_sets *sets, const bool *moved,
                    uint64_t count, uint64_t row)
{
    return row < count && !moved[row] &&
           sets->place[row].device != UINT32_MAX && sets->place[row].bytes > 0;
}

/* Every row of every set that no version brings: to `kept`, or back. */
static enum dyt_status move_kept(const struct dyti_device_sets *sets,
                                 const bool *moved, uint64_t count, bool back)
{
    unsigned char *at = sets->kept;
    enum dyt_status st = DYT_OK;

    for (uint32_t s = 0; s < sets->set_count; s++) {
        for (uint64_t i = 0; i < sets->row_count && st == DYT_OK; i++) {
            const struct place *p = &sets->place[i];
            void *there = dyti_device_sets_row(sets, i, s);

            if (is_kept(sets, moved, count, i)) {
                st = dyti_kernels_carry(
                    &sets->devices->device[p->device].kernels,
                    back ? there : at, back ? at : there, p->bytes);
                at += p->bytes;
            }
        }
    }
    return st;
}

static enum dyt_status keep(struct dyti_device_sets *sets, const bool *moved,
                            uint64_t count)
{
    uint64_t bytes = 0;

    for (uint64_t i = 0; i < sets->row_count; i++) {
        bytes += is_kept(sets, moved, count, i)
                     ? sets->place[i].bytes * sets->set_count
                     : 0;
    }
    if (bytes == 0 || sets->kept != NULL) {
        return DYT_OK;
    }
    sets->kept = malloc(bytes);
    return sets->kept == NULL
               ? DYTI_FAIL(DYT_ERR_NOMEM,
                           "%llu bytes of rows that no version brings",
                           (unsigned long long)bytes)
               : move_kept(sets, moved, count, false);
}

static enum dyt_status each_segment(
    struct dyti_device_sets *sets,
    enum dyt_status (*what)(struct dyti_segment_mem *mem, uint64_t offset,
                            uint64_t bytes))
{
    enum dyt_status st = DYT_OK;

    for (uint32_t d = 0; d < sets->devices->count && st == DYT_OK; d++) {
        struct part *part = &sets->part[d];

        st = part->bytes > 0 ? use(sets, d) : DYT_OK;
        for (uint32_t s = 0; s < sets->set_count && st == DYT_OK; s++) {
            st = part->bytes > 0 ? what(&part->set[s], 0, part->set[s].bytes)
                                 : DYT_OK;
        }
    }
    return st;
}

enum dyt_status dyti_device_sets_release(struct dyti_device_sets *sets,
                                         const bool *moved, uint64_t count)
{
    enum dyt_status st;

    pthread_mutex_lock(&sets->devices->lock);
    st = keep(sets, moved, count);
    st = st != DYT_OK ? st
                      : each_segment(sets, sets->devices->module->memory->drop);
    pthread_mutex_unlock(&sets->devices->lock);
    return st;
}

enum dyt_status dyti_device_sets_restore(struct dyti_device_sets *sets,
                                         const bool *moved, uint64_t count)
{
    enum dyt_status st;

    pthread_mutex_lock(&sets->devices->lock);
    st = each_segment(sets, sets->devices->module->memory->wake);
    if (st == DYT_OK && sets->kept != NULL) {
        st = move_kept(sets, moved, count, true);
        free(sets->kept);
        sets->kept = NULL;
    }
    pthread_mutex_unlock(&sets->devices->lock);
    return st;
}
