/* A group of devices for checks that were written for hosts: each buffer has a
 * double in the device's memory, filled before the call by work on the stream
 * that the group was told of, without waiting for it, and copied back when the
 * call, or the ticket, is done. */
#ifndef DYT_GPUSIM_GROUP_STAGED_H
#define DYT_GPUSIM_GROUP_STAGED_H

#include "comm/nccl/nccl.h"
#include "comm/shm/shm.h"

#include <cuda_runtime_api.h>

#include <stdlib.h>

struct staged_post {
    uint64_t ticket;
    void *host, *device;
    uint64_t bytes;
    bool is_send, open;
};

struct staged {
    void *real;
    uint32_t rank, size;
    cudaStream_t stream;
    struct staged_post post[DYTI_GROUP_POSTS];
    struct dyti_group carrier; /* apart: over the region that is shared */
    void *own_region;
};

static enum dyt_status staged_cuda(cudaError_t error)
{
    return error == cudaSuccess ? DYT_OK
                                : DYTI_FAIL(DYT_ERR_DEVICE, "the test: %s",
                                            cudaGetErrorName(error));
}

/* A double; its bytes follow on the stream. */
static void *staged_up(struct staged *s, const void *host, uint64_t bytes)
{
    void *at = NULL;

    if (cudaMalloc(&at, bytes > 0 ? bytes : 1) != cudaSuccess) {
        return NULL;
    }
    if (host != NULL && bytes > 0) {
        (void)cudaMemcpyAsync(at, host, bytes, cudaMemcpyHostToDevice,
                              s->stream);
    }
    return at;
}

static enum dyt_status staged_down(enum dyt_status st, struct staged *s,
                                   void *host, void *device, uint64_t bytes)
{
    if (st == DYT_OK && bytes > 0 && host != NULL) {
        st = staged_cuda(cudaMemcpyAsync(host, device, bytes,
                                         cudaMemcpyDeviceToHost, s->stream));
    }
    (void)cudaStreamSynchronize(s->stream);
    (void)cudaFree(device);
    return st;
}

/* As if the members were on several hosts: what they share is a group of
 * hosts. */
static enum dyt_status staged_apart(struct staged *s,
                                    const struct dyti_group_params *params,
                                    struct dyti_group_params *own)
{
    s->own_region = calloc(1, dyti_group_nccl.region_bytes(params->size));
    s->carrier = (struct dyti_group){
        .ops = &dyti_group_shm, .rank = params->rank, .size = params->size};
    own->apart = true;
    own->carrier = &s->carrier;
    own->shared = s->own_region;
    own->shared_bytes = dyti_group_nccl.region_bytes(params->size);
    return s->own_region == NULL
               ? DYT_ERR_NOMEM
               : dyti_group_shm.open(params, &s->carrier.self);
}

static void staged_free(struct staged *s)
{
    if (s->carrier.self != NULL) {
        dyti_group_shm.close(s->carrier.self);
    }
    (void)cudaStreamDestroy(s->stream);
    free(s->own_region);
    free(s);
}

static enum dyt_status staged_open_as(const struct dyti_group_params *params,
                                      bool apart, void **out_self)
{
    struct dyti_group_params own = *params;
    struct staged *s = calloc(1, sizeof(*s));
    enum dyt_status st = DYT_ERR_NOMEM;

    if (s != NULL) {
        st = staged_cuda(
            cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking));
        own.stream = s->stream;
        s->rank = params->rank;
        s->size = params->size;
        st = st == DYT_OK && apart ? staged_apart(s, params, &own) : st;
        st = st == DYT_OK ? dyti_group_nccl.open(&own, &s->real) : st;
    }
    if (st != DYT_OK && s != NULL) {
        staged_free(s);
        return st;
    }
    *out_self = s;
    return st;
}

static enum dyt_status staged_open(const struct dyti_group_params *params,
                                   void **out_self)
{
    return staged_open_as(params, false, out_self);
}

static enum dyt_status staged_open_apart(const struct dyti_group_params *params,
                                         void **out_self)
{
    return staged_open_as(params, true, out_self);
}

