/* Processes hand memory of frameworks round: loans by their group, descriptors
 * by lib/link_lend.h, bytes by nobody.  On one device; on two that are
 * simulated; or, with DYT_GPU_ALL, on all that there are, if they reach each
 * other. */
#include "lend_case.h"

#include "rank_group.h"

#include "lib/link_lend.h"

#define RANKS       3u
#define LOANS       3u
#define COUNT       19u /* pieces: more than a message holds */
#define SPOT        (uint64_t)4096
#define PATIENCE_NS 30000000000

struct scene {
    void *region;
    struct dyti_abort_word *abort;
    uint32_t devices; /* rank r works for r % devices */
};

/* Many pieces, one, and an allocation. */
struct own {
    struct foreign f[LOANS];
    struct dyti_memory_loan loan[LOANS];
};

/* One range of the memory that is looked at: a spot in each piece. */
static uint64_t spot_of(uint32_t i)
{
    return (uint64_t)i * 2 * MIB + MIB;
}

static uint32_t value_of(uint32_t rank, uint32_t loan, uint32_t spot)
{
    return rank * 1000000 + loan * 100000 + spot * 2000;
}

static uint32_t spots_of(uint32_t loan)
{
    return loan == 0 ? COUNT : 1;
}

static void make_own(struct dyt_rank *me, struct own *own, int device)
{
    uint64_t piece[COUNT];

    for (uint32_t i = 0; i < COUNT; i++) {
        piece[i] = 2 * MIB;
    }
    own->f[0] = foreign_mapped(device, piece, COUNT, ~0u);
    own->f[1] = foreign_mapped(device, piece, 1, 1);
    own->f[2] = foreign_allocated(2 * MIB);
    for (uint32_t l = 0; l < LOANS; l++) {
        for (uint32_t i = 0; i < spots_of(l); i++) {
            rank_true(me, words_put(foreign_at(&own->f[l], spot_of(i)), SPOT,
                                    value_of(me->rank, l, i)));
        }
        /* From the first spot to the end of the last. */
        rank_ok(me, ops->lend(foreign_at(&own->f[l], MIB),
                              spot_of(spots_of(l) - 1) + SPOT - MIB,
                              &own->loan[l]));
    }
    rank_true(me, own->loan[0].piece_count == COUNT);
    rank_true(me, own->loan[2].way == DYTI_MEMORY_WAY_IPC);
}

static bool spots_are(const struct dyti_memory_borrowed *b, uint32_t rank,
                      uint32_t loan)
{
    bool good = b->wanted == 0;

    for (uint32_t i = 0; i < spots_of(loan) && good; i++) {
        good = words_are((char *)b->ptr + spot_of(i) - MIB, SPOT,
                         value_of(rank, loan, i), 0);
    }
    return good;
}

static void borrow_all(struct dyt_rank *me, struct dyti_group *all,
                       struct own *own, struct dyti_memory_borrowed *b,
                       const struct scene *s)
{
    struct dyti_memory_loan loan[RANKS * LOANS];
    struct dyti_lend_want want[RANKS * LOANS];
    uint64_t bytes[RANKS];
    struct dyti_lend_params p = {.struct_size = sizeof(p),
                                 .memory = ops,
                                 .all = all,
                                 .abort = s->abort,
                                 .timeout_ns = PATIENCE_NS,
                                 .loan = own->loan,
                                 .loan_count = LOANS,
                                 .want = want,
                                 .want_count = RANKS * LOANS};
    enum dyt_status met = DYT_OK;

    for (uint32_t r = 0; r < RANKS; r++) {
        bytes[r] = sizeof(own->loan);
    }
    rank_ok(me, all->ops->all_gather(all->self, own->loan, loan, bytes));
    for (uint32_t i = 0; i < RANKS * LOANS; i++) {
        rank_ok(me, ops->borrow(&loan[i], &b[i]));
        rank_true(me, (b[i].wanted == 0) ==
                          (i / LOANS == me->rank || i % LOANS == 2));
        want[i] = (struct dyti_lend_want){i / LOANS, &loan[i], &b[i]};
    }
    rank_ok(me, dyti_lend_pieces(&p, &met));
    rank_ok(me, met);
}

