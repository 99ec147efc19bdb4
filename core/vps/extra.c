/* State that has no parameter's shape, as tensors of the catalogue. */
#include "vps/catalogue.h"

#include <stdio.h>

static enum dyt_status check_shape(const struct dyti_extra_desc *desc)
{
    uint64_t elements = 1;

    if (desc->name == NULL || desc->name[0] == '\0') {
        return DYTI_FAIL(DYT_ERR_INVALID, "an extra without a name");
    }
    if (desc->ndim == 0 || desc->ndim > DYT_MAX_DIMS) {
        return DYTI_FAIL(DYT_ERR_INVALID, "extra %s has %u dimensions: 1 to %u",
                         desc->name, desc->ndim, DYT_MAX_DIMS);
    }
    if ((unsigned)desc->dtype >= DYTI_DTYPE_COUNT) {
        return DYTI_FAIL(DYT_ERR_INVALID, "extra %s has no known dtype",
                         desc->name);
    }
    for (uint32_t d = 0; d < desc->ndim; d++) {
        if (desc->shape[d] <= 0) {
            return DYTI_FAIL(DYT_ERR_INVALID,
                             "extra %s: dimension %u is %lld: it must be at "
                             "least 1",
                             desc->name, d, (long long)desc->shape[d]);
        }
        if (__builtin_mul_overflow(elements, (uint64_t)desc->shape[d],
                                   &elements)) {
            return DYTI_FAIL(DYT_ERR_OVERFLOW, "extra %s is too large",
                             desc->name);
        }
    }
    return DYT_OK;
}

/* Each element stands for a block of its parameter, the last may be cut off. */
static enum dyt_status check_blocks(const struct dyti_extra_desc *desc,
                                    const struct dyti_tensor *of)
{
    if (desc->ndim != of->ndim) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "extra %s has %u dimensions, %s has %u", desc->name,
                         desc->ndim, of->name, of->ndim);
    }
    for (uint32_t d = 0; d < desc->ndim; d++) {
        int64_t block = desc->block[d];

        if (block <= 0 ||
            (of->shape[d] + block - 1) / block != desc->shape[d]) {
            return DYTI_FAIL(DYT_ERR_INVALID,
                             "extra %s: %lld blocks of %lld elements do not "
                             "make dimension %u of %s, which has %lld",
                             desc->name, (long long)desc->shape[d],
                             (long long)block, d, of->name,
                             (long long)of->shape[d]);
        }
    }
    return DYT_OK;
}

static enum dyt_status go_with(const struct dyti_model *model,
                               const struct dyti_extra_desc *desc,
                               struct dyti_tensor *t)
{
    uint32_t index =
        desc->of == NULL ? UINT32_MAX : dyti_model_find_name(model, desc->of);
    const struct dyti_tensor *of;
    enum dyt_status st;

    if (index >= model->parameter_count) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "extra %s goes with %s: the model has no such tensor",
                         desc->name, desc->of == NULL ? "nothing" : desc->of);
    }
    of = &model->tensor[index];
    st = check_blocks(desc, of);
    if (st != DYT_OK) {
        return st;
    }
    t->layer = of->layer;
    t->expert = of->expert;
    t->on_first = of->on_first;
    t->on_last = of->on_last;
    t->cut_axis = of->cut_axis;
    t->segment_count = of->segment_count;
    for (uint32_t s = 0; s < of->segment_count; s++) {
        t->segment[s] = of->segment[s];
    }
    t->extra_of = index;
    for (uint32_t d = 0; d < desc->ndim; d++) {
        t->block[d] = desc->block[d];
    }
    return DYT_OK;
}

enum dyt_status dyti_extra_fill(const struct dyti_model *model,
                                const struct dyti_extra_desc *desc,
                                char name_buf[DYTI_NAME_BYTES],
                                struct dyti_tensor *out_tensor)
{
    struct dyti_tensor t = {.layer = -1,
                            .expert = -1,
                            .slot = DYTI_SLOT_EXTRA,
                            .on_first = true,
                            .on_last = true,
                            .kinds = 1u << DYTI_EXTRA,
                            .fixed_dtype = true,
                            .dtype = desc->dtype,
                            .extra = desc->rule,
                            .extra_of = UINT32_MAX,
                            .ndim = desc->ndim,
                            .segment_count = 1};
    enum dyt_status st = check_shape(desc);

    if (st != DYT_OK) {
        return st;
    }
    for (uint32_t d = 0; d < desc->ndim; d++) {
        t.shape[d] = desc->shape[d];
    }
    t.segment[0] = (struct dyti_segment){0, t.shape[0], DYTI_CUT_NONE, 1};
    if (snprintf(name_buf, DYTI_NAME_BYTES, "%s", desc->name) >=
        (int)DYTI_NAME_BYTES) {
        return DYTI_FAIL(DYT_ERR_OVERFLOW,
                         "extra %s: its name is longer than %u bytes",
                         desc->name, DYTI_NAME_BYTES - 1);
    }
    t.name = name_buf;
    switch (desc->rule) {
    case DYTI_EXTRA_EVERY:
    case DYTI_EXTRA_PER_RANK:
    case DYTI_EXTRA_OWNER:
        break;
    case DYTI_EXTRA_SHARDED:
        st = go_with(model, desc, &t);
        break;
    default:
        st = DYTI_FAIL(DYT_ERR_INVALID, "extra %s says not how it moves",
                       desc->name);
        break;
    }
    if (st == DYT_OK) {
        *out_tensor = t;
    }
    return st;
}
