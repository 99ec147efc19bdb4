/* What all members of a link find alike from the views: kinds that travel,
 * scratch, both layouts; then this member's plan and schedule. */
#include "lib/link_internal.h"

#include "base/hash.h"
#include "comm/shm/shm.h"
#include "device/host/clock.h"
#include "layout/view.h"
#include "mover/direct/direct.h"
#include "mover/message/message.h"

#include <stdlib.h>
#include <string.h>

#define STEP_BYTES (64u << 20)

/* ---- kinds ----------------------------------------------------------------
 */

static uint32_t kinds_held(const struct dyti_link *link, uint32_t from,
                           uint32_t to)
{
    uint32_t kinds = 0;

    for (uint32_t r = from; r < to; r++) {
        const struct dyti_view *view = &dyti_link_memory(link, r)->view;

        for (uint32_t k = 0; k < DYTI_KIND_COUNT; k++) {
            if (view->kind_first[k] < view->kind_first[k + 1]) {
                kinds |= 1u << k;
            }
        }
    }
    return kinds;
}

static enum dyt_status find_kinds(struct dyti_link *link)
{
    uint32_t sources = link->params.source_count;
    uint32_t have = kinds_held(link, 0, sources);

    link->target_kinds = kinds_held(link, sources, link->params.member_count) &
                         link->params.kinds;
    link->source_kinds = have & link->target_kinds;
    if ((link->target_kinds >> DYTI_PARAM & 1u) != 0) {
        link->source_kinds |= have & (1u << DYTI_MASTER);
    }
    return link->target_kinds != 0
               ? DYT_OK
               : DYTI_FAIL(DYT_ERR_LAYOUT,
                           "no receiver holds a kind that travels");
}

/* ---- layouts ---------------------------------------------------------------
 */

/* Keep the shards of some kinds. */
static void keep_kinds(struct dyti_view *view, uint32_t kinds)
{
    uint32_t kept = 0, from = 0;

    for (uint32_t k = 0; k < DYTI_KIND_COUNT; k++) {
        uint32_t to = view->kind_first[k + 1];

        view->kind_first[k] = kept;
        for (; from < to; from++) {
            if ((kinds >> k & 1u) != 0) {
                view->shard[kept++] = view->shard[from];
            }
        }
        if ((kinds >> k & 1u) == 0) {
            view->region_bytes[k] = 0;
        }
    }
    view->kind_first[DYTI_KIND_COUNT] = kept;
    view->shard_count = kept;
}

static enum dyt_status make_views(const struct dyti_link *link, bool is_source,
                                  struct dyti_view *view)
{
    uint32_t kinds = is_source ? link->source_kinds : link->target_kinds;
    enum dyt_status st = DYT_OK;

    for (uint32_t r = 0; r < link->params.member_count && st == DYT_OK; r++) {
        const struct dyti_view *of = link->scratch != NULL && !is_source
                                         ? &link->scratch[r].view
                                         : &dyti_link_memory(link, r)->view;

        if (dyti_link_is_source(link, r) == is_source) {
            st = dyti_view_copy(of, &view[r]);
        }
        if (st == DYT_OK) {
            keep_kinds(&view[r], kinds);
        }
    }
    return st;
}

static enum dyt_status make_layout(const struct dyti_link *link, bool is_source,
                                   struct dyti_layout **out_layout)
{
    uint32_t kinds = is_source ? link->source_kinds : link->target_kinds;
    struct dyti_layout_desc desc = {.phase = is_source ? "source" : "receiver",
                                    .world_size = link->params.member_count,
                                    .own_dtypes = true};
    struct dyti_view *view = calloc(link->params.member_count, sizeof(*view));
    enum dyt_status st = DYT_OK;

    if (view == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "views of %u members",
                         link->params.member_count);
    }
    for (int k = 0; k < DYTI_KIND_COUNT; k++) {
        desc.residency[k] = (kinds >> k & 1u) != 0 ? DYTI_HELD : DYTI_DROPPED;
    }
    st = make_views(link, is_source, view);
    st = st != DYT_OK ? st
                      : dyti_layout_from_views(link->params.catalogue, &desc,
                                               view, out_layout);
    for (uint32_t r = 0; r < link->params.member_count; r++) {
        dyti_view_fini(&view[r]);
    }
    free(view);
    return st;
}

static enum dyt_status make_scratch(struct dyti_link *link)
{
    const struct dyti_link_params *p = &link->params;
    enum dyt_status st = DYT_OK;

    link->scratch = calloc(p->member_count, sizeof(*link->scratch));
    if (link->scratch == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "scratch of %u members",
                         p->member_count);
    }
    for (uint32_t r = p->source_count; r < p->member_count && st == DYT_OK;
         r++) {
        st = dyti_dense_init(
            &link->scratch[r], &dyti_link_memory(link, r)->view,
            link->target_kinds, NULL, p->catalogue->tensor_count);
    }
    if (st == DYT_OK && p->cap_bytes > 0 &&
        link->scratch[p->rank].bytes > p->cap_bytes) {
        st = DYTI_FAIL(DYT_ERR_NOMEM,
                       "a staged update needs %llu bytes of scratch on member "
                       "%u, the cap is %llu: raise it, or update in place",
                       (unsigned long long)link->scratch[p->rank].bytes,
                       p->rank, (unsigned long long)p->cap_bytes);
    }
    return st;
}

