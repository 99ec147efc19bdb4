/* Tensors as in the files of Hugging Face, by their own names.
 *
 * The `hf` dialect: every member holds every tensor whole, in the order and at
 * the offsets of one model.safetensors (wider types first, no gaps), so that
 * its region is that file's data.  zero12, zero3 and fsdp2 keep the same
 * tensors, cut over tp as dtensor does, and shard them further. */
#include "layout/local.h"

#include "layout/index.h"
#include "layout/native.h"

/* ---- the list ------------------------------------------------------------ */

static bool holds_expert(const struct dyti_layout *layout,
                         const struct dyti_part *part, int64_t expert)
{
    uint32_t places = dyti_expert_places(layout, part);

    if (layout->desc.experts == DYTI_EXPERTS_ROUND_ROBIN) {
        return (uint64_t)expert % dyti_degree(layout->desc.ep) == part->ep_rank;
    }
    if (layout->desc.experts == DYTI_EXPERTS_LINEAR) {
        int32_t first = places > 0 ? dyti_expert_at(layout, part, 0) : 0;

        return expert >= first && expert < first + (int64_t)places;
    }
    for (uint32_t i = 0; i < places; i++) {
        if (dyti_expert_at(layout, part, i) == expert) {
            return true;
        }
    }
    return false;
}

bool dyti_hf_is_here(const struct dyti_layout *layout,
                     const struct dyti_part *part, uint32_t index)
{
    const struct dyti_tensor *t = &layout->model->tensor[index];

    if (t->slot == DYTI_SLOT_EXTRA) {
        return false;
    }
    if (t->layer < 0) {
        return (t->on_first && part->has_embed) ||
               (t->on_last && part->has_head);
    }
    return dyti_layout_holds_layer(layout, part, t->layer) &&
           (t->expert < 0 || holds_expert(layout, part, t->expert));
}

/* The part's share of one segment of the cut axis. */
static void segment_share(const struct dyti_part *part,
                          const struct dyti_segment *s, int64_t *out_lo,
                          int64_t *out_hi)
{
    int64_t lo = 0, hi = s->hi - s->lo;

    if (s->cut == DYTI_CUT_EXPERT_FFN) {
        dyti_chunk(hi, dyti_degree(part->etp_size), part->etp_rank, &lo, &hi);
    } else if (s->cut != DYTI_CUT_NONE) {
        dyti_chunk(hi, part->tp_size, part->tp_rank, &lo, &hi);
    }
    *out_lo = s->lo + lo;
    *out_hi = s->lo + hi;
}

/* Elements of the cut axis that are the part's. */
static int64_t axis_share(const struct dyti_part *part,
                          const struct dyti_tensor *t)
{
    int64_t sum = 0, lo, hi;

    for (uint32_t s = 0; s < t->segment_count; s++) {
        segment_share(part, &t->segment[s], &lo, &hi);
        sum += hi - lo;
    }
    return sum;
}

uint64_t dyti_hf_elements(const struct dyti_part *part,
                          const struct dyti_tensor *t)
{
    uint64_t elements = (uint64_t)axis_share(part, t);

    for (uint32_t d = 0; d < t->ndim; d++) {
        elements *= d == t->cut_axis ? 1u : (uint64_t)t->shape[d];
    }
    return elements;
}

void dyti_hf_list_tensor(struct dyti_locals *list, uint32_t index)
{
    const struct dyti_tensor *t = &list->layout->model->tensor[index];
    struct dyti_put put = {.tensor = index, .axis = t->cut_axis};
    int64_t shape[DYT_MAX_DIMS];

    for (uint32_t d = 0; d < t->ndim; d++) {
        shape[d] = t->shape[d];
    }
    shape[t->cut_axis] = axis_share(list->part, t);
    dyti_locals_begin(list, index, t->ndim, shape, "%s", t->name);
    for (uint32_t s = 0; s < t->segment_count; s++) {
        segment_share(list->part, &t->segment[s], &put.lo, &put.hi);
        dyti_locals_put(list, &put);
        put.at += put.hi - put.lo;
    }
}

static void list_tensors(struct dyti_locals *list, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++) {
        if (dyti_hf_is_here(list->layout, list->part, i)) {
            dyti_hf_list_tensor(list, i);
        }
    }
}

