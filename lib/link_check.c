/* Do the views of a link's members go together?  What came from others is
 * looked at, and which dtypes can be read as which. */
#include "lib/link_internal.h"

#include "layout/list.h"

#include <stdlib.h>
#include <string.h>

/* ---- views that came from others ------------------------------------------
 */

/* The extent that holds bytes [lo, hi) of a region. */
static bool in_extent(const struct dyti_memory_view *memory, uint32_t kind,
                      uint64_t lo, uint64_t hi)
{
    uint32_t a = 0, b = memory->extent_count;

    while (a < b) { /* the first behind (kind, lo) */
        uint32_t mid = a + (b - a) / 2;
        const struct dyti_extent *e = &memory->extent[mid];

        if (e->kind < kind || (e->kind == kind && e->offset <= lo)) {
            a = mid + 1;
        } else {
            b = mid;
        }
    }
    return a > 0 && memory->extent[a - 1].kind == kind &&
           hi <= memory->extent[a - 1].offset + memory->extent[a - 1].bytes;
}

static enum dyt_status check_view(const struct dyti_link *link, uint32_t rank,
                                  const struct dyti_memory_view *memory,
                                  uint32_t kinds)
{
    const struct dyti_view *view = &memory->view;

    for (uint32_t k = 0; k < DYTI_KIND_COUNT; k++) {
        if (view->kind_first[k] > view->kind_first[k + 1] ||
            view->kind_first[k + 1] > view->shard_count) {
            return DYTI_FAIL(DYT_ERR_INVALID, "the shards of member %u", rank);
        }
        for (uint32_t i = view->kind_first[k];
             i < view->kind_first[k + 1] && (kinds >> k & 1u) != 0; i++) {
            const struct dyti_shard *s = &view->shard[i];
            int64_t lo = 0, hi = 0;

            if (s->kind != k ||
                s->tensor >= link->params.catalogue->tensor_count ||
                s->dtype >= DYTI_DTYPE_COUNT || s->box.ndim > DYT_MAX_DIMS ||
                !dyti_shard_extent(s, &lo, &hi) || lo < 0 ||
                !in_extent(memory, k, (uint64_t)lo, (uint64_t)hi)) {
                return DYTI_FAIL(DYT_ERR_INVALID,
                                 "shard %u of member %u lies in no extent", i,
                                 rank);
            }
        }
    }
    return DYT_OK;
}

/* DOUBLE: both sets are alike. */
static enum dyt_status check_second(const struct dyti_link *link, uint32_t rank)
{
    const struct dyti_view *a = &dyti_link_memory(link, rank)->view;
    const struct dyti_view *b = &link->params.second[rank].view;
    bool same =
        a->shard_count == b->shard_count &&
        memcmp(a->region_bytes, b->region_bytes, sizeof(a->region_bytes)) == 0;

    for (uint32_t i = 0; same && i < a->shard_count; i++) {
        const struct dyti_shard *x = &a->shard[i], *y = &b->shard[i];

        same = x->tensor == y->tensor && x->kind == y->kind &&
               x->dtype == y->dtype && x->offset == y->offset &&
               memcmp(&x->box, &y->box, sizeof(x->box)) == 0 &&
               memcmp(x->stride, y->stride,
                      x->box.ndim * sizeof(x->stride[0])) == 0;
    }
    return same ? check_view(link, rank, &link->params.second[rank],
                             link->target_kinds)
                : DYTI_FAIL(DYT_ERR_INVALID, "the two sets of member %u differ",
                            rank);
}

enum dyt_status dyti_link_check_views(const struct dyti_link *link)
{
    enum dyt_status st = DYT_OK;

    for (uint32_t r = 0; r < link->params.member_count && st == DYT_OK; r++) {
        bool is_source = dyti_link_is_source(link, r);

        st = check_view(link, r, dyti_link_memory(link, r),
                        is_source ? link->source_kinds : link->target_kinds);
        if (st == DYT_OK && !is_source &&
            link->params.commit == DYT_COMMIT_DOUBLE) {
            st = check_second(link, r);
        }
    }
    return st;
}

/* ---- dtypes ---------------------------------------------------------------
 */

#define NO_DTYPE 0xffu

