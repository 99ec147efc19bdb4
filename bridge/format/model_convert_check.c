/* Is what a conversion wrote what its source holds?  Content hashes of whole
 * tensors, read tile by tile through a buffer that has a bound. */
#include "format/model_convert_internal.h"

#include "base/banned.h"
#include "base/hash.h"

#include <string.h>

/* ---- tiles --------------------------------------------------------------- */

/* The dimension along which the box is cut: everything inside of it fits. */
static uint32_t cut_dimension(const struct dyt_box *box, uint64_t elements,
                              int64_t *out_step)
{
    uint64_t inside = 1;

    for (uint32_t d = box->ndim; d-- > 0;) {
        uint64_t extent = (uint64_t)(box->hi[d] - box->lo[d]);

        if (inside * extent > elements || d == 0) {
            uint64_t step = elements / inside;

            step = step < 1 ? 1 : step > extent ? extent : step;
            *out_step = (int64_t)step;
            return d;
        }
        inside *= extent;
    }
    *out_step = 1;
    return 0;
}

bool dyti_convert_next_tile(const struct dyt_box *box, uint64_t elements,
                            struct dyt_box *tile)
{
    int64_t step;
    uint32_t cut = cut_dimension(box, elements, &step);

    if (tile->ndim == 0) {
        *tile = *box;
        for (uint32_t d = 0; d < cut; d++) {
            tile->hi[d] = tile->lo[d] + 1;
        }
    } else {
        uint32_t d = cut;

        if (tile->hi[d] < box->hi[d]) {
            tile->lo[d] = tile->hi[d];
        } else {
            while (d > 0 && tile->lo[d - 1] + 1 >= box->hi[d - 1]) {
                d--;
            }
            if (d == 0) {
                return false;
            }
            tile->lo[d - 1]++;
            tile->hi[d - 1] = tile->lo[d - 1] + 1;
            for (; d < cut; d++) {
                tile->lo[d] = box->lo[d];
                tile->hi[d] = box->lo[d] + 1;
            }
            tile->lo[cut] = box->lo[cut];
        }
    }
    tile->hi[cut] = tile->lo[cut] + step < box->hi[cut] ? tile->lo[cut] + step
                                                        : box->hi[cut];
    return true;
}

/* ---- hashes -------------------------------------------------------------- */

/* Elements that follow each other, the first one at row-major `index`. */
static uint64_t hash_row(uint64_t salt, uint64_t index, uint64_t count,
                         uint32_t width, const unsigned char *bytes)
{
    uint64_t sum = 0;

    for (uint64_t i = 0; i < count; i++) {
        uint64_t bits = 0;

        switch (width) { /* copies of a known size are single loads */
        case 2:
            memcpy(&bits, bytes + 2 * i, 2);
            break;
        case 4:
            memcpy(&bits, bytes + 4 * i, 4);
            break;
        default:
            memcpy(&bits, bytes + 8 * i, 8);
            break;
        }
        sum += dyti_content_mix(salt, index + i, bits);
    }
    return sum;
}

static uint64_t hash_tile(const struct dyti_tensor *t, uint64_t salt,
                          const struct dyt_box *tile, enum dyti_dtype dtype,
                          const unsigned char *bytes)
{
    uint32_t width = dyti_dtype_bytes(dtype), last = t->ndim - 1;
    uint64_t count = (uint64_t)(tile->hi[last] - tile->lo[last]);
    int64_t at[DYT_MAX_DIMS];
    uint64_t sum = 0;

    memcpy(at, tile->lo, sizeof(at));
    for (bool more = true; more; bytes += count * width) {
        uint64_t index = 0;

        for (uint32_t d = 0; d < t->ndim; d++) {
            index = index * (uint64_t)t->shape[d] + (uint64_t)at[d];
        }
        sum += hash_row(salt, index, count, width, bytes);
        more = false;
        for (uint32_t d = last; d-- > 0 && !more;) {
            if (++at[d] < tile->hi[d]) {
                more = true;
            } else {
                at[d] = tile->lo[d];
            }
        }
    }
    return sum;
}

