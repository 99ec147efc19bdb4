/* Which angle does position p turn pair i of a head by?  The rotary embedding's
 * table, in the arithmetic of Hugging Face: frequencies and angles are rounded
 * to f32, as the models were trained. */
#include "nn/pass.h"

#include "base/checked.h"

#include <math.h>
#include <stdlib.h>

#define TWO_PI 6.283185307179586

/* Llama 3: low frequencies are divided by `factor`, high ones stay, and the
 * band between is blended. */
static double llama3_frequency(const struct dyti_rope *rope, double frequency)
{
    double wavelength = TWO_PI / frequency;
    double original = (double)rope->original_max;
    double blend;

    if (wavelength < original / rope->high_freq) {
        return frequency;
    }
    if (wavelength > original / rope->low_freq) {
        return frequency / rope->factor;
    }
    blend = (original / wavelength - rope->low_freq) /
            (rope->high_freq - rope->low_freq);
    return (1.0 - blend) * frequency / rope->factor + blend * frequency;
}

static float pair_frequency(const struct dyti_arch *arch, int64_t pair)
{
    const struct dyti_rope *rope = &arch->rope;
    float exponent = (float)(2 * pair) / (float)arch->head_dim;
    double frequency =
        (double)(float)(1.0 / pow(rope->theta, (double)exponent));

    switch (rope->kind) {
    case DYTI_ROPE_DEFAULT:
        break;
    case DYTI_ROPE_LINEAR:
        frequency /= rope->factor;
        break;
    case DYTI_ROPE_LLAMA3:
        frequency = llama3_frequency(rope, frequency);
        break;
    }
    return (float)frequency;
}

static enum dyt_status check_rope(const struct dyti_rope *rope)
{
    if (rope->kind > DYTI_ROPE_LLAMA3) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED, "rope kind %d is not known",
                         (int)rope->kind);
    }
    if (!(rope->theta > 0.0) ||
        (rope->kind != DYTI_ROPE_DEFAULT && !(rope->factor > 0.0))) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "rope theta %g or factor %g is not above 0",
                         rope->theta, rope->factor);
    }
    if (rope->kind == DYTI_ROPE_LLAMA3 &&
        (!(rope->low_freq > 0.0) || !(rope->high_freq > rope->low_freq) ||
         rope->original_max < 1)) {
        return DYTI_FAIL(
            DYT_ERR_INVALID,
            "llama3 rope wants 0 < low_freq_factor < "
            "high_freq_factor and original_max_position_embeddings "
            ">= 1, not %g, %g, %lld",
            rope->low_freq, rope->high_freq, (long long)rope->original_max);
    }
    return DYT_OK;
}

enum dyt_status dyti_nn_rope_table(const struct dyti_arch *arch,
                                   int64_t positions, float **out_table)
{
    int64_t half = arch->head_dim / 2;
    float *table;

    DYTI_NN_TRY(check_rope(&arch->rope));
    if (positions < 1 || positions > (int64_t)1 << 31) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "a rope table of %lld positions cannot be built",
                         (long long)positions);
    }
    table = calloc((size_t)positions, (size_t)(2 * half) * sizeof(*table));
    if (table == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM,
                         "no memory for a rope table of %lld positions",
                         (long long)positions);
    }
    for (int64_t pair = 0; pair < half; pair++) {
        float frequency = pair_frequency(arch, pair);

        for (int64_t p = 0; p < positions; p++) {
            double angle = (double)((float)p * frequency);

            table[p * 2 * half + pair] = (float)cos(angle);
            table[p * 2 * half + half + pair] = (float)sin(angle);
        }
    }
    *out_table = table;
    return DYT_OK;
}
