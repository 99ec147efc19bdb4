/* Memory of CUDA devices as ranks share it.  The table is the contract
 * (ops/memory.h). */
#ifndef DYTI_DEVICE_CUDA_MEMORY_H
#define DYTI_DEVICE_CUDA_MEMORY_H

#include "device/cuda/segment.h"

#include "device/cuda/context.h"

extern const struct dyti_memory_ops dyti_memory_cuda;

/* ---- what its files share -------------------------------------------------
 */

#define DYTI_CUDA_GRAIN (2u << 20) /* parts are multiples of it */

/* Behind struct dyti_segment_mem. */
struct dyti_cuda_mapping {
    const struct dyti_cuda_calls *calls;
    struct dyti_cuda_arena *arena; /* VMM */
    CUdeviceptr opened;            /* IPC, of another process; 0: our own */
    struct dyti_cuda_note note;    /* as it is mapped */
};

/* ---- memory_make.c ---- */

/* New memory for each part, zeroed, as descriptors of it (VMM) or its handle
 * (IPC).  fd: [DYTI_CUDA_PARTS], -1 */
enum dyt_status dyti_cuda_make_parts(const struct dyti_cuda_calls *calls,
                                     CUdevice device,
                                     struct dyti_cuda_note *note, int *fd);
enum dyt_status dyti_cuda_make_ipc(const struct dyti_cuda_calls *calls,
                                   struct dyti_cuda_note *note);
/* Addresses for the note's parts. */
enum dyt_status dyti_cuda_make_arena(const struct dyti_cuda_calls *calls,
                                     CUdevice device,
                                     const struct dyti_cuda_note *note,
                                     struct dyti_cuda_arena **out_arena);
/* A part that sleeps has memory, zeroed; *out_fd: it as a descriptor. */
enum dyt_status dyti_cuda_make_part(const struct dyti_cuda_calls *calls,
                                    struct dyti_cuda_arena *arena,
                                    uint32_t part, int *out_fd);
/* Do they work here?  A device that is full does not say no. */
bool dyti_cuda_vmm_works(const struct dyti_cuda_calls *calls, CUdevice device);
bool dyti_cuda_ipc_works(const struct dyti_cuda_calls *calls);

/* ---- memory_sleep.c ---- */

enum dyt_status dyti_cuda_touched(const struct dyti_segment_mem *mem,
                                  uint64_t offset, uint64_t bytes,
                                  uint64_t *out_bytes);
enum dyt_status dyti_cuda_drop(struct dyti_segment_mem *mem, uint64_t offset,
                               uint64_t bytes);
enum dyt_status dyti_cuda_wake(struct dyti_segment_mem *mem, uint64_t offset,
                               uint64_t bytes);
enum dyt_status dyti_cuda_refresh(struct dyti_segment_mem *mem);

/* ---- look.c ---- */

enum dyt_status dyti_cuda_look(const void *ptr, uint64_t bytes,
                               struct dyti_memory_look *out_look);

/* One more piece of a segment whose first was looked at: what it says of itself
 * is enough, no descriptor of it is made. */
enum dyt_status dyti_cuda_look_at_piece(const void *ptr,
                                        struct dyti_memory_look *out_look);

/* ---- ipc.c ---- */

/* An allocation of another process, for the device in use; opened once in this
 * process, and closed when as many have closed it as have opened it. */
CUresult dyti_cuda_ipc_open(const struct dyti_cuda_calls *calls,
                            CUdevice device, const CUipcMemHandle *handle,
                            CUdeviceptr *out_at);
/* The device that opened it is in use. */
void dyti_cuda_ipc_close(const struct dyti_cuda_calls *calls, CUdeviceptr at);

/* ---- lend.c, borrow.c ---- */

enum dyt_status dyti_cuda_lend(const void *ptr, uint64_t bytes,
                               struct dyti_memory_loan *out_loan);
enum dyt_status dyti_cuda_lend_piece(const struct dyti_memory_loan *loan,
                                     uint64_t at, uint64_t *out_bytes,
                                     int *out_fd);
enum dyt_status dyti_cuda_borrow(const struct dyti_memory_loan *loan,
                                 struct dyti_memory_borrowed *out_borrowed);
enum dyt_status dyti_cuda_borrow_piece(struct dyti_memory_borrowed *borrowed,
                                       uint64_t bytes, int fd);
void dyti_cuda_give_back(struct dyti_memory_borrowed *borrowed);
enum dyt_status dyti_cuda_reaches(const char *device, const char *other);

#endif /* DYTI_DEVICE_CUDA_MEMORY_H */
