/* Ranks on several devices in one world: who maps whose memory is what the
 * devices allow, agreed on by all ranks; what is mapped goes by the direct
 * mover, the rest by messages of the host's group or of NCCL, and every byte
 * arrives. */
#include "switch_scene.h"

#include "device/cuda/context.h"
#include "mover/message/message.h"
#ifdef DYT_TEST_NCCL
#include "comm/nccl/nccl.h"
#include "gpusim/gpusim_nccl.h"
#endif

#include <cuda_runtime_api.h>

#define DEVICES_MAX 4u
#define TRIPS       2u

struct scene {
    uint64_t seed;
    uint32_t world_size;
    const struct sw_memory *memory;
    struct gpusim_machine machine;
    uint32_t device[SW_RANKS_MAX]; /* of each rank */
    char name[SW_RANKS_MAX][DYTI_CUDA_UUID];
    _Atomic uint32_t *mapped; /* [world size] of each rank: whom it maps */
};

/* ---- who may map whom: slowly -------------------------------------------- */

static bool reaches(const struct scene *s, uint32_t a, uint32_t b)
{
    return s->device[a] == s->device[b] ||
           (s->machine.refuses[s->device[a]] >> s->device[b] & 1u) == 0;
}

/* Each rank joins the first set whose ranks all reach it, and it them. */
static void expected_sets(const struct scene *s, uint32_t set[SW_RANKS_MAX])
{
    for (uint32_t r = 0; r < s->world_size; r++) {
        for (set[r] = 0; set[r] < r; set[r]++) {
            bool fits = true;

            for (uint32_t m = 0; m < r; m++) {
                fits = fits && (set[m] != set[r] ||
                                (reaches(s, m, r) && reaches(s, r, m)));
            }
            if (fits && set[set[r]] == set[r]) {
                break;
            }
        }
    }
}

/* ---- the ranks ----------------------------------------------------------- */

static void look_who_is_mapped(struct sw_rank *rank, const struct scene *s)
{
    uint32_t mapped = 0, set[SW_RANKS_MAX];
    struct dyt_rank *me = rank->me;

    expected_sets(s, set);
    for (uint32_t r = 0; r < s->world_size; r++) {
        bool seen = false, has = false;

        for (int slot = 0; slot < DYTI_ARENA_SLOT_COUNT; slot++) {
            for (int k = 0; k < DYTI_KIND_COUNT; k++) {
                has = has || rank->c.map[r].bytes[slot][k] > 0;
                seen = seen || dyti_world_region(rank->world, r,
                                                 (enum dyti_arena_slot)slot,
                                                 (enum dyti_kind)k) != NULL;
            }
        }
        mapped |= (uint32_t)seen << r;
        rank_true(me, seen == (has && set[r] == set[me->rank]));
    }
    atomic_store(&s->mapped[me->rank], mapped);
}

static void trips(struct sw_rank *rank, const struct scene *s)
{
    const struct dyti_world_switch_options options = {
        .mover = DYTI_WORLD_AUTO,
        .side = s->seed % 2 == 0 ? DYTI_SIDE_PULL : DYTI_SIDE_PUSH,
        .message_bytes = 4096};

    for (uint64_t n = 0; n < TRIPS && rank->me->wrong[0] == '\0'; n++) {
        sw_there_and_back(rank, n, &options, sw_verify(n));
    }
}

static void scene_rank(struct dyt_rank *me)
{
    const struct scene *s = me->arg;
    struct sw_rank rank;
    int device = -1;

    if (sw_enter(&rank, me, s->seed, s->world_size, s->memory)) {
        if (cudaGetDevice(&device) != cudaSuccess ||
            (uint32_t)device != s->device[me->rank]) {
            rank_wrong(me, "on device %d", device);
        } else {
            look_who_is_mapped(&rank, s);
        }
        trips(&rank, s);
    }
    sw_rank_close(&rank);
}

/* ---- scenes -------------------------------------------------------------- */

enum reach { ALL, NONE, SOME };

static void draw(struct scene *s, enum reach reach)
{
    uint32_t devices = 2 + sw_draw(s->seed, 81, DEVICES_MAX - 1);

    gpusim_get_machine(&s->machine);
    s->machine.device_count = (int)devices;
    for (uint32_t d = 0; d < devices; d++) {
        uint32_t others = ((1u << devices) - 1) & ~(1u << d);

        s->machine.refuses[d] =
            reach == ALL    ? 0
            : reach == NONE ? others
                            : others & sw_draw(s->seed, 82 + d, 1u << 4);
    }
    gpusim_set_machine(&s->machine);
    for (uint32_t r = 0; r < s->world_size; r++) {
        CUuuid uuid;

        s->device[r] = r < devices ? r : sw_draw(s->seed, 90 + r, devices);
        assert_int_equal(CUDA_SUCCESS,
                         cuDeviceGetUuid_v2(&uuid, (CUdevice)s->device[r]));
        dyti_cuda_uuid_text(&uuid, s->name[r]);
    }
}

static void check_agreement(const struct scene *s)
{
    for (uint32_t a = 0; a < s->world_size; a++) {
        for (uint32_t b = 0; b < s->world_size; b++) {
            bool ab = (atomic_load(&s->mapped[a]) >> b & 1u) != 0;
            bool ba = (atomic_load(&s->mapped[b]) >> a & 1u) != 0;
            bool has_a = (atomic_load(&s->mapped[a]) >> a & 1u) != 0;
            bool has_b = (atomic_load(&s->mapped[b]) >> b & 1u) != 0;

            assert_true(!has_a || !has_b || ab == ba);
        }
    }
}

static void play(uint64_t seed, enum reach reach)
{
    static const char *const word[] = {"all", "none", "some"};
    struct scene s = {.seed = seed, .world_size = 2 + sw_draw(seed, 80, 3)};
    const char *name[SW_RANKS_MAX];
    const struct sw_stage stage = {
        .kind = DYT_RANKS_PROCESSES, .seed = seed, .world_size = s.world_size};
    struct sw_device device = cuda_world;

    gpusim_reset();
    draw(&s, reach);
    for (uint32_t r = 0; r < s.world_size; r++) {
        name[r] = s.name[r];
    }
    device.name = name;
    sw_device = &device;
    sw_message = &dyti_mover_message;
    print_message("seed %" PRIu64 ": %u ranks on %d devices, %s reach\n", seed,
                  s.world_size, s.machine.device_count, word[reach]);
    s.mapped = dyt_ranks_shared(4096);
    sw_play(&stage, scene_rank, &s, &s.memory);
    check_agreement(&s);
    munmap((void *)s.mapped, 4096);
    sw_device = &cuda_world;
    sw_message = NULL;
}

static void by_direct_and_messages_of_the_host(void **state)
{
    uint64_t rounds = dyt_test_rounds(3, 60);

    (void)state;
    for (uint64_t seed = 1; seed <= rounds; seed++) {
        play(seed, (enum reach)(seed % 3));
    }
}

#ifdef DYT_TEST_NCCL
static void by_direct_and_nccl(void **state)
{
    uint64_t rounds = dyt_test_rounds(2, 60);

    (void)state;
    sw_message_group = &dyti_group_nccl;
    for (uint64_t seed = 101; seed <= 100 + rounds; seed++) {
        play(seed, seed % 2 == 0 ? SOME : NONE);
    }
    sw_message_group = NULL;
}
#endif

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(by_direct_and_messages_of_the_host),
#ifdef DYT_TEST_NCCL
    cmocka_unit_test(by_direct_and_nccl),
#endif
};
DYT_TEST_MAIN(tests)
