/* Switches between random layouts, and the slow way to carry one out: regions
 * are arrays of unique ids, one per element, whatever the dtype. */
#ifndef DYT_PLAN_CASES_H
#define DYT_PLAN_CASES_H

#include "layout_cases.h"
#include "plan/plan.h"

#define DYT_CASE_NOTHING 0xffffffffu /* never written */

struct dyt_case_switch {
    struct dyti_arch arch;
    struct dyt_case_desc src_desc, dst_desc;
    struct dyti_model *model;
    struct dyti_layout *src, *dst;
    struct dyti_plan_inputs inputs;
};

enum dyt_case_way {
    DYT_CASE_TO_ROLLOUT, /* master -> param */
    DYT_CASE_TO_TRAIN,   /* param -> param, optimizer parked */
    DYT_CASE_NARROW,     /* bf16 rollout -> f32 train: from parked master */
    DYT_CASE_MOVE,       /* every kind travels */
    DYT_CASE_WAYS
};

/* Every element of a kind in the whole model has an id of its own. */
static inline uint32_t dyt_case_id(const struct dyti_model *model,
                                   uint32_t kind, uint32_t tensor,
                                   const int64_t *at)
{
    uint64_t base = kind * dyti_model_elements(model);

    for (uint32_t i = 0; i < tensor; i++) {
        base += dyti_tensor_elements(&model->tensor[i]);
    }
    return (uint32_t)(base + dyt_case_index(&model->tensor[tensor], at));
}

static inline void dyt_case_switch_open(uint64_t seed, uint64_t trial,
                                        enum dyt_case_way way, uint32_t world,
                                        struct dyt_case_switch *s)
{
    struct dyti_layout_desc *roll, *train;
    bool to_rollout = way == DYT_CASE_TO_ROLLOUT;

    memset(s, 0, sizeof(*s));
    s->arch = dyt_case_arch(seed, trial);
    dyt_case_layout(seed, trial, &s->arch, world,
                    to_rollout ? "train" : "rollout", &s->src_desc);
    dyt_case_layout(seed + 1, trial, &s->arch, world,
                    to_rollout ? "rollout" : "train", &s->dst_desc);
    train = to_rollout ? &s->src_desc.desc : &s->dst_desc.desc;
    roll = to_rollout ? &s->dst_desc.desc : &s->src_desc.desc;
    for (int kind = DYTI_GRAD; kind < DYTI_KIND_COUNT; kind++) {
        if (way != DYT_CASE_MOVE) {
            roll->residency[kind] =
                kind == DYTI_GRAD ? DYTI_DROPPED : DYTI_PARKED;
        }
    }
    if (way == DYT_CASE_NARROW || dyt_case_pick(seed, trial, 40, 2) == 0) {
        roll->dtype[DYTI_PARAM] = DYTI_BF16;
        if (way != DYT_CASE_NARROW) {
            train->dtype[DYTI_PARAM] = DYTI_BF16;
        }
    }
    assert_ok(dyti_model_build(&s->arch, &s->model));
    assert_ok(dyti_layout_build(s->model, &s->src_desc.desc, &s->src));
    assert_ok(dyti_layout_build(s->model, &s->dst_desc.desc, &s->dst));
    assert_ok(dyti_plan_inputs_init(
        s->src, to_rollout ? DYTI_ARENA_TRAIN : DYTI_ARENA_ROLLOUT, s->dst,
        to_rollout ? DYTI_ARENA_ROLLOUT : DYTI_ARENA_TRAIN,
        DYTI_PLAN_KINDS_STATE, &s->inputs));
}

static inline void dyt_case_switch_close(struct dyt_case_switch *s)
{
    dyti_layout_destroy(s->src);
    dyti_layout_destroy(s->dst);
    dyti_model_destroy(s->model);
}

/* One array of ids per (slot, kind, rank): [slot][kind][rank], element index
 * = byte offset / element bytes. */
