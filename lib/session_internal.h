/* What the files of a session share.
 *
 *   session.c          join, interrupt, leave: the caller's side
 *   session_params.c   what a member gives when it joins
 *   session_publish.c  what it holds
 *   session_rows.c     map, lend
 *   session_memory.c   hooks, release, restore
 *   session_wait.c     how a caller waits for an answer
 *   session_service.c  the session's thread: what the manager says is done
 *   session_links.c    views and snapshots: the thread's
 *   session_mirror.c   rows on devices: the thread's, and the hands'
 *   session_direct.c   … that others read and write there
 *   session_open.c     a link: made, opened, ended
 *   session_run.c      a run of it
 *   session_jobs.c     the hands in them, and what the manager says of them
 *   session_hosts.c    what links over several hosts need besides
 *   session_offer.c    offers and tickets
 *   session_receive.c  receives, rows, hooks, memory
 *   session_status.c   dyt_job_status
 *
 * One thread, the *service*, talks to the manager; what runs in a link has a
 * thread of its own, a *hand*.  Callers post a call and wait until it is
 * answered. */
#ifndef DYTI_LIB_SESSION_INTERNAL_H
#define DYTI_LIB_SESSION_INTERNAL_H

#include "control/hub.h"
#include "lib/device_sets.h"
#include "lib/handles.h"
#include "lib/link.h"
#include "lib/manager.h"
#include "lib/mirror.h"
#include "lib/parts.h"

#include <dynatrain/session.h>
#include <pthread.h>
#include <stdatomic.h>

#define DYTI_SESSION_TEXT_BYTES 2048u
#define DYTI_SESSION_TOLD       16u

/* What a caller waits for; one of each at a time. */
enum dyti_call_kind {
    DYTI_CALL_PUBLISH,
    DYTI_CALL_OFFER,
    DYTI_CALL_RECEIVE,
    DYTI_CALL_RELEASE, /* or restore */
    DYTI_CALL_HASH,    /* answered by the service itself */
    DYTI_CALL_COUNT
};

struct dyti_call {
    bool running, posted, answered;
    uint64_t order;                  /* among all that was posted */
    struct dyti_msg_request request; /* text NULL */
    uint64_t hash;
    enum dyt_status status;
    uint64_t version;
    char text[DYTI_SESSION_TEXT_BYTES];
};

/* A link of this member, by the manager's number.  What is asked of it (open
 * it, run it) is done by a *hand*, a thread of its own: so a source is read by
 * several replicas at once, and the service hears what the manager says
 * meanwhile.  While the hand works, all but `control` is the hand's. */
struct dyti_session_link {
    bool used;
    struct dyt_session *session;
    struct dyti_link *link;
    struct dyti_memory_view *memory, *second; /* [member_count], owned */
    /* The same where rows lie on devices, for links that go direct; owned. */
    struct dyti_memory_view *there, *there_second;
    struct dyti_link_direct direct;
    uint32_t member_count, rank, source_count;
    struct dyti_snapshot *snapshot; /* as a source, for this link */
    void *control;                  /* mapped; NULL: not yet; under the lock */
    uint32_t control_members;
    /* session_hosts.c: what a link over several hosts needs besides. */
    int control_fd;  /* of a segment made here for others; -1 */
    bool called_off; /* under the lock: the control is not waited for */
    struct dyti_link_apart apart; /* module NULL: all are on one host */
    uint32_t *island;             /* owned, borrowed by `apart` */
    atomic_bool told;             /* this member's part of the region changed */
    /* the hand */
    pthread_t hand;
    bool works;                  /* the service's */
    atomic_bool ended;           /* the hand's last word */
    struct dyti_msg_link open;   /* owned; member_count 0: it is a run */
    struct dyti_msg_order order; /* of a run */
    struct dyti_msg_report report;
    char text[DYTI_SESSION_TEXT_BYTES]; /* of the report */
    char indirect[512];                 /* likewise */
};

/* Hooks that may run at once: of a receive; of a release or restore. */
enum dyti_hooked { DYTI_HOOKED_RECEIVE, DYTI_HOOKED_MEMORY, DYTI_HOOKED_COUNT };

struct dyti_session_hook_state {
    bool wanted, failed; /* a hand asks, the caller pauses */
    bool paused;         /* the server, until it is resumed */
};

