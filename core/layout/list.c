/* Layouts from shards that ranks handed in: all that is wrong with them is said
 * at once, up to ten faults. */
#include "layout/list.h"

#include "base/hash.h"
#include "layout/view.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- words --------------------------------------------------------------- */

void dyti_fault(struct dyti_faults *faults, const char *fmt, ...)
{
    size_t used = strlen(faults->text);
    va_list args;

    if (faults->count++ >= DYTI_FAULTS) {
        return;
    }
    if (used > 0) {
        (void)snprintf(faults->text + used, sizeof(faults->text) - used, "; ");
        used = strlen(faults->text);
    }
    va_start(args, fmt);
    (void)vsnprintf(faults->text + used, sizeof(faults->text) - used, fmt,
                    args);
    va_end(args);
}

struct dyti_box_text dyti_box_words(const struct dyt_box *box)
{
    struct dyti_box_text words = {"["};
    uint32_t ndim = box->ndim <= DYT_MAX_DIMS ? box->ndim : DYT_MAX_DIMS;

    for (uint32_t d = 0; d < ndim; d++) {
        size_t used = strlen(words.text);

        (void)snprintf(words.text + used, sizeof(words.text) - used,
                       "%s%" PRId64 ":%" PRId64, d == 0 ? "" : ", ", box->lo[d],
                       box->hi[d]);
    }
    words.text[strlen(words.text)] = ']';
    return words;
}

/* ---- one shard ----------------------------------------------------------- */

struct handed {
    const struct dyti_model *model;
    const struct dyti_layout_desc *desc;
    struct dyti_view *view; /* [world_size] our copies */
    struct dyti_faults faults;
};

static bool kind_is_held(const struct handed *h, uint32_t kind)
{
    return kind < DYTI_KIND_COUNT && h->desc->residency[kind] == DYTI_HELD;
}

static enum dyti_dtype dtype_of(const struct handed *h,
                                const struct dyti_tensor *t, uint32_t kind)
{
    return kind == DYTI_EXTRA || (kind == DYTI_PARAM && t->fixed_dtype)
               ? t->dtype
               : h->desc->dtype[kind];
}

/* Says what is wrong with it; false: nothing more can be asked of it. */
static bool check_what(struct handed *h, uint32_t rank,
                       const struct dyti_shard *s, uint32_t at)
{
    const struct dyti_tensor *t;

    if (!kind_is_held(h, s->kind)) {
        dyti_fault(&h->faults,
                   "rank %u, shard %u: kind %u is none that the phase holds",
                   rank, at, s->kind);
        return false;
    }
    if (s->tensor >= h->model->tensor_count) {
        dyti_fault(&h->faults, "rank %u, shard %u: tensor %u, the model has %u",
                   rank, at, s->tensor, h->model->tensor_count);
        return false;
    }
    t = &h->model->tensor[s->tensor];
    if ((t->kinds >> s->kind & 1u) == 0) {
        dyti_fault(&h->faults, "rank %u: %s has no %s", rank, t->name,
                   dyti_kind_name((enum dyti_kind)s->kind));
        return false;
    }
    if (h->desc->own_dtypes ? s->dtype >= DYTI_DTYPE_COUNT
                            : s->dtype != (uint8_t)dtype_of(h, t, s->kind)) {
        dyti_fault(&h->faults, "rank %u: %s of %s is %s, the phase says %s",
                   rank, dyti_kind_name((enum dyti_kind)s->kind), t->name,
                   dyti_dtype_name((enum dyti_dtype)s->dtype),
                   dyti_dtype_name(dtype_of(h, t, s->kind)));
        return false;
    }
    return true;
}

static bool check_box(struct handed *h, uint32_t rank,
                      const struct dyti_shard *s)
{
    const struct dyti_tensor *t = &h->model->tensor[s->tensor];

    if (s->box.ndim != t->ndim) {
        dyti_fault(&h->faults,
                   "rank %u: a shard of %s has %u dimensions, the "
                   "tensor %u",
                   rank, t->name, s->box.ndim, t->ndim);
        return false;
    }
    for (uint32_t d = 0; d < t->ndim; d++) {
        if (s->box.lo[d] < 0 || s->box.lo[d] > s->box.hi[d] ||
            s->box.hi[d] > t->shape[d]) {
            dyti_fault(&h->faults,
                       "rank %u: %s %s lies outside: dimension %u has %lld "
                       "elements",
                       rank, t->name, dyti_box_words(&s->box).text, d,
                       (long long)t->shape[d]);
            return false;
        }
    }
    return true;
}

