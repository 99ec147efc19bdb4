/* Attention, norms, losses and the optimizer on shapes of SmolLM2 and of the
 * quickstart's model: ours in their own unit, beside the reference (what plain
 * C costs); copies and hashes beside memcpy and reading. */
#include "kernels_bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLOT_SECONDS 0.01

typedef void (*call_fn)(struct kernels_bench *k, struct dyti_kernels with);

/* Microseconds of one call. */
static double sample(struct kernels_bench *k, struct dyti_kernels with,
                     call_fn call)
{
    double start = bench_seconds(), spent = 0.0;
    int calls = 0;

    do {
        call(k, with);
        calls++;
        spent = bench_seconds() - start;
    } while (spent < SLOT_SECONDS && !k->bench->quick);
    return spent / calls * 1e6;
}

/* The reference is slow: it runs once. */
static void compare(struct kernels_bench *k, const char *name, call_fn call,
                    bool with_reference)
{
    double ours[KERNELS_ROUNDS], theirs = 0.0;

    for (int r = 0; r < k->rounds; r++) {
        ours[r] = sample(k, k->host, call);
    }
    if (with_reference) {
        double start = bench_seconds();

        call(k, k->reference);
        theirs = (bench_seconds() - start) * 1e6;
    }
    bench_record(k->bench, name, bench_median(ours, (uint32_t)k->rounds),
                 with_reference ? "reference" : NULL, theirs, 0.0, "us");
}

/* ---- attention ---- */

#define LONG_SEQUENCES  8
#define LONG_ROWS       144
#define SHORT_SEQUENCES 512
#define SHORT_ROWS      9

static const struct dyti_heads smol_heads = {9, 3, 0, 0, 3, 64};
static const struct dyti_heads tiny_heads = {4, 4, 0, 0, 1, 16};

static int32_t *even_rows(int32_t sequences, int32_t rows)
{
    static int32_t first[SHORT_SEQUENCES + 1];

    for (int32_t s = 0; s <= sequences; s++) {
        first[s] = s * rows;
    }
    return first;
}

static void attend(struct kernels_bench *k, struct dyti_kernels with,
                   const struct dyti_heads *heads, int32_t sequences,
                   int32_t rows, bool back)
{
    struct dyti_packed packed = {sequences, sequences * rows,
                                 even_rows(sequences, rows), NULL};
    int64_t ld = (heads->q + 2 * heads->kv) * heads->head_dim;
    int64_t wide = packed.row_count * heads->q * heads->head_dim;
    float scale = 1.0f / sqrtf((float)heads->head_dim);
    float *lse = k->y + wide, *dqkv = k->z;

    if (!back) {
        with.ops->attention(with.self, k->x, ld, heads, &packed, scale, k->y,
                            lse);
    } else { /* y holds what the forward call left */
        with.ops->attention_back(with.self, k->x, k->x, ld, heads, &packed,
                                 scale, k->y, lse, dqkv);
    }
}

static void smol_attention(struct kernels_bench *k, struct dyti_kernels with)
{
    attend(k, with, &smol_heads, LONG_SEQUENCES, LONG_ROWS, false);
}

static void smol_attention_back(struct kernels_bench *k,
                                struct dyti_kernels with)
{
    attend(k, with, &smol_heads, LONG_SEQUENCES, LONG_ROWS, true);
}

static void tiny_attention(struct kernels_bench *k, struct dyti_kernels with)
{
    attend(k, with, &tiny_heads, SHORT_SEQUENCES, SHORT_ROWS, false);
}

static void tiny_attention_back(struct kernels_bench *k,
                                struct dyti_kernels with)
{
    attend(k, with, &tiny_heads, SHORT_SEQUENCES, SHORT_ROWS, true);
}

/* 32 sequences decode one token each, with 128 positions behind them. */
static void smol_decode(struct kernels_bench *k, struct dyti_kernels with)
{
    static int32_t row_first[33], context[32], table_first[32], table[32 * 8];
    struct dyti_paged_batch batch = {32,      32,          row_first,
                                     context, table_first, table};
    struct dyti_kv_layer cache = {k->y, k->z, DYTI_F32, 16};

    for (int32_t s = 0; s < 32; s++) {
        row_first[s + 1] = s + 1;
        context[s] = 128;
        table_first[s] = 8 * s;
        for (int32_t b = 0; b < 8; b++) {
            table[8 * s + b] = 8 * s + b;
        }
    }
    with.ops->attention_paged(with.self, k->x, 15 * 64, &smol_heads, &cache,
                              &batch, 0.125f, k->x + 32 * 15 * 64);
}

/* ---- the rest ---- */

static void norm(struct kernels_bench *k, struct dyti_kernels with)
{
    with.ops->rmsnorm(with.self, k->x, k->z, DYTI_F32, 1e-5f, 1152, 576, k->y,
                      NULL);
}

static void norm_back(struct kernels_bench *k, struct dyti_kernels with)
{
    static float inv[1152];

    for (int i = 0; i < 1152; i++) {
        inv[i] = 1.0f;
    }
    with.ops->rmsnorm_back(with.self, k->x, k->x, k->z, DYTI_F32, inv, 1152,
                           576, k->y, false, k->z + 4096);
}

