/* Segments of memory that ranks share, of a host or of a device.  Implemented
 * by bridge/device/<name>.  A segment dies with the last process that has it
 * open, so nothing is left behind however a run ends.
 *
 * A handle is one file descriptor, inherited by the workers of a host before
 * the segment has a size.  Whoever owns the segment gives it one, once; then
 * all map it, the owner as well.
 *
 *               host                     device
 *   handle      a memfd                  a socket that holds one message:
 *                                        sizes, and what imports the memory
 *   memory      comes as it is touched   is there from resize, in whole parts
 *   drop        pages go, and come back  parts sleep: their addresses stay, and
 *               as they are touched      nobody may touch them till they wake
 *   wake,       nothing to do            memory of sleeping parts, zeroed; a
 *   refresh                              peer's mapping follows the owner's
 *   use,        nothing to do; pageable  which device; pages that it reads and
 *   host_alloc  memory                   writes
 *   look        all is the host's        what a framework's memory is, and how
 *                                        another process can have it
 *   lend,       in its own process the   in its own process the pointer, in
 *   borrow      pointer, else refused    another what imports it (below)
 *
 * Rules: threads any, one segment by one thread at a time; everything may
 * block.  A device's table works for the device that use() made the calling
 * thread's, and in no child of a fork after that (exec a program instead).
 * Functions of a device do not wait for its work: what runs on memory that is
 * dropped, unmapped or closed has ended before. */
#ifndef DYTI_OPS_MEMORY_H
#define DYTI_OPS_MEMORY_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

enum dyti_page_kind {
    DYTI_PAGES_HUGETLB, /* 2 MiB, reserved by the system */
    DYTI_PAGES_THP,     /* 2 MiB where the kernel finds them */
    DYTI_PAGES_4K,
    DYTI_PAGES_VMM, /* of a device: parts sleep and wake, given as files */
    DYTI_PAGES_IPC, /* of a device: one allocation that never sleeps, and that
                     * goes with the process that made it */
    DYTI_PAGES_COUNT
};

static inline bool dyti_pages_are_host(enum dyti_page_kind kind)
{
    return (uint32_t)kind <= DYTI_PAGES_4K;
}

struct dyti_segment_mem {
    void *base;     /* NULL while not mapped; of a device: its address */
    uint64_t bytes; /* multiple of 2 MiB */
    int handle;     /* inheritable */
    enum dyti_page_kind pages;
    void *self; /* the backend's own; NULL on the host */
};

/* What memory is, that somebody else allocated. */
enum dyti_memory_kind {
    DYTI_MEMORY_HOST,    /* pageable, or unknown to the device */
    DYTI_MEMORY_PINNED,  /* of the host, read and written by the device */
    DYTI_MEMORY_DEVICE,  /* one allocation of a device (cudaMalloc) */
    DYTI_MEMORY_POOL,    /* of a device's stream-ordered pool */
    DYTI_MEMORY_MAPPED,  /* of a device, by its virtual memory calls */
    DYTI_MEMORY_MANAGED, /* moves between host and device by itself */
    DYTI_MEMORY_KIND_COUNT
};

/* How another process of the host can have it. */
enum dyti_memory_way {
    DYTI_MEMORY_WAY_NONE, /* not at all: `why` */
    DYTI_MEMORY_WAY_FD,   /* a file descriptor, of its piece alone */
    DYTI_MEMORY_WAY_IPC   /* a handle of the whole allocation */
};

struct dyti_memory_look {
    enum dyti_memory_kind kind;
    enum dyti_memory_way way;
    char device[48]; /* UUID of the owner; "" for the host's */
    /* The allocation that it lies in; of mapped memory the piece that is
     * exported as one.  NULL, 0: not known. */
    void *base;
    uint64_t bytes;
    char why[128]; /* way NONE: what stands against it; else "" */
};

/* ---- memory that somebody else allocated, for others to read and write ------
 *
 * Its process lends a range; whoever gets the loan, which is plain bytes, and
 * the descriptors of its pieces, borrows it: for the device in use, at one
 * address, however many pieces it is.
 *
 *   way    in its own process   in another one of this host
 *   NONE   the pointer          refused, by the lender's reason
 *   IPC    the pointer          the whole allocation is opened, once however
 *                               often it is borrowed
 *   FD     the pointer          each piece's descriptor, in their order: a few
 *                               at a time, so that no more files than those
 *                               are open
 *
 * The lender keeps the memory until all have given it back: what he frees
 * before is another's, or nobody's, and nothing can tell (IPC), or stays as
 * long as it is borrowed (FD).  He does not wait for that here. What is
 * borrowed lives as long as the lender's process (IPC), or longer (FD). Work on
 * it has ended before it is given back. */

