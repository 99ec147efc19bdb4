/* A GPU without one: runs .cu files that were compiled as C++, and finds what a
 * device would let pass.  This is what tests say to it; kernels and the product
 * see only include/.
 *
 *   grid, blocks, threads  every thread is a fiber; a few blocks are resident
 *                          at a time; who goes next is decided by the seed
 *   streams                work is queued, and runs as late, as early or as
 *                          shuffled as what was waited for allows
 *   memory                 one range of addresses with guard pages between
 *                          allocations, which are never used twice; each byte
 *                          knows whether it was written, and by which work
 *
 * What is only seen by dev_load() and dev_store() of device/cuda/launch.cuh:
 * bytes of the last 255 behind an allocation, uninitialised reads, missing
 * waits, sectors.  A plain pointer is caught by the guard pages, and in builds
 * with -fsanitize=address by poisoned bytes.
 *
 * Device memory is closed to host code: what touches it by a plain pointer is
 * named, and goes on.  Pinned and managed memory is open to both.
 *
 * A fault ends its kernel (but those of order, which are noted), is printed
 * unless it is expected, and is counted.  Threads: any, one at a time inside.
 */
#ifndef DYT_GPUSIM_H
#define DYT_GPUSIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum gpusim_fault {
    GPUSIM_OUT_OF_BOUNDS,
    GPUSIM_MISALIGNED,
    GPUSIM_FREED,    /* memory that was given back */
    GPUSIM_UNMAPPED, /* reserved addresses without memory or without access */
    GPUSIM_UNINITIALISED,
    GPUSIM_SHARED_RACE,
    GPUSIM_SHARED_BOUNDS,
    GPUSIM_DIVERGENT, /* a barrier or a warp's exchange that not all reach */
    GPUSIM_MISSING_WAIT,
    GPUSIM_HOST_ACCESS, /* of device memory, by a plain pointer */
    GPUSIM_LEAK,
    GPUSIM_LIMITS,
    /* calls of NCCL that ranks make in another order or size than others, or
     * that a communicator's state does not allow */
    GPUSIM_COLLECTIVE,
    GPUSIM_FAULT_COUNT
};

/* When work that nobody waits for yet runs. */
enum gpusim_order {
    GPUSIM_LATE,    /* when somebody waits for it, and nothing else then */
    GPUSIM_EARLY,   /* at once */
    GPUSIM_SHUFFLED /* by the seed */
};

#define GPUSIM_DEVICES 16

/* What the machine is taken for. */
struct gpusim_machine {
    int device_count;   /* 0: none */
    int driver_version; /* 12040; 0: no driver */
    int arch;           /* 70 … 120: its limits hold */
    uint64_t memory_bytes;
    bool has_vmm;                     /* virtual memory calls */
    uint32_t resident;                /* blocks that run at a time */
    uint32_t refuses[GPUSIM_DEVICES]; /* devices, as bits, whose memory this one
                                         does not reach */
    /* Which one of the host's each is: another process may see fewer, or in
     * another order, and knows them by their UUIDs. */
    int hardware[GPUSIM_DEVICES];
};

/* What kernels moved through dev_load() and dev_store(), in sectors of 32
 * bytes.  A load that finds its sector among the last 64 of its warp costs
 * nothing (its part of the first cache); stores of one instruction of a warp
 * are merged, others are not. */
struct gpusim_traffic {
    uint64_t load_sectors, store_sectors; /* touched */
    uint64_t load_needed, store_needed;   /* distinct ones */
    uint64_t load_calls, store_calls;     /* of threads */
    uint64_t load_wide, store_wide;       /* of these, with 16 bytes */
};

/* True; false where the same tests run on a device, on which nothing of this
 * file has a meaning. */
bool gpusim_simulates(void);

/* The usual machine, no memory, no faults, in order.  Frees all that is
 * left; handles of before are dead. */
void gpusim_reset(void);
void gpusim_set_machine(const struct gpusim_machine *machine);
void gpusim_get_machine(struct gpusim_machine *out_machine);
static inline void gpusim_have_devices(int count)
{
    struct gpusim_machine machine;

    gpusim_get_machine(&machine);
    machine.device_count = count;
    gpusim_set_machine(&machine);
}
/* seed 0: threads in order. */
void gpusim_set_order(enum gpusim_order order, uint64_t seed);

/* The next faults of this kind are wanted and not printed. */
void gpusim_expect(enum gpusim_fault kind);
uint64_t gpusim_faults(enum gpusim_fault kind);
/* Of all kinds that nobody expected. */
uint64_t gpusim_unexpected(void);
/* The last one, or "". */
const char *gpusim_fault_text(void);
const char *gpusim_fault_name(enum gpusim_fault kind);
/* Notes a LEAK for each allocation, stream, event, mapping and handle that is
 * still there; how many. */
uint64_t gpusim_leaks(void);

/* ---- errors on purpose ---------------------------------------------------
 * One at a time; gpusim_reset() forgets it. */

/* The nth call (from 1) of this name ("cudaMalloc", "cuMemMap"; "launch" for
 * kernels) does nothing and returns `error`.  NULL: the nth of any but those
 * that give something back or only ask; error 0: the unknown one. */
void gpusim_fail_call(const char *name, uint64_t nth, int error);
/* The nth piece of work that runs from now on (a kernel, a copy, a fill) ends
 * with this error, as does every call after it: as when a kernel breaks. */
void gpusim_fail_work(uint64_t nth, int error);
/* Has it happened?  A test goes through all calls by growing nth until not. */
bool gpusim_has_failed(void);

void gpusim_traffic_clear(void);
void gpusim_traffic_get(struct gpusim_traffic *out_traffic);

/* Kernels that were run, and physical bytes that are held. */
uint64_t gpusim_launches(void);
/* Kernels that nobody had loaded before their first launch did. */
uint64_t gpusim_late_loads(void);
uint64_t gpusim_held_bytes(void);

/* Calls that queued or made a copy from the host to the device. */
uint64_t gpusim_uploads(void);

/* ---- libraries (loader.cc) ------------------------------------------------
 * What dlopen() finds of a GPU's libraries is what was added here. */
void gpusim_library_add(const char *name, const char *symbol, void *function);
void gpusim_library_hide(const char *name, bool hidden);
void gpusim_symbol_hide(const char *symbol); /* NULL: none */

/* A cuBLAS of this name (cublas.cc), and what became of it. */
struct gpusim_cublas_state {
    int version;     /* to be told; 0: 120400 */
    bool fails_next; /* one product */
    uint64_t handles, products;
    int math;              /* of the last product: cublasMath_t */
    bool is_deterministic; /* it had a workspace, a stream, no atomics */
};
void gpusim_cublas_add(const char *name);
struct gpusim_cublas_state *gpusim_cublas(void);

/* Ranges that were pushed and popped since the last clear: "a(b()c())". */
const char *gpusim_ranges(void);
void gpusim_ranges_clear(void);

#ifdef __cplusplus
}
#endif

#endif /* DYT_GPUSIM_H */
