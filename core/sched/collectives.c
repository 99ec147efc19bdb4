/* Finds streams that are a collective, and keeps those that cost no more than
 * their pieces. */
#include "sched/collectives.h"

#include "base/array.h"
#include "sched/builder.h"
#include "sched/chains.h"

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

/* ---- is it worth it? ----------------------------------------------------- */

/* Slots that the member with most messages of its own needs for a chunk. */
static uint32_t slots_of(const struct dyti_collective *c)
{
    return c->kind == DYTI_COLLECTIVE_BROADCAST    ? 1
           : c->kind == DYTI_COLLECTIVE_ALL_GATHER ? c->member_count
                                                   : c->member_count - 1;
}

static bool on_one_host(const struct dyti_promotion *found,
                        const struct dyti_collective *c, const uint32_t *host)
{
    const uint32_t *member = found->member + c->member_first;

    for (uint32_t m = 1; host != NULL && m < c->member_count; m++) {
        if (host[member[m]] != host[member[0]]) {
            return false;
        }
    }
    return true;
}

/* Bytes and messages on every wire are those of the pieces; what goes to
 * several is packed once.  Between hosts an order that has been balanced link
 * by link is better than one by collectives, but for what is one message each.
 */
static bool pays(const struct dyti_promotion *found,
                 const struct dyti_collective *c, const uint32_t *host,
                 uint64_t message_bytes, uint32_t slot_count)
{
    return slots_of(c) <= slot_count && c->member_count <= DYTI_SLOTS_MAX &&
           (on_one_host(found, c, host) || c->bytes <= message_bytes);
}

/* ---- the whole ----------------------------------------------------------- */

static enum dyt_status add_keys(struct dyti_collectives *all,
                                const struct dyti_collective *c,
                                const struct dyti_flow *flow,
                                const uint32_t *index)
{
    enum dyt_status st =
        DYTI_GROW(all->key, all->key_cap, all->key_count + c->item_count);

    for (uint32_t i = 0; i < c->item_count && st == DYT_OK; i++) {
        uint32_t *item = &all->found.item[c->item_first + i];

        *item = index[*item]; /* of the flows, not of what was looked at */
        all->key[all->key_count++] = (struct dyti_collective_key){
            flow[*item].src, flow[*item].dst, flow[*item].wave};
    }
    return st;
}

static enum dyt_status keep(struct dyti_collectives *all,
                            const struct dyti_flow *flow, const uint32_t *index,
                            const uint32_t *host, uint64_t message_bytes,
                            uint32_t slot_count)
{
    struct dyti_promotion *found = &all->found;
    size_t kept = 0;
    enum dyt_status st = DYT_OK;

    for (size_t i = 0; i < found->count && st == DYT_OK; i++) {
        const struct dyti_collective c = found->collective[i];

        if (pays(found, &c, host, message_bytes, slot_count)) {
            st = add_keys(all, &c, flow, index);
            found->collective[kept++] = c;
        }
    }
    found->count = kept;
    if (all->key_count > 1) {
        qsort(all->key, all->key_count, sizeof(*all->key), compare_key);
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

enum dyt_status dyti_collectives_find(const struct dyti_plan *plan,
                                      const struct dyti_schedule_links *links,
                                      const struct dyti_flow *flow,
                                      size_t flow_count,
                                      const struct dyti_chains *chains,
                                      struct dyti_collectives *out_collectives)
{
    const uint32_t *host = dyti_links_hosts(plan, links);
    struct dyti_collectives all = {0};
    struct dyti_promotable *item = NULL;
    uint32_t *index = NULL, slots = 0;
    uint64_t message = 0;
    size_t count;
    enum dyt_status st;

    *out_collectives = all;
    if (plan->rank >= 0 || links->strategy != &dyti_strategy_optimal) {
        return DYT_OK;
    }
    st = dyti_message_slots(links, &message, &slots);
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
    st = dyti_promote(item, count, NULL, &all.found);
    st = st != DYT_OK ? st : keep(&all, flow, index, host, message, slots);
    if (st == DYT_OK) {
        *out_collectives = all;
        all = (struct dyti_collectives){0};
    }
out:
    free(item);
    free(index);
    dyti_collectives_fini(&all);
    return st;
}
