/* One tensor and who holds which part of it, as a drawing: the tensor is a
 * rectangle, rows downwards; equal boxes of several ranks are drawn once and
 * name them all. */
#include "explain/views.h"

#include "base/array.h"
#include "explain/words.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH  720.0
#define HEIGHT 480.0
#define MARGIN 24.0
#define LABELS 24u /* ranks that a title names */

struct held {
    struct dyt_box box;
    uint32_t rank;
    uint64_t offset;
};

struct drawing {
    const struct dyti_tensor *tensor;
    struct held *held; /* by box, then rank */
    size_t count, cap;
};

static int by_box(const void *a, const void *b)
{
    const struct held *x = a, *y = b;

    for (uint32_t d = 0; d < x->box.ndim; d++) {
        if (x->box.lo[d] != y->box.lo[d]) {
            return x->box.lo[d] < y->box.lo[d] ? -1 : 1;
        }
        if (x->box.hi[d] != y->box.hi[d]) {
            return x->box.hi[d] < y->box.hi[d] ? -1 : 1;
        }
    }
    return (x->rank > y->rank) - (x->rank < y->rank);
}

static bool same_box(const struct dyt_box *a, const struct dyt_box *b)
{
    for (uint32_t d = 0; d < a->ndim; d++) {
        if (a->lo[d] != b->lo[d] || a->hi[d] != b->hi[d]) {
            return false;
        }
    }
    return true;
}

static enum dyt_status collect(const struct dyti_layout *layout,
                               const struct dyti_views_show *show,
                               struct drawing *d)
{
    for (uint32_t r = 0; r < layout->desc.world_size; r++) {
        struct dyti_view v = {0};
        enum dyt_status st = dyti_layout_view_build(layout, r, &v);

        for (uint32_t i = st == DYT_OK ? v.kind_first[show->kind] : 0;
             st == DYT_OK && i < v.kind_first[show->kind + 1]; i++) {
            if (v.shard[i].tensor != show->tensor) {
                continue;
            }
            st = DYTI_GROW(d->held, d->cap, d->count + 1);
            if (st == DYT_OK) {
                d->held[d->count++] =
                    (struct held){v.shard[i].box, r, v.shard[i].offset};
            }
        }
        dyti_view_fini(&v);
        if (st != DYT_OK) {
            return st;
        }
    }
    if (d->count > 1) {
        qsort(d->held, d->count, sizeof(*d->held), by_box);
    }
    return DYT_OK;
}

/* Pixels of [lo, hi) of one axis that is `size` long on `pixels`. */
static void extent(const struct drawing *d, const struct dyt_box *box,
                   uint32_t axis, double pixels, double *out_at,
                   double *out_size)
{
    double scale;

    *out_at = 0;
    *out_size = pixels;
    if (axis < d->tensor->ndim) {
        scale = pixels / (double)d->tensor->shape[axis];
        *out_at = (double)box->lo[axis] * scale;
        *out_size = (double)(box->hi[axis] - box->lo[axis]) * scale;
    }
}

/* Boxes [first, end) are equal: one rectangle. */
static void draw_group(const struct drawing *d, size_t first, size_t end,
                       FILE *out)
{
    const struct held *h = &d->held[first];
    bool flat = d->tensor->ndim == 1; /* drawn from left to right */
    double x, y, w, t;
    unsigned hue = h->rank * 137u % 360u; /* the golden angle */

    extent(d, &h->box, flat ? 1 : 0, HEIGHT, &y, &t);
    extent(d, &h->box, flat ? 0 : 1, WIDTH, &x, &w);
    fprintf(out, "<g><title>%s rank%s", dyti_words_box(&h->box).text,
            end - first > 1 ? "s" : "");
    for (size_t i = first; i < end && i < first + LABELS; i++) {
        fprintf(out, " %u", d->held[i].rank);
    }
    fprintf(out,
            "%s, at byte %" PRIu64 " of rank %u</title><rect x=\"%.2f\" "
            "y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"hsl(%u 60%% "
            "70%%)\" fill-opacity=\"0.8\" stroke=\"#333\" "
            "stroke-width=\"0.5\"/>",
            end - first > LABELS ? " and more" : "", h->offset, h->rank,
            MARGIN + x, 2 * MARGIN + y, w, t, hue);
    if (w >= 18 && t >= 12) {
        fprintf(out, "<text x=\"%.2f\" y=\"%.2f\">%u", MARGIN + x + 3,
                2 * MARGIN + y + 11, h->rank);
        for (size_t i = first + 1; i < end && i < first + 6; i++) {
            fprintf(out, ",%u", d->held[i].rank);
        }
        fprintf(out, "%s</text>", end - first > 6 ? ",…" : "");
    }
    fprintf(out, "</g>\n");
}

static void escaped(const char *text, FILE *out)
{
    for (; *text != '\0'; text++) {
        const char *as = *text == '<'   ? "&lt;"
                         : *text == '>' ? "&gt;"
                         : *text == '&' ? "&amp;"
                         : *text == '"' ? "&quot;"
                                        : NULL;

        if (as != NULL) {
            fputs(as, out);
        } else {
            fputc(*text, out);
        }
    }
}

enum dyt_status dyti_explain_tensor_svg(const struct dyti_layout *layout,
                                        const struct dyti_views_show *show,
                                        FILE *out)
{
    struct drawing d = {.tensor = &layout->model->tensor[show->tensor]};
    enum dyt_status st = collect(layout, show, &d);

    if (st != DYT_OK) {
        free(d.held);
        return st;
    }
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f "
            "%.0f\" font-family=\"sans-serif\" font-size=\"10\">\n<text "
            "x=\"%.0f\" y=\"16\" font-size=\"12\">",
            WIDTH + 2 * MARGIN, HEIGHT + 3 * MARGIN, MARGIN);
    escaped(d.tensor->name, out);
    fprintf(out, ", %s, %s</text>\n<text x=\"%.0f\" y=\"32\">",
            dyti_words_shape(d.tensor->ndim, d.tensor->shape).text,
            dyti_kind_name((enum dyti_kind)show->kind), MARGIN);
    escaped(show->spec, out);
    fprintf(out, "</text>\n");
    for (size_t i = 0, end; i < d.count; i = end) {
        for (end = i + 1;
             end < d.count && same_box(&d.held[i].box, &d.held[end].box);
             end++) {
        }
        draw_group(&d, i, end, out);
    }
    fprintf(out, "</svg>\n");
    free(d.held);
    return dyti_words_done(out, "the drawing");
}
