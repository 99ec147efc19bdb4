/* The same boxes in a segment of ours: dense, each row-major, each at a
 * multiple of a cache line. */
#include "lib/link_internal.h"

#include "base/checked.h"
#include "base/pool.h"
#include "base/thread.h"
#include "device/host/host.h"
#include "device/host/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE       64u
#define PAGE       4096u
#define HUGE_BYTES (2u << 20)
#define MOST_HANDS 8u

/* ---- boxes ----------------------------------------------------------------
 */

static bool is_float(uint8_t dtype)
{
    return dtype <= DYTI_F16;
}

/* What a shard becomes; DYTI_SNAPSHOT_SKIP: nothing. */
static uint8_t dtype_of(const struct dyti_shard *shard, const uint8_t *dtype,
                        uint32_t tensor_count)
{
    uint8_t wish;

    if (dtype == NULL) {
        return shard->dtype;
    }
    wish = dtype[(size_t)shard->kind * tensor_count + shard->tensor];
    if (wish == DYTI_SNAPSHOT_SKIP) {
        return wish;
    }
    return is_float(wish) && is_float(shard->dtype) &&
                   dyti_dtype_bytes((enum dyti_dtype)wish) <
                       dyti_dtype_bytes((enum dyti_dtype)shard->dtype)
               ? wish
               : shard->dtype;
}

/* false: more bytes than there can be. */
static bool place_dense(struct dyti_shard *shard, uint64_t *end)
{
    uint64_t bytes = dyti_dtype_bytes((enum dyti_dtype)shard->dtype);

    for (uint32_t d = shard->box.ndim; d-- > 0;) {
        uint64_t size = (uint64_t)(shard->box.hi[d] - shard->box.lo[d]);

        shard->stride[d] = (int64_t)bytes;
        if (dyti_mul_overflow(bytes, size, &bytes) || bytes > INT64_MAX / 4) {
            return false;
        }
    }
    shard->offset = dyti_align_up(*end, LINE);
    *end = shard->offset + bytes;
    return *end <= INT64_MAX / 4;
}

static enum dyt_status fill(struct dyti_dense *dense,
                            const struct dyti_view *view, uint32_t kinds,
                            const uint8_t *dtype, uint32_t tensor_count)
{
    struct dyti_view *out = &dense->view;

    for (uint32_t kind = 0; kind < DYTI_KIND_COUNT; kind++) {
        uint64_t end = 0;

        out->kind_first[kind] = out->shard_count;
        for (uint32_t i = view->kind_first[kind];
             i < view->kind_first[kind + 1] && (kinds >> kind & 1u) != 0; i++) {
            struct dyti_shard shard = view->shard[i];

            shard.dtype = dtype_of(&shard, dtype, tensor_count);
            if (shard.dtype == DYTI_SNAPSHOT_SKIP) {
                continue;
            }
            if (!place_dense(&shard, &end)) {
                return DYTI_FAIL(DYT_ERR_OVERFLOW, "a dense copy of tensor %u",
                                 shard.tensor);
            }
            dense->from[out->shard_count] = i;
            out->shard[out->shard_count++] = shard;
        }
        out->region_bytes[kind] = end;
        dense->region_at[kind] = dense->bytes;
        dense->bytes += dyti_align_up(end, PAGE);
    }
    out->kind_first[DYTI_KIND_COUNT] = out->shard_count;
    return DYT_OK;
}

enum dyt_status dyti_dense_init(struct dyti_dense *dense,
                                const struct dyti_view *view, uint32_t kinds,
                                const uint8_t *dtype, uint32_t tensor_count)
{
    size_t count = (size_t)view->shard_count + 1;
    enum dyt_status st;

    *dense = (struct dyti_dense){0};
    dense->view.shard = calloc(count, sizeof(*dense->view.shard));
    dense->from = calloc(count, sizeof(*dense->from));
    st = dense->view.shard == NULL || dense->from == NULL
             ? DYTI_FAIL(DYT_ERR_NOMEM, "a dense copy of %u shards",
                         view->shard_count)
             : fill(dense, view, kinds, dtype, tensor_count);
    if (st != DYT_OK) {
        dyti_dense_fini(dense);
    }
    return st;
}

