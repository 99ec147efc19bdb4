/* Megatron-LM in memory.
 *
 * zero 0: parameters and state are tensors of their own; gradients lie in one
 * buffer, last parameter first.
 * zero 1, the distributed optimizer: per (type of the parameters, routed
 * experts or not) one buffer of parameters and one of gradients, last parameter
 * first, each from a multiple of 64 elements on; a bucket's end is padded to a
 * multiple of lcm(ranks, 128), or lcm(ranks, 128, bucket_multiple), and every
 * bucket is cut into as many equal slices as there are data-parallel ranks,
 * wherever a parameter ends.  Master and moments are a rank's slices.  An
 * embedding that the first and the last stage share has a bucket of its own. */
#include "layout/megatron.h"

#include "base/array.h"
#include "base/checked.h"
#include "layout/index.h"

#include <stdlib.h>

#define START_ALIGN  64u  /* elements */
#define BUCKET_ALIGN 128u /* elements, and the ranks' number divides it too */

/* ---- buffers ------------------------------------------------------------- */

/* The locals of one buffer, and where in it they lie. */
struct group {
    const struct dyti_placer *placer;
    uint32_t chunk, number;
    bool expert, padded;
    enum dyti_dtype dtype; /* of the parameters */
    uint32_t size, rank;   /* of the data-parallel group */
    uint64_t element;      /* bytes of what is placed */
    bool cut;
    uint64_t base; /* region offset */
    /* The walk: elements used so far, where the open bucket begins, and
     * elements of this rank's slices of closed ones. */
    uint64_t end, bucket_start, slices;
    uint32_t bucket;
    const struct dyti_local **open; /* locals of the open bucket */
    uint64_t *open_at;              /* where they begin in the buffer */
    size_t open_count, open_cap, open_at_cap;
};

static uint64_t gcd(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t r = a % b;

        a = b;
        b = r;
    }
    return a;
}

static uint64_t round_up(uint64_t x, uint64_t step)
{
    return (x + step - 1) / step * step;
}

static uint64_t lcm(uint64_t a, uint64_t b)
{
    return a / gcd(a, b) * b;
}

/* What the length of a bucket is a multiple of. */
static uint64_t bucket_align(const struct group *g)
{
    uint32_t more = g->placer->list->layout->desc.bucket_multiple;

    return g->padded ? lcm(lcm(g->size, BUCKET_ALIGN), more == 0 ? 1 : more)
                     : 1;
}

/* Experts have a buffer of their own where other ranks share them: also where
 * TP is not the fastest dimension, as ETP is. */
static bool is_apart(const struct dyti_layout *layout,
                     const struct dyti_local *l)
{
    return l->expert &&
           (dyti_degree(layout->desc.ep) > 1 || layout->index->experts_apart);
}

static enum dyti_dtype param_dtype(const struct dyti_layout *layout,
                                   const struct dyti_local *l)
{
    return l->fixed_dtype ? l->dtype : layout->desc.dtype[DYTI_PARAM];
}

static bool in_group(const struct group *g, const struct dyti_local *l)
{
    const struct dyti_layout *layout = g->placer->list->layout;

    return l->chunk == g->chunk && dyti_local_is_trained(l) &&
           is_apart(layout, l) == g->expert &&
           param_dtype(layout, l) == g->dtype;
}

static enum dyt_status place_in_bucket(const struct group *g,
                                       const struct dyti_local *l, uint64_t at,
                                       uint64_t lo, uint64_t hi,
                                       uint64_t offset)
{
    uint64_t end = at + l->elements;
    uint64_t first = at > lo ? at : lo, stop = end < hi ? end : hi;

    if (!g->cut) {
        return dyti_place_whole(g->placer, l, g->base + at * g->element);
    }
    return first >= stop ? DYT_OK
                         : dyti_place_range(g->placer, l, first - at, stop - at,
                                            offset + (first - lo) * g->element);
}

static const char *buffer_name(enum dyti_kind kind)
{
    static const char *const name[DYTI_KIND_COUNT] = {
        [DYTI_PARAM] = "param_data",      [DYTI_GRAD] = "grad_data",
        [DYTI_MASTER] = "main_param",     [DYTI_EXP_AVG] = "exp_avg",
        [DYTI_EXP_AVG_SQ] = "exp_avg_sq",
    };

    return name[kind];
}

/* Pad the open bucket and place what lies in it. */
static enum dyt_status close_bucket(struct group *g)
{
    uint64_t length, each, lo, offset;
    enum dyt_status st = DYT_OK;

