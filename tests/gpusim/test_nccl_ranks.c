/* Groups of ranks that have a GPU each, as many as there are: a process for
 * every one, and everything that the table offers between them.  With one GPU
 * it is skipped. */
#include "gpusim/nccl_side.h"

#include "comm/nccl/calls.h"

#define SIMULATED 3u
#define MOST      8u /* ranks */
#define FLOATS    (1u << 18)
#define PART      1000u

/* One rank's own: a side with its buffer as [2][FLOATS]. */
struct gpu {
    struct side side;
    float *at;
    float *value; /* [2][FLOATS] here */
};

/* Regions of the groups that are made of the first one. */
static struct group_fixture halves[2];

static void gpu_open(struct dyt_rank *me, const struct group_fixture *fixture,
                     struct gpu *gpu)
{
    struct dyti_group_params params;

    rank_true(me, cudaSetDevice((int)me->rank) == cudaSuccess);
    rank_ok(me, side_make(me, 2 * FLOATS * sizeof(float), &gpu->side));
    gpu->at = (float *)(void *)gpu->side.at;
    gpu->value = calloc(2 * FLOATS, sizeof(*gpu->value));
    rank_true(me, gpu->value != NULL);
    params = side_params(me, fixture, 2 * GROUP_PATIENCE_NS, &gpu->side);
    rank_ok(me, dyti_group_nccl.open(&params, &gpu->side.group));
}

/* Element i of half `half` becomes rank * 1000 + i % 999, on the stream. */
static void put(struct dyt_rank *me, struct gpu *gpu, uint32_t half)
{
    for (uint32_t i = 0; i < FLOATS; i++) {
        gpu->value[half * FLOATS + i] =
            (float)(me->rank * 1000 + (i + half) % 999);
    }
    rank_true(
        me, cudaMemcpyAsync(gpu->at + half * FLOATS, gpu->value + half * FLOATS,
                            FLOATS * sizeof(float), cudaMemcpyHostToDevice,
                            gpu->side.stream) == cudaSuccess);
}

static void get(struct dyt_rank *me, struct gpu *gpu)
{
    rank_true(me, cudaStreamSynchronize(gpu->side.stream) == cudaSuccess);
    rank_true(me, cudaMemcpy(gpu->value, gpu->at, 2 * FLOATS * sizeof(float),
                             cudaMemcpyDeviceToHost) == cudaSuccess);
}

static float value_of(uint32_t rank, uint32_t half, uint32_t i)
{
    return (float)(rank * 1000 + (i + half) % 999);
}

static void collectives(struct dyt_rank *me, struct gpu *gpu)
{
    const struct dyti_group_ops *ops = &dyti_group_nccl;
    uint64_t bytes[MOST], counts[MOST], before = 0;
    float sum;

    for (uint32_t root = 0; root < me->size; root++) {
        put(me, gpu, 0);
        rank_ok(me, ops->broadcast(gpu->side.group, gpu->at,
                                   FLOATS * sizeof(float), root));
        get(me, gpu);
        rank_true(me, gpu->value[0] == value_of(root, 0, 0));
        rank_true(me, gpu->value[FLOATS - 1] == value_of(root, 0, FLOATS - 1));
    }
    put(me, gpu, 0);
    rank_ok(me,
            ops->all_reduce(gpu->side.group, gpu->at, FLOATS, DYTI_SUM_F32));
    get(me, gpu);
    for (uint32_t i = 0; i < FLOATS; i += 1023) {
        sum = 0;
        for (uint32_t r = 0; r < me->size; r++) {
            sum += value_of(r, 0, i);
        }
        rank_true(me, gpu->value[i] == sum);
    }
    for (uint32_t r = 0; r < me->size; r++) { /* of different sizes */
        counts[r] = PART * (r + 1);
        bytes[r] = counts[r] * sizeof(float);
        before += r < me->rank ? counts[r] : 0;
    }
    put(me, gpu, 0);
    put(me, gpu, 1);
    rank_ok(me,
            ops->all_gather(gpu->side.group, gpu->at, gpu->at + FLOATS, bytes));
    get(me, gpu);
    for (uint32_t r = 0, at = FLOATS; r < me->size; r++) {
        rank_true(me, gpu->value[at] == value_of(r, 0, 0));
        at += PART * (r + 1);
        rank_true(me, gpu->value[at - 1] == value_of(r, 0, PART * (r + 1) - 1));
    }
    put(me, gpu, 0);
    rank_ok(me, ops->reduce_scatter(gpu->side.group, gpu->at, gpu->at + FLOATS,
                                    counts, DYTI_SUM_F32));
    get(me, gpu);
    sum = 0;
    for (uint32_t r = 0; r < me->size; r++) {
        sum += value_of(r, 0, (uint32_t)before);
    }
    rank_true(me, gpu->value[FLOATS] == sum);
}

