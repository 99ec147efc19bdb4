/* What people see of a run, and what it writes about itself. */
#include "cli/backends.h"
#include "cli/manager.h"

#include "base/array.h"
#include "cli/text_plot.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LATENCY_BOUND_BYTES (8u << 20) /* below: microseconds say more */
#define MEAN_STEPS          5u         /* of reward_first and reward_last */

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

/* ---- at the end ------------------------------------------------------------
 */

/* One line of at most `most` characters: the end of a prompt, the start of an
 * answer. */
static void squeeze(char *text, size_t most, bool keep_end)
{
    size_t n = strlen(text);

    for (size_t i = 0; i < n; i++) {
        text[i] = text[i] == '\n' || text[i] == '\r' ? ' ' : text[i];
    }
    while (n > 0 && text[n - 1] == ' ') {
        text[--n] = '\0';
    }
    if (n <= most) {
        return;
    }
    if (keep_end) {
        size_t from = n - most;

        while (from < n && (text[from] & 0xc0) == 0x80) {
            from++; /* not inside a UTF-8 character */
        }
        memmove(text, text + from, n - from + 1);
    } else {
        while (most > 0 && (text[most] & 0xc0) == 0x80) {
            most--;
        }
        text[most] = '\0';
    }
}

static char *show_sample(struct dyti_manager *m, const struct dyti_scored *s,
                         uint32_t at)
{
    const struct dyti_sample *sample = &s->batch.sample[at];
    const struct dyti_prompt *p = dyti_batch_prompt(&s->batch, sample->prompt);
    char *prompt = NULL, *answer = strdup(s->text[at]), *line = NULL;
    size_t bytes;

    if (answer != NULL &&
        m->tokenizer.ops->decode(m->tokenizer.self, p->ids, p->id_count, true,
                                 &prompt, &bytes) == DYT_OK) {
        bool chat = m->chat != NULL;

        squeeze(prompt, 40, true);
        squeeze(answer, 40, false);
        if (asprintf(&line, "%s%s%s  (reward %.2f)", prompt, chat ? " | " : "",
                     answer, (double)sample->reward) < 0) {
            line = NULL;
        }
    }
    free(prompt);
    free(answer);
    return line;
}

/* Some answers of the first evaluation, and of the last: spread over the rows,
 * the same ones each time. */
void dyti_manager_keep_shown(struct dyti_manager *m,
                             const struct dyti_scored *s)
{
    char **shown = m->shown_first[0] == NULL ? m->shown_first : m->shown_last;

    for (uint32_t i = 0; i < DYTI_SHOWN && i < s->batch.sample_count; i++) {
        uint32_t at =
            (uint32_t)((uint64_t)s->batch.sample_count * i / DYTI_SHOWN);

        free(shown[i]);
        shown[i] = show_sample(m, s, at);
    }
}

static void print_shown(const char *when, char *const *shown)
{
    for (uint32_t i = 0; i < DYTI_SHOWN && shown[i] != NULL; i++) {
        printf("  %-8s %s\n", i == 0 ? when : "", shown[i]);
    }
}

/* Copy bandwidth of all ranks together, bytes per second; 0: not measured. */
static double copy_rate(const struct dyti_manager *m)
{
    double sum = 0.0;

    for (uint32_t r = 0; r < m->job->ranks; r++) {
        sum += m->worker[r].copy_rate;
    }
    return sum;
}

static double switch_bytes(const struct dyti_manager *m)
{
    return (double)(m->to_rollout.read_bytes + m->to_rollout.written_bytes) /
           2.0;
}

static double switch_ratio(const struct dyti_manager *m)
{
    double seconds = dyti_series_median(&m->switch_seconds);

    if (switch_bytes(m) < (double)LATENCY_BOUND_BYTES || copy_rate(m) <= 0.0) {
        return NAN;
    }
    return switch_bytes(m) / seconds / copy_rate(m);
}

static void print_refit(const struct dyti_manager *m)
{
    const struct dyti_switch_record *r = &m->to_rollout;

    printf(
        "refit    %.2f ms median (last: pause %.2f, plan %.2f, transfer "
        "%.2f, verify %.2f, commit %.2f, post %.2f, resume %.2f, first token "
        "%.2f ms)\n",
        dyti_series_median(&m->refit_seconds) * 1e3, (double)r->pause_ns * 1e-6,
        (double)r->prepare_ns * 1e-6, (double)r->transfer_ns * 1e-6,
        (double)r->verify_ns * 1e-6, (double)r->commit_ns * 1e-6,
        (double)r->post_ns * 1e-6, (double)m->refit_resume_ns * 1e-6,
        (double)m->refit_first_token_ns * 1e-6);
}

