/* The queue of a handle: what is under way, what has come past a mark, and what
 * an error that comes late may be about. */
#include "device/cuda/handle.h"

#include <stdio.h>
#include <string.h>

#define ALIGN 256u

/* ---- errors ------------------------------------------------------------- */

enum dyt_status dyti_cuda_begin(struct dyti_cuda *k)
{
    if (k->failed != DYT_OK) {
        return DYTI_FAIL(k->failed, "%s", k->why);
    }
    return dyti_cuda_check(k, (int)cudaSetDevice(k->device),
                           "making the device this thread's");
}

void dyti_cuda_queued(struct dyti_cuda *k, const char *what, uint64_t count)
{
    struct dyti_cuda_work *w = &k->recent[++k->queued % DYTI_CUDA_RECENT];

    w->what = what;
    w->count = count;
}

/* "the last of it: copy of 3 boxes (7), …" of what may not be done yet. */
static void under_way(const struct dyti_cuda *k, char *text, size_t cap)
{
    uint64_t first = k->queued > DYTI_CUDA_RECENT + k->done
                         ? k->queued - DYTI_CUDA_RECENT + 1
                         : k->done + 1;
    size_t at = 0;

    text[0] = '\0';
    for (uint64_t n = first; n <= k->queued && at + 1 < cap; n++) {
        const struct dyti_cuda_work *w = &k->recent[n % DYTI_CUDA_RECENT];
        int wrote = snprintf(text + at, cap - at, "%s%s of %llu (number %llu)",
                             n == first ? "; under way: " : ", ", w->what,
                             w->count, (unsigned long long)n);

        at += wrote > 0 ? (size_t)wrote : 0;
    }
}

enum dyt_status dyti_cuda_check(struct dyti_cuda *k, int error,
                                const char *doing)
{
    cudaError_t e = (cudaError_t)error, stays;
    char works[320];

    if (e == cudaSuccess) {
        return DYT_OK;
    }
    (void)cudaGetLastError(); /* or the next launch would meet it again */
    if (e == cudaErrorMemoryAllocation) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%s has no memory for %s", k->name,
                         doing);
    }
    under_way(k, works, sizeof(works));
    snprintf(k->why, sizeof(k->why), "%s: %s (%s), found when %s%s", k->name,
             cudaGetErrorName(e), cudaGetErrorString(e), doing, works);
    /* What breaks a context stays in all its calls. */
    stays = k->stream != NULL ? cudaStreamQuery(k->stream) : cudaSuccess;
    if (stays != cudaSuccess && stays != cudaErrorNotReady) {
        k->failed = DYT_ERR_DEVICE;
    }
    return DYTI_FAIL(DYT_ERR_DEVICE, "%s", k->why);
}

/* ---- marks -------------------------------------------------------------- */

static void past(struct dyti_cuda *k, uint64_t mark)
{
    uint64_t work = k->mark[mark % DYTI_CUDA_MARKS].work;

    k->passed = mark > k->passed ? mark : k->passed;
    k->done = work > k->done ? work : k->done;
}

/* The one that answers for it. */
static uint64_t kept(const struct dyti_cuda *k, uint64_t mark)
{
    return mark + DYTI_CUDA_MARKS > k->marks ? mark
                                             : k->marks - DYTI_CUDA_MARKS + 1;
}

static enum dyt_status wait_mark(struct dyti_cuda *k, uint64_t mark)
{
    enum dyt_status st;

    if (mark <= k->passed) {
        return DYT_OK;
    }
    mark = kept(k, mark);
    st = dyti_cuda_check(
        k, (int)cudaEventSynchronize(k->mark[mark % DYTI_CUDA_MARKS].event),
        "waiting for work");
    if (st == DYT_OK) {
        past(k, mark);
    }
    return st;
}

