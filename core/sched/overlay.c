/* Which copies, in which wave: all copies of all ranks as items of waves, cut
 * as small as the cap asks for. */
#include "sched/overlay.h"

#include "base/array.h"
#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

#define MOST_BYTES  (64u << 20) /* written by a copy */
#define LEAST_BYTES 256u
#define MOST_ITEMS  (1u << 18) /* of all ranks */
#define LEAST_SLOT  (DYTI_SLOT_HEAD_BYTES + DYTI_SLOT_LEAST_BYTES)

void dyti_overlay_fini(struct dyti_overlay *overlay)
{
    dyti_spans_fini(&overlay->spans);
    dyti_waves_fini(&overlay->waves);
    free(overlay->item);
    free(overlay->span);
    *overlay = (struct dyti_overlay){0};
}

/* ---- items ------------------------------------------------------------------
 */

/* While the items of one size of copies are listed. */
struct listing {
    const struct dyti_overlay_params *params;
    struct dyti_overlay *overlay;
    size_t item_cap, span_cap;
};

static void reach(const struct dyti_arena_map *map, uint32_t slot,
                  uint32_t kind, uint64_t offset, const int64_t size[],
                  const int64_t stride[], uint8_t dtype, uint64_t *out_lo,
                  uint64_t *out_hi)
{
    struct dyti_span_reach r = dyti_span_reach(size, stride, dtype);
    uint64_t at = map->offset[slot][kind] + offset;

    *out_lo = at - r.below;
    *out_hi = at + r.above;
}

/* It lies where it should already. */
static bool stays(const struct dyti_wave_item *item,
                  const struct dyti_span *span)
{
    return item->src_rank == item->dst_rank && item->src_lo == item->dst_lo &&
           span->src_dtype == span->dst_dtype &&
           memcmp(span->src_stride, span->dst_stride,
                  sizeof(span->src_stride)) == 0;
}

static enum dyt_status add_item(struct listing *l,
                                const struct dyti_plan_pair *pair,
                                uint32_t index)
{
    struct dyti_overlay *o = l->overlay;
    const struct dyti_span *s = &o->spans.span[index];
    struct dyti_wave_item item = {.src_rank = pair->src_rank,
                                  .dst_rank = pair->dst_rank};
    enum dyt_status st;

    reach(&l->params->map[item.src_rank], s->src_slot, s->src_kind,
          s->src_offset, s->size, s->src_stride, s->src_dtype, &item.src_lo,
          &item.src_hi);
    reach(&l->params->map[item.dst_rank], s->dst_slot, s->dst_kind,
          s->dst_offset, s->size, s->dst_stride, s->dst_dtype, &item.dst_lo,
          &item.dst_hi);
    item.staged_bytes =
        dyti_span_elements(s) * dyti_dtype_bytes((enum dyti_dtype)s->dst_dtype);
    if (stays(&item, s)) {
        return DYT_OK;
    }
    st = DYTI_GROW(o->item, l->item_cap, o->item_count + 1);
    st = st != DYT_OK ? st : DYTI_GROW(o->span, l->span_cap, o->item_count + 1);
    if (st == DYT_OK) {
        o->item[o->item_count] = item;
        o->span[o->item_count++] = index;
    }
    return st;
}

static enum dyt_status add_pair(struct listing *l, const struct dyti_plan *plan,
                                const struct dyti_plan_pair *pair,
                                uint64_t chunk_bytes)
{
    size_t first = l->overlay->spans.span_count;
    enum dyt_status st =
        dyti_spans_add(&l->overlay->spans, plan, pair, chunk_bytes);

    for (size_t i = first; st == DYT_OK && i < l->overlay->spans.span_count;
         i++) {
        st = add_item(l, pair, (uint32_t)i);
    }
    return st;
}

static enum dyt_status list_items(const struct dyti_overlay_params *params,
                                  const struct dyti_plan *plan,
                                  uint64_t chunk_bytes,
                                  struct dyti_overlay *out_overlay)
{
    struct listing l = {.params = params, .overlay = out_overlay};
    enum dyt_status st = DYT_OK;

    *out_overlay = (struct dyti_overlay){0};
    for (uint32_t p = 0; p < plan->pair_count && st == DYT_OK; p++) {
        st = dyti_plan_stays(plan, &plan->pair[p])
                 ? DYT_OK
                 : add_pair(&l, plan, &plan->pair[p], chunk_bytes);
    }
    if (st != DYT_OK) {
        dyti_overlay_fini(out_overlay);
    }
    return st;
}

