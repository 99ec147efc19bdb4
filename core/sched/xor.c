/* `xor`: the pairing of the paper.  In step s rank r works with r XOR s, for s
 * up to the next power of two; everything of a pair is one fused message (in
 * chunks if asked), both directions at once; no barrier between steps. */
#include "base/sort.h"
#include "sched/order.h"

#include <stdlib.h>

/* For sorting by wave, step, source. */
struct step {
    uint32_t wave, step, src, flow;
};

static int compare_step(const void *a, const void *b)
{
    const struct step *x = a, *y = b;

    if (x->wave != y->wave) {
        return x->wave < y->wave ? -1 : 1;
    }
    if (x->step != y->step) {
        return x->step < y->step ? -1 : 1;
    }
    return (x->src > y->src) - (x->src < y->src);
}

static uint64_t place_of_step(const void *item)
{
    const struct step *s = item;

    return (uint64_t)s->wave << 32 | s->step;
}

static enum dyt_status add_pair(const struct dyti_order *in, uint32_t flow,
                                uint32_t *io_last, uint32_t round,
                                struct dyti_piece_list *list)
{
    const struct dyti_flow *f = &in->flow[flow];
    uint64_t parts =
        in->chunk_bytes == 0 ? 1 : dyti_part_count(f->bytes, in->chunk_bytes);
    enum dyt_status st = DYT_OK;

    for (uint64_t k = 0; k < parts && st == DYT_OK; k++) {
        struct dyti_piece p = {.src = f->src,
                               .dst = f->dst,
                               .wave = f->wave,
                               .from = f->src,
                               .to = f->dst,
                               .round = round + (uint32_t)k,
                               .lo = dyti_part_begin(f->bytes, parts, k),
                               .hi = dyti_part_begin(f->bytes, parts, k + 1)};

        if (p.round < round || k >= UINT32_MAX - round) {
            return DYTI_FAIL(DYT_ERR_OVERFLOW, "%llu pieces of one flow",
                             (unsigned long long)parts);
        }
        *io_last = p.round + 1 > *io_last ? p.round + 1 : *io_last;
        st = dyti_piece_add(list, &p);
    }
    return st;
}

static enum dyt_status order(const struct dyti_order *in,
                             struct dyti_pieces *out_pieces)
{
    struct dyti_piece_list list = {0};
    struct step *step = NULL;
    uint32_t *sorted = NULL, round = 0, last = 0;
    enum dyt_status st = dyti_order_sorted(in, &sorted);

    if (st == DYT_OK) {
        step = malloc((in->flow_count + 1) * sizeof(*step));
        if (step == NULL) {
            st = DYTI_FAIL(DYT_ERR_NOMEM, "%zu flows", in->flow_count);
        }
    }
    if (st == DYT_OK) {
        for (size_t i = 0; i < in->flow_count; i++) {
            const struct dyti_flow *f = &in->flow[i];

            step[i] =
                (struct step){f->wave, f->src ^ f->dst, f->src, (uint32_t)i};
        }
        dyti_sort(step, in->flow_count, sizeof(*step), place_of_step,
                  compare_step);
    }
    for (size_t i = 0; i < in->flow_count && st == DYT_OK; i++) {
        if (i > 0 && (step[i].wave != step[i - 1].wave ||
                      step[i].step != step[i - 1].step)) {
            round = last;
        }
        st = add_pair(in, step[i].flow, &last, round, &list);
    }
    st = st != DYT_OK ? st : dyti_pieces_finish(in, &list, out_pieces);
    if (st != DYT_OK) {
        DYTI_NOTE("ordering %zu flows by 'xor'", in->flow_count);
    }
    free(list.piece);
    free(step);
    free(sorted);
    return st;
}

const struct dyti_strategy_ops dyti_strategy_xor = {.name = "xor",
                                                    .order = order};
