/* Writing a checkpoint by all its owners. */
#include "format/checkpoint_dir.h"

#include "format/json_file.h"
#include "format/weights.h"

#include "base/log.h"

#include "base/banned.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

/* The tensor files, and the kind in each. */
static const struct part {
    const char *name;
    enum dyti_kind kind;
} parts[] = {
    {"model.safetensors", DYTI_PARAM},
    {"master.safetensors", DYTI_MASTER},
    {"exp_avg.safetensors", DYTI_EXP_AVG},
    {"exp_avg_sq.safetensors", DYTI_EXP_AVG_SQ},
};
#define PART_COUNT (sizeof(parts) / sizeof(parts[0]))

const char *dyti_checkpoint_kind_file(enum dyti_kind kind)
{
    for (size_t i = 0; i < PART_COUNT; i++) {
        if (parts[i].kind == kind) {
            return parts[i].name;
        }
    }
    return NULL;
}

static bool part_is_there(const struct part *part,
                          const struct dyti_checkpoint_spec *spec)
{
    if (part->kind == DYTI_PARAM) {
        return true;
    }
    return spec->optimizer &&
           (part->kind != DYTI_MASTER || spec->dtype != DYTI_F32);
}

static enum dyti_dtype part_dtype(const struct part *part,
                                  const struct dyti_checkpoint_spec *spec)
{
    return part->kind == DYTI_PARAM ? spec->dtype : DYTI_F32;
}

/* ---- prepare ------------------------------------------------------------ */

static enum dyt_status make_part(const char *path, const struct part *part,
                                 const struct dyti_checkpoint_spec *spec)
{
    struct dyti_safetensors_plan plan = {0};
    char file[DYTI_PATH_BYTES];
    int fd = -1;
    enum dyt_status st = dyti_path_join(file, path, part->name);

    if (st == DYT_OK) {
        st = dyti_weights_plan(spec->model, part_dtype(part, spec), &plan);
    }
    if (st == DYT_OK) {
        st = dyti_safetensors_create(file, &plan, &fd);
    }
    if (st == DYT_OK) {
        close(fd);
    }
    dyti_safetensors_plan_fini(&plan);
    return st;
}

/* The model's config.json with the dtype that is stored. */
static enum dyt_status copy_config(const char *model_dir, const char *path,
                                   enum dyti_dtype dtype)
{
    const char *name = dtype == DYTI_BF16  ? "bfloat16"
                       : dtype == DYTI_F16 ? "float16"
                                           : "float32";
    char from[DYTI_PATH_BYTES], to[DYTI_PATH_BYTES];
    json_t *json = NULL;
    enum dyt_status st = dyti_path_join(from, model_dir, "config.json");

    if (st == DYT_OK) {
        st = dyti_path_join(to, path, "config.json");
    }
    if (st == DYT_OK) {
        st = dyti_json_load(from, &json);
    }
    if (st == DYT_OK) {
        json_object_del(json, "dtype");
        st = dyti_json_put(json, "torch_dtype", json_string(name));
    }
    if (st == DYT_OK) {
        st = dyti_json_save(to, json);
    }
    json_decref(json);
    return st;
}

static enum dyt_status fill_dir(const char *path, const char *model_dir,
                                const struct dyti_checkpoint_spec *spec)
{
    bool copied = false;
    enum dyt_status st = copy_config(model_dir, path, spec->dtype);

    for (size_t i = 0; dyti_checkpoint_side_file(i) != NULL && st == DYT_OK;
         i++) {
        st = dyti_checkpoint_copy(model_dir, path, dyti_checkpoint_side_file(i),
                                  &copied);
    }
    for (size_t i = 0; i < PART_COUNT && st == DYT_OK; i++) {
        if (part_is_there(&parts[i], spec)) {
            st = make_part(path, &parts[i], spec);
        }
    }
    return st;
}

