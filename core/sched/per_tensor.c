/* `per-tensor`: one message for each transfer, tensor after tensor, as a loop
 * over the parameters sends them.  Which tensor a transfer is of is not known
 * here; streams are in the order of the tensors, so those come first that lie
 * near the beginning of their stream.
 *
 * For a price, not to be run: a piece may stand for several messages. */
#include "base/sort.h"
#include "sched/order.h"

#include <stdlib.h>

/* One message, for sorting by wave, place in the stream, source. */
struct message {
    double place; /* of its middle: 0 … 1 */
    uint64_t lo, hi;
    uint32_t wave, flow, stands_for;
};

static uint32_t messages_of(const struct dyti_flow *f)
{
    return f->messages > 0 ? f->messages : 1;
}

/* Pieces of a flow. */
static uint32_t pieces_of(const struct dyti_order *in,
                          const struct dyti_flow *f)
{
    uint32_t n = messages_of(f);

    return in->most_pieces > 0 && n > in->most_pieces ? in->most_pieces : n;
}

/* Messages before piece k. */
static uint32_t first_of(const struct dyti_order *in, const struct dyti_flow *f,
                         uint32_t k)
{
    return (uint32_t)((uint64_t)messages_of(f) * k / pieces_of(in, f));
}

static int compare_message(const void *a, const void *b)
{
    const struct message *x = a, *y = b;

    if (x->wave != y->wave) {
        return x->wave < y->wave ? -1 : 1;
    }
    if (x->place != y->place) {
        return x->place < y->place ? -1 : 1;
    }
    return x->flow != y->flow ? (x->flow < y->flow ? -1 : 1)
                              : (x->lo > y->lo) - (x->lo < y->lo);
}

static uint64_t place_of_message(const void *item)
{
    const struct message *m = item;

    return (uint64_t)m->wave << 32 | (uint64_t)(m->place * UINT32_MAX);
}

/* Where message k of a flow ends. */
static uint64_t end_of(const struct dyti_order *in, size_t flow, uint32_t k)
{
    const struct dyti_flow *f = &in->flow[flow];
    uint32_t n = messages_of(f);

    if (in->end != NULL && f->messages > 0) {
        return in->end[flow][k];
    }
    return k + 1 == n ? f->bytes
                      : f->bytes / n * (k + 1u) + f->bytes % n * (k + 1u) / n;
}

static enum dyt_status count_messages(const struct dyti_order *in,
                                      size_t *out_count)
{
    size_t count = 0;

    for (size_t i = 0; i < in->flow_count; i++) {
        const struct dyti_flow *f = &in->flow[i];
        uint32_t n = messages_of(f);
        uint64_t last = 0;

        count += pieces_of(in, f);
        for (uint32_t k = 0; in->end != NULL && k < f->messages; k++) {
            uint64_t end = in->end[i][k];

            if (end < last || end > f->bytes ||
                (k + 1 == n && end != f->bytes)) {
                return DYTI_FAIL(DYT_ERR_INVALID,
                                 "transfer %u of the flow %u -> %u ends at "
                                 "%llu of %llu bytes",
                                 k, f->src, f->dst, (unsigned long long)end,
                                 (unsigned long long)f->bytes);
            }
            last = end;
        }
    }
    if (count >= UINT32_MAX) {
        return DYTI_FAIL(DYT_ERR_OVERFLOW, "%zu messages", count);
    }
    *out_count = count;
    return DYT_OK;
}

static enum dyt_status make_messages(const struct dyti_order *in,
                                     const uint32_t *sorted,
                                     struct message **out_message,
                                     size_t *out_count)
{
    struct message *m;
    size_t most = 0, count = 0;
    enum dyt_status st = count_messages(in, &most);

    if (st != DYT_OK) {
        return st;
    }
    m = malloc((most + 1) * sizeof(*m));
    if (m == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu messages", most);
    }
    for (size_t i = 0; i < in->flow_count; i++) {
        const struct dyti_flow *f = &in->flow[sorted[i]];
        uint32_t n = pieces_of(in, f);
        uint64_t lo = 0;

        for (uint32_t k = 0; k < n; k++) {
            uint32_t end = first_of(in, f, k + 1);
            uint64_t hi = end_of(in, sorted[i], end - 1);

            if (hi > lo) { /* nothing is no message */
                m[count++] = (struct message){
                    .place = ((double)lo + (double)hi) / 2.0 / (double)f->bytes,
                    .lo = lo,
                    .hi = hi,
                    .wave = f->wave,
                    .flow = (uint32_t)i,
                    .stands_for = end - first_of(in, f, k)};
            }
            lo = hi;
        }
    }
    dyti_sort(m, count, sizeof(*m), place_of_message, compare_message);
    *out_message = m;
    *out_count = count;
    return DYT_OK;
}

/* A wave starts in rounds behind all of the wave before. */
static enum dyt_status order(const struct dyti_order *in,
                             struct dyti_pieces *out_pieces)
{
    struct dyti_piece_list list = {0}, wave = {0};
    struct message *m = NULL;
    size_t count = 0;
    uint32_t *sorted = NULL, base = 0;
    enum dyt_status st = dyti_order_sorted(in, &sorted);

    st = st != DYT_OK ? st : make_messages(in, sorted, &m, &count);
    for (size_t i = 0; i < count && st == DYT_OK; i++) {
        const struct dyti_flow *f = &in->flow[sorted[m[i].flow]];
        struct dyti_piece p = {.src = f->src,
                               .dst = f->dst,
                               .wave = f->wave,
                               .from = f->src,
                               .to = f->dst,
                               .lo = m[i].lo,
                               .hi = m[i].hi,
                               .messages = m[i].stands_for};

        st = dyti_piece_add(&wave, &p);
        if (st == DYT_OK && (i + 1 == count || m[i + 1].wave != m[i].wave)) {
            uint32_t next = base;

            st = dyti_rounds_first_fit(in, &wave);
            for (size_t k = 0; k < wave.count && st == DYT_OK; k++) {
                wave.piece[k].round += base;
                next = wave.piece[k].round + 1 > next ? wave.piece[k].round + 1
                                                      : next;
                st = dyti_piece_add(&list, &wave.piece[k]);
            }
            base = next;
            wave.count = 0;
        }
    }
    st = st != DYT_OK ? st : dyti_pieces_finish(in, &list, out_pieces);
    if (st != DYT_OK) {
        DYTI_NOTE("ordering %zu flows by 'per-tensor'", in->flow_count);
    }
    free(list.piece);
    free(wave.piece);
    free(m);
    free(sorted);
    return st;
}

const struct dyti_strategy_ops dyti_strategy_per_tensor = {
    .name = "per-tensor", .one_by_one = true, .order = order};
