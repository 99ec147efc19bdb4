/* Stage 3 of 5: plan.  Answers "what goes from whom to whom, and how far is
 * that from the least possible?"
 * in: two layouts of one model   out: used by schedule.h
 */
#ifndef DYNATRAIN_PLAN_H
#define DYNATRAIN_PLAN_H

#include <dynatrain/layout.h>

DYT_BEGIN_DECLS

typedef struct dyt_plan dyt_plan; /* opaque; never changes once built */

struct dyt_plan_params {
    uint32_t struct_size;
    uint32_t kinds; /* bits 1 << enum dyt_kind that travel; 0: all but grad */
    /* Ranks of each host: "8" (all alike) or "8+8+4".  NULL: as the
     * destination's spec says (hosts=), else all on one.  Speeds are those that
     * `dynatrain plan` assumes without --cluster. */
    const char *hosts;
};

/**
 * @param from, to  layouts of one model over one world; borrowed until the plan
 *                  is destroyed
 * @param params    NULL: defaults
 * @return DYT_ERR_INVALID  a struct is too small, hosts are no numbers
 * @return DYT_ERR_LAYOUT   they are not of one model or worlds differ in size;
 *                          the source holds less than the target needs
 * @return DYT_ERR_NOMEM
 */
DYT_API enum dyt_status dyt_plan_build(const dyt_layout *from,
                                       const dyt_layout *to,
                                       const struct dyt_plan_params *params,
                                       dyt_plan **out_plan);
DYT_API void dyt_plan_destroy(dyt_plan *plan);

struct dyt_plan_figures {
    uint32_t struct_size;
    uint32_t binds;         /* reserved */
    uint64_t kept_bytes;    /* stay on their rank */
    uint64_t host_bytes;    /* between ranks of one host */
    uint64_t network_bytes; /* between hosts */
    uint64_t bound_bytes;   /* no plan has less on its busiest rank … */
    uint64_t busiest_bytes; /* … than this: sent, or received, by the busiest
                               rank of this plan, from and to others */
    uint64_t fingerprint;
};
DYT_API enum dyt_status dyt_plan_totals(const dyt_plan *plan,
                                        struct dyt_plan_figures *out);

/** Bytes from rank to rank, row = source; [world_size * world_size], filled. */
DYT_API enum dyt_status dyt_plan_traffic(const dyt_plan *plan,
                                         uint64_t *out_bytes, size_t capacity);

/** How much goes over which links, and what any plan must move; for people.
 *  dyt_text_free() it. */
DYT_API enum dyt_status dyt_plan_text(const dyt_plan *plan, char **out_text);

DYT_END_DECLS

#endif /* DYNATRAIN_PLAN_H */
