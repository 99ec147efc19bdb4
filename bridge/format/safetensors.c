/* A set of safetensors files: mapped, checked, and merged into one table. */
#include "format/safetensors.h"

#include "format/file.h"
#include "format/json_file.h"
#include "format/safetensors_set.h"

#include "base/array.h"

#include "base/banned.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int by_name(const void *a, const void *b)
{
    const struct dyti_safetensor *x = a, *y = b;

    return strcmp(x->name, y->name);
}

static enum dyt_status sort_names(struct dyti_safetensors *set)
{
    if (set->tensor_count > 1) {
        qsort(set->tensor, set->tensor_count, sizeof(*set->tensor), by_name);
    }
    for (size_t i = 1; i < set->tensor_count; i++) {
        if (strcmp(set->tensor[i - 1].name, set->tensor[i].name) == 0) {
            return DYTI_FAIL(DYT_ERR_FORMAT, "%s is in %s and in %s",
                             set->tensor[i].name,
                             set->source[set->tensor[i - 1].file].path,
                             set->source[set->tensor[i].file].path);
        }
    }
    return DYT_OK;
}

static enum dyt_status map_file(struct dyti_safetensors_source *source)
{
    struct stat info;
    enum dyt_status st = DYT_OK;
    void *map;
    /* A pipe is refused, not waited for until somebody writes to it. */
    int fd = open(source->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0) {
        return DYTI_FAIL(DYT_ERR_IO, "%s: %s", source->path, strerror(errno));
    }
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        st = DYTI_FAIL(DYT_ERR_IO, "%s: not a regular file", source->path);
        goto out;
    }
    if (info.st_size < 8) {
        st = DYTI_FAIL(DYT_ERR_FORMAT, "%s: %lld bytes are no safetensors file",
                       source->path, (long long)info.st_size);
        goto out;
    }
    map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        st = DYTI_FAIL(DYT_ERR_IO, "%s: mmap: %s", source->path,
                       strerror(errno));
        goto out;
    }
    source->map = map;
    source->map_bytes = (size_t)info.st_size;
    source->mapped = true;
    source->fd = fd;
    fd = -1;
out:
    if (fd >= 0) {
        close(fd);
    }
    return st;
}

/* Append a source; on success it is the last one and its tensors are in. */
static enum dyt_status add_source(struct dyti_safetensors *set,
                                  const char *path, const void *bytes,
                                  size_t size_bytes)
{
    struct dyti_safetensors_source *source;
    enum dyt_status st;

    st = DYTI_GROW(set->source, set->source_cap, set->source_count + 1);
    if (st != DYT_OK) {
        return st;
    }
    source = &set->source[set->source_count];
    memset(source, 0, sizeof(*source));
    source->path = strdup(path);
    if (source->path == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%s", path);
    }
    set->source_count++; /* from here on close() cleans it up */
    source->map = bytes;
    source->map_bytes = size_bytes;
    if (bytes == NULL) {
        st = map_file(source);
        if (st != DYT_OK) {
            return st;
        }
    }
    return dyti_safetensors_header_parse(set, (uint32_t)set->source_count - 1);
}

void dyti_safetensors_close(struct dyti_safetensors *set)
{
    if (set == NULL) {
        return;
    }
    for (size_t i = 0; i < set->tensor_count; i++) {
        free((char *)(uintptr_t)set->tensor[i].name);
    }
    for (size_t i = 0; i < set->source_count; i++) {
        if (set->source[i].mapped) {
            munmap((void *)(uintptr_t)set->source[i].map,
                   set->source[i].map_bytes);
            close(set->source[i].fd);
        }
        json_decref(set->source[i].metadata);
        free(set->source[i].path);
    }
    free(set->tensor);
    free(set->source);
    free(set);
}

/* ---- the index ---------------------------------------------------------- */

/* Index of the source called `path`, opened now if it is new. */
static enum dyt_status source_of(struct dyti_safetensors *set, const char *dir,
                                 const char *name, uint32_t *out_file)
{
    char path[DYTI_PATH_BYTES];
    enum dyt_status st;

    if (name[0] == '\0' || name[0] == '.' || strchr(name, '/') != NULL) {
        return DYTI_FAIL(DYT_ERR_FORMAT,
                         "%s: the index names \"%.100s\", which is not a file "
                         "of the directory",
                         dir, name);
    }
    st = dyti_path_join(path, dir, name);
    if (st != DYT_OK) {
        return st;
    }
    for (size_t i = 0; i < set->source_count; i++) {
        if (strcmp(set->source[i].path, path) == 0) {
            *out_file = (uint32_t)i;
            return DYT_OK;
        }
    }
    *out_file = (uint32_t)set->source_count;
    if (!dyti_file_exists(path)) {
        return DYTI_FAIL(DYT_ERR_FORMAT, "%s: named in the index but absent",
                         path);
    }
    return add_source(set, path, NULL, 0);
}

