/* Times that others have published, beside what the simulator says of the same
 * switch on a stated cluster.  Nothing is fitted to them. */
#ifndef DYT_BENCH_PUBLISHED_H
#define DYT_BENCH_PUBLISHED_H

#include "bench.h"

/* false: something failed, and said so. */
bool published_rows(struct bench *bench);

#endif /* DYT_BENCH_PUBLISHED_H */