static bool is_empty(const struct dyt_box *box)
{
    for (uint32_t d = 0; d < box->ndim; d++) {
        if (box->lo[d] == box->hi[d]) {
            return true;
        }
    }
    return false;
}

static bool check_place(struct handed *h, uint32_t rank,
                        const struct dyti_shard *s)
{
    const struct dyti_tensor *t = &h->model->tensor[s->tensor];
    uint64_t region = h->view[rank].region_bytes[s->kind];
    int64_t bytes = dyti_dtype_bytes((enum dyti_dtype)s->dtype);
    int64_t lo, hi;
    bool even = s->offset % (uint64_t)bytes == 0;

    if (!dyti_shard_extent(s, &lo, &hi) || lo < 0 || (uint64_t)hi > region) {
        dyti_fault(&h->faults,
                   "rank %u: %s of %s %s at byte %" PRIu64
                   " reaches out of its region of %" PRIu64 " bytes",
                   rank, dyti_kind_name((enum dyti_kind)s->kind), t->name,
                   dyti_box_words(&s->box).text, s->offset, region);
        return false;
    }
    for (uint32_t d = 0; d < t->ndim; d++) {
        even = even &&
               (s->box.hi[d] - s->box.lo[d] == 1 || s->stride[d] % bytes == 0);
    }
    if (!even) {
        dyti_fault(&h->faults,
                   "rank %u: %s of %s %s: offset and strides must be multiples "
                   "of its %lld bytes",
                   rank, dyti_kind_name((enum dyti_kind)s->kind), t->name,
                   dyti_box_words(&s->box).text, (long long)bytes);
        return false;
    }
    return true;
}

/* Keep the sound, non-empty ones. */
static void check_shards(struct handed *h, uint32_t rank)
{
    struct dyti_view *view = &h->view[rank];
    uint32_t kept = 0;

    for (uint32_t i = 0; i < view->shard_count && !dyti_faults_full(&h->faults);
         i++) {
        const struct dyti_shard *s = &view->shard[i];

        if (check_what(h, rank, s, i) && check_box(h, rank, s) &&
            !is_empty(&s->box) && check_place(h, rank, s)) {
            view->shard[kept++] = *s;
        }
    }
    view->shard_count = kept;
}

static void check_buffers(struct handed *h, uint32_t rank)
{
    const struct dyti_view *view = &h->view[rank];

    for (uint32_t i = 0;
         i < view->buffer_count && !dyti_faults_full(&h->faults); i++) {
        const struct dyti_view_buffer *b = &view->buffer[i];

        if (b->kind >= DYTI_KIND_COUNT || b->bytes > UINT64_MAX - b->offset ||
            b->offset + b->bytes > view->region_bytes[b->kind]) {
            dyti_fault(&h->faults,
                       "rank %u: buffer %.60s reaches out of its region", rank,
                       b->name);
        }
    }
}

/* ---- all of a rank ------------------------------------------------------- */

static int by_kind(const void *a, const void *b)
{
    const struct dyti_shard *x = a, *y = b;

    return (int)x->kind - (int)y->kind;
}

/* By kind, tensor, offset, as every view is. */
static void order_shards(struct dyti_view *view)
{
    uint32_t at = 0;

    qsort(view->shard, view->shard_count, sizeof(*view->shard), by_kind);
    for (uint32_t kind = 0; kind < DYTI_KIND_COUNT; kind++) {
        view->kind_first[kind] = at;
        while (at < view->shard_count && view->shard[at].kind == kind) {
            at++;
        }
        dyti_view_sort(view->shard + view->kind_first[kind],
                       at - view->kind_first[kind]);
    }
    view->kind_first[DYTI_KIND_COUNT] = at;
}

static enum dyt_status check_rank(struct handed *h, uint32_t rank)
{
    struct dyti_view *view = &h->view[rank];
    enum dyt_status st = DYT_OK;

    check_shards(h, rank);
    check_buffers(h, rank);
    order_shards(view);
    for (int kind = 0; kind < DYTI_KIND_COUNT && st == DYT_OK; kind++) {
        st = dyti_find_overlaps(
            h->model, rank, view->shard + view->kind_first[kind],
            view->kind_first[kind + 1] - view->kind_first[kind], &h->faults);
    }
    memset(&view->part, 0, sizeof(view->part));
    view->part = (struct dyti_part){.member = view->shard_count > 0,
                                    .member_index = rank,
                                    .tp_size = 1,
                                    .pp_size = 1,
                                    .dp_size = 1,
                                    .cp_size = 1,
                                    .vpp = 1};
    return st;
}