void dyti_dense_fini(struct dyti_dense *dense)
{
    dyti_view_fini(&dense->view);
    free(dense->from);
    *dense = (struct dyti_dense){0};
}

/* One side is the dense segment. */
static enum dyt_status make_copy(const struct dyti_dense *dense, uint32_t index,
                                 const struct dyti_reach *reach,
                                 unsigned char *base, bool in,
                                 struct dyti_copy *out)
{
    const struct dyti_shard *own = &dense->view.shard[index];
    const struct dyti_shard *other =
        &reach->memory->view.shard[dense->from[index]];
    unsigned char *here = base + dense->region_at[own->kind] + own->offset;
    unsigned char *there =
        dyti_reach_address(reach, other->kind, other->offset);
    uint32_t shift = DYTI_COPY_DIMS - own->box.ndim;

    if (own->box.ndim > DYTI_COPY_DIMS) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "tensor %u has %u dims, at most %u are available",
                         own->tensor, own->box.ndim, DYTI_COPY_DIMS);
    }
    if (there == NULL) {
        return DYTI_FAIL(DYT_ERR_INVALID, "a shard of tensor %u is not mapped",
                         own->tensor);
    }
    *out = (struct dyti_copy){.src = in ? there : here,
                              .dst = in ? here : there,
                              .size = {1, 1, 1, 1},
                              .src_dtype = in ? other->dtype : own->dtype,
                              .dst_dtype = in ? own->dtype : other->dtype};
    for (uint32_t d = 0; d < own->box.ndim; d++) {
        out->size[d + shift] = own->box.hi[d] - own->box.lo[d];
        out->src_stride[d + shift] = in ? other->stride[d] : own->stride[d];
        out->dst_stride[d + shift] = in ? own->stride[d] : other->stride[d];
    }
    if (own->box.ndim == 0) {
        out->src_stride[DYTI_COPY_DIMS - 1] =
            dyti_dtype_bytes((enum dyti_dtype)out->src_dtype);
        out->dst_stride[DYTI_COPY_DIMS - 1] =
            dyti_dtype_bytes((enum dyti_dtype)out->dst_dtype);
    }
    return DYT_OK;
}

enum dyt_status dyti_dense_copies(const struct dyti_dense *dense,
                                  const struct dyti_reach *reach,
                                  unsigned char *base, bool in,
                                  struct dyti_copy **out_copy)
{
    struct dyti_copy *copy =
        calloc((size_t)dense->view.shard_count + 1, sizeof(*copy));
    enum dyt_status st = copy == NULL ? DYTI_FAIL(DYT_ERR_NOMEM, "%u copies",
                                                  dense->view.shard_count)
                                      : DYT_OK;

    for (uint32_t i = 0; i < dense->view.shard_count && st == DYT_OK; i++) {
        st = make_copy(dense, i, reach, base, in, &copy[i]);
    }
    if (st != DYT_OK) {
        free(copy);
        return st;
    }
    *out_copy = copy;
    return DYT_OK;
}

/* ---- segments -------------------------------------------------------------
 */

static enum dyt_status try_segment(const char *name, uint64_t bytes,
                                   enum dyti_page_kind pages,
                                   struct dyti_segment_mem *out_segment)
{
    const struct dyti_memory_ops *ops = &dyti_memory_host;
    int handle = -1;
    enum dyt_status st = ops->create(name, pages, &handle);

    if (st == DYT_OK && fcntl(handle, F_SETFD, FD_CLOEXEC) != 0) {
        st = DYTI_FAIL(DYT_ERR_IO, "segment %s: %s", name, strerror(errno));
    }
    st = st != DYT_OK ? st : ops->resize(handle, pages, bytes, NULL, 0);
    st = st != DYT_OK ? st : ops->map(handle, pages, bytes, out_segment);
    if (st != DYT_OK && handle >= 0) {
        ops->close(handle);
    }
    return st;
}

enum dyt_status dyti_segment_open(const char *name, uint64_t bytes,
                                  struct dyti_segment_mem *out_segment)
{
    enum dyti_page_kind pages;
    enum dyt_status st;

