/* Tables of rules, before any is applied; and names of rows that nobody can
 * switch. */
#include "plugin/rules.h"

#include "plugin/pattern.h"
#include "plugin/rows.h"

#include <string.h>

static const char *words(const char *text)
{
    return text == NULL ? "(none)" : text;
}

static void check_part(const struct dyt_rule *rule, uint32_t i,
                       struct dyti_found *f)
{
    const struct dyt_rule_part *p = dyti_part_at(rule, i);

    if (p->struct_size < DYTI_PART_BYTES_0_1) {
        dyti_found_add(f, DYT_ERR_INVALID,
                       "rule %s, part %u: struct_size %u, the first release "
                       "had %u",
                       rule->name, i, p->struct_size, DYTI_PART_BYTES_0_1);
        return;
    }
    if (!dyti_pattern_is_sound(p->tensor)) {
        dyti_found_add(f, DYT_ERR_INVALID,
                       "rule %s, part %u: \"%.255s\" is no pattern; {layer}, "
                       "{expert} and at most %u {*} may stand in it",
                       rule->name, i, words(p->tensor), DYTI_PATTERN_STARS);
    }
    if (p->cut > DYT_RULE_EXPERTS || p->axis >= DYT_MAX_DIMS ||
        p->stack_axis >= DYT_MAX_DIMS || p->transposed > 1 ||
        p->per_expert > 2 || p->unit < 0) {
        dyti_found_add(f, DYT_ERR_INVALID,
                       "rule %s, part %u: cut %u, axis %u, stack_axis %u, "
                       "transposed %u, per_expert %u, unit %lld: at most %u, "
                       "%u, %u, 1, 2, and at least 0",
                       rule->name, i, p->cut, p->axis, p->stack_axis,
                       p->transposed, p->per_expert, (long long)p->unit,
                       (unsigned)DYT_RULE_EXPERTS, DYT_MAX_DIMS - 1,
                       DYT_MAX_DIMS - 1);
    }
}

static void check_rule(const struct dyt_rules *rules, size_t i,
                       struct dyti_found *f)
{
    const struct dyt_rule *rule = dyti_rule_at(rules, i);

    if (rule->struct_size < DYTI_RULE_BYTES_0_1) {
        dyti_found_add(f, DYT_ERR_INVALID,
                       "rule %zu of %s: struct_size %u, the first release had "
                       "%u",
                       i, words(rules->family), rule->struct_size,
                       DYTI_RULE_BYTES_0_1);
        return;
    }
    if (!dyti_pattern_is_sound(rule->name)) {
        dyti_found_add(f, DYT_ERR_INVALID,
                       "rule %zu of %s: \"%.255s\" is no pattern", i,
                       words(rules->family), words(rule->name));
        return;
    }
    if (rule->part_count > 0 &&
        (rule->part == NULL || rule->part_struct_size < DYTI_PART_BYTES_0_1)) {
        dyti_found_add(f, DYT_ERR_INVALID,
                       "rule %s: %u parts of %u bytes each; the first release "
                       "had %u",
                       rule->name, rule->part_count, rule->part_struct_size,
                       DYTI_PART_BYTES_0_1);
        return;
    }
    for (uint32_t p = 0; p < rule->part_count && dyti_found_shows(f); p++) {
        check_part(rule, p, f);
    }
}

enum dyt_status dyti_rules_check(const struct dyt_rules *rules)
{
    struct dyti_found found = {.count = 0};

    if (rules->struct_size < DYTI_RULES_BYTES_0_1 ||
        (rules->rule_count > 0 &&
         (rules->rule == NULL ||
          rules->rule_struct_size < DYTI_RULE_BYTES_0_1))) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "rules of struct_size %u with %zu rules of %u bytes; "
                         "the first release had %u and %u",
                         rules->struct_size, rules->rule_count,
                         rules->rule_struct_size, DYTI_RULES_BYTES_0_1,
                         DYTI_RULE_BYTES_0_1);
    }
    for (size_t i = 0; i < rules->rule_count && dyti_found_shows(&found); i++) {
        check_rule(rules, i, &found);
    }
    return dyti_found_finish(&found, NULL);
}

/* ---- names --------------------------------------------------------------- */

static bool ends_with(const char *name, const char *end)
{
    size_t name_bytes = strlen(name), end_bytes = strlen(end);

    return name_bytes >= end_bytes &&
           strcmp(name + name_bytes - end_bytes, end) == 0;
}

bool dyti_name_is_draft(const char *name)
{
    return strncmp(name, "draft", 5) == 0 || strstr(name, ".draft") != NULL;
}

const char *dyti_name_refused(const char *name)
{
    static const char *const adapter[] = {
        "lora_A",         "lora_B",          "lora_a_stacked",
        "lora_b_stacked", "lora_embedding_", "lora_magnitude_vector"};
    static const char *const quantised[] = {"qweight",
                                            "qzeros",
                                            "g_idx",
                                            "scales",
                                            "weight_packed",
                                            "weight_scale",
                                            "weight_scale_2",
                                            "weight_scale_inv",
                                            "weight_zero_point",
                                            "weight_shape",
                                            "weight_g_idx",
                                            "input_scale",
                                            "input_global_scale",
                                            "weight_global_scale",
                                            "quant_state",
                                            "absmax"};

    if (dyti_name_is_draft(name)) {
        return "belongs to a draft model, " DYTI_DRAFT_REMEDY
               ", or leave its rows out of the view";
    }
    for (size_t i = 0; i < sizeof(adapter) / sizeof(adapter[0]); i++) {
        if (strstr(name, adapter[i]) != NULL) {
            return "belongs to a LoRA adapter: merge the adapter into the "
                   "weights, or leave its rows out of the view";
        }
    }
    for (size_t i = 0; i < sizeof(quantised) / sizeof(quantised[0]); i++) {
        if (ends_with(name, quantised[i])) {
            return "belongs to a quantised layer: serve the model "
                   "unquantised, or publish the full weight with "
                   "DYT_ROW_STAGED and quantise it after each commit";
        }
    }
    return NULL;
}
