/* Attention: sequences x heads, in tiles of about equal work. */
#include "device/host/kernels.h"

#include <string.h>

#define TILE_PAIRS 2048 /* query-key pairs that are worth a tile */
#define TILES_MIN  4

struct job {
    struct host *host;
    const struct dyti_heads *heads;
    const float *qkv;
    int64_t ld;
    float scale;
    const struct dyti_packed *packed;
    const struct dyti_kv_layer *cache;
    const struct dyti_paged_batch *batch;
    float *out, *lse;
    const float *dout, *out_in, *lse_in;
    float *dqkv;
    int64_t items, per_tile;
};

static int64_t kv_head(const struct dyti_heads *heads, int64_t i)
{
    return (heads->q_lo + i) / heads->group - heads->kv_lo;
}

/* Items [lo, hi) of a tile. */
static int64_t item_lo(const struct job *job, size_t index)
{
    return (int64_t)index * job->per_tile;
}

static int64_t item_hi(const struct job *job, size_t index)
{
    return host_min(job->items, item_lo(job, index) + job->per_tile);
}

/* How many items make a tile, from shapes only; then run. */
static void run(struct job *job, int64_t items, int64_t pairs, dyti_tile_fn fn)
{
    int64_t each = host_max(pairs / host_max(items, 1), 1);

    job->items = items;
    job->per_tile =
        host_min(host_max(TILE_PAIRS / each, 1), host_parts(items, TILES_MIN));
    if (items > 0) {
        dyti_pool_run(job->host->pool, (size_t)host_parts(items, job->per_tile),
                      fn, job);
    }
}

/* ---- packed ---- */

static int64_t longest(const struct dyti_packed *packed)
{
    int64_t most = 1;

    for (int64_t s = 0; s < packed->sequence_count; s++) {
        int64_t first, before = dyti_packed_prefix(packed, s, &first);

        most = host_max(most, before + packed->first[s + 1] - packed->first[s]);
    }
    return most;
}

/* Followers stand right behind their prefix, which has none itself? */
static bool prefixes_fit(const struct dyti_packed *packed)
{
    for (int64_t s = 0; packed->prefix != NULL && s < packed->sequence_count;
         s++) {
        int32_t p = packed->prefix[s];

        if (p >= 0 && (p >= s || packed->prefix[p] >= 0 ||
                       (p != s - 1 && packed->prefix[s - 1] != p))) {
            return false;
        }
    }
    return true;
}

/* A mean number of pairs is enough to choose a tile. */
static int64_t packed_pairs(const struct job *job)
{
    int64_t rows = job->packed->row_count;
    int64_t mean = rows / host_max(job->packed->sequence_count, 1) + 1;

    return rows * mean / 2 * job->heads->q;
}

static struct simd_keys packed_keys(const struct job *job, int64_t s,
                                    int64_t head)
{
    const struct dyti_heads *heads = job->heads;
    int64_t first = job->packed->first[s], prefix_first;
    const float *k =
        job->qkv + first * job->ld + (heads->q + head) * heads->head_dim;
    struct simd_keys keys = {.k = k,
                             .v = k + heads->kv * heads->head_dim,
                             .dtype = DYTI_F32,
                             .stride = job->ld,
                             .dim = heads->head_dim};

    keys.prefix = dyti_packed_prefix(job->packed, s, &prefix_first);
    keys.prefix_at = (prefix_first - first) * job->ld;
    return keys;
}

static void packed_tile(void *arg, size_t index, uint32_t thread)
{
    const struct job *job = arg;
    const struct dyti_heads *heads = job->heads;
    int64_t dim = heads->head_dim, hi = item_hi(job, index);

    for (int64_t item = item_lo(job, index); item < hi; item++) {
        int64_t s = item / heads->q, h = item % heads->q;
        int64_t first = job->packed->first[s];
        struct simd_attend t = {
            .keys = packed_keys(job, s, kv_head(heads, h)),
            .q = job->qkv + first * job->ld + h * dim,
            .ldq = job->ld,
            .rows = job->packed->first[s + 1] - first,
            .scale = job->scale,
            .out = job->out + (first * heads->q + h) * dim,
            .lse = job->lse != NULL ? job->lse + first * heads->q + h : NULL,
            .ldo = heads->q * dim,
            .ldl = heads->q};

        t.before = t.keys.prefix;
        job->host->simd->attend(&t, job->host->scratch[thread]);
    }
}

