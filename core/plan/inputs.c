/* Which kinds a switch has to fill, and from what. */
#include "base/hash.h"
#include "plan/check.h"
#include "plan/plan.h"

/* Values of `from` can be had in `to` without loss that the kinds do not have
 * anyway: equal, or f32 rounded once. */
static bool is_as_wide(enum dyti_dtype from, enum dyti_dtype to)
{
    return from == to ||
           (from == DYTI_F32 && (to == DYTI_BF16 || to == DYTI_F16));
}

static bool holds(const struct dyti_layout *layout, enum dyti_kind kind)
{
    return layout->desc.residency[kind] == DYTI_HELD &&
           (layout->model->kinds >> kind & 1u) != 0;
}

static void add_want(struct dyti_plan_inputs *inputs, enum dyti_kind kind,
                     const struct dyti_layout *layout,
                     enum dyti_arena_slot slot, enum dyti_kind source)
{
    struct dyti_plan_want *want = &inputs->want[inputs->want_count++];

    want->kind = kind;
    want->source[0] = (struct dyti_plan_source){layout, slot, source};
    want->source_count = 1;
}

/* A further source of the last want, for tensors that the first has not. */
static void add_source(struct dyti_plan_inputs *inputs,
                       const struct dyti_layout *layout,
                       enum dyti_arena_slot slot, enum dyti_kind source)
{
    struct dyti_plan_want *want = &inputs->want[inputs->want_count - 1];

    want->source[want->source_count++] =
        (struct dyti_plan_source){layout, slot, source};
}

/* Tensors that no optimizer updates (a router's bias) have no master. */
static bool has_param_only(const struct dyti_model *model)
{
    for (uint32_t t = 0; t < model->tensor_count; t++) {
        uint32_t kinds = model->tensor[t].kinds;

        if ((kinds >> DYTI_PARAM & 1u) != 0 &&
            (kinds >> DYTI_MASTER & 1u) == 0) {
            return true;
        }
    }
    return false;
}

/* … and come from param, which has a dtype of their own. */
static void add_param_only(const struct dyti_layout *src,
                           enum dyti_arena_slot src_slot,
                           struct dyti_plan_inputs *inputs)
{
    if (holds(src, DYTI_PARAM) && has_param_only(src->model)) {
        add_source(inputs, src, src_slot, DYTI_PARAM);
    }
}

static enum dyt_status want_param(const struct dyti_layout *src,
                                  enum dyti_arena_slot src_slot,
                                  struct dyti_plan_inputs *inputs)
{
    const struct dyti_layout *dst = inputs->dst;
    enum dyti_dtype have = src->desc.dtype[DYTI_PARAM];
    enum dyti_dtype need = dst->desc.dtype[DYTI_PARAM];

    if (holds(src, DYTI_MASTER)) {
        add_want(inputs, DYTI_PARAM, src, src_slot, DYTI_MASTER);
        add_param_only(src, src_slot, inputs);
    } else if (holds(src, DYTI_PARAM) && is_as_wide(have, need)) {
        add_want(inputs, DYTI_PARAM, src, src_slot, DYTI_PARAM);
    } else if (src->desc.residency[DYTI_MASTER] == DYTI_PARKED &&
               holds(dst, DYTI_MASTER)) {
        add_want(inputs, DYTI_PARAM, dst, inputs->dst_slot, DYTI_MASTER);
        add_param_only(src, src_slot, inputs);
    } else {
        return DYTI_FAIL(DYT_ERR_LAYOUT,
                         "param of phase %s as %s has no source: phase %s "
                         "holds no master and has param as %s; hold or park "
                         "master there",
                         dst->desc.phase, dyti_dtype_name(need),
                         src->desc.phase, dyti_dtype_name(have));
    }
    return DYT_OK;
}

static enum dyt_status want_state(const struct dyti_layout *src,
                                  enum dyti_arena_slot src_slot,
                                  enum dyti_kind kind,
                                  struct dyti_plan_inputs *inputs)
{
    if (src->desc.residency[kind] == DYTI_PARKED) {
        return DYT_OK; /* it lies where the destination expects it */
    }
    if (!holds(src, kind)) {
        return DYTI_FAIL(DYT_ERR_LAYOUT,
                         "%s of phase %s has no source: phase %s neither holds "
                         "nor parks it; hold or park it there, or drop it here",
                         dyti_kind_name(kind), inputs->dst->desc.phase,
                         src->desc.phase);
    }
    add_want(inputs, kind, src, src_slot, kind);
    return DYT_OK;
}

enum dyt_status dyti_plan_inputs_init(const struct dyti_layout *src,
                                      enum dyti_arena_slot src_slot,
                                      const struct dyti_layout *dst,
                                      enum dyti_arena_slot dst_slot,
                                      uint32_t kinds,
                                      struct dyti_plan_inputs *out_inputs)
{
    struct dyti_plan_inputs inputs = {.dst = dst, .dst_slot = dst_slot};
    enum dyt_status st = dyti_plan_check_world(src, dst);

    for (int kind = 0; kind < DYTI_KIND_COUNT && st == DYT_OK; kind++) {
        if ((kinds >> kind & 1u) == 0 || !holds(dst, (enum dyti_kind)kind)) {
            continue;
        }
        st = kind == DYTI_PARAM
                 ? want_param(src, src_slot, &inputs)
                 : want_state(src, src_slot, (enum dyti_kind)kind, &inputs);
    }
    if (st != DYT_OK) {
        DYTI_NOTE("choosing the sources of the switch from %s to %s",
                  src->desc.phase, dst->desc.phase);
        return st;
    }
    *out_inputs = inputs;
    return DYT_OK;
}

