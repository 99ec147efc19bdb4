/* Checkpoints: everything a run needs to go on, in whole-tensor form, so that
 * it can go on in another layout.
 *
 *   <root>/step-00000020/       a whole one: also a Hugging Face directory
 *     config.json, tokenizer.json, …   those of the model
 *     model.safetensors         the weights in the dtype of `param`
 *     master.safetensors        f32; only where model.safetensors is not f32
 *     exp_avg.safetensors, exp_avg_sq.safetensors   f32
 *     state.json                struct dyti_checkpoint_state
 *     complete.json             every file with its bytes and the content
 *                               hashes of its blocks; written last
 *   <root>/tmp-step-00000020/   one that is being written, or was left behind
 *
 * Saving takes three steps, so that every owner writes its own parts:
 *   one rank   dyti_checkpoint_prepare   files with headers and reserved space
 *   all ranks  dyti_checkpoint_write     own parts at their offsets
 *   one rank   dyti_checkpoint_finish    sync, mark, rename, sync, prune
 * Whatever fails or dies in between, what was whole before stays whole.
 * Memory: saving and loading need a few MiB beside what the layout holds. */
#ifndef DYTI_FORMAT_CHECKPOINT_H
#define DYTI_FORMAT_CHECKPOINT_H

#include "format/file.h"
#include "layout/layout.h"

struct dyti_checkpoint_state {
    uint64_t step;    /* steps done */
    uint64_t version; /* committed updates in the weights */
    uint64_t updates; /* of the moments: bias correction, schedule */
    uint64_t seed;    /* of all random numbers */
    uint64_t data_epoch, data_position; /* struct dyti_data_cursor */
    uint64_t data_fingerprint;          /* of the training rows */
    uint64_t next_prompt;               /* id of the next group */
    uint64_t overlong_prompts;          /* left out or cut so far */
    double score; /* what keep_best goes by; NAN = not measured */
    uint64_t model_fingerprint, layout_fingerprint;
    /* Where a resumed run is bit-equal: the instruction set that dispatch
     * chose, and the training layout, for people. */
    char isa[32];
    char layout[160];
    char *job;      /* resolved job as text; owned, NULL = none */
    double *reward; /* [reward_count] mean of each step; owned */
    size_t reward_count;
};

/* Frees what it owns and zeroes it. */
void dyti_checkpoint_state_fini(struct dyti_checkpoint_state *state);

/* What a checkpoint is made of: the same on all ranks. */
struct dyti_checkpoint_spec {
    const struct dyti_model *model;
    enum dyti_dtype dtype; /* of param: f32, bf16 or f16 */
    bool optimizer;        /* with master and moments; false: weights only */
    /* Called before each shard of a part is written; NULL: not. */
    void (*progress)(void *arg);
    void *progress_arg;
};

/**
 * Make <root>/tmp-step-N with all files at full size.  Left-overs of earlier
 * tries in root are removed.  root is made; its parent must exist.
 *   model_dir  Hugging Face directory that tokenizer and config come from
 *   out_path   of the temporary directory: give it to the other two steps
 * @return DYT_ERR_IO (also: no room), DYT_ERR_FORMAT, DYT_ERR_NOMEM; nothing is
 *         left behind
 */
enum dyt_status dyti_checkpoint_prepare(const char *root, uint64_t step,
                                        const char *model_dir,
                                        const struct dyti_checkpoint_spec *spec,
                                        char out_path[DYTI_PATH_BYTES]);

/**
 * Write what `rank` owns of the training layout, and sync it.
 *   base  [kind] start of the rank's region, NULL where it has none.  Weights
 *         come from `master` where the layout holds it, from `param` else.
 * A rank that is no member writes nothing.
 * @return DYT_ERR_IO, DYT_ERR_INVALID (a kind is missing)
 */
enum dyt_status dyti_checkpoint_write(const char *path,
                                      const struct dyti_checkpoint_spec *spec,
                                      const struct dyti_layout *layout,
                                      uint32_t rank,
                                      const void *const base[DYTI_KIND_COUNT]);

/**
 * After all have written: store the state, make it whole and visible under its
 * name (in place of one of the same step), then remove old ones beyond the
 * newest keep_last (>= 1) and the keep_best of the highest score.
 *   out_path  of the whole one
 * @return DYT_ERR_IO  it is not (surely) there; what is left of the temporary
 *                     directory is for dyti_checkpoint_abort
 */
enum dyt_status dyti_checkpoint_finish(
    const char *path, const struct dyti_checkpoint_state *state,
    uint32_t keep_last, uint32_t keep_best, char out_path[DYTI_PATH_BYTES]);

/* Remove a temporary directory; one that is not there is fine. */
void dyti_checkpoint_abort(const char *path);

/* ---- finding and reading ------------------------------------------------ */

/* DYT_OK: whole.  DYT_ERR_FORMAT: what is missing or too short, by name. */
enum dyt_status dyti_checkpoint_check(const char *path);

/* That, and the content of every file is what was written: all of it is read.
 * One of before there were content hashes passes, and the log says that it was
 * not looked at.
 * DYT_ERR_FORMAT: the file and the first bytes that are not. */
enum dyt_status dyti_checkpoint_verify(const char *path);
/* The same of a directory with a model; no checkpoint: fine. */
enum dyt_status dyti_checkpoint_verify_model(const char *dir);

/* The newest whole one of root; *out_found is false where there is none (no
 * root is fine).  Newer ones that are not whole are named in the log. */
enum dyt_status dyti_checkpoint_latest(const char *root,
                                       char out_path[DYTI_PATH_BYTES],
                                       bool *out_found);
/* The newest that passes dyti_checkpoint_verify(), in the same way. */
enum dyt_status dyti_checkpoint_latest_sound(const char *root,
                                             char out_path[DYTI_PATH_BYTES],
                                             bool *out_found);

/* Give back with dyti_checkpoint_state_fini(). */
enum dyt_status dyti_checkpoint_read_state(
    const char *path, struct dyti_checkpoint_state *out_state);

/**
 * Fill a rank's regions of any layout of the same model.
 *   base  [kind]; NULL: not wanted.  `grad` is never stored, and left alone.
 * @return DYT_ERR_STATE   weights only, but moments are wanted
 * @return DYT_ERR_FORMAT  does not fit the model
 */
enum dyt_status dyti_checkpoint_load(const char *path,
                                     const struct dyti_model *model,
                                     const struct dyti_view *view,
                                     void *const base[DYTI_KIND_COUNT]);

/* Copy the Hugging Face part to a directory `to` that is not there yet: seen
 * whole or not at all. */
enum dyt_status dyti_checkpoint_export(const char *path, const char *to);

#endif /* DYTI_FORMAT_CHECKPOINT_H */
