/* Lists of boxes of a handle: used once, out of the ring; or kept on the
 * device, and launched as often as one likes. */
#include "device/cuda/handle.h"
#include "device/cuda/kernels.h"

#include <stdlib.h>
#include <string.h>

/* Boxes in one upload: each with its place on the axis, and one place more. */
#define MOST                                                                   \
    ((DYTI_CUDA_PIECE - sizeof(uint64_t)) /                                    \
     (sizeof(struct dyti_cuda_box) + sizeof(uint64_t)))

_Static_assert(sizeof(struct dyti_cuda_hash_box) <=
                   sizeof(struct dyti_cuda_box),
               "as many fit");

struct dyti_copy_list {
    struct dyti_cuda_box *box; /* on the device, [count]; owned, with first */
    uint64_t *first;           /* [count + 1] */
    uint32_t count;
    uint64_t bytes;
};

/* ---- used once ---------------------------------------------------------- */

/* What lies in the ring goes to the device; the rest of its use follows. */
static enum dyt_status send(struct dyti_cuda *k, void *there, const void *here,
                            uint64_t bytes)
{
    return dyti_cuda_check(k,
                           (int)cudaMemcpyAsync(there, here, bytes,
                                                cudaMemcpyHostToDevice,
                                                k->stream),
                           "sending a list of boxes");
}

/* Boxes [at, at + count) of the handle's list: one launch. */
static enum dyt_status copy_piece(struct dyti_cuda *k, uint32_t at,
                                  uint32_t count)
{
    const uint64_t *first = k->list.first + at;
    uint64_t bytes = count * sizeof(*k->list.box), *here_first;
    void *here = NULL, *there = NULL;
    enum dyt_status st = dyti_cuda_ring_take(
        k, bytes + (count + 1) * sizeof(*first), &here, &there);

    if (st != DYT_OK) {
        return st;
    }
    memcpy(here, k->list.box + at, bytes);
    here_first = (uint64_t *)(void *)((unsigned char *)here + bytes);
    for (uint32_t i = 0; i <= count; i++) {
        here_first[i] = first[i] - first[0];
    }
    st = send(k, there, here, bytes + (count + 1) * sizeof(*first));
    if (st == DYT_OK) {
        st = dyti_cuda_check(
            k,
            dyti_cuda_copy_launch(
                there, (uint64_t *)(void *)((unsigned char *)there + bytes),
                count, here_first[count], 0, k->stream),
            "launching a copy");
    }
    if (st == DYT_OK) {
        dyti_cuda_queued(k, "copy of boxes,", count);
        st = dyti_cuda_ring_release(k);
    }
    return st;
}

enum dyt_status dyti_cuda_copy(void *self, const struct dyti_copy *copy,
                               size_t count)
{
    struct dyti_cuda *k = self;
    enum dyt_status st = dyti_cuda_begin(k);

    k->list.count = 0;
    if (st == DYT_OK) {
        st = dyti_cuda_boxes_add(&k->list, copy, count);
    }
    for (uint32_t at = 0; at < k->list.count && st == DYT_OK;) {
        uint32_t left = k->list.count - at;
        uint32_t now = left < MOST ? left : (uint32_t)MOST;

        st = copy_piece(k, at, now);
        at += now;
    }
    return st;
}

/* ---- hashes ------------------------------------------------------------- */

/* Boxes that have elements, up to MOST, from *at on. */
static uint32_t hash_fill(const struct dyti_hash_box *box, size_t end,
                          uint32_t word, size_t *at,
                          struct dyti_cuda_hash_box *out_box,
                          uint64_t *out_first)
{
    uint32_t n = 0;

    out_first[0] = 0;
    for (; *at < end && n < MOST; (*at)++, word++) {
        const int64_t *size = box[*at].size;
        uint64_t elements = (uint64_t)size[0] * (uint64_t)size[1] *
                            (uint64_t)size[2] * (uint64_t)size[3];

        if (elements > 0) {
            dyti_cuda_hash_box_make(&box[*at], word, &out_box[n]);
            out_first[n + 1] = out_first[n] + elements;
            n++;
        }
    }
    return n;
}

