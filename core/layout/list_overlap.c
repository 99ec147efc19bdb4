/* Shards that share memory: those whose extents meet are compared run by run,
 * a run being bytes that follow each other. */
#include "layout/list.h"

#include "base/array.h"

#include <stdlib.h>
#include <string.h>

/* More runs than this in one knot of shards are not looked through. */
#define MOST_RUNS (1u << 22)

struct extent {
    int64_t lo, hi;
    uint32_t shard;
};

struct run {
    int64_t lo, hi;
    uint32_t shard;
};

/* A shard from its lowest byte, strides positive and rising; the innermost
 * dimensions that follow each other are one run. */
struct shape {
    int64_t base, run_bytes;
    uint32_t ndim;
    int64_t count[DYT_MAX_DIMS], stride[DYT_MAX_DIMS];
    bool nested; /* no two of its own elements can meet */
};

bool dyti_shard_extent(const struct dyti_shard *shard, int64_t *out_lo,
                       int64_t *out_hi)
{
    int64_t lo, hi;

    if (shard->offset > INT64_MAX) {
        return false;
    }
    lo = hi = (int64_t)shard->offset;
    for (uint32_t d = 0; d < shard->box.ndim; d++) {
        int64_t steps = shard->box.hi[d] - shard->box.lo[d] - 1, reach;

        if (__builtin_mul_overflow(steps, shard->stride[d], &reach) ||
            __builtin_add_overflow(reach < 0 ? lo : hi, reach,
                                   reach < 0 ? &lo : &hi)) {
            return false;
        }
    }
    if (__builtin_add_overflow(
            hi, dyti_dtype_bytes((enum dyti_dtype)shard->dtype), &hi)) {
        return false;
    }
    *out_lo = lo;
    *out_hi = hi;
    return true;
}

static struct shape shape_of(const struct dyti_shard *shard)
{
    int64_t bytes = dyti_dtype_bytes((enum dyti_dtype)shard->dtype);
    struct shape s = {.run_bytes = bytes, .nested = true}, folded;
    int64_t hi, reach = bytes;

    (void)dyti_shard_extent(shard, &s.base, &hi);
    for (uint32_t d = 0; d < shard->box.ndim; d++) {
        int64_t count = shard->box.hi[d] - shard->box.lo[d];
        int64_t stride = shard->stride[d];
        uint32_t at = s.ndim;

        if (count == 1) {
            continue;
        }
        stride = stride < 0 ? -stride : stride;
        for (; at > 0 && s.stride[at - 1] > stride; at--) {
            s.stride[at] = s.stride[at - 1];
            s.count[at] = s.count[at - 1];
        }
        s.stride[at] = stride;
        s.count[at] = count;
        s.ndim++;
    }
    folded = s;
    folded.ndim = 0;
    for (uint32_t d = 0; d < s.ndim; d++) {
        s.nested = s.nested && s.stride[d] >= reach;
        reach += (s.count[d] - 1) * s.stride[d];
        if (folded.ndim == 0 && s.stride[d] == folded.run_bytes) {
            folded.run_bytes *= s.count[d];
        } else {
            folded.stride[folded.ndim] = s.stride[d];
            folded.count[folded.ndim++] = s.count[d];
        }
    }
    folded.nested = s.nested;
    return folded;
}

static uint64_t runs_of(const struct shape *s)
{
    uint64_t runs = 1;

    for (uint32_t d = 0; d < s->ndim; d++) {
        if (__builtin_mul_overflow(runs, (uint64_t)s->count[d], &runs)) {
            return UINT64_MAX;
        }
    }
    return runs;
}

static void list_runs(const struct shape *s, uint32_t shard, struct run *run)
{
    int64_t at[DYT_MAX_DIMS] = {0}, base = s->base;
    uint64_t count = runs_of(s);

    for (uint64_t i = 0; i < count; i++) {
        run[i] = (struct run){base, base + s->run_bytes, shard};
        for (uint32_t d = 0; d < s->ndim; d++) {
            base += s->stride[d];
            if (++at[d] < s->count[d]) {
                break;
            }
            base -= at[d] * s->stride[d];
            at[d] = 0;
        }
    }
}

