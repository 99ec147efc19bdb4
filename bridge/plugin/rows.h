/* Arrays of the public structs as callers of any release lay them out: by the
 * sizes that they give, never by our own sizeof. */
#ifndef DYTI_PLUGIN_ROWS_H
#define DYTI_PLUGIN_ROWS_H

#include <dynatrain/rules.h>

/* Sizes of the first release, 0.1: what is smaller was cut off. */
#define DYTI_VIEW_BYTES_0_1  24u
#define DYTI_ROW_BYTES_0_1   288u
#define DYTI_PIECE_BYTES_0_1 216u
#define DYTI_RULES_BYTES_0_1 32u
#define DYTI_RULE_BYTES_0_1  32u
#define DYTI_PART_BYTES_0_1  64u

static inline const struct dyt_row *dyti_row_at(const struct dyt_view *view,
                                                uint64_t i)
{
    return (const struct dyt_row *)((const char *)view->row +
                                    i * view->row_struct_size);
}

static inline const struct dyt_piece *dyti_piece_at(const struct dyt_row *row,
                                                    uint32_t i)
{
    return (const struct dyt_piece *)((const char *)row->piece +
                                      (size_t)i * row->piece_struct_size);
}

static inline const struct dyt_rule *dyti_rule_at(const struct dyt_rules *rules,
                                                  size_t i)
{
    return (const struct dyt_rule *)((const char *)rules->rule +
                                     i * rules->rule_struct_size);
}

static inline const struct dyt_rule_part *dyti_part_at(
    const struct dyt_rule *rule, uint32_t i)
{
    return (const struct dyt_rule_part *)((const char *)rule->part +
                                          (size_t)i * rule->part_struct_size);
}

/* Strides of a row in elements, spelled out. */
void dyti_row_strides(const struct dyt_row *row, int64_t stride[DYT_MAX_DIMS]);

/* Bytes from a row's first element to behind its last. */
uint64_t dyti_row_extent(const struct dyt_row *row);

#endif /* DYTI_PLUGIN_ROWS_H */