/* From box *at on, one launch; sums at the word of box `base` and on. */
static enum dyt_status hash_piece(struct dyti_cuda *k,
                                  const struct dyti_hash_box *box, size_t base,
                                  size_t end, size_t *at)
{
    const uint64_t places = MOST * sizeof(struct dyti_cuda_box);
    void *here = NULL, *there = NULL;
    enum dyt_status st = dyti_cuda_ring_take(k, DYTI_CUDA_PIECE, &here, &there);
    uint64_t *first;
    uint32_t count;

    if (st != DYT_OK) {
        return st;
    }
    first = (uint64_t *)(void *)((unsigned char *)here + places);
    count = hash_fill(box, end, (uint32_t)(*at - base), at, here, first);
    if (count > 0) {
        st = send(k, there, here, count * sizeof(struct dyti_cuda_hash_box));
        st = st != DYT_OK ? st
                          : send(k, (unsigned char *)there + places, first,
                                 (count + 1) * sizeof(*first));
        if (st == DYT_OK) {
            st = dyti_cuda_check(
                k,
                dyti_cuda_hash_launch(
                    there,
                    (uint64_t *)(void *)((unsigned char *)there + places),
                    count, first[count], k->result_there, 0, k->stream),
                "launching a hash");
        }
        if (st == DYT_OK) {
            dyti_cuda_queued(k, "hash of boxes,", count);
        }
    }
    return st != DYT_OK ? st : dyti_cuda_ring_release(k);
}

/* Boxes [base, end), whose sums fit in the result: one wait. */
static enum dyt_status hash_words(struct dyti_cuda *k,
                                  const struct dyti_hash_box *box, size_t base,
                                  size_t end, uint64_t *out_hash)
{
    uint64_t bytes = (end - base) * sizeof(uint64_t);
    enum dyt_status st = dyti_cuda_check(
        k, (int)cudaMemsetAsync(k->result_there, 0, bytes, k->stream),
        "clearing sums");

    for (size_t at = base; at < end && st == DYT_OK;) {
        st = hash_piece(k, box, base, end, &at);
    }
    if (st == DYT_OK) {
        st = dyti_cuda_check(k,
                             (int)cudaMemcpyAsync(k->result, k->result_there,
                                                  bytes, cudaMemcpyDeviceToHost,
                                                  k->stream),
                             "fetching sums");
    }
    if (st == DYT_OK) {
        st = dyti_cuda_wait(k);
    }
    for (size_t i = base; i < end && st == DYT_OK; i++) {
        out_hash[i] += k->result[i - base];
    }
    return st;
}

enum dyt_status dyti_cuda_hash(void *self, const struct dyti_hash_box *box,
                               size_t count, uint64_t *out_hash)
{
    struct dyti_cuda *k = self;
    enum dyt_status st = dyti_cuda_begin(k);

    for (size_t at = 0; at < count && st == DYT_OK;) {
        size_t left = count - at;
        size_t now = left < DYTI_CUDA_RESULTS ? left : DYTI_CUDA_RESULTS;

        st = hash_words(k, box, at, at + now, out_hash);
        at += now;
    }
    return st;
}

/* ---- kept --------------------------------------------------------------- */

enum dyt_status dyti_cuda_upload(struct dyti_cuda *k, void *there,
                                 const void *from, uint64_t bytes)
{
    enum dyt_status st = DYT_OK;

    for (uint64_t at = 0; at < bytes && st == DYT_OK;) {
        uint64_t now =
            bytes - at < DYTI_CUDA_PIECE ? bytes - at : DYTI_CUDA_PIECE;
        void *here = NULL, *unused = NULL;

        st = dyti_cuda_ring_take(k, now, &here, &unused);
        if (st == DYT_OK) {
            memcpy(here, (const unsigned char *)from + at, now);
            st = send(k, (unsigned char *)there + at, here, now);
        }
        if (st == DYT_OK) {
            st = dyti_cuda_ring_release(k);
        }
        at += now;
    }
    return st;
}

