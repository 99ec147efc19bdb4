/* A lane: small memory of ours that bytes pass between memory that may be gone
 * and the kernels that copy and hash. */
#ifndef DYTI_LIB_GUARD_LANE_H
#define DYTI_LIB_GUARD_LANE_H

#include "lib/guard.h"

#include <limits.h>
#include <sys/uio.h>

#define DYTI_LANE_BYTES (64u << 10) /* stays in a core's own cache */
#define DYTI_LANE_RUNS  IOV_MAX

/* Bytes come in to `at`, and go out from `at` + DYTI_LANE_BYTES. */
struct dyti_lane {
    int fd;
    unsigned char *at; /* the file, mapped */
    void *kernels;     /* of one thread, for what lies in the lane */
    struct iovec run[DYTI_LANE_RUNS];
};

enum dyt_status dyti_lane_open(struct dyti_lane *lane,
                               const struct dyti_kernel_ops *ops);
void dyti_lane_close(struct dyti_lane *lane, const struct dyti_kernel_ops *ops);

/* One end of a copy, or what is hashed. */
struct dyti_guard_side {
    unsigned char *at;
    const struct dyti_guard_range *range; /* NULL: nothing can happen to it */
    int64_t stride[DYTI_COPY_DIMS];       /* bytes */
    int64_t element;                      /* bytes */
};

/* How the bytes of a side lie in a lane: as in memory, without the gaps. */
struct dyti_lane_image {
    int64_t stride[DYTI_COPY_DIMS];
    uint32_t order[DYTI_COPY_DIMS]; /* dimensions, the slowest first */
    uint32_t outer;                 /* of those, how many are walked */
    int64_t run_bytes, runs, bytes;
    int64_t span; /* bytes in memory, with the gaps */
};

struct dyti_lane_image dyti_lane_image(const int64_t size[DYTI_COPY_DIMS],
                                       const struct dyti_guard_side *side);
static inline bool dyti_lane_fits(const struct dyti_lane_image *image)
{
    return image->bytes <= DYTI_LANE_BYTES && image->runs <= DYTI_LANE_RUNS;
}

/* From memory into the lane, or out of it.  false: it is gone, *out_bad is the
 * address. */
bool dyti_lane_pass(struct dyti_lane *lane, const struct dyti_guard *guard,
                    const struct dyti_lane_image *image,
                    const int64_t size[DYTI_COPY_DIMS],
                    const struct dyti_guard_side *side, bool in,
                    uint64_t *out_bad);

#endif /* DYTI_LIB_GUARD_LANE_H */