/* ---- all ranks ----------------------------------------------------------- */

/* Boxes of one kind by tensor, of all ranks. */
static enum dyt_status check_kind(struct handed *h, int kind)
{
    uint32_t tensors = h->model->tensor_count, world = h->desc->world_size;
    size_t *first = calloc((size_t)tensors + 2, sizeof(*first)), count = 0;
    const struct dyt_box **box = NULL;
    enum dyt_status st = DYT_OK;

    for (uint32_t r = 0; r < world && first != NULL; r++) {
        const struct dyti_view *v = &h->view[r];

        for (uint32_t i = v->kind_first[kind]; i < v->kind_first[kind + 1];
             i++) {
            first[v->shard[i].tensor + 2]++;
            count++;
        }
    }
    box = calloc(count + 1, sizeof(*box));
    if (first == NULL || box == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "%zu shards", count);
        goto out;
    }
    for (uint32_t t = 2; t < tensors + 2; t++) {
        first[t] += first[t - 1];
    }
    for (uint32_t r = 0; r < world; r++) {
        const struct dyti_view *v = &h->view[r];

        for (uint32_t i = v->kind_first[kind]; i < v->kind_first[kind + 1];
             i++) {
            box[first[v->shard[i].tensor + 1]++] = &v->shard[i].box;
        }
    }
    for (uint32_t i = 0;
         i < tensors && st == DYT_OK && !dyti_faults_full(&h->faults); i++) {
        const struct dyti_tensor *t = &h->model->tensor[i];
        struct dyt_box whole = {.ndim = t->ndim};
        struct dyt_box missing = {.ndim = t->ndim};
        bool covered = true;

        if ((t->kinds >> kind & 1u) == 0) {
            continue;
        }
        memcpy(whole.hi, t->shape, t->ndim * sizeof(t->shape[0]));
        st = dyti_find_missing(box + first[i], first[i + 1] - first[i], &whole,
                               &covered, missing.lo);
        for (uint32_t d = 0; d < t->ndim; d++) {
            missing.hi[d] = missing.lo[d] + 1;
        }
        if (st == DYT_OK && !covered) {
            dyti_fault(&h->faults, "no rank holds %s of %s at %s",
                       dyti_kind_name((enum dyti_kind)kind), t->name,
                       dyti_box_words(&missing).text);
        }
    }
out:
    free(first);
    free(box);
    return st;
}

static enum dyt_status check_all(struct handed *h)
{
    enum dyt_status st = DYT_OK;

    for (uint32_t r = 0; r < h->desc->world_size && st == DYT_OK &&
                         !dyti_faults_full(&h->faults);
         r++) {
        st = check_rank(h, r);
    }
    for (int kind = 0; kind < DYTI_KIND_COUNT && st == DYT_OK &&
                       !dyti_faults_full(&h->faults);
         kind++) {
        if (kind_is_held(h, (uint32_t)kind)) {
            st = check_kind(h, kind);
        }
    }
    if (st == DYT_OK && h->faults.count > 0) {
        st = DYTI_FAIL(DYT_ERR_LAYOUT, "%s%s", h->faults.text,
                       dyti_faults_full(&h->faults)
                           ? "; there may be more than these ten"
                           : "");
    }
    return st;
}

static uint64_t fingerprint(const struct dyti_layout *layout)
{
    const struct dyti_layout_desc *d = &layout->desc;
    uint64_t state = dyti_fingerprint_text(DYTI_FINGERPRINT_SEED, d->phase);

    state = dyti_fingerprint_u64(state, layout->model->fingerprint);
    state = dyti_fingerprint_u64(state, d->world_size);
    for (int kind = 0; kind < DYTI_KIND_COUNT; kind++) {
        state = dyti_fingerprint_u64(state, d->dtype[kind]);
        state = dyti_fingerprint_u64(state, d->residency[kind]);
    }
    for (uint32_t r = 0; r < d->world_size; r++) {
        const struct dyti_view *v = &layout->view[r];

        state = dyti_fingerprint_u64(state, d->host == NULL ? 0 : d->host[r]);
        state = dyti_fingerprint_u64(state, v->shard_count);
        for (int kind = 0; kind < DYTI_KIND_COUNT; kind++) {
            state = dyti_fingerprint_u64(state, v->region_bytes[kind]);
        }
        for (uint32_t i = 0; i < v->shard_count; i++) {
            const struct dyti_shard *s = &v->shard[i];

            state =
                dyti_fingerprint_u64(state, (uint64_t)s->tensor << 8 | s->kind);
            state = dyti_fingerprint_u64(state, s->offset);
            state =
                d->own_dtypes ? dyti_fingerprint_u64(state, s->dtype) : state;
            for (uint32_t d2 = 0; d2 < s->box.ndim; d2++) {
                state = dyti_fingerprint_u64(state, (uint64_t)s->box.lo[d2]);
                state = dyti_fingerprint_u64(state, (uint64_t)s->box.hi[d2]);
                state = dyti_fingerprint_u64(state, (uint64_t)s->stride[d2]);
            }
        }
    }
    return state;
}

