/* Matrix products of the shapes that SmolLM2 and the quickstart's model ask
 * for, ours against oneDNN's and OpenBLAS's own, in alternating order on as
 * many threads.  Decode shapes run over copies of the weights that no cache
 * holds, and are compared with the speed of reading memory as well. */
#include "bench.h"
#include "opponents.h"

#include "base/num.h"
#include "device/host/host.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS       9
#define FLUSH_BYTES  ((size_t)192 << 20) /* more than the caches hold */
#define SLOT_SECONDS 0.01                /* one sample is at least so long */

enum way { NT, NN, TN };

struct shape {
    const char *model;
    enum way way;
    int64_t m, n, k;
    bool cold; /* weights come from memory */
    double goal;
};

static const struct shape shapes[] = {
    {"smollm2 decode", NT, 1, 3072, 576, true, 1.0},
    {"smollm2 decode", NT, 1, 49152, 576, true, 1.0},
    {"smollm2 decode", NT, 4, 3072, 576, true, 1.0},
    {"smollm2 decode", NT, 8, 3072, 576, true, 1.0},
    {"smollm2 decode", NT, 8, 576, 1536, true, 1.0},
    {"smollm2 decode", NT, 32, 3072, 576, true, 1.0},
    {"smollm2 decode", NT, 32, 49152, 576, true, 1.0},
    {"smollm2 train", NT, 1152, 960, 576, false, 1.0},
    {"smollm2 train", NT, 1152, 3072, 576, false, 1.0},
    {"smollm2 train", NT, 1152, 576, 1536, false, 1.0},
    {"smollm2 train", NT, 256, 49152, 576, false, 1.0},
    {"smollm2 train", NN, 1152, 576, 3072, false, 1.0},
    {"smollm2 train", NN, 256, 576, 49152, false, 1.0},
    {"smollm2 train", TN, 3072, 576, 1152, false, 1.0},
    {"smollm2 train", TN, 49152, 576, 256, false, 1.0},
    {"tiny decode", NT, 32, 192, 64, false, 1.0},
    {"tiny decode", NT, 512, 48, 64, false, 1.0},
    {"tiny decode", NT, 512, 80, 64, false, 1.0},
    {"tiny decode", NT, 512, 64, 40, false, 1.0},
    {"tiny decode", NT, 512, 42, 64, false, 1.0},
    {"tiny train", NT, 2304, 192, 64, false, 1.0},
    {"tiny train", NT, 2304, 320, 64, false, 1.0},
    {"tiny train", NT, 2304, 64, 160, false, 1.0},
    {"tiny train", NN, 2304, 64, 320, false, 1.0},
    {"tiny train", TN, 320, 64, 2304, false, 1.0},
    {"tiny train", TN, 64, 64, 2304, false, 1.0},
    {"tiny train", TN, 42, 64, 2304, false, 1.0},
};

struct setup {
    struct bench *bench;
    struct dyti_kernels ours;
    struct opponent opponent[2];
    int opponents, threads;
    float *a, *b, *c; /* large enough for all shapes */
};

/* A dense product of this shape at copy `turn` of the weights. */
static struct dyti_gemm product(const struct setup *s, const struct shape *h,
                                enum dyti_dtype dtype, int64_t turn)
{
    size_t bytes = (size_t)(h->n * h->k) * dyti_dtype_bytes(dtype);
    size_t copies = h->cold ? FLUSH_BYTES / bytes + 1 : 1;

    return (struct dyti_gemm){.m = h->m,
                              .n = h->n,
                              .k = h->k,
                              .a = s->a,
                              .lda = h->way == TN ? h->m : h->k,
                              .b = (const char *)s->b +
                                   (size_t)turn % copies * bytes,
                              .ldb = h->way == NT ? h->k : h->n,
                              .c = s->c,
                              .ldc = h->n,
                              .b_dtype = dtype,
                              .trans_a = h->way == TN,
                              .trans_b = h->way == NT,
                              .accumulate = h->way == TN};
}

/* Seconds of one product; who < 0 is us. */
static double sample(struct setup *s, const struct shape *h, int who,
                     enum dyti_dtype dtype)
{
    double flops = 2.0 * (double)h->m * (double)h->n * (double)h->k;
    int64_t turns = (int64_t)(SLOT_SECONDS * 5e10 / flops) + 1;
    double start = bench_seconds();

    turns = s->bench->quick ? 1 : turns;
    for (int64_t i = 0; i < turns; i++) {
        struct dyti_gemm g = product(s, h, dtype, i);

        if (who < 0 ? s->ours.ops->gemm(s->ours.self, &g) != DYT_OK
                    : !s->opponent[who].run(&g, s->threads)) {
            return 0.0;
        }
    }
    return (bench_seconds() - start) / (double)turns;
}

static void name_case(const struct shape *h, const char *dtype, char *out,
                      size_t size)
{
    static const char *const way[] = {"x W'", "dy W", "dy' x"};

    snprintf(out, size, "%s %s %lldx%lldx%lld %s", h->model, way[h->way],
             (long long)h->m, (long long)h->n, (long long)h->k, dtype);
}

