/* Small worlds for switch tests: cases (switch_case.h), ranks that open them
 * (switch_ranks.h), and what every element should hold. */
#ifndef DYT_SWITCH_WORLD_H
#define DYT_SWITCH_WORLD_H

#include "switch_ranks.h"

#include "base/num.h"

/* The f32 value of an element of a kind, after `version` updates. */
static inline float sw_value(uint64_t version, uint32_t tensor, uint32_t kind,
                             uint64_t index)
{
    uint32_t source = kind == DYTI_PARAM ? DYTI_MASTER : kind;
    uint64_t bits = dyti_rng_u64(version, tensor, source, index);

    return (float)(dyti_rng_unit(bits) * 4.0 - 2.0);
}

/* Call for each element of a rank's shards of a kind; stops at false. */
typedef bool (*sw_element_fn)(void *arg, unsigned char *at,
                              enum dyti_dtype dtype, uint32_t tensor,
                              uint64_t index);

static inline bool sw_each_at(const struct sw_rank *rank,
                              enum dyti_arena_slot slot, enum dyti_kind kind,
                              unsigned char *region, sw_element_fn fn,
                              void *arg)
{
    const struct dyti_layout *layout = rank->c.layout[slot];
    const struct dyti_view *view = dyti_layout_view(layout, rank->me->rank);

    for (uint32_t s = view->kind_first[kind]; s < view->kind_first[kind + 1];
         s++) {
        const struct dyti_shard *shard = &view->shard[s];
        const struct dyti_tensor *tensor =
            &rank->c.model->tensor[shard->tensor];
        int64_t rows = tensor->ndim == 1 ? 1 : tensor->shape[0];
        int64_t cols = tensor->shape[tensor->ndim - 1];
        uint32_t fast = tensor->ndim - 1;
        int64_t lo = tensor->ndim == 1 ? 0 : shard->box.lo[0];
        int64_t hi = tensor->ndim == 1 ? 1 : shard->box.hi[0];

        (void)rows;
        for (int64_t r = lo; r < hi; r++) {
            for (int64_t c = shard->box.lo[fast]; c < shard->box.hi[fast];
                 c++) {
                int64_t at = (c - shard->box.lo[fast]) * shard->stride[fast];

                at += tensor->ndim == 1 ? 0 : (r - lo) * shard->stride[0];
                if (!fn(arg, region + shard->offset + at,
                        (enum dyti_dtype)shard->dtype, shard->tensor,
                        (uint64_t)(r * cols + c))) {
                    return false;
                }
            }
        }
    }
    return true;
}

/* Of a device: over a copy here, that goes back if it is written to. */
static inline bool sw_each(const struct sw_rank *rank,
                           enum dyti_arena_slot slot, enum dyti_kind kind,
                           sw_element_fn fn, void *arg, bool writes)
{
    uint32_t r = rank->me->rank;
    uint64_t bytes = rank->c.map[r].bytes[slot][kind];
    unsigned char *region = dyti_world_region(rank->world, r, slot, kind);
    unsigned char *copy = NULL;
    bool good = true;

    if (region == NULL || !sw_is_device(r)) {
        return sw_each_at(rank, slot, kind, region, fn, arg);
    }
    copy = malloc(bytes);
    good = copy != NULL &&
           dyti_kernels_carry(&rank->kernels, copy, region, bytes) == DYT_OK;
    if (!good) {
        rank_wrong(rank->me, "reading a region: %s", dyti_error_text());
    }
    good = good && sw_each_at(rank, slot, kind, copy, fn, arg);
    if (good && writes &&
        dyti_kernels_carry(&rank->kernels, region, copy, bytes) != DYT_OK) {
        rank_wrong(rank->me, "writing a region: %s", dyti_error_text());
        good = false;
    }
    free(copy);
    return good;
}

struct sw_expect {
    uint64_t version;
    uint32_t kind;
    struct dyt_rank *me;
    const struct sw_rank *rank;
};

