/* Lists of boxes on the simulated device and on the host: the same bytes at the
 * same offsets, moved by the kernel and by the reference. */
#ifndef DYT_GPUSIM_BOXES_CASE_H
#define DYT_GPUSIM_BOXES_CASE_H

#include "sim_test.h"

#include "device/cuda/boxes.h"
#include "device/cuda/kernels.h"
#include "device/host/host.h"

/* Two memories, each here and on the device. */
struct boxes_case {
    uint64_t random;
    unsigned char *src, *dst; /* [bytes] host */
    unsigned char *dev_src, *dev_dst;
    size_t bytes;
    size_t src_used, dst_used;
    struct dyti_cuda_boxes list;
};

static inline uint32_t draw(uint64_t *state, uint32_t below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33) % below;
}

static inline void *on_device(const void *from, size_t bytes)
{
    void *to = dyt_sim_alloc(bytes);

    assert_cuda(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
    return to;
}

static inline struct boxes_case boxes_case_new(uint64_t seed, size_t bytes)
{
    struct boxes_case c = {.random = seed * 2 + 1, .bytes = bytes};

    c.src = malloc(bytes);
    c.dst = malloc(bytes);
    assert_non_null(c.src);
    assert_non_null(c.dst);
    for (size_t i = 0; i < bytes; i++) {
        c.src[i] = (unsigned char)draw(&c.random, 256);
        c.dst[i] = (unsigned char)(i * 7);
    }
    c.dev_src = on_device(c.src, bytes);
    c.dev_dst = on_device(c.dst, bytes);
    return c;
}

static inline void boxes_case_free(struct boxes_case *c)
{
    free(c->src);
    free(c->dst);
    assert_cuda(cudaFree(c->dev_src));
    assert_cuda(cudaFree(c->dev_dst));
    dyti_cuda_boxes_fini(&c->list);
}

/* A copy between the host's memories, as one between the device's. */
static inline struct dyti_copy as_device(const struct boxes_case *c,
                                         const struct dyti_copy *copy)
{
    struct dyti_copy there = *copy;

    there.src = c->dev_src + ((const unsigned char *)copy->src - c->src);
    there.dst = c->dev_dst + ((unsigned char *)copy->dst - c->dst);
    return there;
}

/* One launch of the list. */
static inline void boxes_launch(const struct dyti_cuda_boxes *list,
                                uint32_t most_blocks)
{
    uint64_t launches = gpusim_launches();
    void *box, *first;

    if (list->count == 0) {
        return;
    }
    box = on_device(list->box, list->count * sizeof(*list->box));
    first = on_device(list->first, (list->count + 1) * sizeof(*list->first));
    assert_cuda(dyti_cuda_copy_launch(
        box, first, list->count, list->first[list->count], most_blocks, NULL));
    assert_cuda(cudaDeviceSynchronize());
    if (gpusim_simulates()) {
        assert_int_equal(launches + 1, gpusim_launches());
    }
    assert_cuda(cudaFree(box));
    assert_cuda(cudaFree(first));
}

/* The device's destination equals the host's, byte for byte. */
static inline void boxes_compare(const struct boxes_case *c, uint64_t seed)
{
    unsigned char *got = dyt_sim_get(c->dev_dst, c->bytes);

    for (size_t i = 0; i < c->bytes; i++) {
        if (got[i] != c->dst[i]) {
            fail_msg("seed %" PRIu64 ": byte %zu is %u, want %u", seed, i,
                     got[i], c->dst[i]);
        }
    }
    free(got);
}

/* The list by the kernel, the copies by the reference. */
static inline void boxes_run(struct boxes_case *c, const struct dyti_copy *copy,
                             size_t count, uint32_t most_blocks, uint64_t seed)
{
    for (size_t i = 0; i < count; i++) {
        struct dyti_copy there = as_device(c, &copy[i]);

        assert_ok(dyti_cuda_boxes_add(&c->list, &there, 1));
    }
    boxes_launch(&c->list, most_blocks);
    assert_ok(dyti_kernels_reference.copy(NULL, copy, count));
    boxes_compare(c, seed);
}

/* Strides of an array of size + pad in an order of its axes; its bytes. */
static inline size_t strides_in(const int64_t *size, const int64_t *pad,
                                const uint32_t *order, int64_t element,
                                int64_t *stride)
{
    int64_t step = element;

    for (int i = (int)DYTI_COPY_DIMS - 1; i >= 0; i--) {
        stride[order[i]] = step;
        step *= size[order[i]] + pad[order[i]];
    }
    return (size_t)step;
}

#endif /* DYT_GPUSIM_BOXES_CASE_H */
