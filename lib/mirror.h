/* A mirror: memory of ours on the host that stands for rows which lie on
 * devices. It is one segment that others map; a row lies in it densely, its
 * dimensions in the order in which they lie on the device.
 *
 *   asleep  from open on: others can be told of it, and it takes no memory
 *   wake    by the first version that goes by way of the host
 *   follow  what is done with the rows from then on comes after what is in
 * their streams by now, or after an event; nobody waits take    device to
 * mirror: what a trainer offers give    mirror to device: what a receiver has
 * committed
 *
 * Take and give are done when they return.  Only boxes of tensors are copied,
 * never what lies between them.  The segment is pinned where the device allows
 * it, so that one launch moves everything; otherwise bytes go through a pinned
 * buffer, piece by piece.
 *
 * Threads: any, one after the other; never a caller's (lib/device.h). */
#ifndef DYTI_LIB_MIRROR_H
#define DYTI_LIB_MIRROR_H

#include "lib/device.h"
#include "plugin/resolve.h"

struct dyti_mirror;

/* @param devices    of these rows; borrowed until close
 * @param rows       all of the member's, of the host too
 * @param pieces     what they hold: rows without pieces have no mirror */
enum dyt_status dyti_mirror_open(struct dyti_devices *devices,
                                 const struct dyt_view *rows,
                                 const struct dyti_row_pieces *pieces,
                                 struct dyti_mirror **out_mirror);
void dyti_mirror_close(struct dyti_mirror *mirror);

/* The rows, [row_count of open], with memory of the mirror in place of the
 * devices'.  Names and pieces are the caller's. */
const struct dyt_row *dyti_mirror_rows(const struct dyti_mirror *mirror);
/* Which have one, [row_count]. */
const bool *dyti_mirror_has(const struct dyti_mirror *mirror);
/* Have all rows with pieces? */
bool dyti_mirror_has_all(const struct dyti_mirror *mirror);
/* 0 while it sleeps. */
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

/* Twice is fine.
 * @param cap_bytes  0: none
 * DYT_ERR_NOMEM  over the cap: both numbers */
enum dyt_status dyti_mirror_wake(struct dyti_mirror *mirror,
                                 uint64_t cap_bytes);

/* Is the memory there, does the device work, and is all done that was queued?
 * DYT_ERR_INVALID: lists rows.  Take and give ask the same first. */
enum dyt_status dyti_mirror_ready(struct dyti_mirror *mirror);
/* @param event  NULL: the rows' streams */
enum dyt_status dyti_mirror_follow(struct dyti_mirror *mirror, void *event);
/* Both of one that is awake.  Take comes after what was followed last. */
enum dyt_status dyti_mirror_take(struct dyti_mirror *mirror);
enum dyt_status dyti_mirror_give(struct dyti_mirror *mirror, void *event);
/* Padding of the rows becomes zero, of one that sleeps as well. */
enum dyt_status dyti_mirror_clear_pads(struct dyti_mirror *mirror);

/* lib/link.h's seal, of the rows that have a mirror: what they hold when it is
 * taken, behind what was followed last, and whether it still is that.
 * @param full  every element; else 1 of 128 of each box, others with each seed
 * DYT_ERR_VERIFY  a tensor was written: names it */
enum dyt_status dyti_mirror_seal(struct dyti_mirror *mirror, bool full,
                                 uint64_t seed);
enum dyt_status dyti_mirror_check_seal(struct dyti_mirror *mirror, bool full,
                                       const struct dyti_model *catalogue,
                                       uint32_t kinds);
/* Content hash of what a row that has a mirror holds on its device. */
enum dyt_status dyti_mirror_row_hash(struct dyti_mirror *mirror, uint32_t row,
                                     uint64_t *out_hash);

#endif /* DYTI_LIB_MIRROR_H */
