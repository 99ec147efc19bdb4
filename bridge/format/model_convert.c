/* A conversion from its beginning to its end: what the result is made of, and
 * when it may be published. */
#include "format/model_convert_internal.h"

#include "base/banned.h"
#include "format/checkpoint_dir.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void dyti_convert_tell(struct dyti_conversion *c, const char *what,
                       uint64_t more_bytes)
{
    c->done += more_bytes;
    if (c->desc->progress != NULL) {
        c->desc->progress(c->desc->progress_self, what, c->done, c->total);
    }
}

enum dyti_dtype dyti_convert_dtype(const struct dyti_conversion *c,
                                   enum dyti_kind kind,
                                   const struct dyti_tensor *t)
{
    return kind == DYTI_PARAM && t->fixed_dtype ? t->dtype
                                                : c->layout->desc.dtype[kind];
}

/* No type is made narrower that nobody asked for: an f32 router stays f32. */
static enum dyt_status check_types(const struct dyti_conversion *c,
                                   bool asked_for)
{
    const struct dyti_model *m = c->layout->model;

    for (uint32_t i = 0; i < m->tensor_count && !asked_for; i++) {
        enum dyti_dtype have =
            dyti_model_source_dtype(c->source, DYTI_PARAM, i);
        enum dyti_dtype want = dyti_convert_dtype(c, DYTI_PARAM, &m->tensor[i]);

        if (have != want && dyti_dtype_bytes(have) >= dyti_dtype_bytes(want)) {
            return DYTI_FAIL(DYT_ERR_CONFIG,
                             "%s is %s in %s and would become %s: say "
                             "dtype.param=%s to keep it, dtype.param=%s to "
                             "round",
                             m->tensor[i].name, dyti_dtype_name(have),
                             c->desc->from, dyti_dtype_name(want),
                             dyti_dtype_name(have), dyti_dtype_name(want));
        }
    }
    return DYT_OK;
}

/* The layout of the result: for whole tensors that of `hf`. */
static enum dyt_status choose_layout(struct dyti_conversion *c)
{
    const struct dyti_model *m = dyti_model_source_model(c->source);
    struct dyti_layout_desc d = {
        .dialect = DYTI_DIALECT_HF, .world_size = 1, .tp = 1, .pp = 1, .dp = 1};
    bool shards = c->desc->form == DYTI_CONVERT_SHARDS;
    struct dyti_layout_spec *spec = c->desc->spec;
    enum dyt_status st;

    if (spec != NULL) {
        struct dyti_arch arch = m->arch;

        arch.dtype = dyti_model_source_dtype(c->source, DYTI_PARAM, 0);
        dyti_layout_spec_use_model(spec, &arch);
        if (shards) {
            d = spec->desc;
        }
        d.dtype[DYTI_PARAM] = spec->desc.dtype[DYTI_PARAM];
    } else {
        d.dtype[DYTI_PARAM] = dyti_model_source_dtype(c->source, DYTI_PARAM, 0);
    }
    for (int kind = 0; kind < DYTI_KIND_COUNT; kind++) {
        bool has = (dyti_model_source_kinds(c->source) >> kind & 1u) != 0;
        bool wanted = shards ? d.residency[kind] == DYTI_HELD
                      : c->desc->form == DYTI_CONVERT_CHECKPOINT
                          ? kind != DYTI_GRAD
                          : kind == DYTI_PARAM;

        d.residency[kind] = has && wanted ? DYTI_HELD : DYTI_DROPPED;
        c->kinds |= has && wanted ? 1u << kind : 0u;
    }
    d.phase = "stored"; /* part of the fingerprint in a manifest */
    d.lazy = true;
    st = dyti_layout_build(m, &d, &c->layout);
    if (st == DYT_OK && shards) {
        st = dyti_layout_spec_text(&d, &c->spec);
    }
    return st != DYT_OK
               ? st
               : check_types(c, spec != NULL && spec->param_dtype_given);
}

static enum dyt_status list_files(struct dyti_conversion *c)
{
    bool shards = c->desc->form == DYTI_CONVERT_SHARDS;
    uint32_t most = shards ? c->layout->desc.world_size : DYTI_KIND_COUNT;

    c->file = calloc(most, sizeof(*c->file));
    if (c->file == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u files", most);
    }
    for (uint32_t i = 0; i < most; i++) {
        struct dyti_convert_file *f = &c->file[c->file_count];

        if (shards) {
            f->rank = i;
            f->kinds = c->kinds;
            dyti_shards_file_name(i, f->name);
        } else if ((c->kinds >> i & 1u) == 0 ||
                   (i == DYTI_MASTER &&
                    c->layout->desc.dtype[DYTI_PARAM] == DYTI_F32)) {
            continue; /* the master of an f32 run is `param` */
        } else {
            f->kinds = 1u << i;
            f->plain = true;
            snprintf(f->name, sizeof(f->name), "%s.safetensors",
                     i == DYTI_PARAM ? "model"
                                     : dyti_kind_name((enum dyti_kind)i));
        }
        c->file_count++;
    }
    c->report.files = c->file_count;
    c->report.kinds = c->kinds;
    return DYT_OK;
}

static enum dyt_status write_manifest(struct dyti_conversion *c,
                                      struct dyti_shards_hash *hash)
{
    struct dyti_shards_manifest m = {
        .spec = c->spec,
        .model_fingerprint = c->layout->model->fingerprint,
        .layout_fingerprint = c->layout->fingerprint,
        .world = c->layout->desc.world_size,
        .kinds = c->kinds,
        .tensor = hash,
        .tensor_count = c->layout->model->tensor_count};
    char path[DYTI_PATH_BYTES];
    enum dyt_status st = dyti_path_join(path, c->partial, DYTI_SHARDS_MANIFEST);

