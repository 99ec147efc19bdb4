/* model.h: catalogues, from a configuration or from a list. */
#include "lib/handles.h"
#include "plugin/near.h"
#include "vps/config.h"

#include <stdlib.h>
#include <string.h>

#define TENSOR_BYTES_0_1 104u

_Static_assert(sizeof(struct dyt_tensor) >= TENSOR_BYTES_0_1,
               "structs only grow");

static enum dyt_status wrap(struct dyti_model *model, dyt_model **out_model)
{
    dyt_model *handle = calloc(1, sizeof(*handle));

    if (handle == NULL) {
        dyti_model_destroy(model);
        return DYTI_FAIL(DYT_ERR_NOMEM, "a model");
    }
    handle->model = model;
    *out_model = handle;
    return DYT_OK;
}

enum dyt_status dyt_model_from_config(const struct dyt_config_pair *pair,
                                      size_t pair_count, dyt_model **out_model)
{
    struct dyti_model *model = NULL;
    struct dyti_arch arch;
    enum dyt_status st;

    if ((pair == NULL && pair_count > 0) || out_model == NULL) {
        return dyti_null_argument("dyt_model_from_config");
    }
    st = dyti_config_from_pairs(pair, pair_count, "config", &arch);
    st = st != DYT_OK ? st : dyti_model_build(&arch, &model);
    return st != DYT_OK ? st : wrap(model, out_model);
}

static enum dyt_status describe(const struct dyt_tensor *t,
                                struct dyti_listed_desc *out)
{
    enum dyt_status st =
        dyti_struct_check("dyt_tensor", t->struct_size, TENSOR_BYTES_0_1);

    if (st != DYT_OK) {
        return st;
    }
    *out = (struct dyti_listed_desc){.name = t->name,
                                     .ndim = t->ndim,
                                     .kinds = t->kinds,
                                     .layer = t->layer,
                                     .expert = t->expert};
    memcpy(out->shape, t->shape, sizeof(out->shape));
    return DYT_OK;
}

enum dyt_status dyt_model_create(const struct dyt_tensor *tensor,
                                 size_t tensor_count, dyt_model **out_model)
{
    /* Rows follow each other at the caller's own size. */
    size_t step;
    struct dyti_listed_desc *desc;
    struct dyti_model *model = NULL;
    enum dyt_status st = DYT_OK;

    if ((tensor == NULL && tensor_count > 0) || out_model == NULL) {
        return dyti_null_argument("dyt_model_create");
    }
    step = tensor_count > 0 ? tensor[0].struct_size : 0;
    desc = calloc(tensor_count + 1, sizeof(*desc));
    if (desc == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu tensors", tensor_count);
    }
    for (size_t i = 0; i < tensor_count && st == DYT_OK; i++) {
        const void *at = (const char *)tensor + i * step;

        st = describe(at, &desc[i]);
    }
    st =
        st != DYT_OK ? st : dyti_model_build_listed(desc, tensor_count, &model);
    free(desc);
    return st != DYT_OK ? st : wrap(model, out_model);
}

void dyt_model_destroy(dyt_model *model)
{
    if (model != NULL) {
        dyti_model_destroy(model->model);
        free(model);
    }
}

uint32_t dyt_model_tensor_count(const dyt_model *model)
{
    return model != NULL ? model->model->tensor_count : 0;
}

uint64_t dyt_model_elements(const dyt_model *model)
{
    return model != NULL ? dyti_model_elements(model->model) : 0;
}

enum dyt_status dyt_model_tensor(const dyt_model *model, uint32_t index,
                                 struct dyt_tensor *out)
{
    struct dyt_tensor whole = {0};
    const struct dyti_tensor *t;
    enum dyt_status st;
    uint32_t size;

    if (model == NULL || out == NULL) {
        return dyti_null_argument("dyt_model_tensor");
    }
    size = out->struct_size;
    st = dyti_struct_check("dyt_tensor", size, TENSOR_BYTES_0_1);
    if (st != DYT_OK) {
        return st;
    }
    if (index >= model->model->tensor_count) {
        return DYTI_FAIL(DYT_ERR_INVALID, "tensor %u: the model has %u", index,
                         model->model->tensor_count);
    }
    t = &model->model->tensor[index];
    whole.struct_size = size;
    whole.name = t->name;
    whole.ndim = t->ndim;
    whole.kinds = t->kinds;
    whole.layer = t->layer;
    whole.expert = t->expert;
    memcpy(whole.shape, t->shape, sizeof(whole.shape));
    memcpy(out, &whole, size < sizeof(whole) ? size : sizeof(whole));
    return DYT_OK;
}

enum dyt_status dyt_model_find(const dyt_model *model, const char *name,
                               uint32_t *out_index)
{
    uint32_t index;

    if (model == NULL || name == NULL || out_index == NULL) {
        return dyti_null_argument("dyt_model_find");
    }
    index = dyti_model_find_name(model->model, name);
    if (index == UINT32_MAX) {
        return DYTI_FAIL(DYT_ERR_INVALID, "the model has no tensor %.255s%s",
                         name, dyti_near_words(model->model, name).text);
    }
    *out_index = index;
    return DYT_OK;
}
