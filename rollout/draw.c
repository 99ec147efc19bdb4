/* Logits to tokens.  The vocabulary is cut between TP ranks and no rank needs
 * all of it: each gives the maximum and the exponential sums of its columns,
 * all know from these which rank's columns the random number falls into, and
 * that rank names the token.  Truncated sampling (top-k, top-p, min-p, a
 * minimum length) does look at whole rows: the draws are dealt out to ranks.
 */
#include "rollout/internal.h"

#include <math.h>

#include "base/rng.h"

#include <string.h>

/* What a rank says of one row of logits. */
struct row_stats {
    float max;      /* of logits */
    float sum_raw;  /* sum exp(logit - max) */
    float sum_temp; /* sum exp((logit - max) * scale) */
};

/* What the rank that owns a draw says of it; token -1: not ours. */
struct verdict {
    int32_t token;
    float logit;
};

struct chunk {
    struct dyti_rollout *r;
    const struct dyti_rollout_request *request;
    const struct dyti_sampling *sampling;
    float scale; /* 1 / temperature; 1 for greedy */
    uint32_t row_first, rows;
    struct dyti_draw *draw; /* those of these rows */
    uint32_t draws;
    int64_t vocab_lo, cols;
    float *logits;           /* [rows, cols] */
    struct row_stats *stats; /* [tp][rows] */
    struct verdict *verdict; /* [tp][draws] */
};

static enum dyt_status gather(const struct dyti_group *tp, void *all,
                              uint64_t each_bytes)
{
    uint64_t counts[DYTI_ROLLOUT_MAX_TP];

    if (tp->size <= 1) {
        return DYT_OK;
    }
    for (uint32_t i = 0; i < tp->size; i++) {
        counts[i] = each_bytes;
    }
    return tp->ops->all_gather(
        tp->self, (unsigned char *)all + tp->rank * each_bytes, all, counts);
}

static enum dyt_status row_statistics(struct chunk *c)
{
    const struct dyti_kernels *k = &c->r->params.kernels;
    struct row_stats *mine = c->stats + (size_t)c->r->params.tp.rank * c->rows;
    float *max = c->r->stats, *sum = max + c->rows, *zexp = sum + c->rows,
          *target_z = zexp + c->rows, *scaled = target_z + c->rows;
    enum dyt_status st = k->ops->row_max(k->self, c->logits, c->cols, c->rows,
                                         c->cols, 1.0f, max);

    if (st != DYT_OK) {
        return st;
    }
    st = k->ops->row_sums(k->self, c->logits, c->cols, c->rows, c->cols, 1.0f,
                          max, c->r->no_target, c->vocab_lo, sum, zexp,
                          target_z);
    if (st != DYT_OK) {
        return st;
    }
    for (uint32_t i = 0; i < c->rows; i++) {
        mine[i] = (struct row_stats){max[i], sum[i], sum[i]};
        scaled[i] = max[i] * c->scale;
    }
    if (c->scale != 1.0f) {
        st = k->ops->row_sums(k->self, c->logits, c->cols, c->rows, c->cols,
                              c->scale, scaled, c->r->no_target, c->vocab_lo,
                              sum, zexp, target_z);
        for (uint32_t i = 0; st == DYT_OK && i < c->rows; i++) {
            mine[i].sum_temp = sum[i];
        }
    }
    return st == DYT_OK
               ? gather(&c->r->params.tp, c->stats, c->rows * sizeof(*mine))
               : st;
}

static double rank_mass(const struct chunk *c, uint32_t rank, uint32_t row,
                        float max)
{
    const struct row_stats *s = &c->stats[(size_t)rank * c->rows + row];

    return (double)s->sum_temp * exp((double)(s->max - max) * c->scale);
}

static float row_maximum(const struct chunk *c, uint32_t row)
{
    float max = c->stats[row].max;

    for (uint32_t t = 1; t < c->r->params.tp.size; t++) {
        max = fmaxf(max, c->stats[(size_t)t * c->rows + row].max);
    }
    return max;
}

static int64_t first_with(const float *logits, int64_t cols, float value)
{
    for (int64_t i = 0; i < cols; i++) {
        if (logits[i] == value) {
            return i;
        }
    }
    return 0;
}

/* First column at which the running mass passes `want`; the last one with any
 * mass if rounding leaves it short. */
static int64_t column_at(const struct chunk *c, const float *logits, float max,
                         double want)
{
    double sum = 0.0;
    int64_t last = 0;

    for (int64_t i = 0; i < c->cols; i++) {
        float e = expf((logits[i] - max) * c->scale);

        sum += (double)e;
        if (e > 0.0f) {
            last = i;
        }
        if (sum > want) {
            return i;
        }
    }
    return last;
}

