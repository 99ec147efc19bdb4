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

/* The memory may be a device's. */
static enum dyt_status carry(const struct dyti_switch *self, void *dst,
                             const void *src, uint64_t bytes)
{
    return dyti_kernels_carry(&self->params.kernels, dst, src, bytes);
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
    return carry(self, self->stale, shard_data(self, shard),
                 shard_extent(shard));
}

static enum dyt_status restore_tensor(struct dyti_switch *self, uint32_t tensor)
{
    const struct dyti_shard *shard = own_shard(self, tensor);
    enum dyt_status st = DYT_OK;

    if (self->stale != NULL) {
        st = carry(self, shard_data(self, shard), self->stale,
                   shard_extent(shard));
    }
    free(self->stale);
    self->stale = NULL;
    return st;
}

static enum dyt_status swap_bytes(const struct dyti_switch *self,
                                  unsigned char *a, unsigned char *b,
                                  uint64_t bytes)
{
    unsigned char *kept = malloc(2 * bytes);
    enum dyt_status st = DYT_OK;

    if (kept == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "two tensors");
    }
    st = carry(self, kept, a, bytes);
    st = st != DYT_OK ? st : carry(self, kept + bytes, b, bytes);
    st = st != DYT_OK ? st : carry(self, a, kept + bytes, bytes);
    st = st != DYT_OK ? st : carry(self, b, kept, bytes);
    free(kept);
    return st;
}

/* K and V of the first layer that this rank holds. */
static enum dyt_status swap_kv(struct dyti_switch *self)
{
    const struct dyti_layout *dst = self->params.plan->plan->inputs.dst;

    for (int32_t layer = 0; layer < dst->model->arch.layers; layer++) {
        const struct dyti_shard *k =
            own_shard(self, dyti_model_find(dst->model, layer, DYTI_SLOT_K));
        const struct dyti_shard *v =
            own_shard(self, dyti_model_find(dst->model, layer, DYTI_SLOT_V));

        if (k == NULL || v == NULL || shard_extent(k) != shard_extent(v)) {
            continue;
        }
        return swap_bytes(self, shard_data(self, k), shard_data(self, v),
                          shard_extent(k));
    }
    return DYT_OK;
}

/* One bit of the first element that this rank has received. */
static enum dyt_status flip_bit(struct dyti_switch *self)
{
    const struct dyti_plan_inputs *inputs = &self->params.plan->plan->inputs;
    const struct dyti_view *view =
        dyti_layout_view(inputs->dst, self->params.rank);

    for (uint32_t w = 0; w < inputs->want_count; w++) {
        uint32_t first = view->kind_first[inputs->want[w].kind];

        if (first < view->kind_first[inputs->want[w].kind + 1]) {
            unsigned char *data = shard_data(self, &view->shard[first]), byte;
            enum dyt_status st = carry(self, &byte, data, 1);

            byte ^= 1u;
            return st != DYT_OK ? st : carry(self, data, &byte, 1);
        }
    }
    return DYT_OK;
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
    switch (order->fault) {
    case DYTI_FAULT_STALE:
        return restore_tensor(self, order->fault_tensor);
    case DYTI_FAULT_FLIP:
        return flip_bit(self);
    case DYTI_FAULT_SWAP_KV:
        return swap_kv(self);
    default:
        return DYT_OK;
    }
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

enum dyt_status dyti_fault_fill_abandoned(struct dyti_switch *self)
{
    const struct dyti_kernels *k = &self->params.kernels;
    const struct dyti_arena_map *map = &self->params.map[self->params.rank];
    uint32_t kinds =
        self->params.from == self->params.to ? 0 : abandoned_kinds(self);
    enum dyt_status st = DYT_OK;

    for (uint32_t kind = 0; kind < DYTI_KIND_COUNT && st == DYT_OK; kind++) {
        if ((kinds & (1u << kind)) != 0 &&
            (self->overlaid &
             dyti_region_bit((uint32_t)self->params.from, kind)) ==
                0) { /* all ones is a NaN of every float type */
            st = dyti_kernels_fill(
                k,
                dyti_switch_address(&self->params, self->params.rank,
                                    self->params.from, kind, 0),
                map->bytes[self->params.from][kind], 0xff);
        }
    }
    return st == DYT_OK ? dyti_kernels_wait(k) : st;
}

#endif /* DYT_TEST_HOOKS */
