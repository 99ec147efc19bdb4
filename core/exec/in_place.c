/* The transfer of mode in_place: source and destination lie over each other, so
 * copies go in waves (sched/waves.h), with a barrier between two of them.  A
 * rank that fails goes on meeting the others, and says so in its vote. */
#include "exec/switch_internal.h"

#include "base/array.h"
#include "base/hash.h"
#include "sched/spans.h"
#include "sched/waves.h"

#include <stdlib.h>
#include <string.h>

#define MOST_BYTES  (64u << 20) /* written by a copy */
#define LEAST_BYTES 256u
#define MOST_ITEMS  (1u << 18) /* of all ranks */

struct dyti_in_place {
    struct dyti_copy *copy; /* [count], by wave, peer; owned */
    uint32_t *peer;         /* [count], owned */
    uint32_t count;
    size_t cap, peer_cap;
    uint32_t *first; /* [wave_count + 1] */
    uint32_t wave_count;
    uint32_t overwrites; /* the first wave that writes over the old here */
    uint64_t fingerprint, peak_bytes;
};

/* ---- items ------------------------------------------------------------------
 */

/* All copies of all ranks, and what they touch. */
struct items {
    const struct dyti_switch *self;
    struct dyti_span_list spans;
    uint32_t *src_rank, *dst_rank; /* [spans.span_count] */
    size_t src_cap, dst_cap;
    struct dyti_wave_item *item;
    uint32_t *span; /* [item_count] of each item */
    size_t item_count, item_cap, span_cap;
};

static void items_fini(struct items *it)
{
    dyti_spans_fini(&it->spans);
    free(it->src_rank);
    free(it->dst_rank);
    free(it->item);
    free(it->span);
}

static uint64_t extent(const int64_t size[], const int64_t stride[],
                       uint8_t dtype)
{
    uint64_t bytes = dyti_dtype_bytes((enum dyti_dtype)dtype);

    for (uint32_t d = 0; d < DYTI_SPAN_DIMS; d++) {
        bytes += (uint64_t)(size[d] - 1) * (uint64_t)stride[d];
    }
    return bytes;
}

