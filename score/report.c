/* Sums over judged samples. */
#include "score/report.h"

#include "base/banned.h"

static void free_means(struct dyti_score_mean *mean, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        free(mean[i].name);
    }
    free(mean);
}

void dyti_score_report_fini(struct dyti_score_report *report)
{
    free_means(report->component, report->component_count);
    free_means(report->metric, report->metric_count);
    *report = (struct dyti_score_report){0};
}

double dyti_score_report_mean(const struct dyti_score_report *report)
{
    return report->samples == 0 ? 0.0
                                : report->reward_sum / (double)report->samples;
}

static bool named(const char *have, const char *name, const char *part)
{
    size_t bytes = strlen(name);

    if (strncmp(have, name, bytes) != 0) {
        return false;
    }
    return part == NULL
               ? have[bytes] == '\0'
               : have[bytes] == '/' && strcmp(have + bytes + 1, part) == 0;
}

static enum dyt_status add(struct dyti_score_mean **mean, uint32_t *count,
                           const char *name, const char *part, double value)
{
    struct dyti_score_mean *grown;
    char *copy = NULL;

    for (uint32_t i = 0; i < *count; i++) {
        if (named((*mean)[i].name, name, part)) {
            (*mean)[i].sum += value;
            (*mean)[i].count++;
            return DYT_OK;
        }
    }
    grown = realloc(*mean, (*count + 1u) * sizeof(**mean));
    if (grown == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "the mean of %s", name);
    }
    *mean = grown;
    if (asprintf(&copy, "%s%s%s", name, part == NULL ? "" : "/",
                 part == NULL ? "" : part) < 0) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "the mean of %s", name);
    }
    grown[(*count)++] = (struct dyti_score_mean){copy, value, 1};
    return DYT_OK;
}

enum dyt_status dyti_report_component(struct dyti_score_report *report,
                                      const char *name, const char *part,
                                      double value)
{
    return add(&report->component, &report->component_count, name, part, value);
}

enum dyt_status dyti_report_metric(struct dyti_score_report *report,
                                   const char *name, const char *part,
                                   double value)
{
    return add(&report->metric, &report->metric_count, name, part, value);
}

void dyti_report_group(struct dyti_score_report *report,
                       const struct dyti_sample *sample, uint32_t count)
{
    const struct dyti_sample *first = NULL;
    bool spread = false;

    for (uint32_t i = 0; i < count; i++) {
        double reward = (double)sample[i].reward;

        if (sample[i].dropped) {
            report->dropped++;
            continue;
        }
        report->samples++;
        report->reward_sum += reward;
        first = first == NULL ? &sample[i] : first;
        spread = spread || sample[i].reward < first->reward ||
                 sample[i].reward > first->reward;
    }
    report->groups += first != NULL;
    report->zero_std += first != NULL && !spread;
}
