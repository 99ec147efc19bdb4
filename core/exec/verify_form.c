/* What pieces of equal parts of equal tensors share when they are hashed: how
 * they lie in memory, and which of their elements a sample may draw. */
#include "exec/verify.h"

#include "base/array.h"

#include <string.h>

#define SEEN_MAX    64u /* of the last ones, looked through for an equal one */
#define SAMPLE_STEP 128 /* at most 1 of 128 elements */

/* Every element. */
static void lattice_all(const int64_t shape[DYTI_VERIFY_DIMS],
                        struct dyti_sample *form)
{
    for (uint32_t d = 0; d < DYTI_VERIFY_DIMS; d++) {
        form->step[d] = 1;
        form->count[d] = shape[d];
        form->starts[d] = 1;
    }
}

/* Every 128th along the first dim that is long enough, so that every rank's
 * shard has some; a tensor with short dims gives one run of its fastest, and
 * one of fewer than 128 elements nothing. */
static void lattice_sample(const int64_t shape[DYTI_VERIFY_DIMS],
                           struct dyti_sample *form)
{
    int64_t elements = 1, run;
    const uint32_t fast = DYTI_VERIFY_DIMS - 1u;

    lattice_all(shape, form);
    for (uint32_t d = 0; d < DYTI_VERIFY_DIMS; d++) {
        elements *= shape[d];
        if (shape[d] >= SAMPLE_STEP) {
            form->step[d] = form->starts[d] = SAMPLE_STEP;
            form->count[d] = shape[d] / SAMPLE_STEP;
            return;
        }
    }
    run = elements / SAMPLE_STEP;
    if (run == 0) {
        form->count[0] = 0;
        return;
    }
    run = run > shape[fast] ? shape[fast] : run;
    for (uint32_t d = 0; d < fast; d++) {
        form->starts[d] = shape[d];
        form->count[d] = 1;
    }
    form->starts[fast] = shape[fast] - run + 1;
    form->count[fast] = run;
}

static void shape_of(const struct dyti_tensor *tensor,
                     int64_t shape[DYTI_VERIFY_DIMS])
{
    uint32_t shift = DYTI_VERIFY_DIMS - tensor->ndim;

    for (uint32_t d = 0; d < DYTI_VERIFY_DIMS; d++) {
        shape[d] = d < shift ? 1 : tensor->shape[d - shift];
    }
}

static bool find(const struct dyti_verifier *v,
                 const struct dyti_sample_form *form, uint32_t *out_index)
{
    size_t seen = 0;

    for (size_t i = v->form_count; i > 0 && seen < SEEN_MAX; i--, seen++) {
        if (memcmp(&v->form[i - 1], form, sizeof(*form)) == 0) {
            *out_index = (uint32_t)(i - 1);
            return true;
        }
    }
    return false;
}

/* Bytes of forms are compared, so all of theirs are written.  Where padding
 * kept equal ones apart, nothing would be lost but memory. */
enum dyt_status dyti_verify_find_form(struct dyti_verifier *verifier,
                                      const struct dyti_tensor *tensor,
                                      const struct dyti_hash_box *box,
                                      const int64_t lo[DYTI_VERIFY_DIMS],
                                      uint8_t as, bool full,
                                      uint32_t *out_index)
{
    struct dyti_verifier *v = verifier;
    struct dyti_sample sample;
    struct dyti_sample_form form;
    int64_t shape[DYTI_VERIFY_DIMS];
    enum dyt_status st;

    memset(&sample, 0, sizeof(sample));
    memset(&form, 0, sizeof(form));
    memcpy(&sample.box, box, sizeof(*box));
    memcpy(sample.lo, lo, sizeof(sample.lo));
    sample.as = as;
    shape_of(tensor, shape);
    if (full) {
        lattice_all(shape, &sample);
    } else {
        lattice_sample(shape, &sample);
    }
    dyti_sample_prepare(&sample, &form);
    if (find(v, &form, out_index)) {
        return DYT_OK;
    }
    st = DYTI_GROW(v->form, v->form_cap, v->form_count + 1);
    if (st == DYT_OK) {
        memcpy(&v->form[v->form_count], &form, sizeof(form));
        *out_index = (uint32_t)v->form_count++;
    }
    return st;
}
