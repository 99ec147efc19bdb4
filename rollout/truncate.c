/* Sampling from one whole row: minimum length, top-k, top-p, min-p, in the
 * order that transformers and vLLM apply them. */
#include "rollout/internal.h"

#include <math.h>
#include <stdlib.h>

struct candidate {
    float z; /* logit / temperature */
    int32_t token;
};

uint64_t dyti_draw_scratch_bytes(int64_t vocab)
{
    return (uint64_t)vocab * sizeof(struct candidate);
}

/* Before min_tokens no token may end the sequence. */
static void mask_ends(const struct dyti_rollout_request *q, float *logits,
                      int64_t vocab)
{
    const struct dyti_sampling *s = q->sampling;

    for (uint32_t i = 0; i < q->eos_count; i++) {
        if (q->eos[i] >= 0 && q->eos[i] < vocab) {
            logits[q->eos[i]] = -INFINITY;
        }
    }
    for (uint32_t i = 0; i < s->stop_token_id_count; i++) {
        if ((int64_t)s->stop_token_id[i] < vocab) {
            logits[s->stop_token_id[i]] = -INFINITY;
        }
    }
}

static int32_t highest(const float *logits, int64_t vocab)
{
    int64_t best = 0;

    for (int64_t i = 1; i < vocab; i++) {
        best = logits[i] > logits[best] ? i : best;
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

/* Candidates that can survive: a token with less than (1 - top_p) / vocab of
 * the mass is never in the nucleus, one under min_p of the best never passes.
 * Keeps the sort short. */
static size_t gather_candidates(const struct dyti_sampling *s,
                                const float *logits, int64_t vocab,
                                struct candidate *out)
{
    float best = logits[highest(logits, vocab)];
    float scale = (float)(1.0 / s->temperature), floor = -INFINITY;
    double total = 0.0;
    size_t n = 0;

    for (int64_t i = 0; i < vocab; i++) {
        total += exp((double)(logits[i] - best) * scale);
    }
    if (s->top_p < 1.0) {
        double least = (1.0 - s->top_p) / (double)vocab * total;

        floor = (float)(log(least) - 1e-3);
    }
    if (s->min_p > 0.0) {
        floor = fmaxf(floor, logf((float)s->min_p) - 1e-3f);
    }
    for (int64_t i = 0; i < vocab; i++) {
        float z = (logits[i] - best) * scale;

        if (z >= floor && z > -INFINITY) {
            out[n++] = (struct candidate){z, (int32_t)i};
        }
    }
    return n;
}

/* Of n sorted candidates, how many are kept. */
static size_t kept(const struct dyti_sampling *s, const struct candidate *c,
                   size_t n, double total)
{
    size_t keep = n;
    double sum = 0.0;

    if (s->top_k > 0 && (size_t)s->top_k < keep) {
        keep = (size_t)s->top_k;
        total = 0.0;
        for (size_t i = 0; i < keep; i++) {
            total += exp((double)c[i].z);
        }
    }
    if (s->top_p < 1.0) {
        size_t i = 0;

        while (i < keep && sum < s->top_p * total) {
            sum += exp((double)c[i++].z);
        }
        keep = i > 0 ? i : 1;
    }
    if (s->min_p > 0.0) {
        while (keep > 1 && c[keep - 1].z < logf((float)s->min_p)) {
            keep--;
        }
    }
    return keep;
}

int32_t dyti_draw_truncated(const struct dyti_rollout_request *request,
                            float *logits, int64_t vocab, uint32_t position,
                            double unit, void *scratch)
{
    const struct dyti_sampling *sampling = request->sampling;
    struct candidate *c = scratch;
    double total = 0.0, sum = 0.0, want;
    float best;
    size_t n, keep;

    if (position < sampling->min_response_tokens) {
        mask_ends(request, logits, vocab);
    }
    if (sampling->temperature == 0.0) {
        return highest(logits, vocab);
    }
    best = logits[highest(logits, vocab)];
    for (int64_t i = 0; i < vocab; i++) {
        total += exp((double)(logits[i] - best) / sampling->temperature);
    }
    n = gather_candidates(sampling, logits, vocab, c);
    qsort(c, n, sizeof(*c), by_height);
    keep = kept(sampling, c, n, total);
    for (size_t i = 0; i < keep; i++) {
        sum += exp((double)c[i].z);
    }
    want = unit * sum;
    sum = 0.0;
    for (size_t i = 0; i < keep; i++) {
        sum += exp((double)c[i].z);
        if (sum > want) {
            return c[i].token;
        }
    }
    return c[keep - 1].token;
}
