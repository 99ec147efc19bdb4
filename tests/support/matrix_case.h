/* A switch as a list of numbers: model, two layouts of any dialect, kinds,
 * mode, mover, caps.  Smaller numbers make smaller switches, so that shrink.h
 * finds the smallest one that fails. */
#ifndef DYT_MATRIX_CASE_H
#define DYT_MATRIX_CASE_H

#include "layout_cases.h"
#include "shrink.h"

#include "layout/arena.h"
#include "plan/plan.h"

#include <stdlib.h>

#define MX_RANKS_MAX  6u
#define MX_WORK_BYTES 20000u

/* One side: its numbers begin at MX_FROM or MX_TO. */
enum mx_side_value {
    MX_DIALECT,
    MX_LIST_OF, /* the dialect whose shards a list has */
    MX_TP,
    MX_CP,
    MX_DP,
    MX_PP,
    MX_VPP,
    MX_EP,
    MX_ETP,
    MX_ZERO,
    MX_ODD,     /* bits of enum mx_odd */
    MX_DROPPED, /* bits of kinds */
    MX_PARAM,   /* dtype */
    MX_SIDE_VALUES
};

enum mx_odd {
    MX_ODD_RANKS,   /* in any order */
    MX_ODD_AXES,    /* dimensions in any order */
    MX_ODD_STAGES,  /* uneven */
    MX_ODD_EXPERTS, /* round robin */
    MX_ODD_SLOTS,   /* explicit, with copies */
    MX_ODD_CUTS,    /* native: explicit ZeRO cuts */
    MX_ODD_PLACES,  /* list: shards anywhere, with gaps, transposed */
    MX_ODD_BITS
};

enum mx_mover { MX_PULL, MX_PUSH, MX_MIXED, MX_MESSAGES, MX_MOVER_COUNT };

enum mx_value {
    MX_WORLD,
    MX_MODE,
    MX_MOVER,
    MX_MIXED_PUSH, /* inside a host */
    MX_HOSTS,
    MX_NO_FAN_OUT,
    MX_STRATEGY,
    MX_CAP,     /* in_place: staging memory */
    MX_STAGING, /* of messages; 0: default */
    MX_MESSAGE, /* most bytes of one; 0: default */
    MX_REPEAT,
    MX_VERIFY,
    MX_BACK,   /* from the rollout layout to the train layout */
    MX_PARKED, /* rollout parks all but param */
    MX_KINDS,  /* that travel besides param: bits */
    MX_FAMILY,
    MX_LAYERS,
    MX_HIDDEN,
    MX_VOCAB,
    MX_EXPERTS,
    MX_EXTRAS,
    MX_FROM,
    MX_TO = MX_FROM + MX_SIDE_VALUES,
    MX_SEED = MX_TO + MX_SIDE_VALUES,
    MX_VALUES
};

#define MX_SIDE_NAMES(s)                                                       \
    s " dialect", s " list of", s " tp", s " cp", s " dp", s " pp", s " vpp",  \
        s " ep", s " etp", s " zero", s " odd", s " dropped", s " param"
#define MX_SIDE_LEAST 0, 0, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0

static const char *const mx_name[MX_VALUES] = {"world",
                                               "mode",
                                               "mover",
                                               "mixed: push",
                                               "hosts",
                                               "no fan-out",
                                               "strategy",
                                               "cap",
                                               "staging",
                                               "message",
                                               "repeat",
                                               "verify",
                                               "back",
                                               "parked",
                                               "kinds",
                                               "family",
                                               "layers",
                                               "hidden",
                                               "vocab",
                                               "experts",
                                               "extras",
                                               MX_SIDE_NAMES("from"),
                                               MX_SIDE_NAMES("to"),
                                               "seed"};
static const int64_t mx_least[MX_VALUES] = {1,
                                            0,
                                            0,
                                            0,
                                            1,
                                            0,
                                            0,
                                            0,
                                            0,
                                            0,
                                            0,
                                            0,
                                            0,
                                            0,
                                            0,
                                            0,
                                            1,
                                            1,
                                            12,
                                            2,
                                            0,
                                            MX_SIDE_LEAST,
                                            MX_SIDE_LEAST,
                                            0};

/* The case as it was built.  Layouts are by arena slot. */
struct mx_case {
    const int64_t *value;
    struct dyti_model *model;
    struct dyti_layout *layout[DYTI_ARENA_SLOT_COUNT];
    enum dyti_arena_slot from, to;
    uint32_t world, kinds; /* kinds: that travel */
    struct dyti_arena_options options;
    struct dyti_arena_map map[MX_RANKS_MAX];
    uint32_t host[MX_RANKS_MAX];
};

