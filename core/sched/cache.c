/* A list of switches, looked up by what they were made of.  A job has a
 * handful, so the list is searched from end to end. */
#include "sched/cache.h"

#include "base/array.h"
#include "base/hash.h"
#include "sched/chains.h"
#include "sched/collectives.h"

#include <stdlib.h>

struct entry {
    uint64_t key;
    struct dyti_plan *plan;
    struct dyti_schedule *schedule;
    struct dyti_switch_plan both;
};

struct dyti_switch_cache {
    struct entry **entry; /* each on its own: results stay where they are */
    size_t entry_count, entry_cap;
    uint64_t hits, builds;
    dyti_switch_cache_stage_fn watch; /* NULL: nobody */
    const void *watch_arg;
};

enum dyt_status dyti_switch_cache_create(struct dyti_switch_cache **out_cache)
{
    struct dyti_switch_cache *cache = calloc(1, sizeof(*cache));

    if (cache == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a cache of plans");
    }
    *out_cache = cache;
    return DYT_OK;
}

static void free_entry(struct entry *entry)
{
    if (entry != NULL) {
        dyti_plan_destroy(entry->plan);
        dyti_schedule_destroy(entry->schedule);
        free(entry);
    }
}

void dyti_switch_cache_destroy(struct dyti_switch_cache *cache)
{
    if (cache == NULL) {
        return;
    }
    for (size_t i = 0; i < cache->entry_count; i++) {
        free_entry(cache->entry[i]);
    }
    free(cache->entry);
    free(cache);
}

void dyti_switch_cache_watch(struct dyti_switch_cache *cache,
                             dyti_switch_cache_stage_fn fn, const void *arg)
{
    cache->watch = fn;
    cache->watch_arg = arg;
}

static void tell(const struct dyti_switch_cache *cache, const char *stage)
{
    if (cache->watch != NULL) {
        cache->watch(cache->watch_arg, stage);
    }
}

/* Everything that the result depends on. */
static uint64_t key_of(const struct dyti_plan_inputs *inputs, uint32_t rank,
                       const struct dyti_schedule_options *options)
{
    uint64_t key = dyti_schedule_fingerprint(
        dyti_plan_fingerprint(inputs), inputs->dst->desc.world_size, options);

    key = dyti_fingerprint_u64(key, rank);
    key = dyti_fingerprint_u64(key, options->segment_bytes);
    return dyti_fingerprint_u64(key, options->cap_bytes);
}

/* Where links go by messages, all ranks order those of the whole world. */
static enum dyt_status build_schedule(
    const struct dyti_plan_inputs *inputs, const struct dyti_plan *plan,
    uint32_t rank, const struct dyti_schedule_options *options,
    struct dyti_schedule **out_schedule)
{
    struct dyti_schedule_options all = *options;
    struct dyti_plan *whole = NULL;
    struct dyti_flow *flow = NULL;
    uint64_t **end = NULL;
    struct dyti_chains chains = {0};
    struct dyti_collectives collectives = {0};
    enum dyt_status st;

    if (options->links.domain == NULL || options->links.flow != NULL) {
        return dyti_schedule_build(plan, rank, options, out_schedule);
    }
    st = dyti_plan_build(inputs, &whole);
    if (st == DYT_OK) {
        st = dyti_schedule_flows(whole, options->links.domain, &flow, &end,
                                 &all.links.flow_count, &all.links.wave_count);
    }
    if (st == DYT_OK) {
        st = dyti_chains_find(whole, &options->links, flow,
                              all.links.flow_count, &chains);
    }
    if (st == DYT_OK) {
        st = dyti_collectives_find(whole, &options->links, flow,
                                   all.links.flow_count, &chains, &collectives);
    }
    if (st == DYT_OK) {
        all.links.chains = &chains;
        all.links.collectives = &collectives;
        all.links.flow = flow;
        all.links.end = (const uint64_t *const *)end;
        st = dyti_schedule_build(plan, rank, &all, out_schedule);
    }
    free(flow);
    free(end);
    dyti_chains_fini(&chains);
    dyti_collectives_fini(&collectives);
    dyti_plan_destroy(whole);
    return st;
}

static enum dyt_status build(struct dyti_switch_cache *cache,
                             const struct dyti_plan_inputs *inputs,
                             uint32_t rank,
                             const struct dyti_schedule_options *options,
                             struct entry **out_entry)
{
    struct entry *entry = calloc(1, sizeof(*entry));
    enum dyt_status st;

    if (entry == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a cached plan");
    }
    tell(cache, "plan");
    st = dyti_plan_build_rank(inputs, rank, &entry->plan);
    tell(cache, NULL);
    tell(cache, "sched");
    st = st != DYT_OK ? st
                      : build_schedule(inputs, entry->plan, rank, options,
                                       &entry->schedule);
    tell(cache, NULL);
    st = st != DYT_OK ? st
                      : DYTI_GROW(cache->entry, cache->entry_cap,
                                  cache->entry_count + 1);
    if (st != DYT_OK) {
        free_entry(entry);
        return st;
    }
    entry->both =
        (struct dyti_switch_plan){.plan = entry->plan,
                                  .schedule = entry->schedule,
                                  .fingerprint = entry->schedule->fingerprint};
    cache->entry[cache->entry_count++] = entry;
    cache->builds++;
    *out_entry = entry;
    return DYT_OK;
}

enum dyt_status dyti_switch_cache_get(
    struct dyti_switch_cache *cache, const struct dyti_plan_inputs *inputs,
    uint32_t rank, const struct dyti_schedule_options *options,
    const struct dyti_switch_plan **out_plan)
{
    uint64_t key = key_of(inputs, rank, options);
    struct entry *entry = NULL;
    enum dyt_status st;

    for (size_t i = 0; i < cache->entry_count; i++) {
        if (cache->entry[i]->key == key) {
            entry = cache->entry[i];
            entry->plan->inputs = *inputs; /* equal layouts, maybe new ones */
            cache->hits++;
            *out_plan = &entry->both;
            return DYT_OK;
        }
    }
    st = build(cache, inputs, rank, options, &entry);
    if (st != DYT_OK) {
        return st;
    }
    entry->key = key;
    *out_plan = &entry->both;
    return DYT_OK;
}

void dyti_switch_cache_counts(const struct dyti_switch_cache *cache,
                              uint64_t *out_hits, uint64_t *out_builds)
{
    *out_hits = cache->hits;
    *out_builds = cache->builds;
}
