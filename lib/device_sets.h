/* Memory of ours on devices, into which a receiver's rows are re-pointed
 * (dyt_session_map): one set, or two with DYT_COMMIT_DOUBLE.  Nobody else maps
 * it: versions come by a mirror of each set (lib/mirror.h).
 *
 * Threads: one at a time, never a caller's (lib/device.h). */
#ifndef DYTI_LIB_DEVICE_SETS_H
#define DYTI_LIB_DEVICE_SETS_H

#include "lib/device.h"

struct dyti_device_sets;

/* Fills in data and strides of the rows that lie on devices, copying what they
 * held; others are left alone.
 * DYT_ERR_INVALID      rows whose memory is not there: all of them
 * DYT_ERR_UNSUPPORTED  more dimensions than copies have; a device without
 *                      memory that can be mapped
 * DYT_ERR_NOMEM        both numbers */
enum dyt_status dyti_device_sets_open(struct dyti_devices *devices,
                                      struct dyt_row *row, uint64_t row_count,
                                      uint32_t set_count,
                                      struct dyti_device_sets **out_sets);
void dyti_device_sets_close(struct dyti_device_sets *sets);

/* NULL: a row of the host. */
void *dyti_device_sets_row(const struct dyti_device_sets *sets, uint64_t row,
                           uint32_t set);

/* As dyti_mapped_release() and its counterpart (lib/link.h). */
enum dyt_status dyti_device_sets_release(struct dyti_device_sets *sets,
                                         const bool *moved, uint64_t count);
enum dyt_status dyti_device_sets_restore(struct dyti_device_sets *sets,
                                         const bool *moved, uint64_t count);

#endif /* DYTI_LIB_DEVICE_SETS_H */
