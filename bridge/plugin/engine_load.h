/* A generation engine that somebody else wrote: found, opened, checked.
 * Answers "is this shared object an engine that we can drive?" */
#ifndef DYTI_PLUGIN_ENGINE_LOAD_H
#define DYTI_PLUGIN_ENGINE_LOAD_H

#include "base/error.h"

#include <dynatrain/engine.h>

/**
 * Load `path` and ask its one symbol for the table.  The object stays loaded
 * for ever: it may have started threads.
 *
 * @param out_ops  the plugin's; static
 * @return DYT_ERR_CONFIG       it cannot be opened, or is no engine: the text
 *                              has the loader's reason, or the missing symbol
 * @return DYT_ERR_ABI          its table is shorter than the first release's
 *                              (both sizes), or lacks a function, by name
 * @return DYT_ERR_UNSUPPORTED  it cannot work here; the text is its own
 */
enum dyt_status dyti_engine_load(const char *path,
                                 const struct dyt_engine_ops **out_ops);

/* The same checks of a table that is here already; `path` names it. */
enum dyt_status dyti_engine_check(const struct dyt_engine_ops *ops,
                                  const char *path);

#endif /* DYTI_PLUGIN_ENGINE_LOAD_H */
