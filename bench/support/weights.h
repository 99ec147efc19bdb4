/* Which model a benchmark works with. */
#ifndef DYT_BENCH_WEIGHTS_H
#define DYT_BENCH_WEIGHTS_H

#include "bench.h"

#include "vps/arch.h"

struct bench_weights {
    char *folder; /* a Hugging Face directory, owned; NULL: random weights */
    struct dyti_arch arch;
};

/* --model, or SmolLM2 from the cache; without both, its shape with random
 * weights.  Says which.  false: --model cannot be read, said on stderr. */
bool bench_weights(const struct bench *bench, struct bench_weights *out);

#endif /* DYT_BENCH_WEIGHTS_H */
