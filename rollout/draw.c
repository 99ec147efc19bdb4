/* Logits to tokens.  The vocabulary is cut between TP ranks and no rank needs
 * all of it: each gives the maximum and the exponential sums of its columns,
 * all know from these which rank's columns the random number falls into, and
 * that rank names the token.  draw_whole.c does what needs whole rows.
 */
#include "rollout/draw.h"

#include "base/rng.h"

#include <math.h>

#define SCAN_COLS 256 /* columns whose exponentials are summed at a time */

double dyti_draw_unit(const struct dyti_chunk *c, const struct dyti_draw *d)
{
    return dyti_rng_unit(
        dyti_rng_u64(c->request->seed, d->prompt, d->sample, d->position));
}

/* ---- statistics of rows -------------------------------------------------- */

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

static double rank_mass(const struct dyti_chunk *c, uint32_t rank, uint32_t row)
{
    const struct dyti_row_stats *s = &c->stats[(size_t)rank * c->rows + row];
    double below = (double)s->max - (double)c->total[row].max;

    return (double)s->sum_temp * exp(below * (double)c->scale);
}

/* A rank without any mass (all -inf) says NaN sums; they count as 0. */
static double or_zero(const struct dyti_row_stats *s, double x)
{
    return s->max == -INFINITY ? 0.0 : x;
}

static void total_row(struct dyti_chunk *c, uint32_t row)
{
    struct dyti_row_total *total = &c->total[row];
    uint32_t tp = c->r->params.tp.size;

    *total = (struct dyti_row_total){.max = c->stats[row].max};
    for (uint32_t t = 1; t < tp; t++) {
        total->max = fmaxf(total->max, c->stats[(size_t)t * c->rows + row].max);
    }
    for (uint32_t t = 0; t < tp; t++) {
        const struct dyti_row_stats *s = &c->stats[(size_t)t * c->rows + row];
        double below = (double)s->max - (double)total->max;

        total->raw += or_zero(s, (double)s->sum_raw * exp(below));
        total->temp += or_zero(s, rank_mass(c, t, row));
    }
}

static enum dyt_status row_statistics(struct dyti_chunk *c)
{
    const struct dyti_kernels *k = &c->r->params.kernels;
    const struct dyti_group *tp = &c->r->params.tp;
    struct dyti_row_stats *mine = c->stats + (size_t)tp->rank * c->rows;
    float *max = c->r->stats, *sum = max + c->rows, *zexp = sum + c->rows,
          *target_z = zexp + c->rows, *scaled = target_z + c->rows;
    enum dyt_status st = k->ops->row_max(k->self, c->logits, c->cols, c->rows,
                                         c->cols, 1.0f, max);

    st = st != DYT_OK ? st
                      : k->ops->row_sums(k->self, c->logits, c->cols, c->rows,
                                         c->cols, 1.0f, max, c->r->no_target,
                                         c->vocab_lo, sum, zexp, target_z);
    for (uint32_t i = 0; st == DYT_OK && i < c->rows; i++) {
        mine[i] = (struct dyti_row_stats){max[i], sum[i], sum[i]};
        scaled[i] = max[i] * c->scale;
    }
    if (st == DYT_OK && c->scale != 1.0f) {
        st = k->ops->row_sums(k->self, c->logits, c->cols, c->rows, c->cols,
                              c->scale, scaled, c->r->no_target, c->vocab_lo,
                              sum, zexp, target_z);
        for (uint32_t i = 0; st == DYT_OK && i < c->rows; i++) {
            mine[i].sum_temp = sum[i];
        }
    }
    st = st != DYT_OK ? st : gather(tp, c->stats, c->rows * sizeof(*mine));
    for (uint32_t i = 0; st == DYT_OK && i < c->rows; i++) {
        total_row(c, i);
    }
    return st;
}

/* ---- a draw from the columns of one rank --------------------------------- */

