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
    *out_module = module;
    return DYT_OK;
}

/* ---- groups ---------------------------------------------------------------
 */

struct group {
    const struct dyti_module *module;
    void *self;
};

static enum dyt_status adopt(const struct dyti_module *module,
                             enum dyt_status st)
{
    return st == DYT_OK || st == DYT_PENDING
               ? st
               : dyti_error_adopt(st, module->error_message());
}

static enum dyt_status group_barrier(void *self)
{
    const struct group *g = self;

    return adopt(g->module, g->module->group->barrier(g->self));
}

static enum dyt_status group_broadcast(void *self, void *buf,
                                       uint64_t size_bytes, uint32_t root)
{
    const struct group *g = self;

    return adopt(g->module,
                 g->module->group->broadcast(g->self, buf, size_bytes, root));
}

static enum dyt_status group_all_gather(void *self, const void *in, void *out,
                                        const uint64_t *counts_bytes)
{
    const struct group *g = self;

    return adopt(g->module,
                 g->module->group->all_gather(g->self, in, out, counts_bytes));
}

static enum dyt_status group_reduce_scatter(void *self, const void *in,
                                            void *out, const uint64_t *counts,
                                            enum dyti_reduce op)
{
    const struct group *g = self;

    return adopt(g->module, g->module->group->reduce_scatter(g->self, in, out,
                                                             counts, op));
}

static enum dyt_status group_all_reduce(void *self, void *buf, uint64_t count,
                                        enum dyti_reduce op)
{
    const struct group *g = self;

    return adopt(g->module,
                 g->module->group->all_reduce(g->self, buf, count, op));
}

static enum dyt_status group_exchange(void *self,
                                      const struct dyti_p2p *message,
                                      size_t count)
{
    const struct group *g = self;

    return adopt(g->module,
                 g->module->group->exchange(g->self, message, count));
}

static enum dyt_status group_post(void *self, const struct dyti_p2p *message,
                                  uint64_t *out_ticket)
{
    const struct group *g = self;

    return adopt(g->module,
                 g->module->group->post(g->self, message, out_ticket));
}

static enum dyt_status group_poll(void *self, uint64_t ticket)
{
    const struct group *g = self;

    return adopt(g->module, g->module->group->poll(g->self, ticket));
}

static enum dyt_status group_wait(void *self)
{
    const struct group *g = self;

    return adopt(g->module, g->module->group->wait(g->self));
}

static void group_close(void *self)
{
    struct group *g = self;

    if (g != NULL) {
        g->module->group->close(g->self);
        free(g);
    }
}

static void group_traffic(void *self, struct dyti_group_traffic *out_traffic)
{
    const struct group *g = self;

    g->module->group->traffic(g->self, out_traffic);
}

static void group_cancel(void *self)
{
    const struct group *g = self;

    g->module->group->cancel(g->self);
}

/* Opened by the function below, which knows the module. */
static const struct dyti_group_ops ops = {.struct_size = sizeof(ops),
                                          .name = "module",
                                          .caps = DYTI_GROUP_CAP_RANK_ORDER,
                                          .close = group_close,
                                          .barrier = group_barrier,
                                          .broadcast = group_broadcast,
                                          .all_gather = group_all_gather,
                                          .reduce_scatter =
                                              group_reduce_scatter,
                                          .all_reduce = group_all_reduce,
                                          .exchange = group_exchange,
                                          .traffic = group_traffic,
                                          .post = group_post,
                                          .poll = group_poll,
                                          .wait = group_wait,
                                          .cancel = group_cancel};

enum dyt_status dyti_module_group(const struct dyti_module *module,
                                  const struct dyti_group_params *params,
                                  struct dyti_group *out_group)
{
    struct group *g = calloc(1, sizeof(*g));
    enum dyt_status st;

    if (g == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a group");
    }
    g->module = module;
    st = adopt(module, module->group->open(params, &g->self));
    if (st != DYT_OK) {
        free(g);
        return st;
    }
    *out_group = (struct dyti_group){
        .ops = &ops, .self = g, .rank = params->rank, .size = params->size};
    return DYT_OK;
}
