/* Finds streams that are a collective, and keeps those that cost no more than
 * their pieces. */
#include "sched/collectives.h"

#include "base/array.h"
#include "sched/chains.h"
#include "sched/messages.h"
#include "sched/replay.h"

#include <stdlib.h>
#include <string.h>

void dyti_collectives_fini(struct dyti_collectives *collectives)
{
    dyti_promotion_fini(&collectives->found);
    free(collectives->key);
    *collectives = (struct dyti_collectives){0};
}

static int compare_key(const void *a, const void *b)
{
    const struct dyti_collective_key *x = a, *y = b;

    if (x->src != y->src) {
        return x->src < y->src ? -1 : 1;
    }
    if (x->dst != y->dst) {
        return x->dst < y->dst ? -1 : 1;
    }
    return (x->wave > y->wave) - (x->wave < y->wave);
}

bool dyti_collectives_have(const struct dyti_collectives *collectives,
                           uint32_t src, uint32_t dst, uint32_t wave)
{
    const struct dyti_collective_key key = {src, dst, wave};

    return collectives != NULL && collectives->key_count > 0 &&
           bsearch(&key, collectives->key, collectives->key_count, sizeof(key),
                   compare_key) != NULL;
}

/* ---- does it fit? ------------------------------------------------------- */

/* Slots that the member with most messages of its own needs for a chunk. */
static uint32_t slots_of(const struct dyti_collective *c)
{
    return c->kind == DYTI_COLLECTIVE_BROADCAST    ? 1
           : c->kind == DYTI_COLLECTIVE_ALL_GATHER ? c->member_count
                                                   : c->member_count - 1;
}

static bool fits(const struct dyti_collective *c, uint32_t slot_count)
{
    return slots_of(c) <= slot_count && c->member_count <= DYTI_SLOTS_MAX;
}

/* ---- is it no slower? ---------------------------------------------------- */

/* Messages of the world, in the order in which they start. */
struct line {
    struct dyti_piece *piece; /* [count], owned */
    size_t count, cap;
    size_t *fence; /* [fence_count] where a wave begins, owned */
    size_t fence_count, fence_cap;
};

static void line_fini(struct line *line)
{
    free(line->piece);
    free(line->fence);
}

static enum dyt_status add_message(struct line *line,
                                   const struct dyti_collective *c,
                                   uint32_t src, uint32_t dst, uint64_t lo,
                                   uint64_t hi)
{
    enum dyt_status st = DYTI_GROW(line->piece, line->cap, line->count + 1);

    if (st == DYT_OK) {
        line->piece[line->count++] = (struct dyti_piece){.src = src,
                                                         .dst = dst,
                                                         .from = src,
                                                         .to = dst,
                                                         .wave = c->wave,
                                                         .lo = lo,
                                                         .hi = hi};
    }
    return st;
}

/* A chunk: each in turn to its neighbour, then to the one after, …; so that an
 * all-gather is a matching in each step. */
static enum dyt_status add_chunk(struct line *line,
                                 const struct dyti_collective *c,
                                 const uint32_t *member, uint64_t lo,
                                 uint64_t hi)
{
    enum dyt_status st = DYT_OK;

    for (uint32_t step = 1; step < c->member_count; step++) {
        for (uint32_t m = 0; m < c->member_count && st == DYT_OK; m++) {
            uint32_t src = member[m];
            uint32_t dst = member[(m + step) % c->member_count];
            bool sends =
                c->kind == DYTI_COLLECTIVE_ALL_GATHER ||
                (c->kind == DYTI_COLLECTIVE_GATHER ? dst : src) == c->root;

            st = sends ? add_message(line, c, src, dst, lo, hi) : st;
        }
    }
    return st;
}

/* In the order of collective_steps.c. */
static enum dyt_status add_collectives(struct line *line,
                                       const struct dyti_promotion *found,
                                       uint32_t wave, uint64_t message)
{
    bool more = true;
    enum dyt_status st = DYT_OK;

    for (uint64_t lo = 0; more && st == DYT_OK; lo += message) {
        more = false;
        for (size_t i = 0; i < found->count && st == DYT_OK; i++) {
            const struct dyti_collective *c = &found->collective[i];
            uint64_t left = c->bytes > lo ? c->bytes - lo : 0;

            if (c->wave == wave && left > 0) {
                st = add_chunk(line, c, found->member + c->member_first, lo,
                               lo + (left < message ? left : message));
                more |= left > message;
            }
        }
    }
    return st;
}

/* What all messages take, with these collectives. */
struct trial {
    const struct dyti_schedule_links *links;
    const struct dyti_flow *flow;
    size_t flow_count;
    const struct dyti_chains *chains;
    uint32_t world_size, wave_count, slot_count;
    uint64_t message_bytes;
};

