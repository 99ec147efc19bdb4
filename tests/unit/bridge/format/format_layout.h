/* A layout in which every rank holds all kinds of state, in f32 but for the
 * parameters. */
#ifndef FORMAT_LAYOUT_H
#define FORMAT_LAYOUT_H

#include "dyt_test.h"

#include "layout/layout.h"

static inline struct dyti_layout *layout_of(const struct dyti_model *model,
                                            uint32_t tp, uint32_t pp,
                                            uint32_t dp, uint32_t zero,
                                            enum dyti_dtype dtype)
{
    struct dyti_layout_desc desc = {.phase = "test",
                                    .world_size = tp * pp * dp,
                                    .tp = tp,
                                    .pp = pp,
                                    .dp = dp,
                                    .zero = zero};
    struct dyti_layout *layout = NULL;

    for (int k = 0; k < DYTI_KIND_COUNT; k++) {
        desc.dtype[k] = DYTI_F32;
        desc.residency[k] = DYTI_HELD;
    }
    desc.dtype[DYTI_PARAM] = dtype;
    assert_ok(dyti_layout_build(model, &desc, &layout));
    return layout;
}

#endif /* FORMAT_LAYOUT_H */
