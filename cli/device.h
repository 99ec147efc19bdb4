/* The devices that a machine may have besides the host: what state they are in.
 * Opens the module, which nothing else does: a program that computes on the
 * host starts as if there were none. */
#ifndef DYTI_CLI_DEVICE_H
#define DYTI_CLI_DEVICE_H

#include "base/error.h"
#include "ops/device.h"
#include "ops/group.h"
#include "ops/memory.h"

/* Always fills in the report: a module that is not there, or of another build,
 * is DYTI_DEVICE_NOT_BUILT. */
void dyti_device_probe(const char *name, struct dyti_device_report *out_report);

/* The same of the groups in that module. */
void dyti_device_probe_groups(const char *name,
                              struct dyti_group_report *out_report);

/* In which pages a device's memory can be shared between ranks, found by trying
 * it there.  text: "device VMM, device IPC", or why there are none. */
struct dyti_device_segments {
    bool has[DYTI_PAGES_COUNT];
    char text[512];
};
void dyti_device_try_segments(const char *name, const char *uuid,
                              struct dyti_device_segments *out_segments);

/* Why a job cannot have devices.kind = "cuda": DYT_ERR_UNSUPPORTED, with the
 * state's name and its remedy. */
enum dyt_status dyti_device_refuse_cuda(void);

#endif /* DYTI_CLI_DEVICE_H */
