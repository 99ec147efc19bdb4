/* What a whole price costs: plan, placement, all strategies, their simulation.
 */
#ifndef DYT_BENCH_PRICE_H
#define DYT_BENCH_PRICE_H

#include "bench.h"

/* One record for each shape; false: one could not be priced. */
bool price_measure(struct bench *bench);

#endif /* DYT_BENCH_PRICE_H */
