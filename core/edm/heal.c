/* Makes a layout of what is whole, and switches from it to the layout itself.
 */
#include "edm/heal.h"

#include "edm/world_internal.h"

#include <stdlib.h>
#include <string.h>

struct healing {
    struct dyti_world *world;
    enum dyti_arena_slot slot;
    const struct dyti_layout *layout;
    uint64_t *lost;            /* [world_size] bits of kinds, owned */
    struct dyti_layout *whole; /* shards that may be read, owned */
    struct dyti_switch_cache *cache;
    struct dyti_switch *self;
};

static uint64_t lost_kinds(const struct healing *h, uint32_t rank)
{
    uint64_t lost = dyti_control_lost(h->world->control, rank), kinds = 0;

    for (uint32_t k = 0; k < DYTI_KIND_COUNT; k++) {
        if ((lost & dyti_region_bit(h->slot, k)) != 0 &&
            dyti_layout_holds(h->layout, (enum dyti_kind)k) &&
            h->world->map[rank].bytes[h->slot][k] > 0) {
            kinds |= UINT64_C(1) << k;
        }
    }
    return kinds;
}

/* All ranks read the same: whoever changes it comes here too. */
static enum dyt_status find_lost(struct healing *h,
                                 struct dyti_heal_report *report)
{
    uint32_t ranks = h->world->params.world_size;

    h->lost = calloc(ranks, sizeof(*h->lost));
    if (h->lost == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u ranks", ranks);
    }
    for (uint32_t r = 0; r < ranks; r++) {
        h->lost[r] = lost_kinds(h, r);
        report->rank_count += h->lost[r] != 0;
        report->kinds |= (uint32_t)h->lost[r];
    }
    return DYT_OK;
}

/* What of a rank's view is of wanted kinds, and whole. */
static enum dyt_status copy_view(const struct healing *h, uint32_t rank,
                                 uint32_t kinds, struct dyti_view *out)
{
    const struct dyti_view *view = dyti_layout_view(h->layout, rank);

    *out = (struct dyti_view){0};
    out->shard = calloc((size_t)view->shard_count + 1, sizeof(*out->shard));
    if (out->shard == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u shards", view->shard_count);
    }
    for (uint32_t k = 0; k < DYTI_KIND_COUNT; k++) {
        out->kind_first[k] = out->shard_count;
        if ((kinds >> k & 1u) == 0 || (h->lost[rank] >> k & 1u) != 0) {
            continue;
        }
        out->region_bytes[k] = view->region_bytes[k];
        for (uint32_t i = view->kind_first[k]; i < view->kind_first[k + 1];
             i++) {
            out->shard[out->shard_count++] = view->shard[i];
        }
    }
    out->kind_first[DYTI_KIND_COUNT] = out->shard_count;
    return DYT_OK;
}

static enum dyt_status make_whole(struct healing *h, uint32_t kinds)
{
    uint32_t ranks = h->world->params.world_size;
    struct dyti_layout_desc desc = h->layout->desc;
    struct dyti_view *view = calloc(ranks, sizeof(*view));
    enum dyt_status st = DYT_OK;

    if (view == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "views of %u ranks", ranks);
    }
    desc.dialect = DYTI_DIALECT_LIST;
    for (uint32_t k = 0; k < DYTI_KIND_COUNT; k++) {
        desc.residency[k] = (kinds >> k & 1u) != 0 ? DYTI_HELD : DYTI_DROPPED;
    }
    for (uint32_t r = 0; r < ranks && st == DYT_OK; r++) {
        st = copy_view(h, r, kinds, &view[r]);
    }
    st = st != DYT_OK
             ? st
             : dyti_layout_from_views(h->layout->model, &desc, view, &h->whole);
    for (uint32_t r = 0; r < ranks && st != DYT_OK; r++) {
        dyti_view_fini(&view[r]);
    }
    free(view);
    if (st == DYT_ERR_LAYOUT) {
        DYTI_NOTE("looking for replicas that are whole: there are none of "
                  "this; switch from a layout that is whole, or resume from "
                  "the newest checkpoint");
    }
    return st;
}

static enum dyt_status prepare(struct healing *h,
                               const struct dyti_world_switch_options *options,
                               uint32_t kinds)
{
    struct dyti_world_switch_options wish = {.no_fan_out = true};
    struct dyti_plan_inputs inputs = {
        .dst = h->layout, .dst_slot = h->slot, .heals = true};
    enum dyt_status st = make_whole(h, kinds);

    if (options != NULL) {
        wish = *options;
    }
    if (wish.strategy == NULL) {
        wish.strategy = dyti_strategy_at(0);
    }
    for (uint32_t k = 0; k < DYTI_KIND_COUNT; k++) {
        if ((kinds >> k & 1u) != 0) {
            inputs.want[inputs.want_count++] = (struct dyti_plan_want){
                .kind = (enum dyti_kind)k,
                .source = {{h->whole, h->slot, (enum dyti_kind)k}},
                .source_count = 1};
        }
    }
    st = st != DYT_OK ? st : dyti_switch_cache_create(&h->cache);
    return st != DYT_OK ? st
                        : dyti_world_build_switch(h->world, h->cache, &inputs,
                                                  &wish, h->slot, &h->self);
}

enum dyt_status dyti_world_heal(struct dyti_world *world,
                                enum dyti_arena_slot slot,
                                const struct dyti_world_switch_options *options,
                                const struct dyti_switch_order *order,
                                struct dyti_heal_report *out_report)
{
    struct dyti_group all = dyti_world_all(world);
    struct dyti_heal_report report = {0};
    struct dyti_switch_order same = *order;
    struct healing h = {.world = world, .slot = slot};
    enum dyt_status st;

    if (slot >= DYTI_ARENA_SLOT_COUNT || world->params.layout[slot] == NULL) {
        return DYTI_FAIL(DYT_ERR_INVALID, "healing %s: there is no such layout",
                         dyti_slot_name(slot));
    }
    h.layout = world->params.layout[slot];
    st = all.size > 1 ? all.ops->barrier(all.self) : DYT_OK;
    st = st != DYT_OK ? st : find_lost(&h, &report);
    if (st == DYT_OK && report.rank_count > 0) {
        same.version = atomic_load(&world->control->version);
        st = prepare(&h, options, report.kinds);
        st = st != DYT_OK ? st
                          : dyti_switch_run(h.self, &same, &report.transfer);
    }
    if (st == DYT_OK) {
        *out_report = report;
    } else {
        DYTI_NOTE("healing the %s layout of %u ranks", dyti_slot_name(slot),
                  report.rank_count);
    }
    dyti_switch_destroy(h.self);
    dyti_switch_cache_destroy(h.cache);
    dyti_layout_destroy(h.whole);
    free(h.lost);
    return st;
}
