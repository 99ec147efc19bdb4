/* Tiny models of every family and a micro-batch for them: what the tests of
 * core/nn run on. */
#ifndef NN_CASES_H
#define NN_CASES_H

#include "nn_world.h"

struct nn_case {
    const char *name;
    struct dyti_arch arch;
};

#define NN_ARCH                                                                \
    .vocab = 37, .hidden = 24, .layers = 3, .q_heads = 6, .kv_heads = 3,       \
    .head_dim = 4, .ffn = 20, .max_positions = 64, .rms_eps = 1e-5,            \
    .init_std = 0.02, .dtype = DYTI_F32

static const struct nn_case nn_cases[] = {
    {"llama, tied",
     {NN_ARCH, .family = DYTI_LLAMA, .tied = true,
      .rope = {.kind = DYTI_ROPE_DEFAULT, .theta = 1e4}}},
    {"llama, untied, llama3 rope",
     {NN_ARCH, .family = DYTI_LLAMA,
      .rope = {.kind = DYTI_ROPE_LLAMA3,
               .theta = 50.0,
               .factor = 8.0,
               .low_freq = 1.0,
               .high_freq = 4.0,
               .original_max = 32}}},
    {"mistral, linear rope",
     {NN_ARCH, .family = DYTI_MISTRAL,
      .rope = {.kind = DYTI_ROPE_LINEAR, .theta = 1e4, .factor = 2.0}}},
    {"qwen2, bias, tied",
     {NN_ARCH, .family = DYTI_QWEN2, .tied = true, .qkv_bias = true,
      .rope = {.kind = DYTI_ROPE_DEFAULT, .theta = 1e6}}},
    {"qwen3, head norms",
     {NN_ARCH, .family = DYTI_QWEN3, .qk_norm = true,
      .rope = {.kind = DYTI_ROPE_DEFAULT, .theta = 1e6}}},
};
#define NN_CASE_COUNT (sizeof(nn_cases) / sizeof(nn_cases[0]))

/* Four packed sequences of uneven length. */
#define NN_ROWS 18
static const int32_t nn_first[] = {0, 5, 6, 15, 18};

struct nn_batch {
    int32_t ids[NN_ROWS], position[NN_ROWS], target[NN_ROWS];
    float dlogprob[NN_ROWS], dentropy[NN_ROWS];
    struct dyti_nn_micro micro;
};

static inline void nn_batch_init(struct nn_batch *b, int64_t vocab)
{
    for (int32_t s = 0; s < 4; s++) {
        for (int32_t r = nn_first[s]; r < nn_first[s + 1]; r++) {
            uint64_t at = (uint64_t)r;

            b->position[r] = r - nn_first[s];
            b->ids[r] = (int32_t)(dyti_rng_u64(11, 0, at, 0) % (uint64_t)vocab);
            b->target[r] =
                (int32_t)(dyti_rng_u64(11, 1, at, 0) % (uint64_t)vocab);
            b->dlogprob[r] = 0.3f * nn_noise(12, 0, at);
            b->dentropy[r] = 0.2f * nn_noise(12, 1, at);
        }
    }
    b->micro = (struct dyti_nn_micro){.packed = {4, NN_ROWS, nn_first, NULL},
                                      .ids = b->ids,
                                      .position = b->position};
}

/* L = Σ dlogprob·logprob + dentropy·entropy, summed in f64. */
static inline double nn_loss(const struct nn_batch *b, const float *logprob,
                             const float *entropy)
{
    double loss = 0.0;

    for (int64_t r = 0; r < NN_ROWS; r++) {
        loss += (double)b->dlogprob[r] * (double)logprob[r] +
                (double)b->dentropy[r] * (double)entropy[r];
    }
    return loss;
}

#endif /* NN_CASES_H */