static void staged_drop(struct staged *s)
{
    for (uint32_t i = 0; i < DYTI_GROUP_POSTS; i++) {
        if (s->post[i].open) {
            (void)cudaFree(s->post[i].device);
            s->post[i].open = false;
        }
    }
}

static void staged_close(void *self)
{
    struct staged *s = self;

    if (s != NULL) {
        dyti_group_nccl.close(s->real);
        staged_drop(s);
        staged_free(s);
    }
}

static enum dyt_status staged_barrier(void *self)
{
    return dyti_group_nccl.barrier(((struct staged *)self)->real);
}

static enum dyt_status staged_broadcast(void *self, void *buf, uint64_t bytes,
                                        uint32_t root)
{
    struct staged *s = self;
    void *at = staged_up(s, buf, bytes);

    return staged_down(dyti_group_nccl.broadcast(s->real, at, bytes, root), s,
                       buf, at, bytes);
}

static enum dyt_status staged_all_reduce(void *self, void *buf, uint64_t count,
                                         enum dyti_reduce op)
{
    struct staged *s = self;
    uint64_t bytes = count * (op == DYTI_SUM_F64 || op == DYTI_MAX_U64 ? 8 : 4);
    void *at = staged_up(s, buf, bytes);

    return staged_down(dyti_group_nccl.all_reduce(s->real, at, count, op), s,
                       buf, at, bytes);
}

/* Bytes of all parts, and of those before this member's. */
static uint64_t staged_sum(const struct staged *s, const uint64_t *counts,
                           uint64_t unit, uint64_t *out_before)
{
    uint64_t sum = 0;

    for (uint32_t m = 0; m < s->size; m++) {
        *out_before = m == s->rank ? sum : *out_before;
        sum += counts[m] * unit;
    }
    return sum;
}

static enum dyt_status staged_all_gather(void *self, const void *in, void *out,
                                         const uint64_t *counts_bytes)
{
    struct staged *s = self;
    uint64_t mine = counts_bytes[s->rank], before = 0;
    uint64_t sum = staged_sum(s, counts_bytes, 1, &before);
    bool in_place = (const char *)out + before == in;
    char *to = staged_up(s, NULL, sum);
    void *from = in_place ? to + before : staged_up(s, in, mine);
    enum dyt_status st;

    if (in_place && mine > 0) {
        (void)cudaMemcpyAsync(from, in, mine, cudaMemcpyHostToDevice,
                              s->stream);
    }
    st = dyti_group_nccl.all_gather(s->real, from, to, counts_bytes);
    st = staged_down(st, s, out, to, sum);
    return in_place ? st : staged_down(st, s, NULL, from, 0);
}

static enum dyt_status staged_reduce_scatter(void *self, const void *in,
                                             void *out, const uint64_t *counts,
                                             enum dyti_reduce op)
{
    struct staged *s = self;
    uint64_t unit = op == DYTI_SUM_F64 || op == DYTI_MAX_U64 ? 8 : 4;
    uint64_t before = 0, sum = staged_sum(s, counts, unit, &before);
    uint64_t mine = counts[s->rank] * unit;
    bool in_place = (const char *)in + before == out;
    char *from = staged_up(s, in, sum);
    void *to = in_place ? from + before : staged_up(s, NULL, mine);
    enum dyt_status st =
        dyti_group_nccl.reduce_scatter(s->real, from, to, counts, op);

    if (!in_place) {
        st = staged_down(st, s, out, to, mine);
        return staged_down(st, s, NULL, from, 0);
    }
    if (st == DYT_OK && mine > 0) {
        (void)cudaMemcpyAsync(out, to, mine, cudaMemcpyDeviceToHost, s->stream);
    }
    return staged_down(st, s, NULL, from, 0);
}

