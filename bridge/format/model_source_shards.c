/* Boxes of a model from the files of ranks: which rank's shards stand for a
 * kind, and what of them lies in a box. */
#include "format/model_source_internal.h"

#include "base/array.h"
#include "base/banned.h"
#include "format/convert.h"
#include "format/file.h"
#include "layout/dialect.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MANIFEST_BYTES (256u << 20)

static int by_tensor(const void *a, const void *b)
{
    const struct dyti_source_piece *x = a, *y = b;

    if (x->kind != y->kind) {
        return x->kind < y->kind ? -1 : 1;
    }
    return (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

/* The entry as the rank's file must have it. */
static enum dyt_status find_entry(const struct dyti_safetensors *set,
                                  const struct dyti_shards_file *f,
                                  size_t entry,
                                  const struct dyti_safetensor **out)
{
    const struct dyti_safetensors_entry *want = &f->plan.entry[entry];
    const struct dyti_safetensor *have =
        dyti_safetensors_find(set, f->name[entry]);

    if (have == NULL || have->dtype != want->dtype ||
        have->ndim != want->ndim ||
        memcmp(have->shape, want->shape, want->ndim * sizeof(want->shape[0])) !=
            0) {
        return DYTI_FAIL(DYT_ERR_FORMAT,
                         "%s: %s is missing or not as the manifest says",
                         dyti_safetensors_file(set, 0), f->name[entry]);
    }
    *out = have;
    return DYT_OK;
}

/* Shards of the kinds for which this rank stands. */
static enum dyt_status add_pieces(struct dyti_model_source *s,
                                  const struct dyti_shards_file *f,
                                  const struct dyti_safetensors *set,
                                  uint32_t kinds)
{
    for (uint32_t i = 0; i < f->place_count; i++) {
        const struct dyti_shards_place *p = &f->place[i];
        const struct dyti_shard *shard = &f->view.shard[p->shard];
        const struct dyti_safetensor *have = NULL;
        struct dyti_source_piece *piece;
        enum dyt_status st;

        if ((kinds >> shard->kind & 1u) == 0) {
            continue;
        }
        st = find_entry(set, f, p->entry, &have);
        st = st != DYT_OK
                 ? st
                 : DYTI_GROW(s->piece, s->piece_cap, s->piece_count + 1);
        if (st != DYT_OK) {
            return st;
        }
        piece = &s->piece[s->piece_count++];
        piece->tensor = shard->tensor;
        piece->kind = shard->kind;
        piece->dtype = shard->dtype;
        piece->box = shard->box;
        piece->data = have->data + p->offset;
        memcpy(piece->stride, p->stride, sizeof(piece->stride));
    }
    return DYT_OK;
}

static enum dyt_status check_rank_file(const struct dyti_model_source *s,
                                       const char *path)
{
    struct stat info;

    if (!dyti_file_exists(path)) {
        return DYTI_FAIL(DYT_ERR_FORMAT,
                         "%s is missing: the manifest says %u ranks", path,
                         s->manifest.world);
    }
    return stat(path, &info) == 0 && S_ISREG(info.st_mode)
               ? DYT_OK
               : DYTI_FAIL(DYT_ERR_FORMAT, "%s is no regular file", path);
}

static enum dyt_status open_rank(struct dyti_model_source *s, const char *dir,
                                 uint32_t rank)
{
    const struct dyti_dialect_ops *ops =
        dyti_dialect_ops(s->layout->desc.dialect);
    char name[32], path[DYTI_PATH_BYTES];
    struct dyti_shards_file f = {.place_count = 0};
    uint32_t kinds = 0, member = 0;
    enum dyt_status st;

    while (member < s->layout->member_count &&
           s->layout->desc.ranks[member] != rank) {
        member++;
    }
    for (int kind = 0; kind < DYTI_EXTRA; kind++) {
        if (member < s->layout->member_count && (s->kinds >> kind & 1u) != 0 &&
            ops->representative(s->layout, member, (enum dyti_kind)kind) ==
                member) {
            kinds |= 1u << kind;
        }
    }
    dyti_shards_file_name(rank, name);
    st = dyti_path_join(path, dir, name);
    st = st != DYT_OK ? st : check_rank_file(s, path);
    if (st != DYT_OK || kinds == 0) {
        return st; /* a copy: others have the same */
    }
    st = dyti_shards_file_build(s->layout, rank, s->kinds, false, &f);
    st = st != DYT_OK ? st : dyti_safetensors_open(path, &s->file[rank]);
    st = st != DYT_OK ? st : add_pieces(s, &f, s->file[rank], kinds);
    dyti_shards_file_fini(&f);
    return st;
}

/* The layout that the manifest names, with the kinds that are there. */
static enum dyt_status build_layout(struct dyti_model_source *s,
                                    const char *path)
{
    const struct dyti_shards_manifest *m = &s->manifest;
    struct dyti_layout_spec spec = {0};
    size_t length = strlen(m->spec);
    enum dyt_status st;

    if (length > 5 && strcmp(m->spec + length - 5, ".toml") == 0) {
        return DYTI_FAIL(DYT_ERR_FORMAT, "%s: spec is no line", path);
    }
    st = dyti_layout_spec_read(m->spec, &spec);
    if (st == DYT_OK && spec.desc.world_size != m->world) {
        st = DYTI_FAIL(DYT_ERR_FORMAT, "%s: world is %u, its spec says %u",
                       path, m->world, spec.desc.world_size);
    }
    if (st == DYT_OK) {
        spec.desc.phase = "stored";
        spec.desc.lazy = true;
        for (int kind = 0; kind < DYTI_KIND_COUNT; kind++) {
            spec.desc.residency[kind] =
                (m->kinds >> kind & 1u) != 0 ? DYTI_HELD : DYTI_DROPPED;
        }
        st = dyti_layout_build(s->model, &spec.desc, &s->layout);
    }
    if (st == DYT_OK && (m->model_fingerprint != s->model->fingerprint ||
                         m->layout_fingerprint != s->layout->fingerprint)) {
        st = DYTI_FAIL(DYT_ERR_FORMAT,
                       "%s: the fingerprint of %s is not that of config.json "
                       "and spec: one of them is of another conversion",
                       path,
                       m->model_fingerprint != s->model->fingerprint
                           ? "the model"
                           : "the layout");
    }
    dyti_layout_spec_fini(&spec);
    if (st != DYT_OK) {
        DYTI_NOTE("reading %s", path);
    }
    return st;
}

/* The last rank's file is there: a manifest that claims a million ranks costs
 * nothing. */
static enum dyt_status check_world(const struct dyti_model_source *s,
                                   const char *dir)
{
    char name[32], path[DYTI_PATH_BYTES];
    enum dyt_status st;

    dyti_shards_file_name(s->manifest.world - 1, name);
    st = dyti_path_join(path, dir, name);
    return st != DYT_OK ? st : check_rank_file(s, path);
}

enum dyt_status dyti_source_open_shards(struct dyti_model_source *s,
                                        const char *dir, const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    enum dyt_status st = dyti_file_read(path, MANIFEST_BYTES, &text, &bytes);

    s->sharded = true;
    st = st != DYT_OK
             ? st
             : dyti_shards_manifest_parse(path, text, bytes, &s->manifest);
    free(text);
    st = st != DYT_OK ? st : check_world(s, dir);
    st = st != DYT_OK ? st : build_layout(s, path);
    if (st != DYT_OK) {
        return st;
    }
    s->kinds = s->manifest.kinds;
    s->file = calloc(s->manifest.world, sizeof(*s->file));
    if (s->file == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "files of %u ranks", s->manifest.world);
    }
    for (uint32_t r = 0; r < s->manifest.world && st == DYT_OK; r++) {
        st = open_rank(s, dir, r);
    }
    if (s->piece_count > 0) {
        qsort(s->piece, s->piece_count, sizeof(*s->piece), by_tensor);
    }
    return st;
}

static size_t first_piece(const struct dyti_model_source *s,
                          enum dyti_kind kind, uint32_t tensor)
{
    const struct dyti_source_piece want = {.tensor = tensor,
                                           .kind = (uint8_t)kind};
    size_t lo = 0, hi = s->piece_count;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (by_tensor(&s->piece[mid], &want) < 0) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

/* Let go of the pages of [from, to) that lie wholly in it. */
static void let_go(const unsigned char *from, const unsigned char *to)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t lo = (uintptr_t)from / page * page;
    uintptr_t hi = ((uintptr_t)to + page - 1) / page * page;

    (void)madvise((void *)lo, hi - lo, MADV_DONTNEED);
}

/* What a piece has of the box. */
static void copy_piece(const struct dyti_source_piece *p,
                       const struct dyt_box *box, enum dyti_dtype dtype,
                       unsigned char *dst, const int64_t *stride)
{
    uint32_t last = box->ndim - 1;
    int64_t at[DYT_MAX_DIMS], lo[DYT_MAX_DIMS], hi[DYT_MAX_DIMS];
    const unsigned char *from = NULL, *to = NULL;

    for (uint32_t d = 0; d <= last; d++) {
        lo[d] = p->box.lo[d] > box->lo[d] ? p->box.lo[d] : box->lo[d];
        hi[d] = p->box.hi[d] < box->hi[d] ? p->box.hi[d] : box->hi[d];
        if (lo[d] >= hi[d]) {
            return;
        }
        at[d] = lo[d];
    }
    for (bool more = true; more;) {
        const unsigned char *src = p->data, *end;
        unsigned char *out = dst;

        for (uint32_t d = 0; d <= last; d++) {
            src += (at[d] - p->box.lo[d]) * p->stride[d];
            out += (at[d] - box->lo[d]) * stride[d];
        }
        dyti_convert_row(dtype, out, stride[last], (enum dyti_dtype)p->dtype,
                         src, p->stride[last], hi[last] - lo[last]);
        end = src + (hi[last] - lo[last] - 1) * p->stride[last];
        from = from == NULL || src < from ? src : from;
        to = to == NULL || end > to ? end : to;
        more = false;
        for (uint32_t d = last; d-- > 0 && !more;) {
            if (++at[d] < hi[d]) {
                more = true;
            } else {
                at[d] = lo[d];
            }
        }
    }
    let_go(from, to + 1);
}

enum dyt_status dyti_source_read_shards(const struct dyti_model_source *s,
                                        enum dyti_kind kind, uint32_t tensor,
                                        const struct dyt_box *box,
                                        enum dyti_dtype dtype, void *dst,
                                        const int64_t *stride)
{
    for (size_t i = first_piece(s, kind, tensor);
         i < s->piece_count && s->piece[i].kind == kind &&
         s->piece[i].tensor == tensor;
         i++) {
        if (!dyti_convertible((enum dyti_dtype)s->piece[i].dtype, dtype)) {
            return DYTI_FAIL(DYT_ERR_UNSUPPORTED, "%s does not convert to %s",
                             s->model->tensor[tensor].name,
                             dyti_dtype_name(dtype));
        }
        copy_piece(&s->piece[i], box, dtype, dst, stride);
    }
    return DYT_OK;
}
