/* A conversion under way: shared by model_convert.c (order of things),
 * model_convert_files.c (what is on disk) and model_convert_check.c (whether it
 * arrived). */
#ifndef DYTI_FORMAT_MODEL_CONVERT_INTERNAL_H
#define DYTI_FORMAT_MODEL_CONVERT_INTERNAL_H

#include "format/file.h"
#include "format/model_convert.h"

/* One file of the result. */
struct dyti_convert_file {
    char name[48];
    uint32_t rank;
    uint32_t kinds; /* bits */
    bool plain;     /* names without the kind */
};

struct dyti_conversion {
    const struct dyti_convert_desc *desc;
    struct dyti_model_source *source;
    struct dyti_layout *layout;
    uint32_t kinds;
    char *spec; /* the layout on one line; NULL: no sharded directory */
    char partial[DYTI_PATH_BYTES];
    int lock; /* -1: none */
    struct dyti_convert_file *file;
    uint32_t file_count;
    uint64_t done, total; /* bytes, for the progress */
    void *buffer;         /* [buffer_bytes] for the hashes */
    size_t buffer_bytes;
    struct dyti_convert_report report;
};

void dyti_convert_tell(struct dyti_conversion *c, const char *what,
                       uint64_t more_bytes);

/* A box cut along its outermost dimensions into tiles of at most `bytes`, one
 * element at least: *tile is the next one, false behind the last.  Start with
 * *tile empty (ndim 0). */
bool dyti_convert_next_tile(const struct dyt_box *box, uint64_t elements,
                            struct dyt_box *tile);

/* Type in which the result keeps a tensor's kind. */
enum dyti_dtype dyti_convert_dtype(const struct dyti_conversion *c,
                                   enum dyti_kind kind,
                                   const struct dyti_tensor *t);
/* Read the result back, tensor by tensor.
 *   keep  NULL, or [tensors of the model]: its hashes
 * DYT_ERR_VERIFY: it, or the source, is not what its hash says */
enum dyt_status dyti_convert_check(struct dyti_conversion *c,
                                   const struct dyti_model_source *result,
                                   struct dyti_shards_hash *keep);

/* Make or take over DST.partial.  DYT_ERR_STATE, DYT_ERR_BUSY, DYT_ERR_IO */
enum dyt_status dyti_convert_begin(struct dyti_conversion *c);
/* Bytes of all files, for the progress. */
enum dyt_status dyti_convert_count_files(struct dyti_conversion *c);
/* What is there is wrong: the next conversion begins anew. */
void dyti_convert_give_up(struct dyti_conversion *c);
/* One rank's file, unless it is done. */
enum dyt_status dyti_convert_write_file(struct dyti_conversion *c,
                                        const struct dyti_convert_file *file);
/* config.json and what else lies beside the weights. */
enum dyt_status dyti_convert_copy_rest(struct dyti_conversion *c);
/* DST.partial becomes DST. */
enum dyt_status dyti_convert_publish(struct dyti_conversion *c);

#endif /* DYTI_FORMAT_MODEL_CONVERT_INTERNAL_H */