struct dyt_session {
    /* Set by join, never changed. */
    struct dyt_session_params params; /* strings are owned */
    char *text[7];                    /* those */
    char host_address[64];
    char no_crossing[512]; /* why weights cannot go to other hosts; "": can */
    int32_t *expert;
    struct dyt_attribute *attribute;
    char **attribute_name;
    int64_t timeout_ns;
    struct dyti_hub_client *client; /* the service's, after join */
    uint64_t host;
    uint32_t pid;
    uint64_t pid_start;
    struct dyti_session_manager *manager; /* hosted here; NULL */
    pthread_t manager_thread, service_thread;
    bool manager_runs, service_runs;
    int wake_fd;    /* eventfd: a call was posted */
    int manager_fd; /* pidfd of the manager, where it is another process of this
                       host; -1 */
    int watch_fd;   /* epoll: both */
    int64_t manager_ended_ns; /* when the service saw that; 0: it has not */

    pthread_mutex_t lock; /* of everything below */
    pthread_cond_t changed;
    struct dyti_call call[DYTI_CALL_COUNT];
    /* Of calls that were given up, and sent: their answers are still to come,
     * one each, and are nobody's. */
    uint32_t owed[DYTI_CALL_COUNT];
    struct {
        uint64_t order;
        struct dyti_msg_request request;
    } told[DYTI_SESSION_TOLD]; /* that nobody awaits; in order */
    uint32_t told_count;
    uint64_t posts; /* calls that were posted, and what was told */
    bool ending;
    uint32_t inside;            /* callers, that leaving waits for */
    bool leaving, leaves_later; /* later: by the call whose hook left */
    bool hooked[DYTI_HOOKED_COUNT];
    pthread_t hook_thread[DYTI_HOOKED_COUNT];
    uint64_t interrupts;  /* asked for: a wait ends when it grows */
    enum dyt_status dead; /* DYT_OK: the manager is there */
    char dead_text[DYTI_SESSION_TEXT_BYTES];

    /* Publish. */
    bool published, publishing;
    char unfit[DYTI_SESSION_TEXT_BYTES]; /* why the rows do not fit */
    const struct dyt_view *view;   /* while a publish is wanted; borrowed */
    const struct dyt_rules *rules; /* likewise */
    struct dyt_row *row;           /* [row_count] our copy: data, fd */
    char *names;                   /* of all rows, owned */
    uint64_t row_count;
    void **staged; /* [row_count] memory lent for packed rows, owned */
    struct dyti_mapped *mapped;
    struct dyti_model *catalogue;
    struct dyti_memory_view memory, second;
    bool *has_pieces;         /* [row_count] */
    struct dyti_row_pad *pad; /* [pad_count] of its rows, owned */
    size_t pad_count;
    /* Rows on devices: `memory` is their mirror's.  Both NULL: none. */
    struct dyti_devices *devices;
    struct dyti_mirror *mirror, *second_mirror; /* DOUBLE: of the other set */
    /* Those rows themselves, if all lie there; else why not: "" where there are
     * none. */
    struct dyti_memory_view there, there_second;
    char indirect[256];
    pthread_mutex_t take_lock; /* of `taken` and the taking */
    struct {
        bool any;
        uint64_t version;
    } taken[2];                    /* what the mirrors hold, by set */
    struct dyti_device_sets *sets; /* MAPPED: what those rows lie in */
    void *event; /* of the offer or receive that runs; NULL: streams' */

    /* Trainer. */
    struct dyt_ticket *ticket;  /* that is not done */
    struct dyt_ticket *tickets; /* all that were not destroyed */
    uint64_t offered;
    bool offered_any;
    bool slept; /* its weights were released: they may be another memory */
    struct dyti_seal *seal; /* of the rows; NULL: nothing was offered */
    uint64_t sealed;        /* version; as the ticket's: it counts */
    bool has_sealed;
    char written[512];           /* what was, while it was offered; "" */
    bool written_due;            /* the manager does not know yet */
    struct dyti_snapshot *whole; /* for offers with `snapshot`, of rows that no
                                    mirror holds */
    bool has_whole;
    uint64_t whole_version;

    /* Receiver. */
    struct dyt_session_hooks hooks;
    struct dyti_session_hook_state hook;
    struct dyt_switch_report report; /* of the last run */
    uint64_t version;                /* that the rows hold, if valid */
    bool valid, broken;
    uint32_t live_set;
    uint32_t released; /* tags */
    bool in_memory;    /* a release or restore runs */
    uint64_t broken_epoch;
    bool writing; /* a hand works in a run of these rows */

