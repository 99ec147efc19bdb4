/* Which elements of a tensor a sample may draw; tensors of one shape share it,
 * and most have one of a few shapes. */
#include "exec/verify.h"

#include "base/array.h"

#include <string.h>

#define SEEN_MAX    64u /* of the last ones, looked through for an equal one */
#define SAMPLE_STEP 128 /* at most 1 of 128 elements */

/* Every element. */
static void lattice_all(const int64_t shape[DYTI_VERIFY_DIMS],
                        struct dyti_verify_lattice *out)
{
    for (uint32_t d = 0; d < DYTI_VERIFY_DIMS; d++) {
        out->step[d] = 1;
        out->count[d] = shape[d];
        out->starts[d] = 1;
    }
}

/* Every 128th along the first dim that is long enough, so that every rank's
 * shard has some; a tensor with short dims gives one run of its fastest. */
static void lattice_sample(const int64_t shape[DYTI_VERIFY_DIMS],
                           struct dyti_verify_lattice *out)
{
    int64_t elements = 1, run;
    const uint32_t fast = DYTI_VERIFY_DIMS - 1u;

    lattice_all(shape, out);
    for (uint32_t d = 0; d < DYTI_VERIFY_DIMS; d++) {
        elements *= shape[d];
        if (shape[d] >= SAMPLE_STEP) {
            out->step[d] = out->starts[d] = SAMPLE_STEP;
            out->count[d] = shape[d] / SAMPLE_STEP;
            return;
        }
    }
    run = elements / SAMPLE_STEP;
    run = run > shape[fast] ? shape[fast] : run;
    for (uint32_t d = 0; d < fast; d++) {
        out->starts[d] = shape[d];
        out->count[d] = 1;
    }
    out->starts[fast] = shape[fast] - run + 1;
    out->count[fast] = run;
}

static void shape_of(const struct dyti_tensor *tensor,
                     int64_t shape[DYTI_VERIFY_DIMS])
{
    uint32_t shift = DYTI_VERIFY_DIMS - tensor->ndim;

    for (uint32_t d = 0; d < DYTI_VERIFY_DIMS; d++) {
        shape[d] = d < shift ? 1 : tensor->shape[d - shift];
    }
}

enum dyt_status dyti_verify_find_lattice(struct dyti_verifier *verifier,
                                         const struct dyti_tensor *tensor,
                                         bool full, uint32_t *out_index)
{
    struct dyti_verifier *v = verifier;
    struct dyti_verify_lattice want;
    int64_t shape[DYTI_VERIFY_DIMS];
    size_t seen = 0;
    enum dyt_status st;

    shape_of(tensor, shape);
    if (full) {
        lattice_all(shape, &want);
    } else {
        lattice_sample(shape, &want);
    }
    for (size_t i = v->lattice_count; i > 0 && seen < SEEN_MAX; i--, seen++) {
        if (memcmp(&v->lattice[i - 1], &want, sizeof(want)) == 0) {
            *out_index = (uint32_t)(i - 1);
            return DYT_OK;
        }
    }
    st = DYTI_GROW(v->lattice, v->lattice_cap, v->lattice_count + 1);
    if (st == DYT_OK) {
        v->lattice[v->lattice_count] = want;
        *out_index = (uint32_t)v->lattice_count++;
    }
    return st;
}