static double unit_of(const struct chunk *c, const struct dyti_draw *d)
{
    return dyti_rng_unit(
        dyti_rng_u64(c->request->seed, d->prompt, d->sample, d->position));
}

/* This rank's verdict on a plain draw. */
static struct verdict judge(const struct chunk *c, const struct dyti_draw *d)
{
    const struct dyti_group *tp = &c->r->params.tp;
    uint32_t row = d->row - c->row_first, owner = 0;
    const float *logits = c->logits + (size_t)row * (size_t)c->cols;
    float max = row_maximum(c, row);
    double want = 0.0, total = 0.0;
    int64_t at;

    if (c->sampling->temperature == 0.0) {
        while (c->stats[(size_t)owner * c->rows + row].max != max) {
            owner++;
        }
    } else {
        for (uint32_t t = 0; t < tp->size; t++) {
            total += rank_mass(c, t, row, max);
        }
        want = unit_of(c, d) * total;
        while (owner + 1 < tp->size && want >= rank_mass(c, owner, row, max)) {
            want -= rank_mass(c, owner, row, max);
            owner++;
        }
    }
    if (owner != tp->rank) {
        return (struct verdict){-1, 0.0f};
    }
    at = c->sampling->temperature == 0.0 ? first_with(logits, c->cols, max)
                                         : column_at(c, logits, max, want);
    return (struct verdict){(int32_t)(c->vocab_lo + at), logits[at]};
}

/* ---- whole rows ---------------------------------------------------------- */

