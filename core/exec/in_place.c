/* The transfer of mode in_place: source and destination lie over each other, so
 * the switch runs a schedule of waves (sched/overlay.h) instead of the plan's.
 */
#include "exec/switch_internal.h"

#include "sched/overlay.h"

#include <stdlib.h>

struct dyti_in_place {
    struct dyti_schedule *schedule; /* owned */
    uint32_t overwrites; /* the first wave that writes over the old here */
    uint64_t slots;      /* of messages: byte of the staging memory */
    uint64_t fingerprint;
};

/* Own memory, and that of ranks with which nothing goes by messages. */
static enum dyt_status check_mapped(const struct dyti_switch *self,
                                    const struct dyti_schedule_links *links)
{
    const struct dyti_switch_params *params = &self->params;

    for (uint32_t r = 0; r < params->world_size; r++) {
        if (params->segment[r] == NULL && params->map[r].total_bytes > 0 &&
            dyti_links_map(links, params->rank, r)) {
            return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                             "a switch in place through mapped memory: that of "
                             "rank %u is not; let the link go by messages",
                             r);
        }
    }
    return DYT_OK;
}

enum dyt_status dyti_in_place_init(struct dyti_switch *self)
{
    const struct dyti_switch_params *params = &self->params;
    const struct dyti_schedule_options *options =
        &params->plan->schedule->options;
    const struct dyti_schedule_links none = {.strategy = NULL};
    struct dyti_overlay_params how = {
        .inputs = &params->plan->plan->inputs,
        .map = params->map,
        .world_size = params->world_size,
        .side = options->side,
        .chunk_bytes = options->chunk_bytes,
        .links = params->links == NULL ? &none : params->links};
    struct dyti_overlay overlay = {0};
    enum dyt_status st = check_mapped(self, how.links);

    if (st == DYT_OK) {
        self->in_place = calloc(1, sizeof(*self->in_place));
        st = self->in_place == NULL
                 ? DYTI_FAIL(DYT_ERR_NOMEM, "a switch in place")
                 : dyti_overlay_build(&how, &overlay);
    }
    if (st == DYT_OK) {
        st = dyti_overlay_schedule(&how, &overlay, params->rank,
                                   &self->in_place->schedule);
    }
    if (st == DYT_OK) {
        self->schedule = self->in_place->schedule;
        self->in_place->overwrites =
            dyti_overlay_overwrites(&overlay, params->rank);
        self->in_place->slots = overlay.cap_bytes - overlay.slot_bytes;
        self->in_place->fingerprint = dyti_overlay_fingerprint(&overlay);
    }
    dyti_overlay_fini(&overlay);
    return st;
}

void dyti_in_place_fini(struct dyti_switch *self)
{
    if (self->in_place != NULL) {
        dyti_schedule_destroy(self->in_place->schedule);
        free(self->in_place);
    }
}

uint64_t dyti_in_place_fingerprint(const struct dyti_switch *self)
{
    return self->in_place == NULL ? 0 : self->in_place->fingerprint;
}

unsigned char *dyti_in_place_slots(const struct dyti_switch *self)
{
    const struct dyti_switch_params *params = &self->params;

    return self->in_place == NULL
               ? NULL
               : dyti_switch_address(params, params->rank, DYTI_SLOT_STAGING, 0,
                                     self->in_place->slots);
}

/* ---- a run ------------------------------------------------------------------
 */

void dyti_in_place_fence(struct dyti_switch *self, uint64_t epoch,
                         uint32_t wave)
{
    if (self->in_place != NULL && self->in_place->overwrites == wave + 1) {
        dyti_mode_overwrites(self, epoch);
    }
}

/* Says that it has done what it has not. */
static enum dyt_status skip(struct dyti_switch *self, uint64_t epoch)
{
    uint32_t waves = self->schedule->options.links.wave_count;
    enum dyt_status st = DYT_OK;

    for (uint32_t w = 0; w + 1 < waves && st == DYT_OK; w++) {
        dyti_in_place_fence(self, epoch, w);
        st = dyti_fence_meet(self, epoch, w);
    }
    return st;
}

enum dyt_status dyti_in_place_transfer(struct dyti_switch *self,
                                       const struct dyti_switch_order *order)
{
    const struct dyti_group *all = &self->params.all;
    bool skips = false;
    enum dyt_status st = DYT_OK;

#ifdef DYT_TEST_HOOKS
    skips = order->fault == DYTI_FAULT_SKIP;
#endif
    dyti_switch_at(order, DYTI_AT_WAVE);
    if (self->in_place->overwrites == 0) {
        dyti_mode_overwrites(self, order->epoch);
    }
    /* Nobody pushes over the old of one who does not know it yet. */
    if (self->schedule->options.side == DYTI_SIDE_PUSH && all->size > 1) {
        st = all->ops->barrier(all->self);
    }
    if (st == DYT_OK && skips) {
        return skip(self, order->epoch);
    }
    if (st != DYT_OK) {
        dyti_fence_give_up(self, order->epoch);
        return st;
    }
    return dyti_switch_transfer(self, order);
}
