/* Finds streams of equal content and decides where passing them on pays. */
#include "sched/chains.h"

#include "base/array.h"
#include "base/hash.h"
#include "sched/builder.h"

#include <stdlib.h>
#include <string.h>

const struct dyti_chain *dyti_chains_of(const struct dyti_chains *chains,
                                        uint32_t src, uint32_t dst,
                                        uint32_t wave)
{
    uint32_t lo = 0, hi = chains == NULL ? 0 : chains->count;
    uint32_t end = hi;

    while (lo < hi) { /* the first of src */
        uint32_t mid = lo + (hi - lo) / 2;

        if (chains->chain[mid].src < src) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    for (; lo < end && chains->chain[lo].src == src; lo++) {
        const struct dyti_chain *chain = &chains->chain[lo];

        for (uint32_t m = 0; chain->wave == wave && m < chain->count; m++) {
            if (chains->member[chain->first + m] == dst) {
                return chain;
            }
        }
    }
    return NULL;
}

void dyti_chains_fini(struct dyti_chains *chains)
{
    free(chains->chain);
    free(chains->member);
    *chains = (struct dyti_chains){0};
}

/* One flow and what it carries. */
struct stream {
    const struct dyti_flow *flow;
    const struct dyti_plan_pair *pair;
    uint64_t content;
};

static uint64_t hash_transfer(uint64_t state, const struct dyti_transfer *t)
{
    const uint64_t field[] = {t->tensor,   t->src_shard, t->want,
                              t->source,   t->src_slot,  t->src_kind,
                              t->dst_kind, t->src_dtype, t->dst_dtype};

    for (size_t i = 0; i < sizeof(field) / sizeof(field[0]); i++) {
        state = dyti_fingerprint_u64(state, field[i]);
    }
    for (uint32_t d = 0; d < t->box.ndim; d++) {
        state = dyti_fingerprint_u64(state, (uint64_t)t->box.lo[d]);
        state = dyti_fingerprint_u64(state, (uint64_t)t->box.hi[d]);
    }
    return state;
}

uint64_t dyti_stream_content(const struct dyti_plan *plan,
                             const struct dyti_plan_pair *pair, uint32_t wave)
{
    uint64_t state = DYTI_FINGERPRINT_SEED;

    for (uint32_t i = 0; i < pair->transfer_count; i++) {
        const struct dyti_transfer *t =
            &plan->transfer[pair->transfer_first + i];

        state = t->wave == wave ? hash_transfer(state, t) : state;
    }
    return state;
}

static int by_content(const void *a, const void *b)
{
    const struct stream *x = a, *y = b;

    if (x->flow->src != y->flow->src) {
        return x->flow->src < y->flow->src ? -1 : 1;
    }
    if (x->flow->wave != y->flow->wave) {
        return x->flow->wave < y->flow->wave ? -1 : 1;
    }
    if (x->content != y->content) {
        return x->content < y->content ? -1 : 1;
    }
    return (x->flow->dst > y->flow->dst) - (x->flow->dst < y->flow->dst);
}

static bool alike(const struct stream *a, const struct stream *b)
{
    return a->flow->src == b->flow->src && a->flow->wave == b->flow->wave &&
           a->content == b->content && a->flow->bytes == b->flow->bytes &&
           a->flow->messages == b->flow->messages;
}

const uint32_t *dyti_links_hosts(const struct dyti_plan *plan,
                                 const struct dyti_schedule_links *links)
{
    return plan->inputs.host != NULL ? plan->inputs.host
           : links->cluster != NULL  ? links->cluster->host
                                     : NULL;
}

/* ---- does it pay? ---------------------------------------------------------
 */

/* The root sends once instead of `count` times, those in the middle once more:
 * they must then send less than the root does without. */
static bool pays(const struct stream *s, uint32_t count, uint64_t message,
                 const uint64_t *out)
{
    uint64_t bytes = s->flow->bytes;

    if (count < 2 || bytes / 4 * 3 * count <= bytes + (count - 1) * message) {
        return false;
    }
    for (uint32_t i = 0; i + 1 < count; i++) {
        if (out[s[i].flow->dst] + bytes >= out[s->flow->src]) {
            return false;
        }
    }
    return true;
}

static enum dyt_status add_chain(struct dyti_chains *chains, size_t *chain_cap,
                                 size_t *member_cap, const struct stream *s,
                                 uint32_t count, uint64_t *out)
{
    enum dyt_status st =
        DYTI_GROW(chains->chain, *chain_cap, chains->count + 1u);

    st = st != DYT_OK ? st
                      : DYTI_GROW(chains->member, *member_cap,
                                  chains->member_count + count);
    if (st != DYT_OK) {
        return st;
    }
    chains->chain[chains->count++] =
        (struct dyti_chain){.src = s->flow->src,
                            .wave = s->flow->wave,
                            .first = chains->member_count,
                            .count = count,
                            .bytes = s->flow->bytes};
    for (uint32_t i = 0; i < count; i++) {
        chains->member[chains->member_count++] = s[i].flow->dst;
        if (i + 1 < count) {
            out[s[i].flow->dst] += s->flow->bytes;
            out[s->flow->src] -= s->flow->bytes;
        }
    }
    return DYT_OK;
}

/* Of a run of equal streams those that come first on their host. */
static uint32_t one_a_host(struct stream *s, uint32_t count,
                           const uint32_t *host)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t k = 0;

        while (k < kept && host[s[k].flow->dst] != host[s[i].flow->dst]) {
            k++;
        }
        if (k == kept && host[s[i].flow->dst] != host[s[i].flow->src]) {
            struct stream own = s[i];

            s[i] = s[kept];
            s[kept++] = own;
        }
    }
    return kept;
}

