/* Several programs or worlds that do the same work, a turn each, in alternating
 * order: what they are compared by has seen the same minutes of the machine. */
#ifndef DYT_BENCH_CONTEST_H
#define DYT_BENCH_CONTEST_H

#include <stdbool.h>
#include <stdint.h>

#define CONTEST_TURNS 64u /* of one player that are kept */

struct player {
    const char *name;
    /* One turn.  *out_values: up to `most` figures of it.  0: it failed, and
     * somebody has said why. */
    uint32_t (*turn)(void *arg, double *out_values, uint32_t most);
    void *arg;
    bool fresh; /* every turn starts afresh: there is nothing to warm up */
    bool out;   /* it failed and takes no more turns */
    double value[CONTEST_TURNS];
    uint32_t count;
};

/* A turn each that does not count, then `rounds` of them; every other round
 * goes through the players backwards. */
void contest(struct player *player, uint32_t count, uint32_t rounds);

/* Median of a player's figures; 0 = it has none. */
double contest_median(struct player *player);

#endif /* DYT_BENCH_CONTEST_H */
