/* One process that generates: a model in the layout TP 1, no manager, no
 * workers.  `dynatrain generate` and the benchmarks use it. */
#ifndef DYTI_CLI_SOLO_H
#define DYTI_CLI_SOLO_H

#include "format/hf_config.h"
#include "layout/layout.h"
#include "rollout/engine.h"

struct dyti_solo_params {
    const char *model_dir;
    enum dyti_dtype dtype; /* of weights and KV cache */
    uint32_t threads;      /* 0: all cores */
    uint32_t sequences;    /* at once */
    uint32_t positions;    /* longest prompt + response; 0: the model's, at most
                              4096 */
    const struct dyti_tokenizer *tokenizer; /* for stop strings; may be NULL */
};

struct dyti_solo {
    struct dyti_generation_config generation;
    struct dyti_model *model;
    struct dyti_layout *layout;
    struct dyti_pool *pool;
    struct dyti_kernels kernels;
    void *weights, *work;
    struct dyti_rollout *rollout; /* serving version 0 */
};

enum dyt_status dyti_solo_open(const struct dyti_solo_params *params,
                               struct dyti_solo *out);
void dyti_solo_close(struct dyti_solo *solo);

#endif /* DYTI_CLI_SOLO_H */