static void print_switch(const struct dyti_manager *m)
{
    double median = dyti_series_median(&m->switch_seconds);

    if (isnan(switch_ratio(m))) {
        printf("switch   %.0f us median, %.0f us worst, %zu switches of %.1f "
               "KiB: latency-bound\n",
               median * 1e6, dyti_series_max(&m->switch_seconds) * 1e6,
               m->switch_seconds.count, switch_bytes(m) / 1024.0);
        return;
    }
    printf("switch   %.1f ms median, %.1f ms worst, %zu switches of %.1f MiB: "
           "%.2f of memcpy (%.1f of %.1f GB/s)\n",
           median * 1e3, dyti_series_max(&m->switch_seconds) * 1e3,
           m->switch_seconds.count, switch_bytes(m) / 1048576.0,
           switch_ratio(m), switch_bytes(m) / median * 1e-9,
           copy_rate(m) * 1e-9);
}

static void print_time(const struct dyti_manager *m, double total)
{
    const struct {
        const char *what;
        double seconds;
    } row[] = {
        {"start", m->seconds_start}, {"rollout", m->seconds_rollout},
        {"score", m->seconds_score}, {"switch", m->seconds_switch},
        {"train", m->seconds_train}, {"eval", m->seconds_eval},
        {"save", m->seconds_save},
    };
    double known = 0.0;

    printf("time     %.1f s:", total);
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        known += row[i].seconds;
        if (row[i].seconds >= 0.005 * total) {
            printf(" %s %.1f s (%.0f %%)%s", row[i].what, row[i].seconds,
                   100.0 * row[i].seconds / total, ",");
        }
    }
    printf(" other %.1f s\n", total > known ? total - known : 0.0);
}

static enum dyt_status write_summary(struct dyti_manager *m, double seconds)
{
    size_t n = m->reward.count, few = n < MEAN_STEPS ? n : MEAN_STEPS;
    struct dyti_summary s = {
        .name = m->job->name,
        .steps = m->step,
        .seconds = seconds,
        .reward_first = dyti_series_mean(&m->reward, 0, few),
        .reward_last = dyti_series_mean(&m->reward, n - few, n),
        .exact_match = m->eval_match,
        .switch_count = m->switch_seconds.count,
        .switch_seconds_median = dyti_series_median(&m->switch_seconds),
        .switch_seconds_worst = dyti_series_max(&m->switch_seconds),
        .switch_bytes = switch_bytes(m),
        .switch_ratio = switch_ratio(m),
        .refit_seconds_median = dyti_series_median(&m->refit_seconds),
        .logprob_gap_max = m->gap_max,
        .end = m->end};

    return dyti_summary_write(m->folder, &s);
}

/* What there is of a run that ended early, and the command that goes on from
 * it. */
static void print_kept(const struct dyti_manager *m, enum dyt_status st)
{
    uint64_t kept = m->saved_step > 0 ? m->saved_step : m->first_step;

    if (st != DYT_OK && kept == 0) {
        printf("no step was saved: checkpoint.every = %u\n",
               m->job->checkpoint.every);
        return;
    }
    if (st != DYT_OK) {
        printf("step %llu is the last that was saved",
               (unsigned long long)kept);
    } else {
        printf("stopped after step %llu and saved",
               (unsigned long long)m->step);
    }
    printf("; go on with: dynatrain run %s --resume%s\n", m->job->path,
           m->sets);
}

enum dyt_status dyti_manager_say_end(struct dyti_manager *m, enum dyt_status st)
{
    double seconds = (double)(dyti_now_ns() - m->start_ns) * 1e-9;
    size_t n = m->reward.count, few = n < MEAN_STEPS ? n : MEAN_STEPS;

    if (st != DYT_OK) {
        m->end = "error";
    }
    if (n > 0) {
        printf("\n");
        dyti_text_plot(stdout, "mean reward by step", m->reward.value, n);
        print_shown("at first", m->shown_first);
        print_shown("now", m->shown_last);
        printf("\nreward   %.3f -> %.3f (mean of %zu steps)",
               dyti_series_mean(&m->reward, 0, few),
               dyti_series_mean(&m->reward, n - few, n), few);
        if (!isnan(m->eval_match)) {
            printf(", held-out exact match %.3f -> %.3f",
                   m->eval_exact.value[0], m->eval_match);
        }
        printf("\n");
        print_time(m, seconds);
        if (m->refit_seconds.count > 0) {
            print_refit(m);
        }
        if (m->switch_seconds.count > 0) {
            print_switch(m);
        }
        printf("check    trainer against rollout log-probabilities: max gap "
               "%.2g\n",
               m->gap_max);
    }
    printf("files    %s/\n", m->folder);
    if (m->interrupts > 0 || st != DYT_OK) {
        print_kept(m, st);
    }
    fflush(stdout);
    return write_summary(m, seconds);
}
