/* What the files of a link share: how this process reaches other members'
 * memory, dense copies of it, and the link itself. */
#ifndef DYTI_LIB_LINK_INTERNAL_H
#define DYTI_LIB_LINK_INTERNAL_H

#include "lib/guard.h"
#include "lib/link.h"

#include "base/process.h"
#include "ops/memory.h"

#define DYTI_LINK_KINDS_ALL ((1u << DYTI_KIND_COUNT) - 1u)

/* ---- link_process.c: other processes -------------------------------------
 */

/* What a descriptor of a process must be. */
struct dyti_process_fd {
    uint32_t pid;
    uint64_t pid_start;
    int32_t fd;
    uint64_t device, inode; /* both 0: not known */
};

/* Bytes [lo, hi) of what a descriptor of a process shows, mapped here.  Huge
 * pages stay huge.  *out_at is byte lo; unmap with munmap(*out_base,
 * *out_bytes).  What may be truncated is added to the guard, as of `memory`
 * (NULL: nobody's rows).  DYT_ERR_IO, DYT_ERR_PEER: names pid and descriptor.
 */
enum dyt_status dyti_process_map(const struct dyti_process_fd *of, uint64_t lo,
                                 uint64_t hi, bool writes,
                                 struct dyti_guard *guard,
                                 const struct dyti_memory_view *memory,
                                 void **out_base, uint64_t *out_bytes,
                                 unsigned char **out_at);

/* ---- link_reach.c: a member's memory from here ---------------------------
 */

struct dyti_reach_mapping {
    void *base;
    uint64_t bytes;
};

struct dyti_reach {
    const struct dyti_memory_view *memory; /* borrowed; NULL: not reached */
    unsigned char **here; /* [extent_count] first byte, NULL: not mapped; owned
                           */
    uint32_t first[DYTI_KIND_COUNT + 1]; /* extents of each kind */
    struct dyti_reach_mapping *mapping;  /* owned */
    size_t mapping_count, mapping_cap;
    /* Of devices: [memory->extent_count]; owned. */
    struct dyti_memory_borrowed *borrowed;
    const struct dyti_memory_ops *lender;
};

/* Could `by` reach it? */
bool dyti_reach_can(const struct dyti_memory_view *memory,
                    const struct dyti_memory_view *by, uint32_t kinds);
/* What may be truncated is added to the guard. */
enum dyt_status dyti_reach_init(struct dyti_reach *reach,
                                const struct dyti_memory_view *memory,
                                uint32_t kinds, bool writes,
                                struct dyti_guard *guard);
/* Of devices, by what its owner has lent: for the device in use.
 * @param loan  [memory->extent_count], those of other kinds are not looked at
 */
enum dyt_status dyti_reach_borrow(struct dyti_reach *reach,
                                  const struct dyti_memory_view *memory,
                                  uint32_t kinds,
                                  const struct dyti_memory_ops *lender,
                                  const struct dyti_memory_loan *loan);
void dyti_reach_fini(struct dyti_reach *reach);
/* Where byte `offset` of a region is; NULL: not reached.  O(log extents). */
unsigned char *dyti_reach_address(const struct dyti_reach *reach, uint32_t kind,
                                  uint64_t offset);

/* ---- link_dense.c: the same boxes, dense, in one segment -----------------
 */

struct dyti_dense {
    struct dyti_view view;               /* owned */
    uint32_t *from;                      /* [view.shard_count] shard of the view
                                            that it is of; owned */
    uint64_t region_at[DYTI_KIND_COUNT]; /* where regions lie in the segment */
    uint64_t bytes;                      /* of the segment */
};

/* dtype: as dyti_snapshot_open()'s; kinds: bits. */
enum dyt_status dyti_dense_init(struct dyti_dense *dense,
                                const struct dyti_view *view, uint32_t kinds,
                                const uint8_t *dtype, uint32_t tensor_count);
void dyti_dense_fini(struct dyti_dense *dense);
/* One copy for each shard: into the segment at `base`, or out of it. */
enum dyt_status dyti_dense_copies(const struct dyti_dense *dense,
                                  const struct dyti_reach *reach,
                                  unsigned char *base, bool in,
                                  struct dyti_copy **out_copy);

