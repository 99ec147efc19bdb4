/* Stages 1 to 5 for somebody else's processes: a trainer offers its weights, a
 * server's workers receive them into their own tensors, as a transaction.
 * in: view.h, rules.h   out: reports (switch.h)
 *
 * Terms used in every comment of this file
 *   member    a process that has joined a job: a trainer's rank, or one worker
 *             of a server
 *   replica   the members that hold one copy of the served model together; it
 *             commits as one
 *   version   number of committed optimizer updates, rising
 *   offer     a trainer's announcement of a version; its memory is *pinned*
 *             until the ticket is done
 *
 * Order of calls
 *   trainer    join, publish, { offer, … ticket wait … }, leave
 *   receiver   join, publish, { receive }, leave
 *
 * Memory of a device (rows whose `device` is not the host): where all members
 * of an update have their rows on devices of one host that reach each other,
 * bytes go once, from device to device (`dynatrain status`: "direct").
 * Otherwise, and for offers with `snapshot`, they are copied to a *mirror* and
 * back: memory of ours on the host, dense, which others read and write, and
 * which is used and counted under cap_bytes from the first such update on.
 *
 * Threads: one session by any thread, one blocking call at a time each for
 * offers and receives; dyt_session_interrupt() from anywhere but a signal
 * handler.  The library starts one thread per session (two where it hosts the
 * manager), blocks all signals in them (but for faults of their own) and
 * installs no handler; nothing is alive after dyt_session_leave().
 */
#ifndef DYNATRAIN_SESSION_H
#define DYNATRAIN_SESSION_H

#include <dynatrain/rules.h>
#include <dynatrain/switch.h>

DYT_BEGIN_DECLS

typedef struct dyt_session dyt_session; /* opaque */
typedef struct dyt_ticket dyt_ticket;   /* opaque */

enum dyt_role { DYT_ROLE_TRAINER = 0, DYT_ROLE_RECEIVER = 1 };

/* Memory of a receiver. */
enum dyt_memory_mode {
    DYT_MEMORY_OWN = 0,   /* its rows stay where they are */
    DYT_MEMORY_MAPPED = 1 /* its rows are re-pointed into segments of ours:
                             dyt_session_map() */
};

/** A number that rules need: {"head_dim", 64}. */
struct dyt_attribute {
    const char *name;
    int64_t value;
};

/** Zeroed fields mean the default that their comment names. */
struct dyt_session_params {
    uint32_t struct_size;
    uint32_t role;       /* enum dyt_role */
    const char *address; /* "unix:/run/user/0/job.sock" or "tcp:host:port" */
    const char *job;     /* [A-Za-z0-9_.-]{1,63}: the same for all members */
    const char *pool;    /* receivers: "rollout" (default), "draft", … */
    /* tcp only: files that `dynatrain keys` made. */
    const char *key;         /* this side's secret key */
    const char *manager_key; /* the manager's public key */
    uint32_t host_manager;   /* trainer, rank 0: 0 = host it if nobody listens
                                there (default), 1 = always, 2 = never */
    /* Place in the trainer, or in the replica. */
    uint32_t rank, size;       /* of the trainer's ranks / of the replica's */
    uint32_t replica;          /* receivers: number of its replica */
    uint32_t tp_rank, tp_size; /* sizes 0 mean 1 */
    uint32_t pp_rank, pp_size;
    uint32_t dp_rank, dp_size;
    uint32_t ep_rank, ep_size;
    const int32_t *expert; /* experts of this member, in order of their places;
                              NULL: contiguous by ep_rank */
    uint32_t expert_count;
    uint32_t attribute_count;
    const struct dyt_attribute *attribute; /* [attribute_count] */
    /* How a version arrives: receivers. */
    uint32_t commit; /* enum dyt_commit_mode */
    uint32_t memory; /* enum dyt_memory_mode */
    uint32_t verify; /* enum dyt_verify; of a trainer's rank: how much of its
                        rows is looked at for writes while they are offered */
    uint32_t policy; /* enum dyt_policy; the trainer's rank 0 sets it */
    uint32_t quorum; /* 0: 1; more than there are: waits for more */
    uint32_t max_version_skew; /* a replica that would be more versions than
                                  this above another one waits; those that have
                                  the oldest never do.  0: no limit */
    uint64_t cap_bytes;        /* of memory of ours on this member; 0: no cap */
    int64_t timeout_ns;        /* of every wait that has no deadline of its own;
                                  0: 60 s */
    /* Several hosts (docs/session.md). */
    const char *host; /* members with equal names map each other's memory,
                         others send; NULL: found out */
    const char *host_address; /* numeric, of this host, where the others send
                                 weights; NULL: where the manager is reached
                                 from */
};

