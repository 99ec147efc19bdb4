/* Draws that look at whole rows (top-k, top-p, min-p, a minimum length): the
 * rows are gathered once and the draws dealt out to the TP ranks. */
#include "rollout/draw.h"

#include <string.h>

bool dyti_draw_is_whole(const struct dyti_chunk *c, const struct dyti_draw *d)
{
    const struct dyti_sampling *s = c->sampling;

    return d->position < s->min_response_tokens ||
           (s->temperature > 0.0 &&
            (s->top_k > 0 || s->top_p < 1.0 || s->min_p > 0.0));
}

/* Columns of TP member t. */
static int64_t columns_of(const struct dyti_rollout *r, uint32_t t,
                          int64_t *out_lo)
{
    const struct dyti_part *me = &r->nn->part;
    uint32_t rank =
        dyti_layout_rank(r->params.layout, t, me->pp_rank, me->dp_rank);
    const struct dyti_part *part =
        &dyti_layout_view(r->params.layout, rank)->part;

    *out_lo = part->vocab_lo;
    return part->vocab_hi - part->vocab_lo;
}

static void assemble_row(const struct dyti_chunk *c, const float *all,
                         uint32_t row, float *out)
{
    const float *from = all;

    for (uint32_t t = 0; t < c->r->params.tp.size; t++) {
        int64_t lo, cols = columns_of(c->r, t, &lo);

        memcpy(out + lo, from + (size_t)row * (size_t)cols,
               (size_t)cols * sizeof(*out));
        from += (size_t)c->rows * (size_t)cols;
    }
}

static enum dyt_status gather_logits(struct dyti_chunk *c, float *all)
{
    const struct dyti_group *tp = &c->r->params.tp;
    uint64_t counts[DYTI_ROLLOUT_MAX_TP];
    int64_t lo;

    for (uint32_t t = 0; t < tp->size; t++) {
        counts[t] = c->rows * (uint64_t)columns_of(c->r, t, &lo) * sizeof(*all);
    }
    return tp->ops->all_gather(tp->self, c->logits, all, counts);
}

/* A copy of the draw's row, from all ranks' columns. */
static void whole_row(const struct dyti_chunk *c, const float *all,
                      uint32_t row, float *out)
{
    if (c->r->params.tp.size <= 1) {
        memcpy(out, c->logits + (size_t)row * (size_t)c->cols,
               (size_t)c->cols * sizeof(*out));
        return;
    }
    assemble_row(c, all, row, out);
}

static struct dyti_verdict judge(const struct dyti_chunk *c,
                                 const struct dyti_draw *d, const float *all,
                                 float *row, void *scratch)
{
    int64_t vocab = c->r->model->arch.vocab;
    uint32_t at = d->row - c->row_first;
    int32_t token;

    whole_row(c, all, at, row);
    token = dyti_draw_truncated(c->request, row, vocab, d->position,
                                dyti_draw_unit(c, d), scratch);
    return (struct dyti_verdict){token, token < 0 ? 0.0f : row[token]};
}

/* Draw i is made by rank i mod tp. */
enum dyt_status dyti_draw_whole(struct dyti_chunk *c, struct dyti_verdict *mine)
{
    struct dyti_rollout *r = c->r;
    const struct dyti_group *tp = &r->params.tp;
    int64_t vocab = r->model->arch.vocab;
    uint64_t row_bytes = (uint64_t)vocab * sizeof(float);
    float *all = NULL, *row;
    void *scratch;
    enum dyt_status st;

    st = dyti_region_take(&r->work, row_bytes, 64u, (void **)&row);
    st = st != DYT_OK
             ? st
             : dyti_region_take(&r->work, dyti_draw_scratch_bytes(vocab), 64u,
                                &scratch);
    if (st == DYT_OK && tp->size > 1) {
        st =
            dyti_region_take(&r->work, c->rows * row_bytes, 64u, (void **)&all);
        st = st != DYT_OK ? st : gather_logits(c, all);
    }
    if (st != DYT_OK) {
        return st;
    }
    for (uint32_t i = 0; i < c->draws; i++) {
        const struct dyti_draw *d = &c->draw[i];

        if (dyti_draw_is_whole(c, d)) {
            mine[i] = i % tp->size == tp->rank
                          ? judge(c, d, all, row, scratch)
                          : (struct dyti_verdict){-1, 0.0f};
        }
    }
    return DYT_OK;
}