/* What receivers store a kind as: one dtype for each tensor. */
static enum dyt_status target_dtypes(const struct dyti_link *link,
                                     uint32_t kind, uint8_t *dtype)
{
    for (uint32_t r = link->params.source_count; r < link->params.member_count;
         r++) {
        const struct dyti_view *view = &dyti_link_memory(link, r)->view;

        for (uint32_t i = view->kind_first[kind];
             i < view->kind_first[kind + 1]; i++) {
            const struct dyti_shard *s = &view->shard[i];

            if (dtype[s->tensor] == NO_DTYPE) {
                dtype[s->tensor] = s->dtype;
            } else if (dtype[s->tensor] != s->dtype) {
                return DYTI_FAIL(
                    DYT_ERR_UNSUPPORTED,
                    "the receivers hold tensor %s as %s and as %s",
                    link->params.catalogue->tensor[s->tensor].name,
                    dyti_dtype_name((enum dyti_dtype)dtype[s->tensor]),
                    dyti_dtype_name((enum dyti_dtype)s->dtype));
            }
        }
    }
    return DYT_OK;
}

/* Can a kind of the sources be read so?  Floats convert, integers do not. */
static enum dyt_status check_source_kind(const struct dyti_link *link,
                                         uint32_t kind, const uint8_t *dtype)
{
    for (uint32_t r = 0; r < link->params.source_count; r++) {
        const struct dyti_view *view = &dyti_link_memory(link, r)->view;

        for (uint32_t i = view->kind_first[kind];
             i < view->kind_first[kind + 1]; i++) {
            const struct dyti_shard *s = &view->shard[i];
            uint8_t want = dtype[s->tensor];

            if (want != NO_DTYPE && want != s->dtype &&
                (want > DYTI_F16 || s->dtype > DYTI_F16)) {
                return DYTI_FAIL(
                    DYT_ERR_UNSUPPORTED,
                    "tensor %s is %s at the source and %s at the receiver: "
                    "only floats are converted",
                    link->params.catalogue->tensor[s->tensor].name,
                    dyti_dtype_name((enum dyti_dtype)s->dtype),
                    dyti_dtype_name((enum dyti_dtype)want));
            }
        }
    }
    return DYT_OK;
}

enum dyt_status dyti_link_check_dtypes(const struct dyti_link *link)
{
    size_t tensors = link->params.catalogue->tensor_count;
    uint8_t *dtype = malloc(tensors + 1);
    enum dyt_status st = dtype == NULL
                             ? DYTI_FAIL(DYT_ERR_NOMEM, "%zu tensors", tensors)
                             : DYT_OK;

    for (uint32_t k = 0; k < DYTI_KIND_COUNT && st == DYT_OK; k++) {
        if ((link->target_kinds >> k & 1u) == 0) {
            continue;
        }
        memset(dtype, NO_DTYPE, tensors + 1);
        st = target_dtypes(link, k, dtype);
        st = st != DYT_OK ? st : check_source_kind(link, k, dtype);
        if (st == DYT_OK && k == DYTI_PARAM) {
            st = check_source_kind(link, DYTI_MASTER, dtype);
        }
    }
    free(dtype);
    return st;
}

enum dyt_status dyti_snapshot_dtypes(const struct dyti_model *catalogue,
                                     const struct dyti_memory_view *receiver,
                                     uint32_t receiver_count, uint32_t kinds,
                                     uint8_t *out_dtype)
{
    size_t tensors = catalogue->tensor_count;

    memset(out_dtype, DYTI_SNAPSHOT_SKIP, DYTI_KIND_COUNT * tensors);
    for (uint32_t r = 0; r < receiver_count; r++) {
        const struct dyti_view *view = &receiver[r].view;

        for (uint32_t i = 0; i < view->shard_count; i++) {
            const struct dyti_shard *s = &view->shard[i];
            uint8_t *have;

            if (s->tensor >= tensors || s->kind >= DYTI_KIND_COUNT ||
                s->dtype >= DYTI_DTYPE_COUNT) {
                return DYTI_FAIL(DYT_ERR_INVALID,
                                 "shard %u of receiver %u: tensor %u, kind %u, "
                                 "dtype %u",
                                 i, r, s->tensor, s->kind, s->dtype);
            }
            have = &out_dtype[s->kind * tensors + s->tensor];
            if ((kinds >> s->kind & 1u) != 0 &&
                (*have == DYTI_SNAPSHOT_SKIP ||
                 dyti_dtype_bytes((enum dyti_dtype)s->dtype) >
                     dyti_dtype_bytes((enum dyti_dtype) * have))) {
                *have = s->dtype;
            }
        }
    }
    for (size_t t = 0; t < tensors; t++) {
        uint8_t param = out_dtype[DYTI_PARAM * tensors + t];
        uint8_t *master = &out_dtype[DYTI_MASTER * tensors + t];

        /* One that is wanted for its own sake too stays as wide as it is. */
        *master = *master == DYTI_SNAPSHOT_SKIP ? param : *master;
    }
    return DYT_OK;
}
