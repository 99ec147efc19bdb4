/* Who a member is: coordinates by the order of dimensions, layers and experts
 * of its stage, and the native share of each cut. */
#include "layout/dialect.h"
#include "layout/index.h"
#include "layout/native.h"

void dyti_native_share(int64_t count, int64_t parts, int64_t r, int64_t *out_lo,
                       int64_t *out_hi)
{
    int64_t each = count / parts, extra = count % parts;

    *out_lo = r * each + (r < extra ? r : extra);
    *out_hi = *out_lo + each + (r < extra ? 1 : 0);
}

static uint32_t axis_size(const struct dyti_layout_desc *d, uint8_t axis)
{
    const uint32_t size[DYTI_AXIS_COUNT] = {d->tp, d->cp, d->dp, d->pp};

    return size[axis];
}

uint32_t dyti_layout_member(const struct dyti_layout *layout, uint32_t tp,
                            uint32_t cp, uint32_t dp, uint32_t pp)
{
    const struct dyti_layout_desc *d = &layout->desc;
    const uint32_t at[DYTI_AXIS_COUNT] = {tp, cp, dp, pp};
    uint32_t member = 0;

    for (int i = DYTI_AXIS_COUNT; i-- > 0;) {
        member = member * axis_size(d, d->order[i]) + at[d->order[i]];
    }
    return member;
}

/* Coordinates in the stage group as the experts see it. */
static void place_experts(const struct dyti_layout *layout, uint32_t in_stage,
                          struct dyti_part *part)
{
    const struct dyti_layout_desc *d = &layout->desc;

    part->etp_size = d->etp;
    part->ep_size = d->ep;
    part->edp_size = d->tp * d->cp * d->dp / (d->ep * d->etp);
    part->etp_rank = in_stage % d->etp;
    part->ep_rank = in_stage / d->etp % d->ep;
    part->edp_rank = in_stage / (d->etp * d->ep);
    dyti_native_share(layout->model->arch.moe.ffn, d->etp, part->etp_rank,
                      &part->expert_ffn_lo, &part->expert_ffn_hi);
}

static void share_dense(const struct dyti_layout *layout,
                        struct dyti_part *part)
{
    const struct dyti_arch *arch = &layout->model->arch;
    int64_t group = arch->q_heads / arch->kv_heads;
    int64_t tp = part->tp_size, r = part->tp_rank;

    dyti_native_share(arch->q_heads, tp, r, &part->q_lo, &part->q_hi);
    part->kv_lo = part->q_lo / group;
    part->kv_hi =
        part->q_hi > part->q_lo ? (part->q_hi - 1) / group + 1 : part->kv_lo;
    dyti_native_share(arch->ffn, tp, r, &part->ffn_lo, &part->ffn_hi);
    dyti_native_share(arch->vocab, tp, r, &part->vocab_lo, &part->vocab_hi);
}

void dyti_layout_part(const struct dyti_layout *layout, uint32_t member,
                      struct dyti_part *out_part)
{
    const struct dyti_layout_desc *d = &layout->desc;
    uint32_t at[DYTI_AXIS_COUNT] = {0}, left = member;
    uint32_t in_stage = 0, step = 1;
    struct dyti_part part = {.member = true, .member_index = member};

    for (int i = 0; i < DYTI_AXIS_COUNT; i++) {
        uint8_t axis = d->order[i];
        uint32_t size = axis_size(d, axis);

        at[axis] = left % size;
        left /= size;
        if (axis != DYTI_AXIS_PP) {
            in_stage += at[axis] * step;
            step *= size;
        }
    }
    part.tp_rank = at[DYTI_AXIS_TP];
    part.tp_size = d->tp;
    part.cp_rank = at[DYTI_AXIS_CP];
    part.cp_size = d->cp;
    part.dp_rank = at[DYTI_AXIS_DP];
    part.dp_size = d->dp;
    part.pp_rank = at[DYTI_AXIS_PP];
    part.pp_size = d->pp;
    part.vpp = d->vpp;
    part.layer_lo = layout->index->first_layer[part.pp_rank];
    part.layer_hi = layout->index->first_layer[part.pp_rank + 1];
    part.has_embed = part.pp_rank == 0;
    part.has_head = part.pp_rank == d->pp - 1;
    share_dense(layout, &part);
    place_experts(layout, in_stage, &part);
    *out_part = part;
}

uint32_t dyti_layout_zero_rank(const struct dyti_part *part)
{
    return part->dp_rank * part->cp_size + part->cp_rank;
}

uint32_t dyti_layout_stage_of(const struct dyti_layout *layout, int64_t layer)
{
    return layout->index->stage_of[layer];
}

bool dyti_layout_holds_layer(const struct dyti_layout *layout,
                             const struct dyti_part *part, int64_t layer)
{
    return layout->index->stage_of[layer] == part->pp_rank;
}

int32_t dyti_layout_expert_slot(const struct dyti_layout *layout,
                                const struct dyti_part *part, int64_t expert,
                                int32_t *out_next)
{
    const struct dyti_layout_desc *d = &layout->desc;
    int64_t experts = layout->model->arch.moe.count, lo, hi;
    size_t at = (size_t)part->ep_rank * (size_t)experts + (size_t)expert;

    *out_next = -1;
    switch (d->experts) {
    case DYTI_EXPERTS_EXPLICIT:
        *out_next = layout->index->second_slot[at];
        return layout->index->slot[at];
    case DYTI_EXPERTS_ROUND_ROBIN:
        return expert % d->ep == part->ep_rank ? (int32_t)(expert / d->ep) : -1;
    default:
        dyti_native_share(experts, d->ep, part->ep_rank, &lo, &hi);
        return expert >= lo && expert < hi ? (int32_t)(expert - lo) : -1;
    }
}

uint32_t dyti_layout_rank(const struct dyti_layout *layout, uint32_t tp,
                          uint32_t pp, uint32_t dp)
{
    return layout->desc.ranks[dyti_layout_member(layout, tp, 0, dp, pp)];
}
