/* Groups of ranks that have a GPU each, as many as there are: a process for
 * every one, and everything that the table offers between them.  With one GPU
 * it is skipped. */
#include "group_posts.h"

#include "comm/nccl/calls.h"
#include "gpusim/gpusim.h"

#define SIMULATED 3u
#define MOST      8u /* ranks */
#define FLOATS    (1u << 18)
#define PART      1000u

/* One rank's own. */
struct side {
    void *group;
    cudaStream_t stream;
    float *at;    /* [2][FLOATS] of its device */
    float *value; /* [2][FLOATS] here */
};

/* Regions of the groups that are made of the first one. */
static struct group_fixture halves[2];

static void side_open(struct dyt_rank *me, const struct group_fixture *fixture,
                      struct side *side)
{
    struct dyti_group_params params = {.struct_size = sizeof(params),
                                       .name = "gpus",
                                       .rank = me->rank,
                                       .size = me->size,
                                       .shared = fixture->region,
                                       .shared_bytes = fixture->region_bytes,
                                       .abort = fixture->abort,
                                       .timeout_ns = 2 * GROUP_PATIENCE_NS};

    rank_true(me, cudaSetDevice((int)me->rank) == cudaSuccess);
    rank_true(me, cudaStreamCreateWithFlags(
                      &side->stream, cudaStreamNonBlocking) == cudaSuccess);
    rank_true(me, cudaMalloc((void **)&side->at, 2 * FLOATS * sizeof(float)) ==
                      cudaSuccess);
    rank_true(me, cudaMemsetAsync(side->at, 0, 2 * FLOATS * sizeof(float),
                                  side->stream) == cudaSuccess);
    side->value = calloc(2 * FLOATS, sizeof(*side->value));
    rank_true(me, side->value != NULL);
    params.stream = side->stream;
    rank_ok(me, dyti_group_nccl.open(&params, &side->group));
}

static void side_close(struct side *side)
{
    dyti_group_nccl.close(side->group);
    (void)cudaStreamSynchronize(side->stream);
    (void)cudaFree(side->at);
    (void)cudaStreamDestroy(side->stream);
    free(side->value);
}

/* Element i of half `half` becomes rank * 1000 + i % 999, on the stream. */
static void put(struct dyt_rank *me, struct side *side, uint32_t half)
{
    for (uint32_t i = 0; i < FLOATS; i++) {
        side->value[half * FLOATS + i] =
            (float)(me->rank * 1000 + (i + half) % 999);
    }
    rank_true(me, cudaMemcpyAsync(
                      side->at + half * FLOATS, side->value + half * FLOATS,
                      FLOATS * sizeof(float), cudaMemcpyHostToDevice,
                      side->stream) == cudaSuccess);
}

static void get(struct dyt_rank *me, struct side *side)
{
    rank_true(me, cudaStreamSynchronize(side->stream) == cudaSuccess);
    rank_true(me, cudaMemcpy(side->value, side->at, 2 * FLOATS * sizeof(float),
                             cudaMemcpyDeviceToHost) == cudaSuccess);
}

static float value_of(uint32_t rank, uint32_t half, uint32_t i)
{
    return (float)(rank * 1000 + (i + half) % 999);
}

static void collectives(struct dyt_rank *me, struct side *side)
{
    const struct dyti_group_ops *ops = &dyti_group_nccl;
    uint64_t bytes[MOST], counts[MOST], before = 0;
    float sum;

    for (uint32_t root = 0; root < me->size; root++) {
        put(me, side, 0);
        rank_ok(me, ops->broadcast(side->group, side->at,
                                   FLOATS * sizeof(float), root));
        get(me, side);
        rank_true(me, side->value[0] == value_of(root, 0, 0));
        rank_true(me, side->value[FLOATS - 1] == value_of(root, 0, FLOATS - 1));
    }
    put(me, side, 0);
    rank_ok(me, ops->all_reduce(side->group, side->at, FLOATS, DYTI_SUM_F32));
    get(me, side);
    for (uint32_t i = 0; i < FLOATS; i += 1023) {
        sum = 0;
        for (uint32_t r = 0; r < me->size; r++) {
            sum += value_of(r, 0, i);
        }
        rank_true(me, side->value[i] == sum);
    }
    for (uint32_t r = 0; r < me->size; r++) { /* of different sizes */
        counts[r] = PART * (r + 1);
        bytes[r] = counts[r] * sizeof(float);
        before += r < me->rank ? counts[r] : 0;
    }
    put(me, side, 0);
    put(me, side, 1);
    rank_ok(me,
            ops->all_gather(side->group, side->at, side->at + FLOATS, bytes));
    get(me, side);
    for (uint32_t r = 0, at = FLOATS; r < me->size; r++) {
        rank_true(me, side->value[at] == value_of(r, 0, 0));
        at += PART * (r + 1);
        rank_true(me,
                  side->value[at - 1] == value_of(r, 0, PART * (r + 1) - 1));
    }
    put(me, side, 0);
    rank_ok(me, ops->reduce_scatter(side->group, side->at, side->at + FLOATS,
                                    counts, DYTI_SUM_F32));
    get(me, side);
    sum = 0;
    for (uint32_t r = 0; r < me->size; r++) {
        sum += value_of(r, 0, (uint32_t)before);
    }
    rank_true(me, side->value[FLOATS] == sum);
}

/* To the next, from the last, with a head; the bytes are what the stream has
 * made of them. */
