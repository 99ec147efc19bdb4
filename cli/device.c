#include "cli/device.h"

#include "lib/module.h"

#include <stdio.h>
#include <string.h>

void dyti_device_probe(const char *name, struct dyti_device_report *out_report)
{
    const struct dyti_module *module = NULL;
    enum dyt_status st = dyti_module_open(name, &module);

    memset(out_report, 0, sizeof(*out_report));
    if (st == DYT_OK && module->device != NULL) {
        module->device->probe(out_report);
        return;
    }
    out_report->state = DYTI_DEVICE_NOT_BUILT;
    snprintf(out_report->text, sizeof(out_report->text), "%s",
             st != DYT_OK ? dyti_error_message()
                          : "the module has no device in it");
}

void dyti_device_probe_groups(const char *name,
                              struct dyti_group_report *out_report)
{
    const struct dyti_module *module = NULL;
    enum dyt_status st = dyti_module_open(name, &module);

    memset(out_report, 0, sizeof(*out_report));
    if (st == DYT_OK && module->group != NULL && module->group->probe != NULL) {
        module->group->probe(out_report);
        return;
    }
    out_report->state = "not built";
    snprintf(out_report->text, sizeof(out_report->text), "%s",
             st != DYT_OK ? dyti_error_message()
                          : "the module has no groups in it: they are built "
                            "where NCCL's nccl.h is, or with -DDYT_NCCL=on");
}

void dyti_device_try_segments(const char *name, const char *uuid,
                              struct dyti_device_segments *out_segments)
{
    struct dyti_device_segments *s = out_segments;
    const struct dyti_module *module = NULL;
    size_t at = 0;

    memset(s, 0, sizeof(*s));
    if (dyti_module_open(name, &module) != DYT_OK || module->memory == NULL) {
        snprintf(s->text, sizeof(s->text), "the module has no memory in it");
        return;
    }
    if (module->memory->use(uuid) != DYT_OK) {
        snprintf(s->text, sizeof(s->text), "none: %s", module->error_message());
        return;
    }
    for (int pages = 0; pages < DYTI_PAGES_COUNT; pages++) {
        enum dyti_page_kind kind = (enum dyti_page_kind)pages;

        s->has[pages] = module->memory->has(kind);
        if (s->has[pages]) {
            at +=
                (size_t)snprintf(s->text + at, sizeof(s->text) - at, "%s%s",
                                 at > 0 ? ", " : "", dyti_page_kind_name(kind));
        }
    }
    if (at == 0) {
        snprintf(s->text, sizeof(s->text),
                 "none: neither virtual memory nor IPC handles work here");
    }
}

enum dyt_status dyti_device_refuse_cuda(void)
{
    struct dyti_device_report r;

    dyti_device_probe("cuda", &r);
    if (r.state == DYTI_DEVICE_READY) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "devices.kind = \"cuda\": no model kernels: the "
                         "device is ready (%s), but kernels of the model are "
                         "not there yet; use devices.kind = \"host\"",
                         r.text);
    }
    return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                     "devices.kind = \"cuda\": %s: %s; or use devices.kind = "
                     "\"host\"",
                     dyti_device_state_name(r.state), r.text);
}
