/* Expands the compact plan for all ranks, or for one, orders and adds up. */
#include "base/array.h"
#include "base/hash.h"
#include "plan/boxes.h"
#include "plan/expand.h"
#include "plan/plan.h"

#include <stdlib.h>

/* ---- order and sums ----------------------------------------------------- */

#define ORDER(a, b)                                                            \
    if ((a) != (b)) {                                                          \
        return (a) < (b) ? -1 : 1;                                             \
    }

static int by_destination(const void *a, const void *b)
{
    const struct dyti_transfer *x = a, *y = b;

    ORDER(x->dst_rank, y->dst_rank)
    ORDER(x->src_rank, y->src_rank)
    ORDER(x->wave, y->wave)
    ORDER(x->dst_shard, y->dst_shard) /* by kind, tensor, offset */
    ORDER(x->src_shard, y->src_shard)
    for (uint32_t d = 0; d < x->box.ndim; d++) {
        ORDER(x->box.lo[d], y->box.lo[d])
    }
    return 0;
}

static uint64_t hash_transfer(uint64_t state, const struct dyti_transfer *t)
{
    const uint64_t field[] = {t->tensor,    t->src_rank,  t->dst_rank,
                              t->src_shard, t->dst_shard, t->src_slot,
                              t->dst_slot,  t->src_kind,  t->dst_kind,
                              t->src_dtype, t->dst_dtype, t->wave};

    for (size_t i = 0; i < sizeof(field) / sizeof(field[0]); i++) {
        state = dyti_fingerprint_u64(state, field[i]);
    }
    for (uint32_t d = 0; d < t->box.ndim; d++) {
        state = dyti_fingerprint_u64(state, (uint64_t)t->box.lo[d]);
        state = dyti_fingerprint_u64(state, (uint64_t)t->box.hi[d]);
    }
    return state;
}

static void add_to_pair(struct dyti_plan_pair *pair,
                        const struct dyti_transfer *t)
{
    uint64_t elements = dyti_boxes_elements(&t->box);

    pair->transfer_count++;
    pair->elements += elements;
    pair->read_bytes +=
        elements * dyti_dtype_bytes((enum dyti_dtype)t->src_dtype);
    pair->write_bytes +=
        elements * dyti_dtype_bytes((enum dyti_dtype)t->dst_dtype);
    pair->hash = hash_transfer(pair->hash, t);
}

static void add_to_total(struct dyti_plan *plan,
                         const struct dyti_plan_pair *pair)
{
    if (pair->src_rank == pair->dst_rank) {
        plan->total[pair->dst_rank].keep_bytes += pair->write_bytes;
    } else {
        plan->total[pair->src_rank].send_bytes += pair->read_bytes;
        plan->total[pair->dst_rank].receive_bytes += pair->write_bytes;
    }
}

/* Pairs and totals of the ordered transfers. */
static enum dyt_status add_up(struct dyti_plan *plan)
{
    size_t pair_cap = 0;

    plan->total = calloc(plan->world_size, sizeof(*plan->total));
    plan->pair_first =
        calloc((size_t)plan->world_size + 1, sizeof(*plan->pair_first));
    if (plan->total == NULL || plan->pair_first == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "totals of %u ranks", plan->world_size);
    }
    for (uint32_t i = 0; i < plan->transfer_count; i++) {
        const struct dyti_transfer *t = &plan->transfer[i];

        if (i == 0 || t[-1].dst_rank != t->dst_rank ||
            t[-1].src_rank != t->src_rank) {
            enum dyt_status st =
                DYTI_GROW(plan->pair, pair_cap, plan->pair_count + 1u);

            if (st != DYT_OK) {
                return st;
            }
            plan->pair[plan->pair_count++] =
                (struct dyti_plan_pair){.src_rank = t->src_rank,
                                        .dst_rank = t->dst_rank,
                                        .transfer_first = i,
                                        .hash = DYTI_FINGERPRINT_SEED};
            plan->pair_first[t->dst_rank + 1]++;
        }
        add_to_pair(&plan->pair[plan->pair_count - 1], t);
    }
    for (uint32_t r = 0; r < plan->world_size; r++) {
        plan->pair_first[r + 1] += plan->pair_first[r];
    }
    for (uint32_t i = 0; i < plan->pair_count; i++) {
        add_to_total(plan, &plan->pair[i]);
    }
    return DYT_OK;
}

/* Atoms end where the holders change: what goes from one shard to one other all
 * the same is one transfer again where it is a box. */
