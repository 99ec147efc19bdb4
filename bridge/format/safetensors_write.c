/* The plan of one safetensors file: who lies where is a pure function of the
 * entries, so that ranks agree on offsets without talking. */
#include "format/file.h"
#include "format/safetensors.h"

#include "base/checked.h"
#include "base/errno_text.h"

#include "base/banned.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <unistd.h>

#define HEADER_ALIGN 64u

static const char *const type_names[DYTI_DTYPE_COUNT] = {
    [DYTI_F32] = "F32", [DYTI_BF16] = "BF16", [DYTI_F16] = "F16",
    [DYTI_I32] = "I32", [DYTI_I64] = "I64",
};

static enum dyt_status entry_bytes(const struct dyti_safetensors_entry *entry,
                                   uint64_t *out_bytes)
{
    uint64_t bytes = dyti_dtype_bytes(entry->dtype);

    if (entry->ndim > DYT_MAX_DIMS || bytes == 0) {
        return DYTI_FAIL(DYT_ERR_INVALID, "%s: bad dtype or dimensions",
                         entry->name);
    }
    for (uint32_t i = 0; i < entry->ndim; i++) {
        if (entry->shape[i] < 0) {
            return DYTI_FAIL(DYT_ERR_INVALID, "%s: negative size", entry->name);
        }
        if (dyti_mul_overflow(bytes, (uint64_t)entry->shape[i], &bytes)) {
            return DYTI_FAIL(DYT_ERR_OVERFLOW, "%s: too big", entry->name);
        }
    }
    *out_bytes = bytes;
    return DYT_OK;
}

/* Offsets from the start of the data: widest dtype first. */
static enum dyt_status place(const struct dyti_safetensors_entry *entry,
                             size_t count, uint64_t *offset,
                             uint64_t *out_total)
{
    uint64_t total = 0;

    for (uint32_t width = 8; width > 0; width /= 2) {
        for (size_t i = 0; i < count; i++) {
            uint64_t bytes = 0;
            enum dyt_status st = entry_bytes(&entry[i], &bytes);

            if (st != DYT_OK) {
                return st;
            }
            if (dyti_dtype_bytes(entry[i].dtype) != width) {
                continue;
            }
            offset[i] = total;
            if (dyti_add_overflow(total, bytes, &total) ||
                total > INT64_MAX / 2) {
                return DYTI_FAIL(DYT_ERR_OVERFLOW, "%s: the file is too big",
                                 entry[i].name);
            }
        }
    }
    *out_total = total;
    return DYT_OK;
}

static json_t *entry_json(const struct dyti_safetensors_entry *entry,
                          uint64_t lo)
{
    json_t *shape = json_array();
    uint64_t bytes = dyti_dtype_bytes(entry->dtype);

    for (uint32_t i = 0; i < entry->ndim && shape != NULL; i++) {
        bytes *= (uint64_t)entry->shape[i];
        if (json_array_append_new(shape, json_integer(entry->shape[i])) != 0) {
            json_decref(shape);
            return NULL;
        }
    }
    return json_pack("{s:s,s:o,s:[I,I]}", "dtype", type_names[entry->dtype],
                     "shape", shape, "data_offsets", (json_int_t)lo,
                     (json_int_t)(lo + bytes));
}

static enum dyt_status add_metadata(json_t *root, const char *const *pairs)
{
    json_t *object;

    if (pairs == NULL || pairs[0] == NULL) {
        return DYT_OK;
    }
    object = json_object();
    for (size_t i = 0; object != NULL && pairs[i] != NULL; i += 2) {
        if (json_object_set_new(object, pairs[i], json_string(pairs[i + 1])) !=
            0) {
            json_decref(object);
            object = NULL;
        }
    }
    if (object == NULL ||
        json_object_set_new(root, "__metadata__", object) != 0) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "safetensors metadata");
    }
    return DYT_OK;
}

