/* What lies where, element by element, in the regions that a dialect lays out:
 * what its tests ask.  Slow and obvious. */
#ifndef DYT_DIALECT_WORLD_H
#define DYT_DIALECT_WORLD_H

#include "arch_cases.h"
#include "dyt_test.h"

#include "layout/index.h"
#include "layout/layout.h"
#include "layout/local.h"

/* Element `index`, row-major, of a tensor; tensor -1: padding. */
struct dyt_cell {
    int64_t tensor, index;
};

/* One kind of one rank: a cell per element of its widest type's stride, by byte
 * offset. */
struct dyt_map {
    struct dyt_cell *cell; /* [bytes], set where an element begins */
    uint64_t bytes;
};

static inline int64_t dyt_flat_index(const struct dyti_tensor *t,
                                     const int64_t *at)
{
    int64_t index = 0;

    for (uint32_t d = 0; d < t->ndim; d++) {
        index = index * t->shape[d] + at[d];
    }
    return index;
}

/* Call fn for every element of a shard: its row-major index in the tensor and
 * its byte offset in the region. */
typedef void (*dyt_element_fn)(void *arg, const struct dyti_shard *shard,
                               int64_t index, uint64_t offset);

static inline void dyt_each_element(const struct dyti_model *model,
                                    const struct dyti_shard *s,
                                    dyt_element_fn fn, void *arg)
{
    const struct dyti_tensor *t = &model->tensor[s->tensor];
    int64_t at[DYT_MAX_DIMS];

    assert_int_equal(s->box.ndim, t->ndim);
    for (uint32_t d = 0; d < t->ndim; d++) {
        assert_true(s->box.lo[d] >= 0 && s->box.lo[d] < s->box.hi[d] &&
                    s->box.hi[d] <= t->shape[d]);
        at[d] = s->box.lo[d];
    }
    for (bool more = true; more;) {
        int64_t offset = (int64_t)s->offset;

        for (uint32_t d = 0; d < t->ndim; d++) {
            offset += (at[d] - s->box.lo[d]) * s->stride[d];
        }
        fn(arg, s, dyt_flat_index(t, at), (uint64_t)offset);
        more = false;
        for (uint32_t d = t->ndim; d-- > 0 && !more;) {
            if (++at[d] < s->box.hi[d]) {
                more = true;
            } else {
                at[d] = s->box.lo[d];
            }
        }
    }
}

static inline void dyt_map_cell(void *arg, const struct dyti_shard *s,
                                int64_t index, uint64_t offset)
{
    struct dyt_map *map = arg;
    uint32_t width = dyti_dtype_bytes((enum dyti_dtype)s->dtype);

    assert_true(offset + width <= map->bytes);
    for (uint32_t b = 0; b < width; b++) {
        /* No two elements share a byte. */
        assert_int_equal(map->cell[offset + b].tensor, -1);
        map->cell[offset + b] =
            (struct dyt_cell){s->tensor, b == 0 ? index : -1};
    }
}

static inline struct dyt_map dyt_map_of(const struct dyti_layout *layout,
                                        uint32_t rank, enum dyti_kind kind)
{
    const struct dyti_view *v = &layout->view[rank];
    struct dyt_map map = {.bytes = v->region_bytes[kind]};

    map.cell = malloc((map.bytes + 1) * sizeof(*map.cell));
    assert_non_null(map.cell);
    for (uint64_t i = 0; i < map.bytes; i++) {
        map.cell[i] = (struct dyt_cell){-1, -1};
    }
    for (uint32_t i = v->kind_first[kind]; i < v->kind_first[kind + 1]; i++) {
        dyt_each_element(layout->model, &v->shard[i], dyt_map_cell, &map);
    }
    return map;
}

static inline const struct dyti_view_buffer *dyt_buffer(
    const struct dyti_layout *layout, uint32_t rank, enum dyti_kind kind,
    const char *name)
{
    const struct dyti_view *v = &layout->view[rank];

    for (uint32_t i = 0; i < v->buffer_count; i++) {
        if (v->buffer[i].kind == kind && strcmp(v->buffer[i].name, name) == 0) {
            return &v->buffer[i];
        }
    }
    return NULL;
}