static inline uint64_t mx_pick(const int64_t *v, uint64_t what, uint64_t count)
{
    return dyt_case_pick(0x3a7, (uint64_t)v[MX_SEED], what, count);
}

static inline bool mx_is_odd(const int64_t *side, enum mx_odd odd)
{
    return (side[MX_ODD] >> odd & 1) != 0;
}

/* ---- model --------------------------------------------------------------- */

static inline struct dyti_arch mx_arch(const int64_t *v)
{
    static const struct dyti_arch family[] = {
        DYT_ARCH_TINY_8_2,     DYT_ARCH_TINY_9_3,  DYT_ARCH_TINY_QWEN2,
        DYT_ARCH_TINY_QWEN3,   DYT_ARCH_TINY_GPT2, DYT_ARCH_TINY_MOE,
        DYT_ARCH_TINY_MIXTRAL, DYT_ARCH_TINY_MLA,  DYT_ARCH_TINY_MLA_DIRECT};
    struct dyti_arch a = family[v[MX_FAMILY] % (int64_t)DYT_TEST_COUNT(family)];

    a.layers = v[MX_LAYERS];
    a.vocab = v[MX_VOCAB];
    a.hidden = a.family == DYTI_GPT2 ? a.q_heads * a.head_dim : v[MX_HIDDEN];
    if (a.moe.count > 0) {
        a.moe.count = v[MX_EXPERTS];
        a.moe.per_token = 1;
    }
    return a;
}

static inline struct dyti_model *mx_model(const int64_t *v)
{
    struct dyti_arch arch = mx_arch(v);
    struct dyti_model *plain = NULL, *model = NULL;
    const struct dyti_tensor *of;
    struct dyti_extra_desc extra[DYT_CASE_EXTRAS];
    int64_t block[DYT_MAX_DIMS];

    if (dyti_model_build(&arch, &plain) != DYT_OK || v[MX_EXTRAS] == 0) {
        return plain;
    }
    of = &plain->tensor[mx_pick(v, 2, plain->tensor_count)];
    for (uint32_t d = 0; d < of->ndim; d++) {
        block[d] = 1 + (int64_t)mx_pick(v, 3 + d, 9);
    }
    dyt_case_extras(1 + (int64_t)mx_pick(v, 1, 9), extra);
    dyt_case_scale(&extra[3], of, block);
    assert_ok(dyti_model_build_with(&arch, extra, 4, &model));
    dyti_model_destroy(plain);
    return model;
}

/* ---- one side -------------------------------------------------------------
 */

static inline void mx_odd_desc(const struct mx_case *c, const int64_t *side,
                               struct dyt_case_desc *out)
{
    const int64_t *v = c->value;
    struct dyti_layout_desc *d = &out->desc;
    uint64_t salt = side == v + MX_FROM ? 0 : 500;
    uint64_t seed = (uint64_t)v[MX_SEED] + salt;
    uint32_t group = d->tp * d->cp * d->dp, stages = d->pp * d->vpp;

    for (uint32_t r = 0; r < c->world; r++) {
        uint32_t at = (uint32_t)mx_pick(v, salt + 30 + r, r + 1);

        out->ranks[r] = out->ranks[at];
        out->ranks[at] = r;
    }
    d->ranks = mx_is_odd(side, MX_ODD_RANKS) ? out->ranks : NULL;
    for (uint32_t i = 0; i < DYTI_AXIS_COUNT; i++) {
        uint32_t at = mx_is_odd(side, MX_ODD_AXES)
                          ? (uint32_t)mx_pick(v, salt + 50 + i, i + 1)
                          : i;

        d->order[i] = d->order[at];
        d->order[at] = (uint8_t)i;
    }
    if (mx_is_odd(side, MX_ODD_STAGES) && stages <= (uint32_t)v[MX_LAYERS]) {
        for (uint32_t s = 0; s < (uint32_t)v[MX_LAYERS]; s++) {
            out->pp_layers[s < stages ? s
                                      : mx_pick(v, salt + 70 + s, stages)]++;
        }
        d->pp_layers = out->pp_layers;
    }
    d->experts = mx_is_odd(side, MX_ODD_EXPERTS) ? DYTI_EXPERTS_ROUND_ROBIN
                                                 : DYTI_EXPERTS_LINEAR;
    if (mx_is_odd(side, MX_ODD_SLOTS) && c->model->arch.moe.count > 0) {
        dyt_case_slots(seed, 1, c->model->arch.moe.count, out);
    }
    if (mx_is_odd(side, MX_ODD_CUTS) && d->dialect == DYTI_DIALECT_NATIVE) {
        d->zero_range = out->zero_range[0];
        d->zero_range_count =
            dyt_case_cut(seed, 2, d->dp * d->cp, out->zero_range[0]);
        d->expert_zero_range = out->zero_range[1];
        d->expert_zero_range_count =
            dyt_case_cut(seed, 3, group / (d->ep * d->etp), out->zero_range[1]);
    }
}