static enum dyt_status build_json(const struct dyti_safetensors_entry *entry,
                                  size_t count, const char *const *metadata,
                                  const uint64_t *offset, char **out_text)
{
    json_t *root = json_object();
    char *text = NULL;
    enum dyt_status st;

    if (root == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "safetensors header");
    }
    st = add_metadata(root, metadata);
    for (size_t i = 0; i < count && st == DYT_OK; i++) {
        if (json_object_get(root, entry[i].name) != NULL) {
            st = DYTI_FAIL(DYT_ERR_INVALID, "%s: twice in one file",
                           entry[i].name);
        } else if (json_object_set_new(root, entry[i].name,
                                       entry_json(&entry[i], offset[i])) != 0) {
            st = DYTI_FAIL(DYT_ERR_NOMEM, "safetensors header");
        }
    }
    if (st == DYT_OK) {
        text = json_dumps(root, JSON_COMPACT);
        if (text == NULL) {
            st = DYTI_FAIL(DYT_ERR_NOMEM, "safetensors header");
        }
    }
    json_decref(root);
    if (st == DYT_OK) {
        *out_text = text;
    }
    return st;
}

/* Length, JSON, spaces up to the alignment. */
static enum dyt_status make_header(const char *text,
                                   struct dyti_safetensors_plan *plan)
{
    size_t json_bytes = strlen(text);
    size_t total = (size_t)dyti_align_up(8 + json_bytes, HEADER_ALIGN);

    plan->header = malloc(total);
    if (plan->header == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "safetensors header");
    }
    memset(plan->header, ' ', total);
    for (unsigned i = 0; i < 8; i++) {
        plan->header[i] = (char)((uint64_t)(total - 8) >> (8 * i) & 0xff);
    }
    memcpy(plan->header + 8, text, json_bytes);
    plan->header_bytes = total;
    return DYT_OK;
}

void dyti_safetensors_plan_fini(struct dyti_safetensors_plan *plan)
{
    free(plan->header);
    free(plan->entry);
    free(plan->offset);
    memset(plan, 0, sizeof(*plan));
}

enum dyt_status dyti_safetensors_plan_build(
    const struct dyti_safetensors_entry *entry, size_t count,
    const char *const *metadata, struct dyti_safetensors_plan *out_plan)
{
    struct dyti_safetensors_plan plan = {.count = count};
    uint64_t total = 0;
    char *text = NULL;
    enum dyt_status st;

    plan.entry = calloc(count + 1, sizeof(*plan.entry));
    plan.offset = calloc(count + 1, sizeof(*plan.offset));
    if (plan.entry == NULL || plan.offset == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "%zu tensors", count);
        goto out;
    }
    st = place(entry, count, plan.offset, &total);
    if (st == DYT_OK) {
        st = build_json(entry, count, metadata, plan.offset, &text);
    }
    if (st == DYT_OK) {
        st = make_header(text, &plan);
    }
    if (st != DYT_OK) {
        goto out;
    }
    for (size_t i = 0; i < count; i++) {
        plan.entry[i] = entry[i];
        plan.entry[i].name = NULL;
        plan.offset[i] += plan.header_bytes;
    }
    plan.file_bytes = plan.header_bytes + total;
    *out_plan = plan;
    memset(&plan, 0, sizeof(plan));
out:
    free(text);
    dyti_safetensors_plan_fini(&plan);
    return st;
}

enum dyt_status dyti_safetensors_create(
    const char *path, const struct dyti_safetensors_plan *plan, int *out_fd)
{
    enum dyt_status st = DYT_OK;
    int code, fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

    if (fd < 0) {
        return DYTI_FAIL(DYT_ERR_IO, "%s: %s", path, dyti_errno_text(errno));
    }
    do {
        code = posix_fallocate(fd, 0, (off_t)plan->file_bytes);
    } while (code == EINTR);
    if (code == EOPNOTSUPP || code == EINVAL) { /* a filesystem without it */
        code = ftruncate(fd, (off_t)plan->file_bytes) == 0 ? 0 : errno;
    }
    if (code != 0) {
        st = DYTI_FAIL(DYT_ERR_IO, "%s: reserving %llu bytes: %s", path,
                       (unsigned long long)plan->file_bytes,
                       dyti_errno_text(code));
    }
    if (st == DYT_OK) {
        st = dyti_pwrite_all(fd, plan->header, plan->header_bytes, 0, path);
    }
    if (st != DYT_OK) {
        close(fd);
        unlink(path);
        return st;
    }
    *out_fd = fd;
    return DYT_OK;
}