enum dyt_status dyti_cuda_mark(void *self, uint64_t *out_mark)
{
    struct dyti_cuda *k = self;
    struct dyti_cuda_mark *m = &k->mark[(k->marks + 1) % DYTI_CUDA_MARKS];
    enum dyt_status st = dyti_cuda_begin(k);

    if (st == DYT_OK) {
        st = dyti_cuda_check(k, (int)cudaEventRecord(m->event, k->stream),
                             "marking the queue");
    }
    if (st == DYT_OK) {
        m->work = k->queued;
        *out_mark = ++k->marks;
    }
    return st;
}

enum dyt_status dyti_cuda_passed(void *self, uint64_t mark)
{
    struct dyti_cuda *k = self;
    enum dyt_status st = DYT_OK;
    cudaError_t e;

    if (k->failed == DYT_OK && mark <= k->passed) {
        return DYT_OK;
    }
    st = dyti_cuda_begin(k);
    if (st != DYT_OK) {
        return st;
    }
    mark = kept(k, mark);
    e = cudaEventQuery(k->mark[mark % DYTI_CUDA_MARKS].event);
    if (e == cudaErrorNotReady) {
        return DYT_PENDING;
    }
    st = dyti_cuda_check(k, (int)e, "asking for work");
    if (st == DYT_OK) {
        past(k, mark);
    }
    return st;
}

enum dyt_status dyti_cuda_wait(void *self)
{
    struct dyti_cuda *k = self;
    enum dyt_status st = dyti_cuda_begin(k);

    if (st == DYT_OK) {
        st = dyti_cuda_check(k, (int)cudaStreamSynchronize(k->stream),
                             "waiting for all work");
    }
    if (st == DYT_OK) {
        k->done = k->queued;
        k->passed = k->marks;
    }
    return st;
}

/* ---- other queues ------------------------------------------------------- */

enum dyt_status dyti_cuda_after_event(void *self, void *event)
{
    struct dyti_cuda *k = self;
    enum dyt_status st = dyti_cuda_begin(k);

    return st != DYT_OK
               ? st
               : dyti_cuda_check(
                     k,
                     (int)cudaStreamWaitEvent(k->stream, (cudaEvent_t)event, 0),
                     "waiting for an event of another queue");
}

enum dyt_status dyti_cuda_after_stream(void *self, void *stream)
{
    struct dyti_cuda *k = self;
    enum dyt_status st = dyti_cuda_begin(k);

    if (st == DYT_OK && k->meeting == NULL) {
        st = dyti_cuda_check(
            k,
            (int)cudaEventCreateWithFlags(&k->meeting, cudaEventDisableTiming),
            "making an event");
    }
    if (st == DYT_OK) {
        st = dyti_cuda_check(
            k, (int)cudaEventRecord(k->meeting, (cudaStream_t)stream),
            "marking another queue");
    }
    return st == DYT_OK ? dyti_cuda_after_event(k, k->meeting) : st;
}

void *dyti_cuda_stream(void *self)
{
    return ((struct dyti_cuda *)self)->stream;
}

/* ---- memory ------------------------------------------------------------- */

enum dyt_status dyti_cuda_alloc(struct dyti_cuda *k, uint64_t bytes,
                                const char *doing, void **out_ptr)
{
    void *ptr = NULL;
    cudaError_t e = k->has_pools ? cudaMallocAsync(&ptr, bytes, k->stream)
                                 : cudaMalloc(&ptr, bytes);
    enum dyt_status st = dyti_cuda_check(k, (int)e, doing);

    if (st == DYT_OK) {
        *out_ptr = ptr;
    }
    return st;
}

void dyti_cuda_free(struct dyti_cuda *k, void *ptr)
{
    cudaError_t e = cudaSuccess;

    if (ptr == NULL) {
        return;
    }
    /* Without pools it waits for the whole device. */
    e = k->has_pools ? cudaFreeAsync(ptr, k->stream) : cudaFree(ptr);
    (void)e; /* of a device that failed, whose memory goes with the process */
}

