/* Where a model's boxes come from: whole tensors in files, or shards of ranks
 * (model_source_shards.c). */
#include "format/model_source_internal.h"

#include "base/banned.h"
#include "format/file.h"
#include "format/hf_config.h"

#include <stdlib.h>
#include <string.h>

#define HEAD_NAME "lm_head.weight"

/* ---- whole tensors ------------------------------------------------------- */

static const struct dyti_safetensor *whole_tensor(
    const struct dyti_model_source *s, enum dyti_kind kind, uint32_t tensor)
{
    const struct dyti_tensor *t = &s->model->tensor[tensor];
    const struct dyti_safetensor *found =
        dyti_safetensors_find(s->whole[kind], t->name);

    return found == NULL && s->model->arch.tied && t->slot == DYTI_SLOT_EMBED
               ? dyti_safetensors_find(s->whole[kind], HEAD_NAME)
               : found;
}

static enum dyt_status open_whole(struct dyti_model_source *s, const char *dir,
                                  enum dyti_kind kind)
{
    char path[DYTI_PATH_BYTES], name[64];
    enum dyt_status st;

    if (kind == DYTI_PARAM) {
        snprintf(path, sizeof(path), "%s", dir);
    } else {
        snprintf(name, sizeof(name), "%s.safetensors", dyti_kind_name(kind));
        st = dyti_path_join(path, dir, name);
        if (st != DYT_OK || !dyti_file_exists(path)) {
            return st;
        }
    }
    st = dyti_safetensors_open(path, &s->whole[kind]);
    for (uint32_t i = 0; i < s->model->tensor_count && st == DYT_OK; i++) {
        const struct dyti_tensor *t = &s->model->tensor[i];
        const struct dyti_safetensor *have;

        if ((t->kinds >> kind & 1u) == 0) {
            continue;
        }
        have = whole_tensor(s, kind, i);
        if (kind != DYTI_PARAM &&
            (have == NULL || have->ndim != t->ndim || have->dtype != DYTI_F32 ||
             memcmp(have->shape, t->shape, t->ndim * sizeof(t->shape[0])) !=
                 0)) {
            st = DYTI_FAIL(DYT_ERR_FORMAT,
                           "%s: %s is missing or not as config.json says", path,
                           t->name);
        }
    }
    if (st == DYT_OK && kind == DYTI_PARAM) {
        st = dyti_weights_check(s->whole[kind], s->model);
    }
    if (st == DYT_OK) {
        s->kinds |= 1u << kind;
    }
    return st;
}

static enum dyt_status open_directory(struct dyti_model_source *s,
                                      const char *dir)
{
    enum dyt_status st = DYT_OK;

    for (int kind = 0; kind < DYTI_EXTRA && st == DYT_OK; kind++) {
        if (kind != DYTI_GRAD) {
            st = open_whole(s, dir, (enum dyti_kind)kind);
        }
    }
    s->checkpoint = s->whole[DYTI_EXP_AVG] != NULL;
    if (st == DYT_OK && s->checkpoint && s->whole[DYTI_MASTER] == NULL) {
        s->master_is_param = true; /* of an f32 run: the same bits */
        s->kinds |= 1u << DYTI_MASTER;
    }
    return st;
}

static enum dyt_status read_whole(const struct dyti_model_source *s,
                                  enum dyti_kind kind, uint32_t tensor,
                                  const struct dyt_box *box,
                                  enum dyti_dtype dtype, void *dst,
                                  const int64_t *stride)
{
    const struct dyti_safetensor *have;

    kind = kind == DYTI_MASTER && s->master_is_param ? DYTI_PARAM : kind;
    have = whole_tensor(s, kind, tensor);
    if (have == NULL) {
        return DYTI_FAIL(DYT_ERR_FORMAT, "%s is missing",
                         s->model->tensor[tensor].name);
    }
    return dyti_safetensors_read_box(s->whole[kind], have, box, dtype, dst,
                                     stride);
}

/* ---- the source ---------------------------------------------------------- */

/* Files of ranks say nothing without their manifest. */
static enum dyt_status check_manifest(const char *dir, const char *manifest)
{
    char name[32], path[DYTI_PATH_BYTES];
    enum dyt_status st;