/* Who sends most already comes last, and passes nothing on. */
static void busiest_last(struct stream *s, uint32_t count, const uint64_t *out)
{
    uint32_t most = count - 1;

    for (uint32_t i = 0; i < count; i++) {
        most = out[s[i].flow->dst] > out[s[most].flow->dst] ? i : most;
    }
    if (most + 1 < count) {
        struct stream own = s[most];

        s[most] = s[count - 1];
        s[count - 1] = own;
    }
}

static enum dyt_status find(struct stream *s, size_t n, const uint32_t *host,
                            uint64_t message, uint64_t *out,
                            struct dyti_chains *chains)
{
    size_t chain_cap = 0, member_cap = 0;
    enum dyt_status st = DYT_OK;

    for (size_t i = 0; i < n && st == DYT_OK;) {
        uint32_t run = 1, kept;

        while (i + run < n && alike(&s[i], &s[i + run])) {
            run++;
        }
        kept = run > 1 ? one_a_host(s + i, run, host) : 0;
        if (kept > 1) {
            busiest_last(s + i, kept, out);
        }
        if (kept > 1 && pays(s + i, kept, message, out)) {
            st = add_chain(chains, &chain_cap, &member_cap, s + i, kept, out);
        }
        i += run;
    }
    return st;
}

enum dyt_status dyti_chains_find(const struct dyti_plan *plan,
                                 const struct dyti_schedule_links *links,
                                 const struct dyti_flow *flow,
                                 size_t flow_count,
                                 struct dyti_chains *out_chains)
{
    const uint32_t *host = dyti_links_hosts(plan, links);
    struct dyti_chains chains = {0};
    struct stream *stream = NULL;
    uint64_t *out = NULL, message = 0;
    uint32_t slots = 0;
    size_t n = 0;
    enum dyt_status st;

    *out_chains = chains;
    if (host == NULL || plan->rank >= 0 ||
        links->strategy != &dyti_strategy_optimal ||
        (links->cluster != NULL &&
         links->cluster->link[DYTI_LINK_NIC].half_duplex)) {
        return DYT_OK;
    }
    st = dyti_message_slots(links, &message, &slots);
    if (st != DYT_OK) {
        return st;
    }
    stream = calloc(flow_count + 1, sizeof(*stream));
    out = calloc(plan->world_size, sizeof(*out));
    if (stream == NULL || out == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "chains of %zu flows", flow_count);
        goto out;
    }
    for (size_t i = 0; i < flow_count; i++) {
        const struct dyti_plan_pair *pair =
            dyti_plan_find_pair(plan, flow[i].src, flow[i].dst);

        if (host[flow[i].src] != host[flow[i].dst]) {
            out[flow[i].src] += flow[i].bytes;
        }
        if (pair != NULL) {
            stream[n++] = (struct stream){
                &flow[i], pair, dyti_stream_content(plan, pair, flow[i].wave)};
        }
    }
    if (n > 1) {
        qsort(stream, n, sizeof(*stream), by_content);
    }
    st = find(stream, n, host, message, out, &chains);
    if (st == DYT_OK) {
        *out_chains = chains;
        chains = (struct dyti_chains){0};
    }
out:
    free(stream);
    free(out);
    dyti_chains_fini(&chains);
    return st;
}