enum dyt_status dyti_cuda_scratch(struct dyti_cuda *k, uint64_t bytes,
                                  void **out_ptr)
{
    enum dyt_status st = DYT_OK;

    bytes = (bytes + 0xfffffu) & ~(uint64_t)0xfffffu;
    if (bytes > k->scratch_bytes) {
        dyti_cuda_free(k, k->scratch);
        k->scratch = NULL;
        k->scratch_bytes = 0;
        st = dyti_cuda_alloc(k, bytes, "scratch of kernels", &k->scratch);
        k->scratch_bytes = st == DYT_OK ? bytes : 0;
    }
    if (st == DYT_OK) {
        *out_ptr = k->scratch;
    }
    return st;
}

/* ---- the ring ----------------------------------------------------------- */

static enum dyt_status drop_oldest(struct dyti_cuda *k)
{
    struct dyti_cuda_use *use = &k->use[k->use_first];
    enum dyt_status st = DYT_OK;

    if (k->use_count == 0) { /* what failed was taken, and never released */
        st = dyti_cuda_wait(k);
        k->ring_tail = k->ring_head;
        return st;
    }
    st = wait_mark(k, use->mark);
    if (st == DYT_OK) {
        k->ring_tail = use->end;
        k->use_first = (k->use_first + 1) % DYTI_CUDA_MARKS;
        k->use_count--;
    }
    return st;
}

enum dyt_status dyti_cuda_ring_take(struct dyti_cuda *k, uint64_t bytes,
                                    void **out_here, void **out_there)
{
    uint64_t at = k->ring_head % DYTI_CUDA_RING, head = k->ring_head;
    enum dyt_status st = DYT_OK;

    dyti_assert(bytes <= DYTI_CUDA_PIECE);
    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (at + bytes > DYTI_CUDA_RING) { /* one piece, from the beginning */
        head += DYTI_CUDA_RING - at;
        at = 0;
    }
    while (st == DYT_OK && (head + bytes - k->ring_tail > DYTI_CUDA_RING ||
                            k->use_count == DYTI_CUDA_MARKS)) {
        st = drop_oldest(k);
    }
    if (st == DYT_OK) {
        k->ring_head = head + bytes;
        *out_here = k->ring + at;
        *out_there = k->ring_there + at;
    }
    return st;
}

enum dyt_status dyti_cuda_ring_release(struct dyti_cuda *k)
{
    struct dyti_cuda_use *use =
        &k->use[(k->use_first + k->use_count) % DYTI_CUDA_MARKS];
    enum dyt_status st = dyti_cuda_mark(k, &use->mark);

    if (st == DYT_OK) {
        use->end = k->ring_head;
        k->use_count++;
    }
    return st;
}

/* ---- bytes -------------------------------------------------------------- */

enum dyt_status dyti_cuda_fill(void *self, void *ptr, uint64_t bytes,
                               uint8_t value)
{
    struct dyti_cuda *k = self;
    enum dyt_status st = dyti_cuda_begin(k);

    if (st == DYT_OK && bytes > 0) {
        st = dyti_cuda_check(k,
                             (int)cudaMemsetAsync(ptr, value, bytes, k->stream),
                             "queueing a fill");
        if (st == DYT_OK) {
            dyti_cuda_queued(k, "fill of bytes,", bytes);
        }
    }
    return st;
}

enum dyt_status dyti_cuda_carry(void *self, void *dst, const void *src,
                                uint64_t bytes)
{
    struct dyti_cuda *k = self;
    enum dyt_status st = dyti_cuda_begin(k);

    if (st != DYT_OK || bytes == 0) {
        return st;
    }
    st = dyti_cuda_check(
        k, (int)cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, k->stream),
        "queueing a copy of bytes");
    if (st != DYT_OK) {
        return st;
    }
    dyti_cuda_queued(k, "copy of bytes,", bytes);
    return dyti_cuda_wait(k);
}
