/* Where messages have their slots: in memory of the host; in memory that host
 * and device share, if a group of the host carries what a device packs; in
 * memory of the device, if a group of devices does. */
#include "exec/staging.h"

#include <stdlib.h>
#include <string.h>

#define SEGMENT_ALIGN (2u << 20)

/* Messages go from and to memory of the device by themselves. */
static bool takes_device(const struct dyti_switch *self)
{
    const struct dyti_switch_params *p = &self->params;

    return p->device_memory != NULL && p->message->queued != NULL &&
           p->message->queued(p->message_self);
}

static enum dyt_status make_segment(const struct dyti_memory_ops *memory,
                                    uint64_t bytes, struct dyti_staging *out)
{
    uint64_t all = (bytes + SEGMENT_ALIGN - 1) / SEGMENT_ALIGN * SEGMENT_ALIGN;
    enum dyti_page_kind pages = memory->probe(all);
    int handle = -1;
    enum dyt_status st;

    if (pages == DYTI_PAGES_COUNT) {
        return DYTI_FAIL(DYT_ERR_DEVICE, "no memory of the device for staging");
    }
    st = memory->create("staging", pages, &handle);
    if (st != DYT_OK) {
        return st;
    }
    st = memory->resize(handle, pages, all, NULL, 0);
    if (st == DYT_OK) {
        st = memory->map(handle, pages, all, &out->segment);
    }
    if (st != DYT_OK) {
        memory->close(handle);
        return st;
    }
    out->segment.handle = handle;
    out->is_segment = true;
    out->at = out->segment.base;
    return DYT_OK;
}

/* Touched once, and reused for ever. */
static enum dyt_status make_on_host(const struct dyti_memory_ops *memory,
                                    uint64_t bytes, struct dyti_staging *out)
{
    enum dyt_status st = DYT_OK;

    if (memory != NULL) {
        st = memory->host_alloc(bytes, &out->own);
    } else {
        out->own = aligned_alloc(64, bytes);
        st = out->own != NULL ? DYT_OK : DYTI_FAIL(DYT_ERR_NOMEM, "staging");
    }
    if (st == DYT_OK) {
        memset(out->own, 0, bytes);
        out->at = out->own;
    }
    return st;
}

enum dyt_status dyti_staging_make(const struct dyti_switch *self,
                                  uint64_t bytes, struct dyti_staging *out)
{
    const struct dyti_memory_ops *memory = self->params.device_memory;
    enum dyt_status st = DYT_OK;

    *out = (struct dyti_staging){.memory = memory, .bytes = bytes};
    /* groups of the host take messages, and those of a segment of a device are
     * not within their reach */
    if (memory == NULL || takes_device(self)) {
        out->at = dyti_in_place_slots(self);
    }
    if (out->at != NULL) {
        return DYT_OK;
    }
    st = takes_device(self) ? make_segment(memory, bytes, out)
                            : make_on_host(memory, bytes, out);
    if (st != DYT_OK) {
        DYTI_NOTE("%llu bytes of staging on rank %u", (unsigned long long)bytes,
                  self->params.rank);
        return st;
    }
    if (out->is_segment && self->params.message->attach != NULL) {
        self->params.message->attach(self->params.message_self, out->at, bytes);
        out->is_attached = true;
    }
    return DYT_OK;
}

void dyti_staging_free(const struct dyti_switch *self,
                       struct dyti_staging *staging)
{
    const struct dyti_memory_ops *memory = staging->memory;

    if (staging->is_attached) {
        self->params.message->detach(self->params.message_self, staging->at);
    }
    if (staging->is_segment) {
        int handle = staging->segment.handle;

        memory->unmap(&staging->segment);
        memory->close(handle);
    } else if (memory != NULL) {
        memory->host_free(staging->own);
    } else {
        free(staging->own);
    }
    *staging = (struct dyti_staging){0};
}
