/* Generation by somebody else's engine: opened when the ranks are ready, given
 * each version that the ranks offer, asked for samples.  While a call of it
 * runs the manager watches ranks and signals as ever. */
#include "cli/backends.h"
#include "cli/manager.h"
#include "cli/offer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GLANCE_MS   500
#define PATIENCE_NS 2000000000ll

/* Until the call has ended, or something else ends the run. */
static enum dyt_status await(struct dyti_manager *m, enum dyt_status asked)
{
    enum dyt_status st = asked;

    while (st == DYT_OK) {
        enum dyt_status result = dyti_engine_result(m->engine);

        if (result != DYT_PENDING) {
            return result;
        }
        st = dyti_manager_glance(m, GLANCE_MS);
    }
    return st;
}

enum dyt_status dyti_manager_engine_start(struct dyti_manager *m)
{
    const struct dyti_job_phase *p = dyti_job_phase(m->job, DYTI_PHASE_ROLLOUT);
    struct dyti_engine_params params = {.path = p->plugin.path,
                                        .option = p->plugin.options,
                                        .option_count = p->plugin.options_count,
                                        .address = m->session_address,
                                        .job = m->job->name,
                                        .model = m->model_dir,
                                        .timeout_ns =
                                            dyti_seconds_ns(p->deadline)};
    enum dyt_status st;

    if (p->engine != DYTI_ENGINE_PLUGIN) {
        return DYT_OK;
    }
    st = dyti_offer_address(m->job, m->session_address,
                            sizeof(m->session_address));
    st = st != DYT_OK ? st : dyti_engine_start(&params, &m->engine);
    return st != DYT_OK ? st : await(m, dyti_engine_ask_open(m->engine));
}

void dyti_manager_engine_stop(struct dyti_manager *m)
{
    dyti_engine_stop(m->engine, PATIENCE_NS);
    m->engine = NULL;
}

enum dyt_status dyti_manager_engine_update(struct dyti_manager *m)
{
    int64_t start = dyti_now_ns();
    enum dyt_status st;

    if (m->engine_serves && m->engine_version == m->phase.version) {
        return DYT_OK; /* a step without an update */
    }
    st = await(m, dyti_engine_ask_update(m->engine, m->phase.version,
                                         dyti_seconds_ns(m->job->sw.deadline)));

    if (st != DYT_OK) {
        DYTI_NOTE("giving version %llu to the engine",
                  (unsigned long long)m->phase.version);
        return st;
    }
    m->engine_serves = true;
    m->engine_version = m->phase.version;
    m->last_switch.post_ns += dyti_now_ns() - start;
    m->last_switch.moved_bytes += dyti_engine_report(m->engine)->moved_bytes;
    return DYT_OK;
}

/* ---- generate ------------------------------------------------------------ */

/* Ids that end a completion: EOS, unless the job ignores it, and its own. */
static enum dyt_status stop_ids(const struct dyti_manager *m,
                                const struct dyti_sampling *s, int32_t **out,
                                uint32_t *out_count)
{
    uint32_t eos = s->ignore_eos ? 0 : m->generation.eos_count;
    int32_t *ids = calloc(eos + s->stop_token_id_count + 1u, sizeof(*ids));

    if (ids == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "stop ids");
    }
    for (uint32_t i = 0; i < eos; i++) {
        ids[i] = m->generation.eos[i];
    }
    for (uint32_t i = 0; i < s->stop_token_id_count; i++) {
        ids[eos + i] = (int32_t)s->stop_token_id[i];
    }
    *out = ids;
    *out_count = eos + s->stop_token_id_count;
    return DYT_OK;
}

/* What has come since the last look goes to `taken`. */
static enum dyt_status pass_on(struct dyti_manager *m, dyti_samples_fn taken,
                               void *arg)
{
    struct dyti_msg_samples s = {.step = m->step};
    enum dyt_status st = DYT_OK;

    dyti_engine_take(m->engine, &s.sample, &s.sample_count, &s.first_token_ns);
    for (uint32_t i = 0; i < s.sample_count; i++) {
        s.sampled += s.sample[i].count;
    }
    if (s.sample_count > 0) {
        st = taken(arg, &s);
    }
    dyti_msg_samples_fini(&s);
    return st;
}

static enum dyt_status collect(struct dyti_manager *m, dyti_samples_fn taken,
                               void *arg)
{
    for (;;) {
        enum dyt_status result = dyti_engine_result(m->engine);
        enum dyt_status st = pass_on(m, taken, arg);

        if (st != DYT_OK || result != DYT_PENDING) {
            return st != DYT_OK ? st : result;
        }
        st = dyti_manager_glance(m, GLANCE_MS);
        if (st != DYT_OK) {
            return st;
        }
    }
}

enum dyt_status dyti_manager_engine_generate(
    struct dyti_manager *m, const struct dyti_msg_generate *order,
    dyti_samples_fn taken, void *arg)
{
    const struct dyti_sampling *s =
        &dyti_job_phase(m->job, DYTI_PHASE_ROLLOUT)->sampling;
    struct dyti_engine_generate ask = {.prompt = order->prompt,
                                       .prompt_count = order->prompt_count,
                                       .samples_per_prompt =
                                           order->samples_per_prompt,
                                       .sampling = s,
                                       .greedy = order->greedy,
                                       .seed = m->job->seed,
                                       .version = m->phase.served};
    int32_t *ids = NULL;
    enum dyt_status st = stop_ids(m, s, &ids, &ask.stop_count);

    ask.stop = ids;
    st = st != DYT_OK ? st : dyti_engine_ask_generate(m->engine, &ask);
    st = st != DYT_OK ? st : collect(m, taken, arg);
    if (st != DYT_OK && dyti_engine_result(m->engine) == DYT_PENDING) {
        dyti_manager_engine_stop(m); /* it still reads what is freed below */
    }
    free(ids);
    return st;
}
