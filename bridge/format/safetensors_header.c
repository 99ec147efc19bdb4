/* The header of one safetensors file: 8 bytes of length, then JSON.  Every
 * number in it is checked against the file before it is used. */
#include "format/safetensors_set.h"

#include "base/array.h"
#include "base/checked.h"

#include "base/banned.h"

#define MOST_HEADER_BYTES 100000000u /* as the reference reader has it */

static const struct {
    const char *type;
    uint32_t bytes;
    enum dyti_dtype dtype;
} types[] = {
    {"F32", 4, DYTI_F32},
    {"BF16", 2, DYTI_BF16},
    {"F16", 2, DYTI_F16},
    {"I32", 4, DYTI_I32},
    {"I64", 8, DYTI_I64},
    {"BOOL", 1, DYTI_DTYPE_COUNT},
    {"U8", 1, DYTI_DTYPE_COUNT},
    {"I8", 1, DYTI_DTYPE_COUNT},
    {"I16", 2, DYTI_DTYPE_COUNT},
    {"U16", 2, DYTI_DTYPE_COUNT},
    {"U32", 4, DYTI_DTYPE_COUNT},
    {"U64", 8, DYTI_DTYPE_COUNT},
    {"F64", 8, DYTI_DTYPE_COUNT},
    {"F8_E4M3", 1, DYTI_DTYPE_COUNT},
    {"F8_E5M2", 1, DYTI_DTYPE_COUNT},
};

static enum dyt_status read_type(const char *path, const char *name,
                                 const json_t *value,
                                 struct dyti_safetensor *tensor,
                                 uint32_t *out_bytes)
{
    const char *type = json_string_value(value);

    if (type == NULL) {
        return DYTI_FAIL(DYT_ERR_FORMAT, "%s: %s: dtype must be a string", path,
                         name);
    }
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (strcmp(type, types[i].type) == 0) {
            tensor->type = types[i].type;
            tensor->dtype = types[i].dtype;
            *out_bytes = types[i].bytes;
            return DYT_OK;
        }
    }
    return DYTI_FAIL(DYT_ERR_UNSUPPORTED, "%s: %s: unknown dtype %.32s", path,
                     name, type);
}

/* Bytes that shape and dtype ask for, in *out_bytes. */
static enum dyt_status read_shape(const char *path, const char *name,
                                  const json_t *value, uint32_t item_bytes,
                                  struct dyti_safetensor *tensor,
                                  uint64_t *out_bytes)
{
    uint64_t bytes = item_bytes;

    if (!json_is_array(value)) {
        return DYTI_FAIL(DYT_ERR_FORMAT, "%s: %s: shape must be an array", path,
                         name);
    }
    if (json_array_size(value) > DYT_MAX_DIMS) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "%s: %s: %zu dimensions, at most %u are taken", path,
                         name, json_array_size(value), DYT_MAX_DIMS);
    }
    tensor->ndim = (uint32_t)json_array_size(value);
    for (uint32_t i = 0; i < tensor->ndim; i++) {
        const json_t *size = json_array_get(value, i);
        json_int_t n = json_integer_value(size);

        if (!json_is_integer(size) || n < 0) {
            return DYTI_FAIL(DYT_ERR_FORMAT,
                             "%s: %s: shape must hold sizes from 0 on", path,
                             name);
        }
        tensor->shape[i] = n;
        if (dyti_mul_overflow(bytes, (uint64_t)n, &bytes)) {
            return DYTI_FAIL(DYT_ERR_FORMAT, "%s: %s: the shape is too big",
                             path, name);
        }
    }
    *out_bytes = bytes;
    return DYT_OK;
}