static int by_run(const void *a, const void *b)
{
    const struct run *x = a, *y = b;

    if (x->lo != y->lo) {
        return x->lo < y->lo ? -1 : 1;
    }
    return (x->shard > y->shard) - (x->shard < y->shard);
}

static int by_extent(const void *a, const void *b)
{
    const struct extent *x = a, *y = b;

    if (x->lo != y->lo) {
        return x->lo < y->lo ? -1 : 1;
    }
    return (x->shard > y->shard) - (x->shard < y->shard);
}

static void report(const struct dyti_model *model, uint32_t rank,
                   const struct dyti_shard *a, const struct dyti_shard *b,
                   int64_t at, struct dyti_faults *faults)
{
    if (a == b) {
        dyti_fault(faults,
                   "rank %u: %s of %s %s lies twice over byte %lld: its "
                   "strides meet",
                   rank, dyti_kind_name((enum dyti_kind)a->kind),
                   model->tensor[a->tensor].name, dyti_box_words(&a->box).text,
                   (long long)at);
    } else {
        dyti_fault(faults, "rank %u: %s of %s %s and of %s %s share byte %lld",
                   rank, dyti_kind_name((enum dyti_kind)a->kind),
                   model->tensor[a->tensor].name, dyti_box_words(&a->box).text,
                   model->tensor[b->tensor].name, dyti_box_words(&b->box).text,
                   (long long)at);
    }
}

/* Shards whose extents hang together: run by run, the first meeting. */
static enum dyt_status look_through(const struct dyti_model *model,
                                    uint32_t rank,
                                    const struct dyti_shard *shard,
                                    const struct extent *extent, size_t count,
                                    struct dyti_faults *faults)
{
    uint64_t total = 0;
    size_t at = 0;
    struct run *run;

    for (size_t i = 0; i < count; i++) {
        struct shape s = shape_of(&shard[extent[i].shard]);
        uint64_t runs = runs_of(&s);

        if (count == 1 && s.nested) {
            return DYT_OK;
        }
        if (runs > MOST_RUNS || (total += runs) > MOST_RUNS) {
            const struct dyti_shard *first = &shard[extent[i].shard];

            dyti_fault(faults,
                       "rank %u: %s of %s and %zu shards around it interleave "
                       "in more than %u rows: too many to tell apart",
                       rank, dyti_kind_name((enum dyti_kind)first->kind),
                       model->tensor[first->tensor].name, count - 1, MOST_RUNS);
            return DYT_OK;
        }
    }
    run = malloc(total * sizeof(*run));
    if (run == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%llu rows of shards",
                         (unsigned long long)total);
    }
    for (size_t i = 0; i < count; i++) {
        struct shape s = shape_of(&shard[extent[i].shard]);

        list_runs(&s, extent[i].shard, run + at);
        at += runs_of(&s);
    }
    qsort(run, total, sizeof(*run), by_run);
    for (size_t i = 1, last = 0; i < total; i++) {
        if (run[i].lo < run[last].hi) {
            report(model, rank, &shard[run[last].shard], &shard[run[i].shard],
                   run[i].lo, faults);
            break;
        }
        last = i;
    }
    free(run);
    return DYT_OK;
}

enum dyt_status dyti_find_overlaps(const struct dyti_model *model,
                                   uint32_t rank,
                                   const struct dyti_shard *shard, size_t count,
                                   struct dyti_faults *faults)
{
    struct extent *extent = malloc((count + 1) * sizeof(*extent));
    enum dyt_status st = DYT_OK;
    size_t first = 0;
    int64_t end = 0;

    if (extent == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu shards", count);
    }
    for (size_t i = 0; i < count; i++) {
        extent[i].shard = (uint32_t)i;
        (void)dyti_shard_extent(&shard[i], &extent[i].lo, &extent[i].hi);
    }
    qsort(extent, count, sizeof(*extent), by_extent);
    for (size_t i = 0; i < count && st == DYT_OK && !dyti_faults_full(faults);
         i++) {
        end = i == first || extent[i].hi > end ? extent[i].hi : end;
        if (i + 1 == count || extent[i + 1].lo >= end) {
            st = look_through(model, rank, shard, extent + first, i + 1 - first,
                              faults);
            first = i + 1;
        }
    }
    free(extent);
    return st;
}