/* Same bytes in every process of a host. */
struct dyti_memory_loan {
    char magic[8];        /* and version */
    uint32_t way;         /* enum dyti_memory_way */
    uint32_t piece_count; /* FD: descriptors that belong to it; else 0 */
    uint64_t address;     /* of the first byte, in the lender's process */
    uint64_t bytes;
    /* The allocation, or all pieces that have a part in it: at most `offset`
     * before the address. */
    uint64_t offset, span;
    /* The lender: process, the space of such numbers, when it started. */
    int64_t owner_space;
    uint64_t owner_start;
    uint32_t owner_pid;
    uint32_t kind;   /* enum dyti_memory_kind */
    uint64_t driver; /* the lender's version; 0: none */
    char device[48]; /* UUID of the owner; "": the host's */
    char why[128];   /* way NONE: as look() says it; else "" */
    unsigned char ipc[64];
};

struct dyti_memory_borrowed {
    void *ptr;       /* the lent bytes, for the device that was in use */
    uint64_t bytes;  /* of them */
    uint32_t wanted; /* pieces that are still to come: not touched before 0 */
    void *self;      /* the backend's own; NULL: given back */
};

struct dyti_memory_ops {
    uint32_t struct_size;
    const char *name;

    /* The best page kind for a segment of `bytes`, found by trying;
     * DYTI_PAGES_COUNT: none (a device that is not there). */
    enum dyti_page_kind (*probe)(uint64_t bytes);
    /* Does the table know these pages, and has the machine, or the device in
     * use, what they need?  Of reserved pages: not how many are left. */
    bool (*has)(enum dyti_page_kind pages);
    /* Make an empty segment: a name for people, no size yet.  Needs no device.
     */
    enum dyt_status (*create)(const char *name, enum dyti_page_kind pages,
                              int *out_handle);
    /**
     * Give it its size (once), and make it the calling process's own.
     * @param part  [count] rising ends of the parts that sleep apart from each
     *              other, multiples of 2 MiB, the last one the size; NULL: one
     *              part.  The host does not look at it
     * @return DYT_ERR_NOMEM  refused cleanly: what is wanted, and what is there
     * @return DYT_ERR_STATE  it has a size
     */
    enum dyt_status (*resize)(int handle, enum dyti_page_kind pages,
                              uint64_t bytes, const uint64_t *part,
                              uint32_t count);
    /* Map one's own or a peer's; parts that sleep are left out. */
    enum dyt_status (*map)(int handle, enum dyti_page_kind pages,
                           uint64_t bytes, struct dyti_segment_mem *out_mem);
    void (*unmap)(struct dyti_segment_mem *mem); /* keeps the handle open */
    /* Its owner's IPC memory goes with it, peers have unmapped it before. */
    void (*close)(int handle);
    /* Bytes of [offset, offset + bytes) that have memory behind them. */
    enum dyt_status (*touched)(const struct dyti_segment_mem *mem,
                               uint64_t offset, uint64_t bytes,
                               uint64_t *out_bytes);
    /* Give the memory of a range back.  Host: it reads as zero.  Device: whole
     * parts, the owner's alone; their memory is the device's again when peers
     * have refreshed; nothing happens to those that sleep, nor to pages that
     * cannot (IPC).  DYT_ERR_INVALID: half a part.  DYT_ERR_STATE: a peer's */
    enum dyt_status (*drop)(struct dyti_segment_mem *mem, uint64_t offset,
                            uint64_t bytes);
    /* Memory behind a range again.  Host: nothing, it comes as it is touched.
     * Device: parts that sleep, zeroed; others are left alone.  As drop, and
     * DYT_ERR_NOMEM: the device is full; what woke before stays awake. */
    enum dyt_status (*wake)(struct dyti_segment_mem *mem, uint64_t offset,
                            uint64_t bytes);
    /* A peer's mapping becomes what its owner last made of it: unmaps what
     * sleeps, maps what woke, at the same addresses.  Host: nothing.  Costs a
     * system call where nothing has changed. */
    enum dyt_status (*refresh)(struct dyti_segment_mem *mem);
    /* Bytes of this page kind that the system can still give, as far as it
     * tells (UINT64_MAX: it does not).  Several segments that are sized one by
     * one share it, so whoever knows all of them asks first. */
    uint64_t (*available)(enum dyti_page_kind pages);

