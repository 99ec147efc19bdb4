/* Tables of rules from TOML (docs/plugin-rules.md): a server's parameters as
 * parts of VPS tensors.  The command and the build read them; the shared
 * library does not. */
#ifndef DYTI_FORMAT_RULES_FILE_H
#define DYTI_FORMAT_RULES_FILE_H

#include "format/toml.h"

#include <dynatrain/rules.h>

struct dyti_rules_file {
    struct dyt_rules rules; /* borrows from the rest */
    const char **also;      /* [also_count] other names of the family */
    uint32_t also_count;
    struct dyt_rule *rule;
    struct dyt_rule_part *part;
    struct dyti_toml root; /* the strings */
};

/**
 * @return DYT_ERR_IO      the file cannot be read
 * @return DYT_ERR_CONFIG  names file, line, column, key and what it must be
 */
enum dyt_status dyti_rules_load(const char *path,
                                struct dyti_rules_file *out_file);
/* The same from a text; `name` is shown in messages. */
enum dyt_status dyti_rules_parse(const char *text, size_t text_bytes,
                                 const char *name,
                                 struct dyti_rules_file *out_file);
/* Zeroed is fine, and what it leaves. */
void dyti_rules_file_fini(struct dyti_rules_file *file);

#endif /* DYTI_FORMAT_RULES_FILE_H */