static void make_map(struct dyti_link *link)
{
    static const enum dyti_switch_mode mode[] = {
        [DYT_COMMIT_STAGED] = DYTI_MODE_STAGED,
        [DYT_COMMIT_DOUBLE] = DYTI_MODE_DOUBLE,
        [DYT_COMMIT_IN_PLACE] = DYTI_MODE_TRANSACTIONAL};

    for (uint32_t r = 0; r < link->params.member_count; r++) {
        link->map[r].mode = mode[link->params.commit];
        memcpy(link->map[r].bytes[DYTI_ARENA_TRAIN],
               link->from->view[r].region_bytes, sizeof(link->map[r].bytes[0]));
        memcpy(link->map[r].bytes[DYTI_ARENA_ROLLOUT],
               link->to->view[r].region_bytes, sizeof(link->map[r].bytes[0]));
    }
}

enum dyt_status dyti_link_lay_out(struct dyti_link *link)
{
    enum dyt_status st = find_kinds(link);

    st = st != DYT_OK ? st : dyti_link_check_views(link);
    st = st != DYT_OK ? st : dyti_link_check_dtypes(link);
    if (st == DYT_OK && link->params.commit == DYT_COMMIT_STAGED) {
        st = make_scratch(link);
    }
    st = st != DYT_OK ? st : make_layout(link, true, &link->from);
    st = st != DYT_OK ? st : make_layout(link, false, &link->to);
    if (st == DYT_OK) {
        make_map(link);
    }
    return st;
}

uint64_t dyti_link_fingerprint(const struct dyti_link *link)
{
    uint64_t state = DYTI_FINGERPRINT_SEED;

    state = dyti_fingerprint_u64(state, link->from->fingerprint);
    state = dyti_fingerprint_u64(state, link->to->fingerprint);
    state = dyti_fingerprint_u64(state, link->params.source_count);
    state = dyti_fingerprint_u64(state, link->params.commit);
    state = dyti_fingerprint_u64(state, link->params.kinds);
    state = dyti_fingerprint_u64(state, link->params.apart != NULL);
    state = dyti_fingerprint_u64(state, link->is_direct);
    return dyti_fingerprint_u64(state, link->is_push);
}

/* ---- plan ------------------------------------------------------------------
 */

static unsigned char *address_of(const void *arg, uint32_t rank, uint32_t slot,
                                 uint32_t kind, uint32_t set, uint64_t offset)
{
    const struct dyti_link *link = arg;

    if (slot == DYTI_ARENA_TRAIN) {
        return dyti_reach_address(&link->source[rank], kind, offset);
    }
    if (link->scratch != NULL) {
        return link->scratch_at[rank] == NULL
                   ? NULL
                   : link->scratch_at[rank] +
                         link->scratch[rank].region_at[kind] + offset;
    }
    return dyti_reach_address(
        &link->target[set * link->params.member_count + rank], kind, offset);
}

/* Hosts by number from 0, and whether receivers share one: what is replicated
 * among those then enters it once, and is sent on from one to the other. */
static bool number_hosts(struct dyti_link *link)
{
    const struct dyti_link_params *p = &link->params;
    uint32_t hosts = 0;
    bool shared = false;

    for (uint32_t r = 0; r < p->member_count; r++) {
        uint32_t first = 0;

        while (p->apart->island[first] != p->apart->island[r]) {
            first++;
        }
        link->host[r] = first == r ? hosts++ : link->host[first];
        for (uint32_t s = p->source_count; s < r; s++) {
            shared = shared || p->apart->island[s] == p->apart->island[r];
        }
    }
    return shared;
}

enum dyt_status dyti_link_plan(struct dyti_link *link)
{
    const struct dyti_link_params *p = &link->params;
    struct dyti_plan_inputs inputs;
    struct dyti_schedule_options options = {
        .side = link->is_push ? DYTI_SIDE_PUSH : DYTI_SIDE_PULL,
        .chunk_bytes = STEP_BYTES};
    struct dyti_switch_params how = {.struct_size = sizeof(how),
                                     .rank = p->rank,
                                     .world_size = p->member_count,
                                     .from = DYTI_ARENA_TRAIN,
                                     .to = DYTI_ARENA_ROLLOUT,
                                     .from_layout = link->from,
                                     .map = link->map,
                                     .control = link->page,
                                     .all = link->all,
                                     .kernels = link->hands.kernels,
                                     .mover = link->mover_ops,
                                     .mover_self = link->mover,
                                     .wait = &dyti_wait_futex,
                                     .clock = &dyti_clock_host,
                                     .timeout_ns = p->timeout_ns,
                                     .address = address_of,
                                     .address_arg = link,
                                     .overwrites =
                                         p->commit == DYT_COMMIT_IN_PLACE};
    enum dyt_status st;

    if (link->is_direct) {
        how.device_memory = p->direct->module->memory;
    }
    if (p->apart != NULL) {
        for (uint32_t r = 0; r < p->member_count; r++) {
            link->domain[r] = r;
        }
        options.links.domain = link->domain;
        options.links.strategy = &dyti_strategy_optimal;
        options.links.staging_bytes = link->staging_bytes;
        how.message = &dyti_mover_message;
        how.message_self = link->message;
        how.island = p->apart->island;
    }
    if (link->scratch != NULL && !dyti_link_is_source(link, p->rank)) {
        how.commit = link->commit;
        how.commit_count = link->scratch[p->rank].view.shard_count;
    }
    st = dyti_plan_inputs_init(link->from, DYTI_ARENA_TRAIN, link->to,
                               DYTI_ARENA_ROLLOUT, link->target_kinds, &inputs);
    if (st == DYT_OK && p->apart != NULL) {
        inputs.fan_out = number_hosts(link);
        inputs.host = link->host;
    }
    st = st != DYT_OK ? st
                      : dyti_switch_cache_get(link->cache, &inputs, p->rank,
                                              &options, &how.plan);
    return st != DYT_OK ? st : dyti_switch_create(&how, &link->self);
}
