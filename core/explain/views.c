/* What ranks hold: text and JSON. */
#include "explain/views.h"

#include "explain/words.h"
#include "layout/dialect.h"

#include <inttypes.h>
#include <string.h>

/* ---- what is shown ------------------------------------------------------- */

static bool shows_kind(const struct dyti_views_show *show,
                       const struct dyti_view *view, int kind)
{
    return (show->kind < 0 || show->kind == kind) &&
           view->region_bytes[kind] > 0;
}

static bool shows_shard(const struct dyti_views_show *show,
                        const struct dyti_shard *shard)
{
    return show->tensor == UINT32_MAX || show->tensor == shard->tensor;
}

static bool is_in(const struct dyti_view_buffer *b, const struct dyti_shard *s)
{
    return b->kind == s->kind && s->offset >= b->offset &&
           s->offset < b->offset + b->bytes;
}

/* Whether a shard that is shown lies in the buffer. */
static bool shows_buffer(const struct dyti_views_show *show,
                         const struct dyti_view *view,
                         const struct dyti_view_buffer *b)
{
    if (show->tensor == UINT32_MAX) {
        return true;
    }
    for (uint32_t i = view->kind_first[b->kind];
         i < view->kind_first[b->kind + 1]; i++) {
        if (shows_shard(show, &view->shard[i]) && is_in(b, &view->shard[i])) {
            return true;
        }
    }
    return false;
}

static const struct dyti_view_buffer *buffer_of(const struct dyti_view *view,
                                                const struct dyti_shard *s)
{
    for (uint32_t i = 0; i < view->buffer_count; i++) {
        if (is_in(&view->buffer[i], s)) {
            return &view->buffer[i];
        }
    }
    return NULL;
}

/* ---- text ---------------------------------------------------------------- */

static void print_shard(const struct dyti_layout *layout,
                        const struct dyti_shard *s, FILE *out)
{
    fprintf(out, "      %s %s at %" PRIu64 ", strides",
            layout->model->tensor[s->tensor].name, dyti_words_box(&s->box).text,
            s->offset);
    for (uint32_t d = 0; d < s->box.ndim; d++) {
        fprintf(out, "%s%" PRId64, d == 0 ? " " : ", ", s->stride[d]);
    }
    fprintf(out, "\n");
}

static void print_shards(const struct dyti_layout *layout,
                         const struct dyti_views_show *show,
                         const struct dyti_view *view, int kind,
                         const struct dyti_view_buffer *in, FILE *out)
{
    for (uint32_t i = view->kind_first[kind]; i < view->kind_first[kind + 1];
         i++) {
        const struct dyti_shard *s = &view->shard[i];

        if (shows_shard(show, s) && (in == NULL || is_in(in, s))) {
            print_shard(layout, s, out);
        }
    }
}

static void print_kind(const struct dyti_layout *layout,
                       const struct dyti_views_show *show,
                       const struct dyti_view *view, int kind, FILE *out)
{
    bool any = false;

    fprintf(out, "  %s: %s\n", dyti_kind_name((enum dyti_kind)kind),
            dyti_words_bytes(view->region_bytes[kind]).text);
    for (uint32_t i = 0; i < view->buffer_count; i++) {
        const struct dyti_view_buffer *b = &view->buffer[i];

        if (b->kind != kind || !shows_buffer(show, view, b)) {
            continue;
        }
        any = true;
        fprintf(out, "    %s: %s %s at %" PRIu64 ", %" PRIu64 " bytes\n",
                b->name, dyti_dtype_name((enum dyti_dtype)b->dtype),
                dyti_words_shape(b->ndim, b->shape).text, b->offset, b->bytes);
        print_shards(layout, show, view, kind, b, out);
    }
    if (!any) { /* native: the region is the buffer */
        print_shards(layout, show, view, kind, NULL, out);
    }
}

static void print_member(const struct dyti_part *p, uint32_t rank, FILE *out)
{
    fprintf(out, "rank %u: tp %u, cp %u, dp %u, pp %u", rank, p->tp_rank,
            p->cp_rank, p->dp_rank, p->pp_rank);
    if (p->ep_size > 1 || p->etp_size > 1) {
        fprintf(out, "; experts: etp %u, ep %u, edp %u", p->etp_rank,
                p->ep_rank, p->edp_rank);
    }
}