/**
 * Join a job.  Blocks until the manager has answered.
 * @return DYT_ERR_CONFIG   a parameter is wrong: names it and the remedy
 * @return DYT_ERR_BUSY     the place is taken (a second trainer, the same
 *                          rank twice): names who has it
 * @return DYT_ERR_TIMEOUT  nobody answers at the address
 * @return DYT_ERR_ABI      the manager speaks another protocol: both numbers
 * @return DYT_ERR_IO, DYT_ERR_NOMEM
 */
DYT_API enum dyt_status dyt_session_join(
    const struct dyt_session_params *params, dyt_session **out_session);

/**
 * Say what this member holds, once; again where it failed.  Blocks until every
 * member of the trainer (and of this replica, for receivers) has done so and
 * everything fits. Nothing moves.  Pointers are checked, now and by whatever
 * uses them later: memory that is not mapped, or not writable for a receiver,
 * is an error; of a device's row also memory of the host or of another device,
 * and what was freed.
 *
 * Rows of a device open libdynatrain-cuda.so, and nothing else does.
 *
 * @param rules  for rows without pieces; NULL: tensors are named as in the VPS
 *               and not cut
 * @return DYT_ERR_LAYOUT       lists missing, unexpected, doubly covered and
 *                              mismatched tensors all at once, with near misses
 * @return DYT_ERR_UNSUPPORTED  a row that cannot be handled (quantised, LoRA),
 *                              by name; rows of a device, and the module, the
 *                              driver or the device is missing: which, and what
 *                              to do
 * @return DYT_ERR_NOMEM        memory of the process
 * @return DYT_ERR_DEVICE       the device failed
 * @return DYT_ERR_STATE        published already
 * @return DYT_ERR_PEER, DYT_ERR_TIMEOUT
 */
DYT_API enum dyt_status dyt_session_publish(dyt_session *session,
                                            const struct dyt_view *view,
                                            const struct dyt_rules *rules);

/**
 * Receivers with memory MAPPED, before publish: memory of ours for these rows
 * (data, strides and fd of each are filled in, 4096-aligned, row-major; what
 * `data` pointed to is copied over).  Rows with DYT_ROW_ALIAS get the memory of
 * the row they name by equal data pointers.  With DYT_COMMIT_DOUBLE there are
 * two sets; see dyt_session_row_data().
 * A row of a device gets memory of that device (and no fd); where versions come
 * by mirrors, each set has one.
 * @return DYT_ERR_INVALID, DYT_ERR_NOMEM, DYT_ERR_DEVICE  as for publish: the
 *                              rows are as they were
 * @return DYT_ERR_UNSUPPORTED  the module, the driver or a device is missing
 */
DYT_API enum dyt_status dyt_session_map(dyt_session *session,
                                        struct dyt_row *row,
                                        uint64_t row_count);

/** MAPPED and DOUBLE: address of a row in the set that is live now. */
DYT_API enum dyt_status dyt_session_row_data(dyt_session *session, uint64_t row,
                                             void **out_data);

/** Memory that was lent for a row with DYT_ROW_STAGED: what the last receive
 *  brought, row-major.  Valid until the next receive. */
DYT_API enum dyt_status dyt_session_staged(dyt_session *session, uint64_t row,
                                           void **out_data);

/* ---- trainer ------------------------------------------------------------- */

struct dyt_offer_params {
    uint32_t struct_size;
    uint32_t snapshot; /* 1: copy it (in the receivers' dtype) and return when
                          the source may be written again */
    uint64_t version;  /* above every earlier one */
    void *event; /* CUDA: cudaEvent_t behind the work that made the version;
                    NULL: all that is in the rows' streams by now.  Without
                    rows of a device: NULL */
};

