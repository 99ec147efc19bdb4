/* generate, samples: what rollout is asked and what it made. */
#include "wire/generate.h"

#include "wire/define.h"

#include <stdlib.h>
#include <string.h>

/* A lying count cannot make us allocate more than the frame could hold: every
 * item of a nested array is at least one byte of the frame. */

void dyti_write_prompts(struct dyti_writer *w, const struct dyti_prompt *prompt,
                        uint32_t count)
{
    dyti_write_array(w, count);
    for (uint32_t i = 0; i < count; i++) {
        dyti_write_array(w, 3);
        dyti_write_u64(w, prompt[i].id);
        dyti_write_u64(w, prompt[i].row);
        dyti_write_bin(w, prompt[i].ids,
                       prompt[i].id_count * sizeof(*prompt[i].ids));
    }
}

struct dyti_prompt *dyti_read_prompts(struct dyti_reader *r,
                                      uint32_t *out_count)
{
    struct dyti_reader list, one;
    struct dyti_prompt *prompt;

    *out_count = 0;
    if (!dyti_read_nested(r, "prompts", &list)) {
        return NULL;
    }
    prompt = calloc(list.count + 1u, sizeof(*prompt));
    if (prompt == NULL) {
        r->status = DYTI_FAIL(DYT_ERR_NOMEM, "%u prompts", list.count);
        return NULL;
    }
    while (dyti_read_left(&list) > 0 && list.status == DYT_OK) {
        struct dyti_prompt *p = &prompt[*out_count];

        if (!dyti_read_nested(&list, "prompt", &one)) {
            break;
        }
        ++*out_count;
        p->id = dyti_read_u64(&one, "prompt id", UINT64_MAX);
        p->row = dyti_read_u64(&one, "row", UINT64_MAX);
        p->ids =
            dyti_read_items(&one, "prompt ids", sizeof(*p->ids), &p->id_count);
        dyti_read_join(&list, &one);
    }
    dyti_read_join(r, &list);
    return prompt;
}

static void write_sample(struct dyti_writer *w, const struct dyti_sample *s)
{
    dyti_write_array(w, 9);
    dyti_write_u64(w, s->prompt);
    dyti_write_u64(w, s->index);
    dyti_write_u64(w, s->finish);
    dyti_write_bin(w, s->ids, s->count * sizeof(*s->ids));
    dyti_write_bin(w, s->raw, s->count * sizeof(*s->raw));
    dyti_write_bin(w, s->processed, s->count * sizeof(*s->processed));
    dyti_write_double(w, (double)s->reward);
    dyti_write_bool(w, s->dropped);
    dyti_write_array(w, s->span_count);
    for (uint32_t i = 0; i < s->span_count; i++) {
        dyti_write_array(w, 3);
        dyti_write_u64(w, s->span[i].version);
        dyti_write_u64(w, s->span[i].first);
        dyti_write_u64(w, s->span[i].count);
    }
}

static void read_spans(struct dyti_reader *r, struct dyti_sample *s)
{
    struct dyti_reader list, one;

    if (!dyti_read_nested(r, "version spans", &list)) {
        return;
    }
    s->span = calloc(list.count + 1u, sizeof(*s->span));
    if (s->span == NULL) {
        r->status = DYTI_FAIL(DYT_ERR_NOMEM, "%u version spans", list.count);
        return;
    }
    while (dyti_read_left(&list) > 0 &&
           dyti_read_nested(&list, "version span", &one)) {
        struct dyti_version_span *v = &s->span[s->span_count++];

        v->version = dyti_read_u64(&one, "span version", UINT64_MAX);
        v->first = (uint32_t)dyti_read_u64(&one, "span first", UINT32_MAX);
        v->count = (uint32_t)dyti_read_u64(&one, "span count", UINT32_MAX);
        dyti_read_join(&list, &one);
    }
    dyti_read_join(r, &list);
}

