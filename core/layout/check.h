/* What every dialect refuses of a description. */
#ifndef DYTI_LAYOUT_CHECK_H
#define DYTI_LAYOUT_CHECK_H

#include "layout/layout.h"

/* The degrees with 0 filled in as 1 and the default order. */
struct dyti_layout_desc dyti_layout_with_defaults(
    const struct dyti_layout_desc *desc);

/* `desc` has its defaults.  DYT_ERR_LAYOUT, DYT_ERR_UNSUPPORTED,
 * DYT_ERR_OVERFLOW: by name and with what would work. */
enum dyt_status dyti_layout_check(const struct dyti_model *model,
                                  const struct dyti_layout_desc *desc,
                                  uint32_t *out_member_count);

/* An explicit ZeRO cut: ranges in order, covering all, owners below `owners`.
 * `what`: for the message. */
enum dyt_status dyti_zero_ranges_check(const char *what,
                                       const struct dyti_zero_range *range,
                                       uint32_t count, uint32_t owners);

#endif /* DYTI_LAYOUT_CHECK_H */