enum dyt_status dyti_checkpoint_prepare(const char *root, uint64_t step,
                                        const char *model_dir,
                                        const struct dyti_checkpoint_spec *spec,
                                        char out_path[DYTI_PATH_BYTES])
{
    char path[DYTI_PATH_BYTES], name[64];
    enum dyt_status st = dyti_dir_make(root);

    dyti_checkpoint_name(step, true, name);
    if (st == DYT_OK) {
        st = dyti_path_join(path, root, name);
    }
    if (st == DYT_OK) {
        st = dyti_checkpoint_clean(root);
    }
    if (st == DYT_OK) {
        st = dyti_dir_make(path);
    }
    if (st != DYT_OK) {
        return st;
    }
    st = fill_dir(path, model_dir, spec);
    if (st != DYT_OK) {
        DYTI_NOTE("preparing checkpoint %s", path);
        dyti_checkpoint_abort(path);
        return st;
    }
    memcpy(out_path, path, sizeof(path));
    return DYT_OK;
}

/* Tidying up after a failure must not hide it: the first error stays. */
void dyti_checkpoint_abort(const char *path)
{
    char kept[2048];
    bool failed = dyti_error_text()[0] != '\0';

    snprintf(kept, sizeof(kept), "%s", dyti_error_text());
    if (dyti_checkpoint_remove(path) != DYT_OK && failed) {
        (void)dyti_error_adopt(DYT_ERR_IO, kept);
    }
}

/* ---- write -------------------------------------------------------------- */

/* Several ranks may hold the same elements: bit-equal, so that who writes them
 * does not matter; where it is plain that another rank does, it is left to it.
 */
struct ownership {
    const struct dyti_checkpoint_spec *spec;
    const struct dyti_layout *layout;
    const struct dyti_part *part;
    bool cut_over_dp; /* this kind is ZeRO's: each dp rank has its own cut */
};

static bool is_cut(const struct dyti_tensor *tensor)
{
    for (uint32_t i = 0; i < tensor->segment_count; i++) {
        if (tensor->segment[i].cut != DYTI_CUT_NONE) {
            return true;
        }
    }
    return false;
}

static bool owns(void *arg, const struct dyti_shard *shard)
{
    const struct ownership *own = arg;
    const struct dyti_tensor *tensor =
        &own->layout->model->tensor[shard->tensor];

    if (own->spec->progress != NULL) {
        own->spec->progress(own->spec->progress_arg);
    }
    if (!own->cut_over_dp && own->part->dp_rank != 0) {
        return false;
    }
    if (tensor->on_first && tensor->on_last && own->part->pp_rank != 0) {
        return false;
    }
    return is_cut(tensor) || own->part->tp_rank == 0;
}

/* Which of the rank's kinds a file is written from. */
static enum dyti_kind source_kind(const struct part *part,
                                  const struct dyti_view *view)
{
    bool weights = part->kind == DYTI_PARAM || part->kind == DYTI_MASTER;

    if (!weights) {
        return part->kind;
    }
    return view->region_bytes[DYTI_MASTER] > 0 ? DYTI_MASTER : DYTI_PARAM;
}

static enum dyt_status write_fd(int fd, const char *file,
                                const struct part *part,
                                const struct dyti_checkpoint_spec *spec,
                                const struct dyti_layout *layout, uint32_t rank,
                                const void *const base[DYTI_KIND_COUNT])
{
    const struct dyti_view *view = dyti_layout_view(layout, rank);
    enum dyti_kind kind = source_kind(part, view);
    struct ownership own = {spec, layout, &view->part,
                            layout->desc.zero > 0 && kind != DYTI_PARAM};
    struct dyti_safetensors_plan plan = {0};
    enum dyt_status st;

    if (view->region_bytes[kind] > 0 && base[kind] == NULL) {
        return DYTI_FAIL(DYT_ERR_INVALID, "%s: rank %u gave no %s", file, rank,
                         dyti_kind_name(kind));
    }
    st = dyti_weights_plan(spec->model, part_dtype(part, spec), &plan);
    if (st == DYT_OK) {
        st = dyti_weights_write(fd, file, &plan, view, kind, base[kind], owns,
                                &own);
    }
    if (st == DYT_OK && fsync(fd) != 0) {
        st = DYTI_FAIL(DYT_ERR_IO, "%s: fsync: %s", file, strerror(errno));
    }
    dyti_safetensors_plan_fini(&plan);
    return st;
}

