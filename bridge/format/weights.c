/* The model's tensors by their names in the files, then box by box. */
#include "format/weights.h"

#include "format/convert.h"

#include "base/banned.h"

#define EMBED "model.embed_tokens.weight"
#define HEAD  "lm_head.weight"

static bool ends_with(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);

    return a >= b && strcmp(text + a - b, end) == 0;
}

/* The file's tensor for one of ours. */
static const struct dyti_safetensor *lookup(const struct dyti_safetensors *set,
                                            const struct dyti_model *model,
                                            const struct dyti_tensor *tensor)
{
    const struct dyti_safetensor *found =
        dyti_safetensors_find(set, tensor->name);

    if (found == NULL && model->arch.tied && tensor->slot == DYTI_SLOT_EMBED) {
        found = dyti_safetensors_find(set, HEAD);
    }
    return found;
}

/* Tensors of the file that are no parameter of ours and change nothing. */
static bool passed_over(const struct dyti_model *model, const char *name)
{
    return ends_with(name, ".rotary_emb.inv_freq") ||
           (model->arch.tied && strcmp(name, HEAD) == 0);
}

static bool same_shape(const struct dyti_tensor *want,
                       const struct dyti_safetensor *have)
{
    bool same = want->ndim == have->ndim;

    for (uint32_t i = 0; same && i < want->ndim; i++) {
        same = want->shape[i] == have->shape[i];
    }
    return same;
}

static void shape_text(char buf[160], uint32_t ndim, const int64_t *shape)
{
    size_t used = 0;

    buf[0] = '\0';
    for (uint32_t i = 0; i < ndim && used < 130; i++) {
        used += (size_t)snprintf(buf + used, 160 - used, "%s%lld",
                                 i > 0 ? ", " : "", (long long)shape[i]);
    }
}

static enum dyt_status check_one(const struct dyti_safetensors *set,
                                 const struct dyti_tensor *want,
                                 const struct dyti_safetensor *have)
{
    char a[160], b[160];

    if (!same_shape(want, have)) {
        shape_text(a, have->ndim, have->shape);
        shape_text(b, want->ndim, want->shape);
        return DYTI_FAIL(
            DYT_ERR_FORMAT, "%s: %s has shape [%s], config.json asks for [%s]",
            dyti_safetensors_file(set, have->file), have->name, a, b);
    }
    if (have->dtype >= DYTI_DTYPE_COUNT ||
        !dyti_convertible(have->dtype, DYTI_F32)) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "%s: %s is %s; f32, bf16 and f16 are available",
                         dyti_safetensors_file(set, have->file), have->name,
                         have->type);
    }
    return DYT_OK;
}

static enum dyt_status check_missing(const struct dyti_safetensors *set,
                                     const struct dyti_model *model)
{
    const char *first = NULL;
    size_t missing = 0;

    for (uint32_t i = 0; i < model->tensor_count; i++) {
        const struct dyti_tensor *want = &model->tensor[i];
        const struct dyti_safetensor *have = lookup(set, model, want);
        enum dyt_status st;

        if (have == NULL) {
            first = first == NULL ? want->name : first;
            missing++;
            continue;
        }
        st = check_one(set, want, have);
        if (st != DYT_OK) {
            return st;
        }
    }
    if (missing > 0) {
        return DYTI_FAIL(
            DYT_ERR_FORMAT, "%s: %zu of %u tensors are missing, first %s",
            dyti_safetensors_file(set, 0), missing, model->tensor_count, first);
    }
    return DYT_OK;
}

enum dyt_status dyti_weights_check(const struct dyti_safetensors *set,
                                   const struct dyti_model *model)
{
    const struct dyti_safetensor *first = NULL;
    size_t unexpected = 0;
    enum dyt_status st = check_missing(set, model);

    if (st != DYT_OK) {
        return st;
    }
    for (size_t i = 0; i < dyti_safetensors_count(set); i++) {
        const struct dyti_safetensor *have = dyti_safetensors_at(set, i);

        if (dyti_model_find_name(model, have->name) == UINT32_MAX &&
            !passed_over(model, have->name)) {
            first = first == NULL ? have : first;
            unexpected++;
        }
    }
    if (unexpected > 0) {
        return DYTI_FAIL(DYT_ERR_FORMAT,
                         "%s: %zu tensors that config.json does not ask for, "
                         "first %s",
                         dyti_safetensors_file(set, first->file), unexpected,
                         first->name);
    }
    return DYT_OK;
}

