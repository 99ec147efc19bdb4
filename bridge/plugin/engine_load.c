#include "plugin/engine_load.h"

#include "base/log.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Of the first release: everything up to and including resume. */
#define LEAST_BYTES                                                            \
    (offsetof(struct dyt_engine_ops, resume) +                                 \
     sizeof(((struct dyt_engine_ops *)0)->resume))

/* ---- what is lent -------------------------------------------------------- */

static void lend_log(int level, const char *line)
{
    static const enum dyti_log_level levels[] = {DYTI_LOG_ERROR, DYTI_LOG_WARN,
                                                 DYTI_LOG_INFO, DYTI_LOG_DEBUG};
    size_t most = sizeof(levels) / sizeof(levels[0]) - 1;
    size_t at = level < 0 ? 0 : (size_t)level > most ? most : (size_t)level;

    DYTI_LOG(levels[at], "engine", "%s", line == NULL ? "" : line);
}

static enum dyt_status lend_fail(enum dyt_status status, const char *text)
{
    return DYTI_FAIL(status == DYT_OK ? DYT_ERR_PEER : status, "%s",
                     text == NULL ? "an engine failed without a word" : text);
}

static const struct dyt_engine_host host = {
    .struct_size = sizeof(host), .log = lend_log, .fail = lend_fail};

/* ---- checks -------------------------------------------------------------- */

enum dyt_status dyti_engine_check(const struct dyt_engine_ops *ops,
                                  const char *path)
{
    struct {
        const char *name;
        bool there;
    } function[] = {
        {"name", ops->struct_size >= LEAST_BYTES && ops->name != NULL},
        {"open", ops->struct_size >= LEAST_BYTES && ops->open != NULL},
        {"close", ops->struct_size >= LEAST_BYTES && ops->close != NULL},
        {"submit", ops->struct_size >= LEAST_BYTES && ops->submit != NULL},
        {"collect", ops->struct_size >= LEAST_BYTES && ops->collect != NULL},
        {"pause", ops->struct_size >= LEAST_BYTES && ops->pause != NULL},
        {"update", ops->struct_size >= LEAST_BYTES && ops->update != NULL},
        {"resume", ops->struct_size >= LEAST_BYTES && ops->resume != NULL},
    };

    if (ops->struct_size < LEAST_BYTES) {
        return DYTI_FAIL(DYT_ERR_ABI,
                         "%s: its table has %u bytes, the first release's has "
                         "%zu: build it against dynatrain/engine.h",
                         path, ops->struct_size, LEAST_BYTES);
    }
    for (size_t i = 0; i < sizeof(function) / sizeof(function[0]); i++) {
        if (!function[i].there) {
            return DYTI_FAIL(DYT_ERR_ABI,
                             "%s: its table has no `%s`: all but release and "
                             "restore must be there",
                             path, function[i].name);
        }
    }
    return DYT_OK;
}

enum dyt_status dyti_engine_load(const char *path,
                                 const struct dyt_engine_ops **out_ops)
{
    const struct dyt_engine_ops *ops;
    union {
        void *symbol;
        dyt_engine_entry_fn call;
    } entry;
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    enum dyt_status st;

    if (handle == NULL) {
        return DYTI_FAIL(DYT_ERR_CONFIG, "cannot open the engine: %s",
                         dlerror());
    }
    entry.symbol = dlsym(handle, DYT_ENGINE_ENTRY_NAME);
    if (entry.symbol == NULL) {
        dlclose(handle); /* it was never called */
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "%s: is no engine: it has no symbol "
                         "%s (dynatrain/engine.h)",
                         path, DYT_ENGINE_ENTRY_NAME);
    }
    dyti_error_adopt(DYT_OK, ""); /* what is said from here on is its own */
    ops = entry.call(&host);
    if (ops == NULL) {
        char why[1024];

        snprintf(why, sizeof(why), "%s", dyti_error_message());
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED, "%s: cannot work here%s%s", path,
                         why[0] == '\0' ? "" : ": ", why);
    }
    st = dyti_engine_check(ops, path);
    if (st == DYT_OK) {
        *out_ops = ops;
    }
    return st;
}
