/* The memory of a drawn case, of the host or of devices, and ranks that open
 * the world over it. */
#ifndef DYT_SWITCH_RANKS_H
#define DYT_SWITCH_RANKS_H

#include "dyt_ranks.h"
#include "switch_case.h"

#include "comm/shm/shm.h"
#include "device/host/clock.h"
#include "device/host/host.h"
#include "device/host/memory.h"
#include "edm/world.h"
#include "mover/direct/direct.h"
#include "switch_device.h"

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

#endif /* DYT_SWITCH_RANKS_H */
