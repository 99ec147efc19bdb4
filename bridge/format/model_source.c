/* Where a model's boxes come from: whole tensors in files, or shards of ranks.
 */
#include "format/model_source.h"

#include "base/array.h"
#include "base/banned.h"
#include "format/convert.h"
#include "format/file.h"
#include "format/hf_config.h"
#include "format/weights.h"
#include "layout/dialect.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MANIFEST_BYTES (256u << 20)
#define HEAD_NAME      "lm_head.weight"

/* A shard of some rank, in its mapped file. */
struct piece {
    uint32_t tensor;
    uint8_t kind, dtype;
    struct dyt_box box;
    const unsigned char *data; /* of the box's first element */
    int64_t stride[DYT_MAX_DIMS];
};

struct dyti_model_source {
    struct dyti_model *model;
    uint32_t kinds;
    bool checkpoint;
    /* whole tensors: by kind; master may be the same as param */
    struct dyti_safetensors *whole[DYTI_KIND_COUNT];
    bool master_is_param;
    /* sharded */
    bool sharded;
    struct dyti_shards_manifest manifest;
    struct dyti_layout *layout;
    struct dyti_safetensors **file; /* [world], NULL: not needed */
    struct piece *piece;            /* by kind, tensor */
    size_t piece_count, piece_cap;
};

/* ---- whole tensors ------------------------------------------------------- */

static const struct dyti_safetensor *whole_tensor(
    const struct dyti_model_source *s, enum dyti_kind kind, uint32_t tensor)
{
    const struct dyti_tensor *t = &s->model->tensor[tensor];
    const struct dyti_safetensor *found =
        dyti_safetensors_find(s->whole[kind], t->name);

    return found == NULL && s->model->arch.tied && t->slot == DYTI_SLOT_EMBED
               ? dyti_safetensors_find(s->whole[kind], HEAD_NAME)
               : found;
}

static enum dyt_status open_whole(struct dyti_model_source *s, const char *dir,
                                  enum dyti_kind kind)
{
    char path[DYTI_PATH_BYTES], name[64];
    enum dyt_status st;

    if (kind == DYTI_PARAM) {
        snprintf(path, sizeof(path), "%s", dir);
    } else {
        snprintf(name, sizeof(name), "%s.safetensors", dyti_kind_name(kind));
        st = dyti_path_join(path, dir, name);
        if (st != DYT_OK || !dyti_file_exists(path)) {
            return st;
        }
    }
    st = dyti_safetensors_open(path, &s->whole[kind]);
    for (uint32_t i = 0; i < s->model->tensor_count && st == DYT_OK; i++) {
        const struct dyti_tensor *t = &s->model->tensor[i];
        const struct dyti_safetensor *have;

        if ((t->kinds >> kind & 1u) == 0) {
            continue;
        }
        have = whole_tensor(s, kind, i);
        if (kind != DYTI_PARAM &&
            (have == NULL || have->ndim != t->ndim || have->dtype != DYTI_F32 ||
             memcmp(have->shape, t->shape, t->ndim * sizeof(t->shape[0])) !=
                 0)) {
            st = DYTI_FAIL(DYT_ERR_FORMAT,
                           "%s: %s is missing or not as config.json says", path,
                           t->name);
        }
    }
    if (st == DYT_OK && kind == DYTI_PARAM) {
        st = dyti_weights_check(s->whole[kind], s->model);
    }
    if (st == DYT_OK) {
        s->kinds |= 1u << kind;
    }
    return st;
}

static enum dyt_status open_directory(struct dyti_model_source *s,
                                      const char *dir)
{
    enum dyt_status st = DYT_OK;

    for (int kind = 0; kind < DYTI_EXTRA && st == DYT_OK; kind++) {
        if (kind != DYTI_GRAD) {
            st = open_whole(s, dir, (enum dyti_kind)kind);
        }
    }
    s->checkpoint = s->whole[DYTI_EXP_AVG] != NULL;
    if (st == DYT_OK && s->checkpoint && s->whole[DYTI_MASTER] == NULL) {
        s->master_is_param = true; /* of an f32 run: the same bits */
        s->kinds |= 1u << DYTI_MASTER;
    }
    return st;
}

static enum dyt_status read_whole(const struct dyti_model_source *s,
                                  enum dyti_kind kind, uint32_t tensor,
                                  const struct dyt_box *box,
                                  enum dyti_dtype dtype, void *dst,
                                  const int64_t *stride)
{
    const struct dyti_safetensor *have;

    kind = kind == DYTI_MASTER && s->master_is_param ? DYTI_PARAM : kind;
    have = whole_tensor(s, kind, tensor);
    if (have == NULL) {
        return DYTI_FAIL(DYT_ERR_FORMAT, "%s is missing",
                         s->model->tensor[tensor].name);
    }
    return dyti_safetensors_read_box(s->whole[kind], have, box, dtype, dst,
                                     stride);
}