enum dyt_status dyti_weights_load_set(const struct dyti_safetensors *set,
                                      const struct dyti_model *model,
                                      const struct dyti_view *view,
                                      enum dyti_kind kind, void *base)
{
    for (uint32_t i = view->kind_first[kind]; i < view->kind_first[kind + 1];
         i++) {
        const struct dyti_shard *shard = &view->shard[i];
        const struct dyti_tensor *tensor = &model->tensor[shard->tensor];
        const struct dyti_safetensor *have = lookup(set, model, tensor);
        enum dyt_status st;

        if (have == NULL) {
            return DYTI_FAIL(DYT_ERR_FORMAT, "%s: %s is missing",
                             dyti_safetensors_file(set, 0), tensor->name);
        }
        st = dyti_safetensors_read_box(
            set, have, &shard->box, (enum dyti_dtype)shard->dtype,
            (char *)base + shard->offset, shard->stride);
        if (st != DYT_OK) {
            DYTI_NOTE("loading %s of %s", dyti_kind_name(kind), tensor->name);
            return st;
        }
    }
    return DYT_OK;
}

enum dyt_status dyti_weights_load(const char *dir,
                                  const struct dyti_model *model,
                                  const struct dyti_view *view,
                                  enum dyti_kind kind, void *base)
{
    struct dyti_safetensors *set = NULL;
    enum dyt_status st = dyti_safetensors_open(dir, &set);

    if (st == DYT_OK) {
        st = dyti_weights_check(set, model);
    }
    if (st == DYT_OK) {
        st = dyti_weights_load_set(set, model, view, kind, base);
    }
    dyti_safetensors_close(set);
    return st;
}

enum dyt_status dyti_weights_plan(const struct dyti_model *model,
                                  enum dyti_dtype dtype,
                                  struct dyti_safetensors_plan *out_plan)
{
    static const char *const metadata[] = {"format", "pt", NULL};
    struct dyti_safetensors_entry *entry;
    enum dyt_status st;

    entry = calloc(model->tensor_count + 1, sizeof(*entry));
    if (entry == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u tensors", model->tensor_count);
    }
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        entry[i].name = model->tensor[i].name;
        entry[i].dtype =
            model->tensor[i].fixed_dtype ? model->tensor[i].dtype : dtype;
        entry[i].ndim = model->tensor[i].ndim;
        memcpy(entry[i].shape, model->tensor[i].shape, sizeof(entry[i].shape));
    }
    st = dyti_safetensors_plan_build(entry, model->tensor_count, metadata,
                                     out_plan);
    free(entry);
    return st;
}

enum dyt_status dyti_weights_write(int fd, const char *path,
                                   const struct dyti_safetensors_plan *plan,
                                   const struct dyti_view *view,
                                   enum dyti_kind kind, const void *base,
                                   dyti_shard_owned_fn owned, void *arg)
{
    for (uint32_t i = view->kind_first[kind]; i < view->kind_first[kind + 1];
         i++) {
        const struct dyti_shard *shard = &view->shard[i];
        enum dyt_status st;

        if (owned != NULL && !owned(arg, shard)) {
            continue;
        }
        st = dyti_safetensors_write_box(
            fd, path, plan, shard->tensor, &shard->box,
            (enum dyti_dtype)shard->dtype, (const char *)base + shard->offset,
            shard->stride);
        if (st != DYT_OK) {
            DYTI_NOTE("writing %s of tensor %u", dyti_kind_name(kind),
                      shard->tensor);
            return st;
        }
    }
    return DYT_OK;
}
