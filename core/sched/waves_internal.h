/* How waves are found, in three steps: who waits for whom (waves_graph.c), what
 * is staged where nothing can go (waves_cycles.c), wave by wave (waves.c).  Of
 * these three files only. */
#ifndef DYTI_SCHED_WAVES_INTERNAL_H
#define DYTI_SCHED_WAVES_INTERNAL_H

#include "sched/waves.h"

/* An item as a reader of its source's memory. */
struct dyti_wave_reader {
    uint64_t lo, hi;
    uint64_t reach; /* largest hi of this and all before it on its rank */
    uint32_t item;
};

/* Item i waits until those in waits[first[i] … first[i + 1]) have read. */
struct dyti_wave_graph {
    const struct dyti_wave_item *item;
    size_t count;
    uint32_t world_size;
    struct dyti_wave_reader *reader; /* [count], by rank, lo */
    size_t *reader_first;            /* [world_size + 1] */
    size_t *first;                   /* [count + 1] */
    uint32_t *waits;                 /* [edge_count] */
    size_t *follow_first;            /* [count + 1]: the other way round */
    uint32_t *follow;                /* [edge_count]: who waits for it */
    bool *self;                      /* [count] reads where it writes */
    size_t edge_count, edge_cap;
};

enum dyt_status dyti_wave_graph_init(struct dyti_wave_graph *g,
                                     const struct dyti_wave_item *item,
                                     size_t count, uint32_t world_size);
void dyti_wave_graph_fini(struct dyti_wave_graph *g);

/* Places taken in one rank's staging memory, by offset. */
struct dyti_wave_room {
    struct place {
        uint64_t lo, hi;
        uint32_t item;
    } * place;
    size_t count, cap;
    uint64_t peak;
};

/* Of an item. */
enum dyti_wave_state { DYTI_WAVE_WAITS, DYTI_WAVE_STAGED, DYTI_WAVE_DONE };

struct dyti_wave_run {
    const struct dyti_wave_graph *g;
    uint64_t cap_bytes;
    uint8_t *state;              /* [count] */
    uint32_t *pending;           /* [count] readers that have not read yet */
    uint64_t *place;             /* [count] staging offset */
    struct dyti_wave_room *room; /* [world_size] */
    uint32_t *ready;             /* [count] pending == 0, not done: a list */
    size_t ready_count;
    size_t done;
    struct dyti_waves *out;
    size_t action_cap, wave_cap;
    bool stuck;
};

/* Append an action to the wave that is being made. */
enum dyt_status dyti_wave_act(struct dyti_wave_run *r, uint32_t item,
                              enum dyti_wave_what what);
/* An item's place in staging memory is free again. */
void dyti_wave_give_room(struct dyti_wave_room *room, uint32_t item);
/* Nothing can go: stage for the cheapest, then for more while there is room. */
enum dyt_status dyti_wave_break_cycles(struct dyti_wave_run *r);

#endif /* DYTI_SCHED_WAVES_INTERNAL_H */
