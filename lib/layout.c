/* layout.h: layouts by degrees, and what each rank holds. */
#include "explain/views.h"
#include "layout/spec.h"
#include "lib/handles.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SHARD_BYTES_0_1 232u

_Static_assert(sizeof(struct dyt_shard) >= SHARD_BYTES_0_1,
               "structs only grow");

/* ---- by degrees ---------------------------------------------------------- */

static enum dyt_status new_handle(const dyt_model *model,
                                  struct dyti_layout *layout, char *spec,
                                  dyt_layout **out_layout)
{
    dyt_layout *handle = calloc(1, sizeof(*handle));
    uint32_t world = layout->desc.world_size;

    if (handle != NULL) {
        handle->view = calloc(world, sizeof(*handle->view));
        handle->built = calloc(world, sizeof(*handle->built));
    }
    if (handle == NULL || handle->view == NULL || handle->built == NULL ||
        pthread_mutex_init(&handle->lock, NULL) != 0) {
        if (handle != NULL) {
            free(handle->view);
            free(handle->built);
        }
        free(handle);
        return DYTI_FAIL(DYT_ERR_NOMEM, "a layout of %u ranks", world);
    }
    handle->owner = model;
    handle->layout = layout;
    handle->spec = spec;
    *out_layout = handle;
    return DYT_OK;
}

/* Kinds that the caller chose, of those that the model has. */
static void choose_kinds(struct dyti_layout_desc *desc, uint32_t kinds)
{
    for (int kind = 0; kind < DYTI_KIND_COUNT && kinds != 0; kind++) {
        desc->residency[kind] =
            (kinds >> kind & 1u) != 0 ? DYTI_HELD : DYTI_DROPPED;
    }
}

enum dyt_status dyt_layout_build(const dyt_model *model, const char *spec,
                                 uint32_t kinds, dyt_layout **out_layout)
{
    struct dyti_layout_spec read = {0};
    struct dyti_layout *layout = NULL;
    char *text = NULL;
    enum dyt_status st;

    if (model == NULL || spec == NULL || out_layout == NULL) {
        return dyti_null_argument("dyt_layout_build");
    }
    if (kinds >> DYTI_KIND_COUNT != 0) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "a layout of kinds 0x%x: they are below 0x%x", kinds,
                         1u << DYTI_KIND_COUNT);
    }
    st = dyti_layout_spec_parse(spec, &read);
    if (st != DYT_OK) {
        return st;
    }
    if (!dyti_model_is_listed(model->model)) {
        dyti_layout_spec_use_model(&read, &model->model->arch);
    }
    choose_kinds(&read.desc, kinds);
    read.desc.phase = spec;
    read.desc.lazy = true;
    st = dyti_layout_build(model->model, &read.desc, &layout);
    st = st != DYT_OK ? st : dyti_layout_spec_text(&read.desc, &text);
    st = st != DYT_OK ? st : new_handle(model, layout, text, out_layout);
    dyti_layout_spec_fini(&read);
    if (st != DYT_OK) {
        dyti_layout_destroy(layout);
        free(text);
    }
    return st;
}

enum dyt_status dyti_handle_from(const dyt_model *model,
                                 struct dyti_layout *layout,
                                 dyt_layout **out_layout)
{
    return new_handle(model, layout, NULL, out_layout);
}

void dyt_layout_destroy(dyt_layout *layout)
{
    if (layout == NULL) {
        return;
    }
    for (uint32_t r = 0; r < layout->layout->desc.world_size; r++) {
        dyti_view_fini(&layout->view[r]);
    }
    (void)pthread_mutex_destroy(&layout->lock);
    dyti_layout_destroy(layout->layout);
    free(layout->view);
    free(layout->built);
    free(layout->spec);
    free(layout);
}

uint32_t dyt_layout_world_size(const dyt_layout *layout)
{
    return layout != NULL ? layout->layout->desc.world_size : 0;
}

uint64_t dyt_layout_fingerprint(const dyt_layout *layout)
{
    return layout != NULL ? layout->layout->fingerprint : 0;
}

/* ---- shards -------------------------------------------------------------- */

