/* Generation: prompts in, samples with log-probabilities and versions out.
 *
 * Continuous batching over a KV cache in blocks: finished sequences leave,
 * waiting ones enter; prefill and decode rows run in one pass.  A prompt is
 * prefilled once and shared by all samples of its group.
 *
 * What runs when is a pure function of the request (order, lengths), never of
 * time: every rank of a replica computes the same passes by itself, and only
 * hidden states, log-sum-exps and sampled tokens cross between ranks.  Random
 * numbers are a pure function of (seed, prompt id, sample index, position).
 */
#ifndef DYTI_ROLLOUT_ENGINE_H
#define DYTI_ROLLOUT_ENGINE_H

#include "data/data.h"
#include "data/settings.h"
#include "nn/nn.h"
#include "ops/tokenizer.h"

struct dyti_rollout_params {
    const struct dyti_layout *layout; /* borrowed */
    uint32_t rank;                    /* world rank, a member */
    struct dyti_kernels kernels;
    struct dyti_group tp; /* same replica and pipeline stage */
    struct dyti_group pp; /* same replica and tp rank, by stage */
    void *weights;        /* base of the rank's param region */
    void *other_weights;  /* of its second address set; NULL: there is none */
    enum dyti_dtype kv_dtype;
    uint64_t kv_bytes; /* K and V of this rank's layers */
    uint32_t block;    /* positions in a block */
    uint32_t max_sequences;
    uint32_t max_rows;                      /* of one pass; >= max_sequences */
    uint32_t max_positions;                 /* longest prompt + response */
    const struct dyti_tokenizer *tokenizer; /* for stop strings; may be NULL */
#ifdef DYT_TEST_HOOKS
    bool stale_kv; /* mutant: prompts seen before keep the KV of old weights */
#endif
};

struct dyti_rollout;

/* Bytes of workspace: cache, one pass, one chunk of logits.  Pure. */
enum dyt_status dyti_rollout_workspace_bytes(
    const struct dyti_rollout_params *params, uint64_t *out_bytes);

/* `work` has dyti_rollout_workspace_bytes and is borrowed until destroy; its
 * content may be overwritten by others between calls of generate. */
enum dyt_status dyti_rollout_create(const struct dyti_rollout_params *params,
                                    void *work, uint64_t work_bytes,
                                    struct dyti_rollout **out_rollout);
void dyti_rollout_destroy(struct dyti_rollout *rollout);

/* The weights are whole and are this version from now on.  Generating before
 * the first call, or after dyti_rollout_invalidate, is DYT_ERR_STATE. */
void dyti_rollout_set_version(struct dyti_rollout *rollout, uint64_t version);
void dyti_rollout_invalidate(struct dyti_rollout *rollout);
/* Read the weights at this one of the two bases from now on.  No allocation.
 * DYT_ERR_INVALID: it is neither. */
enum dyt_status dyti_rollout_set_weights(struct dyti_rollout *rollout,
                                         const void *weights);

struct dyti_rollout_stats {
    uint64_t passes, prefill_rows, decode_rows, sampled;
    uint32_t most_sequences;
    uint64_t most_blocks; /* of block_count, in use at a time */
    uint64_t kv_bytes;    /* K and V of those, on this rank */
};

struct dyti_rollout_request {
    const struct dyti_prompt *prompt; /* [prompt_count], borrowed */
    uint32_t prompt_count;
    uint32_t samples_per_prompt;
    const struct dyti_sampling *sampling; /* borrowed */
    const int32_t *eos;                   /* [eos_count], borrowed */
    uint32_t eos_count;
    uint64_t seed;
    /* Called on every rank when the first token has been sampled; may be NULL.
     */
    void (*first_token)(void *arg);
    /* Called after each pass with the samples finished so far; may be NULL. */
    void (*progress)(void *arg, uint32_t finished, uint32_t total);
    void *arg;
};

/**
 * Generate the samples of this rank's replica: those of prompt i with
 * i mod dp == dp_rank.  All ranks of the replica call it together and get the
 * same samples.
 *
 * @param out_sample  [*out_count], owned by the caller, by (prompt, index)
 * @return DYT_ERR_STATE    no committed weights
 * @return DYT_ERR_INVALID  a prompt is empty or too long, with its id
 * @return DYT_ERR_NOMEM    one sequence does not fit the KV cache: both numbers
 */
enum dyt_status dyti_rollout_generate(
    struct dyti_rollout *rollout, const struct dyti_rollout_request *request,
    struct dyti_sample **out_sample, uint32_t *out_count,
    struct dyti_rollout_stats *out_stats);

#endif /* DYTI_ROLLOUT_ENGINE_H */
