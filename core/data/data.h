/* What rollout makes, score judges, trainer uses and the wire carries.
 * Plain values with owned arrays; `fini` on a zeroed struct is fine and leaves
 * it zeroed.
 *
 * Terms
 *   row        a line of the data file; group: the samples of one prompt
 *   raw        log-probability under softmax(logits)
 *   processed  log-probability under softmax(logits / temperature), before any
 *              truncation (top-k, top-p, min-p)
 */
#ifndef DYTI_DATA_DATA_H
#define DYTI_DATA_DATA_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dyti_prompt {
    uint64_t id;  /* number of the group, unique within a run */
    uint64_t row; /* index into the data file */
    int32_t *ids; /* [id_count], owned */
    uint32_t id_count;
};

enum dyti_finish { DYTI_FINISH_STOP, DYTI_FINISH_LENGTH, DYTI_FINISH_ABORT };

/* Tokens first .. first + count of a completion were sampled by one version. */
struct dyti_version_span {
    uint64_t version;
    uint32_t first, count;
};

struct dyti_sample {
    uint64_t prompt; /* dyti_prompt.id */
    uint32_t index;  /* within the group, 0 <= index < samples_per_prompt */
    enum dyti_finish finish;
    int32_t *ids;     /* [count], owned; a sampled EOS or stop id included */
    float *raw;       /* [count], owned */
    float *processed; /* [count], owned */
    uint32_t count;
    struct dyti_version_span *span; /* [span_count], owned, ascending */
    uint32_t span_count;
    /* Filled in by score: */
    float reward; /* weighted sum */
    bool dropped; /* a reward of null: not used, counted */
    /* Filled in by trainer: */
    float advantage;
};

struct dyti_batch {
    struct dyti_prompt *prompt; /* [prompt_count], owned, by id */
    uint32_t prompt_count;
    struct dyti_sample *sample; /* [sample_count], owned, by (prompt, index) */
    uint32_t sample_count;
};

const char *dyti_finish_name(enum dyti_finish finish); /* "stop", … */

void dyti_prompt_fini(struct dyti_prompt *prompt);
void dyti_sample_fini(struct dyti_sample *sample);
void dyti_batch_fini(struct dyti_batch *batch);

/* A deep copy. */
enum dyt_status dyti_prompt_copy(const struct dyti_prompt *from,
                                 struct dyti_prompt *out_to);

/* Room for `count` tokens in every array of an empty sample. */
enum dyt_status dyti_sample_reserve(struct dyti_sample *sample, uint32_t count);

/* The prompt with this id, NULL if the batch has none.  O(log n). */
const struct dyti_prompt *dyti_batch_prompt(const struct dyti_batch *batch,
                                            uint64_t id);

/* Sort by id and by (prompt, index); DYT_ERR_INVALID names what is there
 * twice. */
enum dyt_status dyti_batch_order(struct dyti_batch *batch);

#endif /* DYTI_DATA_DATA_H */
