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

/* A directory that has only files in it, and those.  Missing is fine. */
enum dyt_status dyti_checkpoint_remove(const char *path);
/* All temporary directories of root. */
enum dyt_status dyti_checkpoint_clean(const char *root);

/* Sync every file, then write the marker with every file's bytes and sync it
 * and the directory. */
enum dyt_status dyti_checkpoint_mark(const char *path, uint64_t step);

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

/* Names of what a Hugging Face directory has beside config and weights; NULL
 * behind the last. */
const char *dyti_checkpoint_side_file(size_t index);

#endif /* DYTI_FORMAT_CHECKPOINT_DIR_H */
