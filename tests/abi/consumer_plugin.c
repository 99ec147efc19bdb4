/* A user's program in C11 that hands in its own buffers: view.h to session.h.
 * Nothing is joined here. */
#include <dynatrain/layout.h>
#include <dynatrain/rules.h>
#include <dynatrain/session.h>
#include <dynatrain/switch.h>
#include <dynatrain/view.h>

#include <stdio.h>
#include <string.h>

int main(void)
{
    float memory[8];
    struct dyt_tensor tensor = {.struct_size = sizeof(tensor),
                                .name = "w",
                                .ndim = 1,
                                .shape = {8},
                                .layer = -1,
                                .expert = -1};
    struct dyt_row row = {.struct_size = sizeof(row),
                          .name = "w",
                          .ndim = 1,
                          .shape = {8},
                          .data = memory,
                          .fd = -1};
    struct dyt_view view = {.struct_size = sizeof(view),
                            .row_struct_size = sizeof(row),
                            .row = &row,
                            .row_count = 1};
    const struct dyt_rules *rules = NULL;
    dyt_model *model = NULL;
    dyt_layout *layout = NULL;

    if (dyt_model_create(&tensor, 1, &model) != DYT_OK ||
        dyt_layout_from_views(model, &view, 1, &layout) != DYT_OK) {
        fprintf(stderr, "%s\n", dyt_error_text());
        return 1;
    }
    dyt_layout_destroy(layout);
    layout = NULL;
    row.struct_size = 16; /* truncated: refused with both numbers */
    if (dyt_layout_from_views(model, &view, 1, &layout) != DYT_ERR_INVALID ||
        strstr(dyt_error_text(), "struct_size 16") == NULL ||
        strstr(dyt_error_text(), "288") == NULL) {
        fprintf(stderr, "%s\n", dyt_error_text());
        return 1;
    }
    dyt_model_destroy(model);
    return dyt_rules_builtin("hf", &rules) == DYT_OK ? 0 : 1;
}
