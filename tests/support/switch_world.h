/* Small worlds for switch tests: layouts drawn from a seed, their memory, what
 * every element should hold, and ranks that open the world. */
#ifndef DYT_SWITCH_WORLD_H
#define DYT_SWITCH_WORLD_H

#include "dyt_ranks.h"

#include "base/num.h"
#include "base/rng.h"
#include "comm/shm/shm.h"
#include "device/host/clock.h"
#include "device/host/host.h"
#include "device/host/memory.h"
#include "edm/world.h"
#include "mover/direct/direct.h"
#include "switch_device.h"

#define SW_RANKS_MAX 6u

/* What both phases look like.  Built by each rank alone from the seed. */
struct sw_case {
    uint64_t seed;
    uint32_t world_size;
    bool moves_optimizer; /* both layouts train: every kind travels */
    struct dyti_model *model;
    struct dyti_layout *layout[DYTI_ARENA_SLOT_COUNT];
    struct dyti_arena_options options;
    struct dyti_arena_map map[SW_RANKS_MAX];
};

/* What worlds are opened with; a test may change it between two. */
static const struct dyti_group_ops *sw_group = &dyti_group_shm;
static const struct dyti_mover_ops *sw_message;       /* NULL: none */
static const struct dyti_group_ops *sw_message_group; /* NULL: sw_group */
static const uint32_t *sw_host;                       /* NULL: one */
static uint64_t sw_backup_bytes;                      /* of devices' ranks */
/* Ranks whose segments are memory of a device. */
#ifdef SW_CUDA /* the same tests, over devices that are simulated */
#include "gpusim/cuda_world.h"
static const struct sw_device *sw_device = &cuda_world;
#else
static const struct sw_device *sw_device; /* NULL: all are of the host */
static inline void sw_device_begin(uint64_t seed)
{
    (void)seed;
}

/* What devices have to say when nobody uses them any more; "": nothing. */
static inline const char *sw_device_ended(void)
{
    return "";
}
#endif
/* Not drawn, but as this says; NULL: drawn. */
struct sw_shape {
    struct dyti_arch arch;
    uint32_t rollout[3], train[3]; /* tp, pp, dp */
    uint32_t rollout_ranks[SW_RANKS_MAX], train_ranks[SW_RANKS_MAX];
    uint32_t zero; /* of training */
};
static const struct sw_shape *sw_shape;

/* Memory of a world, made before its ranks. */
struct sw_memory {
    const struct dyti_memory_ops *ops;
    int64_t timeout_ns;                 /* of the ranks' waits */
    const struct dyti_mover_ops *mover; /* NULL: direct */
    struct dyti_arena_options options;  /* of the case */
    int control, segment[SW_RANKS_MAX];
    enum dyti_page_kind pages[SW_RANKS_MAX];
    struct dyti_segment_mem control_mem, segment_mem[SW_RANKS_MAX];
};

/* One rank's side. */
struct sw_rank {
    struct dyt_rank *me;
    struct sw_case c;
    struct dyti_kernels kernels;
    struct dyti_world *world;
};

/* How often: less where devices are simulated, unless all is asked for. */
static inline uint64_t sw_rounds(uint64_t host, uint64_t device)
{
    return sw_device == NULL ? host : dyt_test_rounds(device, host);
}

/* Each in turn; all of them in the few rounds of devices. */
static inline enum dyti_verify sw_verify(uint64_t n)
{
    return (enum dyti_verify)((n + (sw_device == NULL ? 0 : 1)) % 3);
}

/* ---- drawing ------------------------------------------------------------ */

static inline uint32_t sw_draw(uint64_t seed, uint64_t what, uint32_t below)
{
    return (uint32_t)(dyti_rng_u64(seed, what, 0, 0) % below);
}