static uint64_t place(const struct items *it, uint32_t rank, uint32_t slot,
                      uint32_t kind, uint64_t offset)
{
    return it->self->params.map[rank].offset[slot][kind] + offset;
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

static enum dyt_status add_item(struct items *it, uint32_t index)
{
    const struct dyti_span *s = &it->spans.span[index];
    struct dyti_wave_item item = {.src_rank = it->src_rank[index],
                                  .dst_rank = it->dst_rank[index]};
    enum dyt_status st;

    item.src_lo =
        place(it, item.src_rank, s->src_slot, s->src_kind, s->src_offset);
    item.src_hi = item.src_lo + extent(s->size, s->src_stride, s->src_dtype);
    item.dst_lo =
        place(it, item.dst_rank, s->dst_slot, s->dst_kind, s->dst_offset);
    item.dst_hi = item.dst_lo + extent(s->size, s->dst_stride, s->dst_dtype);
    item.staged_bytes =
        dyti_span_elements(s) * dyti_dtype_bytes((enum dyti_dtype)s->dst_dtype);
    if (stays(&item, s)) {
        return DYT_OK;
    }
    st = DYTI_GROW(it->item, it->item_cap, it->item_count + 1);
    st = st != DYT_OK ? st
                      : DYTI_GROW(it->span, it->span_cap, it->item_count + 1);
    if (st == DYT_OK) {
        it->item[it->item_count] = item;
        it->span[it->item_count++] = index;
    }
    return st;
}

static enum dyt_status add_pair(struct items *it, const struct dyti_plan *plan,
                                const struct dyti_plan_pair *pair,
                                uint64_t chunk_bytes)
{
    size_t first = it->spans.span_count;
    enum dyt_status st = dyti_spans_add(&it->spans, plan, pair, chunk_bytes);
    size_t count = it->spans.span_count;

    st = st != DYT_OK ? st : DYTI_GROW(it->src_rank, it->src_cap, count + 1);
    st = st != DYT_OK ? st : DYTI_GROW(it->dst_rank, it->dst_cap, count + 1);
    for (size_t i = first; st == DYT_OK && i < count; i++) {
        it->src_rank[i] = pair->src_rank;
        it->dst_rank[i] = pair->dst_rank;
        st = add_item(it, (uint32_t)i);
    }
    return st;
}

static enum dyt_status items_init(struct items *it,
                                  const struct dyti_switch *self,
                                  const struct dyti_plan *plan,
                                  uint64_t chunk_bytes)
{
    enum dyt_status st = DYT_OK;

    *it = (struct items){.self = self};
    for (uint32_t p = 0; p < plan->pair_count && st == DYT_OK; p++) {
        st = add_pair(it, plan, &plan->pair[p], chunk_bytes);
    }
    if (st != DYT_OK) {
        items_fini(it);
    }
    return st;
}

/* ---- waves ------------------------------------------------------------------
 */

static uint64_t plan_bytes(const struct dyti_plan *plan)
{
    uint64_t bytes = 0;

    for (uint32_t p = 0; p < plan->pair_count; p++) {
        bytes += plan->pair[p].write_bytes;
    }
    return bytes;
}

static uint64_t cap_of(const struct dyti_switch *self)
{
    uint64_t cap = UINT64_MAX;

    for (uint32_t r = 0; r < self->params.world_size; r++) {
        uint64_t own = self->params.map[r].staging_bytes;

        cap = own < cap ? own : cap;
    }
    return cap / DYTI_WAVE_ALIGN * DYTI_WAVE_ALIGN;
}

static uint64_t least_chunk(const struct dyti_plan *plan)
{
    uint64_t least = plan_bytes(plan) / MOST_ITEMS;

    return least > LEAST_BYTES ? least : LEAST_BYTES;
}

/* Copies in sizes that are tried, from large to small; 0: no more.  Sizes that
 * would cut nothing are left out. */
static uint64_t next_chunk(const struct dyti_plan *plan, uint64_t chunk)
{
    uint64_t all = plan_bytes(plan);

    chunk = chunk == 0 ? MOST_BYTES : chunk / 4;
    while (chunk / 4 > all && chunk > LEAST_BYTES) {
        chunk /= 4;
    }
    return chunk < least_chunk(plan) ? 0 : chunk;
}

/* With no chunk the cap was met: find the smallest that can be.  It may be one
 * below the cap, as the order found depends on the room that there is; else say
 * what would do. */
static enum dyt_status find_smallest(const struct dyti_switch *self,
                                     const struct dyti_plan *plan,
                                     struct items *out_items,
                                     struct dyti_waves *out_waves)
{
    uint64_t best = UINT64_MAX;
    enum dyt_status st = DYT_OK;

    for (uint64_t chunk = next_chunk(plan, 0); st == DYT_OK && chunk != 0;
         chunk = next_chunk(plan, chunk)) {
        struct items it;
        uint64_t cap = 0;

        st = items_init(&it, self, plan, chunk);
        if (st != DYT_OK) {
            break;
        }
        st = dyti_waves_smallest(it.item, it.item_count,
                                 self->params.world_size, &cap);
        if (st == DYT_OK && cap < cap_of(self)) {
            st = dyti_waves_build(it.item, it.item_count,
                                  self->params.world_size, cap, out_waves);
            if (st == DYT_OK) {
                *out_items = it;
                return DYT_OK;
            }
        }
        best = cap < best ? cap : best;
        items_fini(&it);
    }
    return st != DYT_OK
               ? st
               : DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                           "a switch in place with %llu bytes of staging "
                           "memory: the smallest cap that works is %llu",
                           (unsigned long long)cap_of(self),
                           (unsigned long long)best);
}

/* The largest copies with which the cap can be met. */
static enum dyt_status find_waves(const struct dyti_switch *self,
                                  const struct dyti_plan *plan,
                                  struct items *out_items,
                                  struct dyti_waves *out_waves)
{
    uint64_t cap = cap_of(self);

    for (uint64_t chunk = next_chunk(plan, 0); chunk != 0;
         chunk = next_chunk(plan, chunk)) {
        bool fits = false;
        enum dyt_status st = items_init(out_items, self, plan, chunk);

        if (st != DYT_OK) {
            return st;
        }
        st = dyti_waves_try(out_items->item, out_items->item_count,
                            self->params.world_size, cap, &fits, out_waves);
        if (st == DYT_OK && fits) {
            return DYT_OK;
        }
        items_fini(out_items);
        if (st != DYT_OK) {
            return st;
        }
    }
    return find_smallest(self, plan, out_items, out_waves);
}

