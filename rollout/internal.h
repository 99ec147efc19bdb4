/* What the files of rollout/ share.  Data flow of one model step:
 *   admit.c     which waiting groups enter
 *   pass.c      rows of this pass, and the model over them
 *   draw.c      logits -> tokens and log-probabilities (draw_whole.c and
 *               truncate.c: top-k, …)
 *   stop.c      which sequences are finished
 *   generate.c  the loop, and what comes in and goes out
 *   engine.c    sizes, tables and weights of all of it */
#ifndef DYTI_ROLLOUT_INTERNAL_H
#define DYTI_ROLLOUT_INTERNAL_H

#include "rollout/blocks.h"
#include "rollout/engine.h"

#define DYTI_ROLLOUT_MAX_TP 1024u
#define DYTI_ROLLOUT_TAIL   256u /* longest stop string, bytes */

/* A running sequence: a sample, or the shared prefill of a group. */
struct dyti_sequence {
    struct dyti_sample *sample;
    int32_t *table; /* [table_count] blocks, in the engine's pool */
    uint32_t table_count;
    uint32_t length;     /* positions in the cache */
    int32_t next;        /* token to feed at position `length` */
    unsigned char *tail; /* last bytes of text, for stop strings */
    uint32_t match;      /* bytes in it */
};

/* Samples of one prompt that share one prefill. */
struct dyti_cohort {
    const struct dyti_prompt *prompt;
    struct dyti_sample *sample; /* [count] */
    uint32_t count;             /* that start when the prefill ends */
    uint32_t left;      /* of the group, not admitted yet: the prompt is kept */
    uint32_t prefilled; /* prompt positions in the cache so far */
    int32_t *table;     /* blocks of the prompt */
    uint32_t table_count;
};

/* One draw: which logits row, and the coordinates of its random number. */
struct dyti_draw {
    uint32_t row; /* of the pass's logits rows */
    uint64_t prompt;
    uint32_t sample, position; /* position: index in the response */
    /* out */
    int32_t token;
    float raw, processed;
};

struct dyti_rollout {
    struct dyti_rollout_params params;
    const struct dyti_model *model;
    struct dyti_nn *nn;
    struct dyti_nn_weights weights;
    struct dyti_nn_weights other; /* at the base that is not live */
    struct dyti_nn_cache cache;
    struct dyti_blocks blocks;
    struct dyti_region work; /* behind the cache */
    uint64_t version;
    bool serving;
#ifdef DYT_TEST_HOOKS
    bool generated; /* once before */
#endif
    uint32_t chunk_rows; /* rows of logits at a time */

    /* Tables, sized at create; used by one generate at a time. */
    uint32_t table_max;  /* blocks of the longest sequence */
    int32_t *table_pool; /* [(2 max_sequences) * table_max] */
    int32_t *table_free; /* stack of free slots of the pool */
    uint32_t table_free_count;
    struct dyti_sequence *running; /* [max_sequences] */
    uint32_t running_count;
    struct dyti_cohort *prefill; /* [max_sequences] */
    uint32_t prefill_count;
    struct dyti_draw *draw; /* [max_sequences] */
    uint32_t draw_count;
    int32_t
        *logit_row; /* [max_sequences] rows of the pass that are drawn from */
    uint32_t logit_row_count;
    /* One pass: */
    int32_t *ids, *position, *row_first, *context, *table_first, *table_flat;
    float *hidden;
    struct dyti_copy *copy; /* [2 * layers] */
    float *stats;           /* [5 * chunk_rows] draw.c's columns */
    int32_t *no_target;     /* [chunk_rows] of -1 */
    unsigned char *tail;    /* [2 max_sequences][DYTI_ROLLOUT_TAIL] */
};

/* Waiting samples in request order; admit.c cuts them into cohorts. */
struct dyti_waiting {
    const struct dyti_rollout_request *request;
    struct dyti_sample *sample; /* [total], in order */
    uint32_t next, total;
    const uint32_t *prompt_of; /* [total] index into request->prompt */
};

/* No sequence runs, and all tables and blocks are free. */
void dyti_tables_clear(struct dyti_rollout *r);
/* K and V of one block on this rank. */
uint64_t dyti_block_bytes(const struct dyti_rollout_params *params);
int32_t *dyti_table_get(struct dyti_rollout *r);
void dyti_table_put(struct dyti_rollout *r, int32_t *table);
/* Memory for the last bytes of text of the sequence that has this table. */
unsigned char *dyti_table_tail(struct dyti_rollout *r, const int32_t *table);

/* Give back the newest cohort's prompt. */
void dyti_group_close(struct dyti_rollout *r, struct dyti_cohort *cohort);

uint32_t dyti_blocks_for(const struct dyti_rollout *r, uint64_t positions);

/* Let samples in while they fit for their whole life; deterministic. */
void dyti_admit(struct dyti_rollout *r, struct dyti_waiting *waiting);
/* DYT_ERR_NOMEM, with both numbers, for a sample that could never enter. */
enum dyt_status dyti_admit_check(const struct dyti_rollout *r,
                                 const struct dyti_prompt *prompt,
                                 uint32_t max_tokens);

/* Compose and run one pass; fills draw[] and logit_row[].  Cohorts whose
 * prefill ended in it become running sequences. */
enum dyt_status dyti_pass_run(struct dyti_rollout *r,
                              struct dyti_rollout_stats *stats);

/* Draw a token for every draw[]; the same on all ranks of the replica. */
enum dyt_status dyti_draw_all(struct dyti_rollout *r,
                              const struct dyti_rollout_request *request);

/* Bytes of the workspace with which a row is searched block by block. */
uint64_t dyti_draw_scan_bytes(int64_t vocab);

/* Sample from a full row after min-tokens masks and truncation; -1: nothing
 * has any mass.
 *   logits [vocab] of tokens that may not be drawn are overwritten
 *   unit   in [0, 1) */
int32_t dyti_draw_truncated(const struct dyti_rollout_request *request,
                            float *logits, int64_t vocab, uint32_t position,
                            double unit, void *scratch);
/* Bytes of its scratch. */
uint64_t dyti_draw_scratch_bytes(int64_t vocab);

/* True if the last token of a sequence ends it; sets sample->finish. */
bool dyti_stop_reached(struct dyti_rollout *r, uint32_t running_index,
                       const struct dyti_rollout_request *request);

#endif /* DYTI_ROLLOUT_INTERNAL_H */
