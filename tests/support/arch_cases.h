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
#define DYT_ARCH_TINY_4_2 DYT_ARCH(DYTI_LLAMA, 37, 16, 2, 4, 2, 4, 12, .tied = true)
#define DYT_ARCH_TINY_QWEN2 DYT_ARCH(DYTI_QWEN2, 51, 16, 4, 6, 2, 4, 23, .tied = true, .qkv_bias = true)
#define DYT_ARCH_TINY_QWEN3 DYT_ARCH(DYTI_QWEN3, 37, 8, 2, 4, 1, 4, 9, .tied = false, .qk_norm = true)
#define DYT_ARCH_SMOLLM2_135M DYT_ARCH(DYTI_LLAMA, 49152, 576, 30, 9, 3, 64, 1536, .tied = true, .dtype = DYTI_BF16)
#define DYT_ARCH_LLAMA2_70B DYT_ARCH(DYTI_LLAMA, 32000, 8192, 80, 64, 8, 128, 28672, .tied = false)
#define DYT_ARCH_TINY_MOE DYT_ARCH(DYTI_QWEN3_MOE, 50, 16, 3, 8, 2, 2, 24, .tied = false, .qk_norm = true, .moe = {5, 2, 12, 0, 0, 1, false})
#define DYT_ARCH_TINY_MIXTRAL DYT_ARCH(DYTI_MIXTRAL, 50, 16, 3, 8, 2, 2, 24, .tied = false, .moe = {4, 2, 24, 0, 0, 1, false})
#define DYT_ARCH_TINY_GATED DYT_ARCH(DYTI_QWEN3_MOE, 50, 16, 3, 8, 2, 2, 24, .tied = false, .qk_norm = true, .attn_gate = true, .moe = {5, 2, 12, 0, 0, 1, false})
#define DYT_ARCH_TINY_MLA DYT_ARCH(DYTI_DEEPSEEK_V3, 50, 16, 4, 8, 8, 6, 24, .tied = false, .moe = {5, 2, 12, 24, 1, 1, true}, .mla = {10, 8, 2, 4, 5})
#define DYT_ARCH_TINY_MLA_DIRECT DYT_ARCH(DYTI_DEEPSEEK_V2, 50, 16, 3, 8, 8, 6, 24, .tied = false, .moe = {4, 2, 12, 12, 0, 2, false}, .mla = {0, 8, 2, 4, 5})
#define DYT_ARCH_TINY_GPT2 DYT_ARCH(DYTI_GPT2, 50, 16, 3, 4, 4, 4, 64, .tied = true)
#define DYT_ARCH_GPT2(h, l, q) {.family = DYTI_GPT2, .vocab = 50257, .hidden = (h), .layers = (l), .q_heads = (q), .kv_heads = (q), .head_dim = (h) / (q), .ffn = 4 * (h), .max_positions = 1024, .rms_eps = 1e-5, .init_std = 0.02, .tied = true}
#define DYT_ARCH_QWEN3_30B DYT_ARCH(DYTI_QWEN3_MOE, 151936, 2048, 48, 32, 4, 128, 6144, .tied = false, .qk_norm = true, .dtype = DYTI_BF16, .moe = {128, 8, 768, 0, 0, 1, false})
#define DYT_ARCH_QWEN3_235B DYT_ARCH(DYTI_QWEN3_MOE, 151936, 4096, 94, 64, 4, 128, 12288, .tied = false, .qk_norm = true, .dtype = DYTI_BF16, .moe = {128, 8, 1536, 0, 0, 1, false})
#define DYT_ARCH_MIXTRAL_8X7B DYT_ARCH(DYTI_MIXTRAL, 32000, 4096, 32, 32, 8, 128, 14336, .tied = false, .moe = {8, 2, 14336, 0, 0, 1, false})
#define DYT_ARCH_DEEPSEEK_V2_LITE DYT_ARCH(DYTI_DEEPSEEK_V2, 102400, 2048, 27, 16, 16, 192, 10944, .tied = false, .moe = {64, 6, 1408, 2816, 1, 1, false}, .mla = {0, 512, 64, 128, 128})
#define DYT_ARCH_DEEPSEEK_V2 DYT_ARCH(DYTI_DEEPSEEK_V2, 102400, 5120, 60, 128, 128, 192, 12288, .tied = false, .moe = {160, 6, 1536, 3072, 1, 1, false}, .mla = {1536, 512, 64, 128, 128})
#define DYT_ARCH_DEEPSEEK_V3 DYT_ARCH(DYTI_DEEPSEEK_V3, 129280, 7168, 61, 128, 128, 192, 18432, .tied = false, .dtype = DYTI_BF16, .moe = {256, 8, 2048, 2048, 3, 1, true}, .mla = {1536, 512, 64, 128, 128})
/* clang-format on */

#endif /* DYT_ARCH_CASES_H */
