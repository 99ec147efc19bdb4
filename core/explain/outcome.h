/* Text and JSON of what the simulator says of a schedule, and of the
 * collectives that its transfers became.  As explain/explain.h: text is for
 * people, JSON is exact.  Seconds are simulated, and the texts say so. */
#ifndef DYTI_EXPLAIN_OUTCOME_H
#define DYTI_EXPLAIN_OUTCOME_H

#include "base/json_out.h"
#include "explain/simulate.h"

#include <stdio.h>

/* Seconds and what holds them up, bytes and messages of each link class,
 * staging, when ranks are done. */
enum dyt_status dyti_explain_simulation(const struct dyti_simulation *s,
                                        FILE *out);
/* An object; done_seconds by rank. */
void dyti_explain_simulation_json(const struct dyti_simulation *s,
                                  struct dyti_json *json, const char *key);

/* One line a collective, `most` of them: kind, bytes, root, members. */
enum dyt_status dyti_explain_promotion(const struct dyti_promotion *p,
                                       uint32_t most, FILE *out);
/* An array of all. */
void dyti_explain_promotion_json(const struct dyti_promotion *p,
                                 struct dyti_json *json, const char *key);

#endif /* DYTI_EXPLAIN_OUTCOME_H */
