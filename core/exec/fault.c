/* Deliberate mistakes and abandoned memory, for test builds only: what verify,
 * or a test, must notice. */
#include "exec/switch_internal.h"

#ifdef DYT_TEST_HOOKS

#include <stdlib.h>
#include <string.h>

/* The own shards of a destination tensor, of the first wanted kind. */
static const struct dyti_shard *own_shard(const struct dyti_switch *self,
                                          uint32_t tensor)
{
    const struct dyti_plan_inputs *inputs = &self->params.plan->plan->inputs;

    if (inputs->want_count == 0 || tensor == UINT32_MAX) {
        return NULL;
    }
    return dyti_view_find(dyti_layout_view(inputs->dst, self->params.rank),
                          inputs->want[0].kind, tensor);
}

static unsigned char *shard_data(const struct dyti_switch *self,
                                 const struct dyti_shard *shard)
{
    return dyti_switch_address(&self->params, self->params.rank,
                               self->params.to, shard->kind, shard->offset);
}

/* Bytes from its first element to behind its last. */
static uint64_t shard_extent(const struct dyti_shard *shard)
{
    uint64_t bytes = dyti_dtype_bytes((enum dyti_dtype)shard->dtype);

    for (uint32_t d = 0; d < shard->box.ndim; d++) {
        bytes += (uint64_t)(shard->box.hi[d] - shard->box.lo[d] - 1) *
                 (uint64_t)shard->stride[d];
    }
    return bytes;
}

/* Keep what a tensor's shard holds, and put it back after the transfer. */
static enum dyt_status keep_tensor(struct dyti_switch *self, uint32_t tensor)
{
    const struct dyti_shard *shard = own_shard(self, tensor);

    if (shard == NULL) {
        return DYT_OK;
    }
    self->stale = malloc(shard_extent(shard));
    if (self->stale == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a stale tensor");
    }
    memcpy(self->stale, shard_data(self, shard), shard_extent(shard));
    return DYT_OK;
}

static void restore_tensor(struct dyti_switch *self, uint32_t tensor)
{
    const struct dyti_shard *shard = own_shard(self, tensor);

    if (self->stale != NULL) {
        memcpy(shard_data(self, shard), self->stale, shard_extent(shard));
    }
    free(self->stale);
    self->stale = NULL;
}

/* K and V of the first layer that this rank holds. */
static void swap_kv(struct dyti_switch *self)
{
    const struct dyti_layout *dst = self->params.plan->plan->inputs.dst;

    for (int32_t layer = 0; layer < dst->model->arch.layers; layer++) {
        const struct dyti_shard *k =
            own_shard(self, dyti_model_find(dst->model, layer, DYTI_SLOT_K));
        const struct dyti_shard *v =
            own_shard(self, dyti_model_find(dst->model, layer, DYTI_SLOT_V));
        unsigned char *a, *b;

        if (k == NULL || v == NULL || shard_extent(k) != shard_extent(v)) {
            continue;
        }
        a = shard_data(self, k);
        b = shard_data(self, v);
        for (uint64_t i = 0; i < shard_extent(k); i++) {
            unsigned char kept = a[i];

            a[i] = b[i];
            b[i] = kept;
        }
        return;
    }
}

/* One bit of the first element that this rank has received. */
static void flip_bit(struct dyti_switch *self)
{
    const struct dyti_plan_inputs *inputs = &self->params.plan->plan->inputs;
    const struct dyti_view *view =
        dyti_layout_view(inputs->dst, self->params.rank);

    for (uint32_t w = 0; w < inputs->want_count; w++) {
        uint32_t first = view->kind_first[inputs->want[w].kind];

        if (first < view->kind_first[inputs->want[w].kind + 1]) {
            *shard_data(self, &view->shard[first]) ^= 1u;
            return;
        }
    }
}

enum dyt_status dyti_fault_before(struct dyti_switch *self,
                                  const struct dyti_switch_order *order)
{
    switch (order->fault) {
    case DYTI_FAULT_STALE:
        return keep_tensor(self, order->fault_tensor);
    case DYTI_FAULT_FAIL:
        (void)dyti_switch_move(self, order);
        return DYTI_FAIL(DYT_ERR_DEVICE, "a copy on rank %u",
                         self->params.rank);
    default:
        return DYT_OK;
    }
}

enum dyt_status dyti_fault_after(struct dyti_switch *self,
                                 const struct dyti_switch_order *order)
{
    if (order->fault == DYTI_FAULT_STALE) {
        restore_tensor(self, order->fault_tensor);
    }
    if (order->fault == DYTI_FAULT_FLIP) {
        flip_bit(self);
    }
    if (order->fault == DYTI_FAULT_SWAP_KV) {
        swap_kv(self);
    }
    return DYT_OK;
}

/* Kinds of the source layout that are dead now: the way back fills them whole.
 */
static uint32_t abandoned_kinds(const struct dyti_switch *self)
{
    const struct dyti_plan_inputs *inputs = &self->params.plan->plan->inputs;
    struct dyti_plan_inputs back;
    uint32_t kinds = 0;

    if (dyti_plan_inputs_init(inputs->dst, inputs->dst_slot,
                              self->params.from_layout, self->params.from,
                              DYTI_PLAN_KINDS_STATE, &back) != DYT_OK) {
        return 0; /* there is no way back */
    }
    for (uint32_t w = 0; w < back.want_count; w++) {
        kinds |= 1u << back.want[w].kind;
    }
    return kinds;
}

void dyti_fault_fill_abandoned(struct dyti_switch *self)
{
    const struct dyti_arena_map *map = &self->params.map[self->params.rank];
    uint32_t kinds =
        self->params.from == self->params.to ? 0 : abandoned_kinds(self);

    for (uint32_t kind = 0; kind < DYTI_KIND_COUNT; kind++) {
        if ((kinds & (1u << kind)) != 0 &&
            (self->overlaid &
             dyti_region_bit((uint32_t)self->params.from, kind)) ==
                0) { /* all ones is a NaN of every float type */
            memset(dyti_switch_address(&self->params, self->params.rank,
                                       self->params.from, kind, 0),
                   0xff, map->bytes[self->params.from][kind]);
        }
    }
}

#endif /* DYT_TEST_HOOKS */
