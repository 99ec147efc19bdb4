/* One switch between processes that nobody of us started: some *sources*, some
 * *receivers* (one replica), each with memory of its own making.
 *
 *   extent   a run of a member's memory: private, or shared by a descriptor
 *   region   the extents of one kind behind each other: what shards' offsets
 *            count in.  Its bytes need not be contiguous in anybody's memory
 *   route    who copies: receivers read the sources' memory (pull), or sources
 *            write the receivers' (push).  Only shared extents can be reached
 *            from another process, so all sources' must be, or all that the
 *            sources would write: with STAGED that is scratch of ours, which
 *            always is
 *
 * All members of a link open it together, and run it together; each run is one
 * transaction (exec/switch.h) among them, without a manager: the last voter
 * commits.  A death is told to the others by dyti_link_abort() from whoever
 * maps the control segment.
 *
 * Threads: one link by one thread; abort from any.
 */
#ifndef DYTI_LIB_LINK_H
#define DYTI_LIB_LINK_H

#include "exec/switch.h"
#include "ops/module.h"
#include "plugin/resolve.h"

struct dyti_extent {
    uint64_t offset; /* in the region of `kind` */
    uint64_t bytes;
    uint64_t address; /* in its owner's process */
    int32_t fd;       /* in its owner's process; -1: private */
    uint32_t kind;
    uint64_t fd_offset;
    uint64_t device, inode; /* what fd must be; 0: private */
};

/* What a member's memory looks like to the others. */
struct dyti_memory_view {
    uint32_t pid;       /* of the owner, in this host's numbering */
    uint64_t pid_start; /* /proc/PID/stat's starttime: a pid may be reused */
    struct dyti_extent *extent; /* [extent_count], by kind, offset; owned */
    uint32_t extent_count;
    struct dyti_view view; /* shards, region_bytes; owned */
    /* What the owner alone needs; NULL in the copies of others.  Owned. */
    uint32_t *shard_row; /* [view.shard_count] row of each */
    uint32_t *row_as;    /* [row_count] the row whose memory it has: itself, or
                            of an alias the one before */
    uint32_t row_count;
};
void dyti_memory_view_fini(struct dyti_memory_view *memory);

/* Extents and shards of this process's rows.  Rows that touch in one allocation
 * or descriptor share an extent; between two extents a region has a gap.  Alias
 * rows and empty ones add nothing.
 * DYT_ERR_INVALID      a row without memory, an alias of nothing, a descriptor
 *                      that is none or too short: names the row
 * DYT_ERR_UNSUPPORTED  an address that is no multiple of the element */
enum dyt_status dyti_memory_view_build(const struct dyti_model *catalogue,
                                       const struct dyt_view *rows,
                                       const struct dyti_row_pieces *pieces,
                                       struct dyti_memory_view *out_memory);
/* The same of rows that lie on devices, all of them, and of which nobody has a
 * descriptor: an extent for each, as allocations may touch.
 * DYT_ERR_UNSUPPORTED  a row of the host: names it */
enum dyt_status dyti_memory_view_build_there(
    const struct dyti_model *catalogue, const struct dyt_view *rows,
    const struct dyti_row_pieces *pieces, struct dyti_memory_view *out_memory);
/* Can other processes map all of it? */
bool dyti_memory_view_is_shared(const struct dyti_memory_view *memory);

/* ---- memory of ours for what cannot be shared ------------------------------
 */

/* A shared copy of a member's memory: same boxes, other dtypes where they are
 * narrower for their readers, dense, in one segment. */
struct dyti_snapshot;

#define DYTI_SNAPSHOT_SKIP 0xffu /* a dtype: leave it out */

/* What its readers want: out_dtype[DYTI_KIND_COUNT * tensor_count], at kind *
 * tensor_count + tensor, is the widest dtype that a receiver has; the master
 * is read as param.  Kinds that nobody reads are left out. */
enum dyt_status dyti_snapshot_dtypes(const struct dyti_model *catalogue,
                                     const struct dyti_memory_view *receiver,
                                     uint32_t receiver_count, uint32_t kinds,
                                     uint8_t *out_dtype);

/* @param dtype      as above; wider than the row's, or not a float: the row's
 *                   own.  NULL: all as they are
 * @param cap_bytes  0: none.  DYT_ERR_NOMEM has both numbers */
enum dyt_status dyti_snapshot_open(const struct dyti_model *catalogue,
                                   const struct dyti_memory_view *memory,
                                   const uint8_t *dtype, uint64_t cap_bytes,
                                   struct dyti_snapshot **out_snapshot);
/* Copy what the rows hold now. */
enum dyt_status dyti_snapshot_take(struct dyti_snapshot *snapshot);
/* What it looks like; the snapshot's. */
const struct dyti_memory_view *dyti_snapshot_view(
    const struct dyti_snapshot *snapshot);
void dyti_snapshot_close(struct dyti_snapshot *snapshot);