static enum dyt_status seconds_of(const struct trial *t,
                                  const struct dyti_collectives *all,
                                  double *out_s)
{
    struct dyti_message_order order = {.message_bytes = t->message_bytes,
                                       .slot_count = t->slot_count,
                                       .chains = t->chains,
                                       .collectives = all};
    struct dyti_replay_options options = {.costs = true};
    struct dyti_cluster cluster;
    struct line line = {0};
    size_t next = 0;
    enum dyt_status st =
        dyti_message_cluster(t->links, t->world_size, &cluster);

    st = st != DYT_OK
             ? st
             : dyti_message_order_pieces(&order, t->world_size, t->links,
                                         t->flow, NULL, t->flow_count);
    for (uint32_t w = 0; w < t->wave_count && st == DYT_OK; w++) {
        st = DYTI_GROW(line.fence, line.fence_cap, line.fence_count + 1);
        if (st == DYT_OK && w > 0) {
            line.fence[line.fence_count++] = line.count;
        }
        st = st != DYT_OK
                 ? st
                 : add_collectives(&line, &all->found, w, t->message_bytes);
        for (; st == DYT_OK && next < order.piece_count &&
               order.piece[next].wave == w;
             next++) {
            st = DYTI_GROW(line.piece, line.cap, line.count + 1);
            if (st == DYT_OK) {
                line.piece[line.count++] = order.piece[next];
            }
        }
    }
    options.fence = line.fence;
    options.fence_count = line.fence_count;
    *out_s = 0;
    if (st == DYT_OK && line.count > 0) {
        st = dyti_replay(&cluster, line.piece, line.count, &options, out_s);
    }
    free(order.piece);
    line_fini(&line);
    return st;
}

/* ---- the whole ----------------------------------------------------------- */

static enum dyt_status add_keys(struct dyti_collectives *all,
                                const struct dyti_collective *c,
                                const struct dyti_flow *flow)
{
    enum dyt_status st =
        DYTI_GROW(all->key, all->key_cap, all->key_count + c->item_count);

    for (uint32_t i = 0; i < c->item_count && st == DYT_OK; i++) {
        const struct dyti_flow *f = &flow[all->found.item[c->item_first + i]];

        all->key[all->key_count++] =
            (struct dyti_collective_key){f->src, f->dst, f->wave};
    }
    return st;
}

/* Of what was found, that of some kinds. */
static enum dyt_status keep(const struct dyti_promotion *found,
                            const struct trial *t, uint32_t kinds,
                            struct dyti_collectives *out_all)
{
    struct dyti_promotion *own = &out_all->found;
    enum dyt_status st = DYT_OK;

    out_all->key_count = 0;
    own->count = 0;
    for (size_t i = 0; i < found->count && st == DYT_OK; i++) {
        const struct dyti_collective *c = &found->collective[i];

        if ((kinds >> c->kind & 1u) != 0 && fits(c, t->slot_count)) {
            own->collective[own->count++] = *c;
            st = add_keys(out_all, c, t->flow);
        }
    }
    if (out_all->key_count > 1) {
        qsort(out_all->key, out_all->key_count, sizeof(*out_all->key),
              compare_key);
    }
    return st;
}

static uint32_t kinds_of(const struct dyti_promotion *found, uint32_t slots)
{
    uint32_t kinds = 0;

    for (size_t i = 0; i < found->count; i++) {
        kinds |= fits(&found->collective[i], slots)
                     ? 1u << found->collective[i].kind
                     : 0;
    }
    return kinds;
}

/* Those of all kinds; of all but one, of one; none: the first with which all
 * messages take no longer than without. */
static enum dyt_status keep_what_pays(const struct dyti_promotion *found,
                                      const struct trial *t,
                                      struct dyti_collectives *all)
{
    enum { MOST = 2 * DYTI_COLLECTIVE_KIND_COUNT + 2 };
    uint32_t kinds[MOST] = {0}, count = 0;
    uint32_t every = kinds_of(found, t->slot_count);
    double without = 0, with = 0;
    enum dyt_status st = DYT_OK;

    kinds[count++] = every;
    for (uint32_t k = 0; k < DYTI_COLLECTIVE_KIND_COUNT; k++) {
        kinds[count++] = every & ~(1u << k);
    }
    for (uint32_t k = 0; k < DYTI_COLLECTIVE_KIND_COUNT; k++) {
        kinds[count++] = every & 1u << k;
    }
    kinds[count++] = 0;
    if (every != 0) {
        st = keep(found, t, 0, all);
        st = st != DYT_OK ? st : seconds_of(t, all, &without);
    }
    for (uint32_t i = 0; i < count && st == DYT_OK; i++) {
        if (kinds[i] == every && i > 0) {
            continue; /* tried */
        }
        st = keep(found, t, kinds[i], all);
        if (st != DYT_OK || kinds[i] == 0) {
            break;
        }
        st = seconds_of(t, all, &with);
        if (with <= without * (1 + 1e-9)) {
            break;
        }
    }
    return st;
}

/* Streams that no chain has, as what may be promoted; and which flow each is.
 */
