/* Evaluation: a rollout of its own over held-out rows. */
#include "cli/backends.h"
#include "cli/manager.h"

#include <math.h>
#include <stdlib.h>

/* Prompt ids of evaluations: far from those of training, and the same in every
 * evaluation, so that sampled evaluations can be compared. */
#define EVAL_PROMPTS (1ull << 62)

static enum dyt_status eval_prompts(struct dyti_manager *m,
                                    struct dyti_msg_generate *order)
{
    uint64_t rows = dyti_data_rows(m->eval);

    if (m->job->eval.limit > 0 && m->job->eval.limit < rows) {
        rows = m->job->eval.limit;
    }
    order->prompt = calloc(rows, sizeof(*order->prompt));
    if (order->prompt == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%llu prompts",
                         (unsigned long long)rows);
    }
    for (uint64_t row = 0; row < rows; row++) {
        struct dyti_prompt *p = &order->prompt[order->prompt_count];
        bool dropped = false;
        enum dyt_status st = dyti_manager_prompt(m, m->eval, row, p, &dropped);

        if (st != DYT_OK) {
            return st;
        }
        if (!dropped) {
            p->id = EVAL_PROMPTS + row;
            order->prompt_count++;
        }
    }
    return DYT_OK;
}

enum dyt_status dyti_manager_eval(struct dyti_manager *m)
{
    struct dyti_msg_generate order = {
        .step = m->step,
        .greedy = m->job->eval.sampling == DYTI_EVAL_GREEDY,
        .samples_per_prompt = m->job->eval.samples};
    struct dyti_scored s;
    int64_t start = dyti_now_ns();
    enum dyt_status st = eval_prompts(m, &order);

    st = st != DYT_OK
             ? st
             : dyti_manager_generate(m, &order, m->eval, m->eval_score, &s);
    dyti_msg_generate_fini(&order);
    if (st != DYT_OK) {
        DYTI_NOTE("evaluating after step %llu", (unsigned long long)m->step);
        return st;
    }
    m->eval_reward = dyti_score_report_mean(&s.report);
    m->eval_match = s.report.samples > 0
                        ? (double)s.report.exact / (double)s.report.samples
                        : NAN;
    m->eval_step = m->step;
    m->eval_samples = s.report.samples;
    m->eval_length = dyti_lengths_of(&s.batch).mean;
    dyti_score_report_fini(&m->eval_report);
    m->eval_report = s.report;
    s.report = (struct dyti_score_report){0};
    st = dyti_series_add(&m->eval_exact, m->eval_match);
    dyti_manager_keep_shown(m, &s);
    dyti_scored_fini(&s);
    m->eval_seconds = (double)(dyti_now_ns() - start) * 1e-9;
    m->seconds_eval += m->eval_seconds;
    return st;
}
