/* What people see of a run while it lasts, and what it writes about each step.
 * At its end: manager_end.c. */
#include "cli/backends.h"
#include "cli/manager.h"

#include "base/array.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- series ---------------------------------------------------------------
 */

enum dyt_status dyti_series_add(struct dyti_series *s, double value)
{
    enum dyt_status st = DYTI_GROW(s->value, s->cap, s->count + 1);

    if (st == DYT_OK) {
        s->value[s->count++] = value;
    }
    return st;
}

static int ascending(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

double dyti_series_median(const struct dyti_series *s)
{
    double *copy, median = NAN;

    if (s->count == 0) {
        return NAN;
    }
    copy = malloc(s->count * sizeof(*copy));
    if (copy != NULL) {
        memcpy(copy, s->value, s->count * sizeof(*copy));
        qsort(copy, s->count, sizeof(*copy), ascending);
        median = s->count % 2 == 1
                     ? copy[s->count / 2]
                     : (copy[s->count / 2 - 1] + copy[s->count / 2]) / 2.0;
    }
    free(copy);
    return median;
}

double dyti_series_max(const struct dyti_series *s)
{
    double max = NAN;

    for (size_t i = 0; i < s->count; i++) {
        max = i == 0 || s->value[i] > max ? s->value[i] : max;
    }
    return max;
}

double dyti_series_mean(const struct dyti_series *s, size_t from, size_t to)
{
    double sum = 0.0;

    for (size_t i = from; i < to; i++) {
        sum += s->value[i];
    }
    return to > from ? sum / (double)(to - from) : NAN;
}

/* ---- while it runs ---------------------------------------------------------
 */

void dyti_manager_say_start(struct dyti_manager *m, const char *checkpoint,
                            const char *aside)
{
    const struct dyti_job *job = m->job;
    const struct dyti_layout_desc *r =
        &m->assembly.layout[DYTI_ARENA_ROLLOUT]->desc;
    const struct dyti_layout_desc *t =
        &m->assembly.layout[DYTI_ARENA_TRAIN]->desc;

    for (uint32_t i = 0; i < job->warning_count; i++) {
        fprintf(stderr, "dynatrain run: warning: %s\n", job->warning[i]);
    }
    printf("%s: %s, %.1fM parameters, %u ranks\n", job->name, m->model_dir,
           (double)dyti_model_elements(m->assembly.model) * 1e-6, job->ranks);
    printf("  rollout  TP %u x PP %u x DP %u, %s\n", r->tp, r->pp, r->dp,
           dyti_dtype_name(r->dtype[DYTI_PARAM]));
    printf("  train    TP %u x PP %u x DP %u, ZeRO-%u, %s\n", t->tp, t->pp,
           t->dp, t->zero, dyti_dtype_name(t->dtype[DYTI_PARAM]));
    if (checkpoint != NULL) {
        printf("  resumes  %s (step %llu)\n", checkpoint,
               (unsigned long long)m->step);
    }
    if (aside[0] != '\0') {
        printf("  earlier  %s: the run that was here before\n", aside);
    }
    fflush(stdout);
    m->last_line_ns = dyti_now_ns();
}

void dyti_manager_say_progress(struct dyti_manager *m, const char *what,
                               uint32_t done, uint32_t total)
{
    int64_t now = dyti_now_ns();
    int64_t every = m->tty ? 200000000 : 5000000000;

    if (total == 0) {
        return; /* alive, and that is all */
    }
    if (now - m->last_line_ns < every) {
        return;
    }
    m->last_line_ns = now;
    if (m->tty) {
        printf("\r\033[Kstep %llu/%u  %s %u/%u", (unsigned long long)m->step,
               m->job->steps, what, done, total);
    } else {
        printf("step %llu/%u  %s %u/%u\n", (unsigned long long)m->step,
               m->job->steps, what, done, total);
    }
    fflush(stdout);
}

double dyti_metric_value(const struct dyti_msg_metrics *m, const char *name)
{
    for (uint32_t i = 0; i < m->count; i++) {
        if (strcmp(m->name[i], name) == 0) {
            return m->value[i];
        }
    }
    return NAN;
}

struct dyti_lengths dyti_lengths_of(const struct dyti_batch *b)
{
    struct dyti_lengths l = {0.0, NAN, NAN, 0.0};

    for (uint32_t i = 0; i < b->sample_count; i++) {
        double n = b->sample[i].count;

        l.mean += n / b->sample_count;
        l.min = isnan(l.min) || n < l.min ? n : l.min;
        l.max = isnan(l.max) || n > l.max ? n : l.max;
        l.clipped += b->sample[i].finish == DYTI_FINISH_LENGTH
                         ? 1.0 / b->sample_count
                         : 0.0;
    }
    return l;
}

/* One line a step; on a pipe at most one a second, so that 500 quick steps do
 * not fill a log. */
static void print_step(struct dyti_manager *m, const struct dyti_scored *s,
                       const struct dyti_msg_metrics *metrics,
                       const struct dyti_lengths *len)
{
    int64_t now = dyti_now_ns();
    double step_seconds = (double)(now - m->step_ns) * 1e-9;

    m->step_ns = now;
    if (!m->tty && m->step != m->job->steps && m->step != m->first_step + 1 &&
        now - m->last_line_ns < 1000000000) {
        return;
    }
    m->last_line_ns = now;
    printf("%sstep %llu/%u  reward %.3f  loss %+.4f  kl %.4f  length %.1f  "
           "%.0f tokens/s  rollout %.0f + switch %.1f + train %.0f + switch "
           "%.1f ms  refit %.1f ms",
           m->tty ? "\r\033[K" : "", (unsigned long long)m->step, m->job->steps,
           dyti_score_report_mean(&s->report),
           dyti_metric_value(metrics, "loss"), dyti_metric_value(metrics, "kl"),
           len->mean,
           (double)s->sampled / (step_seconds > 0.0 ? step_seconds : 1.0),
           (double)s->generate_ns * 1e-6, (double)m->to_train.total_ns * 1e-6,
           dyti_metric_value(metrics, "time/train") * 1e3,
           (double)m->to_rollout.total_ns * 1e-6, (double)m->refit_ns * 1e-6);
    if (!isnan(m->eval_match) && m->eval_step + 1 == m->step) {
        printf("  eval %.3f", m->eval_match);
    }
    if (!m->tty || step_seconds > 1.0 || m->step % 25 == 0 ||
        m->step == m->job->steps) {
        printf("\n");
    }
    fflush(stdout);
}

struct writing {
    struct dyti_metrics *to;
    enum dyt_status st;
};

static void put(struct writing *w, const char *key, double value)
{
    if (w->st == DYT_OK) {
        w->st = dyti_metrics_put(w->to, key, value);
    }
}

/* Means by name: of reward functions, of what commands report besides. */
static void put_means(struct writing *w, const char *prefix,
                      const struct dyti_score_mean *mean, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        char key[160];

        snprintf(key, sizeof(key), "%s%s", prefix, mean[i].name);
        put(w, key,
            mean[i].count > 0 ? mean[i].sum / (double)mean[i].count : NAN);
    }
}