static void read_sample(struct dyti_reader *r, struct dyti_sample *s)
{
    uint32_t raw = 0, processed = 0;

    s->prompt = dyti_read_u64(r, "prompt", UINT64_MAX);
    s->index = (uint32_t)dyti_read_u64(r, "index", UINT32_MAX);
    s->finish = (enum dyti_finish)dyti_read_u64(r, "finish", DYTI_FINISH_ABORT);
    s->ids = dyti_read_items(r, "ids", sizeof(*s->ids), &s->count);
    s->raw = dyti_read_items(r, "raw log-probabilities", sizeof(*s->raw), &raw);
    s->processed = dyti_read_items(r, "processed log-probabilities",
                                   sizeof(*s->processed), &processed);
    s->reward = (float)dyti_read_double(r, "reward");
    s->dropped = dyti_read_bool(r, "dropped");
    read_spans(r, s);
    if (r->status == DYT_OK && (raw != s->count || processed != s->count)) {
        r->status =
            DYTI_FAIL(DYT_ERR_FORMAT,
                      "%s message: sample %u of prompt %llu has %u ids, "
                      "%u raw and %u processed log-probabilities",
                      r->what, s->index, (unsigned long long)s->prompt,
                      s->count, raw, processed);
    }
}

void dyti_write_samples(struct dyti_writer *w, const struct dyti_sample *sample,
                        uint32_t count)
{
    dyti_write_array(w, count);
    for (uint32_t i = 0; i < count; i++) {
        write_sample(w, &sample[i]);
    }
}

struct dyti_sample *dyti_read_samples(struct dyti_reader *r,
                                      uint32_t *out_count)
{
    struct dyti_reader list, one;
    struct dyti_sample *sample;

    *out_count = 0;
    if (!dyti_read_nested(r, "samples", &list)) {
        return NULL;
    }
    sample = calloc(list.count + 1u, sizeof(*sample));
    if (sample == NULL) {
        r->status = DYTI_FAIL(DYT_ERR_NOMEM, "%u samples", list.count);
        return NULL;
    }
    while (dyti_read_left(&list) > 0 && list.status == DYT_OK &&
           dyti_read_nested(&list, "sample", &one)) {
        read_sample(&one, &sample[(*out_count)++]);
        dyti_read_join(&list, &one);
    }
    dyti_read_join(r, &list);
    return sample;
}

/* ---- generate ------------------------------------------------------------ */

static void write_generate(struct dyti_writer *w,
                           const struct dyti_msg_generate *m)
{
    dyti_write_array(w, 4);
    dyti_write_u64(w, m->step);
    dyti_write_bool(w, m->greedy);
    dyti_write_u64(w, m->samples_per_prompt);
    dyti_write_prompts(w, m->prompt, m->prompt_count);
}

static void read_generate(struct dyti_reader *r, struct dyti_msg_generate *m)
{
    m->step = dyti_read_u64(r, "step", UINT64_MAX);
    m->greedy = dyti_read_bool(r, "greedy");
    m->samples_per_prompt =
        (uint32_t)dyti_read_u64(r, "samples per prompt", 1u << 20);
    m->prompt = dyti_read_prompts(r, &m->prompt_count);
}

void dyti_msg_generate_fini(struct dyti_msg_generate *message)
{
    for (uint32_t i = 0; i < message->prompt_count; i++) {
        dyti_prompt_fini(&message->prompt[i]);
    }
    free(message->prompt);
    memset(message, 0, sizeof(*message));
}

DYTI_WIRE_DEFINE(generate)

/* ---- samples ------------------------------------------------------------- */

static void write_samples(struct dyti_writer *w,
                          const struct dyti_msg_samples *m)
{
    dyti_write_array(w, 7);
    dyti_write_u64(w, m->step);
    dyti_write_samples(w, m->sample, m->sample_count);
    dyti_write_u64(w, m->passes);
    dyti_write_u64(w, m->sampled);
    dyti_write_u64(w, m->prefill_rows);
    dyti_write_i64(w, m->generate_ns);
    dyti_write_i64(w, m->first_token_ns);
}

static void read_samples(struct dyti_reader *r, struct dyti_msg_samples *m)
{
    m->step = dyti_read_u64(r, "step", UINT64_MAX);
    m->sample = dyti_read_samples(r, &m->sample_count);
    m->passes = dyti_read_u64(r, "passes", UINT64_MAX);
    m->sampled = dyti_read_u64(r, "sampled", UINT64_MAX);
    m->prefill_rows = dyti_read_u64(r, "prefill rows", UINT64_MAX);
    m->generate_ns = dyti_read_i64(r, "generate time");
    m->first_token_ns = dyti_read_i64(r, "first token time");
}

void dyti_msg_samples_fini(struct dyti_msg_samples *message)
{
    for (uint32_t i = 0; i < message->sample_count; i++) {
        dyti_sample_fini(&message->sample[i]);
    }
    free(message->sample);
    memset(message, 0, sizeof(*message));
}

DYTI_WIRE_DEFINE(samples)