/* ---- own copies -------------------------------------------------------------
 */

static enum dyt_status add_copy(struct dyti_in_place *in,
                                const struct dyti_switch *self,
                                const struct items *it,
                                const struct dyti_wave_action *action)
{
    const struct dyti_wave_item *item = &it->item[action->item];
    const struct dyti_span *span = &it->spans.span[it->span[action->item]];
    uint32_t own = self->params.rank;
    unsigned char *base = self->params.segment[own];
    struct dyti_copy c = {.src_dtype = span->src_dtype,
                          .dst_dtype = span->dst_dtype};
    int64_t stride = (int64_t)dyti_dtype_bytes((enum dyti_dtype)c.dst_dtype);
    uint32_t peer = item->src_rank;
    enum dyt_status st;

    c.src = (const unsigned char *)self->params.segment[peer] + item->src_lo;
    c.dst = base + item->dst_lo;
    memcpy(c.size, span->size, sizeof(c.size));
    memcpy(c.src_stride, span->src_stride, sizeof(c.src_stride));
    memcpy(c.dst_stride, span->dst_stride, sizeof(c.dst_stride));
    if (action->what != DYTI_WAVE_DIRECT) { /* dense in between */
        unsigned char *staged = base + self->params.map[own].staging_offset +
                                action->staging_offset;
        bool in_now = action->what == DYTI_WAVE_STAGE;

        for (uint32_t d = DYTI_COPY_DIMS; d-- > 0;) {
            *(in_now ? &c.dst_stride[d] : &c.src_stride[d]) = stride;
            stride *= c.size[d];
        }
        if (in_now) {
            c.dst = staged;
        } else {
            c.src = staged;
            c.src_dtype = c.dst_dtype;
            peer = own;
        }
    }
    st = DYTI_GROW(in->copy, in->cap, in->count + 1u);
    st = st != DYT_OK ? st : DYTI_GROW(in->peer, in->peer_cap, in->count + 1u);
    if (st == DYT_OK) {
        in->copy[in->count] = c;
        in->peer[in->count++] = peer;
    }
    return st;
}

/* Those of a wave with one peer, then with the next. */
static enum dyt_status add_wave(struct dyti_in_place *in,
                                const struct dyti_switch *self,
                                const struct items *it,
                                const struct dyti_wave_action *action,
                                size_t count)
{
    uint32_t ranks = self->params.world_size, own = self->params.rank;

    for (uint32_t k = 0; k < ranks; k++) {
        uint32_t peer = (own + k) % ranks;

        for (size_t a = 0; a < count; a++) {
            const struct dyti_wave_item *item = &it->item[action[a].item];
            uint32_t from = action[a].what == DYTI_WAVE_UNSTAGE
                                ? item->dst_rank
                                : item->src_rank;
            enum dyt_status st;

            if (item->dst_rank != own || from != peer) {
                continue;
            }
            st = add_copy(in, self, it, &action[a]);
            if (st != DYT_OK) {
                return st;
            }
            if (action[a].what != DYTI_WAVE_STAGE &&
                in->overwrites > in->wave_count) {
                in->overwrites = in->wave_count;
            }
        }
    }
    return DYT_OK;
}

static uint64_t fingerprint_of(const struct dyti_waves *waves)
{
    uint64_t state = DYTI_FINGERPRINT_SEED;

    for (size_t a = 0; a < waves->action_count; a++) {
        state = dyti_fingerprint_u64(state, waves->action[a].item);
        state = dyti_fingerprint_u64(state, waves->action[a].what);
        state = dyti_fingerprint_u64(state, waves->action[a].staging_offset);
    }
    return dyti_fingerprint_u64(state, waves->wave_count);
}

