/* Where the files of a model are: a folder as given, or one in the cache. */
#include "format/job.h"

#include "base/banned.h"
#include "base/env.h"
#include "format/file.h"

#include <sys/stat.h>

static bool is_folder(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static enum dyt_status give(const char *path, char **out_path)
{
    char *twin = strdup(path);

    if (twin == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "the path %s", path);
    }
    *out_path = twin;
    return DYT_OK;
}

/* CACHE/models/MODEL into buf. */
static enum dyt_status cached(const char *model, const char *cache,
                              char buf[DYTI_PATH_BYTES])
{
    char own[DYTI_PATH_BYTES], models[DYTI_PATH_BYTES];
    enum dyt_status st = DYT_OK;

    if (cache == NULL) {
        st = dyti_env_cache_dir(own, sizeof(own));
        cache = own;
    }
    if (st == DYT_OK) {
        st = dyti_path_join(models, cache, "models");
    }
    return st == DYT_OK ? dyti_path_join(buf, models, model) : st;
}

enum dyt_status dyti_model_path(const char *model, const char *cache,
                                char **out_path)
{
    char path[DYTI_PATH_BYTES];

    if (is_folder(model)) {
        return give(model, out_path);
    }
    if (model[0] == '\0' || strchr(model, '/') != NULL) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "model \"%s\" is no folder, seen from where you are: "
                         "give a Hugging Face directory, or make one with "
                         "`dynatrain model init`",
                         model);
    }
    if (cached(model, cache, path) == DYT_OK) {
        if (is_folder(path)) {
            return give(path, out_path);
        }
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "model \"%s\" is neither a folder nor in the cache "
                         "(%s): type `make model`, or give a Hugging Face "
                         "directory",
                         model, path);
    }
    return DYTI_FAIL(DYT_ERR_CONFIG,
                     "model \"%s\" is no folder, and there is no cache: set "
                     "DYNATRAIN_CACHE, or give a Hugging Face directory",
                     model);
}
