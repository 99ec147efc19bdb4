/* train, metrics: what training is given and what it answers. */
#include "wire/define.h"
#include "wire/generate.h"

#include <stdlib.h>
#include <string.h>

static void write_train(struct dyti_writer *w, const struct dyti_msg_train *m)
{
    dyti_write_array(w, 3);
    dyti_write_u64(w, m->step);
    dyti_write_prompts(w, m->batch.prompt, m->batch.prompt_count);
    dyti_write_samples(w, m->batch.sample, m->batch.sample_count);
}

static void read_train(struct dyti_reader *r, struct dyti_msg_train *m)
{
    m->step = dyti_read_u64(r, "step", UINT64_MAX);
    m->batch.prompt = dyti_read_prompts(r, &m->batch.prompt_count);
    m->batch.sample = dyti_read_samples(r, &m->batch.sample_count);
}

void dyti_msg_train_fini(struct dyti_msg_train *message)
{
    dyti_batch_fini(&message->batch);
    memset(message, 0, sizeof(*message));
}

DYTI_WIRE_DEFINE(train)

/* ---- metrics ------------------------------------------------------------- */

static void write_metrics(struct dyti_writer *w,
                          const struct dyti_msg_metrics *m)
{
    dyti_write_array(w, 2);
    dyti_write_u64(w, m->step);
    dyti_write_array(w, 2 * (size_t)m->count);
    for (uint32_t i = 0; i < m->count; i++) {
        dyti_write_text(w, m->name[i]);
        dyti_write_double(w, m->value[i]);
    }
}

static void read_metrics(struct dyti_reader *r, struct dyti_msg_metrics *m)
{
    struct dyti_reader list;

    m->step = dyti_read_u64(r, "step", UINT64_MAX);
    if (!dyti_read_nested(r, "metrics", &list)) {
        return;
    }
    m->name = calloc(list.count / 2 + 1u, sizeof(*m->name));
    m->value = calloc(list.count / 2 + 1u, sizeof(*m->value));
    if (m->name == NULL || m->value == NULL) {
        r->status = DYTI_FAIL(DYT_ERR_NOMEM, "%u metrics", list.count / 2);
        return;
    }
    while (dyti_read_left(&list) >= 2 && list.status == DYT_OK) {
        m->name[m->count] = dyti_read_text(&list, "metric name");
        m->value[m->count] = dyti_read_double(&list, "metric value");
        m->count++;
    }
    dyti_read_join(r, &list);
}

void dyti_msg_metrics_fini(struct dyti_msg_metrics *message)
{
    for (uint32_t i = 0; message->name != NULL && i < message->count; i++) {
        free(message->name[i]);
    }
    free(message->name);
    free(message->value);
    memset(message, 0, sizeof(*message));
}

DYTI_WIRE_DEFINE(metrics)