static enum dyt_status resolve(struct dyti_in_place *in,
                               const struct dyti_switch *self,
                               const struct items *it,
                               const struct dyti_waves *waves)
{
    enum dyt_status st = DYT_OK;

    in->first = calloc(waves->wave_count + 1, sizeof(*in->first));
    if (in->first == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu waves", waves->wave_count);
    }
    in->overwrites = UINT32_MAX;
    for (size_t w = 0; w < waves->wave_count && st == DYT_OK; w++) {
        size_t lo = waves->wave_first[w], hi = waves->wave_first[w + 1];

        st = add_wave(in, self, it, waves->action + lo, hi - lo);
        in->first[++in->wave_count] = in->count;
    }
    in->fingerprint = fingerprint_of(waves);
    in->peak_bytes = waves->peak_bytes;
    return st;
}

enum dyt_status dyti_in_place_init(struct dyti_switch *self)
{
    struct dyti_plan *plan = NULL;
    struct dyti_waves waves = {0};
    struct items it = {0};
    enum dyt_status st;

    if (self->schedule->options.side != DYTI_SIDE_PULL) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "a switch in place is pulled: each rank knows when "
                         "its own memory may be overwritten");
    }
    if (self->params.plan->plan->inputs.fan_out) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "a switch in place takes no part from a sibling: what "
                         "wave 0 writes there may be overwritten; plan without "
                         "fan-out");
    }
    for (uint32_t r = 0; r < self->params.world_size; r++) {
        if (self->params.segment[r] == NULL &&
            self->params.map[r].total_bytes > 0) {
            return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                             "a switch in place needs the memory of all ranks "
                             "mapped, that of rank %u is not: use staged",
                             r);
        }
    }
    self->in_place = calloc(1, sizeof(*self->in_place));
    if (self->in_place == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a switch in place");
    }
    st = dyti_plan_build(&self->params.plan->plan->inputs, &plan);
    st = st != DYT_OK ? st : find_waves(self, plan, &it, &waves);
    if (st == DYT_OK) {
        st = resolve(self->in_place, self, &it, &waves);
        items_fini(&it);
    }
    dyti_waves_fini(&waves);
    dyti_plan_destroy(plan);
    return st;
}

void dyti_in_place_fini(struct dyti_switch *self)
{
    if (self->in_place != NULL) {
        free(self->in_place->copy);
        free(self->in_place->peer);
        free(self->in_place->first);
        free(self->in_place);
    }
}

uint64_t dyti_in_place_fingerprint(const struct dyti_switch *self)
{
    return self->in_place == NULL ? 0 : self->in_place->fingerprint;
}

/* ---- a run ------------------------------------------------------------------
 */

static enum dyt_status post(struct dyti_switch *self, uint32_t lo, uint32_t hi)
{
    const struct dyti_in_place *in = self->in_place;
    const struct dyti_mover_ops *mover = self->params.mover;
    enum dyt_status st = DYT_OK;

    while (lo < hi && st == DYT_OK) {
        struct dyti_move move = {.struct_size = sizeof(move),
                                 .peer = in->peer[lo],
                                 .copy = in->copy + lo};
        dyti_ticket ticket = 0;

        while (lo < hi && in->peer[lo] == move.peer) {
            move.copy_count++;
            lo++;
        }
        do {
            st = mover->post(self->params.mover_self, &move, &ticket);
        } while (st == DYT_PENDING);
        while (st == DYT_OK && (st = mover->poll(self->params.mover_self,
                                                 ticket)) == DYT_PENDING) {
            st = DYT_OK;
        }
    }
    return st;
}

enum dyt_status dyti_in_place_transfer(struct dyti_switch *self,
                                       const struct dyti_switch_order *order)
{
    const struct dyti_in_place *in = self->in_place;
    const struct dyti_group *all = &self->params.all;
    bool skips = false;
    enum dyt_status st = DYT_OK;

#ifdef DYT_TEST_HOOKS
    skips = order->fault == DYTI_FAULT_SKIP;
#endif
    for (uint32_t w = 0; w < in->wave_count; w++) {
        dyti_switch_at(order, DYTI_AT_WAVE);
        if (w == in->overwrites) {
            dyti_mode_overwrites(self, order->epoch);
        }
        if (st == DYT_OK && !skips) {
            st = post(self, in->first[w], in->first[w + 1]);
        }
        if (w + 1 < in->wave_count && all->size > 1) {
            enum dyt_status met = all->ops->barrier(all->self);

            if (met != DYT_OK) {
                return st != DYT_OK ? st : met;
            }
        }
    }
    return st;
}
