/* The native dialect: who holds what of a tensor. */
#include "layout/native.h"

bool dyti_native_at_home(const struct dyti_layout *layout,
                         const struct dyti_tensor *tensor,
                         const struct dyti_part *part)
{
    int32_t second;

    if (tensor->layer < 0) {
        return (tensor->on_first && part->has_embed) ||
               (tensor->on_last && part->has_head);
    }
    return dyti_layout_holds_layer(layout, part, tensor->layer) &&
           (tensor->expert < 0 ||
            dyti_layout_expert_slot(layout, part, tensor->expert, &second) >=
                0);
}

void dyti_native_cut(const struct dyti_model *model,
                     const struct dyti_tensor *tensor, uint32_t segment,
                     const struct dyti_part *part, int64_t *out_lo,
                     int64_t *out_hi)
{
    const struct dyti_segment *s = &tensor->segment[segment];
    int64_t units = (s->hi - s->lo) / s->unit, lo, hi, group;

    switch (s->cut) {
    case DYTI_CUT_VOCAB:
    case DYTI_CUT_Q_HEADS:
    case DYTI_CUT_FFN:
        dyti_native_share(units, part->tp_size, part->tp_rank, &lo, &hi);
        break;
    case DYTI_CUT_KV_HEADS:
        group = model->arch.q_heads / units;
        lo = part->q_lo / group;
        hi = part->q_hi > part->q_lo ? (part->q_hi - 1) / group + 1 : lo;
        break;
    case DYTI_CUT_EXPERT_FFN:
        dyti_native_share(units, part->etp_size, part->etp_rank, &lo, &hi);
        break;
    default:
        lo = 0;
        hi = units;
        break;
    }
    *out_lo = s->lo + lo * s->unit;
    *out_hi = s->lo + hi * s->unit;
}

uint32_t dyti_native_ranges(const struct dyti_model *model,
                            const struct dyti_tensor *tensor,
                            const struct dyti_part *part,
                            struct dyti_native_range out[DYTI_MAX_SEGMENTS])
{
    uint32_t count = 0;

    for (uint32_t s = 0; s < tensor->segment_count; s++) {
        struct dyti_native_range r;

        dyti_native_cut(model, tensor, s, part, &r.lo, &r.hi);
        if (r.lo >= r.hi) {
            continue;
        }
        if (count > 0 && out[count - 1].hi >= r.lo) {
            out[count - 1].hi = r.hi;
        } else {
            out[count++] = r;
        }
    }
    return count;
}
