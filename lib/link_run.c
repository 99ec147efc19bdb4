/* A link that is open: its transactions, and what can be asked of it. */
#include "lib/link_internal.h"

#include <stdlib.h>
#include <string.h>

enum dyt_status dyti_link_run(struct dyti_link *link, uint64_t epoch,
                              uint64_t version,
                              struct dyti_switch_report *out_report)
{
    static const enum dyti_verify verify[] = {
        [DYT_VERIFY_SAMPLE] = DYTI_VERIFY_SAMPLE,
        [DYT_VERIFY_FULL] = DYTI_VERIFY_FULL,
        [DYT_VERIFY_OFF] = DYTI_VERIFY_OFF};
    struct dyti_switch_order order = {.epoch = epoch,
                                      .version = version,
                                      .verify = verify[link->params.verify],
                                      .unmanaged = true};
    enum dyt_status st;

    order.check = link->check;
    order.check_arg = link->check_arg;
#ifdef DYT_TEST_HOOKS
    order.fault = link->fault;
    order.at = link->at;
    order.at_arg = link->at_arg;
    order.keep_abandoned = true; /* the sources' memory is theirs */
#endif
    st = dyti_link_use(link);
    return st != DYT_OK ? st : dyti_switch_run(link->self, &order, out_report);
}

void dyti_link_set_check(struct dyti_link *link,
                         enum dyt_status (*check)(void *arg), void *arg)
{
    link->check = check;
    link->check_arg = arg;
}

uint32_t dyti_link_source_kinds(const struct dyti_link *link)
{
    return link->source_kinds;
}

#ifdef DYT_TEST_HOOKS
void dyti_link_set_fault(struct dyti_link *link, enum dyti_switch_fault fault,
                         void (*at)(void *arg, enum dyti_switch_point point),
                         void *at_arg)
{
    link->fault = fault;
    link->at = at;
    link->at_arg = at_arg;
}
#endif

/* Regions of a receiver that a run fills. */
static uint64_t regions_of(const struct dyti_link *link)
{
    uint64_t regions = 0;

    for (uint32_t k = 0; k < DYTI_KIND_COUNT; k++) {
        if ((link->target_kinds >> k & 1u) != 0) {
            regions |= dyti_region_bit(DYTI_ARENA_ROLLOUT, k);
        }
    }
    return regions;
}

enum dyt_status dyti_link_valid(const struct dyti_link *link)
{
    return dyti_control_check_rank(link->page, link->params.rank,
                                   regions_of(link));
}

enum dyt_status dyti_link_heal(struct dyti_link *link)
{
    struct dyti_control_page *page = link->page;
    struct dyti_control_rank *rank = &page->rank[link->params.rank];
    uint64_t epoch = atomic_load(&rank->staged_epoch);
    enum dyt_status st;

    if (link->commit == NULL || epoch == 0 ||
        dyti_switch_outcome(page, epoch, NULL) != DYTI_DECISION_COMMIT) {
        return DYTI_FAIL(DYT_ERR_STATE,
                         "member %u has no staged bytes of a committed switch",
                         link->params.rank);
    }
    st = link->hands.kernels.ops->copy(
        link->hands.kernels.self, link->commit,
        link->scratch[link->params.rank].view.shard_count);
    st = st != DYT_OK ? st : dyti_kernels_wait(&link->hands.kernels);
    if (st != DYT_OK) {
        DYTI_NOTE("healing member %u from the staged bytes of switch %llu",
                  link->params.rank, (unsigned long long)epoch);
        return st;
    }
    atomic_store(&rank->staged_epoch, 0);
    dyti_control_heal(page, link->params.rank, regions_of(link));
    atomic_store(&rank->serves, atomic_load(&page->version));
    return DYT_OK;
}

uint32_t dyti_link_live_set(const struct dyti_link *link)
{
    return atomic_load(&link->page->sets) >> DYTI_ARENA_ROLLOUT & 1u;
}

bool dyti_link_is_push(const struct dyti_link *link)
{
    return link->is_push;
}

void dyti_link_traffic(const struct dyti_link *link,
                       struct dyti_group_traffic *out_traffic)
{
    *out_traffic = (struct dyti_group_traffic){0};
    if (link->params.apart != NULL) {
        link->all.ops->traffic(link->all.self, out_traffic);
    }
}

