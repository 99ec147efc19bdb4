/* What the files of the manager share.
 *   manager.c          open, run, close; members come and go
 *   manager_events.c   what members say, as events
 *   manager_actions.c  what the fleet wants, as messages
 *   manager_links.c    … of links
 *   manager_direct.c   … whose bytes may go from device to device
 *   manager_status.c   who is there, as JSON */
#ifndef DYTI_LIB_MANAGER_INTERNAL_H
#define DYTI_LIB_MANAGER_INTERNAL_H

#include "control/hub.h"
#include "lib/manager.h"
#include "lib/parts.h"
#include "phase/fleet.h"

#define DYTI_NO_LINK UINT32_MAX
/* Of a status: far above what a job has, and a frame's without its rest. */
#define DYTI_STATUS_MOST_BYTES (DYTI_FRAME_MOST_BYTES - (1u << 20))

/* By the fleet's member number. */
struct dyti_managed {
    bool used, on_host, mapped;
    char *no_crossing; /* owned; "": weights can go to another host */
    uint32_t peer;
    int pidfd; /* -1: none */
    uint32_t verify;
    struct dyti_msg_rows rows; /* of a trainer's rank */
    struct dyti_msg_part part[2];
    uint32_t part_count, live_set;
    /* The same on devices: 0, or as many sets. */
    struct dyti_msg_part direct[2];
    uint32_t direct_count;
    char
        *indirect; /* owned; why there is none; "" or NULL: no row lies there */
    char *way;     /* owned; how versions come to it (docs/session.md); NULL:
                      none came yet */
};

/* By the fleet's link number: what is needed after the fleet forgot it. */
struct dyti_managed_link {
    bool used;
    uint32_t *member; /* [member_count], owned */
    uint32_t member_count, source_count;
    int control_fd;                 /* -1: none */
    struct dyti_msg_part *snapshot; /* [source_count], owned; zeroed: none */
};

struct dyti_session_manager {
    struct dyti_manager_params params;
    char job[DYTI_FLEET_NAME_BYTES];
    struct dyti_hub *hub;
    struct dyti_fleet fleet;
    struct dyti_model *catalogue;
    struct dyti_managed *member;
    size_t member_count, member_cap;
    struct dyti_managed_link *link;
    size_t link_count, link_cap;
    uint64_t host;
    uint32_t pid;
    uint64_t pid_start;
    int stop_fd;
};

int64_t dyti_manager_now(void);
void dyti_manager_say(struct dyti_session_manager *m, const char *fmt, ...)
    DYTI_PRINTF(2, 3);

/* Send an encoded message; who cannot be reached is found by its pidfd or its
 * silence.  `st` is the encoder's answer. */
enum dyt_status dyti_manager_send(struct dyti_session_manager *m,
                                  uint32_t member, enum dyt_status st,
                                  struct dyti_buffer *buffer);
struct dyti_envelope dyti_manager_envelope(struct dyti_session_manager *m,
                                           enum dyti_message type);

/* Give the fleet an event, then do what it wants.  An error of the event is
 * left to the caller; DYT_ERR_NOMEM ends the manager. */
enum dyt_status dyti_manager_take(struct dyti_session_manager *m,
                                  const struct dyti_fleet_event *event);
enum dyt_status dyti_manager_act(struct dyti_session_manager *m);
enum dyt_status dyti_manager_frame(struct dyti_session_manager *m,
                                   struct dyti_hub_frame *frame);

/* ---- manager_actions.c ----------------------------------------------------
 */

/* Memory of members, set 0, in this order; free with
 * dyti_manager_memory_free(). */
enum dyt_status dyti_manager_memory(struct dyti_session_manager *m,
                                    const uint32_t *member, uint32_t count,
                                    struct dyti_memory_view **out);
void dyti_manager_memory_free(struct dyti_memory_view *memory, uint32_t count);
/* Bits of the kinds that they hold. */
uint32_t dyti_manager_kinds(const struct dyti_memory_view *memory,
                            uint32_t count);

/* ---- manager_links.c ------------------------------------------------------
 */

/* The sources make memory that these receivers can map. */
enum dyt_status dyti_manager_snap(struct dyti_session_manager *m,
                                  uint32_t link);
enum dyt_status dyti_manager_open_link(struct dyti_session_manager *m,
                                       uint32_t link);
enum dyt_status dyti_manager_order(struct dyti_session_manager *m,
                                   const struct dyti_fleet_action *a,
                                   uint32_t what);
enum dyt_status dyti_manager_abort(struct dyti_session_manager *m,
                                   const struct dyti_fleet_action *a);
/* A link that the manager cannot bring about: all who would answer for it have
 * failed, and so whoever waits hears why at once. */
enum dyt_status dyti_manager_fail_link(struct dyti_session_manager *m,
                                       uint32_t link, enum dyt_status why);

/* ---- manager_direct.c -----------------------------------------------------
 */

/* Memory on devices of a link's members, borrowed, or why none is told. */
enum dyt_status dyti_manager_fill_direct(const struct dyti_session_manager *m,
                                         const struct dyti_managed_link *l,
                                         struct dyti_msg_link *msg);
/* What was in it. */
void dyti_manager_free_direct(struct dyti_msg_link *msg);
/* A member has opened a link, or a version came by it. */
void dyti_manager_note_way(struct dyti_managed *member,
                           const struct dyti_msg_report *report);

/* ---- manager.c, manager_status.c ------------------------------------------
 */

/* A member is gone; status DYT_OK: it left. */
enum dyt_status dyti_manager_gone(struct dyti_session_manager *m,
                                  uint32_t member, enum dyt_status status,
                                  const char *text);
void dyti_managed_fini(struct dyti_managed *member);
void dyti_managed_link_fini(struct dyti_managed_link *link);

/* At most `most_bytes` (4 KiB and more): members and replicas that do not fit
 * are left out, and counted. */
enum dyt_status dyti_manager_status(struct dyti_session_manager *m,
                                    size_t most_bytes, char **out_json);

#endif /* DYTI_LIB_MANAGER_INTERNAL_H */
