/* Reading a checkpoint back, by ranks that need not be those who wrote it, and
 * its model alone as a directory. */
#include "format/checkpoint_dir.h"

#include "format/weights.h"

#include "base/banned.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- load --------------------------------------------------------------- */

/* The file that a kind is read from.  Weights that are stored as f32 are the
 * master too; `param` is the master rounded, and read as stored. */
static enum dyt_status open_kind(const char *path, enum dyti_kind kind,
                                 struct dyti_safetensors **out)
{
    char file[DYTI_PATH_BYTES];
    const char *name = dyti_checkpoint_kind_file(kind);
    enum dyt_status st = dyti_path_join(file, path, name);

    if (st == DYT_OK && kind == DYTI_MASTER && !dyti_file_exists(file)) {
        name = dyti_checkpoint_kind_file(DYTI_PARAM);
        st = dyti_path_join(file, path, name);
    }
    if (st == DYT_OK && !dyti_file_exists(file)) {
        st = DYTI_FAIL(DYT_ERR_STATE,
                       "%s: this checkpoint has no %s (weights only)", path,
                       dyti_kind_name(kind));
    }
    return st == DYT_OK ? dyti_safetensors_open(file, out) : st;
}

/* A narrower kind is never the source of a wider one. */
static enum dyt_status check_width(const struct dyti_safetensors *set,
                                   enum dyti_kind kind)
{
    for (size_t i = 0; i < dyti_safetensors_count(set); i++) {
        const struct dyti_safetensor *tensor = dyti_safetensors_at(set, i);

        if (kind != DYTI_PARAM && tensor->dtype != DYTI_F32) {
            return DYTI_FAIL(DYT_ERR_STATE,
                             "%s: %s is %s; %s needs f32 (weights only)",
                             dyti_safetensors_file(set, tensor->file),
                             tensor->name, tensor->type, dyti_kind_name(kind));
        }
    }
    return DYT_OK;
}

static enum dyt_status load_kind(const char *path,
                                 const struct dyti_model *model,
                                 const struct dyti_view *view,
                                 enum dyti_kind kind, void *base)
{
    struct dyti_safetensors *set = NULL;
    enum dyt_status st = open_kind(path, kind, &set);

    if (st == DYT_OK) {
        st = check_width(set, kind);
    }
    if (st == DYT_OK) {
        st = dyti_weights_check(set, model);
    }
    if (st == DYT_OK) {
        st = dyti_weights_load_set(set, model, view, kind, base);
    }
    dyti_safetensors_close(set);
    return st;
}

enum dyt_status dyti_checkpoint_load(const char *path,
                                     const struct dyti_model *model,
                                     const struct dyti_view *view,
                                     void *const base[DYTI_KIND_COUNT])
{
    enum dyt_status st = DYT_OK;

    for (int kind = 0; kind < DYTI_KIND_COUNT && st == DYT_OK; kind++) {
        if (kind != DYTI_GRAD && base[kind] != NULL &&
            view->region_bytes[kind] > 0) {
            st = load_kind(path, model, view, (enum dyti_kind)kind, base[kind]);
        }
    }
    if (st != DYT_OK) {
        DYTI_NOTE("loading checkpoint %s", path);
    }
    return st;
}

/* ---- export ------------------------------------------------------------- */

static enum dyt_status copy_model(const char *path, const char *to)
{
    static const char *const needed[] = {"config.json", "model.safetensors"};
    bool copied = false;
    enum dyt_status st = dyti_checkpoint_verify_file(path, needed[1]);

    for (size_t i = 0; dyti_checkpoint_side_file(i) != NULL && st == DYT_OK;
         i++) {
        st = dyti_checkpoint_copy(path, to, dyti_checkpoint_side_file(i),
                                  &copied);
    }
    for (size_t i = 0; i < 2 && st == DYT_OK; i++) {
        st = dyti_checkpoint_copy(path, to, needed[i], &copied);
        if (st == DYT_OK && !copied) {
            st =
                DYTI_FAIL(DYT_ERR_FORMAT, "%s: %s is missing", path, needed[i]);
        }
    }
    return st == DYT_OK ? dyti_dir_sync(to) : st;
}

enum dyt_status dyti_checkpoint_export(const char *path, const char *to)
{
    char temp[DYTI_PATH_BYTES];
    struct stat info;
    int need = snprintf(temp, sizeof(temp), "%s.tmp.%ld", to, (long)getpid());
    enum dyt_status st;

    if (need < 0 || (size_t)need >= sizeof(temp)) {
        return DYTI_FAIL(DYT_ERR_INVALID, "path too long: %.200s", to);
    }
    if (stat(to, &info) == 0) {
        return DYTI_FAIL(DYT_ERR_STATE, "%s: is there already", to);
    }
    st = dyti_dir_make(temp);
    if (st == DYT_OK) {
        st = copy_model(path, temp);
    }
    if (st == DYT_OK && rename(temp, to) != 0) {
        st = DYTI_FAIL(DYT_ERR_IO, "%s: rename: %s", to, strerror(errno));
    }
    if (st != DYT_OK) {
        DYTI_NOTE("exporting %s to %s", path, to);
        dyti_checkpoint_abort(temp);
    }
    return st;
}
