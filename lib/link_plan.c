/* What all members of a link find alike from the views: kinds that travel,
 * dtypes, scratch, both layouts; then this member's plan and schedule. */
#include "lib/link_internal.h"

#include "base/hash.h"
#include "comm/shm/shm.h"
#include "device/host/clock.h"
#include "layout/list.h"
#include "layout/view.h"
#include "mover/direct/direct.h"
#include "mover/message/message.h"

#include <stdlib.h>
#include <string.h>

#define STEP_BYTES (64u << 20)

static const struct dyti_memory_view *memory_of(const struct dyti_link *link,
                                                uint32_t rank)
{
    return &link->params.memory[rank];
}

/* ---- kinds ----------------------------------------------------------------
 */

static uint32_t kinds_held(const struct dyti_link *link, uint32_t from,
                           uint32_t to)
{
    uint32_t kinds = 0;

    for (uint32_t r = from; r < to; r++) {
        const struct dyti_view *view = &memory_of(link, r)->view;

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

/* ---- views that came from others ------------------------------------------
 */

/* The extent that holds bytes [lo, hi) of a region. */
static bool in_extent(const struct dyti_memory_view *memory, uint32_t kind,
                      uint64_t lo, uint64_t hi)
{
    uint32_t a = 0, b = memory->extent_count;

    while (a < b) { /* the first behind (kind, lo) */
        uint32_t mid = a + (b - a) / 2;
        const struct dyti_extent *e = &memory->extent[mid];

        if (e->kind < kind || (e->kind == kind && e->offset <= lo)) {
            a = mid + 1;
        } else {
            b = mid;
        }
    }
    return a > 0 && memory->extent[a - 1].kind == kind &&
           hi <= memory->extent[a - 1].offset + memory->extent[a - 1].bytes;
}

static enum dyt_status check_view(const struct dyti_link *link, uint32_t rank,
                                  const struct dyti_memory_view *memory,
                                  uint32_t kinds)
{
    const struct dyti_view *view = &memory->view;

    for (uint32_t k = 0; k < DYTI_KIND_COUNT; k++) {
        if (view->kind_first[k] > view->kind_first[k + 1] ||
            view->kind_first[k + 1] > view->shard_count) {
            return DYTI_FAIL(DYT_ERR_INVALID, "the shards of member %u", rank);
        }
        for (uint32_t i = view->kind_first[k];
             i < view->kind_first[k + 1] && (kinds >> k & 1u) != 0; i++) {
            const struct dyti_shard *s = &view->shard[i];
            int64_t lo = 0, hi = 0;

            if (s->kind != k ||
                s->tensor >= link->params.catalogue->tensor_count ||
                s->dtype >= DYTI_DTYPE_COUNT || s->box.ndim > DYT_MAX_DIMS ||
                !dyti_shard_extent(s, &lo, &hi) || lo < 0 ||
                !in_extent(memory, k, (uint64_t)lo, (uint64_t)hi)) {
                return DYTI_FAIL(DYT_ERR_INVALID,
                                 "shard %u of member %u lies in no extent", i,
                                 rank);
            }
        }
    }
    return DYT_OK;
}

/* DOUBLE: both sets are alike. */
static enum dyt_status check_second(const struct dyti_link *link, uint32_t rank)
{
    const struct dyti_view *a = &memory_of(link, rank)->view;
    const struct dyti_view *b = &link->params.second[rank].view;
    bool same =
        a->shard_count == b->shard_count &&
        memcmp(a->region_bytes, b->region_bytes, sizeof(a->region_bytes)) == 0;

    for (uint32_t i = 0; same && i < a->shard_count; i++) {
        const struct dyti_shard *x = &a->shard[i], *y = &b->shard[i];

        same = x->tensor == y->tensor && x->kind == y->kind &&
               x->dtype == y->dtype && x->offset == y->offset &&
               memcmp(&x->box, &y->box, sizeof(x->box)) == 0 &&
               memcmp(x->stride, y->stride,
                      x->box.ndim * sizeof(x->stride[0])) == 0;
    }
    return same ? check_view(link, rank, &link->params.second[rank],
                             link->target_kinds)
                : DYTI_FAIL(DYT_ERR_INVALID, "the two sets of member %u differ",
                            rank);
}

static enum dyt_status check_views(const struct dyti_link *link)
{
    enum dyt_status st = DYT_OK;

    for (uint32_t r = 0; r < link->params.member_count && st == DYT_OK; r++) {
        bool is_source = dyti_link_is_source(link, r);

        st = check_view(link, r, memory_of(link, r),
                        is_source ? link->source_kinds : link->target_kinds);
        if (st == DYT_OK && !is_source &&
            link->params.commit == DYT_COMMIT_DOUBLE) {
            st = check_second(link, r);
        }
    }
    return st;
}

/* ---- dtypes ---------------------------------------------------------------
 */

#define NO_DTYPE 0xffu

/* What receivers store a kind as: one dtype for each tensor. */
static enum dyt_status target_dtypes(const struct dyti_link *link,
                                     uint32_t kind, uint8_t *dtype)
{
    for (uint32_t r = link->params.source_count; r < link->params.member_count;
         r++) {
        const struct dyti_view *view = &memory_of(link, r)->view;

        for (uint32_t i = view->kind_first[kind];
             i < view->kind_first[kind + 1]; i++) {
            const struct dyti_shard *s = &view->shard[i];

            if (dtype[s->tensor] == NO_DTYPE) {
                dtype[s->tensor] = s->dtype;
            } else if (dtype[s->tensor] != s->dtype) {
                return DYTI_FAIL(
                    DYT_ERR_UNSUPPORTED,
                    "the receivers hold tensor %s as %s and as %s",
                    link->params.catalogue->tensor[s->tensor].name,
                    dyti_dtype_name((enum dyti_dtype)dtype[s->tensor]),
                    dyti_dtype_name((enum dyti_dtype)s->dtype));
            }
        }
    }
    return DYT_OK;
}

/* Can a kind of the sources be read so?  Floats convert, integers do not. */
static enum dyt_status check_source_kind(const struct dyti_link *link,
                                         uint32_t kind, const uint8_t *dtype)
{
    for (uint32_t r = 0; r < link->params.source_count; r++) {
        const struct dyti_view *view = &memory_of(link, r)->view;

        for (uint32_t i = view->kind_first[kind];
             i < view->kind_first[kind + 1]; i++) {
            const struct dyti_shard *s = &view->shard[i];
            uint8_t want = dtype[s->tensor];

            if (want != NO_DTYPE && want != s->dtype &&
                (want > DYTI_F16 || s->dtype > DYTI_F16)) {
                return DYTI_FAIL(
                    DYT_ERR_UNSUPPORTED,
                    "tensor %s is %s at the source and %s at the receiver: "
                    "only floats are converted",
                    link->params.catalogue->tensor[s->tensor].name,
                    dyti_dtype_name((enum dyti_dtype)s->dtype),
                    dyti_dtype_name((enum dyti_dtype)want));
            }
        }
    }
    return DYT_OK;
}

static enum dyt_status check_dtypes(const struct dyti_link *link)
{
    size_t tensors = link->params.catalogue->tensor_count;
    uint8_t *dtype = malloc(tensors + 1);
    enum dyt_status st = dtype == NULL
                             ? DYTI_FAIL(DYT_ERR_NOMEM, "%zu tensors", tensors)
                             : DYT_OK;

    for (uint32_t k = 0; k < DYTI_KIND_COUNT && st == DYT_OK; k++) {
        if ((link->target_kinds >> k & 1u) == 0) {
            continue;
        }
        memset(dtype, NO_DTYPE, tensors + 1);
        st = target_dtypes(link, k, dtype);
        st = st != DYT_OK ? st : check_source_kind(link, k, dtype);
        if (st == DYT_OK && k == DYTI_PARAM) {
            st = check_source_kind(link, DYTI_MASTER, dtype);
        }
    }
    free(dtype);
    return st;
}

enum dyt_status dyti_snapshot_dtypes(const struct dyti_model *catalogue,
                                     const struct dyti_memory_view *receiver,
                                     uint32_t receiver_count, uint32_t kinds,
                                     uint8_t *out_dtype)
{
    size_t tensors = catalogue->tensor_count;

    memset(out_dtype, DYTI_SNAPSHOT_SKIP, DYTI_KIND_COUNT * tensors);
    for (uint32_t r = 0; r < receiver_count; r++) {
        const struct dyti_view *view = &receiver[r].view;

        for (uint32_t i = 0; i < view->shard_count; i++) {
            const struct dyti_shard *s = &view->shard[i];
            uint8_t *have;

            if (s->tensor >= tensors || s->kind >= DYTI_KIND_COUNT ||
                s->dtype >= DYTI_DTYPE_COUNT) {
                return DYTI_FAIL(DYT_ERR_INVALID,
                                 "shard %u of receiver %u: tensor %u, kind %u, "
                                 "dtype %u",
                                 i, r, s->tensor, s->kind, s->dtype);
            }
            have = &out_dtype[s->kind * tensors + s->tensor];
            if ((kinds >> s->kind & 1u) != 0 &&
                (*have == DYTI_SNAPSHOT_SKIP ||
                 dyti_dtype_bytes((enum dyti_dtype)s->dtype) >
                     dyti_dtype_bytes((enum dyti_dtype) * have))) {
                *have = s->dtype;
            }
        }
    }
    for (size_t t = 0; t < tensors; t++) {
        uint8_t param = out_dtype[DYTI_PARAM * tensors + t];
        uint8_t *master = &out_dtype[DYTI_MASTER * tensors + t];

        /* One that is wanted for its own sake too stays as wide as it is. */
        *master = *master == DYTI_SNAPSHOT_SKIP ? param : *master;
    }
    return DYT_OK;
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
                                         : &memory_of(link, r)->view;

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
        st = dyti_dense_init(&link->scratch[r], &memory_of(link, r)->view,
                             link->target_kinds, NULL,
                             p->catalogue->tensor_count);
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

    st = st != DYT_OK ? st : check_views(link);
    st = st != DYT_OK ? st : check_dtypes(link);
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
                                     .mover = &dyti_mover_direct,
                                     .mover_self = link->mover,
                                     .wait = &dyti_wait_futex,
                                     .clock = &dyti_clock_host,
                                     .timeout_ns = p->timeout_ns,
                                     .address = address_of,
                                     .address_arg = link,
                                     .overwrites =
                                         p->commit == DYT_COMMIT_IN_PLACE};
    enum dyt_status st;

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
