/* A user's program in C11 that plans a switch: model.h to schedule.h. */
#include <dynatrain/layout.h>
#include <dynatrain/model.h>
#include <dynatrain/plan.h>
#include <dynatrain/schedule.h>

#include <stdio.h>

int main(void)
{
    struct dyt_tensor tensor = {.struct_size = sizeof(tensor),
                                .name = "w",
                                .ndim = 1,
                                .shape = {8},
                                .layer = -1,
                                .expert = -1};
    dyt_model *model = NULL;
    dyt_layout *layout = NULL;
    uint32_t index = 9;

    if (dyt_model_create(&tensor, 1, &model) != DYT_OK ||
        dyt_model_find(model, "w", &index) != DYT_OK || index != 0) {
        fprintf(stderr, "%s\n", dyt_error_text());
        return 1;
    }
    if (dyt_layout_build(model, "native:tp=2", 0, &layout) != DYT_ERR_INVALID) {
        return 1;
    }
    dyt_model_destroy(model);
    return 0;
}
