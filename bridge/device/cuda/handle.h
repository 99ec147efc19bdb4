/* What the entries of the cuda kernels share: a queue of work on one device,
 * with what it needs beside the work itself.  Contract: ops/kernels.h.
 *
 * Terms
 *   work    what one entry queued, numbered from 1
 *   mark    an event behind some work, numbered from 1; of each that is too old
 *           to have kept its event, a younger one answers
 *   ring    pinned memory, and as much of the device: lists that are used once
 *           go through it, and lists that are kept are sent from it
 *
 * Threads: one at a time.  Every function makes the device the thread's own. */
#ifndef DYTI_DEVICE_CUDA_HANDLE_H
#define DYTI_DEVICE_CUDA_HANDLE_H

#include "device/cuda/boxes.h"
#include "device/cuda/context.h"

#include "ops/kernels.h"

#include <cuda_runtime_api.h>

#define DYTI_CUDA_MARKS   64u        /* events that are kept */
#define DYTI_CUDA_RECENT  8u         /* works that an error can name */
#define DYTI_CUDA_RING    (2u << 20) /* bytes */
#define DYTI_CUDA_PIECE   (DYTI_CUDA_RING / 4) /* of one upload, at most */
#define DYTI_CUDA_RESULTS 8192u                /* words */

struct dyti_cuda_blas; /* device/cuda/blas.h */

struct dyti_cuda_mark {
    cudaEvent_t event;
    uint64_t work; /* the last that it is behind */
};

struct dyti_cuda_work {
    const char *what; /* static: "copy of %llu boxes" */
    unsigned long long count;
};

/* Part of the ring that is in use until a mark has been passed. */
struct dyti_cuda_use {
    uint64_t end; /* of the ring, in bytes from its first use on */
    uint64_t mark;
};

struct dyti_cuda {
    int device, arch;
    char name[DYTI_CUDA_UUID]; /* of the device, for messages: its UUID */
    char arch_name[16];        /* "sm_90" */
    bool has_pools, tf32;
    cudaStream_t stream;
    cudaEvent_t meeting; /* where other queues are waited for; NULL: never yet
                          */

    enum dyt_status failed; /* DYT_OK, or what every call returns from now on */
    char why[512];

    uint64_t queued, done; /* works; of these known to be done */
    struct dyti_cuda_work recent[DYTI_CUDA_RECENT];
    uint64_t marks, passed; /* the last mark; the last known to be passed */
    struct dyti_cuda_mark mark[DYTI_CUDA_MARKS];

    unsigned char *ring, *ring_there; /* [DYTI_CUDA_RING] here, on the device */
    uint64_t ring_head, ring_tail;
    struct dyti_cuda_use use[DYTI_CUDA_MARKS];
    uint32_t use_first, use_count;

    uint64_t *result, *result_there; /* [DYTI_CUDA_RESULTS] */
    void *scratch;
    uint64_t scratch_bytes;
    struct dyti_cuda_boxes list; /* kept for its memory */
    struct dyti_cuda_blas *blas; /* NULL until the first product */
};

/* ---- queue.c --------------------------------------------------------------
 */

/* DYT_OK, or the failure of before; the device is this thread's. */
enum dyt_status dyti_cuda_begin(struct dyti_cuda *k);
/* What a call returned while `doing` (as in "while …"), in words: the device,
 * the error, and the works that it may come from.
 * @return DYT_OK, DYT_ERR_NOMEM, DYT_ERR_DEVICE */
enum dyt_status dyti_cuda_check(struct dyti_cuda *k, int error,
                                const char *doing);
/* Some work is queued. */
void dyti_cuda_queued(struct dyti_cuda *k, const char *what, uint64_t count);

enum dyt_status dyti_cuda_wait(void *self);
enum dyt_status dyti_cuda_mark(void *self, uint64_t *out_mark);
enum dyt_status dyti_cuda_passed(void *self, uint64_t mark);
enum dyt_status dyti_cuda_after_stream(void *self, void *stream);
enum dyt_status dyti_cuda_after_event(void *self, void *event);
void *dyti_cuda_stream(void *self);

/* Memory of the device in the order of the queue: it may be used by what is
 * queued next, and goes back behind what was queued before. */
enum dyt_status dyti_cuda_alloc(struct dyti_cuda *k, uint64_t bytes,
                                const char *doing, void **out_ptr);
void dyti_cuda_free(struct dyti_cuda *k, void *ptr);
/* Scratch of at least so many bytes, which the next call may move. */
enum dyt_status dyti_cuda_scratch(struct dyti_cuda *k, uint64_t bytes,
                                  void **out_ptr);

/* `bytes` <= DYTI_CUDA_PIECE of the ring, to be filled here and read there,
 * until the mark of the release. */
enum dyt_status dyti_cuda_ring_take(struct dyti_cuda *k, uint64_t bytes,
                                    void **out_here, void **out_there);
enum dyt_status dyti_cuda_ring_release(struct dyti_cuda *k);

enum dyt_status dyti_cuda_fill(void *self, void *ptr, uint64_t bytes,
                               uint8_t value);
enum dyt_status dyti_cuda_carry(void *self, void *dst, const void *src,
                                uint64_t bytes);

/* ---- lists.c --------------------------------------------------------------
 */

enum dyt_status dyti_cuda_copy(void *self, const struct dyti_copy *copy,
                               size_t count);
enum dyt_status dyti_cuda_hash(void *self, const struct dyti_hash_box *box,
                               size_t count, uint64_t *out_hash);
enum dyt_status dyti_cuda_list_make(void *self, const struct dyti_copy *copy,
                                    size_t count,
                                    struct dyti_copy_list **out_list);
enum dyt_status dyti_cuda_list_pack(void *self,
                                    const struct dyti_stream_boxes *stream,
                                    uint64_t lo, uint64_t hi, void *dense,
                                    struct dyti_copy_list **out_list);
enum dyt_status dyti_cuda_list_unpack(void *self,
                                      const struct dyti_stream_boxes *stream,
                                      uint64_t lo, uint64_t hi,
                                      const void *dense,
                                      struct dyti_copy_list **out_list);
enum dyt_status dyti_cuda_list_run(void *self, struct dyti_copy_list *list);
void dyti_cuda_list_free(void *self, struct dyti_copy_list *list);
/* Any number of bytes to the device, through the ring. */
enum dyt_status dyti_cuda_upload(struct dyti_cuda *k, void *there,
                                 const void *from, uint64_t bytes);

/* ---- samples.c ------------------------------------------------------------
 */

enum dyt_status dyti_cuda_sample_make(void *self,
                                      const struct dyti_sample *sample,
                                      size_t count,
                                      struct dyti_sample_list **out_list);
enum dyt_status dyti_cuda_sample_run(void *self, struct dyti_sample_list *list,
                                     uint64_t seed, uint64_t *out_hash);
void dyti_cuda_sample_free(void *self, struct dyti_sample_list *list);

/* ---- gemm.c ---------------------------------------------------------------
 */

enum dyt_status dyti_cuda_gemm(void *self, const struct dyti_gemm *gemm);

#endif /* DYTI_DEVICE_CUDA_HANDLE_H */
