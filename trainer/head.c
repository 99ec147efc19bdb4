/* The end of the last pipeline stage: only rows that have a target go through
 * the head, a chunk of logits at a time.
 *
 * A chunk's derivative can be taken while its logits are there, unless it needs
 * other tokens of a sequence (dyti_loss_whole).  Then chunks are cut between
 * sequences; and where a sequence is longer than a chunk, the head runs twice:
 * once for the log-probabilities, once for the gradient. */
#include "trainer/rank.h"

#include <string.h>

struct head {
    struct dyti_trainer *t;
    const struct dyti_pass *pass;
    const struct dyti_micro *micro;
    struct dyti_region work;
    struct dyti_nn_head_chunk chunk;
    bool no_grad;
};

static const struct dyti_train_sequence *sequence_of(const struct head *h,
                                                     uint32_t i)
{
    return &h->t->batch.sequence[h->micro->sequence[i]];
}

/* ---- one chunk: targets [lo, hi) of the micro-batch --------------------- */

/* Store the chunk's results at their tokens. */
static void store(const struct head *h, uint32_t lo, uint32_t hi)
{
    float *logprob = h->t->value[h->pass->into];
    float *entropy = h->t->value[DYTI_TOKEN_ENTROPY];
    uint32_t at = 0; /* first target of the sequence */

    for (uint32_t i = 0; i < h->micro->sequence_count; i++) {
        const struct dyti_train_sequence *s = sequence_of(h, i);
        uint32_t end = at + s->sample->count;
        uint32_t from = at > lo ? at : lo, to = end < hi ? end : hi;

        if (from < to) {
            uint64_t token = s->token_first + (from - at);
            size_t bytes = (to - from) * sizeof(float);

            memcpy(logprob + token, h->chunk.logprob + (from - lo), bytes);
            if (h->pass->into != DYTI_LOGPROB_REFERENCE) {
                memcpy(entropy + token, h->chunk.entropy + (from - lo), bytes);
            }
        }
        at = end;
    }
}

static enum dyt_status forward(struct head *h, uint32_t lo, uint32_t hi)
{
    const struct dyti_workspace *ws = &h->t->ws;
    size_t width = (size_t)h->t->nn->model->arch.hidden;
    float temperature = h->t->p.config.temperature;
    enum dyt_status st;

    for (uint32_t i = lo; i < hi; i++) {
        memcpy(ws->head_hidden + (i - lo) * width,
               ws->hidden + (size_t)h->micro->head_row[i] * width,
               width * sizeof(float));
    }
    dyti_region_init(&h->work, ws->nn, ws->nn_bytes);
    h->chunk = (struct dyti_nn_head_chunk){
        .hidden = ws->head_hidden,
        .rows = hi - lo,
        .target = h->micro->target + lo,
        .scale = temperature > 0 ? 1 / temperature : 1,
        .logprob = ws->head_logprob,
        .entropy = ws->head_entropy,
    };
    st = dyti_nn_head_forward(h->t->nn, h->pass->weights, &h->chunk, &h->work);
    if (st == DYT_OK) {
        store(h, lo, hi);
    }
    return st;
}

/* Derivatives of targets [lo, hi) into ws.dlogprob, ws.dentropy. */
static void derive(const struct head *h, uint32_t lo, uint32_t hi)
{
    const struct dyti_workspace *ws = &h->t->ws;
    struct dyti_loss_sums ignored = {0};
    struct dyti_loss_sums *sums =
        dyti_rank_speaks(h->t) ? h->pass->sums : &ignored;
    uint32_t at = 0;

    for (uint32_t i = 0; i < h->micro->sequence_count; i++) {
        uint32_t end = at + sequence_of(h, i)->sample->count;
        uint32_t from = at > lo ? at : lo, to = end < hi ? end : hi;

        if (from < to) {
            struct dyti_loss_sequence s =
                dyti_rank_sequence(h->t, h->pass, h->micro->sequence[i]);

            dyti_loss_tokens(&h->t->p.config, &h->pass->totals, &s, from - at,
                             to - at, ws->dlogprob + from, ws->dentropy + from,
                             sums);
        }
        at = end;
    }
    if (h->no_grad) {
        memset(ws->dlogprob + lo, 0, (hi - lo) * sizeof(float));
        memset(ws->dentropy + lo, 0, (hi - lo) * sizeof(float));
    }
}

