/* Any bytes as a table of rules and as names, shapes and places of rows: pieces
 * that lie inside their row and their tensor, or an error of one line. */
#include "fuzz.h"

#include "format/rules_file.h"
#include "plugin/resolve.h"
#include "plugin/rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 6u

struct bytes {
    const uint8_t *at;
    size_t left;
};

static uint32_t take(struct bytes *b)
{
    if (b->left == 0) {
        return 0;
    }
    b->left--;
    return *b->at++;
}

static void need(bool cond)
{
    if (!cond) {
        abort();
    }
}

static struct dyti_model *catalogue(void)
{
    struct dyti_listed_desc d[] = {
        {.name = "l.0.w", .ndim = 2, .shape = {12, 8}},
        {.name = "l.1.w", .ndim = 2, .shape = {12, 8}},
        {.name = "e.0.w", .ndim = 2, .shape = {4, 8}},
        {.name = "e.1.w", .ndim = 2, .shape = {4, 8}},
        {.name = "s", .ndim = 3, .shape = {2, 4, 8}},
        {.name = "n", .ndim = 1, .shape = {7}}};
    struct dyti_model *model = NULL;

    need(dyti_model_build_listed(d, sizeof(d) / sizeof(d[0]), &model) ==
         DYT_OK);
    return model;
}

static const char *const name[] = {"l.0.w", "l.1.w", "e.w", "s",
                                   "n",     "x",     "q.1"};

/* Rows of a few names and small shapes, some with pieces. */
static void draw_rows(struct bytes *b, struct dyt_row row[ROWS],
                      struct dyt_piece piece[ROWS])
{
    for (uint32_t i = 0; i < ROWS; i++) {
        row[i] = (struct dyt_row){
            .struct_size = sizeof(row[i]),
            .kind = take(b) % 7,
            .dtype = take(b) % 6,
            .flags = take(b) % 17,
            .name = name[take(b) % (sizeof(name) / sizeof(name[0]))],
            .ndim = take(b) % 5,
            .data = (void *)((uintptr_t)(1 + take(b)) << 20),
            .fd = -1};
        piece[i] = (struct dyt_piece){
            .struct_size = sizeof(piece[i]),
            .transposed = take(b) % 2,
            .tensor = name[take(b) % (sizeof(name) / sizeof(name[0]))],
            .box = {.ndim = take(b) % 4}};
        for (uint32_t d = 0; d < 4; d++) {
            row[i].shape[d] = (int64_t)(take(b) % 16);
            row[i].stride[d] = (int64_t)(int8_t)take(b);
            piece[i].box.lo[d] = (int64_t)(take(b) % 6);
            piece[i].box.hi[d] = (int64_t)(take(b) % 14);
            piece[i].at[d] = (int64_t)(int8_t)take(b);
        }
        if (take(b) % 3 == 0) {
            row[i].piece = &piece[i];
            row[i].piece_count = 1;
            row[i].piece_struct_size = sizeof(piece[i]);
        }
    }
}

/* Each piece within its row and its tensor. */
static void check(const struct dyti_model *model, const struct dyt_view *view,
                  const struct dyti_row_pieces *pieces)
{
    for (size_t i = 0; i < pieces->count; i++) {
        const struct dyti_row_piece *p = &pieces->piece[i];
        const struct dyt_row *row;
        uint64_t last;

        need(p->row < view->row_count && p->tensor < model->tensor_count);
        row = dyti_row_at(view, p->row);
        last = p->offset;
        need(p->box.ndim == model->tensor[p->tensor].ndim);
        for (uint32_t d = 0; d < p->box.ndim; d++) {
            need(p->box.lo[d] >= 0 && p->box.lo[d] < p->box.hi[d] &&
                 p->box.hi[d] <= model->tensor[p->tensor].shape[d]);
            last +=
                (uint64_t)((p->box.hi[d] - p->box.lo[d] - 1) * p->stride[d]);
        }
        need(last + dyti_dtype_bytes((enum dyti_dtype)row->dtype) <=
             dyti_row_extent(row));
    }
}

static void apply(struct bytes *b, const struct dyt_rules *rules)
{
    struct dyti_model *model = catalogue();
    struct dyt_row row[ROWS];
    struct dyt_piece piece[ROWS];
    struct dyt_view view = {sizeof(view), sizeof(row[0]), row, ROWS};
    struct dyt_attribute attribute = {"h", (int8_t)take(b)};
    int32_t expert[3];
    struct dyti_place place = {.tp_rank = take(b) % 4,
                               .tp_size = take(b) % 5,
                               .ep_rank = take(b) % 2,
                               .ep_size = take(b) % 3,
                               .attribute = &attribute,
                               .attribute_count = 1};
    struct dyti_row_pieces pieces = {0};

    for (int i = 0; i < 3; i++) {
        expert[i] = (int32_t)(take(b) % 4) - 1;
    }
    if (take(b) % 2 == 0) {
        place.expert = expert;
        place.expert_count = 3;
    }
    draw_rows(b, row, piece);
    if (dyti_view_check(&view) == DYT_OK &&
        dyti_rules_apply(model, &view, rules, &place, &pieces) == DYT_OK) {
        check(model, &view, &pieces);
    } else {
        need(strchr(dyti_error_text(), '\n') == NULL);
    }
    dyti_row_pieces_fini(&pieces);
    dyti_model_destroy(model);
}

/* TOML up to a NUL, numbers behind it. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = size == 0 ? NULL : memchr(data, 0, size);
    size_t text_bytes = end == NULL ? size : (size_t)(end - data);
    struct bytes rest = {data + text_bytes, size - text_bytes};
    struct dyti_rules_file file = {0};

    if (dyti_rules_parse((const char *)data, text_bytes, "f", &file) ==
        DYT_OK) {
        apply(&rest, &file.rules);
        dyti_rules_file_fini(&file);
    } else {
        need(strchr(dyti_error_text(), '\n') == NULL);
        apply(&rest, NULL);
    }
    return 0;
}