static void swiglu(struct kernels_bench *k, struct dyti_kernels with)
{
    with.ops->swiglu(with.self, k->x, 1152, 1536, k->y);
}

static void swiglu_back(struct kernels_bench *k, struct dyti_kernels with)
{
    with.ops->swiglu_back(with.self, k->x, k->x, 1152, 1536, k->y);
}

#define LOGIT_ROWS 64
#define LOGITS     49152

static void softmax(struct kernels_bench *k, struct dyti_kernels with)
{
    static float stat[4][LOGIT_ROWS];
    static int32_t target[LOGIT_ROWS];

    with.ops->row_max(with.self, k->x, LOGITS, LOGIT_ROWS, LOGITS, 1.0f,
                      stat[0]);
    with.ops->row_sums(with.self, k->x, LOGITS, LOGIT_ROWS, LOGITS, 1.0f,
                       stat[0], target, 0, stat[1], stat[2], stat[3]);
}

static void softmax_back(struct kernels_bench *k, struct dyti_kernels with)
{
    static float lse[LOGIT_ROWS], entropy[LOGIT_ROWS], dl[LOGIT_ROWS],
        dh[LOGIT_ROWS];
    static int32_t target[LOGIT_ROWS];

    for (int i = 0; i < LOGIT_ROWS; i++) {
        lse[i] = 11.0f;
        dl[i] = 0.01f;
    }
    with.ops->xent_back(with.self, k->y, LOGITS, LOGIT_ROWS, LOGITS, 1.0f, lse,
                        entropy, target, 0, dl, dh);
}

static void adamw(struct kernels_bench *k, struct dyti_kernels with)
{
    static const struct dyti_adamw how = {.lr = 1e-5f,
                                          .beta1 = 0.9f,
                                          .beta2 = 0.95f,
                                          .eps = 1e-8f,
                                          .bias1 = 0.5f,
                                          .bias2 = 0.5f,
                                          .grad_scale = 1.0f};
    int64_t count = (int64_t)KERNELS_FLOATS / 4;

    with.ops->adamw(with.self, &how, count, k->x, k->y, k->z, k->z + count,
                    k->y + count, DYTI_BF16);
}

static void bench_arithmetic(struct kernels_bench *k)
{
    compare(k, "attention smollm2 8 x 144", smol_attention, true);
    compare(k, "attention back smollm2 8 x 144", smol_attention_back, true);
    compare(k, "attention tiny 512 x 9", tiny_attention, true);
    compare(k, "attention back tiny 512 x 9", tiny_attention_back, true);
    compare(k, "attention paged 32 x 128", smol_decode, true);
    compare(k, "rmsnorm 1152 x 576", norm, true);
    compare(k, "rmsnorm back 1152 x 576", norm_back, true);
    compare(k, "swiglu 1152 x 1536", swiglu, true);
    compare(k, "swiglu back 1152 x 1536", swiglu_back, true);
    compare(k, "softmax 64 x 49152", softmax, true);
    compare(k, "softmax back 64 x 49152", softmax_back, true);
    compare(k, "adamw 16.8 million", adamw, true);
}

static bool make_arrays(struct kernels_bench *k)
{
    float **array[3] = {&k->x, &k->y, &k->z};

    for (int a = 0; a < 3; a++) {
        float *p = aligned_alloc(4096, KERNELS_FLOATS * sizeof(float));

        if (p == NULL) {
            return false;
        }
        for (size_t i = 0; i < KERNELS_FLOATS; i++) {
            p[i] = (float)(i * 40503u % 1024) / 1024.0f;
        }
        *array[a] = p;
    }
    return true;
}

int main(int argc, char **argv)
{
    struct bench bench;
    struct kernels_bench k = {.bench = &bench, .rounds = KERNELS_ROUNDS};
    struct dyti_kernel_params params = {.struct_size = sizeof(params)};
    uint32_t threads = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);

    if (!bench_open(&bench, "kernels", argc, argv)) {
        return bench.exit_code;
    }
    k.rounds = bench.quick ? 1 : KERNELS_ROUNDS;
    k.host.ops = &dyti_kernels_host;
    k.reference.ops = &dyti_kernels_reference;
    if (!make_arrays(&k) || dyti_pool_create(threads, &k.pool) != DYT_OK ||
        k.reference.ops->open(&params, &k.reference.self) != DYT_OK) {
        fprintf(stderr, "kernels: no memory\n");
        return 1;
    }
    params.pool = k.pool;
    if (k.host.ops->open(&params, &k.host.self) != DYT_OK) {
        fprintf(stderr, "kernels: %s\n", dyt_error_text());
        return 1;
    }
    printf("%s, %u threads\n", k.host.ops->isa(k.host.self), threads);
    bench_arithmetic(&k);
    bench_memory(&k);
    k.host.ops->close(k.host.self);
    k.reference.ops->close(k.reference.self);
    dyti_pool_destroy(k.pool);
    free(k.x);
    free(k.y);
    free(k.z);
    return bench_close(&bench);
}
