/* DeepSpeed ZeRO-1 and ZeRO-2 (BF16_Optimizer too): the parameters of a group
 * are one flat tensor, in their order and without gaps, padded only at the end
 * to a multiple of twice the data-parallel ranks, and cut into equal contiguous
 * partitions that do not care where a parameter ends.  Parameters themselves
 * stay whole; the master is the partition.  ZeRO-2 cuts gradients likewise.
 * round_robin: parameter i of a group goes to partition i mod ranks, partitions
 * one behind the other are the flat tensor, which is padded and cut as ever.
 * Groups: by type of the parameters; routed experts, which other ranks share,
 * in groups of their own. */
#include "layout/local.h"

#include "base/checked.h"
#include "layout/index.h"

#include <stdlib.h>

/* Flat tensors by (routed experts or not, type of the parameters). */
#define GROUPS (2u * DYTI_DTYPE_COUNT)

/* One flat tensor. */
struct group {
    uint64_t total;      /* elements, padding not included */
    uint64_t element;    /* bytes of what is placed */
    uint64_t lo, hi;     /* elements of it that the part holds */
    uint64_t offset, at; /* of lo in the region; elements walked so far */
    uint32_t number;     /* in the buffers' names */
    uint32_t ranks;      /* that share it */
};

/* All of one part and kind.  Equal layers have equal sums, so that a walk looks
 * only at tensors of runs in which it places something. */
struct flat {
    struct dyti_locals *list; /* what is being placed */
    struct dyti_placer placer;
    bool cut, once;
    uint64_t (*sum)[GROUPS]; /* [class_count] elements of one run */
    bool *summed;            /* [class_count] */
    struct group group[GROUPS];
};

static enum dyt_status check(const struct dyti_layout *layout)
{
    const struct dyti_layout_desc *d = &layout->desc;

    if (d->zero == 3) {
        return DYTI_FAIL(DYT_ERR_LAYOUT,
                         "zero12: zero 3: the nearest that works is zero 2; "
                         "dialect zero3 has 3");
    }
    if (d->zero == 2 && d->pp > 1) {
        return DYTI_FAIL(DYT_ERR_LAYOUT,
                         "zero12: DeepSpeed has no pipeline (pp %u) with "
                         "ZeRO-2; the nearest that works is zero 1",
                         d->pp);
    }
    return dyti_hf_check_tp(layout, "zero12");
}

static bool is_cut(const struct dyti_layout *layout, enum dyti_kind kind)
{
    return kind == DYTI_MASTER || kind == DYTI_EXP_AVG ||
           kind == DYTI_EXP_AVG_SQ ||
           (kind == DYTI_GRAD && layout->desc.zero == 2);
}

static bool is_trained(const struct dyti_tensor *t)
{
    return (t->kinds >> DYTI_MASTER & 1u) != 0;
}

/* The group of a trained tensor that the part has; GROUPS: it is not that. */
static uint32_t group_of(const struct flat *f, uint32_t index)
{
    const struct dyti_layout *layout = f->list->layout;
    const struct dyti_tensor *t = &layout->model->tensor[index];
    enum dyti_dtype dtype =
        t->fixed_dtype ? t->dtype : layout->desc.dtype[DYTI_PARAM];

    return is_trained(t) && (t->kinds >> f->placer.kind & 1u) != 0 &&
                   dyti_hf_is_here(layout, f->list->part, index)
               ? (t->expert >= 0 ? DYTI_DTYPE_COUNT : 0u) + (uint32_t)dtype
               : GROUPS;
}

/* Elements of a run in each group; NULL: its layer is on another stage. */
static const uint64_t *sum_of(const struct flat *f,
                              const struct dyti_layout_run *run)
{
    const struct dyti_layout *layout = f->list->layout;
    uint64_t *sum = f->sum[run->class];

    if (run->layer >= 0 &&
        !dyti_layout_holds_layer(layout, f->list->part, run->layer)) {
        return NULL;
    }
    for (uint32_t i = run->first; !f->summed[run->class] && i < run->end; i++) {
        uint32_t g = group_of(f, i);

        if (g < GROUPS) {
            sum[g] +=
                dyti_hf_elements(f->list->part, &layout->model->tensor[i]);
        }
    }
    f->summed[run->class] = true;
    return sum;
}

/* ---- where the flat tensors lie ------------------------------------------ */

