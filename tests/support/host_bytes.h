/* Bytes between hosts: those that a group carries, and those that must cross,
 * counted element by element. */
#ifndef DYT_HOST_BYTES_H
#define DYT_HOST_BYTES_H

#include "switch_world.h"

#define HOSTS_MAX 3u

/* ---- counting what goes between hosts -------------------------------------
 */

static struct dyti_group_ops counted;
static void *member[SW_RANKS_MAX]; /* of the world's group, by rank */
static _Atomic uint64_t crossed;   /* payload of messages between hosts */
static _Atomic uint64_t sent[SW_RANKS_MAX]; /* the same, by sender */

static inline enum dyt_status counted_open(
    const struct dyti_group_params *params, void **out_self)
{
    enum dyt_status st = dyti_group_shm.open(params, out_self);

    if (st == DYT_OK && strcmp(params->name, "world") == 0) {
        member[params->rank] = *out_self;
    }
    return st;
}

static inline enum dyt_status counted_post(void *self,
                                           const struct dyti_p2p *message,
                                           uint64_t *out_ticket)
{
    enum dyt_status st = dyti_group_shm.post(self, message, out_ticket);
    uint32_t rank = 0;

    while (rank < SW_RANKS_MAX - 1 && member[rank] != self) {
        rank++;
    }
    if (st == DYT_OK && message->is_send &&
        sw_host[rank] != sw_host[message->peer]) {
        uint64_t bytes = message->size_bytes - DYTI_MOVER_HEAD_BYTES;

        atomic_fetch_add(&crossed, bytes);
        atomic_fetch_add(&sent[rank], bytes);
    }
    return st;
}

static inline void count_groups(void)
{
    counted = dyti_group_shm;
    counted.open = counted_open;
    counted.post = counted_post;
    sw_group = &counted;
    memset(member, 0, sizeof(member));
    atomic_store(&crossed, 0);
    for (uint32_t r = 0; r < SW_RANKS_MAX; r++) {
        atomic_store(&sent[r], 0);
    }
}

/* ---- the same, element by element -----------------------------------------
 */

/* Of an element: who holds it before, who wants it. */
struct cell {
    uint8_t have_hosts, want_ranks[HOSTS_MAX], bytes;
};

static inline void mark(const struct sw_case *c,
                        const struct dyti_layout *layout, enum dyti_kind kind,
                        uint32_t tensor, bool wants, struct cell *cell)
{
    const struct dyti_tensor *t = &c->model->tensor[tensor];
    int64_t cols = t->shape[t->ndim - 1];
    uint32_t fast = t->ndim - 1;

    for (uint32_t r = 0; r < c->world_size; r++) {
        const struct dyti_view *view = dyti_layout_view(layout, r);

        for (uint32_t s = view->kind_first[kind];
             s < view->kind_first[kind + 1]; s++) {
            const struct dyti_shard *shard = &view->shard[s];
            int64_t lo = t->ndim == 1 ? 0 : shard->box.lo[0];
            int64_t hi = t->ndim == 1 ? 1 : shard->box.hi[0];

            for (int64_t i = lo; shard->tensor == tensor && i < hi; i++) {
                for (int64_t k = shard->box.lo[fast]; k < shard->box.hi[fast];
                     k++) {
                    struct cell *at = &cell[i * cols + k];

                    if (!wants) {
                        at->have_hosts |= (uint8_t)(1u << sw_host[r]);
                        continue;
                    }
                    at->want_ranks[sw_host[r]]++;
                    at->bytes = (uint8_t)dyti_dtype_bytes(
                        (enum dyti_dtype)shard->dtype);
                }
            }
        }
    }
}

/* Bytes that must enter hosts: once for each, or once for each rank. */
static inline uint64_t must_cross(const struct sw_case *c,
                                  enum dyti_arena_slot from,
                                  enum dyti_arena_slot to, bool each)
{
    struct dyti_plan_inputs in;
    uint64_t bytes = 0;

    assert_ok(dyti_plan_inputs_init(c->layout[from], from, c->layout[to], to,
                                    DYTI_PLAN_KINDS_STATE, &in));
    for (uint32_t w = 0; w < in.want_count; w++) {
        assert_int_equal(1, in.want[w].source_count);
        for (uint32_t t = 0; t < c->model->tensor_count; t++) {
            const struct dyti_tensor *tensor = &c->model->tensor[t];
            size_t count = (size_t)tensor->shape[0];
            struct cell *cell;

            for (uint32_t d = 1; d < tensor->ndim; d++) {
                count *= (size_t)tensor->shape[d];
            }
            cell = calloc(count, sizeof(*cell));
            assert_non_null(cell);
            mark(c, in.want[w].source[0].layout, in.want[w].source[0].kind, t,
                 false, cell);
            mark(c, in.dst, in.want[w].kind, t, true, cell);
            for (size_t i = 0; i < count; i++) {
                for (uint32_t h = 0; h < HOSTS_MAX; h++) {
                    uint32_t n = cell[i].want_ranks[h];

                    if (((uint32_t)cell[i].have_hosts >> h & 1u) == 0 &&
                        n > 0) {
                        bytes += (each ? n : 1u) * (uint64_t)cell[i].bytes;
                    }
                }
            }
            free(cell);
        }
    }
    return bytes;
}

#endif /* DYT_HOST_BYTES_H */