static enum dyt_status write_part(const char *path, const struct part *part,
                                  const struct dyti_checkpoint_spec *spec,
                                  const struct dyti_layout *layout,
                                  uint32_t rank,
                                  const void *const base[DYTI_KIND_COUNT])
{
    char file[DYTI_PATH_BYTES];
    int fd;
    enum dyt_status st = dyti_path_join(file, path, part->name);

    if (st != DYT_OK) {
        return st;
    }
    fd = open(file, O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        return DYTI_FAIL(DYT_ERR_IO, "%s: %s", file, strerror(errno));
    }
    st = write_fd(fd, file, part, spec, layout, rank, base);
    if (close(fd) != 0 && st == DYT_OK) {
        st = DYTI_FAIL(DYT_ERR_IO, "%s: close: %s", file, strerror(errno));
    }
    return st;
}

enum dyt_status dyti_checkpoint_write(const char *path,
                                      const struct dyti_checkpoint_spec *spec,
                                      const struct dyti_layout *layout,
                                      uint32_t rank,
                                      const void *const base[DYTI_KIND_COUNT])
{
    enum dyt_status st = DYT_OK;

    if (!dyti_layout_view(layout, rank)->part.member) {
        return DYT_OK;
    }
    for (size_t i = 0; i < PART_COUNT && st == DYT_OK; i++) {
        if (part_is_there(&parts[i], spec)) {
            st = write_part(path, &parts[i], spec, layout, rank, base);
        }
    }
    if (st != DYT_OK) {
        DYTI_NOTE("writing rank %u's part of checkpoint %s", rank, path);
    }
    return st;
}

/* ---- finish ------------------------------------------------------------- */

/* Root and step of a temporary path. */
static enum dyt_status split_path(const char *path, char root[DYTI_PATH_BYTES],
                                  uint64_t *out_step)
{
    const char *slash = strrchr(path, '/');

    if (slash == NULL ||
        !dyti_checkpoint_name_parse(slash + 1, true, out_step)) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "%s: not a checkpoint that is being written", path);
    }
    snprintf(root, DYTI_PATH_BYTES, "%.*s", (int)(slash - path), path);
    return DYT_OK;
}

/* The new one is safe: what else goes wrong is said, and tried again next
 * time. */
static void complain(enum dyt_status st)
{
    if (st != DYT_OK) {
        DYTI_LOG(DYTI_LOG_WARN, "checkpoint", "old checkpoint stays %s",
                 dyti_error_message());
    }
}

/* One of the same step (a run that was resumed before it) trades places with
 * the new one in one move and is removed then. */
static enum dyt_status make_visible(const char *from, const char *to)
{
    if (rename(from, to) == 0) {
        return DYT_OK;
    }
    if ((errno == ENOTEMPTY || errno == EEXIST) &&
        renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE) == 0) {
        complain(dyti_checkpoint_remove(from)); /* now the old one */
        return DYT_OK;
    }
    if (errno == EINVAL || errno == ENOSYS) { /* a filesystem without it */
        if (dyti_checkpoint_remove(to) == DYT_OK && rename(from, to) == 0) {
            return DYT_OK;
        }
    }
    return DYTI_FAIL(DYT_ERR_IO, "%s: rename to %s: %s", from, to,
                     strerror(errno));
}

enum dyt_status dyti_checkpoint_finish(
    const char *path, const struct dyti_checkpoint_state *state,
    uint32_t keep_last, uint32_t keep_best, char out_path[DYTI_PATH_BYTES])
{
    char root[DYTI_PATH_BYTES], final[DYTI_PATH_BYTES], name[64];
    uint64_t step = 0;
    enum dyt_status st = split_path(path, root, &step);

    if (st == DYT_OK) {
        dyti_checkpoint_name(step, false, name);
        st = dyti_path_join(final, root, name);
    }
    if (st == DYT_OK) {
        st = dyti_checkpoint_state_write(path, state);
    }
    if (st == DYT_OK) {
        st = dyti_checkpoint_mark(path, step);
    }
    if (st == DYT_OK) {
        st = make_visible(path, final);
    }
    if (st == DYT_OK) {
        st = dyti_dir_sync(root);
    }
    if (st == DYT_OK) {
        complain(dyti_checkpoint_prune(root, step, keep_last, keep_best));
    }
    if (st != DYT_OK) {
        DYTI_NOTE("finishing checkpoint %s", path);
        return st;
    }
    memcpy(out_path, final, sizeof(final));
    return DYT_OK;
}