/**
 * Offer what the rows hold now.  All ranks of the trainer call it with the same
 * version; returns when all have.  Until the ticket is done the rows may not be
 * written.
 *
 * Who declares a write (dyt_session_will_write(), or the next offer) hears
 * DYT_ERR_STATE.  A write that is not declared is found by content hashes of
 * the rows, at the offer and when the receivers of a run have read: no receiver
 * commits, and they and the ticket end with DYT_ERR_VERIFY, which names a
 * tensor.  With verify FULL that is every change that is there at the end of
 * the reading, at the cost of reading the rows once for the offer and once for
 * each run; with SAMPLE 1 of 128 rows of each shard, so that what is written as
 * a whole is found; with OFF, on this rank or at the receivers, nothing.  Not
 * found: bits that were changed and changed back meanwhile, unless the
 * receivers verify FULL; rows that are known by their descriptor alone.  Rows
 * that were copied (`snapshot`, or private ones that receivers could not read)
 * come as they were when the offer was made.
 *
 * Rows of a device are pinned likewise: they are read by the device of each
 * receiver, or copied to their mirror when the first one wants that.  With
 * `snapshot` they have been copied to it when this returns, and may be written.
 * @return DYT_ERR_STATE    an earlier offer is not done; the version is not
 *                          above the last
 * @return DYT_ERR_INVALID  the ranks name different versions
 * @return DYT_ERR_TIMEOUT  not all ranks have offered it within the timeout
 * @return DYT_ERR_NOMEM    a snapshot, or the mirror that it is, does not fit
 *                          under cap_bytes: both numbers
 * @return DYT_ERR_DEVICE   the device failed: the offer is taken back on all
 *                          ranks
 * @return DYT_ERR_UNSUPPORTED  an event, and no row lies on a device
 */
DYT_API enum dyt_status dyt_session_offer(dyt_session *session,
                                          const struct dyt_offer_params *params,
                                          dyt_ticket **out_ticket);

/** Wait until the policy is met and nobody reads the rows any more.
 *
 *  A replica that dies, or leaves, is not waited for any more.  An offer that
 *  none has taken, and of whose replicas none is left, is kept for one that
 *  comes (a server that is started again) for twice the longest timeout of the
 *  trainer's ranks, and then taken back.  One to which none has come yet goes
 *  on.
 *  @param deadline_ns  from now; < 0: the session's timeout
 *  @return DYT_PENDING  the deadline passed; the ticket goes on
 *  @return DYT_ERR_VERIFY  the rows were written while they were offered
 *  @return DYT_ERR_PEER  a rank of the trainer, or the last replica, is gone:
 *                        names it
 *  @return DYT_ERR_CANCELLED  dyt_session_interrupt(), and the ticket goes on;
 *                        or the offer was taken back */
DYT_API enum dyt_status dyt_ticket_wait(dyt_ticket *ticket,
                                        int64_t deadline_ns);
/** DYT_OK: the rows may be written. DYT_PENDING: not yet. */
DYT_API enum dyt_status dyt_ticket_done(dyt_ticket *ticket);
/** Take the offer back: replicas that have it keep it, transfers that run are
 *  aborted.  Blocks until nobody reads the rows. */
DYT_API enum dyt_status dyt_ticket_cancel(dyt_ticket *ticket);
/** Cancels it if it is not done.  NULL is allowed. */
DYT_API void dyt_ticket_destroy(dyt_ticket *ticket);

/** Declare that the rows are about to be written.
 *  @return DYT_ERR_STATE  an offer pins them; the text names its version */
DYT_API enum dyt_status dyt_session_will_write(dyt_session *session);

/* ---- receiver ------------------------------------------------------------ */

/**
 * Take a version of at least `version` into this member's rows.  All members of
 * the replica call it; the status is the same on all of them.  Nobody may
 * generate meanwhile.
 *
 * @param version      0: the newest that is offered
 * @param deadline_ns  from now; < 0: the session's timeout
 * @param out_report   may be NULL; filled on every return
 * @return DYT_OK             committed; the rows hold out_report->version
 * @return DYT_ERR_TIMEOUT    nothing was offered, or it took too long
 * @return DYT_ERR_CANCELLED  interrupted, or the offer was taken back
 * @return DYT_ERR_PEER, DYT_ERR_VERIFY  the old is whole (STAGED, DOUBLE); with
 *                            IN_PLACE dyt_session_valid() tells
 * @return DYT_ERR_INVALID    a rank's memory is not what it was: names the row
 * @return DYT_ERR_STATE      released, or the member did not publish; or
 *                            another rank of the replica has released since
 *                            the last version, and this one has not
 */
DYT_API enum dyt_status dyt_session_receive(
    dyt_session *session, uint64_t version, int64_t deadline_ns,
    struct dyt_switch_report *out_report);

struct dyt_receive_params {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t version;    /* as dyt_session_receive() */
    int64_t deadline_ns; /* likewise */
    void *event;         /* CUDA: cudaEvent_t behind the work that reads the old
                            weights; NULL: all that is in the rows' streams when they
                            are written.  Without rows of a device: NULL */
};

