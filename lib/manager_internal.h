/* What the files of the manager share.
 *   manager.c          open, run, close; members come and go
 *   manager_events.c   what members say, as events
 *   manager_actions.c  what the fleet wants, as messages
 *   manager_status.c   who is there, as JSON */
#ifndef DYTI_LIB_MANAGER_INTERNAL_H
#define DYTI_LIB_MANAGER_INTERNAL_H

#include "control/hub.h"
#include "lib/manager.h"
#include "lib/parts.h"
#include "phase/fleet.h"

#define DYTI_NO_LINK UINT32_MAX

/* By the fleet's member number. */
struct dyti_managed {
    bool used, on_host, mapped, crosses;
    uint32_t peer;
    int pidfd; /* -1: none */
    uint32_t verify;
    struct dyti_msg_rows rows; /* of a trainer's rank */
    struct dyti_msg_part part[2];
    uint32_t part_count, live_set;
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
/* A member is gone; status DYT_OK: it left. */
enum dyt_status dyti_manager_gone(struct dyti_session_manager *m,
                                  uint32_t member, enum dyt_status status,
                                  const char *text);
void dyti_managed_fini(struct dyti_managed *member);
void dyti_managed_link_fini(struct dyti_managed_link *link);

enum dyt_status dyti_manager_status(struct dyti_session_manager *m,
                                    char **out_json);

#endif /* DYTI_LIB_MANAGER_INTERNAL_H */
