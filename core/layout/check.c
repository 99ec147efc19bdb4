/* Refusals that all dialects share: each by name, with what would work. */
#include "layout/check.h"

#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

struct dyti_layout_desc dyti_layout_with_defaults(
    const struct dyti_layout_desc *desc)
{
    struct dyti_layout_desc d = *desc;
    bool ordered = false;

    d.cp = d.cp == 0 ? 1 : d.cp;
    d.ep = d.ep == 0 ? 1 : d.ep;
    d.etp = d.etp == 0 ? 1 : d.etp;
    d.vpp = d.vpp == 0 ? 1 : d.vpp;
    for (int i = 0; i < DYTI_AXIS_COUNT; i++) {
        ordered = ordered || d.order[i] != 0;
    }
    for (int i = 0; i < DYTI_AXIS_COUNT && !ordered; i++) {
        d.order[i] = (uint8_t)i;
    }
    if (d.zero_range == NULL) {
        d.zero_range_count = 0;
    }
    if (d.expert_zero_range == NULL) {
        d.expert_zero_range_count = 0;
    }
    return d;
}

static enum dyt_status check_degrees(const struct dyti_layout_desc *d,
                                     uint32_t *out_member_count)
{
    uint32_t count;

    if (d->tp == 0 || d->pp == 0 || d->dp == 0 || d->world_size == 0) {
        return DYTI_FAIL(DYT_ERR_LAYOUT,
                         "tp %u, pp %u, dp %u over %u ranks: each must be at "
                         "least 1",
                         d->tp, d->pp, d->dp, d->world_size);
    }
    if (d->zero > 3) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "zero %u is not available: 0, 1, 2 or 3", d->zero);
    }
    if (__builtin_mul_overflow(d->tp, d->pp, &count) ||
        __builtin_mul_overflow(count, d->dp, &count) ||
        __builtin_mul_overflow(count, d->cp, &count)) {
        return DYTI_FAIL(DYT_ERR_OVERFLOW,
                         "tp %u x pp %u x dp %u x cp %u ranks", d->tp, d->pp,
                         d->dp, d->cp);
    }
    *out_member_count = count;
    return DYT_OK;
}

static enum dyt_status check_order(const struct dyti_layout_desc *d)
{
    unsigned seen = 0;

    for (int i = 0; i < DYTI_AXIS_COUNT; i++) {
        if (d->order[i] >= DYTI_AXIS_COUNT || (seen >> d->order[i] & 1u)) {
            return DYTI_FAIL(DYT_ERR_LAYOUT,
                             "order[%d] is %u: tp, cp, dp and pp must each "
                             "come once",
                             i, d->order[i]);
        }
        seen |= 1u << d->order[i];
    }
    return DYT_OK;
}

static enum dyt_status check_stages(const struct dyti_model *model,
                                    const struct dyti_layout_desc *d)
{
    int64_t layers = model->arch.layers, sum = 0;
    uint64_t stages = (uint64_t)d->pp * d->vpp;

    if (d->pp > layers) {
        return DYTI_FAIL(DYT_ERR_LAYOUT,
                         "pp %u: model.layers has %lld layers to share; the "
                         "nearest degree that works is pp %lld",
                         d->pp, (long long)layers, (long long)layers);
    }
    if (stages > (uint64_t)layers) {
        return DYTI_FAIL(DYT_ERR_LAYOUT,
                         "vpp %u x pp %u: model.layers has %lld layers to "
                         "share; the nearest degree that works is vpp %lld",
                         d->vpp, d->pp, (long long)layers,
                         (long long)(layers / d->pp));
    }
    for (uint32_t s = 0; d->pp_layers != NULL && s < stages; s++) {
        if (d->pp_layers[s] == 0) {
            return DYTI_FAIL(DYT_ERR_LAYOUT,
                             "pp_layers[%u] is 0: each of the %llu pipeline "
                             "stages needs a layer",
                             s, (unsigned long long)stages);
        }
        sum += d->pp_layers[s];
    }
    if (d->pp_layers != NULL && sum != layers) {
        return DYTI_FAIL(DYT_ERR_LAYOUT,
                         "pp_layers add up to %lld layers, model.layers has "
                         "%lld",
                         (long long)sum, (long long)layers);
    }
    return DYT_OK;
}