/* What lies in row `row` (and on: index of the elements after the first
 * dimension) of a buffer of `param`.  Row: index along dimension 0. */
static inline struct dyt_cell dyt_at(const struct dyti_layout *layout,
                                     uint32_t rank, const char *name,
                                     int64_t element)
{
    const struct dyti_view_buffer *b =
        dyt_buffer(layout, rank, DYTI_PARAM, name);
    struct dyt_map map;
    struct dyt_cell cell;

    if (b == NULL) {
        fail_msg("rank %u has no buffer %s", rank, name);
    }
    map = dyt_map_of(layout, rank, DYTI_PARAM);
    cell =
        map.cell[b->offset + (uint64_t)element *
                                 dyti_dtype_bytes((enum dyti_dtype)b->dtype)];
    free(map.cell);
    return cell;
}

/* Rows [first, first + rows) of a two-dimensional buffer hold rows from
 * `source` on of a model tensor, whole; source -1: padding. */
static inline void dyt_assert_rows(const struct dyti_layout *layout,
                                   uint32_t rank, const char *name,
                                   int64_t first, int64_t rows,
                                   const char *tensor, int64_t source)
{
    const struct dyti_view_buffer *b =
        dyt_buffer(layout, rank, DYTI_PARAM, name);
    uint32_t index = tensor == NULL
                         ? UINT32_MAX
                         : dyti_model_find_name(layout->model, tensor);
    struct dyt_map map = dyt_map_of(layout, rank, DYTI_PARAM);
    uint32_t width;
    int64_t columns;

    if (b == NULL) {
        fail_msg("rank %u has no buffer %s", rank, name);
    }
    assert_true(tensor == NULL || index != UINT32_MAX);
    width = dyti_dtype_bytes((enum dyti_dtype)b->dtype);
    columns = b->ndim == 1 ? 1 : b->shape[1];
    assert_true(first + rows <= b->shape[0]);
    for (int64_t i = 0; i < rows * columns; i++) {
        struct dyt_cell c =
            map.cell[b->offset + (uint64_t)(first * columns + i) * width];

        if (tensor == NULL) {
            assert_int_equal(c.tensor, -1);
        } else if (c.tensor != index || c.index != source * columns + i) {
            fail_msg("%s row %lld holds element %lld of %s, want %s row %lld",
                     name, (long long)(first + i / columns), (long long)c.index,
                     c.tensor < 0 ? "padding"
                                  : layout->model->tensor[c.tensor].name,
                     tensor, (long long)(source + i / columns));
        }
    }
    free(map.cell);
}

static inline struct dyti_model *dyt_model(struct dyti_arch arch)
{
    struct dyti_model *model = NULL;

    assert_ok(dyti_model_build(&arch, &model));
    return model;
}

static inline struct dyti_layout *dyt_layout(const struct dyti_model *model,
                                             struct dyti_layout_desc desc)
{
    struct dyti_layout *layout = NULL;

    desc.tp = dyti_degree(desc.tp);
    desc.pp = dyti_degree(desc.pp);
    desc.dp = dyti_degree(desc.dp);
    if (desc.world_size == 0) {
        desc.world_size = desc.tp * desc.pp * desc.dp * dyti_degree(desc.cp);
    }
    assert_ok(dyti_layout_build(model, &desc, &layout));
    return layout;
}

/* The layout is refused, and the text has `part`. */
static inline void dyt_refused(const struct dyti_model *model,
                               struct dyti_layout_desc desc, const char *part)
{
    struct dyti_layout *layout = NULL;

    desc.tp = dyti_degree(desc.tp);
    desc.pp = dyti_degree(desc.pp);
    desc.dp = dyti_degree(desc.dp);
    if (desc.world_size == 0) {
        desc.world_size = desc.tp * desc.pp * desc.dp * dyti_degree(desc.cp);
    }
    assert_true(dyti_layout_build(model, &desc, &layout) != DYT_OK);
    assert_error_has(part);
}

/* ---- hand-made models: tensors of any size, for the flat buffers --------- */