static inline bool mx_desc(const struct mx_case *c, const int64_t *side,
                           bool parks, struct dyt_case_desc *out)
{
    static const enum dyti_dtype dtype[] = {DYTI_F32, DYTI_BF16, DYTI_F16};
    struct dyti_layout_desc *d = &out->desc;

    memset(out, 0, sizeof(*out));
    *d = (struct dyti_layout_desc){
        .phase = side == c->value + MX_FROM ? "from" : "to",
        .world_size = c->world,
        .dialect = (enum dyti_dialect)(side[MX_DIALECT] == DYTI_DIALECT_LIST
                                           ? side[MX_LIST_OF]
                                           : side[MX_DIALECT]),
        .tp = (uint32_t)side[MX_TP],
        .cp = (uint32_t)side[MX_CP],
        .dp = (uint32_t)side[MX_DP],
        .pp = (uint32_t)side[MX_PP],
        .vpp = (uint32_t)side[MX_VPP],
        .ep = (uint32_t)side[MX_EP],
        .etp = (uint32_t)side[MX_ETP],
        .zero = (uint32_t)side[MX_ZERO]};
    if (d->tp * d->cp * d->dp * d->pp > c->world ||
        d->tp * d->cp * d->dp % (d->ep * d->etp) != 0) {
        return false;
    }
    d->dtype[DYTI_PARAM] = dtype[side[MX_PARAM]];
    for (int k = 1; k < DYTI_KIND_COUNT; k++) {
        d->residency[k] = parks                              ? DYTI_PARKED
                          : (side[MX_DROPPED] >> k & 1) != 0 ? DYTI_DROPPED
                                                             : DYTI_HELD;
    }
    mx_odd_desc(c, side, out);
    return true;
}

/* Shards of one kind anywhere in their region, in any order, with gaps, and
 * with their axes from slow to fast in any order; now and then backwards. */
static inline void mx_scatter(const struct mx_case *c, struct dyti_view *view,
                              uint32_t kind, uint64_t salt)
{
    uint64_t at = 0;
    uint32_t first = view->kind_first[kind], last = view->kind_first[kind + 1];

    for (uint32_t n = first; n < last; n++) {
        /* an odd stride through a power of two visits all of it once */
        uint32_t room = 1, i = 0;
        struct dyti_shard *s;
        int64_t bytes, stride;

        while (room < last - first) {
            room *= 2;
        }
        for (uint32_t k = 0, seen = 0; seen <= n - first; k++) {
            i = (k * 5u + 3u) % room;
            seen += i < last - first;
        }
        s = &view->shard[first + i];
        bytes = stride = dyti_dtype_bytes((enum dyti_dtype)s->dtype);
        at = (at + (uint64_t)bytes - 1) / (uint64_t)bytes * (uint64_t)bytes;
        at += mx_pick(c->value, salt + 7 * i, 3) * (uint64_t)bytes;
        for (uint32_t k = 0; k < s->box.ndim; k++) {
            uint32_t d = (k + (uint32_t)mx_pick(c->value, salt + 7 * i + 1,
                                                s->box.ndim)) %
                         s->box.ndim;

            s->stride[d] = stride;
            stride *= s->box.hi[d] - s->box.lo[d] +
                      (int64_t)mx_pick(c->value, salt + 7 * i + 2 + d, 2);
        }
        s->offset = at;
        at += (uint64_t)stride;
        for (uint32_t d = 0; d < s->box.ndim; d++) {
            if (mx_pick(c->value, salt + 7 * i + 50 + d, 8) == 0) {
                s->offset += (uint64_t)((s->box.hi[d] - s->box.lo[d] - 1) *
                                        s->stride[d]);
                s->stride[d] = -s->stride[d];
            }
        }
    }
    view->region_bytes[kind] = last > first ? at : view->region_bytes[kind];
}

static inline struct dyti_layout *mx_as_list(const struct mx_case *c,
                                             const int64_t *side,
                                             struct dyti_layout *layout)
{
    struct dyti_layout_desc desc = layout->desc;
    struct dyti_layout *list = NULL;
    struct dyti_view *view = layout->view;

