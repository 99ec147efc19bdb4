/* Architectures that tests of several rooms use: tiny ones with awkward
 * numbers, and published ones by name. */
#ifndef DYT_ARCH_CASES_H
#define DYT_ARCH_CASES_H

#include "vps/model.h"

/* vocab hidden layers q_heads kv_heads head_dim ffn */
#define DYT_ARCH(fam, v, h, l, q, k, d, f, ...)                                \
    {                                                                          \
        .family = (fam), .vocab = (v), .hidden = (h), .layers = (l),           \
        .q_heads = (q), .kv_heads = (k), .head_dim = (d), .ffn = (f),          \
        .max_positions = 64, .rms_eps = 1e-5, .init_std = 0.02,                \
        .rope = {.theta = 10000.0}, __VA_ARGS__                                \
    }

/* clang-format off */
#define DYT_ARCH_TINY_9_3 DYT_ARCH(DYTI_LLAMA, 50, 12, 3, 9, 3, 2, 25, .tied = true)
#define DYT_ARCH_TINY_8_2 DYT_ARCH(DYTI_LLAMA, 50, 16, 3, 8, 2, 2, 24, .tied = false)
#define DYT_ARCH_TINY_QWEN2 DYT_ARCH(DYTI_QWEN2, 51, 16, 4, 6, 2, 4, 23, .tied = true, .qkv_bias = true)
#define DYT_ARCH_TINY_QWEN3 DYT_ARCH(DYTI_QWEN3, 37, 8, 2, 4, 1, 4, 9, .tied = false, .qk_norm = true)
#define DYT_ARCH_SMOLLM2_135M DYT_ARCH(DYTI_LLAMA, 49152, 576, 30, 9, 3, 64, 1536, .tied = true, .dtype = DYTI_BF16)
#define DYT_ARCH_LLAMA2_70B DYT_ARCH(DYTI_LLAMA, 32000, 8192, 80, 64, 8, 128, 28672, .tied = false)
/* clang-format on */

#endif /* DYT_ARCH_CASES_H */
