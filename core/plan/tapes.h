/* Who sends what of which class: the choices of a plan.
 *
 * A tape lays the streams that can come from one set of ranks end to end, in
 * bytes.  choose.h says how many bytes each rank of the set serves; so each has
 * one contiguous piece of the tape, and any part of it can be found by two
 * binary searches, without a list of transfers.  Borders between two pieces are
 * moved to the nearest box, or row of a large box.
 *
 *   near   from ranks of S on the host of those who want it
 *   out    from ranks of S to other hosts
 *   in     to which of the ranks of D on a host the one copy goes
 */
#ifndef DYTI_PLAN_TAPES_H
#define DYTI_PLAN_TAPES_H

#include "plan/choose.h"
#include "plan/common.h"
#include "plan/traffic.h"

/* Boxes up to so many bytes are not cut by a border. */
#define DYTI_TAPE_WHOLE_BYTES (64u << 10)
/* More (class, host) pairs: near and in are spread evenly for each of them. */
#define DYTI_TAPE_CELLS (1u << 18)

enum dyti_tape_use {
    DYTI_TAPE_NEAR,
    DYTI_TAPE_OUT,
    DYTI_TAPE_IN,
    DYTI_TAPE_USES
};

struct dyti_tape {
    uint32_t set;
    uint64_t bytes; /* of all streams on it */
    uint64_t *edge; /* [count of set + 1]: rank i has [i], [i + 1]; borrowed */
};

struct dyti_tape_deck {
    struct dyti_tape *tape;
    size_t tape_count, tape_cap;
    uint32_t *of_set; /* [set_count] tape + 1 */
    uint64_t *edge;
    bool in_turn;
};

struct dyti_tapes {
    const struct dyti_common *atoms; /* borrowed */
    bool fan_out, naive, nearest;
    bool cells; /* positions of (class, host) are known */
    struct dyti_tape_deck deck[DYTI_TAPE_USES];
    uint64_t *out_at;   /* [class_count] where a class begins on its out tape */
    size_t *cell_first; /* [class_count + 1] */
    uint64_t *cell_at;  /* by class and run of D: on the near or the in tape */
    /* Marks of the class being visited. */
    uint32_t *rank_mark, *host_mark; /* = mark: in S */
    uint32_t *host_run;              /* run of S on a host, if marked */
    uint32_t mark, marked_set;
};

/* What one rank gives another of a class: elements [lo, hi) of its stream. */
struct dyti_stretch {
    uint32_t class, src, dst, wave;
    enum dyti_link_class link;
    uint64_t lo, hi;
};

typedef enum dyt_status (*dyti_stretch_fn)(void *arg,
                                           const struct dyti_stretch *stretch);

struct dyti_tapes_how {
    bool fan_out;
    bool naive;   /* the first replica gives everything */
    bool nearest; /* … the first on the same host, where there is one */
    const uint64_t *host_unit; /* as in choose.h */
    size_t exact_cells;        /* 0: DYTI_TAPE_CELLS */
};

enum dyt_status dyti_tapes_build(const struct dyti_common *atoms,
                                 const struct dyti_tapes_how *how,
                                 struct dyti_tapes *out_tapes);
void dyti_tapes_fini(struct dyti_tapes *tapes); /* a zeroed one is fine */

/* All stretches of a class; `rank` >= 0: those that it sends, keeps or
 * receives.  Not for two threads at a time. */
enum dyt_status dyti_tapes_visit(struct dyti_tapes *tapes, uint32_t class,
                                 int64_t rank, dyti_stretch_fn take, void *arg);

/* Mark the ranks and hosts of a source set. */
void dyti_tapes_mark(struct dyti_tapes *tapes, uint32_t set);

/* Boxes that elements [lo, hi) of a stream touch, lo < hi. */
uint64_t dyti_class_boxes(const struct dyti_common *atoms,
                          const struct dyti_common_class *c, uint64_t lo,
                          uint64_t hi);
/* The nearest place where a stream may be cut. */
uint64_t dyti_class_snap(const struct dyti_common *atoms,
                         const struct dyti_common_class *c, uint64_t at);
/* The axis along which a box is cut, and the elements of one step along it. */
uint32_t dyti_common_cut_axis(const struct dyti_common *atoms, uint32_t atom,
                              uint64_t *out_step);

#endif /* DYTI_PLAN_TAPES_H */