static void work(struct dyt_rank *me, struct dyti_group *all)
{
    const struct scene *s = me->arg;
    int device = (int)(me->rank % s->devices);
    struct dyti_memory_borrowed b[RANKS * LOANS] = {{0}};
    struct own own = {0};
    char *word;

    make_own(me, &own, device);
    rank_true(me, me->wrong[0] == '\0');
    borrow_all(me, all, &own, b, s);
    for (uint32_t i = 0; i < RANKS * LOANS && me->wrong[0] == '\0'; i++) {
        rank_true(me, spots_are(&b[i], i / LOANS, i % LOANS));
    }
    rank_ok(me, all->ops->barrier(all->self));
    /* A kernel of this device writes the next one's last piece. */
    word = (char *)b[(me->rank + 1) % RANKS * LOANS].ptr + spot_of(COUNT - 1) -
           MIB;
    rank_true(me, words_grow(word, SPOT));
    rank_ok(me, all->ops->barrier(all->self));
    word = foreign_at(&own.f[0], spot_of(COUNT - 1));
    rank_true(me, words_are(word, SPOT, value_of(me->rank, 0, COUNT - 1), 1));
    for (uint32_t i = 0; i < RANKS * LOANS; i++) {
        ops->give_back(&b[i]);
    }
    rank_ok(me, all->ops->barrier(all->self)); /* before it is freed */
    for (uint32_t l = 0; l < LOANS; l++) {
        foreign_free(&own.f[l]);
    }
    rank_true(me, gpusim_leaks() == 0 && gpusim_unexpected() == 0);
}

static void use_one(struct dyt_rank *me, uint32_t ordinal)
{
    const struct scene *s = me->arg;
    const struct dyti_cuda_calls *calls = NULL;
    char name[DYTI_CUDA_UUID];
    CUdevice device = 0;
    CUuuid uuid;

    if (gpusim_simulates()) {
        gpusim_have_devices((int)s->devices);
    }
    rank_ok(me, dyti_cuda_calls(&calls));
    rank_true(me, calls->cuDeviceGet(&device, (int)ordinal) == CUDA_SUCCESS &&
                      calls->cuDeviceGetUuid_v2(&uuid, device) == CUDA_SUCCESS);
    dyti_cuda_uuid_text(&uuid, name);
    rank_ok(me, ops->use(name));
}

static void body(struct dyt_rank *me)
{
    const struct scene *s = me->arg;
    struct dyti_group all;

    use_one(me, me->rank % s->devices);
    rank_true(me, me->wrong[0] == '\0');
    rank_ok(me, rank_group_open(me, s->region, s->abort, PATIENCE_NS, &all));
    work(me, &all);
    if (me->wrong[0] != '\0') { /* the others need not wait */
        atomic_store(&s->abort->value,
                     dyti_abort_pack(me->rank, DYT_ERR_VERIFY));
    }
    dyti_group_shm.close(all.self);
}

static uint32_t devices; /* that take part */

static void memory_goes_round(void **state)
{
    struct scene s = {.region =
                          dyt_ranks_shared(dyti_group_shm.region_bytes(RANKS)),
                      .abort = dyt_ranks_shared(sizeof(*s.abort)),
                      .devices = devices};

    (void)state;
    dyt_ranks_run(DYT_RANKS_PROCESSES, RANKS, body, &s);
    munmap(s.region, dyti_group_shm.region_bytes(RANKS));
    munmap(s.abort, sizeof(*s.abort));
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(memory_goes_round)};

#ifdef DYT_GPU_ALL
/* How many there are, 0 if one of the first RANKS does not reach another.  In a
 * child: this process forks ranks, which start the driver themselves. */
static uint32_t devices_that_reach(void)
{
    int code = 0;
    pid_t child;

    (void)fflush(NULL);
    child = fork();
    if (child == 0) {
        int count = 0, can = 1;

        if (cudaGetDeviceCount(&count) != cudaSuccess) {
            _exit(0);
        }
        count = count < (int)RANKS ? count : (int)RANKS;
        for (int a = 0; a < count; a++) {
            for (int b = 0; b < count && can; b++) {
                if (a != b &&
                    cudaDeviceCanAccessPeer(&can, a, b) != cudaSuccess) {
                    can = 0;
                }
            }
        }
        _exit(can ? count : 0);
    }
    return child > 0 && waitpid(child, &code, 0) == child && WIFEXITED(code)
               ? (uint32_t)WEXITSTATUS(code)
               : 0;
}
#endif

int main(void)
{
    devices = gpusim_simulates() ? 2 : 1;
#ifdef DYT_GPU_ALL
    devices = devices_that_reach();
    if (devices < 2) {
        printf("skipped: memory across GPUs wants two that reach each other\n");
        return 77;
    }
#endif
    return dyt_test_verdict(
        cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL));
}