/* The handle's list, kept. */
static enum dyt_status keep(struct dyti_cuda *k,
                            struct dyti_copy_list **out_list)
{
    const struct dyti_cuda_boxes *from = &k->list;
    uint64_t bytes = from->count * sizeof(*from->box);
    uint64_t places = (from->count + 1ull) * sizeof(*from->first);
    struct dyti_copy_list *list = calloc(1, sizeof(*list));
    enum dyt_status st = DYT_OK;
    void *there = NULL;

    if (list == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a list of copies");
    }
    if (from->count > 0) {
        st = dyti_cuda_alloc(k, bytes + places, "a list of boxes", &there);
        if (st == DYT_OK) {
            list->count = from->count;
            list->bytes = from->first[from->count];
            list->box = there;
            list->first = (uint64_t *)(void *)((unsigned char *)there + bytes);
            st = dyti_cuda_upload(k, list->box, from->box, bytes);
        }
        if (st == DYT_OK) {
            st = dyti_cuda_upload(k, list->first, from->first, places);
        }
    }
    if (st != DYT_OK) {
        dyti_cuda_list_free(k, list);
        return st;
    }
    *out_list = list;
    return DYT_OK;
}

static enum dyt_status begin_list(struct dyti_cuda *k)
{
    k->list.count = 0;
    return dyti_cuda_begin(k);
}

enum dyt_status dyti_cuda_list_make(void *self, const struct dyti_copy *copy,
                                    size_t count,
                                    struct dyti_copy_list **out_list)
{
    struct dyti_cuda *k = self;
    enum dyt_status st = begin_list(k);

    if (st == DYT_OK) {
        st = dyti_cuda_boxes_add(&k->list, copy, count);
    }
    return st == DYT_OK ? keep(k, out_list) : st;
}

enum dyt_status dyti_cuda_list_pack(void *self,
                                    const struct dyti_stream_boxes *stream,
                                    uint64_t lo, uint64_t hi, void *dense,
                                    struct dyti_copy_list **out_list)
{
    struct dyti_cuda *k = self;
    enum dyt_status st = begin_list(k);

    if (st == DYT_OK) {
        st = dyti_cuda_boxes_pack(&k->list, stream, lo, hi, dense);
    }
    return st == DYT_OK ? keep(k, out_list) : st;
}

enum dyt_status dyti_cuda_list_unpack(void *self,
                                      const struct dyti_stream_boxes *stream,
                                      uint64_t lo, uint64_t hi,
                                      const void *dense,
                                      struct dyti_copy_list **out_list)
{
    struct dyti_cuda *k = self;
    enum dyt_status st = begin_list(k);

    if (st == DYT_OK) {
        st = dyti_cuda_boxes_unpack(&k->list, stream, lo, hi, dense);
    }
    return st == DYT_OK ? keep(k, out_list) : st;
}

enum dyt_status dyti_cuda_list_run(void *self, struct dyti_copy_list *list)
{
    struct dyti_cuda *k = self;
    enum dyt_status st = dyti_cuda_begin(k);

    if (st != DYT_OK || list->count == 0) {
        return st;
    }
    st = dyti_cuda_check(k,
                         dyti_cuda_copy_launch(list->box, list->first,
                                               list->count, list->bytes, 0,
                                               k->stream),
                         "launching a list");
    if (st == DYT_OK) {
        dyti_cuda_queued(k, "list of boxes,", list->count);
    }
    return st;
}

void dyti_cuda_list_free(void *self, struct dyti_copy_list *list)
{
    if (list != NULL) {
        dyti_cuda_free(self, list->box);
        free(list);
    }
}