static inline uint16_t sw_narrow(float x, enum dyti_dtype dtype)
{
    return dtype == DYTI_BF16 ? dyti_f32_to_bf16(x) : dyti_f32_to_f16(x);
}

static inline bool sw_write_one(void *arg, unsigned char *at,
                                enum dyti_dtype dtype, uint32_t tensor,
                                uint64_t index)
{
    const struct sw_expect *e = arg;
    float x = sw_value(e->version, tensor, e->kind, index);
    uint16_t narrow = sw_narrow(x, dtype);

    if (dtype != DYTI_F32) {
        memcpy(at, &narrow, sizeof(narrow));
    } else {
        memcpy(at, &x, sizeof(x));
    }
    return true;
}

static inline bool sw_check_one(void *arg, unsigned char *at,
                                enum dyti_dtype dtype, uint32_t tensor,
                                uint64_t index)
{
    struct sw_expect *e = arg;
    float x = sw_value(e->version, tensor, e->kind, index);
    uint16_t narrow = sw_narrow(x, dtype);

    /* Where it went through a bf16 layout without a master it has rounded. */
    if (dtype != DYTI_F32 ? memcmp(at, &narrow, 2) != 0
                          : memcmp(at, &x, 4) != 0) {
        rank_wrong(e->me,
                   "%s of tensor %s, element %" PRIu64
                   ": not the value of version %" PRIu64,
                   dyti_kind_name((enum dyti_kind)e->kind),
                   e->rank->c.model->tensor[tensor].name, index, e->version);
        return false;
    }
    return true;
}

static inline void sw_write(const struct sw_rank *rank,
                            enum dyti_arena_slot slot, enum dyti_kind kind,
                            uint64_t version)
{
    struct sw_expect e = {version, kind, rank->me, rank};

    (void)sw_each(rank, slot, kind, sw_write_one, &e, true);
}

static inline bool sw_check(const struct sw_rank *rank,
                            enum dyti_arena_slot slot, enum dyti_kind kind,
                            uint64_t version)
{
    struct sw_expect e = {version, kind, rank->me, rank};

    return sw_each(rank, slot, kind, sw_check_one, &e, false);
}

/* All kinds of a slot that hold state. */
static inline bool sw_check_all(const struct sw_rank *rank,
                                enum dyti_arena_slot slot, uint64_t version)
{
    for (int k = 0; k < DYTI_KIND_COUNT; k++) {
        if (k != DYTI_GRAD &&
            !sw_check(rank, slot, (enum dyti_kind)k, version)) {
            return false;
        }
    }
    return true;
}

/* An update of the owners: master and moments, not yet `param`. */
static inline void sw_update(const struct sw_rank *rank,
                             enum dyti_arena_slot slot, uint64_t version)
{
    for (int k = DYTI_MASTER; k < DYTI_KIND_COUNT; k++) {
        sw_write(rank, slot, (enum dyti_kind)k, version);
    }
}

/* To `version`: nobody manages it, and what it leaves behind stays to be looked
 * at. */
static inline struct dyti_switch_order sw_order(uint64_t epoch,
                                                uint64_t version,
                                                enum dyti_verify verify)
{
    struct dyti_switch_order order = {.epoch = epoch,
                                      .version = version,
                                      .unmanaged = true,
                                      .verify = verify};

#ifdef DYT_TEST_HOOKS
    order.keep_abandoned = true;
#endif
    return order;
}

/* One switch; nobody manages it. */
static inline enum dyt_status sw_switch(
    struct sw_rank *rank, enum dyti_arena_slot from, enum dyti_arena_slot to,
    const struct dyti_world_switch_options *options,
    const struct dyti_switch_order *order,
    struct dyti_switch_report *out_report)
{
    struct dyti_switch *self = NULL;
    enum dyt_status st =
        dyti_world_prepare(rank->world, from, to, options, &self, NULL);

    return st != DYT_OK ? st : dyti_switch_run(self, order, out_report);
}

#endif /* DYT_SWITCH_WORLD_H */