/* Was own memory written while others read it?  Content hashes (base/hash.h) of
 * its shards when it was *sealed*, and later.  Memory that is known by its
 * descriptor alone is not looked at. */
struct dyti_seal;

/* @param own   borrowed until close, as the catalogue
 * @param ours  [own->row_count] rows that nobody else writes: not looked at;
 *              NULL: none; borrowed for the call
 * @param full  every element; else of each shard 1 of 128 rows (of its first
 *              dimension of 128 and more; all of it where it has none), others
 *              with each seed: what is written whole is seen */
enum dyt_status dyti_seal_open(const struct dyti_model *catalogue,
                               const struct dyti_memory_view *own,
                               const bool *ours, bool full, uint32_t threads,
                               struct dyti_seal **out_seal);
void dyti_seal_close(struct dyti_seal *seal);
enum dyt_status dyti_seal_take(struct dyti_seal *seal, uint64_t seed);
/* From any thread.  Of these kinds.
 * DYT_ERR_VERIFY  it was written since: names a tensor */
enum dyt_status dyti_seal_check(struct dyti_seal *seal, uint32_t kinds);

/* Segments for a receiver whose rows are re-pointed into ours
 * (dyt_session_map): one, or two with DYT_COMMIT_DOUBLE.  Fills data, stride
 * and fd of the rows, copying what they held.  Rows on devices are left alone
 * (lib/device_sets.h). */
struct dyti_mapped;
enum dyt_status dyti_mapped_open(struct dyt_row *row, uint64_t row_count,
                                 uint32_t set_count,
                                 struct dyti_mapped **out_mapped);
void *dyti_mapped_row(const struct dyti_mapped *mapped, uint64_t row,
                      uint32_t set);
/* Descriptor of a set: its rows lie there at the fd_offset of set 0. */
int dyti_mapped_fd(const struct dyti_mapped *mapped, uint32_t set);
/* Give the pages back / let them be touched again: addresses and descriptors
 * stay.  Rows that no version brings (`moved`, [count], is false of them; the
 * same both times, count 0: none) are as they were, the others zero.  Of a
 * released one nothing may be read or written.  DYT_ERR_NOMEM: the memory is
 * not there. */
enum dyt_status dyti_mapped_release(struct dyti_mapped *mapped,
                                    const bool *moved, uint64_t count);
enum dyt_status dyti_mapped_restore(struct dyti_mapped *mapped,
                                    const bool *moved, uint64_t count);
void dyti_mapped_close(struct dyti_mapped *mapped);

/* ---- link ------------------------------------------------------------------
 */

/* Members on several hosts: what is not on this one is not mapped; all bytes go
 * by messages, packed, through staging of ours. */
struct dyti_link_apart {
    const uint32_t *island; /* [member_count] members with equal numbers have
                               the same control segment; all receivers have */
    const struct dyti_module *module; /* whose group carries them */
    void *shared; /* the group's region: this member's copy, zeroed.  Until
                     dyti_link_open() returns the caller carries what changes in
                     each member's part to the others' copies */
    uint64_t shared_bytes;
    void (*changed)(void *arg); /* this member's part has; from any thread */
    void *changed_arg;
    const char *address; /* of this member's host, for the others */
};

/* Rows of all members lie on devices: bytes may go once, from device to device,
 * where every member can.  They agree on it while the link opens; if one
 * cannot, all go by `memory` of their parameters, which is on the host (a
 * mirror). */
struct dyti_link_direct {
    const char *why; /* this member cannot: why (then the rest but `memory` and
                        `second` may be missing); NULL: it may be able to */
    const struct dyti_module *module; /* with memory, kernels and a mover */
    const char *device; /* UUID: where this member's copies run; NULL: the only
                           one */
    /* As those of the parameters, by dyti_memory_view_build_there(). */
    const struct dyti_memory_view *memory, *second;
};

struct dyti_link_params {
    uint32_t struct_size;
    uint32_t rank, member_count, source_count; /* sources come first */
    const struct dyti_model *catalogue;        /* borrowed until close */
    const struct dyti_memory_view *memory;     /* [member_count], borrowed */
    /* IN_PLACE and STAGED: set 0 alone.  DOUBLE: receivers' second set, NULL
     * otherwise; [member_count], entries of sources zeroed. */
    const struct dyti_memory_view *second;
    /* memfd of dyti_link_control_bytes(), zeroed, one for each link: borrowed
     * for the call */
    int32_t control_fd;
    void *control; /* where that is mapped already, until close: for members
                      that are threads of one process; NULL: the link maps it */
    enum dyt_commit_mode commit;
    enum dyt_verify verify;
    uint32_t kinds;     /* bits that travel */
    uint64_t cap_bytes; /* of scratch on this member; 0: none */
    int64_t timeout_ns; /* of one wait */
    uint32_t live_set;  /* DOUBLE: which of memory (0) and second (1) a receiver
                           serves from now; the next link goes on from there */
    uint32_t threads; /* that copy here; 0: cores over the members that copy */
    const struct dyti_link_apart *apart; /* NULL: all are on this host; borrowed
                                            until close, and what is in it */
    /* All members have one, or none has: NULL.  Borrowed until close, and what
     * is in it; not between hosts. */
    const struct dyti_link_direct *direct;
    /* While it opens, before `memory` is touched: bytes do go by it ("": nobody
     * asked for anything else).  May change the cap.  NULL: nothing; an error
     * is the opening's. */
    enum dyt_status (*by_memory)(void *arg, const char *why,
                                 uint64_t *cap_bytes);
    void *by_memory_arg;
};