static void count_elements(struct flat *f)
{
    const struct dyti_layout_index *index = f->list->layout->index;

    for (uint32_t r = 0; r < index->run_count; r++) {
        const uint64_t *sum = sum_of(f, &index->run[r]);

        for (uint32_t g = 0; sum != NULL && g < GROUPS; g++) {
            f->group[g].total += sum[g];
        }
    }
}

/* What the part holds of one, from *offset on. */
static enum dyt_status begin_group(struct flat *f, uint32_t index,
                                   uint32_t *number, uint64_t *offset)
{
    static const char *const name[DYTI_KIND_COUNT] = {
        [DYTI_GRAD] = "averaged_gradients",
        [DYTI_MASTER] = "single_partition_of_fp32_groups",
        [DYTI_EXP_AVG] = "state.exp_avg",
        [DYTI_EXP_AVG_SQ] = "state.exp_avg_sq",
    };
    const struct dyti_layout_desc *d = &f->list->layout->desc;
    const struct dyti_local like = {.expert = index >= DYTI_DTYPE_COUNT};
    enum dyti_kind kind = f->placer.kind;
    enum dyti_dtype dtype = kind == DYTI_PARAM
                                ? (enum dyti_dtype)(index % DYTI_DTYPE_COUNT)
                                : d->dtype[kind];
    struct group *g = &f->group[index];
    enum dyt_status st = DYT_OK;
    uint64_t align;
    uint32_t size, rank;

    if (g->total == 0) {
        return DYT_OK;
    }
    dyti_hf_group(f->list->part, &like, &size, &rank);
    g->ranks = size;
    align = 2u * (uint64_t)size;
    g->hi = (g->total + align - 1) / align * align;
    g->element = dyti_dtype_bytes(dtype);
    g->offset = dyti_align_up(*offset, DYTI_REGION_ALIGN * g->element);
    g->number = (*number)++;
    if (f->cut) {
        uint64_t each = g->hi / size;

        g->lo = rank * each;
        g->hi = g->lo + each;
        st = dyti_place_flat_buffer(&f->placer, dtype, each, g->offset, "%s.%u",
                                    name[kind], g->number);
    }
    *offset = g->offset + (g->hi - g->lo) * g->element;
    return st;
}

static enum dyt_status begin_groups(struct flat *f, uint64_t *offset)
{
    enum dyt_status st = DYT_OK;
    uint32_t number = 0;

    count_elements(f);
    for (uint32_t g = 0; g < GROUPS && st == DYT_OK; g++) {
        st = begin_group(f, g, &number, offset);
    }
    return st;
}

/* ---- what lies in them --------------------------------------------------- */

/* A tensor at element g->at of its flat tensor. */
static enum dyt_status place_tensor(struct flat *f, struct group *g,
                                    uint32_t index)
{
    struct dyti_locals *list = f->list;
    uint64_t at = g->at, end, first, stop;
    const struct dyti_local *l;

    end =
        at + dyti_hf_elements(list->part, &list->layout->model->tensor[index]);
    first = at > g->lo ? at : g->lo;
    stop = end < g->hi ? end : g->hi;
    g->at = end;
    if (first >= stop) {
        return DYT_OK;
    }
    list->count = list->piece_count = 0;
    dyti_hf_list_tensor(list, index);
    if (list->status != DYT_OK) {
        return list->status;
    }
    l = &list->local[0];
    return f->cut
               ? dyti_place_range(&f->placer, l, first - at, stop - at,
                                  g->offset + (first - g->lo) * g->element)
               : dyti_place_whole(&f->placer, l, g->offset + at * g->element);
}

/* Whether something of a run lies in what the part holds. */
static bool is_met(const struct flat *f, const uint64_t sum[GROUPS])
{
    for (uint32_t i = 0; i < GROUPS; i++) {
        const struct group *g = &f->group[i];

        if (sum[i] > 0 && g->at < g->hi && g->at + sum[i] > g->lo) {
            return true;
        }
    }
    return false;
}

static enum dyt_status place_run(struct flat *f,
                                 const struct dyti_layout_run *run)
{
    enum dyt_status st = DYT_OK;

    for (uint32_t i = run->first; i < run->end && st == DYT_OK; i++) {
        uint32_t g = group_of(f, i);

        if (g < GROUPS) {
            st = place_tensor(f, &f->group[g], i);
        }
    }
    return st;
}

static enum dyt_status place_runs(struct flat *f)
{
    const struct dyti_layout_index *index = f->list->layout->index;
    enum dyt_status st = DYT_OK;

