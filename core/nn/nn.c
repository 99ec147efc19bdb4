/* Can this rank run its part of the model with these kernels and this group,
 * and what does it keep between passes? */
#include "nn/pass.h"

#include <stdlib.h>

/* A name for each table entry the passes call would be long; the last entry
 * they use tells whether the table reaches far enough. */
static enum dyt_status check_tables(const struct dyti_kernels *kernels,
                                    const struct dyti_group *tp,
                                    const struct dyti_part *part)
{
    uint32_t size = tp == NULL || tp->ops == NULL ? 1 : tp->size;
    uint32_t rank = tp == NULL || tp->ops == NULL ? 0 : tp->rank;

    if (kernels == NULL || kernels->ops == NULL ||
        kernels->ops->struct_size < sizeof(struct dyti_kernel_ops)) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "the kernel table is missing or too short");
    }
    if (size != part->tp_size || rank != part->tp_rank) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "the tensor-parallel group says member %u of %u, the "
                         "layout %u of %u",
                         (unsigned)rank, (unsigned)size,
                         (unsigned)part->tp_rank, (unsigned)part->tp_size);
    }
    return DYT_OK;
}

static enum dyt_status check_part(const struct dyti_arch *arch,
                                  const struct dyti_part *part)
{
    int64_t group = arch->q_heads / arch->kv_heads;

    if (!part->member) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "this rank is not in the layout and cannot run it");
    }
    if (arch->head_dim < 2 || arch->head_dim % 2 != 0) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "head_dim %lld is odd: rotary embedding turns pairs",
                         (long long)arch->head_dim);
    }
    if (part->q_lo < 0 || part->q_lo >= part->q_hi ||
        part->q_hi > arch->q_heads || part->kv_lo != part->q_lo / group ||
        part->kv_hi != (part->q_hi - 1) / group + 1) {
        return DYTI_FAIL(DYT_ERR_LAYOUT,
                         "query heads %lld-%lld read other KV heads than "
                         "%lld-%lld",
                         (long long)part->q_lo, (long long)part->q_hi,
                         (long long)part->kv_lo, (long long)part->kv_hi);
    }
    if (part->layer_lo < 0 || part->layer_lo > part->layer_hi ||
        part->layer_hi > arch->layers) {
        return DYTI_FAIL(DYT_ERR_LAYOUT, "layers %lld-%lld are not of %lld",
                         (long long)part->layer_lo, (long long)part->layer_hi,
                         (long long)arch->layers);
    }
    return DYT_OK;
}

enum dyt_status dyti_nn_create(const struct dyti_model *model,
                               const struct dyti_part *part,
                               const struct dyti_kernels *kernels,
                               const struct dyti_group *tp, int64_t positions,
                               struct dyti_nn **out_nn)
{
    struct dyti_nn *nn;
    enum dyt_status st;

    DYTI_NN_TRY(check_part(&model->arch, part));
    DYTI_NN_TRY(check_tables(kernels, tp, part));
    nn = calloc(1, sizeof(*nn));
    if (nn == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "no memory for a transformer");
    }
    nn->model = model;
    nn->part = *part;
    nn->kernels = *kernels;
    if (tp != NULL) {
        nn->tp = *tp;
    }
    st = dyti_nn_rope_table(&model->arch, positions, &nn->rope_table);
    if (st != DYT_OK) {
        goto out;
    }
    nn->rope_positions = positions;
    *out_nn = nn;
    nn = NULL;
out:
    dyti_nn_destroy(nn);
    return st;
}

void dyti_nn_destroy(struct dyti_nn *nn)
{
    if (nn == NULL) {
        return;
    }
    free(nn->rope_table);
    free(nn);
}
