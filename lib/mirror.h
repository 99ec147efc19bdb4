/* A mirror: memory of ours on the host that stands for rows which lie on
 * devices. It is one segment that others map; a row lies in it densely, its
 * dimensions in the order in which they lie on the device.
 *
 *   take   device to mirror: what a trainer offers
 *   give   mirror to device: what a receiver has committed
 *
 * Both come after what is in the rows' streams, or after an event, and are done
 * when they return.  Only boxes of tensors are copied, never what lies between
 * them.  The segment is pinned where the device allows it, so that one launch
 * moves everything; otherwise bytes go through a pinned buffer, piece by piece.
 *
 * Threads: any, one after the other; never a caller's (lib/device.h). */
#ifndef DYTI_LIB_MIRROR_H
#define DYTI_LIB_MIRROR_H

#include "lib/device.h"
#include "plugin/resolve.h"

struct dyti_mirror;

/* @param devices    of these rows; borrowed until close
 * @param rows       all of the member's, of the host too
 * @param pieces     what they hold: rows without pieces have no mirror
 * @param cap_bytes  0: none
 * DYT_ERR_NOMEM  over the cap: both numbers */
enum dyt_status dyti_mirror_open(struct dyti_devices *devices,
                                 const struct dyt_view *rows,
                                 const struct dyti_row_pieces *pieces,
                                 uint64_t cap_bytes,
                                 struct dyti_mirror **out_mirror);
void dyti_mirror_close(struct dyti_mirror *mirror);

/* The rows, [row_count of open], with memory of the mirror in place of the
 * devices'.  Names and pieces are the caller's. */
const struct dyt_row *dyti_mirror_rows(const struct dyti_mirror *mirror);
/* Which have one, [row_count]. */
const bool *dyti_mirror_has(const struct dyti_mirror *mirror);
/* Have all rows with pieces? */
bool dyti_mirror_has_all(const struct dyti_mirror *mirror);
uint64_t dyti_mirror_bytes(const struct dyti_mirror *mirror);

/* Once: the copies.  `rows` and `there` are what open() had, `here` the pieces
 * of dyti_mirror_rows().
 * @param is_target  they are written: no two boxes may share a byte
 * DYT_ERR_UNSUPPORTED  a row of more dimensions than copies have, by name
 * DYT_ERR_LAYOUT       boxes that share memory and are written */
enum dyt_status dyti_mirror_bind(struct dyti_mirror *mirror,
                                 const struct dyti_model *catalogue,
                                 const struct dyt_view *rows,
                                 const struct dyti_row_pieces *there,
                                 const struct dyti_row_pieces *here,
                                 bool is_target);

/* Is the memory there, and does the device work?  DYT_ERR_INVALID: lists rows.
 * Take and give ask the same first. */
enum dyt_status dyti_mirror_ready(struct dyti_mirror *mirror);
/* @param event  NULL: the rows' streams */
enum dyt_status dyti_mirror_take(struct dyti_mirror *mirror, void *event);
enum dyt_status dyti_mirror_give(struct dyti_mirror *mirror, void *event);
/* Content hash of what a row that has a mirror holds on its device. */
enum dyt_status dyti_mirror_row_hash(struct dyti_mirror *mirror, uint32_t row,
                                     uint64_t *out_hash);

#endif /* DYTI_LIB_MIRROR_H */