static enum dyt_status read_range(const char *path, const char *name,
                                  const json_t *value, uint64_t want_bytes,
                                  uint64_t data_bytes, uint64_t *out_lo)
{
    const json_t *lo = json_array_get(value, 0), *hi = json_array_get(value, 1);
    json_int_t a = json_integer_value(lo), b = json_integer_value(hi);

    if (json_array_size(value) != 2 || !json_is_integer(lo) ||
        !json_is_integer(hi) || a < 0 || b < a) {
        return DYTI_FAIL(DYT_ERR_FORMAT,
                         "%s: %s: data_offsets must be [begin, end]", path,
                         name);
    }
    if ((uint64_t)b > data_bytes) {
        return DYTI_FAIL(
            DYT_ERR_FORMAT, "%s: %s: ends at byte %lld of %llu bytes of data",
            path, name, (long long)b, (unsigned long long)data_bytes);
    }
    if ((uint64_t)(b - a) != want_bytes) {
        return DYTI_FAIL(
            DYT_ERR_FORMAT, "%s: %s: %lld bytes, but dtype and shape need %llu",
            path, name, (long long)(b - a), (unsigned long long)want_bytes);
    }
    *out_lo = (uint64_t)a;
    return DYT_OK;
}

static enum dyt_status check_keys(const char *path, const char *name,
                                  json_t *entry)
{
    static const char *const known[] = {"dtype", "shape", "data_offsets"};

    if (!json_is_object(entry)) {
        return DYTI_FAIL(DYT_ERR_FORMAT, "%s: %s: must be an object", path,
                         name);
    }
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (json_object_get(entry, known[i]) == NULL) {
            return DYTI_FAIL(DYT_ERR_FORMAT, "%s: %s: %s is missing", path,
                             name, known[i]);
        }
    }
    if (json_object_size(entry) != sizeof(known) / sizeof(known[0])) {
        return DYTI_FAIL(DYT_ERR_FORMAT,
                         "%s: %s: more than dtype, shape and data_offsets",
                         path, name);
    }
    return DYT_OK;
}

static enum dyt_status add_tensor(struct dyti_safetensors *set, uint32_t file,
                                  const unsigned char *data,
                                  uint64_t data_bytes, const char *name,
                                  json_t *entry)
{
    const char *path = set->source[file].path;
    struct dyti_safetensor tensor = {.file = file};
    uint32_t item_bytes = 0;
    uint64_t lo = 0;
    char *own;
    enum dyt_status st = check_keys(path, name, entry);

    if (st == DYT_OK) {
        st = read_type(path, name, json_object_get(entry, "dtype"), &tensor,
                       &item_bytes);
    }
    if (st == DYT_OK) {
        st = read_shape(path, name, json_object_get(entry, "shape"), item_bytes,
                        &tensor, &tensor.bytes);
    }
    if (st == DYT_OK) {
        st = read_range(path, name, json_object_get(entry, "data_offsets"),
                        tensor.bytes, data_bytes, &lo);
    }
    if (st == DYT_OK) {
        st = DYTI_GROW(set->tensor, set->tensor_cap, set->tensor_count + 1);
    }
    if (st != DYT_OK) {
        return st;
    }
    own = strdup(name);
    if (own == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%s: %s", path, name);
    }
    tensor.name = own;
    tensor.data = data + lo;
    set->tensor[set->tensor_count++] = tensor;
    return DYT_OK;
}

