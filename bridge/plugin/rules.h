/* What rules.c shares with its neighbours. */
#ifndef DYTI_PLUGIN_RULES_H
#define DYTI_PLUGIN_RULES_H

#include "plugin/faults.h"
#include "plugin/resolve.h"

/* A piece as it is found: a copy is one that may lie there beside another (a
 * redundant expert, a tied head with memory of its own). */
struct dyti_placed {
    struct dyti_row_piece piece;
    bool copy;
};

/* Elements of one tensor and kind that two pieces of a member both hold, each
 * named with its rows. */
enum dyt_status dyti_doubles_find(const struct dyti_model *catalogue,
                                  const struct dyt_view *view,
                                  const struct dyti_placed *placed,
                                  size_t count, struct dyti_found *found);

/* What of a table of rules cannot be used, wherever it came from: sizes,
 * patterns, numbers.  DYT_ERR_INVALID lists up to ten faults. */
enum dyt_status dyti_rules_check(const struct dyt_rules *rules);

/* A row of layers that are quantised or belong to an adapter, by its name:
 * what it is and the remedy, NULL for any other. */
const char *dyti_name_refused(const char *name);
/* Is it of a speculative draft model, by its name?  Those are a target of their
 * own. */
bool dyti_name_is_draft(const char *name);

#endif /* DYTI_PLUGIN_RULES_H */
