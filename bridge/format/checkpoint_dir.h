/* Directories of checkpoints: names, the marker, copies and removal.  Shared by
 * the checkpoint files. */
#ifndef DYTI_FORMAT_CHECKPOINT_DIR_H
#define DYTI_FORMAT_CHECKPOINT_DIR_H

#include "format/checkpoint.h"

#define DYTI_CHECKPOINT_MARKER "complete.json"
#define DYTI_CHECKPOINT_STATE  "state.json"

/* "step-00000020" / "tmp-step-00000020" */
void dyti_checkpoint_name(uint64_t step, bool temporary, char buf[64]);
/* The step of a name; false if it is none of ours. */
bool dyti_checkpoint_name_parse(const char *name, bool temporary,
                                uint64_t *out_step);

/* Names in a directory; a directory that is not there is empty.  free(name). */
struct dyti_listing {
    char (*name)[256]; /* [count] */
    size_t count, cap;
};
enum dyt_status dyti_checkpoint_list(const char *path,
                                     struct dyti_listing *list);

/* A directory that has only files in it, and those.  Missing is fine. */
enum dyt_status dyti_checkpoint_remove(const char *path);
/* All temporary directories of root. */
enum dyt_status dyti_checkpoint_clean(const char *root);

/* Sync every file, then write the marker with every file's bytes and content
 * hashes, and sync it and the directory. */
enum dyt_status dyti_checkpoint_mark(const char *path, uint64_t step);

/* The content of one file of a checkpoint is that of its marker; a marker
 * without hashes says nothing.  DYT_ERR_FORMAT as dyti_checkpoint_verify(). */
enum dyt_status dyti_checkpoint_verify_file(const char *path, const char *name);

/* A file and the content hashes of its blocks of block_bytes; the last one may
 * be shorter, and a file of no bytes has none. */
struct dyti_block_hashes {
    const char *path; /* borrowed */
    uint64_t bytes;
    uint64_t *hash; /* [dyti_block_count(bytes, block_bytes)], to be filled */
};

size_t dyti_block_count(uint64_t bytes, uint64_t block_bytes);
/* All blocks of all files, by as many threads as there are processors where
 * that pays; a quarter MiB of memory each.
 *   block_bytes  a multiple of 8
 * @return DYT_ERR_IO  not to be read, or shorter than `bytes`; DYT_ERR_NOMEM */
enum dyt_status dyti_block_hashes(const struct dyti_block_hashes *file,
                                  size_t count, uint64_t block_bytes);

/* Copy a file, synced; one that is not there is DYT_OK and *out_copied false.
 */
enum dyt_status dyti_checkpoint_copy(const char *from_dir, const char *to_dir,
                                     const char *name, bool *out_copied);

/* Remove whole ones beyond the newest keep_last and the best keep_best; the one
 * of `step`, just written, stays in any case. */
enum dyt_status dyti_checkpoint_prune(const char *root, uint64_t step,
                                      uint32_t keep_last, uint32_t keep_best);

enum dyt_status dyti_checkpoint_state_write(
    const char *path, const struct dyti_checkpoint_state *state);

/* The tensor file of a kind; NULL: it is not kept. */
const char *dyti_checkpoint_kind_file(enum dyti_kind kind);

/* Names of what a Hugging Face directory has beside config and weights; NULL
 * behind the last. */
const char *dyti_checkpoint_side_file(size_t index);

#endif /* DYTI_FORMAT_CHECKPOINT_DIR_H */
