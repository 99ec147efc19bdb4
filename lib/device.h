/* Devices that a member's rows lie on, by way of libdynatrain-cuda.so, which is
 * opened where there are such rows and not before.
 *
 * Everything here makes a device the calling thread's own: call it in threads
 * of ours, so that a caller's current device stays what it is.
 * Threads: any for open and look_at; the handles under `lock`. */
#ifndef DYTI_LIB_DEVICE_H
#define DYTI_LIB_DEVICE_H

#include "ops/module.h"
#include "plugin/faults.h"

#include <dynatrain/session.h>

#include <pthread.h>

#define DYTI_DEVICE_NAME_BYTES 48u

struct dyti_device {
    uint8_t uuid[16]; /* zero: the only one */
    char name[DYTI_DEVICE_NAME_BYTES];
    struct dyti_kernels kernels;
};

struct dyti_devices {
    const struct dyti_module *module;
    struct dyti_device *device; /* [count], owned */
    size_t count;
    pthread_mutex_t lock;
};

/* Where a row lies, for those who look at it again when its view is gone. */
struct dyti_device_place {
    const char *name; /* of the row */
    const void *data;
    uint64_t bytes;  /* > 0 */
    uint32_t device; /* index */
};

bool dyti_row_is_on_device(const struct dyt_row *row);

/* Those that the rows name; *out NULL: none does.
 * DYT_ERR_UNSUPPORTED  the module, the driver or a device is missing: which,
 *                      and what to do */
enum dyt_status dyti_devices_open(const struct dyt_view *rows,
                                  struct dyti_devices **out);
void dyti_devices_close(struct dyti_devices *devices);

/* For the tables of the module; NULL: the only one. */
const char *dyti_device_uuid(const struct dyti_device *device);
/* Index of a row's device. */
uint32_t dyti_devices_of(const struct dyti_devices *devices,
                         const struct dyt_row *row);

/* Under the lock: is there memory of that device, wholly?  What is wrong is
 * added. */
void dyti_devices_look(const struct dyti_devices *devices,
                       const struct dyti_device_place *place,
                       struct dyti_found *found);
/* … of all rows of devices. */
void dyti_devices_look_at(struct dyti_devices *devices,
                          const struct dyt_view *rows,
                          struct dyti_found *found);

#endif /* DYTI_LIB_DEVICE_H */