/* Degrees mean nothing here: one of each.  Members are those that hold. */
static enum dyt_status keep_desc(struct dyti_layout *layout,
                                 const struct dyti_layout_desc *desc)
{
    struct dyti_layout_desc *d = &layout->desc;
    uint32_t *ranks = calloc(desc->world_size + 1u, sizeof(*ranks));
    uint32_t *host = calloc(desc->world_size + 1u, sizeof(*host));

    *d = (struct dyti_layout_desc){.world_size = desc->world_size,
                                   .tp = 1,
                                   .pp = 1,
                                   .dp = 1,
                                   .cp = 1,
                                   .ep = 1,
                                   .etp = 1,
                                   .vpp = 1,
                                   .own_dtypes = desc->own_dtypes,
                                   .dialect = DYTI_DIALECT_LIST};
    memcpy(d->dtype, desc->dtype, sizeof(d->dtype));
    memcpy(d->residency, desc->residency, sizeof(d->residency));
    d->ranks = ranks;
    d->phase = strdup(desc->phase == NULL ? "" : desc->phase);
    if (host != NULL && desc->host != NULL) {
        memcpy(host, desc->host, desc->world_size * sizeof(*host));
        d->host = host;
    } else {
        free(host);
    }
    if (ranks == NULL || d->phase == NULL ||
        (desc->host != NULL && d->host == NULL)) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a layout of %u ranks",
                         desc->world_size);
    }
    for (uint32_t r = 0; r < desc->world_size; r++) {
        if (layout->view[r].part.member) {
            ranks[layout->member_count++] = r;
        }
    }
    return DYT_OK;
}

enum dyt_status dyti_layout_from_views(const struct dyti_model *model,
                                       const struct dyti_layout_desc *desc,
                                       struct dyti_view *view,
                                       struct dyti_layout **out_layout)
{
    struct handed h = {.model = model, .desc = desc};
    struct dyti_layout *layout = NULL;
    enum dyt_status st = DYT_OK;

    if (desc->world_size == 0) {
        return DYTI_FAIL(DYT_ERR_LAYOUT, "shards of no rank");
    }
    for (int kind = 0; kind < DYTI_KIND_COUNT; kind++) {
        if ((unsigned)desc->dtype[kind] >= DYTI_DTYPE_COUNT) {
            return DYTI_FAIL(DYT_ERR_LAYOUT, "%s has no known dtype",
                             dyti_kind_name((enum dyti_kind)kind));
        }
    }
    layout = calloc(1, sizeof(*layout));
    if (layout == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a layout");
    }
    layout->model = model;
    layout->desc.world_size = desc->world_size;
    layout->view = calloc(desc->world_size, sizeof(*layout->view));
    if (layout->view == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "views of %u ranks", desc->world_size);
    }
    for (uint32_t r = 0; r < desc->world_size && st == DYT_OK; r++) {
        st = dyti_view_copy(&view[r], &layout->view[r]);
    }
    h.view = layout->view;
    st = st != DYT_OK ? st : check_all(&h);
    st = st != DYT_OK ? st : keep_desc(layout, desc);
    if (st != DYT_OK) {
        DYTI_NOTE("taking the shards of phase %s",
                  desc->phase == NULL ? "?" : desc->phase);
        dyti_layout_destroy(layout);
        return st;
    }
    layout->fingerprint = fingerprint(layout);
    for (uint32_t r = 0; r < desc->world_size; r++) {
        dyti_view_fini(&view[r]);
    }
    *out_layout = layout;
    return DYT_OK;
}