uint64_t dyti_link_scratch_bytes(const struct dyti_link *link)
{
    return link->own.base == NULL ? 0 : link->own.bytes;
}

/* ---- hashes ---------------------------------------------------------------
 */

static enum dyt_status hash_shard(const struct dyti_hands *hands,
                                  const struct dyti_model *catalogue,
                                  const struct dyti_shard *shard,
                                  const unsigned char *data, uint64_t *sum)
{
    struct dyti_hash_box box;

    dyti_hash_box_of(catalogue, shard, data, &box);
    return hands->kernels.ops->hash(hands->kernels.self, &box, 1, sum);
}

enum dyt_status dyti_link_row_hash(const struct dyti_link *link, uint32_t row,
                                   uint64_t *out_hash)
{
    const struct dyti_link_params *p = &link->params;
    bool is_source = dyti_link_is_source(link, p->rank);
    uint32_t set =
        p->commit == DYT_COMMIT_DOUBLE ? dyti_link_live_set(link) : 0;
    const struct dyti_reach *reach =
        is_source ? &link->source[p->rank]
                  : &link->target[set * p->member_count + p->rank];
    const struct dyti_memory_view *memory = reach->memory;
    uint32_t kinds = is_source ? link->source_kinds : link->target_kinds;
    uint64_t sum = 0;
    enum dyt_status st = DYT_OK;

    if (memory->shard_row == NULL || row >= memory->row_count) {
        return DYTI_FAIL(DYT_ERR_INVALID, "row %u of member %u, it has %u", row,
                         p->rank, memory->row_count);
    }
    row = memory->row_as[row];
    for (uint32_t i = 0; i < memory->view.shard_count && st == DYT_OK; i++) {
        const struct dyti_shard *shard = &memory->view.shard[i];

        if (memory->shard_row[i] == row && (kinds >> shard->kind & 1u) != 0) {
            st = hash_shard(
                &link->hands, p->catalogue, shard,
                dyti_reach_address(reach, shard->kind, shard->offset), &sum);
        }
    }
    if (st == DYT_OK) {
        *out_hash = sum;
    }
    return st;
}

static const unsigned char *own_address(const struct dyti_memory_view *own,
                                        const struct dyti_shard *shard)
{
    for (uint32_t i = 0; i < own->extent_count; i++) {
        const struct dyti_extent *e = &own->extent[i];

        if (e->kind == shard->kind && e->address != 0 &&
            shard->offset >= e->offset &&
            shard->offset - e->offset < e->bytes) {
            return (const unsigned char *)(uintptr_t)(e->address +
                                                      shard->offset -
                                                      e->offset);
        }
    }
    return NULL;
}

enum dyt_status dyti_memory_row_hash(const struct dyti_model *catalogue,
                                     const struct dyti_memory_view *own,
                                     uint32_t row, uint64_t *out_hash)
{
    struct dyti_guard guard = {.catalogue = catalogue};
    struct dyti_hands hands;
    uint64_t sum = 0;
    enum dyt_status st;

    if (own->shard_row == NULL || row >= own->row_count) {
        return DYTI_FAIL(DYT_ERR_INVALID, "row %u, this member has %u", row,
                         own->row_count);
    }
    st = dyti_guard_add_own(&guard, own);
    st = st != DYT_OK ? st : dyti_hands_open(&hands, 1, &guard);
    if (st != DYT_OK) {
        dyti_guard_fini(&guard);
        return st;
    }
    row = own->row_as[row];
    for (uint32_t i = 0; i < own->view.shard_count && st == DYT_OK; i++) {
        const struct dyti_shard *shard = &own->view.shard[i];
        const unsigned char *data = own_address(own, shard);

        if (own->shard_row[i] != row) {
            continue;
        }
        st = data != NULL
                 ? hash_shard(&hands, catalogue, shard, data, &sum)
                 : DYTI_FAIL(DYT_ERR_STATE,
                             "row %u is known by its descriptor alone: its "
                             "hash is taken while a link is open",
                             row);
    }
    dyti_hands_close(&hands);
    dyti_guard_fini(&guard);
    if (st == DYT_OK) {
        *out_hash = sum;
    }
    return st;
}
