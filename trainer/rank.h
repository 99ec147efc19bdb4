/* What a training rank is made of, and what its files call of each other. */
#ifndef DYTI_TRAINER_RANK_H
#define DYTI_TRAINER_RANK_H

#include "trainer/batch.h"
#include "trainer/loss.h"
#include "trainer/shares.h"
#include "trainer/trainer.h"
#include "trainer/workspace.h"

struct dyti_trainer {
    struct dyti_trainer_params p;
    const struct dyti_view *view; /* of this rank, in p.layout */
    struct dyti_nn *nn;
    struct dyti_nn_weights weights, grads, reference;
    struct dyti_shares shares;
    struct dyti_workspace ws;
    uint64_t *cut, *cut_bytes; /* [dp] elements, bytes of `param` of each dp
                                  rank's own part; owned, one block */
    struct dyti_trainer_state state;

    /* Of the last batch. */
    struct dyti_train_batch batch;
    struct dyti_micro_set micros;
    float *advantage; /* [sample_count], owned */
    double *kl_sum;   /* [sample_count], owned */
    bool *keep;       /* [sample_count], owned */
    size_t advantage_cap, kl_cap, keep_cap;
    float *value[DYTI_LOGPROB_COUNT]; /* [token_count] each, owned */
    size_t value_cap[DYTI_LOGPROB_COUNT];
    bool have[DYTI_LOGPROB_COUNT];

    uint32_t live, live_max;        /* micro-batches with saved activations */
    uint32_t updates, updates_done; /* of the step */
};

/* One walk of micro-batches through the pipeline. */
struct dyti_pass {
    const struct dyti_nn_weights *weights;
    const struct dyti_micro_set *micros;
    enum dyti_trainer_logprob into; /* where log-probabilities go */
    bool train;                     /* with loss and backward pass */
    bool old_is_current; /* the only update of a step: ratio 1, old = current */
    struct dyti_loss_totals totals;
    struct dyti_loss_sums *sums;
    bool drop_last; /* a mutant: the last micro-batch has no gradient */
};

/* Collective over the ranks of one replica. */
enum dyt_status dyti_pipeline_run(struct dyti_trainer *t,
                                  const struct dyti_pass *pass);

/* The head over a micro-batch whose hidden rows are in ws.hidden: stores
 * log-probabilities; with pass->train also adds to the sums and writes the
 * gradient into ws.dhidden. */
enum dyt_status dyti_head_run(struct dyti_trainer *t,
                              const struct dyti_pass *pass,
                              const struct dyti_micro *micro, bool no_grad);

/* The loss's view of a sequence of this rank. */
struct dyti_loss_sequence dyti_rank_sequence(const struct dyti_trainer *t,
                                             const struct dyti_pass *pass,
                                             uint32_t number);

/* From the gradients of this rank's micro-batches to those of the mini-batch:
 * in the own part with ZeRO, everywhere without.  Collective. */
enum dyt_status dyti_zero_reduce(struct dyti_trainer *t);
/* Own parts of all dp ranks into `param`.  Collective. */
enum dyt_status dyti_zero_gather(struct dyti_trainer *t);

/* Norm, clipping, AdamW on the own part.  Collective.  On DYT_ERR_VERIFY (the
 * norm is not finite) nothing has changed. */
enum dyt_status dyti_optimizer_update(struct dyti_trainer *t, double lr,
                                      double *out_norm);

/* Ranks that are alone in a group have nothing to do there. */
static inline bool dyti_alone(const struct dyti_group *group)
{
    return group->ops == NULL || group->size <= 1;
}

/* Counts once for each sequence of the dp rank: the last stage's first TP
 * member speaks for the others. */
static inline bool dyti_rank_speaks(const struct dyti_trainer *t)
{
    return t->view->part.has_head && t->view->part.tp_rank == 0;
}

static inline void dyti_rank_progress(const struct dyti_trainer *t)
{
    if (t->p.progress != NULL) {
        t->p.progress(t->p.progress_arg, t->updates_done, t->updates);
    }
}

static inline int64_t dyti_rank_now(const struct dyti_trainer *t)
{
    return t->p.clock == NULL ? 0 : t->p.clock->now_ns(t->p.clock_self);
}

#endif /* DYTI_TRAINER_RANK_H */
