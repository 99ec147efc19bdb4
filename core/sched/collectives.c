/* Finds streams that are a collective, and keeps those that cost no more than
 * their pieces. */
#include "sched/collectives.h"

#include "base/array.h"
#include "sched/chains.h"
#include "sched/messages.h"

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
                            const struct dyti_collective_trial *t,
                            uint32_t kinds, struct dyti_collectives *out_all)
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
                                      const struct dyti_collective_trial *t,
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
        st =
            st != DYT_OK ? st : dyti_collective_trial_seconds(t, all, &without);
    }
    for (uint32_t i = 0; i < count && st == DYT_OK; i++) {
        if (kinds[i] == every && i > 0) {
            continue; /* tried */
        }
        st = keep(found, t, kinds[i], all);
        if (st != DYT_OK || kinds[i] == 0) {
            break;
        }
        st = dyti_collective_trial_seconds(t, all, &with);
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

/* Among streams: item[i] is flow index[i]. */
static enum dyt_status find_in(const struct dyti_collective_trial *t,
                               const struct dyti_promotable *item,
                               const uint32_t *index, size_t count, bool paying,
                               struct dyti_collectives *out_collectives)
{
    struct dyti_collectives all = {0};
    struct dyti_promotion found = {0};
    enum dyt_status st = dyti_promote(item, count, NULL, &found);

    if (st != DYT_OK) {
        return st;
    }
    for (uint32_t i = 0; i < found.item_total; i++) {
        found.item[i] = index[found.item[i]]; /* of the flows */
    }
    all.found = found; /* but for a list of its own */
    all.found.rest = NULL;
    all.found.rest_count = 0;
    all.found.collective =
        calloc(found.count + 1, sizeof(*all.found.collective));
    st = all.found.collective == NULL
             ? DYTI_FAIL(DYT_ERR_NOMEM, "%zu collectives", found.count)
         : paying ? keep_what_pays(&found, t, &all)
                  : keep(&found, t, UINT32_MAX, &all);
    found.member = NULL; /* now those of `all` */
    found.item = NULL;
    if (st == DYT_OK) {
        *out_collectives = all;
        all = (struct dyti_collectives){0};
    }
    dyti_promotion_fini(&found);
    dyti_collectives_fini(&all);
    return st;
}

static enum dyt_status find(const struct dyti_plan *plan,
                            const struct dyti_schedule_links *links,
                            const struct dyti_flow *flow, size_t flow_count,
                            const struct dyti_chains *chains, bool paying,
                            struct dyti_collectives *out_collectives)
{
    struct dyti_promotable *item = NULL;
    uint32_t *index = NULL;
    struct dyti_collective_trial t;
    enum dyt_status st;

    *out_collectives = (struct dyti_collectives){0};
    if (plan->rank >= 0 || links->strategy != &dyti_strategy_optimal) {
        return DYT_OK;
    }
    st = dyti_collective_trial_init(&t, plan->world_size, links, flow,
                                    flow_count, chains);
    if (st != DYT_OK) {
        return st;
    }
    item = calloc(flow_count + 1, sizeof(*item));
    index = calloc(flow_count + 1, sizeof(*index));
    if (item == NULL || index == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "collectives of %zu flows", flow_count);
    } else {
        size_t count = promotables(plan, flow, flow_count, chains, item, index);

        st = find_in(&t, item, index, count, paying, out_collectives);
    }
    free(item);
    free(index);
    return st;
}

enum dyt_status dyti_collectives_of_streams(
    const struct dyti_promotable *stream, uint32_t world_size,
    const struct dyti_schedule_links *links, const struct dyti_flow *flow,
    size_t flow_count, struct dyti_collectives *out_collectives)
{
    uint32_t *index = calloc(flow_count + 1, sizeof(*index));
    struct dyti_collective_trial t;
    enum dyt_status st = dyti_collective_trial_init(&t, world_size, links, flow,
                                                    flow_count, NULL);

    if (st == DYT_OK && index == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "collectives of %zu flows", flow_count);
    }
    for (size_t i = 0; i < flow_count && st == DYT_OK; i++) {
        index[i] = (uint32_t)i;
    }
    st = st != DYT_OK
             ? st
             : find_in(&t, stream, index, flow_count, true, out_collectives);
    free(index);
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
