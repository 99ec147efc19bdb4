/* What the strategies share.  Of this room only. */
#ifndef DYTI_SCHED_ORDER_H
#define DYTI_SCHED_ORDER_H

#include "sched/strategy.h"

/* Pieces end at multiples of this, but the last of a stream. */
#define DYTI_PIECE_ALIGN 64u

/* A growing list of pieces. */
struct dyti_piece_list {
    struct dyti_piece *piece;
    size_t count, cap;
};

enum dyt_status dyti_piece_add(struct dyti_piece_list *list,
                               const struct dyti_piece *piece);

/* What order() refuses; and the flows' indices by wave, src, dst: whatever
 * order they came in, the answer is the same.  free(*out_index). */
enum dyt_status dyti_order_sorted(const struct dyti_order *in,
                                  uint32_t **out_index);

/* Sort by round, from, to; certify; check in debug builds.  Takes the list
 * over, on failure too. */
enum dyt_status dyti_pieces_finish(const struct dyti_order *in,
                                   struct dyti_piece_list *list,
                                   struct dyti_pieces *out_pieces);

/* Parts of about equal size, each at most `chunk`, aligned but for the last:
 * how many, and where part k begins. */
uint64_t dyti_part_count(uint64_t bytes, uint64_t chunk);
uint64_t dyti_part_begin(uint64_t bytes, uint64_t count, uint64_t k);

/* Gives each piece the first round in which neither end is taken on its link
 * class: a list in order, started as early as can be.  `hop0_round`: rounds
 * before it are for others. */
enum dyt_status dyti_rounds_first_fit(const struct dyti_order *in,
                                      struct dyti_piece_list *list);

/* ---- one link class as a bipartite multigraph ---------------------------- */

/* Edges go from row `from` to column `to`. */
struct dyti_edge {
    uint32_t from, to;
    uint64_t bytes;
    uint32_t flow; /* whose it is: for the caller */
};

/* A part of an edge in a round. */
struct dyti_take {
    uint32_t edge, round;
    uint64_t bytes;
};

struct dyti_takes {
    struct dyti_take *take; /* owned; in the order in which they start */
    size_t count, cap;
    uint32_t round_count;
};

enum dyt_status dyti_take_add(struct dyti_takes *takes, uint32_t edge,
                              uint32_t round, uint64_t bytes);

struct dyti_graph {
    uint32_t rank_count;
    const struct dyti_edge *edge; /* [count], each (from, to) once */
    size_t count;
    uint64_t chunk_bytes; /* most bytes of a take */
    /* Most takes at once out of, and into, a host; 0: no limit. */
    const uint32_t *host;
    uint32_t host_count, host_slots;
};

/* König: parts of at most a chunk, coloured so that in a round each rank sends
 * and receives at most one; exactly as many rounds as the busiest rank has
 * parts.  Cost: O(parts * ranks) at worst. */
enum dyt_status dyti_takes_coloured(const struct dyti_graph *graph,
                                    struct dyti_takes *out_takes);

/* List scheduling: whenever ends become free, those with the most left choose
 * first.  Few parts, and no idling while there is something to do. */
enum dyt_status dyti_takes_greedy(const struct dyti_graph *graph,
                                  struct dyti_takes *out_takes);

/* Birkhoff and von Neumann: perfect matchings of a doubly stochastic matrix,
 * in slices of falling length; ends near the load whatever the sizes are, at
 * the price of more parts.
 * @return DYT_ERR_UNSUPPORTED  it would take too long: not tried */
enum dyt_status dyti_takes_sliced(const struct dyti_graph *graph,
                                  struct dyti_takes *out_takes);

#endif /* DYTI_SCHED_ORDER_H */
