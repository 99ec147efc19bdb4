/* The models that benchmarks are about, as shapes: random weights serve where
 * the time does not depend on them. */
#ifndef DYT_BENCH_SHAPES_H
#define DYT_BENCH_SHAPES_H

#include "vps/arch.h"

/* SmolLM2-135M */
static const struct dyti_arch bench_smollm2 = {.family = DYTI_LLAMA,
                                               .vocab = 49152,
                                               .hidden = 576,
                                               .layers = 30,
                                               .q_heads = 9,
                                               .kv_heads = 3,
                                               .head_dim = 64,
                                               .ffn = 1536,
                                               .max_positions = 8192,
                                               .rms_eps = 1e-5,
                                               .init_std = 0.04,
                                               .tied = true,
                                               .rope = {.theta = 1e5}};

/* A switch of whole gibibytes: 1 in f32. */
static const struct dyti_arch bench_gibibyte = {.family = DYTI_LLAMA,
                                                .vocab = 24576,
                                                .hidden = 1024,
                                                .layers = 16,
                                                .q_heads = 16,
                                                .kv_heads = 4,
                                                .head_dim = 64,
                                                .ffn = 4096,
                                                .max_positions = 4096,
                                                .rms_eps = 1e-5,
                                                .init_std = 0.02,
                                                .tied = true,
                                                .rope = {.theta = 1e4}};

/* What the quickstart learns with. */
static const struct dyti_arch bench_tiny = {.family = DYTI_LLAMA,
                                            .vocab = 48,
                                            .hidden = 64,
                                            .layers = 2,
                                            .q_heads = 4,
                                            .kv_heads = 4,
                                            .head_dim = 16,
                                            .ffn = 160,
                                            .max_positions = 64,
                                            .rms_eps = 1e-5,
                                            .init_std = 0.08,
                                            .tied = true,
                                            .rope = {.theta = 1e4}};

#endif /* DYT_BENCH_SHAPES_H */