/* Coordinates and the bytes of each kind, on one line. */
static void print_line(const struct dyti_views_show *show,
                       const struct dyti_view *view, uint32_t rank, FILE *out)
{
    print_member(&view->part, rank, out);
    for (int kind = 0; kind < DYTI_KIND_COUNT; kind++) {
        if (shows_kind(show, view, kind)) {
            fprintf(out, "; %s %s", dyti_kind_name((enum dyti_kind)kind),
                    dyti_words_bytes(view->region_bytes[kind]).text);
        }
    }
    fprintf(out, "\n");
}

static void print_rank(const struct dyti_layout *layout,
                       const struct dyti_views_show *show,
                       const struct dyti_view *view, uint32_t rank, FILE *out)
{
    if (!view->part.member) {
        fprintf(out, "rank %u: takes no part\n", rank);
        return;
    }
    if (show->rank < 0 && show->tensor == UINT32_MAX) {
        print_line(show, view, rank, out);
        return;
    }
    print_member(&view->part, rank, out);
    fprintf(out, "\n");
    for (int kind = 0; kind < DYTI_KIND_COUNT; kind++) {
        if (shows_kind(show, view, kind)) {
            print_kind(layout, show, view, kind, out);
        }
    }
}

static bool shows_rank(const struct dyti_views_show *show, uint32_t rank)
{
    return show->rank < 0 || show->rank == (int64_t)rank;
}

enum dyt_status dyti_explain_views(const struct dyti_layout *layout,
                                   const struct dyti_views_show *show,
                                   FILE *out)
{
    fprintf(out, "%s\n", show->spec);
    for (uint32_t r = 0; r < layout->desc.world_size; r++) {
        struct dyti_view view = {0};
        enum dyt_status st;

        if (!shows_rank(show, r)) {
            continue;
        }
        st = dyti_layout_view_build(layout, r, &view);
        if (st != DYT_OK) {
            return st;
        }
        print_rank(layout, show, &view, r, out);
        dyti_view_fini(&view);
        if (ferror(out) != 0) {
            break; /* a million ranks need not be tried in vain */
        }
    }
    return dyti_words_done(out, "the layout");
}

/* ---- JSON ---------------------------------------------------------------- */

static void numbers_json(struct dyti_json *j, const char *key,
                         const int64_t *number, uint32_t count)
{
    dyti_json_begin_array(j, key);
    for (uint32_t i = 0; i < count; i++) {
        dyti_json_i64(j, NULL, number[i]);
    }
    dyti_json_end(j);
}

static void shard_json(const struct dyti_layout *layout,
                       const struct dyti_view *view, const struct dyti_shard *s,
                       struct dyti_json *j)
{
    const struct dyti_view_buffer *b = buffer_of(view, s);

    dyti_json_begin_object(j, NULL);
    dyti_json_text(j, "tensor", layout->model->tensor[s->tensor].name);
    dyti_json_text(j, "dtype", dyti_dtype_name((enum dyti_dtype)s->dtype));
    numbers_json(j, "lo", s->box.lo, s->box.ndim);
    numbers_json(j, "hi", s->box.hi, s->box.ndim);
    dyti_json_u64(j, "offset", s->offset);
    numbers_json(j, "strides", s->stride, s->box.ndim);
    dyti_json_text(j, "buffer", b == NULL ? NULL : b->name);
    dyti_json_end(j);
}

