/* safetensors in and out: whole tensors with names, in one file or several
 * with an index.  in: a file or a Hugging Face directory   out: boxes of
 * tensors in the caller's memory, and the other way.
 *
 * Nothing of a header is believed before it is checked: lengths, shapes,
 * dtypes, duplicate names, overlaps, holes and offsets outside the file.
 *
 * Reading maps the files, touches only what a box needs, and lets go of each
 * window behind itself, so that a rank's resident memory stays what it holds.
 * Threads: an open set may be read by several threads at once. */
#ifndef DYTI_FORMAT_SAFETENSORS_H
#define DYTI_FORMAT_SAFETENSORS_H

#include "base/dtype.h"
#include "base/error.h"

#include <dynatrain/box.h>
#include <stdbool.h>
#include <stddef.h>

/* ---- reading ------------------------------------------------------------ */

struct dyti_safetensor {
    const char *name;      /* owned by the set */
    const char *type;      /* as in the file: "BF16", "U8", … static */
    enum dyti_dtype dtype; /* DYTI_DTYPE_COUNT: a type we cannot convert */
    uint32_t ndim;         /* 0: one element */
    int64_t shape[DYT_MAX_DIMS];
    const unsigned char *data; /* mapped, read only, may be unaligned */
    uint64_t bytes;
    uint32_t file; /* index into the set's files */
};

struct dyti_safetensors; /* opaque: files and a table sorted by name */

/**
 * Open a .safetensors file, or a directory with model.safetensors or
 * model.safetensors.index.json.
 * @return DYT_ERR_IO           nothing there, or it cannot be mapped
 * @return DYT_ERR_FORMAT       a header or the index is malformed, the index
 *                              names an absent file or tensor
 * @return DYT_ERR_UNSUPPORTED  a dtype that we do not know, over 8 dimensions
 * @return DYT_ERR_NOMEM
 */
enum dyt_status dyti_safetensors_open(const char *path,
                                      struct dyti_safetensors **out_set);

/* The same over bytes in memory, borrowed until close; `name` is shown. */
enum dyt_status dyti_safetensors_open_memory(const char *name,
                                             const void *bytes,
                                             size_t size_bytes,
                                             struct dyti_safetensors **out_set);
void dyti_safetensors_close(struct dyti_safetensors *set);

/* By name in O(log n); NULL if there is none.  Borrowed from the set. */
const struct dyti_safetensor *dyti_safetensors_find(
    const struct dyti_safetensors *set, const char *name);
/* All, ascending by name. */
size_t dyti_safetensors_count(const struct dyti_safetensors *set);
const struct dyti_safetensor *dyti_safetensors_at(
    const struct dyti_safetensors *set, size_t index);
/* Path of one of the set's files. */
const char *dyti_safetensors_file(const struct dyti_safetensors *set,
                                  uint32_t file);
/* A value of __metadata__ (first file that has it); NULL if there is none. */
const char *dyti_safetensors_metadata(const struct dyti_safetensors *set,
                                      const char *key);

/**
 * Read a box of a tensor into memory, converted to `dtype`.
 *   dst     address of the box's first element
 *   stride  [box->ndim] bytes from element to element of each dimension of dst
 * A tensor of 0 dimensions is read as one of 1 dimension and 1 element.
 * @return DYT_ERR_INVALID      the box does not lie in the tensor
 * @return DYT_ERR_UNSUPPORTED  the dtypes do not convert
 * @return DYT_ERR_IO           the file became shorter
 */
enum dyt_status dyti_safetensors_read_box(const struct dyti_safetensors *set,
                                          const struct dyti_safetensor *tensor,
                                          const struct dyt_box *box,
                                          enum dyti_dtype dtype, void *dst,
                                          const int64_t *stride);

/* ---- writing ------------------------------------------------------------ */

struct dyti_safetensors_entry {
    const char *name; /* borrowed for the call */
    enum dyti_dtype dtype;
    uint32_t ndim;
    int64_t shape[DYT_MAX_DIMS];
};

/* Where everything goes in one file: the same on every rank, so that each
 * writes its own boxes without asking. */
struct dyti_safetensors_plan {
    char *header;        /* [header_bytes], owned: the length and the JSON */
    size_t header_bytes; /* a multiple of 64 */
    uint64_t file_bytes;
    size_t count;
    struct dyti_safetensors_entry *entry; /* [count], owned; name is NULL */
    uint64_t *offset;                     /* [count] bytes from file start */
};

/**
 * Lay out one file.  Wider dtypes come first, so that all are aligned; within
 * a width the order given is kept.  metadata: pairs key, value, …, NULL; may
 * be NULL.
 * @return DYT_ERR_INVALID   a bad shape, or a name twice
 * @return DYT_ERR_OVERFLOW, DYT_ERR_NOMEM
 */
enum dyt_status dyti_safetensors_plan_build(
    const struct dyti_safetensors_entry *entry, size_t count,
    const char *const *metadata, struct dyti_safetensors_plan *out_plan);
void dyti_safetensors_plan_fini(struct dyti_safetensors_plan *plan);

/* Make the file at its full size with its header; *out_fd is open for writing.
 * Space is reserved now, so that a full disk is seen here.
 * DYT_ERR_IO: nothing is left behind. */
enum dyt_status dyti_safetensors_create(
    const char *path, const struct dyti_safetensors_plan *plan, int *out_fd);

/**
 * Write a box of tensor `index` from memory of `dtype` (converted).  Any number
 * of processes may write different boxes of one file at once.
 *   src, stride  as in dyti_safetensors_read_box
 * @return DYT_ERR_INVALID, DYT_ERR_UNSUPPORTED as there; DYT_ERR_IO
 */
enum dyt_status dyti_safetensors_write_box(
    int fd, const char *path, const struct dyti_safetensors_plan *plan,
    size_t index, const struct dyt_box *box, enum dyti_dtype dtype,
    const void *src, const int64_t *stride);

#endif /* DYTI_FORMAT_SAFETENSORS_H */