void dyti_hf_list(struct dyti_locals *list)
{
    const struct dyti_layout *layout = list->layout;

    if (!list->once) {
        list_tensors(list, 0, layout->model->tensor_count);
        return;
    }
    for (uint32_t run = 0; run < layout->index->run_count; run++) {
        const struct dyti_layout_run *r = &layout->index->run[run];

        if (dyti_layout_run_before(layout, run) == UINT32_MAX) {
            list_tensors(list, r->first, r->end);
        }
    }
}

bool dyti_locals_skip(const struct dyti_locals *list, int64_t layer)
{
    const struct dyti_layout *layout = list->layout;

    for (uint32_t run = 0; list->once && run < layout->index->run_count;
         run++) {
        if (layout->index->run[run].layer == layer) {
            return dyti_layout_run_before(layout, run) != UINT32_MAX;
        }
    }
    return false;
}

void dyti_hf_group(const struct dyti_part *part, const struct dyti_local *local,
                   uint32_t *out_size, uint32_t *out_rank)
{
    if (local->expert) {
        *out_size = dyti_degree(part->edp_size);
        *out_rank = part->edp_rank;
    } else {
        *out_size = part->dp_size * dyti_degree(part->cp_size);
        *out_rank = dyti_layout_zero_rank(part);
    }
}

/* ---- refusals ------------------------------------------------------------ */

static bool tp_works(const void *arg, uint32_t tp)
{
    const struct dyti_arch *a = arg;

    return a->q_heads % tp == 0 &&
           (a->mla.kv_lora > 0 || a->kv_heads % tp == 0);
}

enum dyt_status dyti_hf_check_tp(const struct dyti_layout *layout,
                                 const char *dialect)
{
    const struct dyti_arch *a = &layout->model->arch;
    uint32_t tp = layout->desc.tp;

    if (!tp_works(a, tp)) {
        return DYTI_FAIL(
            DYT_ERR_LAYOUT,
            "%s: tp %u does not divide the %lld query heads and "
            "%lld KV heads; the nearest degree that works is tp "
            "%u",
            dialect, tp, (long long)a->q_heads, (long long)a->kv_heads,
            dyti_nearest_degree(tp, (uint32_t)a->q_heads, tp_works, a));
    }
    if (layout->desc.experts == DYTI_EXPERTS_EXPLICIT) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "%s: experts by explicit slots are not available: "
                         "linear or round_robin",
                         dialect);
    }
    return DYT_OK;
}

/* ---- the dialect --------------------------------------------------------- */

static enum dyt_status check(const struct dyti_layout *layout)
{
    const struct dyti_layout_desc *d = &layout->desc;
    const struct {
        const char *name;
        uint32_t degree;
    } one[] = {{"tp", d->tp},
               {"pp", d->pp},
               {"ep", d->ep},
               {"etp", d->etp},
               {"vpp", d->vpp}};

    for (size_t i = 0; i < sizeof(one) / sizeof(one[0]); i++) {
        if (one[i].degree > 1) {
            return DYTI_FAIL(DYT_ERR_LAYOUT,
                             "hf: %s %u would cut what every rank holds whole; "
                             "the nearest degree that works is %s 1",
                             one[i].name, one[i].degree, one[i].name);
        }
    }
    if (d->zero != 0) {
        return DYTI_FAIL(DYT_ERR_LAYOUT,
                         "hf: zero %u would cut what every rank holds whole; "
                         "the nearest that works is zero 0",
                         d->zero);
    }
    return DYT_OK;
}

/* Wider types first. */
static enum dyt_status place(const struct dyti_placer *p,
                             struct dyti_locals *list, uint64_t *offset)
{
    enum dyt_status st = DYT_OK;

    for (uint32_t width = 8; width > 0 && st == DYT_OK; width /= 2) {
        for (size_t i = 0; i < list->count && st == DYT_OK; i++) {
            const struct dyti_local *l = &list->local[i];
            uint32_t element = dyti_dtype_bytes(dyti_local_dtype(p, l));

            if (element == width && (l->kinds >> p->kind & 1u) != 0) {
                st = dyti_place_whole(p, l, *offset);
                *offset += l->elements * element;
            }
        }
    }
    return st;
}

const struct dyti_dialect_ops dyti_dialect_hf = {
    .name = "hf",
    .check = check,
    DYTI_FRAME,
    .list = dyti_hf_list,
    .place = place,
};