static void kind_json(const struct dyti_layout *layout,
                      const struct dyti_views_show *show,
                      const struct dyti_view *view, int kind,
                      struct dyti_json *j)
{
    dyti_json_begin_object(j, NULL);
    dyti_json_text(j, "kind", dyti_kind_name((enum dyti_kind)kind));
    dyti_json_u64(j, "bytes", view->region_bytes[kind]);
    dyti_json_begin_array(j, "buffers");
    for (uint32_t i = 0; i < view->buffer_count; i++) {
        const struct dyti_view_buffer *b = &view->buffer[i];

        if (b->kind != kind || !shows_buffer(show, view, b)) {
            continue;
        }
        dyti_json_begin_object(j, NULL);
        dyti_json_text(j, "name", b->name);
        dyti_json_text(j, "dtype", dyti_dtype_name((enum dyti_dtype)b->dtype));
        numbers_json(j, "shape", b->shape, b->ndim);
        dyti_json_u64(j, "offset", b->offset);
        dyti_json_u64(j, "bytes", b->bytes);
        dyti_json_end(j);
    }
    dyti_json_end(j);
    dyti_json_begin_array(j, "shards");
    for (uint32_t i = view->kind_first[kind]; i < view->kind_first[kind + 1];
         i++) {
        if (shows_shard(show, &view->shard[i])) {
            shard_json(layout, view, &view->shard[i], j);
        }
    }
    dyti_json_end(j);
    dyti_json_end(j);
}

static void rank_json(const struct dyti_layout *layout,
                      const struct dyti_views_show *show,
                      const struct dyti_view *view, uint32_t rank,
                      struct dyti_json *j)
{
    const struct dyti_part *p = &view->part;
    const struct {
        const char *name;
        uint32_t value;
    } at[] = {{"tp", p->tp_rank},  {"cp", p->cp_rank},   {"dp", p->dp_rank},
              {"pp", p->pp_rank},  {"etp", p->etp_rank}, {"ep", p->ep_rank},
              {"edp", p->edp_rank}};

    dyti_json_begin_object(j, NULL);
    dyti_json_u64(j, "rank", rank);
    if (p->member) {
        dyti_json_u64(j, "member", p->member_index);
        for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
            dyti_json_u64(j, at[i].name, at[i].value);
        }
    } else {
        dyti_json_null(j, "member");
    }
    dyti_json_begin_array(j, "kinds");
    for (int kind = 0; kind < DYTI_KIND_COUNT; kind++) {
        if (shows_kind(show, view, kind)) {
            kind_json(layout, show, view, kind, j);
        }
    }
    dyti_json_end(j);
    dyti_json_end(j);
}

static void head_json(const struct dyti_layout *layout,
                      const struct dyti_views_show *show, struct dyti_json *j)
{
    const struct dyti_model *m = layout->model;

    dyti_json_text(j, "schema", DYTI_LAYOUT_SCHEMA);
    dyti_json_text(j, "spec", show->spec);
    dyti_json_text(j, "dialect", dyti_dialect_name(layout->desc.dialect));
    dyti_json_u64(j, "world", layout->desc.world_size);
    dyti_words_hex_json(j, "fingerprint", layout->fingerprint);
    dyti_json_begin_object(j, "model");
    dyti_json_text(j, "family", dyti_family_name(m->arch.family));
    dyti_words_hex_json(j, "fingerprint", m->fingerprint);
    dyti_json_end(j);
    dyti_json_begin_array(j, "tensors");
    for (uint32_t i = 0; i < m->tensor_count; i++) {
        if (show->tensor == UINT32_MAX || show->tensor == i) {
            dyti_json_begin_object(j, NULL);
            dyti_json_text(j, "name", m->tensor[i].name);
            numbers_json(j, "shape", m->tensor[i].shape, m->tensor[i].ndim);
            dyti_json_end(j);
        }
    }
    dyti_json_end(j);
}

enum dyt_status dyti_explain_views_json(const struct dyti_layout *layout,
                                        const struct dyti_views_show *show,
                                        struct dyti_json *j)
{
    dyti_json_begin_object(j, NULL);
    head_json(layout, show, j);
    dyti_json_begin_array(j, "ranks");
    for (uint32_t r = 0; r < layout->desc.world_size; r++) {
        struct dyti_view view = {0};
        enum dyt_status st;

        if (!shows_rank(show, r)) {
            continue;
        }
        st = dyti_layout_view_build(layout, r, &view);
        if (st != DYT_OK) {
            return st;
        }
        rank_json(layout, show, &view, r, j);
        dyti_view_fini(&view);
        st = show->drain == NULL ? DYT_OK : dyti_json_drain(j, show->drain);
        if (st != DYT_OK) {
            return st;
        }
    }
    dyti_json_end(j);
    dyti_json_end(j);
    return DYT_OK;
}