    return st != DYT_OK ? st : dyti_shards_manifest_write(path, &m);
}

/* Read everything back and mark it as right. */
static enum dyt_status conclude(struct dyti_conversion *c)
{
    const struct dyti_model *m = c->layout->model;
    struct dyti_shards_hash *hash = calloc(m->tensor_count + 1u, sizeof(*hash));
    struct dyti_model_source *result = NULL;
    enum dyt_status st =
        hash == NULL ? DYTI_FAIL(DYT_ERR_NOMEM, "hashes") : DYT_OK;

    for (uint32_t i = 0; i < m->tensor_count && hash != NULL; i++) {
        hash[i].name = (char *)(uintptr_t)m->tensor[i].name;
    }
    if (st == DYT_OK && c->spec != NULL) {
        st = write_manifest(c, hash); /* so that it can be opened */
    }
    st = st != DYT_OK ? st : dyti_model_source_open(c->partial, &result);
    st = st != DYT_OK ? st : dyti_convert_check(c, result, hash);
    if (st == DYT_OK && c->spec != NULL) {
        st = write_manifest(c, hash); /* now with the hashes */
    }
    dyti_model_source_close(result);
    free(hash);
    return st;
}

static void close_all(struct dyti_conversion *c)
{
    if (c->lock >= 0) {
        (void)close(c->lock);
    }
    free(c->buffer);
    free(c->file);
    free(c->spec);
    dyti_layout_destroy(c->layout);
    dyti_model_source_close(c->source);
}

/* Bytes to check. */
static void count_bytes(struct dyti_conversion *c)
{
    const struct dyti_model *m = c->layout->model;

    c->done = c->total = 0;

    for (uint32_t i = 0; i < m->tensor_count; i++) {
        for (int kind = 0; kind < DYTI_EXTRA; kind++) {
            if ((c->kinds & m->tensor[i].kinds & 1u << kind) != 0) {
                c->total += dyti_tensor_elements(&m->tensor[i]) *
                            dyti_dtype_bytes(dyti_convert_dtype(
                                c, (enum dyti_kind)kind, &m->tensor[i]));
            }
        }
    }
}

/* What can be refused before anything is written. */
static enum dyt_status check_form(const struct dyti_convert_desc *d)
{
    char path[DYTI_PATH_BYTES];
    enum dyt_status st = dyti_path_join(path, d->from, DYTI_CHECKPOINT_STATE);

    if (st != DYT_OK) {
        return st;
    }
    if (d->form == DYTI_CONVERT_CHECKPOINT && access(path, F_OK) != 0) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "%s has no %s: only what was a checkpoint becomes one",
                         d->from, DYTI_CHECKPOINT_STATE);
    }
    if (d->form == DYTI_CONVERT_SHARDS && d->spec != NULL &&
        d->spec->desc.world_size > DYTI_CONVERT_MOST_RANKS) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "%u ranks: a directory has the files of at most %u",
                         d->spec->desc.world_size, DYTI_CONVERT_MOST_RANKS);
    }
    return DYT_OK;
}

static enum dyt_status prepare(struct dyti_conversion *c)
{
    enum dyt_status st;

    if (c->desc->memory_cap < DYTI_CONVERT_LEAST_MEMORY) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "a memory cap of %llu bytes: the smallest that works "
                         "is %u MiB",
                         (unsigned long long)c->desc->memory_cap,
                         DYTI_CONVERT_LEAST_MEMORY >> 20);
    }
    st = dyti_model_source_open(c->desc->from, &c->source);
    st = st != DYT_OK ? st : check_form(c->desc);
    st = st != DYT_OK ? st : dyti_checkpoint_verify_model(c->desc->from);
    st = st != DYT_OK ? st : choose_layout(c);
    st = st != DYT_OK ? st : list_files(c);
    if (st == DYT_OK) {
        uint64_t bytes = c->desc->memory_cap / 8;

        c->buffer_bytes = bytes < 16u << 20 ? (size_t)bytes : 16u << 20;
        c->buffer = malloc(c->buffer_bytes);
        st = c->buffer == NULL
                 ? DYTI_FAIL(DYT_ERR_NOMEM, "%zu bytes", c->buffer_bytes)
                 : DYT_OK;
    }
    return st;
}

enum dyt_status dyti_model_convert(const struct dyti_convert_desc *desc,
                                   struct dyti_convert_report *out_report)
{
    struct dyti_conversion c = {.desc = desc, .lock = -1};
    enum dyt_status st = prepare(&c);

    st = st != DYT_OK ? st : dyti_convert_begin(&c);
    st = st != DYT_OK ? st : dyti_convert_count_files(&c);
    for (uint32_t i = 0; i < c.file_count && st == DYT_OK; i++) {
        st = dyti_convert_write_file(&c, &c.file[i]);
    }
    st = st != DYT_OK ? st : dyti_convert_copy_rest(&c);
    if (st == DYT_OK) {
        count_bytes(&c);
        st = conclude(&c);
        if (st == DYT_ERR_VERIFY) {
            dyti_convert_give_up(&c);
        }
    }
    st = st != DYT_OK ? st : dyti_convert_publish(&c);
    if (st == DYT_OK) {
        *out_report = c.report;
    } else {
        DYTI_NOTE("converting %s to %s", desc->from, desc->to);
    }
    close_all(&c);
    return st;
}
