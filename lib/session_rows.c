/* Rows of a member: mapped into memory of ours before they are published, and
 * where they lie afterwards. */
#include "lib/session_device.h"

#include "lib/handles.h"
#include "plugin/rows.h"

#include <stdlib.h>
#include <string.h>

/* ---- map ----------------------------------------------------------------- */

/* As they will be published; those without memory get some. */
static enum dyt_status check_rows(const struct dyt_row *row, uint64_t row_count)
{
    struct dyt_row *copy = calloc(row_count, sizeof(*copy));
    struct dyt_view view = {.struct_size = sizeof(view),
                            .row_struct_size = sizeof(*copy),
                            .row = copy,
                            .row_count = row_count};
    enum dyt_status st;

    if (copy == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%llu rows",
                         (unsigned long long)row_count);
    }
    for (uint64_t i = 0; i < row_count; i++) {
        copy[i] = row[i];
        copy[i].flags |= row[i].data == NULL ? DYT_ROW_STAGED : 0;
        copy[i].piece_count = 0; /* looked at when they are published */
    }
    st = dyti_view_check(&view);
    st = st != DYT_OK ? st : dyti_view_check_memory(&view, false);
    free(copy);
    return st;
}

/* Under the lock.  Rows of the host, then those of devices; all, or none. */
static enum dyt_status open_mapped(struct dyt_session *s, struct dyt_row *row,
                                   uint64_t row_count)
{
    uint32_t sets = s->params.commit == DYT_COMMIT_DOUBLE ? 2 : 1;
    struct dyt_row *before = calloc(row_count + 1u, sizeof(*before));
    enum dyt_status st;

    if (before == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%llu rows",
                         (unsigned long long)row_count);
    }
    memcpy(before, row, row_count * sizeof(*before));
    st = dyti_mapped_open(row, row_count, sets, &s->mapped);
    if (st == DYT_OK) {
        st = dyti_session_map_devices(s, row, row_count);
        if (st != DYT_OK) {
            dyti_mapped_close(s->mapped);
            s->mapped = NULL;
            dyti_session_close_mirror(s);
            memcpy(row, before, row_count * sizeof(*before));
        }
    }
    free(before);
    return st;
}

/* Our copy of them: the caller's may be of an older or newer header, and are as
 * far apart as they say. */
static enum dyt_status own_rows(const struct dyt_row *row, uint64_t row_count,
                                struct dyt_row **out_own)
{
    uint32_t step = row->struct_size;
    struct dyt_row *own = calloc(row_count, sizeof(*own));
    enum dyt_status st =
        own == NULL ? DYTI_FAIL(DYT_ERR_NOMEM, "%llu rows",
                                (unsigned long long)row_count)
                    : dyti_struct_check("dyt_row", step, DYTI_ROW_BYTES_0_1);

    for (uint64_t i = 0; i < row_count && st == DYT_OK; i++) {
        const char *at = (const char *)row + i * step;

        memcpy(&own[i], at, step < sizeof(*own) ? step : sizeof(*own));
        if (own[i].struct_size != step) {
            st = DYTI_FAIL(DYT_ERR_INVALID,
                           "row %llu has struct_size %u, the first one %u: "
                           "they lie side by side, set all to sizeof(struct "
                           "dyt_row)",
                           (unsigned long long)i, own[i].struct_size, step);
        }
    }
    if (st != DYT_OK) {
        free(own);
        return st;
    }
    *out_own = own;
    return DYT_OK;
}

static enum dyt_status map_rows(struct dyt_session *s, struct dyt_row *row,
                                uint64_t row_count)
{
    struct dyt_row *own = NULL;
    enum dyt_status st;

    if (row == NULL || row_count == 0) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "dyt_session_map: no rows: give those that will be "
                         "published");
    }
    st = own_rows(row, row_count, &own);
    st = st != DYT_OK ? st : check_rows(own, row_count);
    pthread_mutex_lock(&s->lock);
    if (st == DYT_OK && s->params.memory != DYT_MEMORY_MAPPED) {
        st = DYTI_FAIL(DYT_ERR_STATE, "the member joined with memory OWN");
    }
    if (st == DYT_OK && (s->published || s->mapped != NULL)) {
        st = DYTI_FAIL(DYT_ERR_STATE, "rows are mapped once, before publish");
    }
    st = st != DYT_OK ? st : open_mapped(s, own, row_count);
    pthread_mutex_unlock(&s->lock);
    for (uint64_t i = 0; i < row_count && st == DYT_OK; i++) {
        uint32_t step = own[i].struct_size;

        memcpy((char *)row + i * step, &own[i],
               step < sizeof(*own) ? step : sizeof(*own));
    }
    free(own);
    return st;
}

enum dyt_status dyt_session_map(dyt_session *s, struct dyt_row *row,
                                uint64_t row_count)
{
    enum dyt_status st = dyti_session_enter(s, "dyt_session_map");

    if (st == DYT_OK) {
        st = map_rows(s, row, row_count);
        dyti_session_exit(s);
    }
    return st;
}

enum dyt_status dyti_session_check_row(const struct dyt_session *s,
                                       uint64_t row)
{
    return s->published && row < s->row_count
               ? DYT_OK
               : DYTI_FAIL(
                     DYT_ERR_INVALID, "row %llu of %llu published ones",
                     (unsigned long long)row,
                     (unsigned long long)(s->published ? s->row_count : 0));
}

/* Under the lock: where a published row lies. */
typedef enum dyt_status (*find_fn)(const struct dyt_session *s, uint64_t row,
                                   void **out_data);

static enum dyt_status find_live(const struct dyt_session *s, uint64_t row,
                                 void **out_data)
{
    *out_data = s->mapped != NULL ? dyti_session_mapped_row(s, row, s->live_set)
                                  : s->row[row].data;
    return DYT_OK;
}

static enum dyt_status find_lent(const struct dyt_session *s, uint64_t row,
                                 void **out_data)
{
    if (s->staged[row] == NULL) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "row %llu has memory of its own: nothing was lent",
                         (unsigned long long)row);
    }
    *out_data = s->staged[row];
    return DYT_OK;
}

static enum dyt_status find_row(struct dyt_session *s, const char *function,
                                uint64_t row, find_fn find, void **out_data)
{
    enum dyt_status st = dyti_session_enter(s, function);

    if (st != DYT_OK) {
        return st;
    }
    if (out_data == NULL) {
        st = dyti_null_argument(function);
    } else {
        pthread_mutex_lock(&s->lock);
        st = dyti_session_check_row(s, row);
        st = st != DYT_OK ? st : find(s, row, out_data);
        pthread_mutex_unlock(&s->lock);
    }
    dyti_session_exit(s);
    return st;
}

enum dyt_status dyt_session_row_data(dyt_session *s, uint64_t row,
                                     void **out_data)
{
    return find_row(s, "dyt_session_row_data", row, find_live, out_data);
}

enum dyt_status dyt_session_staged(dyt_session *s, uint64_t row,
                                   void **out_data)
{
    return find_row(s, "dyt_session_staged", row, find_lent, out_data);
}