uint64_t dyti_plan_fingerprint(const struct dyti_plan_inputs *inputs)
{
    uint64_t state = DYTI_FINGERPRINT_SEED;

    state = dyti_fingerprint_u64(state, DYTI_PLAN_VERSION);
    state = dyti_fingerprint_u64(state, inputs->dst->fingerprint);
    state = dyti_fingerprint_u64(state, inputs->dst_slot);
    state = dyti_fingerprint_u64(state, inputs->fan_out);
    state = dyti_fingerprint_u64(state, inputs->heals);
    for (uint32_t r = 0;
         inputs->host != NULL && r < inputs->dst->desc.world_size; r++) {
        state = dyti_fingerprint_u64(state, inputs->host[r]);
    }
    for (uint32_t w = 0; w < inputs->want_count; w++) {
        const struct dyti_plan_want *want = &inputs->want[w];

        state = dyti_fingerprint_u64(state, want->kind);
        for (uint32_t s = 0; s < want->source_count; s++) {
            const struct dyti_plan_source *source = &want->source[s];

            state = dyti_fingerprint_u64(state, source->layout->fingerprint);
            state = dyti_fingerprint_u64(state, source->slot);
            state = dyti_fingerprint_u64(state, source->kind);
        }
    }
    return state;
}

/* ---- checks of inputs that a caller wrote himself ------------------------ */

enum dyt_status dyti_plan_check_world(const struct dyti_layout *src,
                                      const struct dyti_layout *dst)
{
    if (src->model->fingerprint != dst->model->fingerprint) {
        return DYTI_FAIL(DYT_ERR_LAYOUT,
                         "the layouts of %s and %s describe different models "
                         "(%016llx and %016llx)",
                         src->desc.phase, dst->desc.phase,
                         (unsigned long long)src->model->fingerprint,
                         (unsigned long long)dst->model->fingerprint);
    }
    if (src->desc.world_size != dst->desc.world_size) {
        return DYTI_FAIL(DYT_ERR_LAYOUT,
                         "the layouts of %s and %s are of worlds of %u and %u "
                         "ranks",
                         src->desc.phase, dst->desc.phase, src->desc.world_size,
                         dst->desc.world_size);
    }
    return DYT_OK;
}

static enum dyt_status check_source(const struct dyti_plan_inputs *inputs,
                                    const struct dyti_plan_want *want,
                                    const struct dyti_plan_source *source)
{
    enum dyti_dtype have, need = inputs->dst->desc.dtype[want->kind];
    enum dyt_status st = dyti_plan_check_world(source->layout, inputs->dst);

    if (st != DYT_OK) {
        return st;
    }
    if ((unsigned)source->kind >= DYTI_KIND_COUNT ||
        (unsigned)source->slot >= DYTI_ARENA_SLOT_COUNT ||
        !holds(source->layout, source->kind)) {
        return DYTI_FAIL(
            DYT_ERR_INVALID, "phase %s does not hold %s, the source of %s",
            source->layout->desc.phase, dyti_kind_name(source->kind),
            dyti_kind_name(want->kind));
    }
    have = source->layout->desc.dtype[source->kind];
    /* Those that come after the first serve tensors with a dtype of their own.
     */
    if (source == &want->source[0] && !is_as_wide(have, need)) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "%s as %s cannot be the source of %s as %s: it is "
                         "narrower",
                         dyti_kind_name(source->kind), dyti_dtype_name(have),
                         dyti_kind_name(want->kind), dyti_dtype_name(need));
    }
    for (uint32_t w = 0; w < inputs->want_count && !inputs->heals; w++) {
        if (source->slot == inputs->dst_slot &&
            source->kind == inputs->want[w].kind) {
            return DYTI_FAIL(DYT_ERR_INVALID,
                             "%s of phase %s is both source and destination",
                             dyti_kind_name(source->kind),
                             inputs->dst->desc.phase);
        }
    }
    return DYT_OK;
}

enum dyt_status dyti_plan_check_inputs(const struct dyti_plan_inputs *inputs)
{
    if (inputs->want_count > DYTI_KIND_COUNT ||
        (unsigned)inputs->dst_slot >= DYTI_ARENA_SLOT_COUNT) {
        return DYTI_FAIL(DYT_ERR_INVALID, "%u wants into slot %d",
                         inputs->want_count, (int)inputs->dst_slot);
    }
    for (uint32_t w = 0; w < inputs->want_count; w++) {
        const struct dyti_plan_want *want = &inputs->want[w];

        if ((unsigned)want->kind >= DYTI_KIND_COUNT ||
            !holds(inputs->dst, want->kind) || want->source_count == 0 ||
            want->source_count > DYTI_PLAN_MAX_SOURCES) {
            return DYTI_FAIL(DYT_ERR_INVALID,
                             "want %u: phase %s must hold %s, and it needs 1 "
                             "to %u sources, not %u",
                             w, inputs->dst->desc.phase,
                             dyti_kind_name(want->kind), DYTI_PLAN_MAX_SOURCES,
                             want->source_count);
        }
        for (uint32_t s = 0; s < want->source_count; s++) {
            enum dyt_status st = check_source(inputs, want, &want->source[s]);

            if (st != DYT_OK) {
                return st;
            }
        }
    }
    return DYT_OK;
}