    struct dyti_session_link **link; /* [link_count]; NULL; the service's */
    size_t link_count, link_cap;
    struct dyti_link *last; /* the link that ran last; the service's */
    /* A receive was answered (a peer died) while a hand still writes the rows:
     * its caller hears it when they are at rest.  The service's. */
    struct {
        bool due;
        enum dyt_status status;
        uint64_t version;
        char text[DYTI_SESSION_TEXT_BYTES];
    } held;
};

struct dyt_ticket {
    struct dyt_session *session; /* NULL: it has left */
    struct dyt_ticket *next;
    uint64_t version;
    bool done;
    enum dyt_status status;
    char text[DYTI_SESSION_TEXT_BYTES];
};

/* ---- session_calls.c ----------------------------------------------------- */

/**
 * Every public call on a session is between these two.
 * @return DYT_ERR_INVALID  NULL
 * @return DYT_ERR_STATE    it is being left, or is the parent's of this process
 */
enum dyt_status dyti_session_enter(struct dyt_session *s, const char *function);
/* The last thing: it may be gone afterwards. */
void dyti_session_exit(struct dyt_session *s);
/* Under the lock; while a hook of the server runs in this thread. */
void dyti_session_hook_begins(struct dyt_session *s, enum dyti_hooked which);
void dyti_session_hook_ended(struct dyt_session *s, enum dyti_hooked which);
/* Until nobody is inside any more; the service has ended. */
void dyti_session_await_callers(struct dyt_session *s);
/* session.c: what dyt_session_leave() does. */
void dyti_session_end(struct dyt_session *s);

/* ---- session_wait.c ------------------------------------------------------ */

int64_t dyti_session_now(void);
/* Post a call and wait for its answer.  With a deadline (ns from now, < 0: the
 * session's timeout) that passes, or an interrupt, `give_up` (may be NULL) is
 * called under the lock and the answer awaited a little longer. */
enum dyt_status dyti_session_call(
    struct dyt_session *s, enum dyti_call_kind kind,
    const struct dyti_msg_request *request, int64_t deadline_ns,
    void (*give_up)(struct dyt_session *s, enum dyt_status why),
    struct dyti_call *out_call);
/* The end of a wait: deadline_ns from now, < 0: the session's timeout. */
int64_t dyti_session_until(const struct dyt_session *s, int64_t deadline_ns);
/**
 * Under the lock: the one loop in which callers and hands wait, until `is_over`
 * (asked under the lock, each time something changed).
 * @return DYT_ERR_TIMEOUT    the time `until` came; no text
 * @return DYT_ERR_CANCELLED  dyt_session_interrupt() meanwhile; no text
 */
enum dyt_status dyti_session_wait(
    struct dyt_session *s, int64_t until, bool ends_at_interrupt,
    bool (*is_over)(struct dyt_session *s, void *arg), void *arg);
void dyti_session_wake(struct dyt_session *s);
/* Is the next answer of this kind one of a call that was given up? */
bool dyti_session_is_late(struct dyt_session *s, enum dyti_call_kind kind);
/* Answer a call; nothing if it does not run, or the answer is a late one. */
void dyti_session_answer(struct dyt_session *s, enum dyti_call_kind kind,
                         enum dyt_status status, uint64_t version,
                         const char *text);
/* Under the lock: a request that nobody waits for, sent by the service. */
void dyti_session_tell(struct dyt_session *s,
                       const struct dyti_msg_request *request);

/* ---- session_params.c, session_publish.c --------------------------------- */

enum dyt_status dyti_session_copy_params(struct dyt_session *s,
                                         const struct dyt_session_params *from);
void dyti_session_free_params(struct dyt_session *s);
void dyti_session_free_rows(struct dyt_session *s);
/* Are the rows that hold something still memory that may be read, and written
 * where they are?  They were when they were published; whoever touches them
 * asks again.
 * DYT_ERR_INVALID  by name */
enum dyt_status dyti_session_check_alive(const struct dyt_session *s,
                                         bool writes);

/* ---- session_rows.c, session_offer.c, session_receive.c: under the lock
 * -------- */

enum dyt_status dyti_session_check_row(const struct dyt_session *s,
                                       uint64_t row);
/* May the rows be read by others now? */
bool dyti_session_is_pinned(const struct dyt_session *s);
/* A server that is paused goes on, unless its kv_cache is still released.  The
 * lock is given back while the hook runs. */
