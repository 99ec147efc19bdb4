/* How a member's rows become pieces, one row at a time: rules.c, rules_place.c,
 * rules_parts.c. */
#ifndef DYTI_PLUGIN_RULES_APPLY_H
#define DYTI_PLUGIN_RULES_APPLY_H

#include "plugin/pattern.h"
#include "plugin/rules.h"

/* What goes through all rows. */
struct dyti_apply {
    const struct dyti_model *catalogue;
    const struct dyt_view *view;
    const struct dyt_rules *rules;
    const struct dyti_place *place;
    struct dyti_placed *placed; /* [count] */
    size_t count, cap;
    struct dyti_row_pad *pad; /* [pad_count] */
    size_t pad_count, pad_cap;
    uint8_t *touched; /* [tensor_count] some row names it */
    struct dyti_found found;
    enum dyt_status status; /* out of memory */
};

/* The row at hand. */
struct dyti_at_row {
    uint32_t index;
    const struct dyt_row *row;
    uint32_t flags; /* with those of its rule */
    struct dyti_captures captures;
};

/* A box of a tensor lies in the row; `at`: element of the row where box.lo
 * lies. */
void dyti_apply_place(struct dyti_apply *a, const struct dyti_at_row *r,
                      uint32_t tensor, const struct dyt_box *box,
                      const int64_t *at, bool transposed, bool copy);
/* What a part takes of the row beyond `held` elements of row's axis `axis` is
 * padding; `at`, `extent`: of the part in the row. */
void dyti_apply_pad(struct dyti_apply *a, const struct dyti_at_row *r,
                    const int64_t *at, const int64_t *extent, uint32_t axis,
                    int64_t held);
/* Kind and dtype of a row fit those of a tensor; false: noted. */
bool dyti_apply_fits(struct dyti_apply *a, const struct dyti_at_row *r,
                     uint32_t tensor);
/* Note it; `tensor`: what the row would be; NULL: no rule knows it. */
void dyti_apply_unexpected(struct dyti_apply *a, const struct dyti_at_row *r,
                           const char *tensor);
/* By the first rule whose name fits and whose tensors exist. */
void dyti_apply_rules(struct dyti_apply *a, struct dyti_at_row *r);

#endif /* DYTI_PLUGIN_RULES_APPLY_H */