static void put_eval(struct writing *w, const struct dyti_manager *m)
{
    put(w, "eval/exact_match", m->eval_match);
    put(w, "eval/reward", m->eval_reward);
    put(w, "eval/samples", (double)m->eval_samples);
    put(w, "eval/mean_length", m->eval_length);
    put_means(w, "eval/", m->eval_report.component,
              m->eval_report.component_count);
    put(w, "time/eval", m->eval_seconds);
}

static double dropped_by_command(const struct dyti_batch *b)
{
    double count = 0.0;

    for (uint32_t i = 0; i < b->sample_count; i++) {
        count += b->sample[i].dropped;
    }
    return count;
}

static void put_switch(struct writing *w, const struct dyti_manager *m)
{
    const struct dyti_switch_record *r = &m->to_rollout;

    const struct dyti_switch_record *t = &m->to_train;

    put(w, "time/switch_to_train", (double)t->total_ns * 1e-9);
    put(w, "time/switch_to_rollout", (double)r->total_ns * 1e-9);
    put(w, "switch/bytes_to_train",
        (double)(t->read_bytes + t->written_bytes) / 2.0);
    put(w, "switch/bytes_to_rollout",
        (double)(r->read_bytes + r->written_bytes) / 2.0);
    put(w, "switch/messages_per_rank",
        (double)r->messages / (double)m->job->ranks);
    put(w, "time/refit", (double)m->refit_ns * 1e-9);
    put(w, "time/refit/pause", (double)r->pause_ns * 1e-9);
    put(w, "time/refit/plan", (double)r->prepare_ns * 1e-9);
    put(w, "time/refit/transfer", (double)r->transfer_ns * 1e-9);
    put(w, "time/refit/verify", (double)r->verify_ns * 1e-9);
    put(w, "time/refit/commit", (double)r->commit_ns * 1e-9);
    put(w, "time/refit/post", (double)r->post_ns * 1e-9);
    put(w, "time/refit/resume", (double)m->refit_resume_ns * 1e-9);
    put(w, "time/refit/first_token", (double)m->refit_first_token_ns * 1e-9);
}

