/* Carries out the copies of a schedule on arrays of ids (plan_cases.h). */
#ifndef DYT_SPAN_CASES_H
#define DYT_SPAN_CASES_H

#include "plan_cases.h"

#include "sched/sched.h"

/* One strided copy, element by element, on arrays of ids. */
static inline void dyt_case_run_span(const struct dyti_span *s,
                                     uint32_t src_rank, uint32_t dst_rank,
                                     struct dyt_case_memory *m)
{
    const uint32_t *from = m->region[s->src_slot][s->src_kind][src_rank];
    uint32_t *to = m->region[s->dst_slot][s->dst_kind][dst_rank];
    int64_t src_bytes = dyti_dtype_bytes((enum dyti_dtype)s->src_dtype);
    int64_t dst_bytes = dyti_dtype_bytes((enum dyti_dtype)s->dst_dtype);
    const struct dyt_box box = {
        DYTI_SPAN_DIMS, {0}, {s->size[0], s->size[1], s->size[2], s->size[3]}};
    int64_t at[DYT_MAX_DIMS] = {0};

    do {
        int64_t src = (int64_t)s->src_offset, dst = (int64_t)s->dst_offset;

        for (uint32_t d = 0; d < DYTI_SPAN_DIMS; d++) {
            src += at[d] * s->src_stride[d];
            dst += at[d] * s->dst_stride[d];
        }
        assert_int_equal(0, src % src_bytes);
        assert_int_equal(0, dst % dst_bytes);
        assert_true((uint64_t)(src / src_bytes) <
                    m->count[s->src_slot][s->src_kind][src_rank]);
        assert_true((uint64_t)(dst / dst_bytes) <
                    m->count[s->dst_slot][s->dst_kind][dst_rank]);
        assert_int_equal(DYT_CASE_NOTHING, to[dst / dst_bytes]);
        to[dst / dst_bytes] = from[src / src_bytes];
    } while (dyt_case_next(&box, at));
}

/* Plan and schedule each rank by itself and run everything. */
static inline void dyt_case_run_switch(const struct dyti_plan_inputs *inputs,
                                       const struct dyti_schedule_options *how,
                                       struct dyt_case_memory *m)
{
    for (uint32_t r = 0; r < m->world; r++) {
        struct dyti_plan *plan = NULL;
        struct dyti_schedule *s = NULL;

        assert_ok(dyti_plan_build_rank(inputs, r, &plan));
        assert_ok(dyti_schedule_build(plan, r, how, &s));
        for (uint32_t i = 0; i < s->step_count; i++) {
            const struct dyti_step *step = &s->step[i];

            for (uint32_t k = 0; k < step->span_count; k++) {
                dyt_case_run_span(&s->span[step->span_first + k],
                                  step->src_rank, step->dst_rank, m);
            }
        }
        dyti_schedule_destroy(s);
        dyti_plan_destroy(plan);
    }
}

#endif /* DYT_SPAN_CASES_H */
