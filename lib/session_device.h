/* Rows of a session that lie on devices: their mirrors, and what goes direct.
 * By the service and by hands, so that a caller's thread keeps its device; but
 * for what says otherwise. */
#ifndef DYTI_LIB_SESSION_DEVICE_H
#define DYTI_LIB_SESSION_DEVICE_H

#include "lib/session_internal.h"

/* ---- session_mirror.c -----------------------------------------------------
 */

/* The rows of a view once more, to be changed: *out_view is of *out_row, which
 * the caller frees. */
enum dyt_status dyti_session_copy_rows(const struct dyt_view *view,
                                       struct dyt_row **out_row,
                                       struct dyt_view *out_view);
/* … those on devices in the other set of a mapped receiver. */
enum dyt_status dyti_session_rows_of_second(const struct dyt_session *s,
                                            const struct dyt_view *view,
                                            struct dyt_row **out_row,
                                            struct dyt_view *out_view);

/* The rows on devices, looked at: `st` and its words are what is wrong with
 * them otherwise, and what is wrong of their memory comes behind it. */
enum dyt_status dyti_session_open_devices(struct dyt_session *s,
                                          const struct dyt_view *view);
enum dyt_status dyti_session_look_at_devices(struct dyt_session *s,
                                             const struct dyt_view *view,
                                             enum dyt_status st);
/* `view` and `pieces` become the mirror's, where there are rows of devices. */
enum dyt_status dyti_session_mirror_rows(struct dyt_session *s,
                                         const struct dyti_place *place,
                                         struct dyt_view *view,
                                         struct dyti_row_pieces *pieces);
void dyti_session_close_mirror(struct dyt_session *s); /* and the devices */
uint64_t dyti_session_mirror_bytes(const struct dyt_session *s);
/* MAPPED: by a caller, before publish: rows on devices get memory of ours. */
enum dyt_status dyti_session_map_devices(struct dyt_session *s,
                                         struct dyt_row *row,
                                         uint64_t row_count);
/* By a caller: nothing where there is none of it. */
enum dyt_status dyti_session_sleep_devices(struct dyt_session *s, bool release);
/* Of a mapped row, wherever it lies. */
void *dyti_session_mapped_row(const struct dyt_session *s, uint64_t row,
                              uint32_t set);
/* Do others read a mirror instead of any of the rows? */
bool dyti_session_is_all_mirror(const struct dyt_session *s);
/* Of the cap, what a mirror leaves: 0 stays 0, and nothing left is 1. */
uint64_t dyti_session_cap(const struct dyt_session *s);
/* Of the offer or receive that runs; NULL: streams'. */
void *dyti_session_event(struct dyt_session *s);
/* An offer begins: what is done with the rows from now on comes behind its
 * event, or their streams; and what they hold is noted, unless nobody asks. */
enum dyt_status dyti_session_follow_offer(struct dyt_session *s,
                                          uint64_t version, bool seals);
/* The mirror of a set holds this version, which the rows hold: nothing where it
 * does already.  It wakes for it. */
enum dyt_status dyti_session_take_mirror(struct dyt_session *s, uint32_t set,
                                         uint64_t version);
/* Memory of the host for rows on devices, under the cap. */
enum dyt_status dyti_session_wake_mirrors(struct dyt_session *s);
/* By the hand of a receiver: before the vote, and when it was committed. */
enum dyt_status dyti_session_ready_mirror(struct dyt_session *s);
enum dyt_status dyti_session_give_mirror(struct dyt_session *s, uint32_t set,
                                         uint64_t version);

/* ---- session_direct.c: rows on devices that others read and write there ---
 */

/* Of the rows of a view: `there`, or why not. */
enum dyt_status dyti_session_view_there(struct dyt_session *s,
                                        const struct dyt_view *view,
                                        const struct dyti_row_pieces *pieces);
/* What a link that opens is told of it, and what it asks. */
enum dyt_status dyti_session_open_direct(struct dyt_session *s,
                                         struct dyti_session_link *k,
                                         struct dyti_link_params *p);
void dyti_session_end_direct(struct dyti_session_link *k);
/* By the hand, before a run: a source's memory holds the version, a receiver's
 * is at rest. */
enum dyt_status dyti_session_ready_source(struct dyt_session *s,
                                          struct dyti_session_link *k);
enum dyt_status dyti_session_ready_receiver(struct dyt_session *s,
                                            struct dyti_session_link *k);
/* When it was committed: rows of devices are as it says. */
enum dyt_status dyti_session_commit_there(struct dyt_session *s,
                                          struct dyti_session_link *k);
/* Is memory that a link has opened another by now? */
bool dyti_session_is_renewed(struct dyt_session *s);
/* Is there an event, and no row that it is of? */
enum dyt_status dyti_session_check_event(const struct dyt_session *s,
                                         const void *event);

#endif /* DYTI_LIB_SESSION_DEVICE_H */
