/* Collects the transfers of all ranks, or of one, orders them and adds up. */
#include "base/array.h"
#include "base/hash.h"
#include "plan/boxes.h"
#include "plan/check.h"
#include "plan/cover.h"
#include "plan/plan.h"

#include <stdlib.h>

struct builder {
    struct dyti_cover cover;
    struct dyti_transfer *transfer;
    size_t transfer_count, transfer_cap;
};

/* Keep what the last cover found, if it concerns `rank` (-1: all). */
static enum dyt_status keep_found(struct builder *b, int64_t rank)
{
    for (size_t i = 0; i < b->cover.found_count; i++) {
        const struct dyti_transfer *t = &b->cover.found[i];
        enum dyt_status st;

        if (rank >= 0 && t->src_rank != rank && t->dst_rank != rank) {
            continue;
        }
        st = DYTI_GROW(b->transfer, b->transfer_cap, b->transfer_count + 1);
        if (st != DYT_OK) {
            return st;
        }
        b->transfer[b->transfer_count++] = *t;
    }
    return DYT_OK;
}

/* All that rank r receives or keeps. */
static enum dyt_status plan_destination(struct builder *b, uint32_t r)
{
    const struct dyti_plan_inputs *inputs = b->cover.inputs;
    const struct dyti_view *view = &inputs->dst->view[r];

    for (uint32_t w = 0; w < inputs->want_count; w++) {
        enum dyti_kind kind = inputs->want[w].kind;

        for (uint32_t i = view->kind_first[kind];
             i < view->kind_first[kind + 1]; i++) {
            enum dyt_status st = dyti_cover_shard(&b->cover, w, r, i);

            st = st != DYT_OK ? st : keep_found(b, -1);
            if (st != DYT_OK) {
                return st;
            }
        }
    }
    return DYT_OK;
}

/* Whether rank r can be a source of the tensor for want w. */
static bool can_send(const struct builder *b, uint32_t w, uint32_t r,
                     uint32_t tensor)
{
    const struct dyti_plan_want *want = &b->cover.inputs->want[w];

    for (uint32_t s = 0; s < want->source_count; s++) {
        if (dyti_view_find(&want->source[s].layout->view[r],
                           want->source[s].kind, tensor) != NULL) {
            return true;
        }
    }
    return false;
}

/* All that rank r sends to others: only tensors that it holds are looked at. */
static enum dyt_status plan_source(struct builder *b, uint32_t r)
{
    const struct dyti_plan_inputs *inputs = b->cover.inputs;
    enum dyt_status st = DYT_OK;

    for (uint32_t w = 0; w < inputs->want_count && st == DYT_OK; w++) {
        struct dyti_index dst = {0};

        st = dyti_index_init(&dst, inputs->dst, inputs->want[w].kind);
        for (uint32_t t = 0;
             t < inputs->dst->model->tensor_count && st == DYT_OK; t++) {
            if (dst.first[t] == dst.first[t + 1] || !can_send(b, w, r, t)) {
                continue;
            }
            for (size_t i = dst.first[t]; i < dst.first[t + 1]; i++) {
                if (st != DYT_OK || dst.entry[i].rank == r) {
                    continue; /* plan_destination has those */
                }
                st = dyti_cover_shard(&b->cover, w, dst.entry[i].rank,
                                      dst.entry[i].shard);
                st = st != DYT_OK ? st : keep_found(b, r);
            }
        }
        dyti_index_fini(&dst);
    }
    return st;
}

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
    ORDER(x->dst_shard, y->dst_shard) /* by kind, tensor, offset */
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
                              t->src_dtype, t->dst_dtype};

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

static enum dyt_status finish(struct builder *b,
                              const struct dyti_plan_inputs *inputs,
                              int64_t rank, struct dyti_plan **out_plan)
{
    struct dyti_plan *plan = calloc(1, sizeof(*plan));
    enum dyt_status st;

    if (plan == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a plan");
    }
    if (b->transfer_count > UINT32_MAX) {
        st = DYTI_FAIL(DYT_ERR_OVERFLOW, "%zu transfers in a plan",
                       b->transfer_count);
        goto out;
    }
    if (b->transfer_count > 1) {
        qsort(b->transfer, b->transfer_count, sizeof(*b->transfer),
              by_destination);
    }
    plan->inputs = *inputs;
    plan->world_size = inputs->dst->desc.world_size;
    plan->rank = rank;
    plan->transfer = b->transfer;
    plan->transfer_count = (uint32_t)b->transfer_count;
    b->transfer = NULL;
    plan->fingerprint = dyti_plan_fingerprint(inputs);
    st = add_up(plan);
    if (st == DYT_OK) {
        *out_plan = plan;
        plan = NULL;
    }
out:
    dyti_plan_destroy(plan);
    return st;
}

static enum dyt_status build(const struct dyti_plan_inputs *inputs,
                             int64_t rank, struct dyti_plan **out_plan)
{
    struct builder b = {0};
    enum dyt_status st = dyti_plan_check_inputs(inputs);

    st = st != DYT_OK ? st : dyti_cover_init(&b.cover, inputs);
    if (st == DYT_OK && rank >= 0) {
        st = plan_destination(&b, (uint32_t)rank);
        st = st != DYT_OK ? st : plan_source(&b, (uint32_t)rank);
    }
    for (uint32_t r = 0;
         st == DYT_OK && rank < 0 && r < inputs->dst->desc.world_size; r++) {
        st = plan_destination(&b, r);
    }
    st = st != DYT_OK ? st : finish(&b, inputs, rank, out_plan);
    if (st != DYT_OK) {
        DYTI_NOTE("planning the switch to phase %s", inputs->dst->desc.phase);
    }
    dyti_cover_fini(&b.cover);
    free(b.transfer);
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
    const struct dyti_plan_source *source =
        &plan->inputs.want[transfer->want].source[transfer->source];

    return &source->layout->view[transfer->src_rank].shard[transfer->src_shard];
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
