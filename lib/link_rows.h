/* Places of rows: what link_rows.c finds, and link_memory.c builds of. */
#ifndef DYTI_LIB_LINK_ROWS_H
#define DYTI_LIB_LINK_ROWS_H

#include "lib/link_internal.h"

/* A row's bytes.  Of private memory `at` is the address; of shared, the place
 * in the file. */
struct dyti_row_place {
    uint64_t at, bytes, address;
    uint64_t device, inode;
    uint64_t offset; /* in the region, when extents have been made */
    uint32_t row, kind;
    int32_t fd;
    bool read_only;
};

struct dyti_row_places {
    struct dyti_row_place *place; /* [count] of rows with pieces; owned */
    uint32_t count;
    uint32_t *of;     /* [row_count] place of a row, UINT32_MAX: none; owned */
    uint32_t *row_as; /* [row_count] as struct dyti_memory_view's; owned */
};

/* there: all rows are of devices, not of the host.
 * DYT_ERR_INVALID, DYT_ERR_UNSUPPORTED: as dyti_memory_view_build(). */
enum dyt_status dyti_row_places_init(struct dyti_row_places *places,
                                     const struct dyt_view *rows,
                                     const struct dyti_row_pieces *pieces,
                                     bool there);
void dyti_row_places_fini(struct dyti_row_places *places);

/* A row of whatever release the caller is. */
struct dyt_row dyti_link_row(const struct dyt_view *rows, uint64_t i);
/* From the first element to behind the last; false: too many. */
bool dyti_link_row_bytes(const struct dyt_row *row, uint64_t *out_bytes);

#endif /* DYTI_LIB_LINK_ROWS_H */
