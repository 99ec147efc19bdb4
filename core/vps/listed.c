/* A catalogue by a list of tensors: no family, no slots, no rule that cuts. */
#include "base/checked.h"
#include "base/hash.h"
#include "vps/catalogue.h"

#include <stdlib.h>
#include <string.h>

static enum dyt_status check_shape(const struct dyti_listed_desc *d, size_t at,
                                   uint64_t *total)
{
    uint64_t elements = 1;

    if (d->name == NULL || d->name[0] == '\0' ||
        strlen(d->name) > DYTI_LISTED_NAME_MAX) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "tensor %zu of the list: its name must have 1 to %u "
                         "bytes",
                         at, DYTI_LISTED_NAME_MAX);
    }
    if (d->ndim == 0 || d->ndim > DYT_MAX_DIMS) {
        return DYTI_FAIL(DYT_ERR_INVALID, "%s has %u dimensions: 1 to %u",
                         d->name, d->ndim, DYT_MAX_DIMS);
    }
    for (uint32_t i = 0; i < d->ndim; i++) {
        if (d->shape[i] <= 0) {
            return DYTI_FAIL(DYT_ERR_INVALID,
                             "%s: dimension %u is %lld: it must be at least 1; "
                             "leave tensors without elements out",
                             d->name, i, (long long)d->shape[i]);
        }
        if (dyti_mul_overflow(elements, (uint64_t)d->shape[i], &elements)) {
            elements = UINT64_MAX;
            break;
        }
    }
    if (dyti_add_overflow(*total, elements, total) || *total > INT64_MAX / 32) {
        return DYTI_FAIL(DYT_ERR_OVERFLOW,
                         "the list has more than %lld elements at %s",
                         (long long)(INT64_MAX / 32), d->name);
    }
    return DYT_OK;
}

static enum dyt_status check_rest(const struct dyti_listed_desc *d)
{
    uint32_t extra = d->kinds & 1u << DYTI_EXTRA;

    if (d->kinds >> DYTI_KIND_COUNT != 0 || (extra != 0 && d->kinds != extra)) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "%s: kinds 0x%x; what is extra has no other kind, and "
                         "there are %d kinds",
                         d->name, d->kinds, (int)DYTI_KIND_COUNT);
    }
    if ((unsigned)d->dtype >= DYTI_DTYPE_COUNT) {
        return DYTI_FAIL(DYT_ERR_INVALID, "%s has no known dtype", d->name);
    }
    if (d->layer < -1 || d->expert < -1) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "%s: layer %d, expert %d; -1 is the least", d->name,
                         d->layer, d->expert);
    }
    return DYT_OK;
}

static void fill(const struct dyti_listed_desc *d, char *name,
                 struct dyti_tensor *out)
{
    struct dyti_tensor t = {
        .name = name,
        .ndim = d->ndim,
        .layer = d->layer,
        .expert = d->expert,
        .slot = DYTI_SLOT_LISTED,
        .segment_count = 1,
        .on_first = true,
        .on_last = true,
        .kinds = d->kinds == 0 ? (1u << DYTI_EXTRA) - 1u : d->kinds,
        .fixed_dtype = d->fixed_dtype || d->kinds == 1u << DYTI_EXTRA,
        .dtype = d->dtype,
        .extra =
            d->kinds == 1u << DYTI_EXTRA ? DYTI_EXTRA_EVERY : DYTI_EXTRA_NONE,
        .extra_of = UINT32_MAX};

    for (uint32_t i = 0; i < d->ndim; i++) {
        t.shape[i] = d->shape[i];
    }
    t.segment[0] = (struct dyti_segment){0, t.shape[0], DYTI_CUT_NONE, 1};
    memcpy(name, d->name, strlen(d->name) + 1);
    *out = t;
}

static enum dyt_status allocate(const struct dyti_listed_desc *tensor,
                                size_t count, struct dyti_model **out_model)
{
    struct dyti_model *model = calloc(1, sizeof(*model));
    size_t names = 0;

    for (size_t i = 0; i < count; i++) {
        names += strlen(tensor[i].name) + 1;
    }
    *out_model = model;
    if (model != NULL) {
        /* The names lie behind the tensors, in the same block. */
        model->tensor = calloc(1, count * sizeof(*model->tensor) + names);
        model->layer_first = calloc(1, sizeof(*model->layer_first));
    }
    if (model == NULL || model->tensor == NULL || model->layer_first == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a catalogue of %zu tensors", count);
    }
    model->arch.family = DYTI_FAMILY_LISTED;
    return DYT_OK;
}

static uint64_t fingerprint(const struct dyti_model *model)
{
    uint64_t state = DYTI_FINGERPRINT_SEED;

    for (uint32_t i = 0; i < model->tensor_count; i++) {
        const struct dyti_tensor *t = &model->tensor[i];

        state = dyti_fingerprint_text(state, t->name);
        state = dyti_fingerprint_u64(state, t->kinds);
        state =
            dyti_fingerprint_u64(state, (uint64_t)t->fixed_dtype << 8 |
                                            (t->fixed_dtype ? t->dtype : 0u));
        for (uint32_t d = 0; d < t->ndim; d++) {
            state = dyti_fingerprint_u64(state, (uint64_t)t->shape[d]);
        }
    }
    return state;
}

enum dyt_status dyti_model_build_listed(const struct dyti_listed_desc *tensor,
                                        size_t count,
                                        struct dyti_model **out_model)
{
    struct dyti_model *model = NULL;
    enum dyt_status st = DYT_OK;
    uint64_t total = 0;
    char *name;

    if (count == 0 || count > UINT32_MAX / 4) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "a catalogue of %zu tensors: 1 to %u are possible",
                         count, UINT32_MAX / 4);
    }
    for (size_t i = 0; i < count && st == DYT_OK; i++) {
        st = check_shape(&tensor[i], i, &total);
        st = st != DYT_OK ? st : check_rest(&tensor[i]);
    }
    st = st != DYT_OK ? st : allocate(tensor, count, &model);
    st = st != DYT_OK ? st : dyti_names_init(model, (uint32_t)count);
    if (st != DYT_OK) {
        goto out;
    }
    name = (char *)(model->tensor + count);
    for (size_t i = 0; i < count && st == DYT_OK; i++) {
        fill(&tensor[i], name, &model->tensor[i]);
        name += strlen(tensor[i].name) + 1;
        model->kinds |= model->tensor[i].kinds;
        model->tensor_count++;
        st = dyti_names_add(model, (uint32_t)i);
    }
    model->parameter_count = model->tensor_count;
    model->fingerprint = fingerprint(model);
out:
    if (st != DYT_OK) {
        DYTI_NOTE("describing a list of %zu tensors", count);
        dyti_model_destroy(model);
        return st;
    }
    *out_model = model;
    return DYT_OK;
}