/* A segment of ours, closed on exec. */
enum dyt_status dyti_segment_open(const char *name, uint64_t bytes,
                                  struct dyti_segment_mem *out_segment);
/* The same of pages that come when they are touched: until then it takes
 * addresses and a descriptor. */
enum dyt_status dyti_segment_reserve(const char *name, uint64_t bytes,
                                     struct dyti_segment_mem *out_segment);
/* Before it is touched: is there as much?  DYT_ERR_NOMEM: both numbers */
enum dyt_status dyti_segment_check_room(const struct dyti_segment_mem *segment);
/* Close the descriptor alone / all. */
void dyti_segment_seal(struct dyti_segment_mem *segment);
void dyti_segment_close(struct dyti_segment_mem *segment);

/* Kernels that copy and hash, with `threads` of their own; memory in the ranges
 * of `guard` (borrowed until close; NULL: none) may go away meanwhile. */
struct dyti_hands {
    struct dyti_kernels kernels;
    struct dyti_pool *pool;
};
enum dyt_status dyti_hands_open(struct dyti_hands *hands, uint32_t threads,
                                const struct dyti_guard *guard);
void dyti_hands_close(struct dyti_hands *hands);
uint32_t dyti_hands_cores(void);

/* ---- the link --------------------------------------------------------------
 */

struct dyti_link {
    struct dyti_link_params params;
    uint32_t source_kinds, target_kinds; /* that are read, that are filled */
    bool is_push;
    bool agreed; /* all members know how open ended */
    /* control */
    void *control; /* mapped by the link; NULL: by its caller */
    struct dyti_control_page *page;
    struct dyti_group all;
    /* memory */
    struct dyti_guard guard;                /* of it, what may be truncated */
    struct dyti_reach *source;              /* [member_count] */
    struct dyti_reach *target;              /* [2 * member_count]: both sets */
    struct dyti_dense *scratch;             /* [member_count], STAGED */
    struct dyti_segment_mem own;            /* own scratch */
    unsigned char **scratch_at;             /* [member_count] segments, NULL */
    struct dyti_reach_mapping *scratch_map; /* [member_count] of others */
    struct dyti_copy *commit;               /* own scratch into place */
    /* plan */
    struct dyti_layout *from, *to;
    struct dyti_arena_map *map; /* [member_count] */
    struct dyti_switch_cache *cache;
    struct dyti_hands hands;
    const struct dyti_mover_ops *mover_ops;
    void *mover, *message;
    uint32_t *domain;       /* [member_count], apart: each its own */
    uint32_t *host;         /* [member_count], apart: numbered from 0 */
    uint64_t staging_bytes; /* apart: most for messages, 0: as is useful */
    struct dyti_switch *self;
    /* direct: from device to device */
    bool is_direct;
    char why[512];                 /* asked for, and not so */
    struct dyti_memory_loan *lent; /* [lent_count] own extents that travel */
    uint32_t lent_count;
    struct dyti_memory_borrowed *scratch_lent; /* [member_count], push */
    enum dyt_status (*check)(void *arg);
    void *check_arg;
#ifdef DYT_TEST_HOOKS
    enum dyti_switch_fault fault;
    void (*at)(void *arg, enum dyti_switch_point point);
    void *at_arg;
#endif
};

static inline bool dyti_link_is_source(const struct dyti_link *link,
                                       uint32_t rank)
{
    return rank < link->params.source_count;
}

static inline const struct dyti_memory_view *dyti_link_memory(
    const struct dyti_link *link, uint32_t rank)
{
    return &link->params.memory[rank];
}

/* What each member says when all meet while opening: as words. */
enum {
    DYTI_SAY_STATUS,
    DYTI_SAY_FINGERPRINT,
    DYTI_SAY_LIVE,
    DYTI_SAY_FD,
    DYTI_SAY_DEVICE,
    DYTI_SAY_INODE,
    DYTI_SAY_ROOM, /* for staging, under the cap */
    DYTI_SAY_TEXT, /* of a failure, to the end */
    DYTI_SAY_WORDS = DYTI_SAY_TEXT + 32
};

