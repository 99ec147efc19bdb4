/* Gradients of what several ranks of one model replica hold: KV heads that two
 * TP ranks read, head norms, both homes of a tied embedding.  Answers "whose
 * parts are summed?" and "what of my region do others count?" */
#ifndef DYTI_TRAINER_SHARES_H
#define DYTI_TRAINER_SHARES_H

#include "trainer/trainer.h"

/* Elements of the flat buffer, half open. */
struct dyti_flat_range {
    uint64_t lo, hi;
};

/* Everything that the same ranks hold, summed in one go. */
struct dyti_share_set {
    uint32_t *holder; /* [holder_count] member numbers, ascending; owned */
    uint32_t holder_count, own;    /* own: this rank's place in it */
    bool is_tp;                    /* the holders are exactly the tp group */
    struct dyti_flat_range *range; /* [range_count], ascending; owned */
    size_t range_count, range_cap;
    uint64_t elements;
};

struct dyti_shares {
    struct dyti_share_set *set; /* [set_count], owned; in one order on all */
    size_t set_count, set_cap;
    /* What another rank of the replica counts in the norm; ascending. */
    struct dyti_flat_range *skip; /* [skip_count], owned */
    size_t skip_count, skip_cap;
};

enum dyt_status dyti_shares_build(const struct dyti_layout *layout,
                                  uint32_t rank,
                                  struct dyti_shares *out_shares);
void dyti_shares_fini(struct dyti_shares *shares);

/* Bytes of scratch that dyti_shares_sum needs. */
uint64_t dyti_shares_bytes(const struct dyti_shares *shares);

struct dyti_share_sum {
    const struct dyti_shares *shares;
    struct dyti_kernels kernels;
    struct dyti_group tp, all;
    float *grad;       /* the rank's flat buffer */
    float *scratch;    /* dyti_shares_bytes() */
    bool double_first; /* a mutant: the first holder's part counts twice */
};

/* Sum the parts over their holders, in member order: equal bits on all of
 * them.  Collective over the ranks of one replica (same dp). */
enum dyt_status dyti_shares_sum(const struct dyti_share_sum *sum);

/* Σ x² over [lo, hi) of the flat buffer without what others count. */
enum dyt_status dyti_shares_norm(const struct dyti_shares *shares,
                                 const struct dyti_kernels *kernels,
                                 const float *grad, uint64_t lo, uint64_t hi,
                                 double *out_sum);

#endif /* DYTI_TRAINER_SHARES_H */