    *out_segment = (struct dyti_segment_mem){.handle = -1};
    if (bytes == 0) {
        return DYT_OK;
    }
    pages = dyti_memory_host.probe(bytes);
    st = try_segment(name, bytes, pages, out_segment);
    if (st != DYT_OK && pages == DYTI_PAGES_HUGETLB) { /* somebody was faster */
        st = try_segment(name, bytes, DYTI_PAGES_THP, out_segment);
    }
    return st;
}

enum dyt_status dyti_segment_reserve(const char *name, uint64_t bytes,
                                     struct dyti_segment_mem *out_segment)
{
    const struct dyti_memory_ops *ops = &dyti_memory_host;
    int handle = -1;
    enum dyt_status st;

    *out_segment = (struct dyti_segment_mem){.handle = -1};
    if (bytes == 0) {
        return DYT_OK;
    }
    bytes = dyti_align_up(bytes, HUGE_BYTES);
    st = ops->create(name, DYTI_PAGES_THP, &handle);
    /* not by resize(), which wants all of it to be there */
    if (st == DYT_OK && (fcntl(handle, F_SETFD, FD_CLOEXEC) != 0 ||
                         ftruncate(handle, (off_t)bytes) != 0)) {
        st = DYTI_FAIL(DYT_ERR_IO, "segment %s: %s", name, strerror(errno));
    }
    st = st != DYT_OK ? st
                      : ops->map(handle, DYTI_PAGES_THP, bytes, out_segment);
    if (st != DYT_OK && handle >= 0) {
        ops->close(handle);
        *out_segment = (struct dyti_segment_mem){.handle = -1};
    }
    return st;
}

enum dyt_status dyti_segment_check_room(const struct dyti_segment_mem *segment)
{
    uint64_t have = dyti_memory_host.available(DYTI_PAGES_THP);

    return segment->bytes <= have
               ? DYT_OK
               : DYTI_FAIL(DYT_ERR_NOMEM,
                           "%llu MiB of the host are needed, %llu MiB are "
                           "available",
                           (unsigned long long)(segment->bytes >> 20),
                           (unsigned long long)(have >> 20));
}

void dyti_segment_seal(struct dyti_segment_mem *segment)
{
    if (segment->base != NULL && segment->handle >= 0) {
        dyti_memory_host.close(segment->handle);
        segment->handle = -1;
    }
}

void dyti_segment_close(struct dyti_segment_mem *segment)
{
    if (segment->base != NULL) {
        dyti_segment_seal(segment);
        dyti_memory_host.unmap(segment);
    }
    *segment = (struct dyti_segment_mem){.handle = -1};
}

/* ---- hands ----------------------------------------------------------------
 */

uint32_t dyti_hands_cores(void)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);

    return cores < 1 ? 1 : (uint32_t)cores;
}

enum dyt_status dyti_hands_open(struct dyti_hands *hands, uint32_t threads,
                                const struct dyti_guard *guard)
{
    struct dyti_kernel_params params = {.struct_size = sizeof(params)};
    struct dyti_kernels *k = &hands->kernels;
    sigset_t before;
    enum dyt_status st = DYT_OK;

    *hands = (struct dyti_hands){.kernels.ops = &dyti_kernels_host_copy};
    threads = threads < 1 ? 1 : threads > MOST_HANDS ? MOST_HANDS : threads;
    if (threads > 1) { /* signals are the program's, not our threads' */
        dyti_signals_block(&before);
        st = dyti_pool_create(threads, &hands->pool);
        dyti_signals_restore(&before);
    }
    params.pool = hands->pool;
    st = st != DYT_OK ? st : k->ops->open(&params, &k->self);
    if (st == DYT_OK && guard != NULL) {
        st = dyti_guard_kernels(guard, hands->pool, k, k);
    }
    if (st != DYT_OK) {
        dyti_hands_close(hands);
    }
    return st;
}

void dyti_hands_close(struct dyti_hands *hands)
{
    if (hands->kernels.self != NULL) {
        hands->kernels.ops->close(hands->kernels.self);
    }
    dyti_pool_destroy(hands->pool);
    *hands = (struct dyti_hands){0};
}
