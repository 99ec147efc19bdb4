/* Orders of prompts out, scored samples in. */
#include "cli/backends.h"
#include "cli/manager.h"

#include "base/array.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void dyti_scored_fini(struct dyti_scored *s)
{
    for (uint32_t i = 0; s->text != NULL && i < s->batch.sample_count; i++) {
        free(s->text[i]);
    }
    free(s->text);
    dyti_batch_fini(&s->batch);
    dyti_score_report_fini(&s->report);
    memset(s, 0, sizeof(*s));
}

/* ---- prompts ------------------------------------------------------------- */

/* The next `count` prompts of the training data. */
static enum dyt_status next_prompts(struct dyti_manager *m, uint32_t count,
                                    struct dyti_msg_generate *order)
{
    uint64_t rows = dyti_data_rows(m->train), skipped = 0;

    order->prompt = calloc(count, sizeof(*order->prompt));
    if (order->prompt == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u prompts", count);
    }
    while (order->prompt_count < count) {
        struct dyti_prompt *p = &order->prompt[order->prompt_count];
        uint64_t row;
        bool dropped = false;
        enum dyt_status st;

        dyti_data_next(rows, m->job->seed, m->job->data.shuffle, &m->cursor, 1,
                       &row);
        st = dyti_manager_prompt(m, m->train, row, p, &dropped);
        if (st != DYT_OK) {
            return st;
        }
        if (dropped) {
            if (++skipped >= rows) {
                return DYTI_FAIL(DYT_ERR_CONFIG,
                                 "every prompt is longer than "
                                 "data.max_prompt_tokens (%u): raise it",
                                 m->job->data.max_prompt_tokens);
            }
            continue;
        }
        p->id = m->next_prompt++;
        order->prompt_count++;
    }
    return DYT_OK;
}

/* ---- samples ------------------------------------------------------------- */

struct collecting {
    struct dyti_manager *m;
    const struct dyti_msg_generate *order;
    const struct dyti_data *data;
    struct dyti_score *score;
    struct dyti_scored *out;
    size_t sample_cap, text_cap;
};

static enum dyt_status field_text(void *self, uint64_t row, const char *field,
                                  char **out_text)
{
    return dyti_data_field_text(self, row, field, out_text);
}

static const char *row_json(void *self, uint64_t row)
{
    return dyti_data_row_json(self, row);
}

/* Borrowed prompts of the samples' groups: what scoring needs to know. */
static enum dyt_status judge(struct collecting *c, struct dyti_sample *sample,
                             uint32_t count, char **text)
{
    union {
        const struct dyti_data *in;
        void *out; /* the rows are only read */
    } rows = {.in = c->data};
    struct dyti_score_rows from = {rows.out, field_text, row_json};
    struct dyti_batch part = {.prompt = c->order->prompt,
                              .prompt_count = c->order->prompt_count,
                              .sample = sample,
                              .sample_count = count};
    int64_t start = dyti_now_ns();
    enum dyt_status st = dyti_score_judge(c->score, c->order->step, &from,
                                          &part, &c->out->report, text);

    c->out->score_ns += dyti_now_ns() - start;
    if (st == DYT_ERR_TIMEOUT) { /* of a command: it is no rank that hangs */
        char why[2048];

        snprintf(why, sizeof(why), "%s", dyti_error_message());
        st = dyti_error_adopt(DYT_ERR_IO, why);
    }
    return st;
}

/* Room for `more` samples at the end of what is collected. */
static enum dyt_status make_room(struct collecting *c, uint32_t more)
{
    struct dyti_batch *b = &c->out->batch;
    size_t need = (size_t)b->sample_count + more;
    size_t old = c->text_cap;
    enum dyt_status st = DYTI_GROW(b->sample, c->sample_cap, need);

    st = st != DYT_OK ? st : DYTI_GROW(c->out->text, c->text_cap, need);
    for (size_t i = old; st == DYT_OK && i < c->text_cap; i++) {
        c->out->text[i] = NULL;
    }
    return st;
}

/* Some samples are judged while others are still generated. */
static enum dyt_status take_samples(void *arg, struct dyti_msg_samples *s)
{
    struct collecting *c = arg;
    struct dyti_scored *out = c->out;
    enum dyt_status st = DYT_OK;

