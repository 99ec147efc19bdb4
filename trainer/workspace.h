/* Where everything of a pass lies in the rank's work memory.  Answers "how many
 * bytes?" with the same code, over a region without memory. */
#ifndef DYTI_TRAINER_WORKSPACE_H
#define DYTI_TRAINER_WORKSPACE_H

#include "trainer/shares.h"
#include "trainer/trainer.h"

struct dyti_workspace {
    uint64_t micro_cap;  /* rows that packing aims at */
    int64_t rows;        /* most rows of a micro-batch */
    int64_t head_rows;   /* most rows of a chunk of the head */
    uint32_t slot_count; /* micro-batches alive at a time: pp - stage */
    unsigned char *slot; /* [slot_count][slot_bytes] saved activations */
    uint64_t slot_bytes;
    float *hidden, *dhidden; /* [rows, h] */
    /* Last stage only.  Chunk: [head_rows, h] and [head_rows]. */
    float *head_hidden, *head_dhidden, *head_logprob, *head_entropy;
    float *dlogprob, *dentropy; /* [rows] of a whole micro-batch */
    void *nn;                   /* scratch of the passes */
    uint64_t nn_bytes;
    float *shares; /* scratch of dyti_shares_sum: overlays all of the above */
};

/* nn: model and part suffice.  region: fresh, of the whole work memory. */
enum dyt_status dyti_workspace_carve(struct dyti_workspace *ws,
                                     struct dyti_region *region,
                                     const struct dyti_nn *nn,
                                     const struct dyti_trainer_config *config,
                                     const struct dyti_shares *shares,
                                     int64_t positions);

#endif /* DYTI_TRAINER_WORKSPACE_H */