static enum dyt_status backward(struct head *h, uint32_t lo, uint32_t hi)
{
    const struct dyti_workspace *ws = &h->t->ws;
    size_t width = (size_t)h->t->nn->model->arch.hidden;
    enum dyt_status st;

    st = dyti_nn_head_backward(h->t->nn, h->pass->weights, &h->t->grads,
                               &h->chunk, ws->dlogprob + lo, ws->dentropy + lo,
                               ws->head_dhidden, &h->work);
    /* Added: samples of one prompt have a row in common. */
    for (uint32_t i = lo; i < hi && st == DYT_OK; i++) {
        float *to = ws->dhidden + (size_t)h->micro->head_row[i] * width;
        const float *from = ws->head_dhidden + (size_t)(i - lo) * width;

        for (size_t c = 0; c < width; c++) {
            to[c] += from[c];
        }
    }
    return st;
}

/* ---- chunks ------------------------------------------------------------- */

/* Where the chunk that begins at target `lo` ends; a sequence that does not
 * fit into one is cut. */
static uint32_t chunk_end(const struct head *h, uint32_t lo, bool whole)
{
    uint32_t most = (uint32_t)h->t->ws.head_rows, end = lo, at = 0;

    if (h->micro->target_count - lo <= most) {
        return h->micro->target_count;
    }
    for (uint32_t i = 0;
         whole && i < h->micro->sequence_count && at <= lo + most; i++) {
        end = at > lo ? at : end;
        at += sequence_of(h, i)->sample->count;
    }
    return end > lo ? end : lo + most;
}

static bool has_long_sequence(const struct head *h)
{
    if (h->micro->target_count <= (uint64_t)h->t->ws.head_rows) {
        return false;
    }
    for (uint32_t i = 0; i < h->micro->sequence_count; i++) {
        if (sequence_of(h, i)->sample->count > h->t->ws.head_rows) {
            return true;
        }
    }
    return false;
}

static enum dyt_status forward_all(struct head *h)
{
    enum dyt_status st = DYT_OK;

    for (uint32_t lo = 0, hi; lo < h->micro->target_count && st == DYT_OK;
         lo = hi) {
        hi = chunk_end(h, lo, false);
        st = forward(h, lo, hi);
    }
    return st;
}

enum dyt_status dyti_head_run(struct dyti_trainer *t,
                              const struct dyti_pass *pass,
                              const struct dyti_micro *micro, bool no_grad)
{
    struct head h = {.t = t, .pass = pass, .micro = micro, .no_grad = no_grad};
    bool whole = dyti_loss_whole(&t->p.config), twice;
    size_t width = (size_t)t->nn->model->arch.hidden;
    enum dyt_status st;

    if (!pass->train) {
        return forward_all(&h);
    }
    memset(t->ws.dhidden, 0,
           (size_t)micro->nn.packed.row_count * width * sizeof(float));
    twice = whole && has_long_sequence(&h);
    st = twice ? forward_all(&h) : DYT_OK;
    if (st == DYT_OK && twice) {
        derive(&h, 0, micro->target_count);
    }
    for (uint32_t lo = 0, hi; lo < micro->target_count && st == DYT_OK;
         lo = hi) {
        hi = chunk_end(&h, lo, whole);
        st = forward(&h, lo, hi);
        if (st == DYT_OK && !twice) {
            derive(&h, lo, hi);
        }
        st = st ? st : backward(&h, lo, hi);
    }
    return st;
}