static enum dyt_status attend_scratch(struct host *host, int64_t dim,
                                      int64_t rows, int64_t seen)
{
    return dyti_host_scratch(
        host,
        (size_t)host->simd->attend_scratch(dim, rows, seen) * sizeof(float));
}

enum dyt_status dyti_host_attention(void *self, const float *qkv, int64_t ld,
                                    const struct dyti_heads *heads,
                                    const struct dyti_packed *packed,
                                    float scale, float *out, float *lse)
{
    struct job job = {.host = self,
                      .heads = heads,
                      .qkv = qkv,
                      .ld = ld,
                      .scale = scale,
                      .packed = packed,
                      .out = out,
                      .lse = lse};
    int64_t most = longest(packed);
    enum dyt_status st;

    dyti_assert(prefixes_fit(packed));
    st = attend_scratch(self, heads->head_dim, most, most);
    if (st == DYT_OK) {
        run(&job, packed->sequence_count * heads->q, packed_pairs(&job),
            packed_tile);
    }
    return st;
}

/* ---- backward ---- */

/* One KV head of one sequence with all query heads that read it. */
static void back_sequence(const struct job *job, int64_t s, int64_t kv,
                          float *scratch)
{
    const struct dyti_heads *heads = job->heads;
    int64_t dim = heads->head_dim, first = job->packed->first[s];
    int64_t rows = job->packed->first[s + 1] - first;
    float *dk = job->dqkv + first * job->ld + (heads->q + kv) * dim;
    float *dv = dk + heads->kv * dim;
    bool add = false;

    for (int64_t h = 0; h < heads->q; h++) {
        int64_t at = (first * heads->q + h) * dim;
        struct simd_attend_back t = {.keys = packed_keys(job, s, kv),
                                     .q = job->qkv + first * job->ld + h * dim,
                                     .dout = job->dout + at,
                                     .out = job->out_in + at,
                                     .lse = job->lse_in + first * heads->q + h,
                                     .ldq = job->ld,
                                     .ldo = heads->q * dim,
                                     .ldl = heads->q,
                                     .rows = rows,
                                     .scale = job->scale,
                                     .dq =
                                         job->dqkv + first * job->ld + h * dim,
                                     .dk = dk,
                                     .dv = dv,
                                     .add = add};

        if (kv_head(heads, h) == kv) {
            job->host->simd->attend_back(&t, scratch);
            add = true;
        }
    }
    for (int64_t r = 0; r < rows && !add; r++) { /* a head that nobody reads */
        memset(dk + r * job->ld, 0, (size_t)dim * sizeof(float));
        memset(dv + r * job->ld, 0, (size_t)dim * sizeof(float));
    }
}

/* A sequence and those that follow it as their prefix: nobody else adds to
 * their dk and dv. */
static void back_item(const struct job *job, int64_t s, int64_t kv,
                      float *scratch)
{
    const int32_t *prefix = job->packed->prefix;

    if (prefix != NULL && prefix[s] >= 0) {
        return; /* done with its prefix */
    }
    back_sequence(job, s, kv, scratch);
    for (int64_t t = s + 1;
         prefix != NULL && t < job->packed->sequence_count && prefix[t] == s;
         t++) {
        back_sequence(job, t, kv, scratch);
    }
}

static void back_tile(void *arg, size_t index, uint32_t thread)
{
    const struct job *job = arg;
    int64_t kv = job->heads->kv, hi = item_hi(job, index);

    for (int64_t item = item_lo(job, index); item < hi; item++) {
        back_item(job, item / kv, item % kv, job->host->scratch[thread]);
    }
}

enum dyt_status dyti_host_attention_back(void *self, const float *dout,
                                         const float *qkv, int64_t ld,
                                         const struct dyti_heads *heads,
                                         const struct dyti_packed *packed,
                                         float scale, const float *out,
                                         const float *lse, float *dqkv)
{
    struct job job = {.host = self,
                      .heads = heads,
                      .qkv = qkv,
                      .ld = ld,
                      .scale = scale,
                      .packed = packed,
                      .dout = dout,
                      .out_in = out,
                      .lse_in = lse,
                      .dqkv = dqkv};
    int64_t most = longest(packed);
    enum dyt_status st;

    dyti_assert(prefixes_fit(packed));
    st = attend_scratch(self, heads->head_dim, most, most);
    if (st == DYT_OK) {
        run(&job, packed->sequence_count * heads->kv, 2 * packed_pairs(&job),
            back_tile);
    }
    return st;
}

