/* What the kernel does for us: bytes of memory that may be gone, to and from a
 * file of ours.  write() and read() of them end early, or with EFAULT, where a
 * load or a store would be a signal. */
#include "lib/guard_lane.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define DIMS DYTI_COPY_DIMS

enum dyt_status dyti_lane_open(struct dyti_lane *lane,
                               const struct dyti_kernel_ops *ops)
{
    struct dyti_kernel_params params = {.struct_size = sizeof(params)};
    enum dyt_status st =
        dyti_memfd_open("dynatrain lane", 2u * DYTI_LANE_BYTES, &lane->fd);
    void *at;

    if (st != DYT_OK) {
        return st;
    }
    at = mmap(NULL, 2u * DYTI_LANE_BYTES, PROT_READ | PROT_WRITE,
              MAP_SHARED | MAP_POPULATE, lane->fd, 0);
    if (at == MAP_FAILED) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "mapping %u bytes",
                         2u * DYTI_LANE_BYTES);
    }
    lane->at = at;
    return ops->open(&params, &lane->kernels);
}

void dyti_lane_close(struct dyti_lane *lane, const struct dyti_kernel_ops *ops)
{
    if (lane->kernels != NULL) {
        ops->close(lane->kernels);
    }
    if (lane->at != NULL) {
        (void)munmap(lane->at, 2u * DYTI_LANE_BYTES);
    }
    if (lane->fd >= 0) {
        (void)close(lane->fd);
    }
    lane->kernels = NULL;
    lane->at = NULL;
    lane->fd = -1;
}

struct dyti_lane_image dyti_lane_image(const int64_t size[DIMS],
                                       const struct dyti_guard_side *side)
{
    struct dyti_lane_image out = {.run_bytes = side->element,
                                  .runs = 1,
                                  .bytes = side->element,
                                  .span = side->element};
    bool dense = true;

    for (uint32_t d = 0; d < DIMS; d++) {
        uint32_t at = d;

        for (; at > 0 && side->stride[out.order[at - 1]] < side->stride[d];
             at--) {
            out.order[at] = out.order[at - 1];
        }
        out.order[at] = d;
    }
    for (uint32_t i = DIMS; i-- > 0;) {
        uint32_t d = out.order[i];

        out.stride[d] = out.bytes;
        out.bytes *= size[d];
        out.span += (size[d] - 1) * side->stride[d];
        dense &= size[d] == 1 || side->stride[d] == out.run_bytes;
        if (dense) {
            out.run_bytes *= size[d];
        } else {
            out.runs *= size[d];
            out.outer = out.outer == 0 ? i + 1 : out.outer;
        }
    }
    return out;
}

static int list_runs(struct dyti_lane *lane,
                     const struct dyti_lane_image *image, const int64_t *size,
                     const struct dyti_guard_side *side)
{
    int64_t x[DIMS] = {0};
    int count = 0;

    for (;;) {
        unsigned char *at = side->at;
        uint32_t i = image->outer;

        for (uint32_t d = 0; d < image->outer; d++) {
            at += x[d] * side->stride[image->order[d]];
        }
        lane->run[count++] = (struct iovec){at, (size_t)image->run_bytes};
        while (i-- > 0) {
            if (++x[i] < size[image->order[i]]) {
                break;
            }
            x[i] = 0;
        }
        if (i == UINT32_MAX) {
            return count;
        }
    }
}

bool dyti_lane_pass(struct dyti_lane *lane, const struct dyti_guard *guard,
                    const struct dyti_lane_image *image,
                    const int64_t size[DIMS],
                    const struct dyti_guard_side *side, bool in,
                    uint64_t *out_bad)
{
    int count = list_runs(lane, image, size, side);
    ssize_t moved = in ? pwritev(lane->fd, lane->run, count, 0)
                       : preadv(lane->fd, lane->run, count, DYTI_LANE_BYTES);
    uint64_t lo = (uint64_t)(uintptr_t)side->at;

    if (moved != (ssize_t)image->bytes) {
        moved = moved < 0 ? 0 : moved;
        *out_bad =
            (uint64_t)(uintptr_t)lane->run[moved / image->run_bytes].iov_base +
            (uint64_t)(moved % image->run_bytes);
        return false;
    }
    /* The last page of a file that was cut within it is still there. */
    *out_bad = lo + (uint64_t)image->span - 1;
    return dyti_guard_is_whole(guard, side->range, *out_bad + 1);
}
