/* The native dialect: who holds what of a tensor, and in which order.
 *
 *   query heads, FFN, vocabulary   as evenly as can be, first ranks get more
 *   KV heads                       those that the rank's query heads read
 *   norms                          all of them
 */
#include "layout/native.h"

#include "base/checked.h"

#include <string.h>

void dyti_native_share(int64_t count, int64_t parts, int64_t r, int64_t *out_lo,
                       int64_t *out_hi)
{
    int64_t each = count / parts, extra = count % parts;

    *out_lo = r * each + (r < extra ? r : extra);
    *out_hi = *out_lo + each + (r < extra ? 1 : 0);
}

void dyti_native_part(const struct dyti_model *model,
                      const struct dyti_layout_desc *desc, uint32_t member,
                      struct dyti_part *out_part)
{
    const struct dyti_arch *arch = &model->arch;
    int64_t group = arch->q_heads / arch->kv_heads;
    struct dyti_part part = {
        .member = true,
        .tp_rank = member % desc->tp,
        .tp_size = desc->tp,
        .pp_rank = member / (desc->tp * desc->dp),
        .pp_size = desc->pp,
        .dp_rank = member / desc->tp % desc->dp,
        .dp_size = desc->dp,
    };

    for (uint32_t stage = 0; stage < part.pp_rank; stage++) {
        part.layer_lo += desc->pp_layers[stage];
    }
    part.layer_hi = part.layer_lo + desc->pp_layers[part.pp_rank];
    dyti_native_share(arch->q_heads, desc->tp, part.tp_rank, &part.q_lo,
                      &part.q_hi);
    part.kv_lo = part.q_lo / group;
    part.kv_hi = (part.q_hi - 1) / group + 1;
    dyti_native_share(arch->ffn, desc->tp, part.tp_rank, &part.ffn_lo,
                      &part.ffn_hi);
    dyti_native_share(arch->vocab, desc->tp, part.tp_rank, &part.vocab_lo,
                      &part.vocab_hi);
    part.has_embed = part.pp_rank == 0;
    part.has_head = part.pp_rank == desc->pp - 1;
    *out_part = part;
}

bool dyti_native_at_home(const struct dyti_tensor *tensor,
                         const struct dyti_part *part)
{
    if (tensor->layer >= 0) {
        return tensor->layer >= part->layer_lo &&
               tensor->layer < part->layer_hi;
    }
    return (tensor->on_first && part->has_embed) ||
           (tensor->on_last && part->has_head);
}

void dyti_native_cut(const struct dyti_model *model,
                     const struct dyti_tensor *tensor, uint32_t segment,
                     const struct dyti_part *part, int64_t *out_lo,
                     int64_t *out_hi)
{
    const struct dyti_segment *s = &tensor->segment[segment];
    int64_t d = model->arch.head_dim;

    switch (s->cut) {
    case DYTI_CUT_VOCAB:
        *out_lo = s->lo + part->vocab_lo;
        *out_hi = s->lo + part->vocab_hi;
        break;
    case DYTI_CUT_Q_HEADS:
        *out_lo = s->lo + part->q_lo * d;
        *out_hi = s->lo + part->q_hi * d;
        break;
    case DYTI_CUT_KV_HEADS:
        *out_lo = s->lo + part->kv_lo * d;
        *out_hi = s->lo + part->kv_hi * d;
        break;
    case DYTI_CUT_FFN:
        *out_lo = s->lo + part->ffn_lo;
        *out_hi = s->lo + part->ffn_hi;
        break;
    default:
        *out_lo = s->lo;
        *out_hi = s->hi;
        break;
    }
}

/* ---- order in memory ---------------------------------------------------- */

/* Tensors that continue the one before them without a gap: they are one matrix
 * for the GEMM. */
static bool continues(enum dyti_slot last, enum dyti_slot slot)
{
    switch (slot) {
    case DYTI_SLOT_K:
        return last == DYTI_SLOT_Q;
    case DYTI_SLOT_V:
        return last == DYTI_SLOT_K;
    case DYTI_SLOT_K_BIAS:
        return last == DYTI_SLOT_Q_BIAS;
    case DYTI_SLOT_V_BIAS:
        return last == DYTI_SLOT_K_BIAS;
    case DYTI_SLOT_UP:
        return last == DYTI_SLOT_GATE;
    default:
        return false;
    }
}