/* ---- paged ---- */

static const int32_t *blocks_of(const struct job *job, int64_t s)
{
    return job->batch->block_table + job->batch->table_first[s];
}

/* This pass's K and V rows of one sequence into the cache. */
static void store_sequence(const struct job *job, int64_t s)
{
    const struct dyti_heads *heads = job->heads;
    const struct dyti_kv_layer *cache = job->cache;
    int64_t width = heads->kv * heads->head_dim, size = cache->block_size;
    int64_t lo = job->batch->row_first[s], hi = job->batch->row_first[s + 1];
    int64_t p = job->batch->context[s] - (hi - lo);

    for (int64_t r = lo; r < hi; r++, p++) {
        const float *k = job->qkv + r * job->ld + heads->q * heads->head_dim;
        int64_t at = (blocks_of(job, s)[p / size] * size + p % size) * width;

        if (cache->dtype == DYTI_F32) {
            memcpy((float *)cache->k + at, k, (size_t)width * sizeof(float));
            memcpy((float *)cache->v + at, k + width,
                   (size_t)width * sizeof(float));
        } else {
            job->host->simd->narrow(k, (uint16_t *)cache->k + at, width);
            job->host->simd->narrow(k + width, (uint16_t *)cache->v + at,
                                    width);
        }
    }
}

static void paged_item(const struct job *job, int64_t s, int64_t h,
                       float *scratch)
{
    const struct dyti_heads *heads = job->heads;
    const struct dyti_kv_layer *cache = job->cache;
    int64_t dim = heads->head_dim, lo = job->batch->row_first[s];
    int64_t rows = job->batch->row_first[s + 1] - lo;
    int64_t at =
        kv_head(heads, h) * dim * (int64_t)dyti_dtype_bytes(cache->dtype);
    struct simd_attend t = {.keys = {.k = (const char *)cache->k + at,
                                     .v = (const char *)cache->v + at,
                                     .dtype = cache->dtype,
                                     .stride = heads->kv * dim,
                                     .dim = dim,
                                     .block = blocks_of(job, s),
                                     .block_size = cache->block_size},
                            .q = job->qkv + lo * job->ld + h * dim,
                            .ldq = job->ld,
                            .rows = rows,
                            .before = job->batch->context[s] - rows,
                            .scale = job->scale,
                            .out = job->out + (lo * heads->q + h) * dim,
                            .ldo = heads->q * dim};

    job->host->simd->attend(&t, scratch);
}

static void paged_tile(void *arg, size_t index, uint32_t thread)
{
    const struct job *job = arg;
    int64_t q = job->heads->q, hi = item_hi(job, index);

    for (int64_t item = item_lo(job, index); item < hi; item++) {
        paged_item(job, item / q, item % q, job->host->scratch[thread]);
    }
}

enum dyt_status dyti_host_attention_paged(void *self, const float *qkv,
                                          int64_t ld,
                                          const struct dyti_heads *heads,
                                          const struct dyti_kv_layer *cache,
                                          const struct dyti_paged_batch *batch,
                                          float scale, float *out)
{
    struct job job = {.host = self,
                      .heads = heads,
                      .qkv = qkv,
                      .ld = ld,
                      .scale = scale,
                      .cache = cache,
                      .batch = batch,
                      .out = out};
    int64_t most = 1, pairs = 0;
    enum dyt_status st = DYT_OK;

    for (int64_t s = 0; s < batch->sequence_count; s++) {
        int64_t rows = batch->row_first[s + 1] - batch->row_first[s];

        most = host_max(most, batch->context[s]);
        pairs += rows * batch->context[s];
    }
    st = attend_scratch(self, heads->head_dim, 1, most);
    if (st != DYT_OK) {
        return st;
    }
    /* Sequences may share blocks, never a position that is written now. */
    for (int64_t s = 0; s < batch->sequence_count; s++) {
        store_sequence(&job, s);
    }
    run(&job, batch->sequence_count * heads->q, pairs * heads->q, paged_tile);
    return DYT_OK;
}
