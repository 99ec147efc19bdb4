/* Inside of an open set: shared by the files that build and read it. */
#ifndef DYTI_FORMAT_SAFETENSORS_SET_H
#define DYTI_FORMAT_SAFETENSORS_SET_H

#include "format/safetensors.h"

#include <jansson.h>

struct dyti_safetensors_source {
    char *path;
    const unsigned char *map; /* [map_bytes]; mapped or the caller's */
    size_t map_bytes;
    bool mapped;
    int fd; /* open while mapped: its size is looked at before each window */
    json_t *metadata; /* object or NULL */
};

struct dyti_safetensors {
    struct dyti_safetensors_source *source; /* [source_count] */
    size_t source_count, source_cap;
    struct dyti_safetensor *tensor; /* [tensor_count], by name */
    size_t tensor_count, tensor_cap;
};

/* Check the header of source `file` and append its tensors, unsorted. */
enum dyt_status dyti_safetensors_header_parse(struct dyti_safetensors *set,
                                              uint32_t file);

/* DYT_ERR_INVALID unless the box lies in a tensor of that shape. */
enum dyt_status dyti_safetensors_check_box(const char *name, uint32_t ndim,
                                           const int64_t *shape,
                                           const struct dyt_box *box);

#endif /* DYTI_FORMAT_SAFETENSORS_SET_H */