enum dyt_status dyti_model_hash(const struct dyti_model_source *source,
                                enum dyti_kind kind, uint32_t tensor,
                                enum dyti_dtype dtype, void *buffer,
                                size_t buffer_bytes, uint64_t *out_hash)
{
    const struct dyti_tensor *t =
        &dyti_model_source_model(source)->tensor[tensor];
    uint64_t salt = dyti_content_salt(tensor, (uint32_t)kind), sum = 0;
    struct dyt_box box = {.ndim = t->ndim}, tile = {.ndim = 0};

    memcpy(box.hi, t->shape, t->ndim * sizeof(t->shape[0]));
    while (dyti_convert_next_tile(&box, buffer_bytes / dyti_dtype_bytes(dtype),
                                  &tile)) {
        int64_t stride[DYT_MAX_DIMS], step = dyti_dtype_bytes(dtype);
        enum dyt_status st;

        for (uint32_t d = t->ndim; d-- > 0;) {
            stride[d] = step;
            step *= tile.hi[d] - tile.lo[d];
        }
        st = dyti_model_source_read(source, kind, tensor, &tile, dtype, buffer,
                                    stride);
        if (st != DYT_OK) {
            return st;
        }
        sum += hash_tile(t, salt, &tile, dtype, buffer);
    }
    *out_hash = sum;
    return DYT_OK;
}

/* The hash that the source's manifest has for a tensor; false: none. */
static bool known_hash(const struct dyti_model_source *source,
                       enum dyti_kind kind, const char *name, uint64_t *out)
{
    const struct dyti_shards_manifest *m = dyti_model_source_manifest(source);

    for (uint32_t i = 0; m != NULL && i < m->tensor_count; i++) {
        if (strcmp(m->tensor[i].name, name) == 0) {
            *out = m->tensor[i].hash[kind];
            return true;
        }
    }
    return false;
}

/* The source's own hash of it, where it has one, and the one that the result
 * must have. */
static enum dyt_status hash_source(struct dyti_conversion *c,
                                   enum dyti_kind kind, uint32_t tensor,
                                   uint64_t *out_hash)
{
    const struct dyti_tensor *t = &c->layout->model->tensor[tensor];
    enum dyti_dtype have = dyti_model_source_dtype(c->source, kind, tensor);
    enum dyti_dtype want = dyti_convert_dtype(c, kind, t);
    uint64_t known = 0, hash = 0;
    bool is_known = known_hash(c->source, kind, t->name, &known);
    enum dyt_status st = DYT_OK;

    if (is_known) {
        st = dyti_model_hash(c->source, kind, tensor, have, c->buffer,
                             c->buffer_bytes, &hash);
        if (st == DYT_OK && hash != known) {
            st = DYTI_FAIL(DYT_ERR_FORMAT,
                           "%s: %s of %s is not what its manifest says: the "
                           "files were changed or damaged; fetch or make them "
                           "anew",
                           c->desc->from, dyti_kind_name(kind), t->name);
        }
        c->report.checked = true;
    }
    if (st == DYT_OK && (!is_known || have != want)) {
        st = dyti_model_hash(c->source, kind, tensor, want, c->buffer,
                             c->buffer_bytes, &hash);
    }
    if (st == DYT_OK) {
        *out_hash = hash;
    }
    return st;
}

enum dyt_status dyti_convert_check(struct dyti_conversion *c,
                                   const struct dyti_model_source *result,
                                   struct dyti_shards_hash *keep)
{
    const struct dyti_model *m = c->layout->model;

    for (uint32_t i = 0; i < m->tensor_count; i++) {
        for (int k = 0; k < DYTI_EXTRA; k++) {
            enum dyti_kind kind = (enum dyti_kind)k;
            enum dyti_dtype dtype = dyti_convert_dtype(c, kind, &m->tensor[i]);
            uint64_t want = 0, got = 0;
            enum dyt_status st;

            if ((c->kinds & m->tensor[i].kinds & 1u << k) == 0) {
                continue;
            }
            st = hash_source(c, kind, i, &want);
            st = st != DYT_OK
                     ? st
                     : dyti_model_hash(result, kind, i, dtype, c->buffer,
                                       c->buffer_bytes, &got);
            if (st == DYT_OK && got != want) {
                st = DYTI_FAIL(
                    DYT_ERR_VERIFY, "%s: %s of %s is not what was written",
                    c->partial, dyti_kind_name(kind), m->tensor[i].name);
            }
            if (st != DYT_OK) {
                return st;
            }
            if (keep != NULL) {
                keep[i].hash[k] = want;
            }
            dyti_convert_tell(c, "checking",
                              dyti_tensor_elements(&m->tensor[i]) *
                                  dyti_dtype_bytes(dtype));
        }
    }
    return DYT_OK;
}
