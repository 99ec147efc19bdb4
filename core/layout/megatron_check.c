/* What Megatron-LM does not have, each by name with the nearest that works. */
#include "layout/megatron.h"

static bool tp_works(const void *arg, uint32_t tp)
{
    const struct dyti_arch *a = arg;
    bool latent = a->mla.kv_lora > 0;

    return a->q_heads % tp == 0 &&
           (latent || a->kv_heads % tp == 0 || tp % a->kv_heads == 0) &&
           (latent ||
            (a->q_heads * dyti_arch_q_dim(a) + 2 * a->kv_heads * a->head_dim) %
                    tp ==
                0) &&
           (a->ffn % tp == 0 || a->moe.count > 0) &&
           (a->moe.shared_ffn % tp == 0);
}

static bool etp_works(const void *arg, uint32_t etp)
{
    return ((const struct dyti_arch *)arg)->moe.ffn % etp == 0;
}

static bool ep_works(const void *arg, uint32_t ep)
{
    return ((const struct dyti_arch *)arg)->moe.count % ep == 0;
}

/* A dense layer of a model that has experts too. */
static bool has_dense_layer(const struct dyti_arch *a)
{
    return a->moe.count == 0 || a->moe.first_layer > 0 || a->moe.layer_step > 1;
}

/* Whole turns on each rank. */
static enum dyt_status check_interleave(const struct dyti_arch *a, uint32_t etp,
                                        uint32_t rows)
{
    int64_t each = a->moe.ffn / etp;
    int64_t works = rows < each ? rows : each;

    if (rows == 0 || each % rows == 0) {
        return DYT_OK;
    }
    while (each % works != 0) {
        works--;
    }
    return DYTI_FAIL(
        DYT_ERR_LAYOUT,
        "megatron: glu_interleave %u does not divide the %lld rows "
        "of an expert's gate on a rank; the nearest that works is "
        "%lld",
        rows, (long long)each, (long long)works);
}

static enum dyt_status check_experts(const struct dyti_layout *layout)
{
    const struct dyti_arch *a = &layout->model->arch;
    const struct dyti_layout_desc *d = &layout->desc;
    uint32_t ep = dyti_degree(d->ep), etp = dyti_degree(d->etp);

    if (d->experts != DYTI_EXPERTS_LINEAR) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "megatron: experts lie in blocks, rank by rank: only "
                         "linear is available");
    }
    if (!ep_works(a, ep)) {
        return DYTI_FAIL(
            DYT_ERR_LAYOUT,
            "megatron: ep %u does not divide the %lld experts; "
            "the nearest degree that works is ep %u",
            ep, (long long)a->moe.count,
            dyti_nearest_degree(ep, (uint32_t)a->moe.count, ep_works, a));
    }
    if (!etp_works(a, etp)) {
        return DYTI_FAIL(
            DYT_ERR_LAYOUT,
            "megatron: etp %u does not divide the %lld rows of "
            "an expert; the nearest degree that works is etp %u",
            etp, (long long)a->moe.ffn,
            dyti_nearest_degree(etp, (uint32_t)a->moe.ffn, etp_works, a));
    }
    return check_interleave(a, etp, d->glu_interleave);
}

enum dyt_status dyti_megatron_check(const struct dyti_layout *layout)
{
    const struct dyti_arch *a = &layout->model->arch;
    const struct dyti_layout_desc *d = &layout->desc;

    if (d->zero > 1) {
        return DYTI_FAIL(DYT_ERR_LAYOUT,
                         "megatron: zero %u: the distributed optimizer cuts "
                         "master and moments; the nearest that works is zero 1",
                         d->zero);
    }
    if (!tp_works(a, d->tp) || (has_dense_layer(a) && a->ffn % d->tp != 0)) {
        return DYTI_FAIL(
            DYT_ERR_LAYOUT,
            "megatron: tp %u does not divide %lld query heads, "
            "%lld query groups (or they it) and %lld FFN rows; "
            "the nearest degree that works is tp %u",
            d->tp, (long long)a->q_heads, (long long)a->kv_heads,
            (long long)a->ffn,
            dyti_nearest_degree(d->tp, (uint32_t)a->q_heads, tp_works, a));
    }
    return a->moe.count > 0 ? check_experts(layout) : DYT_OK;
}