static size_t join(struct dyti_transfer *t, size_t count)
{
    size_t kept = 0, first = 0; /* of the same pair of shards */

    for (size_t i = 0; i < count; i++) {
        size_t at;

        if (kept == 0 || t[first].dst_rank != t[i].dst_rank ||
            t[first].src_rank != t[i].src_rank || t[first].wave != t[i].wave ||
            t[first].dst_shard != t[i].dst_shard ||
            t[first].src_shard != t[i].src_shard) {
            first = kept;
        }
        for (at = kept; at-- > first;) {
            if (dyti_boxes_join(&t[at].box, &t[i].box)) {
                break;
            }
        }
        if (at + 1 == first) { /* joined with none */
            t[kept++] = t[i];
        }
    }
    return kept;
}

/* Takes over *transfer on success. */
static enum dyt_status finish(const struct dyti_plan_inputs *inputs,
                              int64_t rank, struct dyti_transfer **transfer,
                              size_t count, struct dyti_plan **out_plan)
{
    struct dyti_plan *plan;
    enum dyt_status st;

    if (count > UINT32_MAX) {
        return DYTI_FAIL(DYT_ERR_OVERFLOW, "%zu transfers in a plan", count);
    }
    plan = calloc(1, sizeof(*plan));
    if (plan == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a plan");
    }
    if (count > 1) {
        qsort(*transfer, count, sizeof(**transfer), by_destination);
        count = join(*transfer, count);
    }
    plan->inputs = *inputs;
    plan->world_size = inputs->dst->desc.world_size;
    plan->rank = rank;
    plan->transfer = *transfer;
    plan->transfer_count = (uint32_t)count;
    *transfer = NULL;
    plan->fingerprint = dyti_plan_fingerprint(inputs);
    st = add_up(plan);
    if (st != DYT_OK) {
        dyti_plan_destroy(plan);
        return st;
    }
    *out_plan = plan;
    return DYT_OK;
}

static enum dyt_status build(const struct dyti_plan_inputs *inputs,
                             int64_t rank, struct dyti_plan **out_plan)
{
    const struct dyti_traffic_options options = {
        .fan_out = inputs->fan_out,
        .one_rank = rank >= 0,
        .rank = rank >= 0 ? (uint32_t)rank : 0};
    struct dyti_traffic *traffic = NULL;
    struct dyti_transfer *transfer = NULL;
    size_t count = 0;
    enum dyt_status st = dyti_traffic_build(inputs, &options, &traffic);

    st = st != DYT_OK ? st : dyti_expand(traffic, rank, &transfer, &count);
    st = st != DYT_OK ? st : finish(inputs, rank, &transfer, count, out_plan);
    if (st != DYT_OK) {
        DYTI_NOTE("planning the switch to phase %s", inputs->dst->desc.phase);
    }
    dyti_traffic_destroy(traffic);
    free(transfer);
    return st;
}

enum dyt_status dyti_plan_build(const struct dyti_plan_inputs *inputs,
                                struct dyti_plan **out_plan)
{
    return build(inputs, -1, out_plan);
}

enum dyt_status dyti_plan_build_rank(const struct dyti_plan_inputs *inputs,
                                     uint32_t rank, struct dyti_plan **out_plan)
{
    if (rank >= inputs->dst->desc.world_size) {
        return DYTI_FAIL(DYT_ERR_INVALID, "rank %u of a world of %u", rank,
                         inputs->dst->desc.world_size);
    }
    return build(inputs, rank, out_plan);
}

void dyti_plan_destroy(struct dyti_plan *plan)
{
    if (plan != NULL) {
        free(plan->transfer);
        free(plan->pair);
        free(plan->pair_first);
        free(plan->total);
        free(plan);
    }
}

/* ---- reading a plan ----------------------------------------------------- */

const struct dyti_shard *dyti_plan_src(const struct dyti_plan *plan,
                                       const struct dyti_transfer *transfer)
{
    const struct dyti_plan_inputs *in = &plan->inputs;
    const struct dyti_layout *layout =
        transfer->source == DYTI_PLAN_SIBLING
            ? in->dst
            : in->want[transfer->want].source[transfer->source].layout;

    return &layout->view[transfer->src_rank].shard[transfer->src_shard];
}

const struct dyti_shard *dyti_plan_dst(const struct dyti_plan *plan,
                                       const struct dyti_transfer *transfer)
{
    return &plan->inputs.dst->view[transfer->dst_rank]
                .shard[transfer->dst_shard];
}

const struct dyti_plan_pair *dyti_plan_find_pair(const struct dyti_plan *plan,
                                                 uint32_t src, uint32_t dst)
{
    uint32_t a, b, end;

    if (src >= plan->world_size || dst >= plan->world_size) {
        return NULL;
    }
    a = plan->pair_first[dst];
    b = end = plan->pair_first[dst + 1];
    while (a < b) {
        uint32_t mid = a + (b - a) / 2;

        if (plan->pair[mid].src_rank < src) {
            a = mid + 1;
        } else {
            b = mid;
        }
    }
    return a < end && plan->pair[a].src_rank == src ? &plan->pair[a] : NULL;
}