/* To the next, from the last, with a head; the bytes are what the stream has
 * made of them. */
static void messages(struct dyt_rank *me, struct gpu *gpu)
{
    const struct dyti_group_ops *ops = &dyti_group_nccl;
    uint32_t last = (me->rank + me->size - 1) % me->size;
    char head[2][DYTI_P2P_HEAD_BYTES] = {{0}};
    struct dyti_p2p out = {.peer = (me->rank + 1) % me->size,
                           .is_send = true,
                           .buf = gpu->at,
                           .size_bytes = FLOATS * sizeof(float),
                           .head = head[0]};
    struct dyti_p2p in = {.peer = last,
                          .buf = gpu->at + FLOATS,
                          .size_bytes = FLOATS * sizeof(float),
                          .head = head[1]};
    uint64_t sent = 0, got = 0;

    rank_ok(me,
            ops->attach(gpu->side.group, gpu->at, 2 * FLOATS * sizeof(float)));
    for (uint32_t round = 0; round < 5; round++) {
        snprintf(head[0], sizeof(head[0]), "round %u", round);
        put(me, gpu, 1);
        put(me, gpu, 0);
        rank_ok(me, ops->post(gpu->side.group, &in, &got));
        rank_ok(me, ops->post(gpu->side.group, &out, &sent));
        rank_ok(me, poll_until(ops, gpu->side.group, got));
        rank_ok(me, poll_until(ops, gpu->side.group, sent));
        rank_true(me, strcmp(head[0], head[1]) == 0);
        get(me, gpu);
        rank_true(me, gpu->value[FLOATS] == value_of(last, 0, 0));
        rank_true(me,
                  gpu->value[2 * FLOATS - 1] == value_of(last, 0, FLOATS - 1));
    }
    ops->detach(gpu->side.group, gpu->at);
}

/* Of even and of odd ranks. */
static void split(struct dyt_rank *me, const struct gpu *world, struct gpu *gpu)
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
                                       .stream = world->side.stream,
                                       .parent = world->side.group,
                                       .color = half};
    void *part = NULL;

    rank_ok(me, ops->open(&params, &part));
    put(me, gpu, 0);
    rank_ok(me,
            ops->broadcast(part, gpu->at, FLOATS * sizeof(float), size - 1));
    get(me, gpu);
    rank_true(me, gpu->value[7] == value_of(2 * (size - 1) + half, 0, 7));
    ops->close(part);
}

static void check_all(struct dyt_rank *me, const struct group_fixture *fixture)
{
    struct gpu gpu = {.value = NULL};

    gpu_open(me, fixture, &gpu);
    if (me->wrong[0] == '\0') {
        rank_ok(me, dyti_group_nccl.barrier(gpu.side.group));
        collectives(me, &gpu);
    }
    if (me->wrong[0] == '\0') {
        messages(me, &gpu);
    }
    if (me->wrong[0] == '\0') {
        split(me, &gpu, &gpu);
    }
    if (me->wrong[0] == '\0') {
        rank_ok(me, dyti_group_nccl.barrier(gpu.side.group));
    }
    side_close(&gpu.side);
    free(gpu.value);
    rank_true(me, gpusim_leaks() == 0 && gpusim_unexpected() == 0);
}

static uint32_t ranks;

static struct group_fixture fixture_of(uint32_t size)
{
    return side_fixture(dyti_group_nccl.region_bytes(size));
}

static void ranks_have_a_gpu_each(void **state)
{
    struct group_call call = {.fixture = fixture_of(ranks), .check = check_all};

    (void)state;
    halves[0] = fixture_of(ranks);
    halves[1] = fixture_of(ranks);
    dyt_ranks_run(DYT_RANKS_PROCESSES, ranks, group_body, &call);
    side_fixture_fini(&call.fixture);
    side_fixture_fini(&halves[0]);
    side_fixture_fini(&halves[1]);
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
        gpusim_have_devices(SIMULATED);
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