    if (g->open_count == 0) {
        return DYT_OK;
    }
    length = round_up(g->end - g->bucket_start, bucket_align(g));
    each = g->cut ? length / g->size : length;
    lo = g->bucket_start + (g->cut ? g->rank * each : 0);
    offset = g->base + (g->cut ? g->slices : g->bucket_start) * g->element;
    if (g->cut) {
        st = dyti_place_flat_buffer(
            g->placer, g->placer->list->layout->desc.dtype[g->placer->kind],
            each, offset, "buffers.%u.buckets.%u.%s", g->number, g->bucket,
            buffer_name(g->placer->kind));
    }
    for (size_t i = 0; i < g->open_count && st == DYT_OK; i++) {
        st = place_in_bucket(g, g->open[i], g->open_at[i], lo, lo + each,
                             offset);
    }
    g->slices += each;
    g->end = g->bucket_start + length;
    g->bucket_start = g->end;
    g->bucket++;
    g->open_count = 0;
    return st;
}

static enum dyt_status add_local(struct group *g, const struct dyti_local *l)
{
    bool own = l->own_bucket && g->padded;
    enum dyt_status st = own ? close_bucket(g) : DYT_OK;

    st = st != DYT_OK ? st : DYTI_GROW(g->open, g->open_cap, g->open_count + 1);
    st = st != DYT_OK
             ? st
             : DYTI_GROW(g->open_at, g->open_at_cap, g->open_count + 1);
    if (st != DYT_OK) {
        return st;
    }
    if (g->padded) {
        g->end = dyti_align_up(g->end, START_ALIGN);
    }
    g->open[g->open_count] = l;
    g->open_at[g->open_count++] = g->end;
    g->end += l->elements;
    return own ? close_bucket(g) : DYT_OK;
}

/* One buffer, last local first.  Where nothing is in it, nothing happens. */
static enum dyt_status place_group(struct group *g, uint64_t *offset)
{
    const struct dyti_placer *p = g->placer;
    const struct dyti_layout *layout = p->list->layout;
    enum dyt_status st = DYT_OK;

    g->element = dyti_dtype_bytes(
        p->kind == DYTI_PARAM ? g->dtype : layout->desc.dtype[p->kind]);
    g->base = dyti_align_up(*offset, DYTI_REGION_ALIGN * g->element);
    g->end = g->bucket_start = g->slices = 0;
    g->bucket = 0;
    for (size_t i = p->list->count; i-- > 0 && st == DYT_OK;) {
        if (in_group(g, &p->list->local[i])) {
            if (g->end == 0) {
                struct dyti_local as = p->list->local[i];

                as.expert = g->expert;
                dyti_hf_group(p->list->part, &as, &g->size, &g->rank);
            }
            st = add_local(g, &p->list->local[i]);
        }
    }
    st = st != DYT_OK ? st : close_bucket(g);
    if (st == DYT_OK && g->end > 0) {
        *offset = g->base + (g->cut ? g->slices : g->end) * g->element;
        g->number++;
    }
    return st;
}

static bool is_cut(const struct dyti_layout *layout, enum dyti_kind kind)
{
    return layout->desc.zero == 1 &&
           (kind == DYTI_MASTER || kind == DYTI_EXP_AVG ||
            kind == DYTI_EXP_AVG_SQ);
}

enum dyt_status dyti_megatron_place(const struct dyti_placer *p,
                                    uint64_t *offset)
{
    const struct dyti_layout *layout = p->list->layout;
    struct group g = {.placer = p,
                      .padded = layout->desc.zero == 1,
                      .cut = is_cut(layout, p->kind)};
    enum dyt_status st = DYT_OK;

    for (uint32_t chunk = 0; chunk < dyti_degree(layout->desc.vpp); chunk++) {
        for (int expert = 0; expert < 2; expert++) {
            for (int t = 0; t < DYTI_DTYPE_COUNT && st == DYT_OK; t++) {
                g.chunk = chunk;
                g.expert = expert == 1;
                g.dtype = (enum dyti_dtype)t;
                st = place_group(&g, offset);
            }
        }
    }
    free(g.open);
    free(g.open_at);
    return st;
}

/* ---- the dialect --------------------------------------------------------- */

static enum dyt_status place(const struct dyti_placer *p,
                             struct dyti_locals *list, uint64_t *offset)
{
    enum dyt_status st;

    if (list->layout->desc.zero == 0 && p->kind != DYTI_GRAD) {
        return dyti_place_apart(p, NULL, offset);
    }
    st = dyti_megatron_place(p, offset);
    return st != DYT_OK ? st : dyti_place_apart(p, dyti_local_is_fixed, offset);
}

const struct dyti_dialect_ops dyti_dialect_megatron = {
    .name = "megatron",
    .check = dyti_megatron_check,
    DYTI_FRAME,
    .is_cut = is_cut,
    .flat = true,
    .list = dyti_megatron_list,
    .place = place,
};
