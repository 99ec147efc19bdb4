/* What the files of the fleet share: fleet.c (who is there),
 * fleet_publish.c (what they hold), fleet_offer.c (offers and the policy),
 * fleet_receive.c (who takes what from whom), fleet_link.c (links). */
#ifndef DYTI_PHASE_FLEET_INTERNAL_H
#define DYTI_PHASE_FLEET_INTERNAL_H

#include "phase/fleet.h"

#define NONE DYTI_FLEET_NONE

enum dyti_group_event {
    DYTI_GE_COMPLETE, /* all members' memory fits */
    DYTI_GE_BEGIN,    /* a link to it opens */
    DYTI_GE_COMMIT,
    DYTI_GE_KEEP,  /* it failed, what was there is whole */
    DYTI_GE_BREAK, /* it failed in place */
    DYTI_GE_RELEASE,
    DYTI_GE_RESTORE,
    DYTI_GE_LOSE, /* a member died */
    DYTI_GE_JOIN, /* a member is missing, or came */
    DYTI_GE_COUNT
};
/* The one place that changes a group's state; false: not allowed. */
bool dyti_fleet_move(struct dyti_fleet_group *group,
                     enum dyti_group_event event);

/* Adds an action, zeroed but for kind; a scratch one when there is no memory,
 * which the fleet remembers. */
struct dyti_fleet_action *dyti_fleet_act(struct dyti_fleet *fleet,
                                         enum dyti_fleet_action_kind kind);
/* One with a member, a version, and a status with its text. */
void dyti_fleet_answer(struct dyti_fleet *fleet,
                       enum dyti_fleet_action_kind kind, uint32_t member,
                       uint64_t version, enum dyt_status status,
                       const char *text);

static inline bool dyti_group_is_idle(const struct dyti_fleet_group *g)
{
    return g->busy == NONE && g->readers == 0;
}
/* Its memory is whole and known: it may be in a link. */
static inline bool dyti_group_is_up(const struct dyti_fleet_group *g)
{
    return g->used &&
           (g->state == DYTI_GROUP_EMPTY || g->state == DYTI_GROUP_SERVING ||
            g->state == DYTI_GROUP_RECEIVING || g->state == DYTI_GROUP_INVALID);
}
/* Holds a version of this line that others may have. */
static inline bool dyti_group_holds(const struct dyti_fleet_group *g)
{
    return g->used && g->role == DYTI_FLEET_RECEIVER && g->current &&
           (g->state == DYTI_GROUP_SERVING ||
            (g->state == DYTI_GROUP_RECEIVING &&
             g->before == DYTI_GROUP_SERVING));
}

void dyti_fleet_blame(struct dyti_fleet_group *group, enum dyt_status status,
                      const char *text);

/* fleet_publish.c */
void dyti_fleet_forget_catalogue(struct dyti_fleet *fleet);
void dyti_fleet_refuse_group(struct dyti_fleet *fleet, uint32_t group,
                             enum dyt_status status, const char *text);
void dyti_fleet_take_built(struct dyti_fleet *fleet,
                           const struct dyti_fleet_event *event);
enum dyt_status dyti_fleet_take_publish(struct dyti_fleet *fleet,
                                        const struct dyti_fleet_event *event);
/* A member gives its publish up: it may ask again, the others wait on. */
void dyti_fleet_withdraw_publish(struct dyti_fleet *fleet, uint32_t member,
                                 enum dyt_status status);
void dyti_fleet_take_fitted(struct dyti_fleet *fleet,
                            const struct dyti_fleet_event *event);
void dyti_fleet_take_checked(struct dyti_fleet *fleet,
                             const struct dyti_fleet_event *event);
void dyti_fleet_pump_publish(struct dyti_fleet *fleet);
enum dyt_status dyti_fleet_take_release(struct dyti_fleet *fleet,
                                        const struct dyti_fleet_event *event);
/* A member gives its release or restore up, before it was done. */
void dyti_fleet_withdraw_release(struct dyti_fleet *fleet, uint32_t member,
                                 enum dyt_status status);
void dyti_fleet_pump_release(struct dyti_fleet *fleet);

/* fleet_offer.c */
enum dyt_status dyti_fleet_take_offer(struct dyti_fleet *fleet,
                                      const struct dyti_fleet_event *event);
void dyti_fleet_take_taken(struct dyti_fleet *fleet,
                           const struct dyti_fleet_event *event);
void dyti_fleet_take_cancel(struct dyti_fleet *fleet,
                            const struct dyti_fleet_event *event);
/* The trainer is not whole any more: the offer is over. */
void dyti_fleet_offer_lost(struct dyti_fleet *fleet, enum dyt_status status,
                           const char *text);
/* Make what is proposed, and end what is met or cancelled. */
void dyti_fleet_pump_offer(struct dyti_fleet *fleet, int64_t now_ns);

/* fleet_join.c */
/* Nobody of the group is there. */
bool dyti_fleet_is_deserted(const struct dyti_fleet_group *group);

/* fleet_receive.c */
enum dyt_status dyti_fleet_take_receive(struct dyti_fleet *fleet,
                                        const struct dyti_fleet_event *event);
void dyti_fleet_take_withdraw(struct dyti_fleet *fleet,
                              const struct dyti_fleet_event *event);
/* Answers all receives of a group. */
void dyti_fleet_received(struct dyti_fleet *fleet, uint32_t group,
                         enum dyt_status status, const char *text);
/* Ends the receives of a group whose other ranks went to sleep. */
void dyti_fleet_refuse_asleep(struct dyti_fleet *fleet, uint32_t group);
/* Start what may start. */
void dyti_fleet_pump_links(struct dyti_fleet *fleet, int64_t now_ns);

/* fleet_link.c */
/* Is a member of the source on another host than the receiver? */
bool dyti_fleet_is_apart(const struct dyti_fleet *fleet, uint32_t source,
                         uint32_t receiver);
/* The receiver takes `version` from the source. */
void dyti_fleet_begin(struct dyti_fleet *fleet, uint32_t group, uint32_t source,
                      uint64_t version, int64_t now_ns);
void dyti_fleet_take_ready(struct dyti_fleet *fleet,
                           const struct dyti_fleet_event *event,
                           int64_t now_ns);
void dyti_fleet_take_ran(struct dyti_fleet *fleet,
                         const struct dyti_fleet_event *event);
/* A member is gone: out of its links. */
void dyti_fleet_links_lose(struct dyti_fleet *fleet, uint32_t member,
                           enum dyt_status status, const char *text);
void dyti_fleet_abort(struct dyti_fleet *fleet, uint32_t link, uint32_t rank,
                      enum dyt_status status, const char *text);
/* Idle links of a group are closed: its membership changed. */
void dyti_fleet_close_links(struct dyti_fleet *fleet, uint32_t group);

#endif /* DYTI_PHASE_FLEET_INTERNAL_H */