void dyti_native_walk_init(struct dyti_native_walk *walk,
                           const struct dyti_model *model,
                           const struct dyti_part *part)
{
    memset(walk, 0, sizeof(*walk));
    walk->model = model;
    walk->part = part;
    walk->last = DYTI_SLOT_COUNT;
}

static void place(struct dyti_native_walk *walk, uint32_t index)
{
    const struct dyti_tensor *t = &walk->model->tensor[index];
    struct dyti_native_slot *slot = &walk->slot;

    slot->tensor = index;
    slot->elements = 1;
    for (uint32_t d = 0; d < t->ndim; d++) {
        slot->shape[d] = t->shape[d];
    }
    slot->shape[t->cut_axis] = 0;
    for (uint32_t s = 0; s < t->segment_count; s++) {
        int64_t lo, hi;

        dyti_native_cut(walk->model, t, s, walk->part, &lo, &hi);
        slot->shape[t->cut_axis] += hi - lo;
    }
    for (uint32_t d = 0; d < t->ndim; d++) {
        slot->elements *= (uint64_t)slot->shape[d];
    }
    slot->flat = continues(walk->last, t->slot)
                     ? walk->end
                     : dyti_align_up(walk->end, DYTI_REGION_ALIGN);
    walk->end = slot->flat + slot->elements;
    walk->last = t->slot;
}

bool dyti_native_next(struct dyti_native_walk *walk)
{
    while (walk->next < walk->model->tensor_count) {
        uint32_t index = walk->next++;

        if (dyti_native_at_home(&walk->model->tensor[index], walk->part)) {
            place(walk, index);
            return true;
        }
    }
    return false;
}

/* ---- flat ranges -------------------------------------------------------- */

static void add_box(uint32_t ndim, const int64_t *shape, uint32_t axis,
                    uint64_t row, uint64_t first, uint64_t end,
                    struct dyt_box *out)
{
    /* row: index of the outer dims [0, axis), row-major. */
    *out = (struct dyt_box){.ndim = ndim};
    for (uint32_t d = axis; d-- > 0;) {
        out->lo[d] = (int64_t)(row % (uint64_t)shape[d]);
        out->hi[d] = out->lo[d] + 1;
        row /= (uint64_t)shape[d];
    }
    out->lo[axis] = (int64_t)first;
    out->hi[axis] = (int64_t)end;
    for (uint32_t d = axis + 1; d < ndim; d++) {
        out->lo[d] = 0;
        out->hi[d] = shape[d];
    }
}

/* Leading parts from the innermost axis outwards, whole rows of the outermost
 * axis that both ends share, then trailing parts back inwards: 2*ndim - 1. */
uint32_t dyti_native_flat_boxes(uint32_t ndim, const int64_t *shape,
                                uint64_t lo, uint64_t hi,
                                struct dyt_box out_box[DYTI_FLAT_BOXES])
{
    uint64_t unit[DYT_MAX_DIMS]; /* elements of one step along each axis */
    uint32_t count = 0, axis = ndim - 1;

    unit[ndim - 1] = 1;
    for (uint32_t d = ndim - 1; d-- > 0;) {
        unit[d] = unit[d + 1] * (uint64_t)shape[d + 1];
    }
    while (lo < hi) {
        uint64_t block = unit[axis] * (uint64_t)shape[axis];
        uint64_t stop = (lo / block + 1) * block; /* end of this block */

        if (axis > 0 && lo % block == 0 && hi - lo >= block) {
            axis--; /* whole blocks of this axis: go outwards */
        } else if (hi - lo < unit[axis]) {
            axis++; /* less than one step is left: go inwards */
        } else {
            uint64_t end = hi < stop ? hi / unit[axis] * unit[axis] : stop;

            add_box(ndim, shape, axis, lo / block, lo % block / unit[axis],
                    lo % block / unit[axis] + (end - lo) / unit[axis],
                    &out_box[count++]);
            lo = end;
        }
    }
    return count;
}
