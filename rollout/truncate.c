/* Sampling from one whole row: minimum length, top-k, top-p, min-p, in the
 * order in which transformers applies them.  The draw walks the tokens that
 * are left by their ids, so that a rounding difference between two layouts
 * moves it as little as it moves a plain draw. */
#include "rollout/internal.h"

#include <math.h>
#include <stdlib.h>

struct candidate {
    float z; /* (logit - highest) / temperature */
    int32_t token;
};

uint64_t dyti_draw_scratch_bytes(int64_t vocab)
{
    return (uint64_t)vocab * sizeof(struct candidate);
}

static void forbid(float *logits, int64_t vocab, int64_t token)
{
    if (token >= 0 && token < vocab) {
        logits[token] = -INFINITY;
    }
}

/* Before min_response_tokens no token may end the sequence. */
static void mask_ends(const struct dyti_rollout_request *q, float *logits,
                      int64_t vocab)
{
    const struct dyti_sampling *s = q->sampling;

    for (uint32_t i = 0; i < q->eos_count && !s->ignore_eos; i++) {
        forbid(logits, vocab, q->eos[i]);
    }
    for (uint32_t i = 0; i < s->stop_token_id_count; i++) {
        forbid(logits, vocab, (int64_t)s->stop_token_id[i]);
    }
}

/* The first of the highest; -1 if nothing is above -inf. */
static int32_t highest(const float *logits, int64_t vocab)
{
    int64_t best = -1;
    float most = -INFINITY;

    for (int64_t i = 0; i < vocab; i++) {
        if (logits[i] > most) {
            most = logits[i];
            best = i;
        }
    }
    return (int32_t)best;
}

/* Higher first; equal ones by token, so that the order is total. */
static int by_height(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;

    if (x->z != y->z) {
        return x->z > y->z ? -1 : 1;
    }
    return (x->token > y->token) - (x->token < y->token);
}

static int by_token(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;

    return (x->token > y->token) - (x->token < y->token);
}

/* Of those below this none can be left in the end: with less than (1 - top_p)
 * / vocab of the mass a token is never in the nucleus.  Keeps the sort short;
 * what it lets through is judged exactly later.  What top-k leaves is a total
 * of its own, so with it all stay. */
static float least_height(const struct dyti_sampling *s, int64_t vocab,
                          double total)
{
    if (s->top_k > 0) {
        return -INFINITY;
    }
    if (s->top_p < 1.0) {
        return (float)(log((1.0 - s->top_p) / (double)vocab * total) - 1e-3);
    }
    return s->min_p > 0.0 ? logf((float)s->min_p) : -INFINITY;
}

static double mass_of(const struct candidate *c, size_t n)
{
    double sum = 0.0;

    for (size_t i = 0; i < n; i++) {
        sum += exp((double)c[i].z);
    }
    return sum;
}

static void swap(struct candidate *a, struct candidate *b)
{
    struct candidate t = *a;

    *a = *b;
    *b = t;
}

/* Bring the `k` highest of n to the front, in any order: quickselect. */
static void select_highest(struct candidate *c, size_t n, size_t k)
{
    size_t lo = 0, hi = n;

    while (hi - lo > 1) {
        size_t at = lo;

        swap(&c[lo + (hi - lo) / 2], &c[hi - 1]);
        for (size_t i = lo; i + 1 < hi; i++) {
            if (by_height(&c[i], &c[hi - 1]) < 0) {
                swap(&c[i], &c[at++]);
            }
        }
        swap(&c[at], &c[hi - 1]);
        if (at == k) {
            return;
        }
        if (at < k) {
            lo = at + 1;
        } else {
            hi = at;
        }
    }
}

/* top-k, then top-p over what that left, then min-p: how many of c are left,
 * at its front. */
static size_t truncate_candidates(const struct dyti_sampling *s,
                                  struct candidate *c, size_t n, double total)
{
    size_t keep = n;

    if (s->top_k > 0 && (size_t)s->top_k < n) {
        keep = (size_t)s->top_k;
        select_highest(c, n, keep);
        total = mass_of(c, keep);
    }
    if (s->top_p < 1.0) {
        double sum = 0.0;
        size_t i = 0;

        qsort(c, keep, sizeof(*c), by_height);
        while (i < keep && (i == 0 || sum < s->top_p * total)) {
            sum += exp((double)c[i++].z);
        }
        keep = i;
    }
    if (s->min_p > 0.0) {
        float least = logf((float)s->min_p);
        size_t left = 0;

        for (size_t i = 0; i < keep; i++) {
            if (c[i].z >= least) {
                c[left++] = c[i];
            }
        }
        keep = left;
    }
    qsort(c, keep, sizeof(*c), by_token);
    return keep;
}

/* All tokens that can be left, by id, with their heights. */
static size_t gather_candidates(const struct dyti_sampling *s,
                                const float *logits, int64_t vocab, float best,
                                double *out_total, struct candidate *out)
{
    float scale = (float)(1.0 / s->temperature), least;
    double total = 0.0;
    size_t n = 0;

    for (int64_t i = 0; i < vocab && s->top_p < 1.0; i++) {
        total += (double)expf((logits[i] - best) * scale);
    }
    least = least_height(s, vocab, total);
    for (int64_t i = 0; i < vocab; i++) {
        float z = (logits[i] - best) * scale;

        if (z >= least && z > -INFINITY) {
            out[n++] = (struct candidate){z, (int32_t)i};
        }
    }
    *out_total = total;
    return n;
}

int32_t dyti_draw_truncated(const struct dyti_rollout_request *request,
                            float *logits, int64_t vocab, uint32_t position,
                            double unit, void *scratch)
{
    const struct dyti_sampling *s = request->sampling;
    struct candidate *c = scratch;
    double total, sum = 0.0, want;
    int32_t top;
    size_t n;

    if (position < s->min_response_tokens) {
        mask_ends(request, logits, vocab);
    }
    top = highest(logits, vocab);
    if (top < 0 || s->temperature == 0.0) {
        return top;
    }
    n = gather_candidates(s, logits, vocab, logits[top], &total, c);
    if (s->top_k > 0 || s->top_p < 1.0 || s->min_p > 0.0) {
        n = truncate_candidates(s, c, n, total);
    }
    want = unit * mass_of(c, n);
    for (size_t i = 0; i < n; i++) {
        sum += exp((double)c[i].z);
        if (sum > want) {
            return c[i].token;
        }
    }
    return n > 0 ? c[n - 1].token : -1;
}