    if (s->first_token_ns > out->first_token_ns) {
        out->first_token_ns = s->first_token_ns;
    }
    if (s->sample_count > 0) {
        out->sampled += s->sampled;
        st = make_room(c, s->sample_count);
        st = st != DYT_OK ? st
                          : judge(c, s->sample, s->sample_count,
                                  out->text + out->batch.sample_count);
    }
    if (st == DYT_OK && s->sample_count > 0) {
        memcpy(out->batch.sample + out->batch.sample_count, s->sample,
               s->sample_count * sizeof(*s->sample));
        out->batch.sample_count += s->sample_count;
        s->sample_count = 0; /* moved */
    }
    return st;
}

static enum dyt_status on_samples(void *arg, uint32_t rank,
                                  const struct dyti_frame *frame)
{
    struct dyti_msg_samples s;
    enum dyt_status st = dyti_wire_samples_decode(frame->buffer.bytes,
                                                  frame->buffer.size_bytes, &s);

    (void)rank;
    if (st != DYT_OK) {
        return st;
    }
    st = take_samples(arg, &s);
    dyti_msg_samples_fini(&s);
    return st;
}

static enum dyt_status check_complete(const struct dyti_msg_generate *order,
                                      const struct dyti_scored *s)
{
    uint64_t want = (uint64_t)order->prompt_count * order->samples_per_prompt;

    return s->batch.sample_count == want
               ? DYT_OK
               : DYTI_FAIL(DYT_ERR_STATE,
                           "%u samples came back, %llu were asked for",
                           s->batch.sample_count, (unsigned long long)want);
}

/* Sorting moves samples, so their texts must move alike. */
struct sample_text {
    struct dyti_sample sample;
    char *text;
};

static int by_group(const void *a, const void *b)
{
    const struct dyti_sample *x = &((const struct sample_text *)a)->sample;
    const struct dyti_sample *y = &((const struct sample_text *)b)->sample;

    if (x->prompt != y->prompt) {
        return x->prompt < y->prompt ? -1 : 1;
    }
    return (x->index > y->index) - (x->index < y->index);
}

static enum dyt_status order_samples(struct dyti_scored *s)
{
    uint32_t n = s->batch.sample_count;
    struct sample_text *pair = calloc(n + 1u, sizeof(*pair));

    if (pair == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u samples", n);
    }
    for (uint32_t i = 0; i < n; i++) {
        pair[i] = (struct sample_text){s->batch.sample[i], s->text[i]};
    }
    if (n > 0) {
        qsort(pair, n, sizeof(*pair), by_group);
    }
    for (uint32_t i = 0; i < n; i++) {
        s->batch.sample[i] = pair[i].sample;
        s->text[i] = pair[i].text;
    }
    free(pair);
    return dyti_batch_order(&s->batch);
}

static enum dyt_status generate_by_ranks(struct dyti_manager *m,
                                         const struct dyti_msg_generate *order,
                                         struct collecting *c)
{
    double limit = dyti_job_phase(m->job, DYTI_PHASE_ROLLOUT)->deadline;
    struct dyti_envelope e = dyti_manager_stamp(m, DYTI_MSG_GENERATE);
    struct dyti_buffer buffer;
    enum dyt_status st = dyti_manager_tell(
        m, dyti_wire_generate_encode(&e, order, &buffer), &buffer);

    return st != DYT_OK ? st
                        : dyti_manager_collect(m, DYTI_MSG_SAMPLES, limit,
                                               on_samples, c);
}

enum dyt_status dyti_manager_generate(struct dyti_manager *m,
                                      struct dyti_msg_generate *order,
                                      const struct dyti_data *data,
                                      struct dyti_score *score,
                                      struct dyti_scored *out_scored)
{
    struct dyti_scored scored = {0};
    struct collecting c = {m, order, data, score, &scored, 0, 0};
    int64_t start = dyti_now_ns();
    enum dyt_status st = dyti_phase_take(&m->phase, DYTI_EVENT_GENERATE, 0);

