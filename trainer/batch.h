/* A scored batch as training sees it: sequences, mini-batches, micro-batches.
 * Answers "which rows go through the model in which pass, and which of them
 * have a target?" */
#ifndef DYTI_TRAINER_BATCH_H
#define DYTI_TRAINER_BATCH_H

#include "trainer/loss.h"
#include "trainer/trainer.h"

struct dyti_train_sequence {
    const struct dyti_sample *sample; /* borrowed from the batch */
    const int32_t *prompt;            /* [prompt_count], borrowed */
    uint32_t prompt_count;
    uint32_t rows;        /* prompt_count + sample->count - 1 */
    uint64_t token_first; /* of its tokens in arrays over the batch's tokens */
    uint32_t owner;       /* dp rank */
    bool keep;            /* trained on */
    bool masked;          /* but not in the loss (overlong) */
};

/* Samples [m * mini, (m + 1) * mini) are mini-batch m. */
struct dyti_train_batch {
    struct dyti_train_sequence
        *sequence; /* [sequence_count], owned; by sample */
    size_t sequence_cap;
    uint32_t sequence_count, mini, mini_count;
    uint64_t token_count;
};

/* Take over a batch; what was there before is forgotten.  Nothing is kept yet.
 * Errors: see dyti_trainer_step. */
enum dyt_status dyti_train_batch_load(struct dyti_train_batch *tb,
                                      const struct dyti_trainer_config *config,
                                      int64_t positions,
                                      const struct dyti_batch *batch);
void dyti_train_batch_fini(struct dyti_train_batch *tb);

/* Say which sequences are trained on ([sequence_count]), and deal those of each
 * mini-batch out to the dp ranks: samples of one prompt together, unless ranks
 * are more evenly loaded when they are parted. */
enum dyt_status dyti_train_batch_deal(struct dyti_train_batch *tb,
                                      const struct dyti_trainer_config *config,
                                      const bool *keep, uint32_t dp_size);

/* What mini-batch `m` has in the loss over all dp ranks. */
struct dyti_loss_totals dyti_train_batch_totals(
    const struct dyti_train_batch *tb, uint32_t m);
/* Sequences of mini-batch m that are trained on. */
uint32_t dyti_train_batch_kept(const struct dyti_train_batch *tb, uint32_t m);

/* ---- micro-batches ------------------------------------------------------ */

/* Samples of one prompt in one micro-batch share the prompt's rows: these come
 * once, then each sample's own (ops/kernels.h: packed prefixes).  So samples
 * may have their first target at the same row. */
struct dyti_micro {
    struct dyti_nn_micro nn;  /* rows of the pass */
    const uint32_t *sequence; /* [sequence_count] numbers */
    uint32_t sequence_count;
    const int32_t *head_row; /* [target_count] rows that have a target */
    const int32_t *target;   /* [target_count] sampled ids, by sequence */
    uint32_t target_count;
};

/* All arrays are slices of owned blocks, which are kept and grow. */
struct dyti_micro_set {
    struct dyti_micro *micro; /* [micro_count], owned */
    uint32_t micro_count;
    uint64_t row_count, most_rows; /* of all, of the largest */
    size_t micro_cap, int_cap, list_cap;
    int32_t *ints;  /* owned */
    uint32_t *list; /* owned */
};

/* Micro-batches of dp rank `owner` for mini-batches [mini_lo, mini_hi). */
enum dyt_status dyti_micro_set_build(struct dyti_micro_set *set,
                                     const struct dyti_train_batch *tb,
                                     uint32_t owner, uint32_t mini_lo,
                                     uint32_t mini_hi, uint64_t cap);
void dyti_micro_set_fini(struct dyti_micro_set *set);

#endif /* DYTI_TRAINER_BATCH_H */