struct dyti_link;

uint64_t dyti_link_control_bytes(uint32_t member_count);
/* A new one; closed on exec. */
enum dyt_status dyti_link_control_make(uint32_t member_count, int *out_fd);
/* That segment, for `control`, and back. */
enum dyt_status dyti_link_control_map(int32_t control_fd, uint32_t member_count,
                                      void **out_control);
void dyti_link_control_unmap(void *control, uint32_t member_count);

/**
 * Collective.  Maps what the route needs, plans and resolves.
 * @return DYT_ERR_UNSUPPORTED  neither side can be mapped (the text names one
 *                              tensor of each): a source needs a snapshot; or
 *                              a tensor's dtypes that cannot be converted
 * @return DYT_ERR_IO           a descriptor of another process cannot be opened
 *                              (another container, other user): names pid, fd
 * @return DYT_ERR_LAYOUT, DYT_ERR_NOMEM (cap: both numbers), DYT_ERR_PEER
 */
enum dyt_status dyti_link_open(const struct dyti_link_params *params,
                               struct dyti_link **out_link);
/* Not collective: the others' next run ends with DYT_ERR_PEER. */
void dyti_link_close(struct dyti_link *link);

/* One transaction; as dyti_switch_run().  Members may do it again and again:
 * the second plans nothing. */
enum dyt_status dyti_link_run(struct dyti_link *link, uint64_t epoch,
                              uint64_t version,
                              struct dyti_switch_report *out_report);

/* Asked in the next runs when all members have moved their bytes, before this
 * one's vote: not DYT_OK aborts.  Not where verify is off, as nobody knows then
 * that all have.  NULL: nothing. */
void dyti_link_set_check(struct dyti_link *link,
                         enum dyt_status (*check)(void *arg), void *arg);
/* Kinds that are read, as bits. */
uint32_t dyti_link_source_kinds(const struct dyti_link *link);

/* May this receiver's rows be used?  DYT_ERR_STATE after an update in place
 * that broke off. */
enum dyt_status dyti_link_valid(const struct dyti_link *link);
/* STAGED: once more the local copy of a committed run that failed in it.
 * DYT_ERR_STATE: nothing that was committed lies in the scratch. */
enum dyt_status dyti_link_heal(struct dyti_link *link);
/* Do bytes go once, from device to device?  If not, and it was asked for: why,
 * otherwise "". */
bool dyti_link_is_direct(const struct dyti_link *link);
const char *dyti_link_why_not(const struct dyti_link *link);
/* Direct, by a member whose memory others read or write: is it still what they
 * opened?  DYT_ERR_STATE: names what is not; the link is of no use any more */
enum dyt_status dyti_link_check_lent(const struct dyti_link *link);
/* Do the sources write (push), or do the receivers read? */
bool dyti_link_is_push(const struct dyti_link *link);
/* Bytes that this member has sent to and received from other hosts. */
void dyti_link_traffic(const struct dyti_link *link,
                       struct dyti_group_traffic *out_traffic);
uint64_t dyti_link_scratch_bytes(const struct dyti_link *link);
/* DOUBLE: the set that is live. */
uint32_t dyti_link_live_set(const struct dyti_link *link);
/* Content hash of what a row of this member's view holds now, summed over its
 * elements (base/hash.h); DOUBLE: in the live set. */
enum dyt_status dyti_link_row_hash(const struct dyti_link *link, uint32_t row,
                                   uint64_t *out_hash);
/* The same without a link: of this process's own memory. */
enum dyt_status dyti_memory_row_hash(const struct dyti_model *catalogue,
                                     const struct dyti_memory_view *own,
                                     uint32_t row, uint64_t *out_hash);

#ifdef DYT_TEST_HOOKS
/* Of the next runs: fault and at of struct dyti_switch_order. */
void dyti_link_set_fault(struct dyti_link *link, enum dyti_switch_fault fault,
                         void (*at)(void *arg, enum dyti_switch_point point),
                         void *at_arg);
#endif

/* From any process that has the control segment: member `rank` is lost. */
enum dyt_status dyti_link_abort(int32_t control_fd, uint32_t member_count,
                                uint32_t rank, enum dyt_status status);
/* … or has it mapped; from any thread. */
enum dyt_status dyti_link_abort_at(void *control, uint32_t member_count,
                                   uint32_t rank, enum dyt_status status);

#endif /* DYTI_LIB_LINK_H */
