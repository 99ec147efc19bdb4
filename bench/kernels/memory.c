/* Copies against memcpy of the same bytes on as many threads; the content hash
 * against reading them. */
#include "kernels_bench.h"

#include <string.h>

#define BYTES (KERNELS_FLOATS * sizeof(float))
#define PIECE ((size_t)1 << 20)

struct job {
    const char *src;
    char *dst;
    uint64_t sum[64];
};

static void memcpy_tile(void *arg, size_t index, uint32_t thread)
{
    struct job *j = arg;

    (void)thread;
    memcpy(j->dst + index * PIECE, j->src + index * PIECE, PIECE);
}

static void read_tile(void *arg, size_t index, uint32_t thread)
{
    struct job *j = arg;
    const uint64_t *p =
        (const uint64_t *)(const void *)(j->src + index * PIECE);
    uint64_t sum[8] = {0};

    for (size_t i = 0; i + 8 <= PIECE / 8; i += 8) {
        for (size_t l = 0; l < 8; l++) {
            sum[l] += p[i + l];
        }
    }
    j->sum[thread % 64] +=
        sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

static double run_tiles(struct kernels_bench *k, dyti_tile_fn fn)
{
    struct job job = {.src = (const char *)k->x, .dst = (char *)k->y};
    double start = bench_seconds();

    dyti_pool_run(k->pool, BYTES / PIECE, fn, &job);
    return bench_seconds() - start;
}

/* `rows` rows of `bytes`, out of a matrix `apart` bytes wide, made dense. */
static void bench_copy(struct kernels_bench *k, const char *name, int64_t bytes,
                       int64_t apart, enum dyti_dtype to, double goal)
{
    int64_t rows = (int64_t)BYTES / apart;
    int64_t width = to == DYTI_F32 ? 4 : 2;
    struct dyti_copy c = {.src = k->x,
                          .dst = k->y,
                          .size = {1, 1, rows, bytes / 4},
                          .src_stride = {0, 0, apart, 4},
                          .dst_stride = {0, 0, bytes / 4 * width, width},
                          .src_dtype = DYTI_F32,
                          .dst_dtype = (uint8_t)to};
    double ours[KERNELS_ROUNDS], theirs[KERNELS_ROUNDS];
    double moved = (double)rows * (double)(bytes + bytes / 4 * width) / 2e9;

    for (int r = 0; r < k->rounds; r++) {
        double start;

        theirs[r] = BYTES / 1e9 / run_tiles(k, memcpy_tile);
        start = bench_seconds();
        k->host.ops->copy(k->host.self, &c, 1);
        ours[r] = moved / (bench_seconds() - start);
    }
    bench_record(k->bench, name, bench_median(ours, (uint32_t)k->rounds),
                 "memcpy", bench_median(theirs, (uint32_t)k->rounds), goal,
                 "GB/s");
}

static void bench_hash(struct kernels_bench *k, const char *name,
                       enum dyti_dtype dtype)
{
    int64_t width = dyti_dtype_bytes(dtype);
    struct dyti_hash_box b = {.data = k->x,
                              .size = {1, 1, 1, (int64_t)BYTES / width},
                              .stride = {0, 0, 0, width},
                              .index_stride = {0, 0, 0, 1},
                              .salt = 3,
                              .dtype = (uint8_t)dtype};
    double ours[KERNELS_ROUNDS], theirs[KERNELS_ROUNDS];
    uint64_t hash = 0;

    for (int r = 0; r < k->rounds; r++) {
        double start;

        theirs[r] = BYTES / 1e9 / run_tiles(k, read_tile);
        start = bench_seconds();
        k->host.ops->hash(k->host.self, &b, 1, &hash);
        ours[r] = BYTES / 1e9 / (bench_seconds() - start);
    }
    bench_record(k->bench, name, bench_median(ours, (uint32_t)k->rounds),
                 "reading memory", bench_median(theirs, (uint32_t)k->rounds),
                 0.0, "GB/s");
}

void bench_memory(struct kernels_bench *k)
{
    int64_t all = (int64_t)BYTES;

    bench_copy(k, "copy 256 MiB, dense", all, all, DYTI_F32, 1.0);
    bench_copy(k, "copy rows of 16 KiB", 16384, 32768, DYTI_F32, 0.0);
    bench_copy(k, "copy rows of 2304 B", 2304, 4608, DYTI_F32, 0.0);
    bench_copy(k, "copy rows of 256 B", 256, 768, DYTI_F32, 0.0);
    bench_copy(k, "copy 256 MiB, f32 to bf16", all, all, DYTI_BF16, 0.0);
    bench_hash(k, "hash f32", DYTI_F32);
    bench_hash(k, "hash bf16", DYTI_BF16);
}
