/* Adding to a report; used by score.c. */
#ifndef DYTI_SCORE_REPORT_H
#define DYTI_SCORE_REPORT_H

#include "score/score.h"

/* One value under NAME, or NAME/PART. */
enum dyt_status dyti_report_component(struct dyti_score_report *report,
                                      const char *name, const char *part,
                                      double value);
enum dyt_status dyti_report_metric(struct dyti_score_report *report,
                                   const char *name, const char *part,
                                   double value);

/* The samples [first, last) of one group, their rewards set. */
void dyti_report_group(struct dyti_score_report *report,
                       const struct dyti_sample *sample, uint32_t count);

#endif /* DYTI_SCORE_REPORT_H */
