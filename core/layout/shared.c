/* Parts of a rank's region that other ranks of its model-parallel group hold
 * too: KV heads read by two ranks, norms, both homes of a tied embedding. */
#include "base/array.h"
#include "layout/index.h"
#include "layout/layout.h"
#include "layout/native.h"

#include <stdlib.h>
#include <string.h>

/* The rank's parts while they are counted; holders of all parts in one list,
 * those of part i begin at first[i]. */
struct sharing {
    const struct dyti_layout *layout;
    const struct dyti_part *part;
    struct dyti_shared_part *found;
    size_t found_count, found_cap;
    size_t *first;
    size_t first_cap;
    uint32_t *holder;
    size_t holder_count, holder_cap;
};

static int by_rank(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

/* Append all ranks that hold [lo, hi) of a segment to s->holder; *out_end is
 * where this set of holders ends, at most hi. */
static enum dyt_status add_holders(struct sharing *s,
                                   const struct dyti_tensor *t,
                                   uint32_t segment, int64_t lo, int64_t hi,
                                   int64_t *out_end)
{
    const struct dyti_layout *layout = s->layout;
    const struct dyti_layout_desc *d = &layout->desc;
    size_t first = s->holder_count;

    *out_end = hi;
    for (uint32_t pp = 0; pp < d->pp; pp++) {
        for (uint32_t tp = 0; tp < d->tp; tp++) {
            uint32_t rank = dyti_layout_rank(layout, tp, pp, s->part->dp_rank);
            const struct dyti_part *other = &layout->view[rank].part;
            int64_t olo, ohi;
            enum dyt_status st;

            if (!dyti_native_at_home(layout, t, other)) {
                break; /* nor is any other of that pipeline stage */
            }
            dyti_native_cut(layout->model, t, segment, other, &olo, &ohi);
            if (olo > lo && olo < *out_end) {
                *out_end = olo;
            }
            if (olo > lo || ohi <= lo) {
                continue;
            }
            *out_end = ohi < *out_end ? ohi : *out_end;
            st = DYTI_GROW(s->holder, s->holder_cap, s->holder_count + 1);
            if (st != DYT_OK) {
                return st;
            }
            s->holder[s->holder_count++] = rank;
        }
    }
    qsort(s->holder + first, s->holder_count - first, sizeof(*s->holder),
          by_rank);
    return DYT_OK;
}

/* [lo, end) of a segment, whose holders begin at `first` of s->holder; it
 * starts at local element `at` of the cut axis. */
static enum dyt_status add_part(struct sharing *s,
                                const struct dyti_native_slot *slot, int64_t lo,
                                int64_t end, int64_t at, size_t first)
{
    const struct dyti_tensor *t = &s->layout->model->tensor[slot->tensor];
    struct dyti_shared_part p = {.tensor = slot->tensor,
                                 .grad_partial = t->grad_partial};
    uint64_t unit = 1; /* elements of one step along the cut axis */
    enum dyt_status st;

    for (uint32_t d = 0; d < t->ndim; d++) {
        p.box.hi[d] = t->shape[d];
        unit *= d > t->cut_axis ? (uint64_t)t->shape[d] : 1u;
    }
    /* One range of the region: true where the axis is the outermost one, and
     * no catalogue shares a part of another axis. */
    dyti_require(t->cut_axis == 0 || end - lo == slot->shape[t->cut_axis]);
    p.box.ndim = t->ndim;
    p.box.lo[t->cut_axis] = lo;
    p.box.hi[t->cut_axis] = end;
    p.flat_lo = slot->flat + (uint64_t)at * unit;
    p.flat_hi = t->cut_axis == 0 ? p.flat_lo + (uint64_t)(end - lo) * unit
                                 : slot->flat + slot->elements;
    p.holder_count = (uint32_t)(s->holder_count - first);
    p.first_holder = s->holder[first];

    st = DYTI_GROW(s->found, s->found_cap, s->found_count + 1);
    st = st != DYT_OK ? st
                      : DYTI_GROW(s->first, s->first_cap, s->found_count + 1);
    if (st == DYT_OK) {
        s->first[s->found_count] = first;
        s->found[s->found_count++] = p;
    }
    return st;
}

static enum dyt_status share_tensor(struct sharing *s,
                                    const struct dyti_native_slot *slot)
{
    const struct dyti_model *model = s->layout->model;
    const struct dyti_tensor *t = &model->tensor[slot->tensor];
    int64_t at = 0;

    for (uint32_t segment = 0; segment < t->segment_count; segment++) {
        int64_t lo, hi, end;

        dyti_native_cut(model, t, segment, s->part, &lo, &hi);
        for (int64_t x = lo; x < hi; x = end) {
            size_t first = s->holder_count;
            enum dyt_status st = add_holders(s, t, segment, x, hi, &end);

            if (st == DYT_OK && s->holder_count - first > 1) {
                st = add_part(s, slot, x, end, at + (x - lo), first);
            } else {
                s->holder_count = first;
            }
            if (st != DYT_OK) {
                return st;
            }
        }
        at += hi - lo;
    }
    return DYT_OK;
}

/* Parts and their holders as one block. */
static enum dyt_status pack(const struct sharing *s,
                            struct dyti_shared_part **out_part)
{
    size_t part_bytes = s->found_count * sizeof(*s->found);
    size_t holder_bytes = s->holder_count * sizeof(*s->holder);
    struct dyti_shared_part *part = malloc(part_bytes + holder_bytes + 1);
    uint32_t *holder;

    if (part == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu shared parts", s->found_count);
    }
    holder = (uint32_t *)(void *)(part + s->found_count);
    if (s->found_count > 0) {
        memcpy(part, s->found, part_bytes);
        memcpy(holder, s->holder, holder_bytes);
    }
    for (size_t i = 0; i < s->found_count; i++) {
        part[i].holder = holder + s->first[i];
    }
    *out_part = part;
    return DYT_OK;
}

/* What is trained today.  Other layouts can be planned, switched and
 * converted. */
static enum dyt_status check_trained(const struct dyti_layout *layout)
{
    const struct dyti_layout_desc *d = &layout->desc;
    const struct {
        const char *name;
        uint32_t value, most;
    } row[] = {{"cp", d->cp, 1},
               {"ep", d->ep, 1},
               {"etp", d->etp, 1},
               {"vpp", d->vpp, 1},
               {"zero", d->zero, 1}};

    if (d->dialect != DYTI_DIALECT_NATIVE || layout->view == NULL) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "a%s layout of dialect %s can be planned, is not "
                         "trained yet",
                         layout->view == NULL ? " lazy" : "",
                         dyti_dialect_name(d->dialect));
    }
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        if (row[i].value > row[i].most) {
            return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                             "%s %u can be planned, is not trained yet",
                             row[i].name, row[i].value);
        }
    }
    if (layout->index->has_experts || d->zero_range != NULL) {
        return DYTI_FAIL(
            DYT_ERR_UNSUPPORTED, "%s can be planned, is not trained yet",
            layout->index->has_experts ? "a model with routed experts"
                                       : "an explicit ZeRO cut");
    }
    return DYT_OK;
}

enum dyt_status dyti_layout_shared(const struct dyti_layout *layout,
                                   uint32_t rank,
                                   struct dyti_shared_part **out_part,
                                   size_t *out_count)
{
    struct sharing s = {.layout = layout};
    struct dyti_native_walk walk;
    enum dyt_status st = check_trained(layout);

    if (st == DYT_OK) {
        s.part = &layout->view[rank].part;
    }
    if (st == DYT_OK && s.part->member) {
        dyti_native_walk_init(&walk, layout, s.part);
        while (st == DYT_OK && dyti_native_next(&walk)) {
            st = share_tensor(&s, &walk.slot);
        }
    }
    st = st != DYT_OK ? st : pack(&s, out_part);
    if (st == DYT_OK) {
        *out_count = s.found_count;
    } else {
        DYTI_NOTE("listing what rank %u shares", rank);
    }
    free(s.found);
    free(s.first);
    free(s.holder);
    return st;
}