    if (st == DYT_OK) {
        st = m->engine != NULL
                 ? dyti_manager_engine_generate(m, order, take_samples, &c)
                 : generate_by_ranks(m, order, &c);
    }
    st = st != DYT_OK ? st : check_complete(order, &scored);
    if (st == DYT_OK) {
        scored.batch.prompt = order->prompt;
        scored.batch.prompt_count = order->prompt_count;
        order->prompt = NULL;
        order->prompt_count = 0;
        st = order_samples(&scored);
    }
    scored.generate_ns = dyti_now_ns() - start - scored.score_ns;
    st = st != DYT_OK ? st : dyti_phase_take(&m->phase, DYTI_EVENT_SCORED, 0);
    if (st != DYT_OK) {
        dyti_scored_fini(&scored);
        return st;
    }
    *out_scored = scored;
    return DYT_OK;
}

/* ---- the batch of a step --------------------------------------------------
 */

static bool group_is_flat(const struct dyti_batch *b, uint32_t first,
                          uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        if (b->sample[first + i].reward != b->sample[first].reward) {
            return false;
        }
    }
    return true;
}

static void swap_groups(struct dyti_scored *a, uint32_t i,
                        struct dyti_scored *b, uint32_t k, uint32_t per_group)
{
    struct dyti_prompt prompt = a->batch.prompt[i];

    a->batch.prompt[i] = b->batch.prompt[k];
    b->batch.prompt[k] = prompt;
    for (uint32_t s = 0; s < per_group; s++) {
        uint32_t x = i * per_group + s, y = k * per_group + s;
        struct dyti_sample sample = a->batch.sample[x];
        char *text = a->text[x];

        a->batch.sample[x] = b->batch.sample[y];
        a->text[x] = b->text[y];
        b->batch.sample[y] = sample;
        b->text[y] = text;
    }
}

/* Put the groups of `from` that can be learned from over those of `to` from
 * *useful on, which cannot.  With from == to: move them to the front. */
static void gather_useful(struct dyti_scored *to, struct dyti_scored *from,
                          uint32_t per_group, uint32_t *useful)
{
    for (uint32_t g = 0;
         g < from->batch.prompt_count && *useful < to->batch.prompt_count;
         g++) {
        if (!group_is_flat(&from->batch, g * per_group, per_group)) {
            if (from != to || g != *useful) {
                swap_groups(to, *useful, from, g, per_group);
            }
            ++*useful;
        }
    }
}

static enum dyt_status one_batch(struct dyti_manager *m, uint32_t prompts,
                                 struct dyti_scored *out)
{
    struct dyti_msg_generate order = {.step = m->step,
                                      .samples_per_prompt =
                                          m->job->algorithm.samples_per_prompt};
    enum dyt_status st = next_prompts(m, prompts, &order);

    st = st != DYT_OK
             ? st
             : dyti_manager_generate(m, &order, m->train, m->score, out);
    dyti_msg_generate_fini(&order);
    return st;
}

/* Groups whose rewards are all equal teach nothing: others take their places,
 * as far as max_resample_batches go.  What cannot be replaced stays, and the
 * trainer leaves it out, so that a step always has its number of sequences. */
static enum dyt_status resample(struct dyti_manager *m,
                                struct dyti_scored *scored)
{
    const struct dyti_algorithm *a = &m->job->algorithm;
    uint32_t useful = 0;

    gather_useful(scored, scored, a->samples_per_prompt, &useful);
    for (uint32_t i = 0;
         i < a->max_resample_batches && useful < scored->batch.prompt_count;
         i++) {
        struct dyti_scored more;
        enum dyt_status st = one_batch(m, a->prompts_per_step, &more);

        if (st != DYT_OK) {
            return st;
        }
        gather_useful(scored, &more, a->samples_per_prompt, &useful);
        scored->generate_ns += more.generate_ns;
        scored->score_ns += more.score_ns;
        scored->sampled += more.sampled;
        scored->resampled++;
        dyti_scored_fini(&more);
    }
    return order_samples(scored);
}

enum dyt_status dyti_manager_next_batch(struct dyti_manager *m,
                                        struct dyti_scored *out_scored)
{
    const struct dyti_algorithm *a = &m->job->algorithm;
    struct dyti_scored scored;
    enum dyt_status st = one_batch(m, a->prompts_per_step, &scored);

    if (st != DYT_OK) {
        return st;
    }
    if (a->zero_std_groups == DYTI_ZERO_RESAMPLE) {
        st = resample(m, &scored);
    }
    if (st != DYT_OK) {
        dyti_scored_fini(&scored);
        return st;
    }
    *out_scored = scored;
    return DYT_OK;
}