struct dyt_case_memory {
    uint32_t world;
    uint32_t *region[DYTI_ARENA_SLOT_COUNT][DYTI_KIND_COUNT][DYT_CASE_RANKS];
    uint64_t count[DYTI_ARENA_SLOT_COUNT][DYTI_KIND_COUNT][DYT_CASE_RANKS];
};

static inline void dyt_case_region(struct dyt_case_memory *m,
                                   const struct dyti_layout *layout,
                                   enum dyti_arena_slot slot,
                                   enum dyti_kind kind, bool filled)
{
    uint32_t bytes = dyti_dtype_bytes(layout->desc.dtype[kind]);

    for (uint32_t r = 0; r < layout->desc.world_size; r++) {
        const struct dyti_view *view = &layout->view[r];
        uint64_t count = view->region_bytes[kind] / bytes;
        uint32_t **ids = &m->region[slot][kind][r];

        if (*ids == NULL) {
            *ids = malloc((count + 1) * sizeof(**ids));
            assert_non_null(*ids);
            memset(*ids, 0xff, (count + 1) * sizeof(**ids));
            m->count[slot][kind][r] = count;
        }
        for (uint32_t i = view->kind_first[kind];
             filled && i < view->kind_first[kind + 1]; i++) {
            const struct dyti_shard *s = &view->shard[i];
            int64_t at[DYT_MAX_DIMS];

            memcpy(at, s->box.lo, sizeof(at));
            do {
                (*ids)[dyt_case_offset(s, at) / bytes] =
                    dyt_case_id(layout->model, 0, s->tensor, at) |
                    (kind == DYTI_PARAM || kind == DYTI_MASTER
                         ? 0u
                         : (uint32_t)kind << 28);
            } while (dyt_case_next(&s->box, at));
        }
    }
}

/* Sources full of ids (param and master of an element hold the same one),
 * destinations empty. */
static inline void dyt_case_memory_open(const struct dyti_plan_inputs *inputs,
                                        struct dyt_case_memory *m)
{
    memset(m, 0, sizeof(*m));
    m->world = inputs->dst->desc.world_size;
    for (uint32_t w = 0; w < inputs->want_count; w++) {
        const struct dyti_plan_want *want = &inputs->want[w];

        dyt_case_region(m, inputs->dst, inputs->dst_slot, want->kind, false);
        for (uint32_t s = 0; s < want->source_count; s++) {
            dyt_case_region(m, want->source[s].layout, want->source[s].slot,
                            want->source[s].kind, true);
        }
    }
}

static inline void dyt_case_memory_close(struct dyt_case_memory *m)
{
    for (int s = 0; s < DYTI_ARENA_SLOT_COUNT; s++) {
        for (int k = 0; k < DYTI_KIND_COUNT; k++) {
            for (uint32_t r = 0; r < m->world; r++) {
                free(m->region[s][k][r]);
            }
        }
    }
}

/* The destination regions hold exactly what their layout says, and nothing
 * else was written.  `rank` -1: of all ranks. */
static inline void dyt_case_memory_check(const struct dyti_plan_inputs *inputs,
                                         const struct dyt_case_memory *m,
                                         int64_t rank)
{
    struct dyt_case_memory want;

    memset(&want, 0, sizeof(want));
    want.world = m->world;
    for (uint32_t w = 0; w < inputs->want_count; w++) {
        enum dyti_kind kind = inputs->want[w].kind;

        dyt_case_region(&want, inputs->dst, inputs->dst_slot, kind, true);
        for (uint32_t r = 0; r < m->world; r++) {
            uint64_t count = want.count[inputs->dst_slot][kind][r];
            const uint32_t *a = want.region[inputs->dst_slot][kind][r];
            const uint32_t *b = m->region[inputs->dst_slot][kind][r];

            if (rank >= 0 && r != rank) {
                continue;
            }
            for (uint64_t i = 0; i < count; i++) {
                if (a[i] != b[i]) {
                    fail_msg("rank %u %s element %llu: id %x, want %x", r,
                             dyti_kind_name(kind), (unsigned long long)i, b[i],
                             a[i]);
                }
            }
        }
    }
    dyt_case_memory_close(&want);
}

#endif /* DYT_PLAN_CASES_H */