static enum dyt_status check_index(struct dyti_safetensors *set,
                                   const char *path, const char *dir,
                                   const json_t *weight_map)
{
    for (size_t i = 0; i < set->tensor_count; i++) {
        const struct dyti_safetensor *tensor = &set->tensor[i];

        if (json_object_get(weight_map, tensor->name) == NULL) {
            return DYTI_FAIL(DYT_ERR_FORMAT, "%s: %s of %s is not in the index",
                             path, tensor->name,
                             set->source[tensor->file].path);
        }
    }
    for (void *it = json_object_iter((json_t *)(uintptr_t)weight_map);
         it != NULL;
         it = json_object_iter_next((json_t *)(uintptr_t)weight_map, it)) {
        const char *name = json_object_iter_key(it);
        const char *file = json_string_value(json_object_iter_value(it));
        const struct dyti_safetensor *tensor = dyti_safetensors_find(set, name);
        uint32_t index = 0;
        enum dyt_status st = source_of(set, dir, file, &index);

        if (st != DYT_OK) {
            return st;
        }
        if (tensor == NULL || tensor->file != index) {
            return DYTI_FAIL(DYT_ERR_FORMAT, "%s: %s is not in %s", path, name,
                             file);
        }
    }
    return DYT_OK;
}

static enum dyt_status open_index(struct dyti_safetensors *set,
                                  const char *path, const char *dir)
{
    struct dyti_json_at at = {path, "", NULL};
    json_t *json = NULL, *value;
    const json_t *weight_map = NULL;
    const char *name;
    uint32_t file;
    enum dyt_status st = dyti_json_load(path, &json);

    if (st != DYT_OK) {
        goto out;
    }
    at.object = json;
    st = dyti_json_object_or_null(&at, "weight_map", &weight_map);
    if (st != DYT_OK) {
        goto out;
    }
    if (json_object_size(weight_map) == 0) {
        st = DYTI_FAIL(DYT_ERR_FORMAT, "%s: weight_map is missing or empty",
                       path);
        goto out;
    }
    json_object_foreach((json_t *)(uintptr_t)weight_map, name, value)
    {
        if (!json_is_string(value)) {
            st = DYTI_FAIL(DYT_ERR_FORMAT, "%s: %s must name a file", path,
                           name);
            goto out;
        }
        st = source_of(set, dir, json_string_value(value), &file);
        if (st != DYT_OK) {
            goto out;
        }
    }
    st = sort_names(set);
    if (st == DYT_OK) {
        st = check_index(set, path, dir, weight_map);
    }
out:
    json_decref(json);
    return st;
}

/* ---- open, find --------------------------------------------------------- */

static enum dyt_status open_dir(struct dyti_safetensors *set, const char *dir)
{
    char path[DYTI_PATH_BYTES];
    enum dyt_status st = dyti_path_join(path, dir, "model.safetensors");

    if (st != DYT_OK) {
        return st;
    }
    if (dyti_file_exists(path)) {
        return add_source(set, path, NULL, 0);
    }
    st = dyti_path_join(path, dir, "model.safetensors.index.json");
    if (st != DYT_OK) {
        return st;
    }
    if (dyti_file_exists(path)) {
        return open_index(set, path, dir);
    }
    return DYTI_FAIL(DYT_ERR_IO,
                     "%s: neither model.safetensors nor "
                     "model.safetensors.index.json is there",
                     dir);
}

static enum dyt_status finish(struct dyti_safetensors *set, enum dyt_status st,
                              struct dyti_safetensors **out_set)
{
    if (st == DYT_OK) {
        st = sort_names(set);
    }
    if (st != DYT_OK) {
        dyti_safetensors_close(set);
        return st;
    }
    *out_set = set;
    return DYT_OK;
}

enum dyt_status dyti_safetensors_open(const char *path,
                                      struct dyti_safetensors **out_set)
{
    struct dyti_safetensors *set = calloc(1, sizeof(*set));
    struct stat info;
    enum dyt_status st;

    if (set == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%s", path);
    }
    if (stat(path, &info) != 0) {
        st = DYTI_FAIL(DYT_ERR_IO, "%s: %s", path, strerror(errno));
    } else if (S_ISDIR(info.st_mode)) {
        st = open_dir(set, path);
    } else {
        st = add_source(set, path, NULL, 0);
    }
    return finish(set, st, out_set);
}

enum dyt_status dyti_safetensors_open_memory(const char *name,
                                             const void *bytes,
                                             size_t size_bytes,
                                             struct dyti_safetensors **out_set)
{
    struct dyti_safetensors *set = calloc(1, sizeof(*set));

    if (set == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%s", name);
    }
    return finish(set, add_source(set, name, bytes, size_bytes), out_set);
}

const struct dyti_safetensor *dyti_safetensors_find(
    const struct dyti_safetensors *set, const char *name)
{
    struct dyti_safetensor key = {.name = name};

    if (set->tensor_count == 0) {
        return NULL;
    }
    return bsearch(&key, set->tensor, set->tensor_count, sizeof(*set->tensor),
                   by_name);
}

size_t dyti_safetensors_count(const struct dyti_safetensors *set)
{
    return set->tensor_count;
}

const struct dyti_safetensor *dyti_safetensors_at(
    const struct dyti_safetensors *set, size_t index)
{
    return &set->tensor[index];
}

const char *dyti_safetensors_file(const struct dyti_safetensors *set,
                                  uint32_t file)
{
    return set->source[file].path;
}

const char *dyti_safetensors_metadata(const struct dyti_safetensors *set,
                                      const char *key)
{
    for (size_t i = 0; i < set->source_count; i++) {
        const char *value =
            json_string_value(json_object_get(set->source[i].metadata, key));

        if (value != NULL) {
            return value;
        }
    }
    return NULL;
}
