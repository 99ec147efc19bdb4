#include "lib/module.h"

#include "base/env.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES 4096

/* ---- where ----------------------------------------------------------------
 */

/* The folder of the library or program that this code is in. */
static bool own_folder(char out[PATH_BYTES])
{
    Dl_info info;
    char *slash;

    if (dladdr((const void *)&dyti_module_exists, &info) == 0 ||
        info.dli_fname == NULL ||
        (strchr(info.dli_fname, '/') == NULL
             ? readlink("/proc/self/exe", out, PATH_BYTES - 1) < 0
             : snprintf(out, PATH_BYTES, "%s", info.dli_fname) >= PATH_BYTES)) {
        return false;
    }
    slash = strrchr(out, '/');
    if (slash != NULL) {
        *slash = '\0';
    }
    return slash != NULL;
}

/* The first place where it is; false: none. */
static bool find(const char *name, char out[PATH_BYTES])
{
    static const char *const below[] = {"", "/../lib"};
    const char *given = dyti_env_text(DYTI_ENV_MODULES);
    char own[PATH_BYTES] = "";

    if (given != NULL) {
        snprintf(out, PATH_BYTES, "%s/libdynatrain-%s.so", given, name);
        return access(out, R_OK) == 0;
    }
    for (size_t i = 0; i < sizeof(below) / sizeof(below[0]) && own_folder(own);
         i++) {
        if (snprintf(out, PATH_BYTES, "%s%s/libdynatrain-%s.so", own, below[i],
                     name) < PATH_BYTES &&
            access(out, R_OK) == 0) {
            return true;
        }
    }
    return false;
}

bool dyti_module_exists(const char *name)
{
    char path[PATH_BYTES];

    return find(name, path);
}

/* Where a build gets this module. */
static const char *how_to_get(const char *name)
{
    static const char *const way[][2] = {
        {"gloo", "where libgloo-dev is installed, or with -DDYT_GLOO=on"},
        {"cuda", "where a CUDA toolkit is, or with -DDYT_CUDA=on"},
    };

    for (size_t i = 0; i < sizeof(way) / sizeof(way[0]); i++) {
        if (strcmp(way[i][0], name) == 0) {
            return way[i][1];
        }
    }
    return "by whoever offers it";
}

/* POSIX lets a function's address pass through an object pointer. */
static dyti_module_entry_fn entry_of(void *handle)
{
    union {
        void *object;
        dyti_module_entry_fn function;
    } at = {.object = dlsym(handle, DYTI_MODULE_ENTRY)};

    return at.function;
}

enum dyt_status dyti_module_open(const char *name,
                                 const struct dyti_module **out_module)
{
    char path[PATH_BYTES];
    const struct dyti_module *module;
    dyti_module_entry_fn entry;
    void *handle;

    if (!find(name, path)) {
        snprintf(path, sizeof(path), "libdynatrain-%s.so", name);
    }
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle == NULL) {
        const char *why = dlerror();

        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "the module %s: %s (it is built %s; DYNATRAIN_MODULES "
                         "names its folder)",
                         path, why != NULL ? why : "not found",
                         how_to_get(name));
    }
    entry = entry_of(handle);
    module = entry != NULL ? entry() : NULL;
    if (module == NULL || module->abi != DYTI_MODULE_ABI ||
        module->struct_size < sizeof(*module)) {
        return DYTI_FAIL(DYT_ERR_ABI,
                         "the module %s is of another version of dynatrain: "
                         "its tables are %u, %u are needed",
                         path, module != NULL ? module->abi : 0,
                         DYTI_MODULE_ABI);
    }
    if (module->errors_to != NULL) {
        module->errors_to(dyti_error_take);
    }
    *out_module = module;
    return DYT_OK;
}

enum dyt_status dyti_module_group(const struct dyti_module *module,
                                  const struct dyti_group_params *params,
                                  struct dyti_group *out_group)
{
    void *self = NULL;
    enum dyt_status st = module->group->open(params, &self);

    if (st == DYT_OK) {
        *out_group = (struct dyti_group){.ops = module->group,
                                         .self = self,
                                         .rank = params->rank,
                                         .size = params->size};
    }
    return st;
}