enum dyt_status dyti_session_resume(struct dyt_session *s);

/* Were rows of these kinds written while they are offered?  Not under the lock.
 * DYT_ERR_VERIFY  the ticket will end with the reason */
enum dyt_status dyti_session_check_seal(struct dyt_session *s, uint32_t kinds);
/* By the service, when who read them has heard so: the offer is taken back. */
void dyti_session_withdraw_written(struct dyt_session *s);

/* ---- session_service.c --------------------------------------------------- */

enum dyt_status dyti_session_service_start(struct dyt_session *s);
void dyti_session_service_stop(struct dyt_session *s);
enum dyt_status dyti_session_send(struct dyt_session *s, enum dyt_status st,
                                  struct dyti_buffer *buffer);

/* ---- session_links.c: the service's -------------------------------------- */

enum dyt_status dyti_session_on_catalogue(struct dyt_session *s,
                                          const struct dyti_hub_frame *f);
enum dyt_status dyti_session_on_readers(struct dyt_session *s,
                                        const struct dyti_hub_frame *f);
/* An offer was accepted: snapshots are taken, and the manager told. */
enum dyt_status dyti_session_take_snapshots(struct dyt_session *s,
                                            uint64_t version, bool whole);
bool dyti_session_has_snapshots(const struct dyt_session *s);

/* ---- session_hosts.c ----------------------------------------------------- */

/* The control segment of a link that opens, and what it needs between hosts; by
 * the service, before the hand. */
enum dyt_status dyti_session_hosts_begin(struct dyt_session *s,
                                         struct dyti_session_link *k,
                                         const struct dyti_msg_link *m);
/* By the hand: until the control segment is there. */
enum dyt_status dyti_session_hosts_await(struct dyt_session *s,
                                         struct dyti_session_link *k);
enum dyt_status dyti_session_on_meet(struct dyt_session *s,
                                     const struct dyti_hub_frame *f);
/* Tell the others what this member has left for them. */
enum dyt_status dyti_session_hosts_tell(struct dyt_session *s,
                                        struct dyti_session_link *k);
/* What the hand waits for will not come: `rank` failed. */
void dyti_session_call_off(struct dyt_session *s, struct dyti_session_link *k,
                           uint32_t rank, enum dyt_status status);
void dyti_session_hosts_end(struct dyti_session_link *k);

#ifdef DYT_TEST_HOOKS
/* session_fault.c: the link's runs look for faults that a test ordered. */
void dyti_session_watch_faults(struct dyti_link *link);
#endif

/* ---- session_open.c, session_run.c --------------------------------------- */

enum dyt_status dyti_session_link_at(struct dyt_session *s, uint32_t number,
                                     struct dyti_session_link **out);
/* What only the owner knows of its rows, for hashes. */
void dyti_session_lend_rows(const struct dyti_memory_view *own,
                            struct dyti_memory_view *copy);
/* The hand comes back: what it does is over, or was called off. */
void dyti_session_join_hand(struct dyti_session_link *k);
/* Its hand is called back; it may be opened again. */
void dyti_session_link_fini(struct dyt_session *s, struct dyti_session_link *k);
/* Hands are called back, and come. */
void dyti_session_links_close(struct dyt_session *s);
/* By the hand. */
enum dyt_status dyti_session_link_open(struct dyt_session *s,
                                       struct dyti_session_link *k);
enum dyt_status dyti_session_link_run(struct dyt_session *s,
                                      struct dyti_session_link *k);

/* ---- session_pad.c --------------------------------------------------------
 */

/* Padding of the rows in this set of memory (0 where there is one) is zero.
 * DYT_ERR_IO  it is of a file that was truncated */
enum dyt_status dyti_session_clear_padding(struct dyt_session *s, uint32_t set);

/* ---- session_jobs.c: the service's --------------------------------------- */

enum dyt_status dyti_session_on_link(struct dyt_session *s,
                                     const struct dyti_hub_frame *f);
enum dyt_status dyti_session_on_order(struct dyt_session *s,
                                      const struct dyti_hub_frame *f);
/* Report what hands have done. */
enum dyt_status dyti_session_collect(struct dyt_session *s);
/* Does a hand use this member's rows as a receiver's? */
bool dyti_session_receives(const struct dyt_session *s);

#endif /* DYTI_LIB_SESSION_INTERNAL_H */