/* ---- link_control.c --------------------------------------------------------
 */

/* The control segment, mapped if it is not, and the group in or beside it. */
enum dyt_status dyti_link_open_control(struct dyti_link *link);

/* ---- link_route.c ----------------------------------------------------------
 */

/* All sources' memory by all receivers, else the other way round. */
enum dyt_status dyti_link_choose_route(struct dyti_link *link);
/* Own memory, and what the route reads or writes of others. */
enum dyt_status dyti_link_reach_all(struct dyti_link *link);
enum dyt_status dyti_link_open_scratch(struct dyti_link *link);
/* Push: the receivers' scratch.
 * @param said  [member_count * DYTI_SAY_WORDS] */
enum dyt_status dyti_link_map_scratch(struct dyti_link *link,
                                      const uint64_t *said);

/* ---- link_direct.c, link_loans.c -------------------------------------------
 */

/* Collective, before anything else: can bytes go once?  Then kinds, layouts,
 * scratch, tools and all that the route reaches are there, and `is_direct` is
 * set; otherwise there is nothing of it, and `why` is.  An error: members did
 * not meet. */
enum dyt_status dyti_link_try_direct(struct dyti_link *link);
/* Loans of all members, one after the other. */
struct dyti_loans {
    struct dyti_memory_loan *loan;   /* [first[member_count]]; owned */
    struct dyti_memory_loan scratch; /* own, that others write */
    size_t *first;                   /* [member_count + 1]; owned */
    uint64_t *bytes;                 /* [member_count]; owned */
};
/* Of own extents that may travel; *out_kept: why other processes cannot have
 * one of them, or as it was. */
enum dyt_status dyti_loans_make(struct dyti_link *link, const char **out_kept);
enum dyt_status dyti_loans_borrow_own(struct dyti_link *link);
/* Collective.  *out_met: did they meet?  Else what this member has not lent. */
enum dyt_status dyti_loans_hand_round(struct dyti_link *link,
                                      struct dyti_loans *all,
                                      enum dyt_status *out_met);
/* What the route reads or writes of others; pieces are still to come. */
enum dyt_status dyti_loans_borrow(struct dyti_link *link,
                                  const struct dyti_loans *all);
/* Collective: the pieces of what was borrowed (lib/link_lend.h).
 * @param wants  false: this member has not borrowed it, and only lends */
enum dyt_status dyti_loans_fetch(struct dyti_link *link,
                                 const struct dyti_loans *all, bool wants,
                                 enum dyt_status *out_met);
void dyti_loans_fini(struct dyti_loans *all);
/* What open made of memory and tools, but for the plan. */
void dyti_link_release(struct dyti_link *link);
/* Makes the link's device the thread's. */
enum dyt_status dyti_link_use(const struct dyti_link *link);

/* ---- link_seal.c -----------------------------------------------------------
 */

/* A shard of own memory, as kernels hash it. */
void dyti_hash_box_of(const struct dyti_model *catalogue,
                      const struct dyti_shard *shard, const unsigned char *data,
                      struct dyti_hash_box *out_box);
/* 1 of 128 of its rows or elements, by these bits; a small one whole. */
struct dyti_hash_box dyti_hash_box_sample(const struct dyti_hash_box *box,
                                          uint64_t bits);

/* ---- link_check.c ----------------------------------------------------------
 */

/* Shards lie in extents; two sets are alike. */
enum dyt_status dyti_link_check_views(const struct dyti_link *link);
enum dyt_status dyti_link_check_dtypes(const struct dyti_link *link);

/* ---- link_plan.c -----------------------------------------------------------
 */

/* Kinds, dtypes, scratch, layouts: what all members find alike, without
 * touching anybody's memory. */
enum dyt_status dyti_link_lay_out(struct dyti_link *link);
/* Plan, schedule, resolve; memory is mapped. */
enum dyt_status dyti_link_plan(struct dyti_link *link);
/* What members must agree on. */
uint64_t dyti_link_fingerprint(const struct dyti_link *link);

#endif /* DYTI_LIB_LINK_INTERNAL_H */
