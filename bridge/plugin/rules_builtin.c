/* The tables that come with the library: configs/rules/, made into rows by the
 * build. */
#include "plugin/rules.h"

#include <stdio.h>
#include <string.h>

#include "plugin/rules_rows.inc"

#define TABLE_COUNT (sizeof(tables) / sizeof(tables[0]))

enum dyt_status dyt_rules_builtin(const char *name,
                                  const struct dyt_rules **out_rules)
{
    char known[1200] = "";
    size_t used = 0;

    for (size_t i = 0; name != NULL && i < TABLE_COUNT; i++) {
        if (strcmp(tables[i].family, name) == 0) {
            *out_rules = &tables[i];
            return DYT_OK;
        }
    }
    for (size_t i = 0; i < TABLE_COUNT && used + 72 < sizeof(known); i++) {
        used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%.64s",
                                 i == 0 ? "" : ", ", tables[i].family);
    }
    return DYTI_FAIL(DYT_ERR_INVALID,
                     "there is no table of rules \"%.255s\": there are %s; "
                     "dyt_session_publish() takes a table of your own too",
                     name == NULL ? "(none)" : name, known);
}