static enum dyt_status check_ranks(const struct dyti_layout_desc *d,
                                   uint32_t member_count)
{
    unsigned char *seen;
    enum dyt_status st = DYT_OK;

    if (member_count > d->world_size) {
        return DYTI_FAIL(DYT_ERR_LAYOUT,
                         "tp %u x pp %u x dp %u%s needs %u ranks, the world "
                         "has %u",
                         d->tp, d->pp, d->dp, d->cp > 1 ? " x cp" : "",
                         member_count, d->world_size);
    }
    if (d->ranks == NULL) {
        return DYT_OK;
    }
    seen = calloc(d->world_size, 1);
    if (seen == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u ranks", d->world_size);
    }
    for (uint32_t m = 0; m < member_count && st == DYT_OK; m++) {
        uint32_t rank = d->ranks[m];

        if (rank >= d->world_size) {
            st = DYTI_FAIL(DYT_ERR_LAYOUT,
                           "ranks[%u] is %u: the world has ranks 0 to %u", m,
                           rank, d->world_size - 1);
        } else if (seen[rank]++) {
            st = DYTI_FAIL(DYT_ERR_LAYOUT,
                           "ranks[%u] names rank %u a second time", m, rank);
        }
    }
    free(seen);
    return st;
}

static enum dyt_status check_dtypes(const struct dyti_layout_desc *d)
{
    enum dyti_dtype param = d->dtype[DYTI_PARAM];

    if (param != DYTI_F32 && param != DYTI_BF16 && param != DYTI_F16) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "param as %s is not available: f32, bf16 or f16",
                         dyti_dtype_name(param));
    }
    /* DYTI_EXTRA: each tensor has its own. */
    for (int kind = DYTI_PARAM + 1; kind < DYTI_EXTRA; kind++) {
        if (d->dtype[kind] != DYTI_F32) {
            return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                             "%s as %s is not available: f32 only",
                             dyti_kind_name((enum dyti_kind)kind),
                             dyti_dtype_name(d->dtype[kind]));
        }
    }
    return DYT_OK;
}

/* ---- experts ------------------------------------------------------------- */

/* The largest e <= want such that e * etp divides the stage group. */
static uint32_t nearest_ep(uint64_t group, uint32_t etp, uint64_t want)
{
    while (want > 1 && group % (want * etp) != 0) {
        want--;
    }
    return (uint32_t)want;
}

static enum dyt_status check_expert_degrees(const struct dyti_model *model,
                                            const struct dyti_layout_desc *d)
{
    uint64_t group = (uint64_t)d->tp * d->cp * d->dp;
    int64_t experts = model->arch.moe.count;
    uint64_t both;

    if (experts == 0 && (d->ep > 1 || d->etp > 1)) {
        return DYTI_FAIL(DYT_ERR_LAYOUT,
                         "ep %u, etp %u: the model has no routed experts; ep 1 "
                         "and etp 1 work",
                         d->ep, d->etp);
    }
    if (dyti_mul_overflow(d->ep, d->etp, &both) || group % both != 0) {
        if (group % d->etp != 0) {
            return DYTI_FAIL(DYT_ERR_LAYOUT,
                             "etp %u does not divide the %llu ranks of a "
                             "stage; etp %u works",
                             d->etp, (unsigned long long)group,
                             nearest_ep(group, 1, d->etp));
        }
        return DYTI_FAIL(
            DYT_ERR_LAYOUT,
            "ep %u x etp %u does not divide the %llu ranks of a "
            "stage (tp x cp x dp); the nearest degree that works "
            "is ep %u",
            d->ep, d->etp, (unsigned long long)group,
            nearest_ep(group, d->etp, d->ep < group ? d->ep : group));
    }
    if (experts > 0 && d->experts != DYTI_EXPERTS_EXPLICIT && d->ep > experts) {
        return DYTI_FAIL(DYT_ERR_LAYOUT,
                         "ep %u: a layer has %lld experts to share, some rank "
                         "would hold none; the nearest degree that works is ep "
                         "%u",
                         d->ep, (long long)experts,
                         nearest_ep(group, d->etp, (uint64_t)experts));
    }
    return DYT_OK;
}

/* Every expert has a slot, none more than two on one ep rank. */
static enum dyt_status check_slots(const struct dyti_layout_desc *d,
                                   int64_t experts, uint32_t *mark,
                                   unsigned char *on_rank)
{
    for (uint32_t r = 0; r < d->ep; r++) {
        memset(on_rank, 0, (size_t)experts);
        for (uint32_t s = 0; s < d->expert_slots; s++) {
            int32_t e = d->expert_slot[(size_t)r * d->expert_slots + s];

            if (e < -1 || e >= experts) {
                return DYTI_FAIL(DYT_ERR_LAYOUT,
                                 "expert_slot %u of ep rank %u is %d: experts "
                                 "are 0 to %lld, -1 is an empty slot",
                                 s, r, e, (long long)experts - 1);
            }
            if (e >= 0 && ++on_rank[e] > 2) {
                return DYTI_FAIL(DYT_ERR_LAYOUT,
                                 "expert %d has three slots on ep rank %u: two "
                                 "at most",
                                 e, r);
            }
            if (e >= 0) {
                mark[e] = 1;
            }
        }
    }
    for (int64_t e = 0; e < experts; e++) {
        if (mark[e] == 0) {
            return DYTI_FAIL(DYT_ERR_LAYOUT,
                             "expert %lld has no slot on any of the %u ep "
                             "ranks",
                             (long long)e, d->ep);
        }
    }
    return DYT_OK;
}