/**
 * The same for rows of a device whose last use has an event.
 *
 * From device to device they are written as on a host, after that event.  By a
 * mirror they are written when the version is committed, whatever the mode:
 * until then the old is whole, IN_PLACE as well, but valid() says what the mode
 * promises.  Where that last copy fails the member's rows are INVALID, as after
 * a death in it, and all members of the replica hear why.
 * @return DYT_ERR_DEVICE       the device failed
 * @return DYT_ERR_INVALID      memory of a row is not there any more; nothing
 *                              was committed
 * @return DYT_ERR_UNSUPPORTED  an event, and no row lies on a device
 */
DYT_API enum dyt_status dyt_session_receive_with(
    dyt_session *session, const struct dyt_receive_params *params,
    struct dyt_switch_report *out_report);

/** May the rows be used?  DYT_ERR_STATE: nothing was committed yet, or an
 *  update broke off in place; the text says since when, and the remedy. */
DYT_API enum dyt_status dyt_session_valid(dyt_session *session,
                                          uint64_t *out_version);

/**
 * Rows that the last commit wrote, as indices; at most `capacity`, *out_count
 * has all.  They are the rows that hold elements of the job's tensors, also
 * where a version brought the very bytes that were there: which contents differ
 * is told by dyt_session_row_hash() before and after, at the cost of reading
 * the row.  None before the first commit, or while the rows are not valid.
 */
DYT_API enum dyt_status dyt_session_changed(dyt_session *session,
                                            uint64_t *out_row, size_t capacity,
                                            size_t *out_count);

/** Content hash of what a row holds now (docs/plugin.md).  It waits for an
 *  update that runs: never call it from what a pause hook waits for. */
DYT_API enum dyt_status dyt_session_row_hash(dyt_session *session, uint64_t row,
                                             uint64_t *out_hash);

/* Memory that may be given back while it is not needed: bits.  Order of coming
 * back: weights, receive, commit, kv_cache, resume; another one is refused. */
#define DYT_TAG_WEIGHTS   1u
#define DYT_TAG_KV_CACHE  2u
#define DYT_TAG_OPTIMIZER 4u
#define DYT_TAG_GRAD      8u

/** Hooks of the server: called in the thread that calls receive(). */
struct dyt_session_hooks {
    uint32_t struct_size;
    uint32_t reserved;
    void *arg;
    enum dyt_status (*pause)(void *arg);  /* stop using the rows */
    enum dyt_status (*resume)(void *arg); /* after a pause: the version is
                                             committed, or not; after kv_cache
                                             is restored */
    enum dyt_status (*release)(void *arg, uint32_t tags);
    enum dyt_status (*restore)(void *arg, uint32_t tags);
};
DYT_API enum dyt_status dyt_session_set_hooks(
    dyt_session *session, const struct dyt_session_hooks *hooks);

/** Give physical memory back, or take it again; addresses stay (MAPPED: the
 *  library does it for weights; everything else through the hooks). */
DYT_API enum dyt_status dyt_session_release(dyt_session *session,
                                            uint32_t tags);
DYT_API enum dyt_status dyt_session_restore(dyt_session *session,
                                            uint32_t tags);

/* ---- both ---------------------------------------------------------------- */

/** End the blocking calls of this session with DYT_ERR_CANCELLED. */
DYT_API void dyt_session_interrupt(dyt_session *session);

/** Leave the job; a running transfer is aborted.  NULL is allowed.  When it
 *  returns the manager has taken it, and the place is free for whoever joins
 *  (one that does not answer is not waited for longer than 2 s).  Calls of
 * other threads end with DYT_ERR_STATE and are waited for; in a hook the
 *  session is left when the call that runs the hook returns.  In a child that
 *  was forked the session is its parent's: nothing is done, and any other call
 *  answers DYT_ERR_STATE. */
DYT_API void dyt_session_leave(dyt_session *session);

/** Who is in the job and what they hold, as JSON (docs/plugin.md): what
 *  `dynatrain status` prints.  dyt_text_free() it.
 *  @param key, manager_key  tcp only, else NULL */
DYT_API enum dyt_status dyt_job_status(const char *address, const char *key,
                                       const char *manager_key,
                                       int64_t timeout_ns, char **out_json);

DYT_END_DECLS

#endif /* DYNATRAIN_SESSION_H */