static int by_place(const void *a, const void *b)
{
    const struct dyti_safetensor *x = *(const struct dyti_safetensor *const *)a;
    const struct dyti_safetensor *y = *(const struct dyti_safetensor *const *)b;

    if (x->data != y->data) {
        return x->data < y->data ? -1 : 1;
    }
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Sorted by place, each must begin where the one before it ended, and the last
 * end where the file does. */
static enum dyt_status check_cover(const struct dyti_safetensors *set,
                                   size_t first, const char *path,
                                   const unsigned char *data,
                                   uint64_t data_bytes)
{
    size_t count = set->tensor_count - first;
    const struct dyti_safetensor **order;
    const unsigned char *at = data;
    enum dyt_status st = DYT_OK;

    order = malloc((count + 1) * sizeof(const struct dyti_safetensor *));
    if (order == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%s: %zu tensors", path, count);
    }
    for (size_t i = 0; i < count; i++) {
        order[i] = &set->tensor[first + i];
    }
    qsort(order, count, sizeof(const struct dyti_safetensor *), by_place);
    for (size_t i = 0; i < count && st == DYT_OK; i++) {
        if (order[i]->data < at) {
            st = DYTI_FAIL(DYT_ERR_FORMAT, "%s: %s and %s overlap", path,
                           order[i - 1]->name, order[i]->name);
        } else if (order[i]->data > at) {
            st = DYTI_FAIL(DYT_ERR_FORMAT, "%s: a hole of %td bytes before %s",
                           path, order[i]->data - at, order[i]->name);
        }
        at = order[i]->data + order[i]->bytes;
    }
    if (st == DYT_OK && at != data + data_bytes) {
        st = DYTI_FAIL(DYT_ERR_FORMAT, "%s: %td bytes after the last tensor",
                       path, data + data_bytes - at);
    }
    free(order);
    return st;
}

static enum dyt_status take_metadata(struct dyti_safetensors_source *source,
                                     json_t *value)
{
    const char *key;
    json_t *text;

    if (!json_is_object(value)) {
        return DYTI_FAIL(DYT_ERR_FORMAT, "%s: __metadata__ must be an object",
                         source->path);
    }
    json_object_foreach(value, key, text)
    {
        if (!json_is_string(text)) {
            return DYTI_FAIL(DYT_ERR_FORMAT,
                             "%s: __metadata__ must hold strings",
                             source->path);
        }
    }
    source->metadata = json_incref(value);
    return DYT_OK;
}

static enum dyt_status header_length(const struct dyti_safetensors_source *s,
                                     uint64_t *out_bytes)
{
    uint64_t length = 0;

    if (s->map_bytes < 8) {
        return DYTI_FAIL(DYT_ERR_FORMAT,
                         "%s: %zu bytes are no safetensors file", s->path,
                         s->map_bytes);
    }
    for (int i = 7; i >= 0; i--) {
        length = length << 8 | s->map[i];
    }
    if (length > MOST_HEADER_BYTES || length > s->map_bytes - 8) {
        return DYTI_FAIL(DYT_ERR_FORMAT,
                         "%s: a header of %llu bytes does not fit into a file "
                         "of %zu",
                         s->path, (unsigned long long)length, s->map_bytes);
    }
    if (length == 0 || s->map[8] != '{') {
        return DYTI_FAIL(DYT_ERR_FORMAT, "%s: the header must begin with {",
                         s->path);
    }
    *out_bytes = length;
    return DYT_OK;
}

static enum dyt_status load_json(const struct dyti_safetensors_source *s,
                                 uint64_t length, json_t **out_json)
{
    json_error_t why;
    json_t *json = json_loadb((const char *)s->map + 8, (size_t)length,
                              JSON_REJECT_DUPLICATES, &why);

    if (json == NULL && json_error_code(&why) == json_error_out_of_memory) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%s: header", s->path);
    }
    if (json == NULL) {
        return DYTI_FAIL(DYT_ERR_FORMAT, "%s: header at byte %d: %s", s->path,
                         why.position, why.text);
    }
    *out_json = json;
    return DYT_OK;
}

enum dyt_status dyti_safetensors_header_parse(struct dyti_safetensors *set,
                                              uint32_t file)
{
    struct dyti_safetensors_source *source = &set->source[file];
    size_t first = set->tensor_count;
    const unsigned char *data;
    uint64_t length = 0, data_bytes;
    json_t *json = NULL, *entry;
    const char *name;
    enum dyt_status st = header_length(source, &length);

    if (st == DYT_OK) {
        st = load_json(source, length, &json);
    }
    if (st != DYT_OK) {
        return st;
    }
    data = source->map + 8 + length;
    data_bytes = source->map_bytes - 8 - length;
    json_object_foreach(json, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0) {
            st = take_metadata(source, entry);
        } else {
            st = add_tensor(set, file, data, data_bytes, name, entry);
        }
        if (st != DYT_OK) {
            goto out;
        }
    }
    st = check_cover(set, first, source->path, data, data_bytes);
out:
    json_decref(json);
    return st;
}