static enum dyt_status staged_exchange(void *self,
                                       const struct dyti_p2p *message,
                                       size_t count)
{
    struct staged *s = self;
    struct dyti_p2p *own = calloc(count + 1, sizeof(*own));
    enum dyt_status st;

    if (own == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "the test");
    }
    for (size_t i = 0; i < count; i++) {
        own[i] = message[i];
        own[i].buf = staged_up(s, message[i].is_send ? message[i].buf : NULL,
                               message[i].size_bytes);
    }
    st = dyti_group_nccl.exchange(s->real, own, count);
    for (size_t i = 0; i < count; i++) {
        (void)staged_down(st, s, message[i].is_send ? NULL : message[i].buf,
                          own[i].buf, message[i].size_bytes);
    }
    free(own);
    return st;
}

static enum dyt_status staged_post(void *self, const struct dyti_p2p *message,
                                   uint64_t *out_ticket)
{
    struct staged *s = self;
    struct dyti_p2p own = *message;
    struct staged_post *post = s->post;
    enum dyt_status st;

    own.buf = staged_up(s, message->is_send ? message->buf : NULL,
                        message->size_bytes);
    st = dyti_group_nccl.post(s->real, &own, out_ticket);
    if (st != DYT_OK) {
        (void)staged_down(st, s, NULL, own.buf, 0);
        return st;
    }
    while (post->open) { /* as many as the group has */
        post++;
    }
    *post = (struct staged_post){*out_ticket,         message->buf, own.buf,
                                 message->size_bytes, own.is_send,  true};
    return DYT_OK;
}

static enum dyt_status staged_end(struct staged *s, uint64_t ticket,
                                  enum dyt_status st)
{
    for (uint32_t i = 0; i < DYTI_GROUP_POSTS; i++) {
        struct staged_post *post = &s->post[i];

        if (post->open && post->ticket == ticket) {
            post->open = false;
            return staged_down(st, s, post->is_send ? NULL : post->host,
                               post->device, post->bytes);
        }
    }
    return st;
}

static enum dyt_status staged_poll(void *self, uint64_t ticket)
{
    struct staged *s = self;
    enum dyt_status st = dyti_group_nccl.poll(s->real, ticket);

    return st == DYT_OK ? staged_end(s, ticket, st) : st;
}

static enum dyt_status staged_landed(void *self, uint64_t *ticket, uint32_t cap,
                                     uint32_t *out_count)
{
    struct staged *s = self;
    enum dyt_status st =
        dyti_group_nccl.landed(s->real, ticket, cap, out_count);

    for (uint32_t i = 0; i < *out_count && st == DYT_OK; i++) {
        st = staged_end(s, ticket[i], st);
    }
    return st;
}

static enum dyt_status staged_wait(void *self)
{
    return dyti_group_nccl.wait(((struct staged *)self)->real);
}

static void staged_cancel(void *self)
{
    struct staged *s = self;

    dyti_group_nccl.cancel(s->real);
    staged_drop(s);
}

static void staged_traffic(void *self, struct dyti_group_traffic *out_traffic)
{
    dyti_group_nccl.traffic(((struct staged *)self)->real, out_traffic);
}

static uint64_t staged_region_bytes(uint32_t size)
{
    return dyti_group_nccl.region_bytes(size);
}

static uint64_t staged_region_apart(uint32_t size)
{
    return dyti_group_shm.region_bytes(size);
}

/* Both differ in where their members meet. */
#define STAGED_TABLE(called, region, opened)                                   \
    {                                                                          \
        .struct_size = sizeof(struct dyti_group_ops), .name = (called),        \
        .region_bytes = (region), .open = (opened), .close = staged_close,     \
        .barrier = staged_barrier, .broadcast = staged_broadcast,              \
        .all_gather = staged_all_gather,                                       \
        .reduce_scatter = staged_reduce_scatter,                               \
        .all_reduce = staged_all_reduce, .exchange = staged_exchange,          \
        .traffic = staged_traffic, .post = staged_post, .poll = staged_poll,   \
        .wait = staged_wait, .cancel = staged_cancel, .landed = staged_landed  \
    }

static const struct dyti_group_ops group_staged =
    STAGED_TABLE("nccl, from the host", staged_region_bytes, staged_open);
static const struct dyti_group_ops group_staged_apart =
    STAGED_TABLE("nccl, over hosts", staged_region_apart, staged_open_apart);

#endif /* DYT_GPUSIM_GROUP_STAGED_H */