static size_t promotables(const struct dyti_plan *plan,
                          const struct dyti_flow *flow, size_t flow_count,
                          const struct dyti_chains *chains,
                          struct dyti_promotable *item, uint32_t *index)
{
    size_t count = 0;

    for (size_t i = 0; i < flow_count; i++) {
        const struct dyti_flow *f = &flow[i];
        const struct dyti_plan_pair *pair =
            dyti_plan_find_pair(plan, f->src, f->dst);

        if (pair == NULL ||
            dyti_chains_of(chains, f->src, f->dst, f->wave) != NULL) {
            continue;
        }
        index[count] = (uint32_t)i;
        item[count++] = (struct dyti_promotable){
            .src = f->src,
            .dst = f->dst,
            .content = dyti_stream_content(plan, pair, f->wave),
            .bytes = f->bytes,
            .wave = f->wave};
    }
    return count;
}

static enum dyt_status trial_init(struct trial *t, const struct dyti_plan *plan,
                                  const struct dyti_schedule_links *links,
                                  const struct dyti_flow *flow,
                                  size_t flow_count,
                                  const struct dyti_chains *chains)
{
    *t = (struct trial){.links = links,
                        .flow = flow,
                        .flow_count = flow_count,
                        .chains = chains,
                        .world_size = plan->world_size,
                        .wave_count = 1};
    for (size_t i = 0; i < flow_count; i++) {
        t->wave_count =
            flow[i].wave >= t->wave_count ? flow[i].wave + 1 : t->wave_count;
    }
    return dyti_message_slots(links, &t->message_bytes, &t->slot_count);
}

enum dyt_status dyti_collectives_seconds(
    const struct dyti_plan *plan, const struct dyti_schedule_links *links,
    const struct dyti_flow *flow, size_t flow_count,
    const struct dyti_chains *chains,
    const struct dyti_collectives *collectives, double *out_seconds)
{
    const struct dyti_collectives none = {0};
    struct trial t;
    enum dyt_status st = trial_init(&t, plan, links, flow, flow_count, chains);

    return st != DYT_OK
               ? st
               : seconds_of(&t, collectives == NULL ? &none : collectives,
                            out_seconds);
}

static enum dyt_status find(const struct dyti_plan *plan,
                            const struct dyti_schedule_links *links,
                            const struct dyti_flow *flow, size_t flow_count,
                            const struct dyti_chains *chains, bool paying,
                            struct dyti_collectives *out_collectives)
{
    struct trial t;
    struct dyti_collectives all = {0};
    struct dyti_promotion found = {0};
    struct dyti_promotable *item = NULL;
    uint32_t *index = NULL;
    size_t count;
    enum dyt_status st;

    *out_collectives = all;
    if (plan->rank >= 0 || links->strategy != &dyti_strategy_optimal) {
        return DYT_OK;
    }
    st = trial_init(&t, plan, links, flow, flow_count, chains);
    if (st != DYT_OK) {
        return st;
    }
    item = calloc(flow_count + 1, sizeof(*item));
    index = calloc(flow_count + 1, sizeof(*index));
    if (item == NULL || index == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "collectives of %zu flows", flow_count);
        goto out;
    }
    count = promotables(plan, flow, flow_count, chains, item, index);
    st = dyti_promote(item, count, NULL, &found);
    if (st != DYT_OK) {
        goto out;
    }
    for (uint32_t i = 0; i < found.item_total; i++) {
        found.item[i] = index[found.item[i]]; /* of the flows */
    }
    all.found = found; /* but for a list of its own */
    all.found.rest = NULL;
    all.found.collective =
        calloc(found.count + 1, sizeof(*all.found.collective));
    st = all.found.collective == NULL
             ? DYTI_FAIL(DYT_ERR_NOMEM, "%zu collectives", found.count)
         : paying ? keep_what_pays(&found, &t, &all)
                  : keep(&found, &t, UINT32_MAX, &all);
    found.member = NULL; /* now those of `all` */
    found.item = NULL;
    if (st == DYT_OK) {
        *out_collectives = all;
        all = (struct dyti_collectives){0};
    }
out:
    free(item);
    free(index);
    dyti_promotion_fini(&found);
    dyti_collectives_fini(&all);
    return st;
}

enum dyt_status dyti_collectives_find(const struct dyti_plan *plan,
                                      const struct dyti_schedule_links *links,
                                      const struct dyti_flow *flow,
                                      size_t flow_count,
                                      const struct dyti_chains *chains,
                                      struct dyti_collectives *out_collectives)
{
    return find(plan, links, flow, flow_count, chains, true, out_collectives);
}

enum dyt_status dyti_collectives_all(const struct dyti_plan *plan,
                                     const struct dyti_schedule_links *links,
                                     const struct dyti_flow *flow,
                                     size_t flow_count,
                                     const struct dyti_chains *chains,
                                     struct dyti_collectives *out_collectives)
{
    return find(plan, links, flow, flow_count, chains, false, out_collectives);
}