    /* Memory of the host for staging and backups, page aligned, of any value:
     * the device's copies and kernels reach it. */
    enum dyt_status (*host_alloc)(uint64_t bytes, void **out_ptr);
    void (*host_free)(void *ptr); /* NULL is fine */
    /* Make a device the calling thread's: its UUID, or NULL where there is only
     * one.  Cheap the second time.  Host: nothing, whatever the name.
     * DYT_ERR_INVALID: an index, or nobody's UUID; the text lists what there
     * is. */
    enum dyt_status (*use)(const char *device);
    /* What the memory at [ptr, ptr + bytes) is.  Nothing is promised that was
     * not tried.  DYT_ERR_INVALID: it does not lie in one allocation. */
    enum dyt_status (*look)(const void *ptr, uint64_t bytes,
                            struct dyti_memory_look *out_look);
    /* Memory of the host that is mapped here already, in whole pages (a memfd
     * that others map too): from now on the device's copies and kernels reach
     * it at its address, as what host_alloc gives.  Host: nothing.
     * DYT_ERR_UNSUPPORTED, DYT_ERR_NOMEM: it cannot be; staging goes through
     * host_alloc then */
    enum dyt_status (*host_pin)(void *ptr, uint64_t bytes);
    void (*host_unpin)(void *ptr); /* before it is unmapped; NULL is fine */

    /**
     * Lend [ptr, ptr + bytes): what others need to borrow it.  It keeps
     * nothing: a loan that nobody borrows costs nothing.
     * @return DYT_ERR_INVALID      no memory of a device, or not wholly (the
     *                              host's table takes all)
     */
    enum dyt_status (*lend)(const void *ptr, uint64_t bytes,
                            struct dyti_memory_loan *out_loan);
    /* The piece of an FD loan of this process that begins `at` bytes behind the
     * first one's start, for borrow_piece(): its bytes, and a descriptor that
     * is the caller's to close.  DYT_ERR_PEER: it was freed meanwhile. */
    enum dyt_status (*lend_piece)(const struct dyti_memory_loan *loan,
                                  uint64_t at, uint64_t *out_bytes,
                                  int *out_fd);
    /**
     * Have it at an address of this process, for the device in use, which stays
     * the borrower's until give_back().
     * @return DYT_ERR_UNSUPPORTED  that device does not reach it; the other one
     *                              is not seen by this process; way NONE, in
     *                              another process; a driver of another version
     *                              that does not know it
     *         DYT_ERR_PEER         its process is gone, or has freed it (IPC)
     *         DYT_ERR_INVALID      no loan, or of another version
     */
    enum dyt_status (*borrow)(const struct dyti_memory_loan *loan,
                              struct dyti_memory_borrowed *out_borrowed);
    /* The next piece, in the order of their addresses; the descriptor stays the
     * caller's, and can be closed at once.  DYT_ERR_STATE: none is wanted.
     * After a failure only give_back() is left. */
    enum dyt_status (*borrow_piece)(struct dyti_memory_borrowed *borrowed,
                                    uint64_t bytes, int fd);
    /* Makes the device that borrowed it the calling thread's.  Twice is fine.
     */
    void (*give_back)(struct dyti_memory_borrowed *borrowed);
    /* Do the kernels of `device` read and write memory of `other`?  UUIDs;
     * NULL: the one in use.  DYT_ERR_UNSUPPORTED: no, and why (one of them is
     * not seen by this process, no peer access).  The host's: always. */
    enum dyt_status (*reaches)(const char *device, const char *other);
};

/* DYT_ERR_INVALID: `bytes` from `offset` on are not all of a mapped segment. */
enum dyt_status dyti_segment_has(const struct dyti_segment_mem *mem,
                                 uint64_t offset, uint64_t bytes);

/* ---- loans, for the tables (loan.c) ---- */

/* Sign what is otherwise filled in: magic, and this process as the lender. */
enum dyt_status dyti_memory_loan_sign(struct dyti_memory_loan *loan);
/* DYT_ERR_INVALID: these bytes are none. */
enum dyt_status dyti_memory_loan_check(const struct dyti_memory_loan *loan);
/* Is this process the lender? */
bool dyti_memory_loan_is_own(const struct dyti_memory_loan *loan);
/* DYT_ERR_PEER: the lender is gone, by number.  DYT_OK: it is there, or cannot
 * be looked for (in another space of numbers). */
enum dyt_status dyti_memory_loan_alive(const struct dyti_memory_loan *loan);

const char *dyti_page_kind_name(enum dyti_page_kind kind);
/* "device", "pool", …; "fd", "ipc", "none"; static. */
const char *dyti_memory_kind_name(enum dyti_memory_kind kind);
const char *dyti_memory_way_name(enum dyti_memory_way way);

#endif /* DYTI_OPS_MEMORY_H */