#define DYT_HAND_TENSORS 4u

struct dyt_hand {
    struct dyti_tensor tensor[DYT_HAND_TENSORS];
    uint32_t layer_first[1];
    struct dyti_model model;
    struct dyti_layout layout;
    struct dyti_part part;
    struct dyti_layout_run run;
    struct dyti_layout_index index;
};

/* Tensors called A, B, C, …, each of rows[i] rows and, where columns > 0, of so
 * many columns; one rank of `size` data-parallel ones. */
static inline void dyt_hand_init(struct dyt_hand *h, const int64_t *rows,
                                 uint32_t count, int64_t columns,
                                 enum dyti_dialect dialect, uint32_t zero,
                                 uint32_t size, uint32_t rank)
{
    static const char *const name[] = {"A", "B", "C", "D"};

    memset(h, 0, sizeof(*h));
    for (uint32_t i = 0; i < count; i++) {
        struct dyti_tensor *t = &h->tensor[i];

        t->name = name[i];
        t->ndim = columns > 0 ? 2 : 1;
        t->shape[0] = rows[i];
        t->shape[1] = columns;
        t->layer = t->expert = -1;
        t->slot = DYTI_SLOT_EMBED;
        t->segment_count = 1;
        t->segment[0] = (struct dyti_segment){0, rows[i], DYTI_CUT_NONE, 1};
        t->on_first = true;
        t->kinds = (1u << DYTI_EXTRA) - 1u;
    }
    h->model = (struct dyti_model){.tensor = h->tensor,
                                   .tensor_count = count,
                                   .parameter_count = count,
                                   .kinds = (1u << DYTI_EXTRA) - 1u,
                                   .layer_first = h->layer_first};
    h->run = (struct dyti_layout_run){.end = count, .layer = -1};
    h->index = (struct dyti_layout_index){
        .run = &h->run, .run_count = 1, .class_count = 1};
    h->layout = (struct dyti_layout){.model = &h->model,
                                     .index = &h->index,
                                     .desc = {.world_size = size,
                                              .tp = 1,
                                              .pp = 1,
                                              .dp = size,
                                              .cp = 1,
                                              .ep = 1,
                                              .etp = 1,
                                              .vpp = 1,
                                              .zero = zero,
                                              .dialect = dialect,
                                              .order = {0, 1, 2, 3}}};
    h->part = (struct dyti_part){.member = true,
                                 .tp_size = 1,
                                 .pp_size = 1,
                                 .dp_size = size,
                                 .dp_rank = rank,
                                 .cp_size = 1,
                                 .etp_size = 1,
                                 .ep_size = 1,
                                 .edp_size = size,
                                 .edp_rank = rank,
                                 .has_embed = true,
                                 .has_head = true,
                                 .member_index = rank,
                                 .vpp = 1};
}

/* Shards as "A[0:10]@0 " texts, in the order in which they were emitted;
 * offsets in elements of four bytes. */
struct dyt_shown {
    const struct dyti_model *model;
    char text[1024];
    uint64_t bytes;
};

static inline enum dyt_status dyt_show_shard(void *self,
                                             const struct dyti_shard *s)
{
    struct dyt_shown *shown = self;
    size_t used = strlen(shown->text);

    snprintf(shown->text + used, sizeof(shown->text) - used,
             "%s%s[%lld:%lld]@%llu", used > 0 ? " " : "",
             shown->model->tensor[s->tensor].name, (long long)s->box.lo[0],
             (long long)s->box.hi[0], (unsigned long long)s->offset / 4);
    return DYT_OK;
}

/* What the dialect emits for one kind of a hand-made part. */
static inline struct dyt_shown dyt_show(const struct dyt_hand *h,
                                        const struct dyti_dialect_ops *ops,
                                        enum dyti_kind kind)
{
    struct dyt_shown shown = {.model = &h->model};
    const struct dyti_shard_sink sink = {.self = &shown,
                                         .shard = dyt_show_shard};

    assert_ok(ops->emit(&h->layout, &h->part, kind, &sink, &shown.bytes));
    return shown;
}

#endif /* DYT_DIALECT_WORLD_H */