/* Ours in f32 and bf16 weights against each opponent's f32. */
static void measure(struct setup *s, const struct shape *h)
{
    double flops = 2e-9 * (double)h->m * (double)h->n * (double)h->k;
    double time[4][ROUNDS], median[4];
    int rounds = s->bench->quick ? 1 : ROUNDS;
    char name[96];

    for (int r = 0; r < rounds; r++) {
        for (int x = 0; x < 2 + s->opponents; x++) {
            int who = (x + r) % (2 + s->opponents);

            time[who][r] = sample(s, h, who < 2 ? -1 : who - 2,
                                  who == 1 ? DYTI_BF16 : DYTI_F32);
        }
    }
    for (int x = 0; x < 2 + s->opponents; x++) {
        median[x] = bench_median(time[x], (uint32_t)rounds);
    }
    for (int o = 0; o < s->opponents; o++) {
        for (int d = 0; d < 2; d++) {
            name_case(h, d == 0 ? "f32" : "bf16 weights", name, sizeof(name));
            bench_record(s->bench, name, flops / median[d], s->opponent[o].name,
                         flops / median[2 + o], d == 0 ? h->goal : 0.0,
                         "GFLOP/s");
        }
    }
}

/* What a tile of reading does: nothing but loads. */
struct reading {
    const char *p;
    size_t bytes, step;
    uint64_t sum[64];
};

static void read_tile(void *arg, size_t index, uint32_t thread)
{
    struct reading *r = arg;
    const uint64_t *p =
        (const uint64_t *)(const void *)(r->p + index * r->step);
    uint64_t sum[8] = {0};

    for (size_t i = 0; i + 8 <= r->step / 8; i += 8) {
        for (size_t l = 0; l < 8; l++) {
            sum[l] += p[i + l];
        }
    }
    r->sum[thread % 64] +=
        sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

/* Weights of one decoded row against reading as many bytes. */
static void measure_bandwidth(struct setup *s, struct dyti_pool *pool,
                              enum dyti_dtype dtype)
{
    const struct shape h = {"smollm2 decode", NT, 1, 49152, 576, true, 0.0};
    double gb = 1e-9 * 49152 * 576 * dyti_dtype_bytes(dtype);
    double ours[ROUNDS], theirs[ROUNDS];
    int rounds = s->bench->quick ? 1 : ROUNDS;
    char name[96];

    for (int r = 0; r < rounds; r++) {
        struct reading reading = {.p = (const char *)s->b,
                                  .step = (size_t)1 << 20};
        struct dyti_gemm g = product(s, &h, dtype, r);
        double start = bench_seconds();

        dyti_pool_run(pool, FLUSH_BYTES >> 20, read_tile, &reading);
        theirs[r] = (double)FLUSH_BYTES * 1e-9 / (bench_seconds() - start);
        start = bench_seconds();
        s->ours.ops->gemm(s->ours.self, &g);
        ours[r] = gb / (bench_seconds() - start);
    }
    name_case(&h,
              dtype == DYTI_F32 ? "f32, weights read"
                                : "bf16 weights, weights read",
              name, sizeof(name));
    bench_record(s->bench, name, bench_median(ours, (uint32_t)rounds),
                 "reading memory", bench_median(theirs, (uint32_t)rounds), 0.8,
                 "GB/s");
}

/* Arrays for the largest shape, filled with numbers around 1. */
static bool fill(struct setup *s)
{
    size_t most[3] = {0, FLUSH_BYTES * 2, 0}; /* of a, b, c in bytes */
    float **array[3] = {&s->a, &s->b, &s->c};

    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        size_t a = (size_t)(shapes[i].m * shapes[i].k) * sizeof(float);
        size_t c = (size_t)(shapes[i].m * shapes[i].n) * sizeof(float);

        most[0] = a > most[0] ? a : most[0];
        most[2] = c > most[2] ? c : most[2];
    }
    for (int x = 0; x < 3; x++) {
        uint16_t *half = aligned_alloc(4096, (most[x] + 8191) / 4096 * 4096);

        if (half == NULL) {
            return false;
        }
        *array[x] = (float *)(void *)half;
        for (size_t i = 0; i < most[x] / 2; i++) { /* both as f32 and bf16 */
            half[i] = dyti_f32_to_bf16(0.5f + (float)(i * 40503u % 512) / 512);
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    struct bench bench;
    struct setup s = {.bench = &bench,
                      .threads = (int)sysconf(_SC_NPROCESSORS_ONLN)};
    struct dyti_pool *pool = NULL;
    struct dyti_kernel_params params = {.struct_size = sizeof(params)};

    if (!bench_open(&bench, "gemm", argc, argv)) {
        return bench.exit_code;
    }
    if (!fill(&s) || dyti_pool_create((uint32_t)s.threads, &pool) != DYT_OK) {
        fprintf(stderr, "gemm: no memory\n");
        return 1;
    }
    params.pool = pool;
    s.ours.ops = &dyti_kernels_host;
    if (s.ours.ops->open(&params, &s.ours.self) != DYT_OK) {
        fprintf(stderr, "gemm: %s\n", dyt_error_text());
        return 1;
    }
    s.opponents = opponents_find(s.opponent);
    printf("%s, %d threads\n", s.ours.ops->isa(s.ours.self), s.threads);
    measure_bandwidth(&s, pool, DYTI_F32);
    measure_bandwidth(&s, pool, DYTI_BF16);
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        measure(&s, &shapes[i]);
    }
    s.ours.ops->close(s.ours.self);
    dyti_pool_destroy(pool);
    free(s.a);
    free(s.b);
    free(s.c);
    return bench_close(&bench);
}