uint64_t dyti_draw_scan_bytes(int64_t vocab)
{
    return ((uint64_t)vocab / SCAN_COLS + 1) * 5 * sizeof(float) + 64;
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

/* First column from `from` on at which the mass passes `want`; the last one
 * with any mass if rounding leaves it short. */
static int64_t scan(const struct dyti_chunk *c, const float *logits, float max,
                    int64_t from, double want)
{
    double sum = 0.0;
    int64_t i;

    for (i = from; i < c->cols; i++) {
        sum += (double)expf((logits[i] - max) * c->scale);
        if (sum > want) {
            return i;
        }
    }
    while (i > 1 && expf((logits[i - 1] - max) * c->scale) <= 0.0f) {
        i--;
    }
    return i - 1;
}

/* Masses of the row's whole blocks of SCAN_COLS columns. */
static enum dyt_status block_masses(struct dyti_chunk *c, const float *logits,
                                    float max, int64_t blocks, float **out)
{
    const struct dyti_kernels *k = &c->r->params.kernels;
    int32_t *no_target;
    float *top, *sum;
    enum dyt_status st;

    st = DYTI_TAKE(&c->r->work, &sum, 3 * blocks);
    st = st != DYT_OK ? st : DYTI_TAKE(&c->r->work, &top, blocks);
    st = st != DYT_OK ? st : DYTI_TAKE(&c->r->work, &no_target, blocks);
    if (st != DYT_OK) {
        return st;
    }
    for (int64_t b = 0; b < blocks; b++) {
        top[b] = max * c->scale;
        no_target[b] = -1;
    }
    *out = sum;
    return k->ops->row_sums(k->self, logits, SCAN_COLS, blocks, SCAN_COLS,
                            c->scale, top, no_target, 0, sum, sum + blocks,
                            sum + 2 * blocks);
}

/* The column of this rank at which the running mass passes `want`: first the
 * block, then the column in it. */
static enum dyt_status column_at(struct dyti_chunk *c, const float *logits,
                                 float max, double want, int64_t *out_column)
{
    int64_t blocks = c->cols / SCAN_COLS, b = 0;
    uint64_t mark = dyti_region_mark(&c->r->work);
    float *mass = NULL;
    enum dyt_status st = DYT_OK;

    if (blocks > 1) {
        st = block_masses(c, logits, max, blocks, &mass);
        while (st == DYT_OK && b < blocks && (double)mass[b] <= want) {
            want -= (double)mass[b++];
        }
    }
    dyti_region_rewind(&c->r->work, mark);
    if (st == DYT_OK) {
        *out_column = scan(c, logits, max, b * SCAN_COLS, want);
    }
    return st;
}

/* Which rank's columns the draw falls into, and how far into their mass. */
static uint32_t owner_of(const struct dyti_chunk *c, const struct dyti_draw *d,
                         double *out_want)
{
    uint32_t row = d->row - c->row_first, owner = 0;
    double want = dyti_draw_unit(c, d) * c->total[row].temp;

    for (uint32_t t = 0; t < c->r->params.tp.size; t++) {
        const struct dyti_row_stats *s = &c->stats[(size_t)t * c->rows + row];
        double mass = or_zero(s, rank_mass(c, t, row));

        if (c->sampling->temperature == 0.0) {
            if (s->max == c->total[row].max) {
                return t;
            }
            continue;
        }
        if (mass > 0.0) {
            owner = t;
            *out_want = want;
        }
        if (want < mass) {
            break;
        }
        want -= mass;
    }
    return owner;
}

/* This rank's verdict on a plain draw. */
static enum dyt_status judge(struct dyti_chunk *c, const struct dyti_draw *d,
                             struct dyti_verdict *out)
{
    uint32_t row = d->row - c->row_first;
    const float *logits = c->logits + (size_t)row * (size_t)c->cols;
    float max = c->total[row].max;
    double want = 0.0;
    int64_t at;
    enum dyt_status st = DYT_OK;

    *out = (struct dyti_verdict){-1, 0.0f};
    if (!isfinite(c->total[row].temp) ||
        owner_of(c, d, &want) != c->r->params.tp.rank) {
        return DYT_OK;
    }
    if (c->sampling->temperature == 0.0) {
        at = first_with(logits, c->cols, max);
    } else {
        st = column_at(c, logits, max, want, &at);
    }
    if (st == DYT_OK) {
        *out = (struct dyti_verdict){(int32_t)(c->vocab_lo + at), logits[at]};
    }
    return st;
}

/* ---- one chunk of rows --------------------------------------------------- */

static enum dyt_status collect(struct dyti_chunk *c)
{
    const struct dyti_group *tp = &c->r->params.tp;
    enum dyt_status st = gather(tp, c->verdict, c->draws * sizeof(*c->verdict));

    for (uint32_t i = 0; st == DYT_OK && i < c->draws; i++) {
        struct dyti_draw *d = &c->draw[i];
        const struct dyti_row_total *total = &c->total[d->row - c->row_first];
        const struct dyti_verdict *v = &c->verdict[i];
        double below;

        for (uint32_t t = 1; t < tp->size && v->token < 0; t++) {
            v = &c->verdict[(size_t)t * c->draws + i];
        }
        below = (double)v->logit - (double)total->max;
        d->token = v->token;
        d->raw = (float)(below - log(total->raw));
        d->processed = (float)(below * (double)c->scale - log(total->temp));
        if (d->token < 0 || !isfinite(d->raw) || !isfinite(d->processed)) {
            return DYTI_FAIL(DYT_ERR_DEVICE,
                             "no token can be drawn for prompt %llu sample %u "
                             "at position %u: the logits are not finite, or "
                             "every token left would end the sequence",
                             (unsigned long long)d->prompt, d->sample,
                             d->position);
        }
    }
    return st;
}

static enum dyt_status take_memory(struct dyti_chunk *c)
{
    struct dyti_region *work = &c->r->work;
    uint64_t tp = c->r->params.tp.size;
    enum dyt_status st =
        DYTI_TAKE(work, &c->logits, (uint64_t)c->rows * (uint64_t)c->cols);

    st = st != DYT_OK ? st : DYTI_TAKE(work, &c->stats, tp * c->rows);
    st = st != DYT_OK ? st : DYTI_TAKE(work, &c->total, c->rows);
    return st != DYT_OK ? st : DYTI_TAKE(work, &c->verdict, tp * c->draws);
}

static enum dyt_status draw_chunk(struct dyti_chunk *c)
{
    struct dyti_rollout *r = c->r;
    struct dyti_verdict *mine;
    bool whole = false;
    enum dyt_status st = take_memory(c);

    st = st != DYT_OK ? st
                      : dyti_nn_logits(r->nn, &r->weights, r->hidden,
                                       r->logit_row + c->row_first, c->rows,
                                       c->logits, &r->work);
    st = st != DYT_OK ? st : row_statistics(c);
    if (st != DYT_OK) {
        return st;
    }
    mine = c->verdict + (size_t)r->params.tp.rank * c->draws;
    for (uint32_t i = 0; st == DYT_OK && i < c->draws; i++) {
        if (dyti_draw_is_whole(c, &c->draw[i])) {
            whole = true;
        } else {
            st = judge(c, &c->draw[i], &mine[i]);
        }
    }
    if (st == DYT_OK && whole) {
        st = dyti_draw_whole(c, mine);
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
        struct dyti_chunk c = {
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

    if (st == DYT_OK && pp->size > 1 && r->draw_count > 0) {
        st = pp->ops->broadcast(pp->self, r->draw,
                                r->draw_count * sizeof(*r->draw), pp->size - 1);
    }
    return st;
}
