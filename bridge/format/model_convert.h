/* From one form of a model to another, through memory that has a bound.
 * in: model_source.h, a layout   out: a directory, whole or not at all
 *
 * While it is made it is called DST.partial; rank files that are done have
 * their name there, the one that is being written has ".tmp" behind it.  What
 * is left of a killed conversion is gone on with by the next one between the
 * same two, and removed by another.  At the end everything is read back and
 * its content hashes held against the source's; then DST.partial becomes DST.
 */
#ifndef DYTI_FORMAT_MODEL_CONVERT_H
#define DYTI_FORMAT_MODEL_CONVERT_H

#include "format/model_source.h"

#define DYTI_CONVERT_LEAST_MEMORY (4u << 20) /* bytes: the smallest cap */
#define DYTI_CONVERT_MOST_RANKS   16384u     /* a file each */

enum dyti_convert_form {
    DYTI_CONVERT_SHARDS,
    DYTI_CONVERT_HF,        /* `param` in one model.safetensors */
    DYTI_CONVERT_CHECKPOINT /* every kind that there is */
};

struct dyti_convert_desc {
    const char *from, *to;
    enum dyti_convert_form form;
    struct dyti_layout_spec *spec; /* SHARDS: borrowed, filled in with what the
                                      model decides */
    uint64_t memory_cap; /* bytes of mapped files and buffers at once */
    /* Called now and then; what: "writing", "checking". */
    void (*progress)(void *self, const char *what, uint64_t done_bytes,
                     uint64_t total_bytes);
    void *progress_self;
};

struct dyti_convert_report {
    uint64_t bytes;        /* of files written */
    uint32_t files, taken; /* all, and of them already done */
    uint32_t kinds;
    bool checked; /* the source had hashes, and they are right */
};

/**
 * @return DYT_ERR_STATE   `to` is there already
 * @return DYT_ERR_BUSY    another conversion into it runs
 * @return DYT_ERR_CONFIG  the cap is too small; a type would be narrowed that
 *                         nobody asked for
 * @return DYT_ERR_VERIFY  what was read back, or the source, is not what its
 *                         hash says; the tensor is named
 * @return those of dyti_model_source_open, dyti_layout_build; DYT_ERR_IO
 */
enum dyt_status dyti_model_convert(const struct dyti_convert_desc *desc,
                                   struct dyti_convert_report *out_report);

/* Content hash of one kind of a tensor, in the type `dtype`, with a buffer of
 * buffer_bytes. */
enum dyt_status dyti_model_hash(const struct dyti_model_source *source,
                                enum dyti_kind kind, uint32_t tensor,
                                enum dyti_dtype dtype, void *buffer,
                                size_t buffer_bytes, uint64_t *out_hash);

#endif /* DYTI_FORMAT_MODEL_CONVERT_H */
