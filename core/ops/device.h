/* Devices that may be missing: what state one is in, and what to do about it.
 * Implemented by bridge/device/<name>, in a module (ops/module.h).
 *
 * A missing device is never an error for those that compute on the host: start
 * always fills in its report.  Threads: any. */
#ifndef DYTI_OPS_DEVICE_H
#define DYTI_OPS_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#define DYTI_DEVICES_MAX 32u /* of one machine; more are counted, not told */

/* X(id, name): the names are what people and scripts read. */
#define DYTI_DEVICE_STATE_MAP(X)                                               \
    X(READY, "ready")                                                          \
    X(NOT_BUILT, "not built")                                                  \
    X(NO_DRIVER, "no driver")                                                  \
    X(NO_DEVICE, "no device")                                                  \
    X(DRIVER_TOO_OLD, "driver too old")                                        \
    X(NO_MEMORY, "out of memory at start")                                     \
    X(FAILED, "failed at start")

enum dyti_device_state {
#define DYTI_DEVICE_STATE_ENUM(id, name) DYTI_DEVICE_##id,
    DYTI_DEVICE_STATE_MAP(DYTI_DEVICE_STATE_ENUM)
#undef DYTI_DEVICE_STATE_ENUM
        DYTI_DEVICE_STATE_COUNT
};

struct dyti_device_row {
    char name[96];
    char uuid[48]; /* "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" */
    uint32_t arch; /* 90: sm_90 */
    uint64_t memory_bytes;
    bool maps_memory; /* physical memory apart from addresses */
    bool exports_fd;  /* and such memory as a file descriptor */
    uint32_t reaches; /* rows, as bits, whose memory its work reads and writes
                       */
};

struct dyti_device_report {
    enum dyti_device_state state;
    char text[512];  /* what is there, or what is wrong and its remedy */
    uint32_t driver; /* 12040: made for CUDA 12.4; 0: not known */
    uint32_t count;  /* of devices; row[] has the first DYTI_DEVICES_MAX */
    struct dyti_device_row row[DYTI_DEVICES_MAX];
};

struct dyti_device_ops {
    uint32_t struct_size;
    const char *name; /* "cuda" */

    /* Start the driver, and everything on each device that a run would start
     * there; what that took is given back. */
    void (*probe)(struct dyti_device_report *out_report);
};

const char *dyti_device_state_name(enum dyti_device_state state);

#endif /* DYTI_OPS_DEVICE_H */