    for (uint32_t r = 0; r < index->run_count && st == DYT_OK; r++) {
        const uint64_t *sum = sum_of(f, &index->run[r]);

        if (sum == NULL) {
            continue;
        }
        if (is_met(f, sum) &&
            !(f->once &&
              dyti_layout_run_before(f->list->layout, r) != UINT32_MAX)) {
            st = place_run(f, &index->run[r]);
            continue;
        }
        for (uint32_t g = 0; g < GROUPS; g++) {
            f->group[g].at += sum[g];
        }
    }
    return st;
}

/* ---- round robin --------------------------------------------------------- */

/* A parameter of a group, in the catalogue's order. */
struct member {
    uint32_t index;
    bool again; /* one before it has its boxes, and nobody asks for more */
};

static uint32_t members_of(const struct flat *f, uint32_t group,
                           struct member *out)
{
    const struct dyti_layout *layout = f->list->layout;
    uint32_t count = 0;

    for (uint32_t r = 0; r < layout->index->run_count; r++) {
        const struct dyti_layout_run *run = &layout->index->run[r];
        bool again = f->once && dyti_layout_run_before(layout, r) != UINT32_MAX;

        for (uint32_t i = run->first; i < run->end; i++) {
            if (group_of(f, i) == group) {
                out[count++] = (struct member){i, again};
            }
        }
    }
    return count;
}

static enum dyt_status place_in_turn(struct flat *f, struct group *g,
                                     const struct member *m, uint32_t count)
{
    enum dyt_status st = DYT_OK;

    for (uint32_t rank = 0; rank < g->ranks; rank++) {
        for (uint32_t i = rank; i < count && st == DYT_OK; i += g->ranks) {
            if (m[i].again) {
                g->at += dyti_hf_elements(
                    f->list->part, &f->list->layout->model->tensor[m[i].index]);
            } else {
                st = place_tensor(f, g, m[i].index);
            }
        }
    }
    return st;
}

static enum dyt_status place_round_robin(struct flat *f)
{
    uint32_t tensors = f->list->layout->model->tensor_count;
    struct member *m = malloc(tensors * sizeof(*m));
    enum dyt_status st = DYT_OK;

    if (m == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "an order of %u tensors", tensors);
    }
    for (uint32_t g = 0; g < GROUPS && st == DYT_OK; g++) {
        if (f->group[g].total > 0) {
            st = place_in_turn(f, &f->group[g], m, members_of(f, g, m));
        }
    }
    free(m);
    return st;
}

/* Tensors that are not trained lie whole behind all groups. */
static enum dyt_status place_fixed(struct flat *f, uint64_t *offset)
{
    const struct dyti_layout *layout = f->list->layout;

    f->list->count = f->list->piece_count = 0;
    for (uint32_t i = 0; i < layout->index->aside_count; i++) {
        uint32_t t = layout->index->aside[i];

        if (!is_trained(&layout->model->tensor[t]) &&
            dyti_hf_is_here(layout, f->list->part, t)) {
            dyti_hf_list_tensor(f->list, t);
        }
    }
    return f->list->status != DYT_OK
               ? f->list->status
               : dyti_place_apart(&f->placer, dyti_local_is_fixed, offset);
}

static enum dyt_status place(const struct dyti_placer *p,
                             struct dyti_locals *list, uint64_t *offset)
{
    const struct dyti_layout *layout = list->layout;
    struct flat f = {.list = list,
                     .placer = *p,
                     .cut = is_cut(layout, p->kind),
                     .once = list->once};
    enum dyt_status st;

    f.sum = calloc(layout->index->class_count + 1u, sizeof(*f.sum));
    f.summed = calloc(layout->index->class_count + 1u, sizeof(*f.summed));
    st = f.sum != NULL && f.summed != NULL
             ? begin_groups(&f, offset)
             : DYTI_FAIL(DYT_ERR_NOMEM, "the groups of zero12");
    if (st == DYT_OK) {
        st = layout->desc.round_robin ? place_round_robin(&f) : place_runs(&f);
    }
    st = st != DYT_OK ? st : place_fixed(&f, offset);
    free(f.sum);
    free(f.summed);
    return st;
}

const struct dyti_dialect_ops dyti_dialect_zero12 = {
    .name = "zero12",
    .check = check,
    DYTI_FRAME,
    .is_cut = is_cut,
    .flat = true,
    .place = place,
};