/* ---- how much there is ------------------------------------------------------
 */

/* While a cap is met. */
struct search {
    const struct dyti_overlay_params *params;
    const struct dyti_plan *plan;
    uint64_t plan_bytes, cap_bytes;
    uint64_t least_slots, most_slots; /* bytes; 0: nothing goes by messages */
};

static uint64_t down(uint64_t bytes)
{
    return bytes / DYTI_WAVE_ALIGN * DYTI_WAVE_ALIGN;
}

/* Slots take as much as is asked for, but at most half of what there is. */
static void divide(struct search *s)
{
    const struct dyti_schedule_links *links = s->params->links;
    uint64_t want = links->staging_bytes != 0
                        ? links->staging_bytes
                        : (uint64_t)DYTI_SLOTS_DEFAULT *
                              (DYTI_SLOT_MESSAGE_BYTES + DYTI_SLOT_HEAD_BYTES);
    bool any = false;

    for (uint32_t p = 0; p < s->plan->pair_count; p++) {
        any |= !dyti_links_map(links, s->plan->pair[p].src_rank,
                               s->plan->pair[p].dst_rank);
    }
    if (any) {
        want = down(want < s->cap_bytes / 2 ? want : s->cap_bytes / 2);
        s->least_slots = LEAST_SLOT;
        s->most_slots = want > LEAST_SLOT ? want : LEAST_SLOT;
    }
}

static void search_init(struct search *s,
                        const struct dyti_overlay_params *params,
                        const struct dyti_plan *plan)
{
    uint64_t cap = UINT64_MAX;

    *s = (struct search){.params = params, .plan = plan};
    for (uint32_t p = 0; p < plan->pair_count; p++) {
        s->plan_bytes += plan->pair[p].write_bytes;
    }
    for (uint32_t r = 0; r < params->world_size; r++) {
        uint64_t own = params->map[r].staging_bytes;

        cap = own < cap ? own : cap;
    }
    s->cap_bytes = down(cap);
    divide(s);
}

static uint64_t least_chunk(const struct search *s)
{
    uint64_t least = s->plan_bytes / MOST_ITEMS;

    return least > LEAST_BYTES ? least : LEAST_BYTES;
}

/* Copies in sizes that are tried, from large to small; 0: no more.  Sizes that
 * would cut nothing are left out. */
static uint64_t next_chunk(const struct search *s, uint64_t chunk)
{
    chunk = chunk == 0 ? MOST_BYTES : chunk / 4;
    while (chunk / 4 > s->plan_bytes && chunk > LEAST_BYTES) {
        chunk /= 4;
    }
    return chunk < least_chunk(s) ? 0 : chunk;
}

/* ---- waves ------------------------------------------------------------------
 */

/* With no chunk the cap was met: find the smallest that can be.  It may be one
 * below the cap, as the order found depends on the room that there is: then the
 * waves are those.  *out_cap: of the smallest. */
static enum dyt_status find_smallest(const struct search *s,
                                     struct dyti_overlay *out_overlay,
                                     uint64_t *out_cap)
{
    uint32_t ranks = s->params->world_size;
    enum dyt_status st = DYT_OK;

    *out_cap = UINT64_MAX;
    for (uint64_t chunk = next_chunk(s, 0); st == DYT_OK && chunk != 0;
         chunk = next_chunk(s, chunk)) {
        struct dyti_overlay o;
        uint64_t cap = 0;

        st = list_items(s->params, s->plan, chunk, &o);
        if (st != DYT_OK) {
            break;
        }
        st = dyti_waves_smallest(o.item, o.item_count, ranks, &cap);
        if (st == DYT_OK && cap + s->least_slots < *out_cap) {
            *out_cap = cap + s->least_slots;
        }
        if (st == DYT_OK && out_overlay != NULL && *out_cap <= s->cap_bytes) {
            st = dyti_waves_build(o.item, o.item_count, ranks, cap, &o.waves);
            if (st == DYT_OK) {
                o.slot_bytes = s->least_slots;
                *out_overlay = o;
                return DYT_OK;
            }
        }
        dyti_overlay_fini(&o);
    }
    return st;
}

