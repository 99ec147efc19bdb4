/* What a switch costs, before it is paid for: traffic and bounds of its plan,
 * memory, and the seconds that each strategy would take on a cluster.
 * in: two layouts of one model, a cluster   out: text, JSON, one HTML page
 *
 * Seconds are simulated (explain/simulate.h), never measured, and every text
 * says so. */
#ifndef DYTI_EXPLAIN_PRICE_H
#define DYTI_EXPLAIN_PRICE_H

#include "base/json_out.h"
#include "explain/simulate.h"
#include "plan/place.h"
#include "plan/traffic.h"
#include "sched/promote.h"
#include "sched/strategy.h"

#include <stdio.h>

#define DYTI_PRICE_STRATEGIES 4u
#define DYTI_PRICE_EXACT_MOST (1u << 26)

struct dyti_price_params {
    const struct dyti_layout *src,
        *dst; /* borrowed until destroy; lazy is fine */
    enum dyti_arena_slot src_slot, dst_slot;
    const struct dyti_cluster *cluster; /* borrowed, its arrays too */
    uint32_t kinds;                     /* 0: all but the gradient */
    /* The destination's ranks are as the user wants them; otherwise they are
     * placed so that most stays where it is. */
    bool pinned;
    /* Order each message of `per-tensor` by itself; otherwise a few pieces of
     * each flow stand for all of its messages. */
    bool exact;
    /* Most messages that are ordered so, a hundred bytes each;
     * 0: DYTI_PRICE_EXACT_MOST. */
    uint64_t exact_most;
    /* Called with what is begun, of static life.  NULL: nobody asks. */
    void (*stage)(void *self, const char *what);
    void *stage_self;
};

struct dyti_price_row {
    const char *name; /* of the strategy */
    uint32_t rounds;
    uint64_t messages;
    size_t pieces; /* that were ordered: fewer stand for several messages */
    double makespan_s, load_s;         /* the certificate, without latencies */
    struct dyti_simulation simulation; /* bars and memory: of [0] only */
};

/* Bytes of one rank's regions. */
struct dyti_price_memory {
    uint64_t src_bytes, dst_bytes; /* of all kinds that each phase holds */
    uint64_t moved_bytes;          /* of dst: what this switch fills */
};

struct dyti_price {
    struct dyti_price_params params;
    const struct dyti_layout *dst; /* params.dst or `placed` */
    struct dyti_layout *placed;    /* owned; NULL: as described */
    struct dyti_placement placement;
    struct dyti_traffic *traffic;
    struct dyti_price_memory *memory;                 /* [world_size] */
    struct dyti_price_row row[DYTI_PRICE_STRATEGIES]; /* [0]: `optimal` */
    /* Transfers that are one collective, and `optimal` with them run so; none
     * are looked for in worlds of more than 512 ranks. */
    struct dyti_promotion promotion;
    struct dyti_simulation promoted; /* only where there is one */
    /* Whole streams that messages run as one collective each, as a switch does
     * by them: where that is no slower (sched/collectives.h). */
    uint32_t run_as_one[DYTI_COLLECTIVE_KIND_COUNT];
};

/**
 * Plan, place, order by every strategy and simulate.  Pure.
 * @return DYT_ERR_CONFIG  exact, and there are more messages than exact_most
 * @return what dyti_plan_inputs_init, dyti_traffic_build, dyti_place and the
 *         strategies return
 */
enum dyt_status dyti_price_build(const struct dyti_price_params *params,
                                 struct dyti_price **out_price);
void dyti_price_destroy(struct dyti_price *price);

/* For people; DYT_ERR_IO: writing failed. */
enum dyt_status dyti_price_text(const struct dyti_price *price, FILE *out);
/* Of that what explain.h does not say of a plan: the cluster, and what each
 * strategy takes on it. */
enum dyt_status dyti_price_seconds_text(const struct dyti_price *price,
                                        FILE *out);
/* One object, member `key`; matrix: every rank pair. */
void dyti_price_json(const struct dyti_price *price, bool matrix,
                     struct dyti_json *json, const char *key);
/* One self-contained page of `count` switches, each by its name: numbers,
 * traffic matrix, memory over time, links over time.  `title` is shown. */
enum dyt_status dyti_price_html(const char *title,
                                const struct dyti_price *const *price,
                                const char *const *name, size_t count,
                                FILE *out);

#endif /* DYTI_EXPLAIN_PRICE_H */