static void messages(struct dyt_rank *me, struct side *side)
{
    const struct dyti_group_ops *ops = &dyti_group_nccl;
    uint32_t last = (me->rank + me->size - 1) % me->size;
    char head[2][DYTI_P2P_HEAD_BYTES] = {{0}};
    struct dyti_p2p out = {.peer = (me->rank + 1) % me->size,
                           .is_send = true,
                           .buf = side->at,
                           .size_bytes = FLOATS * sizeof(float),
                           .head = head[0]};
    struct dyti_p2p in = {.peer = last,
                          .buf = side->at + FLOATS,
                          .size_bytes = FLOATS * sizeof(float),
                          .head = head[1]};
    uint64_t sent = 0, got = 0;

    rank_ok(me, ops->attach(side->group, side->at, 2 * FLOATS * sizeof(float)));
    for (uint32_t round = 0; round < 5; round++) {
        snprintf(head[0], sizeof(head[0]), "round %u", round);
        put(me, side, 1);
        put(me, side, 0);
        rank_ok(me, ops->post(side->group, &in, &got));
        rank_ok(me, ops->post(side->group, &out, &sent));
        rank_ok(me, poll_until(ops, side->group, got));
        rank_ok(me, poll_until(ops, side->group, sent));
        rank_true(me, strcmp(head[0], head[1]) == 0);
        get(me, side);
        rank_true(me, side->value[FLOATS] == value_of(last, 0, 0));
        rank_true(me,
                  side->value[2 * FLOATS - 1] == value_of(last, 0, FLOATS - 1));
    }
    ops->detach(side->group, side->at);
}

/* Of even and of odd ranks. */
static void split(struct dyt_rank *me, const struct side *world,
                  struct side *side)
{
    const struct dyti_group_ops *ops = &dyti_group_nccl;
    uint32_t half = me->rank % 2, size = (me->size + 1 - half) / 2;
    struct dyti_group_params params = {.struct_size = sizeof(params),
                                       .name = "half",
                                       .rank = me->rank / 2,
                                       .size = size,
                                       .shared = halves[half].region,
                                       .shared_bytes =
                                           halves[half].region_bytes,
                                       .abort = halves[half].abort,
                                       .timeout_ns = 2 * GROUP_PATIENCE_NS,
                                       .stream = world->stream,
                                       .parent = world->group,
                                       .color = half};
    void *part = NULL;

    rank_ok(me, ops->open(&params, &part));
    put(me, side, 0);
    rank_ok(me,
            ops->broadcast(part, side->at, FLOATS * sizeof(float), size - 1));
    get(me, side);
    rank_true(me, side->value[7] == value_of(2 * (size - 1) + half, 0, 7));
    ops->close(part);
}

static void check_all(struct dyt_rank *me, const struct group_fixture *fixture)
{
    struct side side = {0};

    side_open(me, fixture, &side);
    if (me->wrong[0] == '\0') {
        rank_ok(me, dyti_group_nccl.barrier(side.group));
        collectives(me, &side);
    }
    if (me->wrong[0] == '\0') {
        messages(me, &side);
    }
    if (me->wrong[0] == '\0') {
        split(me, &side, &side);
    }
    if (me->wrong[0] == '\0') {
        rank_ok(me, dyti_group_nccl.barrier(side.group));
    }
    side_close(&side);
    rank_true(me, gpusim_leaks() == 0 && gpusim_unexpected() == 0);
}

static uint32_t ranks;

static struct group_fixture fixture_of(uint32_t size)
{
    uint64_t bytes = dyti_group_nccl.region_bytes(size);
    char *page = dyt_ranks_shared(4096);

    return (struct group_fixture){.ops = &dyti_group_nccl,
                                  .region_bytes = bytes,
                                  .region = dyt_ranks_shared(bytes),
                                  .abort = (void *)page,
                                  .arrived = (void *)(page + 64)};
}

static void fixture_fini(struct group_fixture *f)
{
    munmap(f->region, f->region_bytes);
    munmap((void *)f->abort, 4096);
}

static void ranks_have_a_gpu_each(void **state)
{
    struct group_call call = {.fixture = fixture_of(ranks), .check = check_all};

    (void)state;
    halves[0] = fixture_of(ranks);
    halves[1] = fixture_of(ranks);
    dyt_ranks_run(DYT_RANKS_PROCESSES, ranks, group_body, &call);
    fixture_fini(&call.fixture);
    fixture_fini(&halves[0]);
    fixture_fini(&halves[1]);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(ranks_have_a_gpu_each),
};

/* In a child: this process forks ranks, which start the driver themselves. */
static uint32_t devices(void)
{
    int code = 0;
    pid_t child;

    (void)fflush(NULL);
    child = fork();
    if (child == 0) {
        int count = 0;

        _exit(cudaGetDeviceCount(&count) == cudaSuccess ? count : 0);
    }
    return child > 0 && waitpid(child, &code, 0) == child && WIFEXITED(code)
               ? (uint32_t)WEXITSTATUS(code)
               : 0;
}

int main(void)
{
    static struct dyti_nccl_calls calls;
    struct dyti_group_report report = {0};

    if (gpusim_simulates()) {
        struct gpusim_machine machine;

        gpusim_get_machine(&machine);
        machine.device_count = SIMULATED;
        gpusim_set_machine(&machine);
    }
    ranks = devices();
    ranks = ranks > MOST ? MOST : ranks;
    if (ranks < 2) {
        printf("skipped: NCCL wants a GPU for each rank: of two, there is %u\n",
               ranks);
        return 77;
    }
    if (!dyti_nccl_open(DYTI_NCCL_LIBRARY, &calls, &report)) {
        printf("skipped: NCCL, %s: %s\n", report.state, report.text);
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
