/* What people see of a run at its end, and its summary. */
#include "cli/backends.h"
#include "cli/manager.h"

#include "cli/text_plot.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LATENCY_BOUND_BYTES (8u << 20) /* below: microseconds say more */
#define MEAN_STEPS          5u         /* of reward_first and reward_last */

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