static inline struct dyti_arch sw_arch(uint64_t seed)
{
    struct dyti_arch arch = {.family = DYTI_LLAMA,
                             .vocab = 50,
                             .hidden = 16,
                             .layers = 3,
                             .q_heads = 8,
                             .kv_heads = 2,
                             .head_dim = 2,
                             .ffn = 24,
                             .max_positions = 64,
                             .rms_eps = 1e-5,
                             .init_std = 0.1,
                             .rope = {.theta = 10000},
                             .dtype = DYTI_F32};

    arch.tied = sw_draw(seed, 1, 2) == 0;
    if (sw_draw(seed, 2, 3) == 0) { /* nothing divides */
        arch.vocab = 131;
        arch.q_heads = 9;
        arch.kv_heads = 3;
        arch.head_dim = 6;
        arch.hidden = 54;
        arch.ffn = 130;
    }
    if (sw_draw(seed, 3, 3) == 0) {
        arch.family = DYTI_QWEN2;
        arch.qkv_bias = true;
    }
    return arch;
}

/* Degrees with tp * pp * dp <= world, ranks in a drawn order. */
static inline void sw_desc(uint64_t seed, uint32_t world_size, bool trains,
                           uint32_t *ranks, struct dyti_layout_desc *out)
{
    static const uint32_t degrees[][3] = {
        {1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {3, 1, 1}, {1, 3, 1},
        {1, 1, 3}, {4, 1, 1}, {2, 2, 1}, {2, 1, 2}, {1, 2, 2}, {1, 1, 4}};
    struct dyti_layout_desc desc = {.phase = trains ? "train" : "rollout",
                                    .world_size = world_size,
                                    .ranks = ranks};
    uint32_t i = 0, count = (uint32_t)DYT_TEST_COUNT(degrees);

    do {
        const uint32_t *d = degrees[sw_draw(seed, 10 + i++, count)];

        desc.tp = d[0];
        desc.pp = d[1];
        desc.dp = d[2];
    } while (desc.tp * desc.pp * desc.dp > world_size);
    for (uint32_t r = 0; r < world_size; r++) { /* a random permutation */
        uint32_t at = sw_draw(seed, 100 + r, r + 1);

        ranks[r] = ranks[at];
        ranks[at] = r;
    }
    desc.zero = trains ? sw_draw(seed, 5, 2) : 0;
    for (int k = 0; k < DYTI_KIND_COUNT; k++) {
        desc.dtype[k] = DYTI_F32;
        desc.residency[k] = trains ? DYTI_HELD : DYTI_PARKED;
    }
    desc.residency[DYTI_PARAM] = DYTI_HELD;
    desc.dtype[DYTI_PARAM] = (enum dyti_dtype)sw_draw(seed, 6, 3);
    if (!trains) {
        desc.residency[DYTI_GRAD] = DYTI_DROPPED;
    }
    *out = desc;
}

/* A drawn layout as sw_shape has it: all in f32, nothing but weights moves. */
static inline void sw_use_shape(bool trains, struct dyti_layout_desc *desc)
{
    const uint32_t *degree = trains ? sw_shape->train : sw_shape->rollout;

    desc->phase = trains ? "train" : "rollout";
    desc->tp = degree[0];
    desc->pp = degree[1];
    desc->dp = degree[2];
    desc->zero = trains ? sw_shape->zero : 0;
    desc->ranks = trains ? sw_shape->train_ranks : sw_shape->rollout_ranks;
    desc->dtype[DYTI_PARAM] = DYTI_F32;
    for (int k = 0; k < DYTI_KIND_COUNT; k++) {
        desc->residency[k] = trains || k == DYTI_PARAM ? DYTI_HELD
                             : k == DYTI_GRAD          ? DYTI_DROPPED
                                                       : DYTI_PARKED;
    }
}

#define SW_WORK_BYTES 100000u

static inline enum dyt_status sw_case_init_mode(
    struct sw_case *c, uint64_t seed, uint32_t world_size,
    const struct dyti_arena_options *options)
{
    struct dyti_arch arch = sw_arch(seed);
    uint32_t ranks[2][SW_RANKS_MAX] = {{0}};
    struct dyti_layout_desc desc;
    enum dyt_status st;

    *c = (struct sw_case){.seed = seed,
                          .world_size = world_size,
                          .options = *options,
                          .moves_optimizer =
                              sw_shape == NULL && sw_draw(seed, 7, 3) == 0};
    if (sw_shape != NULL) {
        arch = sw_shape->arch;
    }
    st = dyti_model_build(&arch, &c->model);
    if (st == DYT_OK) {
        sw_desc(seed * 2, world_size, c->moves_optimizer, ranks[0], &desc);
        if (sw_shape != NULL) {
            sw_use_shape(false, &desc);
        }
        st = dyti_layout_build(c->model, &desc, &c->layout[DYTI_ARENA_ROLLOUT]);
    }
    if (st == DYT_OK) {
        sw_desc(seed * 2 + 1, world_size, true, ranks[1], &desc);
        if (sw_shape != NULL) {
            sw_use_shape(true, &desc);
        }
        st = dyti_layout_build(c->model, &desc, &c->layout[DYTI_ARENA_TRAIN]);
    }
    for (uint32_t r = 0; r < world_size && st == DYT_OK; r++) {
        st = dyti_arena_map_build_mode(
            (const struct dyti_layout *const *)c->layout, r, options,
            &c->map[r]);
    }
    return st;
}

static inline enum dyt_status sw_case_init(struct sw_case *c, uint64_t seed,
                                           uint32_t world_size)
{
    struct dyti_arena_options options = {.work_bytes = SW_WORK_BYTES};

    return sw_case_init_mode(c, seed, world_size, &options);
}

static inline void sw_case_fini(struct sw_case *c)
{
    dyti_layout_destroy(c->layout[DYTI_ARENA_ROLLOUT]);
    dyti_layout_destroy(c->layout[DYTI_ARENA_TRAIN]);
    dyti_model_destroy(c->model);
}

/* ---- memory ---------------------------------------------------------------
 */

static inline bool sw_is_device(uint32_t rank)
{
    return sw_device != NULL && (sw_device->ranks >> rank & 1u) != 0;
}

static inline const struct dyti_memory_ops *sw_memory_of(uint32_t rank)
{
    return sw_is_device(rank) ? sw_device->memory : &dyti_memory_host;
}

static inline const struct dyti_kernel_ops *sw_kernels_of(uint32_t rank)
{
    return sw_is_device(rank) ? sw_device->kernels : &dyti_kernels_host;
}

/* The device of a rank, by UUID; NULL: the only one. */
static inline const char *sw_device_name(uint32_t rank)
{
    return sw_is_device(rank) && sw_device->name != NULL ? sw_device->name[rank]
                                                         : NULL;
}

/* A segment that the ranks do not size and map themselves. */
static inline void sw_memory_map(struct sw_memory *memory,
                                 const struct sw_case *c, uint32_t r)
{
    const struct dyti_memory_ops *ops = sw_memory_of(r);
    uint64_t part[DYTI_ARENA_PARTS_MAX], total = c->map[r].total_bytes;
    uint32_t count = dyti_arena_parts(&c->map[r], part);

    assert_ok(ops->use(sw_device_name(r)));
    assert_ok(
        ops->resize(memory->segment[r], memory->pages[r], total, part, count));
    assert_ok(ops->map(memory->segment[r], memory->pages[r], total,
                       &memory->segment_mem[r]));
}

static inline void sw_memory_open(struct sw_memory *memory, struct sw_case *c,
                                  enum dyt_ranks_kind kind)
{
    const struct dyti_memory_ops *ops = &dyti_memory_host;
    uint64_t bytes = 0;

    sw_device_begin(c->seed);
    *memory = (struct sw_memory){.ops = ops,
                                 .options = c->options,
                                 .timeout_ns = sw_device == NULL ? 20000000000
                                                                 : 120000000000,
                                 .control = -1};
    assert_ok(
        dyti_world_control_bytes((const struct dyti_layout *const *)c->layout,
                                 c->world_size, sw_group, &bytes));
    bytes +=
        dyti_world_message_bytes(sw_message_group, sw_group, c->world_size);
    assert_ok(ops->create("control", DYTI_PAGES_4K, &memory->control));
    assert_ok(ops->resize(memory->control, DYTI_PAGES_4K, bytes, NULL, 0));
    assert_ok(
        ops->map(memory->control, DYTI_PAGES_4K, bytes, &memory->control_mem));
    for (uint32_t r = 0; r < c->world_size; r++) {
        memory->pages[r] = sw_is_device(r) ? sw_device->pages : DYTI_PAGES_4K;
        assert_ok(sw_memory_of(r)->create("rank", memory->pages[r],
                                          &memory->segment[r]));
        if (kind != DYT_RANKS_PROCESSES) {
            sw_memory_map(memory, c, r);
        }
    }
}

static inline void sw_memory_close(struct sw_memory *memory,
                                   uint32_t world_size)
{
    const struct dyti_memory_ops *ops = &dyti_memory_host;

    for (uint32_t r = 0; r < world_size; r++) {
        if (memory->segment_mem[r].base != NULL) {
            sw_memory_of(r)->unmap(&memory->segment_mem[r]);
        }
        sw_memory_of(r)->close(memory->segment[r]);
    }
    ops->unmap(&memory->control_mem);
    ops->close(memory->control);
    assert_string_equal("", sw_device_ended());
}

/* ---- ranks ----------------------------------------------------------------
 */

static inline void sw_rank_close(struct sw_rank *rank)
{
    dyti_world_close(rank->world);
    if (rank->kernels.self != NULL) {
        rank->kernels.ops->close(rank->kernels.self);
    }
    sw_case_fini(&rank->c);
    if (rank->me->kind == DYT_RANKS_PROCESSES &&
        strcmp("", sw_device_ended()) != 0) {
        rank_wrong(rank->me, "%s", sw_device_ended());
    }
}

/* Bytes of the rank's memory, wherever it is. */
static inline bool sw_peek(const struct sw_rank *rank, const void *from,
                           uint64_t bytes, void *out)
{
    if (dyti_kernels_carry(&rank->kernels, out, from, bytes) != DYT_OK) {
        rank_wrong(rank->me, "%s", dyti_error_text());
        return false;
    }
    return true;
}

static inline enum dyt_status sw_rank_open(struct sw_rank *rank,
                                           struct dyt_rank *me, uint64_t seed,
                                           uint32_t world_size,
                                           const struct sw_memory *memory)
{
    struct dyti_kernel_params kernel = {.struct_size = sizeof(kernel),
                                        .device = sw_device_name(me->rank)};
    enum dyt_status st;

    *rank =
        (struct sw_rank){.me = me, .kernels = {.ops = sw_kernels_of(me->rank)}};
    st = sw_case_init_mode(&rank->c, seed, world_size, &memory->options);
    if (st == DYT_OK) {
        st = sw_memory_of(me->rank)->use(sw_device_name(me->rank));
    }
    if (st == DYT_OK) {
        st = rank->kernels.ops->open(&kernel, &rank->kernels.self);
    }
    if (st == DYT_OK) {
        struct dyti_world_params params = {
            .struct_size = sizeof(params),
            .rank = me->rank,
            .world_size = world_size,
            .map = rank->c.map,
            .control_handle = memory->control,
            .control_pages = DYTI_PAGES_4K,
            .segment_handle = memory->segment,
            .segment_pages = memory->pages,
            .memory = memory->ops,
            .group = sw_group,
            .mover = memory->mover != NULL ? memory->mover : &dyti_mover_direct,
            .message = sw_message,
            .message_group = sw_message_group,
            .host = sw_host,
            .wait = &dyti_wait_futex,
            .clock = &dyti_clock_host,
            .kernels = rank->kernels,
            .timeout_ns = memory->timeout_ns,
            .oversubscribed = true,
            .backup_bytes = sw_backup_bytes};

        for (int s = 0; s < DYTI_ARENA_SLOT_COUNT; s++) {
            params.layout[s] = rank->c.layout[s];
        }
        if (sw_is_device(me->rank)) {
            params.device_memory = sw_device->memory;
            params.mover = sw_device->mover;
        }
        if (me->kind != DYT_RANKS_PROCESSES) {
            params.control_mem = &memory->control_mem;
            params.segment_mem = memory->segment_mem;
        }
        st = dyti_world_open(&params, &rank->world);
    }
    return st;
}

/* ---- what every element should hold ----------------------------------------
 */

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