/* With as many slots as are useful, then with one. */
static enum dyt_status try_waves(const struct search *s, struct dyti_overlay *o,
                                 bool *out_fits)
{
    const uint64_t slots[2] = {s->most_slots, s->least_slots};
    enum dyt_status st = DYT_OK;

    *out_fits = false;
    for (int i = 0; i < 2 && st == DYT_OK && !*out_fits; i++) {
        if (slots[i] > s->cap_bytes || (i == 1 && slots[1] == slots[0])) {
            continue;
        }
        st = dyti_waves_try(o->item, o->item_count, s->params->world_size,
                            s->cap_bytes - slots[i], out_fits, &o->waves);
        o->slot_bytes = slots[i];
    }
    return st;
}

static enum dyt_status or_refuse(const struct search *s,
                                 struct dyti_overlay *out_overlay)
{
    uint64_t smallest = 0;
    enum dyt_status st = find_smallest(s, out_overlay, &smallest);

    return st != DYT_OK || smallest <= s->cap_bytes
               ? st
               : DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                           "a switch in place with %llu bytes of staging "
                           "memory: the smallest cap that works is %llu",
                           (unsigned long long)s->cap_bytes,
                           (unsigned long long)smallest);
}

/* The largest copies with which the cap can be met. */
static enum dyt_status find_waves(const struct search *s,
                                  struct dyti_overlay *out_overlay)
{
    for (uint64_t chunk = next_chunk(s, 0); chunk != 0;
         chunk = next_chunk(s, chunk)) {
        bool fits = false;
        struct dyti_overlay o;
        enum dyt_status st = list_items(s->params, s->plan, chunk, &o);

        if (st != DYT_OK) {
            return st;
        }
        st = try_waves(s, &o, &fits);
        if (st == DYT_OK && fits) {
            *out_overlay = o;
            return DYT_OK;
        }
        dyti_overlay_fini(&o);
        if (st != DYT_OK) {
            return st;
        }
    }
    return or_refuse(s, out_overlay);
}

enum dyt_status dyti_overlay_smallest(const struct dyti_overlay_params *params,
                                      uint64_t *out_cap_bytes)
{
    struct dyti_plan *plan = NULL;
    struct search s;
    enum dyt_status st = dyti_plan_build(params->inputs, &plan);

    if (st == DYT_OK) {
        search_init(&s, params, plan);
        st = find_smallest(&s, NULL, out_cap_bytes);
    }
    dyti_plan_destroy(plan);
    return st;
}

enum dyt_status dyti_overlay_build(const struct dyti_overlay_params *params,
                                   struct dyti_overlay *out_overlay)
{
    struct dyti_plan *plan = NULL;
    struct search s;
    enum dyt_status st;

    if (params->inputs->fan_out) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "a switch in place takes no part from a sibling: what "
                         "wave 0 writes there may be overwritten; plan without "
                         "fan-out");
    }
    st = dyti_plan_build(params->inputs, &plan);
    if (st == DYT_OK) {
        search_init(&s, params, plan);
        st = find_waves(&s, out_overlay);
    }
    if (st == DYT_OK) {
        out_overlay->cap_bytes = s.cap_bytes;
    }
    dyti_plan_destroy(plan);
    return st;
}

/* ---- what came of it --------------------------------------------------------
 */

uint64_t dyti_overlay_fingerprint(const struct dyti_overlay *overlay)
{
    const struct dyti_waves *waves = &overlay->waves;
    uint64_t state = DYTI_FINGERPRINT_SEED;

    for (size_t a = 0; a < waves->action_count; a++) {
        state = dyti_fingerprint_u64(state, waves->action[a].item);
        state = dyti_fingerprint_u64(state, waves->action[a].what);
        state = dyti_fingerprint_u64(state, waves->action[a].staging_offset);
    }
    state = dyti_fingerprint_u64(state, overlay->slot_bytes);
    return dyti_fingerprint_u64(state, waves->wave_count);
}

uint32_t dyti_overlay_overwrites(const struct dyti_overlay *overlay,
                                 uint32_t rank)
{
    const struct dyti_waves *waves = &overlay->waves;

    for (size_t w = 0; w < waves->wave_count; w++) {
        for (size_t a = waves->wave_first[w]; a < waves->wave_first[w + 1];
             a++) {
            if (waves->action[a].what != DYTI_WAVE_STAGE &&
                overlay->item[waves->action[a].item].dst_rank == rank) {
                return (uint32_t)w;
            }
        }
    }
    return (uint32_t)waves->wave_count;
}