static bool needs_whole_rows(const struct chunk *c)
{
    const struct dyti_sampling *s = c->sampling;

    if (s->temperature > 0.0 &&
        (s->top_k > 0 || s->top_p < 1.0 || s->min_p > 0.0)) {
        return true;
    }
    for (uint32_t i = 0; i < c->draws; i++) {
        if (c->draw[i].position < s->min_response_tokens) {
            return true;
        }
    }
    return false;
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

static void assemble_row(const struct chunk *c, const float *all, uint32_t row,
                         float *out)
{
    const float *from = all;

    for (uint32_t t = 0; t < c->r->params.tp.size; t++) {
        int64_t lo, cols = columns_of(c->r, t, &lo);

        memcpy(out + lo, from + (size_t)row * (size_t)cols,
               (size_t)cols * sizeof(*out));
        from += (size_t)c->rows * (size_t)cols;
    }
}

static enum dyt_status gather_logits(struct chunk *c, float *all)
{
    const struct dyti_group *tp = &c->r->params.tp;
    uint64_t counts[DYTI_ROLLOUT_MAX_TP];
    int64_t lo;

    if (tp->size <= 1) {
        memcpy(all, c->logits,
               (size_t)c->rows * (size_t)c->cols * sizeof(*all));
        return DYT_OK;
    }
    for (uint32_t t = 0; t < tp->size; t++) {
        counts[t] = c->rows * (uint64_t)columns_of(c->r, t, &lo) * sizeof(*all);
    }
    return tp->ops->all_gather(tp->self, c->logits, all, counts);
}

/* Draw i is made by rank i mod tp. */
static enum dyt_status judge_whole(struct chunk *c, struct verdict *mine)
{
    struct dyti_rollout *r = c->r;
    int64_t vocab = r->model->arch.vocab;
    uint64_t row_bytes = (uint64_t)vocab * sizeof(float);
    float *all, *row;
    void *scratch;
    enum dyt_status st;

    st = dyti_region_take(&r->work, c->rows * row_bytes, 64u, (void **)&all);
    st = st != DYT_OK
             ? st
             : dyti_region_take(&r->work, row_bytes, 64u, (void **)&row);
    st = st != DYT_OK
             ? st
             : dyti_region_take(&r->work, dyti_draw_scratch_bytes(vocab), 64u,
                                &scratch);
    st = st != DYT_OK ? st : gather_logits(c, all);
    if (st != DYT_OK) {
        return st;
    }
    for (uint32_t i = 0; i < c->draws; i++) {
        const struct dyti_draw *d = &c->draw[i];
        int32_t token;
        float logit;

        mine[i] = (struct verdict){-1, 0.0f};
        if (i % r->params.tp.size != r->params.tp.rank) {
            continue;
        }
        assemble_row(c, all, d->row - c->row_first, row);
        token = dyti_draw_truncated(c->request, row, vocab, d->position,
                                    unit_of(c, d), scratch);
        assemble_row(c, all, d->row - c->row_first, row);
        logit = row[token];
        mine[i] = (struct verdict){token, logit};
    }
    return DYT_OK;
}

/* ---- one chunk of rows --------------------------------------------------- */

static enum dyt_status collect(struct chunk *c)
{
    const struct dyti_group *tp = &c->r->params.tp;
    enum dyt_status st = gather(tp, c->verdict, c->draws * sizeof(*c->verdict));

    for (uint32_t i = 0; st == DYT_OK && i < c->draws; i++) {
        struct dyti_draw *d = &c->draw[i];
        uint32_t row = d->row - c->row_first, t = 0;
        float max = row_maximum(c, row);
        double raw = 0.0, temp = 0.0, logit;

        while (t + 1 < tp->size &&
               c->verdict[(size_t)t * c->draws + i].token < 0) {
            t++;
        }
        d->token = c->verdict[(size_t)t * c->draws + i].token;
        logit = (double)c->verdict[(size_t)t * c->draws + i].logit;
        for (uint32_t m = 0; m < tp->size; m++) {
            const struct row_stats *s = &c->stats[(size_t)m * c->rows + row];

            raw += (double)s->sum_raw * exp((double)s->max - (double)max);
            temp += rank_mass(c, m, row, max);
        }
        d->raw = (float)(logit - (double)max - log(raw));
        d->processed = (float)((logit - (double)max) * c->scale - log(temp));
        if (d->token < 0 || !isfinite(d->raw)) {
            return DYTI_FAIL(DYT_ERR_DEVICE,
                             "no token can be drawn for prompt %llu sample %u "
                             "at position %u: the logits are not finite",
                             (unsigned long long)d->prompt, d->sample,
                             d->position);
        }
    }
    return st;
}

static enum dyt_status draw_chunk(struct chunk *c)
{
    struct dyti_rollout *r = c->r;
    uint32_t tp = r->params.tp.size;
    struct verdict *mine;
    enum dyt_status st;

    st = dyti_region_take(&r->work,
                          (uint64_t)c->rows * (uint64_t)c->cols * sizeof(float),
                          64u, (void **)&c->logits);
    st = st != DYT_OK
             ? st
             : dyti_region_take(&r->work, tp * c->rows * sizeof(*c->stats), 64u,
                                (void **)&c->stats);
    st = st != DYT_OK
             ? st
             : dyti_region_take(&r->work, tp * c->draws * sizeof(*c->verdict),
                                64u, (void **)&c->verdict);
    st = st != DYT_OK ? st
                      : dyti_nn_logits(r->nn, &r->weights, r->hidden,
                                       r->logit_row + c->row_first, c->rows,
                                       c->logits, &r->work);
    st = st != DYT_OK ? st : row_statistics(c);
    if (st != DYT_OK) {
        return st;
    }
    mine = c->verdict + (size_t)r->params.tp.rank * c->draws;
    if (needs_whole_rows(c)) {
        st = judge_whole(c, mine);
    } else {
        for (uint32_t i = 0; i < c->draws; i++) {
            mine[i] = judge(c, &c->draw[i]);
        }
    }
    return st == DYT_OK ? collect(c) : st;
}

/* All draws of the pass, a chunk of rows at a time (last stage only). */
static enum dyt_status draw_chunks(struct dyti_rollout *r,
                                   const struct dyti_rollout_request *request)
{
    const struct dyti_sampling *sampling = request->sampling;
    uint64_t mark = dyti_region_mark(&r->work);
    uint32_t first_draw = 0;
    enum dyt_status st = DYT_OK;

    for (uint32_t row = 0; st == DYT_OK && row < r->logit_row_count;
         row += r->chunk_rows) {
        uint32_t left = r->logit_row_count - row, end = first_draw;
        struct chunk c = {
            .r = r,
            .request = request,
            .sampling = sampling,
            .scale = sampling->temperature > 0.0
                         ? (float)(1.0 / sampling->temperature)
                         : 1.0f,
            .row_first = row,
            .rows = left < r->chunk_rows ? left : r->chunk_rows,
            .draw = r->draw + first_draw,
            .vocab_lo = r->nn->part.vocab_lo,
            .cols = r->nn->part.vocab_hi - r->nn->part.vocab_lo,
        };

        while (end < r->draw_count && r->draw[end].row < row + c.rows) {
            end++;
        }
        c.draws = end - first_draw;
        first_draw = end;
        st = draw_chunk(&c);
        dyti_region_rewind(&r->work, mark);
    }
    return st;
}

enum dyt_status dyti_draw_all(struct dyti_rollout *r,
                              const struct dyti_rollout_request *request)
{
    const struct dyti_group *pp = &r->params.pp;
    bool last = pp->size <= 1 || pp->rank + 1 == pp->size;
    enum dyt_status st = last ? draw_chunks(r, request) : DYT_OK;

    if (st == DYT_OK && pp->size > 1) {
        st = pp->ops->broadcast(pp->self, r->draw,
                                r->draw_count * sizeof(*r->draw), pp->size - 1);
    }
    return st;
}