    desc.dialect = DYTI_DIALECT_LIST;
    for (uint32_t r = 0; r < c->world && mx_is_odd(side, MX_ODD_PLACES); r++) {
        for (uint32_t k = 0; k < DYTI_KIND_COUNT; k++) {
            mx_scatter(c, &view[r], k, 1000 * (r + 1) + 100 * k);
        }
        free(view[r].buffer);
        free(view[r].names);
        view[r].buffer = NULL;
        view[r].names = NULL;
        view[r].buffer_count = 0;
    }
    assert_ok(dyti_layout_from_views(c->model, &desc, view, &list));
    layout->view = NULL; /* what lay in it is taken over */
    free(view);
    dyti_layout_destroy(layout);
    return list;
}

static inline struct dyti_layout *mx_layout(const struct mx_case *c,
                                            const int64_t *side, bool parks)
{
    struct dyti_layout *layout = NULL;
    struct dyt_case_desc desc;

    if (!mx_desc(c, side, parks, &desc) ||
        dyti_layout_build(c->model, &desc.desc, &layout) != DYT_OK) {
        return NULL;
    }
    return side[MX_DIALECT] == DYTI_DIALECT_LIST ? mx_as_list(c, side, layout)
                                                 : layout;
}

/* ---- the whole ------------------------------------------------------------
 */

static inline void mx_close(struct mx_case *c)
{
    for (int s = 0; s < DYTI_ARENA_SLOT_COUNT; s++) {
        dyti_layout_destroy(c->layout[s]);
    }
    dyti_model_destroy(c->model);
}

/* A tensor without a master has its param from nowhere else. */
static inline bool mx_param_is_lost(const struct dyti_layout *src)
{
    for (uint32_t t = 0; t < src->model->tensor_count; t++) {
        uint32_t kinds = src->model->tensor[t].kinds;

        if ((kinds >> DYTI_PARAM & 1u) != 0 &&
            (kinds >> DYTI_MASTER & 1u) == 0) {
            return !dyti_layout_holds(src, DYTI_PARAM);
        }
    }
    return false;
}

/* Kinds that the source can fill, of those that are asked for. */
static inline uint32_t mx_kinds(const struct mx_case *c)
{
    const struct dyti_layout *src = c->layout[c->from];
    uint32_t kinds = 0;

    for (int k = 0; k < DYTI_KIND_COUNT; k++) {
        struct dyti_plan_inputs inputs;
        bool asked = k == DYTI_PARAM ? !mx_param_is_lost(src)
                                     : (c->value[MX_KINDS] >> k & 1) != 0;

        if (asked &&
            dyti_plan_inputs_init(src, c->from, c->layout[c->to], c->to,
                                  1u << k, &inputs) == DYT_OK &&
            inputs.want_count > 0) {
            kinds |= 1u << k;
        }
    }
    return kinds;
}

static inline bool mx_arena(struct mx_case *c)
{
    c->options = (struct dyti_arena_options){
        .mode = (enum dyti_switch_mode)c->value[MX_MODE],
        .work_bytes = MX_WORK_BYTES,
        .staging_bytes = (uint64_t)c->value[MX_CAP]};
    for (uint32_t r = 0; r < c->world; r++) {
        if (dyti_arena_map_build_mode(
                (const struct dyti_layout *const *)c->layout, r, &c->options,
                &c->map[r]) != DYT_OK) {
            return false;
        }
    }
    return true;
}

/* false: there is no such switch (a dialect refuses, nothing travels). */
static inline bool mx_open(const int64_t *value, struct mx_case *out)
{
    struct mx_case *c = out;
    bool back = value[MX_BACK] != 0, parks = value[MX_PARKED] != 0;

    *c = (struct mx_case){.value = value,
                          .world = (uint32_t)value[MX_WORLD],
                          .from = back ? DYTI_ARENA_ROLLOUT : DYTI_ARENA_TRAIN,
                          .to = back ? DYTI_ARENA_TRAIN : DYTI_ARENA_ROLLOUT,
                          .model = mx_model(value)};
    if (c->model != NULL) {
        c->layout[c->from] = mx_layout(c, value + MX_FROM, parks && back);
        c->layout[c->to] = mx_layout(c, value + MX_TO, parks && !back);
    }
    if (c->model == NULL || c->layout[c->from] == NULL ||
        c->layout[c->to] == NULL || (c->kinds = mx_kinds(c)) == 0 ||
        !mx_arena(c)) {
        mx_close(c);
        return false;
    }
    for (uint32_t r = 0; r < c->world; r++) {
        uint32_t hosts = (uint32_t)value[MX_HOSTS];

        c->host[r] = mx_pick(value, 20, 3) == 0
                         ? (uint32_t)mx_pick(value, 21 + r, hosts) % c->world
                         : r * hosts / c->world;
    }
    return true;
}

#endif /* DYT_MATRIX_CASE_H */
