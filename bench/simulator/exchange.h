/* Pieces, for real: ranks are threads that hand each other chunks through
 * staging in shared memory.  Each rank has a thread that sends and one that
 * receives, both in the order of the pieces. */
#ifndef DYT_BENCH_EXCHANGE_H
#define DYT_BENCH_EXCHANGE_H

#include "sched/strategy.h"

#define EXCHANGE_RANKS 8u

struct exchange; /* memory of the ranks, staging of each pair */

struct exchange *exchange_open(void); /* NULL: no memory */
void exchange_close(struct exchange *exchange);

/* Seconds from the first to the last; negative: threads cannot be had. */
double exchange_run(struct exchange *exchange, uint32_t ranks,
                    const struct dyti_piece *piece, size_t count);

#endif /* DYT_BENCH_EXCHANGE_H */