static enum dyt_status check_map(const struct dyti_model *model,
                                 const struct dyti_layout_desc *d)
{
    int64_t experts = model->arch.moe.count;
    uint32_t *mark;
    unsigned char *on_rank;
    enum dyt_status st;

    if ((unsigned)d->experts > DYTI_EXPERTS_EXPLICIT) {
        return DYTI_FAIL(DYT_ERR_LAYOUT,
                         "expert map %d: linear, round_robin or explicit",
                         (int)d->experts);
    }
    if (d->experts != DYTI_EXPERTS_EXPLICIT || experts == 0) {
        return DYT_OK;
    }
    if (d->expert_slot == NULL || d->expert_slots == 0) {
        return DYTI_FAIL(DYT_ERR_LAYOUT,
                         "an explicit expert map needs the %u x N slots of its "
                         "ep ranks",
                         d->ep);
    }
    mark = calloc((size_t)experts, sizeof(*mark));
    on_rank = calloc((size_t)experts, 1);
    st = mark != NULL && on_rank != NULL
             ? check_slots(d, experts, mark, on_rank)
             : DYTI_FAIL(DYT_ERR_NOMEM, "%lld experts", (long long)experts);
    free(mark);
    free(on_rank);
    return st;
}

/* ---- fields of one dialect ------------------------------------------------
 */

static enum dyt_status check_own_fields(const struct dyti_model *model,
                                        const struct dyti_layout_desc *d)
{
    bool megatron = d->dialect == DYTI_DIALECT_MEGATRON;

    if (d->bucket_multiple > 0 && (!megatron || d->zero != 1)) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "bucket_multiple %u is only available for the buckets "
                         "of megatron with zero 1",
                         d->bucket_multiple);
    }
    if (d->glu_interleave > 0 && (!megatron || model->arch.moe.count == 0)) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "glu_interleave %u is only available for the routed "
                         "experts of megatron",
                         d->glu_interleave);
    }
    if (d->round_robin && d->dialect != DYTI_DIALECT_ZERO12) {
        return DYTI_FAIL(
            DYT_ERR_UNSUPPORTED,
            "zero_order round_robin is only available for the flat "
            "tensors of zero12");
    }
    return DYT_OK;
}

/* ---- the whole ----------------------------------------------------------- */

enum dyt_status dyti_zero_ranges_check(const char *what,
                                       const struct dyti_zero_range *range,
                                       uint32_t count, uint32_t owners)
{
    uint64_t at = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (range[i].lo != at || range[i].hi <= at ||
            range[i].hi > DYTI_ZERO_WHOLE) {
            return DYTI_FAIL(DYT_ERR_LAYOUT,
                             "%s[%u] is [%llu, %llu): ranges follow each other "
                             "from 0 to 2^32, the last one ended at %llu",
                             what, i, (unsigned long long)range[i].lo,
                             (unsigned long long)range[i].hi,
                             (unsigned long long)at);
        }
        if (range[i].owner >= owners) {
            return DYTI_FAIL(DYT_ERR_LAYOUT,
                             "%s[%u] belongs to position %u: the ZeRO group "
                             "has 0 to %u",
                             what, i, range[i].owner, owners - 1);
        }
        at = range[i].hi;
    }
    if (count > 0 && at != DYTI_ZERO_WHOLE) {
        return DYTI_FAIL(DYT_ERR_LAYOUT, "%s ends at %llu, not at 2^32", what,
                         (unsigned long long)at);
    }
    return DYT_OK;
}

enum dyt_status dyti_layout_check(const struct dyti_model *model,
                                  const struct dyti_layout_desc *desc,
                                  uint32_t *out_member_count)
{
    uint32_t count = 0;
    enum dyt_status st = check_degrees(desc, &count);

    st = st != DYT_OK ? st : check_order(desc);
    st = st != DYT_OK ? st : check_stages(model, desc);
    st = st != DYT_OK ? st : check_ranks(desc, count);
    st = st != DYT_OK ? st : check_dtypes(desc);
    st = st != DYT_OK ? st : check_expert_degrees(model, desc);
    st = st != DYT_OK ? st : check_map(model, desc);
    st = st != DYT_OK ? st : check_own_fields(model, desc);
    if (st == DYT_OK) {
        *out_member_count = count;
    }
    return st;
}