static enum dyt_status write_step(struct dyti_manager *m,
                                  const struct dyti_scored *s,
                                  const struct dyti_msg_metrics *metrics,
                                  const struct dyti_lengths *len)
{
    struct writing w = {m->metrics, dyti_metrics_begin(m->metrics, m->step)};
    double rollout = (double)s->generate_ns * 1e-9;

    for (uint32_t i = 0; i < metrics->count; i++) {
        put(&w, metrics->name[i], metrics->value[i]);
    }
    put_means(&w, "reward/", s->report.component, s->report.component_count);
    put(&w, "reward_dropped", dropped_by_command(&s->batch));
    put(&w, "completions/mean_length", len->mean);
    put(&w, "completions/min_length", len->min);
    put(&w, "completions/max_length", len->max);
    put(&w, "completions/clipped_ratio", len->clipped);
    put(&w, "time/step", (double)(dyti_now_ns() - m->step_ns) * 1e-9);
    put(&w, "time/rollout", rollout);
    put(&w, "time/score", (double)s->score_ns * 1e-9);
    put(&w, "tokens_per_second/rollout",
        rollout > 0.0 ? (double)s->sampled / rollout : NAN);
    put(&w, "tokens_per_second/train",
        dyti_metric_value(metrics, "rows") /
            dyti_metric_value(metrics, "time/train"));
    put(&w, "prompts/overlong", (double)m->overlong_prompts);
    put(&w, "resampled_batches", (double)s->resampled);
    put_means(&w, "reward_metric/", s->report.metric, s->report.metric_count);
    put_switch(&w, m);
    if (m->saved_step + 1 == m->step && m->save_seconds > 0.0) {
        put(&w, "time/checkpoint", m->save_seconds);
    }
    if (!isnan(m->eval_match) && m->eval_step + 1 == m->step) {
        put_eval(&w, m);
    }
    return w.st != DYT_OK ? w.st : dyti_metrics_end(m->metrics);
}

static enum dyt_status write_completions(struct dyti_manager *m,
                                         const struct dyti_scored *s)
{
    uint32_t every = m->job->metrics.completions_every;
    uint32_t most = m->job->metrics.completions;
    enum dyt_status st = DYT_OK;

    if (every == 0 || (m->step - 1) % every != 0) {
        return DYT_OK;
    }
    for (uint32_t i = 0; st == DYT_OK && i < s->batch.sample_count && i < most;
         i++) {
        const struct dyti_sample *sample = &s->batch.sample[i];
        const struct dyti_prompt *p =
            dyti_batch_prompt(&s->batch, sample->prompt);
        struct dyti_completion line = {
            .step = m->step, .text = s->text[i], .sample = sample};
        char *prompt = NULL;
        size_t bytes;

        st = m->tokenizer.ops->decode(m->tokenizer.self, p->ids, p->id_count,
                                      false, &prompt, &bytes);
        line.prompt = prompt;
        st = st != DYT_OK ? st : dyti_metrics_completion(m->metrics, &line);
        free(prompt);
    }
    return st;
}

enum dyt_status dyti_manager_say_step(struct dyti_manager *m,
                                      const struct dyti_scored *s,
                                      const struct dyti_msg_metrics *metrics)
{
    struct dyti_lengths len = dyti_lengths_of(&s->batch);
    enum dyt_status st = write_step(m, s, metrics, &len);

    st = st != DYT_OK ? st : write_completions(m, s);
    print_step(m, s, metrics, &len);
    return st;
}
