/* Stage 4 of 5: schedule.  Answers "in which order, in how many rounds, and how
 * close to the busiest link's load?"
 * in: plan.h   out: figures, text
 */
#ifndef DYNATRAIN_SCHEDULE_H
#define DYNATRAIN_SCHEDULE_H

#include <dynatrain/plan.h>

DYT_BEGIN_DECLS

typedef struct dyt_schedule dyt_schedule; /* opaque */

struct dyt_schedule_params {
    uint32_t struct_size;
    uint32_t reserved;
    const char *strategy; /* "optimal" (NULL), "xor", "funnel", "per-tensor" */
    uint64_t chunk_bytes; /* most bytes of a piece; 0: chosen, at most 1/64 of
                             what the busiest rank moves */
};

/** @param params  NULL: defaults
 *  @return DYT_ERR_CONFIG  no such strategy, the text lists them
 *  @return DYT_ERR_NOMEM, DYT_ERR_OVERFLOW */
DYT_API enum dyt_status dyt_schedule_build(
    const dyt_plan *plan, const struct dyt_schedule_params *params,
    dyt_schedule **out_schedule);
DYT_API void dyt_schedule_destroy(dyt_schedule *schedule);

struct dyt_schedule_figures {
    uint32_t struct_size;
    uint32_t rounds;
    uint64_t messages;
    double over_load; /* makespan over the busiest rank's or link's load */
};
DYT_API enum dyt_status dyt_schedule_totals(const dyt_schedule *schedule,
                                            struct dyt_schedule_figures *out);
DYT_API enum dyt_status dyt_schedule_text(const dyt_schedule *schedule,
                                          char **out_text);

DYT_END_DECLS

#endif /* DYNATRAIN_SCHEDULE_H */
