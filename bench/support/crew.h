/* Ranks of ours as processes that stay loaded and work a turn at a time, so
 * that several worlds and their opponents can take turns. */
#ifndef DYT_BENCH_CREW_H
#define DYT_BENCH_CREW_H

#include <stdbool.h>
#include <stdint.h>

#define CREW_RANKS 8u

struct crew;

/* What a rank is: it opens itself, then works while crew_wait says true, and
 * says crew_done after each turn.  Runs in a process of its own. */
typedef void (*crew_rank_fn)(void *arg, uint32_t rank, struct crew *crew);

/* Zeroed memory, 2 MiB pages where the system has them; NULL: none left.
 * flags: MAP_PRIVATE or MAP_SHARED, … */
void *crew_memory(uint64_t bytes, int flags);

/* Starts the ranks; NULL: said on stderr.  `arg` is seen as it is now. */
struct crew *crew_start(uint32_t size, crew_rank_fn rank, void *arg);

/* One turn of all ranks.  *out_seconds: as rank 0 said.  false: one of them
 * failed or is gone. */
bool crew_turn(struct crew *crew, double *out_seconds);

/* Ends all ranks. */
void crew_stop(struct crew *crew);

/* ---- in a rank ----------------------------------------------------------- */

bool crew_wait(struct crew *crew, uint32_t rank); /* true: a turn is on */
/* seconds: of rank 0; good: false = this rank can do no more */
void crew_done(struct crew *crew, uint32_t rank, double seconds, bool good);

#endif /* DYT_BENCH_CREW_H */
