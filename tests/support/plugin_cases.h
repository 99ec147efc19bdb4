/* Views of plugin tests: rows without memory of their own, and the same lists
 * as a layout of the engine makes them. */
#ifndef DYT_PLUGIN_CASES_H
#define DYT_PLUGIN_CASES_H

#include "layout/layout.h"
#include "plugin/resolve.h"

#include "dyt_test.h"

#define DYT_ROW_BASE ((uintptr_t)1 << 40) /* never read */

struct case_view {
    struct dyt_row *row;
    size_t count, cap;
    struct dyt_view view;
};

static inline struct dyt_row *case_row(struct case_view *v, const char *name,
                                       uint32_t ndim, const int64_t *shape)
{
    if (v->count == v->cap) {
        v->cap = v->cap == 0 ? 64 : v->cap * 2;
        v->row = realloc(v->row, v->cap * sizeof(*v->row));
        assert_non_null(v->row);
    }
    v->row[v->count] = (struct dyt_row){
        .struct_size = sizeof(struct dyt_row),
        .kind = DYT_PARAM,
        .dtype = DYT_BF16,
        .name = name,
        .ndim = ndim,
        .data = (void *)(DYT_ROW_BASE + ((uintptr_t)v->count << 28)),
        .fd = -1};
    memcpy(v->row[v->count].shape, shape, ndim * sizeof(int64_t));
    return &v->row[v->count++];
}

#define CASE_ROW(v, name, ...)                                                 \
    case_row((v), (name),                                                      \
             (uint32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),   \
             (int64_t[]){__VA_ARGS__})

static inline const struct dyt_view *case_view(struct case_view *v)
{
    v->view = (struct dyt_view){.struct_size = sizeof(v->view),
                                .row_struct_size = sizeof(struct dyt_row),
                                .row = v->row,
                                .row_count = v->count};
    return &v->view;
}

static inline void case_view_free(struct case_view *v)
{
    free(v->row);
    *v = (struct case_view){0};
}

/* The `param` buffers of a member of a layout as rows; names are the view's. */
static inline void case_rows_of(struct case_view *v,
                                const struct dyti_view *member)
{
    for (uint32_t i = 0; i < member->buffer_count; i++) {
        const struct dyti_view_buffer *b = &member->buffer[i];

        if (b->kind == DYTI_PARAM) {
            case_row(v, b->name, b->ndim, b->shape)->dtype = b->dtype;
        }
    }
}

/* A family's catalogue as a list, the way a trainer's rows would make it. */
static inline struct dyti_model *case_listed(const struct dyti_model *model)
{
    struct dyti_listed_desc *desc = calloc(model->tensor_count, sizeof(*desc));
    struct dyti_model *listed = NULL;

    assert_non_null(desc);
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        const struct dyti_tensor *t = &model->tensor[i];

        desc[i] = (struct dyti_listed_desc){.name = t->name,
                                            .ndim = t->ndim,
                                            .kinds = t->kinds,
                                            .layer = t->layer,
                                            .expert = t->expert};
        memcpy(desc[i].shape, t->shape, sizeof(t->shape));
    }
    assert_ok(dyti_model_build_listed(desc, model->tensor_count, &listed));
    free(desc);
    return listed;
}

#endif /* DYT_PLUGIN_CASES_H */
