/* Whole tensors of a model, each an array of floats: made, drawn at random, and
 * memory that ranks share. */
#ifndef NN_FULL_H
#define NN_FULL_H

#include "dyt_ranks.h"

#include "base/rng.h"
#include "vps/model.h"

#include <math.h>

static inline void *nn_zeros(uint64_t bytes)
{
    void *p = mmap(NULL, bytes + 64, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (p == MAP_FAILED) {
        fail_msg("no memory for %" PRIu64 " bytes", bytes);
    }
    (void)madvise(p, bytes, MADV_HUGEPAGE); /* a wish: fewer page faults */
    return p;
}

static inline void nn_free(void *p, uint64_t bytes)
{
    if (p != NULL) {
        (void)munmap(p, bytes + 64);
    }
}

static inline float **nn_full_new(const struct dyti_model *model)
{
    float **full = calloc(model->tensor_count, sizeof(*full));

    assert_non_null(full);
    for (uint32_t t = 0; t < model->tensor_count; t++) {
        full[t] = nn_zeros(4 * dyti_tensor_elements(&model->tensor[t]));
    }
    return full;
}

static inline void nn_full_free(const struct dyti_model *model, float **full)
{
    for (uint32_t t = 0; full != NULL && t < model->tensor_count; t++) {
        nn_free(full[t], 4 * dyti_tensor_elements(&model->tensor[t]));
    }
    free(full);
}

/* Roughly normal with deviation 1. */
static inline float nn_noise(uint64_t seed, uint64_t a, uint64_t b)
{
    double sum = -6.0;

    for (uint64_t i = 0; i < 12; i++) {
        sum += dyti_rng_unit(dyti_rng_u64(seed, a, b, i));
    }
    return (float)sum;
}

static inline bool nn_is_norm(enum dyti_slot slot)
{
    return slot == DYTI_SLOT_INPUT_NORM || slot == DYTI_SLOT_POST_NORM ||
           slot == DYTI_SLOT_FINAL_NORM || slot == DYTI_SLOT_Q_NORM ||
           slot == DYTI_SLOT_K_NORM;
}

/* Weights big enough that attention is not flat and nothing saturates. */
static inline float **nn_full_random(const struct dyti_model *model,
                                     uint64_t seed)
{
    float **full = nn_full_new(model);

    for (uint32_t t = 0; t < model->tensor_count; t++) {
        const struct dyti_tensor *tensor = &model->tensor[t];
        uint64_t count = dyti_tensor_elements(tensor);
        float spread = 1.2f / sqrtf((float)model->arch.hidden);

        for (uint64_t i = 0; i < count; i++) {
            float x = nn_noise(seed, t, i);

            full[t][i] = nn_is_norm(tensor->slot)          ? 1.0f + 0.2f * x
                         : tensor->slot == DYTI_SLOT_EMBED ? 0.6f * x
                                                           : spread * x;
        }
    }
    return full;
}

#endif /* NN_FULL_H */