/* ---- shards -------------------------------------------------------------- */

static int by_tensor(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;

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
        struct piece *piece;
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

static enum dyt_status open_shards(struct dyti_model_source *s, const char *dir,
                                   const char *path)
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
    const struct piece want = {.tensor = tensor, .kind = (uint8_t)kind};
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
static void copy_piece(const struct piece *p, const struct dyt_box *box,
                       enum dyti_dtype dtype, unsigned char *dst,
                       const int64_t *stride)
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

static enum dyt_status read_shards(const struct dyti_model_source *s,
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

/* ---- the source ---------------------------------------------------------- */

/* Files of ranks say nothing without their manifest. */
static enum dyt_status check_manifest(const char *dir, const char *manifest)
{
    char name[32], path[DYTI_PATH_BYTES];
    enum dyt_status st;

    dyti_shards_file_name(0, name);
    st = dyti_path_join(path, dir, name);
    return st == DYT_OK && !dyti_file_exists(manifest) && dyti_file_exists(path)
               ? DYTI_FAIL(DYT_ERR_FORMAT,
                           "%s has files of ranks and no %s, which says what "
                           "they hold: copy it along",
                           dir, DYTI_SHARDS_MANIFEST)
               : st;
}

enum dyt_status dyti_model_source_open(const char *path,
                                       struct dyti_model_source **out_source)
{
    struct dyti_model_source *s = calloc(1, sizeof(*s));
    char manifest[DYTI_PATH_BYTES], text[1024];
    struct dyti_arch arch;
    enum dyt_status st = s == NULL ? DYTI_FAIL(DYT_ERR_NOMEM, "a source")
                                   : dyti_hf_config_read(path, &arch);

    st = st != DYT_OK ? st : dyti_model_build(&arch, &s->model);
    st = st != DYT_OK ? st
                      : dyti_path_join(manifest, path, DYTI_SHARDS_MANIFEST);
    st = st != DYT_OK ? st : check_manifest(path, manifest);
    if (st == DYT_OK) {
        st = dyti_file_exists(manifest) ? open_shards(s, path, manifest)
                                        : open_directory(s, path);
    }
    if (st == DYT_OK) {
        *out_source = s;
        return DYT_OK;
    }
    dyti_model_source_close(s);
    if (st == DYT_ERR_IO) { /* the directory is wrong, not its reading */
        snprintf(text, sizeof(text), "%s", dyti_error_message());
        st = dyti_error_adopt(DYT_ERR_FORMAT, text);
    }
    return st;
}

void dyti_model_source_close(struct dyti_model_source *s)
{
    if (s == NULL) {
        return;
    }
    for (int kind = 0; kind < DYTI_KIND_COUNT; kind++) {
        dyti_safetensors_close(s->whole[kind]);
    }
    for (uint32_t r = 0; s->file != NULL && r < s->manifest.world; r++) {
        dyti_safetensors_close(s->file[r]);
    }
    free(s->file);
    free(s->piece);
    dyti_layout_destroy(s->layout);
    dyti_shards_manifest_fini(&s->manifest);
    dyti_model_destroy(s->model);
    free(s);
}

const struct dyti_model *dyti_model_source_model(
    const struct dyti_model_source *source)
{
    return source->model;
}

uint32_t dyti_model_source_kinds(const struct dyti_model_source *source)
{
    return source->kinds;
}

const struct dyti_shards_manifest *dyti_model_source_manifest(
    const struct dyti_model_source *source)
{
    return source->sharded ? &source->manifest : NULL;
}

enum dyti_dtype dyti_model_source_dtype(const struct dyti_model_source *s,
                                        enum dyti_kind kind, uint32_t tensor)
{
    const struct dyti_tensor *t = &s->model->tensor[tensor];
    const struct dyti_safetensor *have;

    if (s->sharded) {
        return kind == DYTI_PARAM && t->fixed_dtype
                   ? t->dtype
                   : s->layout->desc.dtype[kind];
    }
    kind = kind == DYTI_MASTER && s->master_is_param ? DYTI_PARAM : kind;
    have = whole_tensor(s, kind, tensor);
    return have == NULL ? DYTI_F32 : have->dtype;
}

enum dyt_status dyti_model_source_read(const struct dyti_model_source *s,
                                       enum dyti_kind kind, uint32_t tensor,
                                       const struct dyt_box *box,
                                       enum dyti_dtype dtype, void *dst,
                                       const int64_t *stride)
{
    enum dyt_status st =
        s->sharded ? read_shards(s, kind, tensor, box, dtype, dst, stride)
                   : read_whole(s, kind, tensor, box, dtype, dst, stride);

    if (st != DYT_OK) {
        DYTI_NOTE("reading %s of %s", dyti_kind_name(kind),
                  s->model->tensor[tensor].name);
    }
    return st;
}