    dyti_shards_file_name(0, name);
    st = dyti_path_join(path, dir, name);
    return st == DYT_OK && !dyti_file_exists(manifest) && dyti_file_exists(path)
               ? DYTI_FAIL(DYT_ERR_FORMAT,
                           "%s has files of ranks and no %s, which says what "
                           "they hold: copy it along",
                           dir, DYTI_SHARDS_MANIFEST)
               : st;
}

enum dyt_status dyti_model_source_open(const char *path,
                                       struct dyti_model_source **out_source)
{
    struct dyti_model_source *s = calloc(1, sizeof(*s));
    char manifest[DYTI_PATH_BYTES], text[1024];
    struct dyti_arch arch;
    enum dyt_status st = s == NULL ? DYTI_FAIL(DYT_ERR_NOMEM, "a source")
                                   : dyti_hf_config_read(path, &arch);

    st = st != DYT_OK ? st : dyti_model_build(&arch, &s->model);
    st = st != DYT_OK ? st
                      : dyti_path_join(manifest, path, DYTI_SHARDS_MANIFEST);
    st = st != DYT_OK ? st : check_manifest(path, manifest);
    if (st == DYT_OK) {
        st = dyti_file_exists(manifest)
                 ? dyti_source_open_shards(s, path, manifest)
                 : open_directory(s, path);
    }
    if (st == DYT_OK) {
        *out_source = s;
        return DYT_OK;
    }
    dyti_model_source_close(s);
    if (st == DYT_ERR_IO) { /* the directory is wrong, not its reading */
        snprintf(text, sizeof(text), "%s", dyti_error_message());
        st = dyti_error_adopt(DYT_ERR_FORMAT, text);
    }
    return st;
}

void dyti_model_source_close(struct dyti_model_source *s)
{
    if (s == NULL) {
        return;
    }
    for (int kind = 0; kind < DYTI_KIND_COUNT; kind++) {
        dyti_safetensors_close(s->whole[kind]);
    }
    for (uint32_t r = 0; s->file != NULL && r < s->manifest.world; r++) {
        dyti_safetensors_close(s->file[r]);
    }
    free(s->file);
    free(s->piece);
    dyti_layout_destroy(s->layout);
    dyti_shards_manifest_fini(&s->manifest);
    dyti_model_destroy(s->model);
    free(s);
}

const struct dyti_model *dyti_model_source_model(
    const struct dyti_model_source *source)
{
    return source->model;
}

uint32_t dyti_model_source_kinds(const struct dyti_model_source *source)
{
    return source->kinds;
}

const struct dyti_shards_manifest *dyti_model_source_manifest(
    const struct dyti_model_source *source)
{
    return source->sharded ? &source->manifest : NULL;
}

enum dyti_dtype dyti_model_source_dtype(const struct dyti_model_source *s,
                                        enum dyti_kind kind, uint32_t tensor)
{
    const struct dyti_tensor *t = &s->model->tensor[tensor];
    const struct dyti_safetensor *have;

    if (s->sharded) {
        return kind == DYTI_PARAM && t->fixed_dtype
                   ? t->dtype
                   : s->layout->desc.dtype[kind];
    }
    kind = kind == DYTI_MASTER && s->master_is_param ? DYTI_PARAM : kind;
    have = whole_tensor(s, kind, tensor);
    return have == NULL ? DYTI_F32 : have->dtype;
}

enum dyt_status dyti_model_source_read(const struct dyti_model_source *s,
                                       enum dyti_kind kind, uint32_t tensor,
                                       const struct dyt_box *box,
                                       enum dyti_dtype dtype, void *dst,
                                       const int64_t *stride)
{
    enum dyt_status st =
        s->sharded
            ? dyti_source_read_shards(s, kind, tensor, box, dtype, dst, stride)
            : read_whole(s, kind, tensor, box, dtype, dst, stride);

    if (st != DYT_OK) {
        DYTI_NOTE("reading %s of %s", dyti_kind_name(kind),
                  s->model->tensor[tensor].name);
    }
    return st;
}