enum dyt_status dyti_handle_view(const struct dyt_layout *layout, uint32_t rank,
                                 const struct dyti_view **out_view)
{
    /* The handle is not const: it was made by calloc() and its views are
     * nobody's but its own. */
    struct dyt_layout *own = (struct dyt_layout *)(uintptr_t)layout;
    enum dyt_status st = DYT_OK;

    if (rank >= layout->layout->desc.world_size) {
        return DYTI_FAIL(DYT_ERR_INVALID, "rank %u: the world has %u", rank,
                         layout->layout->desc.world_size);
    }
    if (layout->layout->view != NULL) {
        *out_view = &layout->layout->view[rank];
        return DYT_OK;
    }
    (void)pthread_mutex_lock(&own->lock);
    if (!own->built[rank]) {
        st = dyti_layout_view_build(layout->layout, rank, &own->view[rank]);
        own->built[rank] = st == DYT_OK;
    }
    (void)pthread_mutex_unlock(&own->lock);
    if (st == DYT_OK) {
        *out_view = &own->view[rank];
    }
    return st;
}

enum dyt_status dyt_layout_shard_count(const dyt_layout *layout, uint32_t rank,
                                       uint64_t *out_count)
{
    const struct dyti_view *view = NULL;
    enum dyt_status st;

    if (layout == NULL || out_count == NULL) {
        return dyti_null_argument("dyt_layout_shard_count");
    }
    st = dyti_handle_view(layout, rank, &view);
    if (st == DYT_OK) {
        *out_count = view->shard_count;
    }
    return st;
}

/* The buffer that holds a byte of a kind's region, NULL: the region is it. */
static const struct dyti_view_buffer *buffer_at(const struct dyti_view *view,
                                                uint32_t kind, uint64_t offset)
{
    uint32_t lo = 0, hi = view->buffer_count;

    while (lo < hi) { /* the first that begins behind it */
        uint32_t mid = lo + (hi - lo) / 2;
        const struct dyti_view_buffer *b = &view->buffer[mid];

        if (b->kind < kind || (b->kind == kind && b->offset <= offset)) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo > 0 && view->buffer[lo - 1].kind == kind ? &view->buffer[lo - 1]
                                                       : NULL;
}

enum dyt_status dyt_layout_shard(const dyt_layout *layout, uint32_t rank,
                                 uint64_t index, struct dyt_shard *out)
{
    struct dyt_shard whole = {0};
    const struct dyti_view_buffer *buffer;
    const struct dyti_shard *s;
    const struct dyti_view *view;
    enum dyt_status st;
    uint32_t size;

    if (layout == NULL || out == NULL) {
        return dyti_null_argument("dyt_layout_shard");
    }
    size = whole.struct_size = out->struct_size;
    st = dyti_struct_check("dyt_shard", size, SHARD_BYTES_0_1);
    st = st != DYT_OK ? st : dyti_handle_view(layout, rank, &view);
    if (st == DYT_OK && index >= view->shard_count) {
        st = DYTI_FAIL(DYT_ERR_INVALID,
                       "shard %" PRIu64 " of rank %u, which has %u", index,
                       rank, view->shard_count);
    }
    if (st != DYT_OK) {
        return st;
    }
    s = &view->shard[index];
    buffer = buffer_at(view, s->kind, s->offset);
    whole.tensor = s->tensor;
    whole.kind = s->kind;
    whole.dtype = s->dtype;
    whole.box = s->box;
    whole.buffer = buffer == NULL ? NULL : buffer->name;
    whole.offset = s->offset - (buffer == NULL ? 0 : buffer->offset);
    memcpy(whole.stride, s->stride, sizeof(whole.stride));
    memcpy(out, &whole, size < sizeof(whole) ? size : sizeof(whole));
    return DYT_OK;
}

/* ---- text ---------------------------------------------------------------- */

enum dyt_status dyt_layout_json(const dyt_layout *layout, char **out_text)
{
    struct dyti_views_show show = {
        .rank = -1, .tensor = UINT32_MAX, .kind = -1, .spec = "list"};
    struct dyti_json json;
    const char *text;
    size_t bytes;
    char *copy;
    enum dyt_status st;

    if (layout == NULL || out_text == NULL) {
        return dyti_null_argument("dyt_layout_json");
    }
    show.spec = layout->spec == NULL ? show.spec : layout->spec;
    dyti_json_init(&json, 2);
    st = dyti_explain_views_json(layout->layout, &show, &json);
    st = st != DYT_OK ? st : dyti_json_finish(&json, &text, &bytes);
    if (st == DYT_OK) {
        copy = strndup(text, bytes);
        st = copy != NULL
                 ? DYT_OK
                 : DYTI_FAIL(DYT_ERR_NOMEM, "%zu bytes of JSON", bytes);
        *out_text = copy != NULL ? copy : *out_text;
    }
    dyti_json_release(&json);
    return st;
}
