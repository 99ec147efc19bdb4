/* Causal attention of one query row at a time, in two passes over its keys:
 *   s_j = scale q·k_j,  lse = log Σ exp s_j,  p_j = exp(s_j - lse)
 *   out = Σ p_j v_j
 * Backward, with D = dout·out:
 *   dv_j += p_j dout,  ds_j = scale p_j (dout·v_j - D)
 *   dq += ds_j k_j,    dk_j += ds_j q */
#include "device/host/reference/reference.h"

#include <math.h>
#include <string.h>

/* Where the keys and values of one query head lie. */
struct keys {
    const void *k, *v;
    enum dyti_dtype dtype;
    int64_t stride;       /* elements from a position to the next */
    int64_t block_size;   /* paged only */
    const int32_t *block; /* NULL: contiguous */
    /* Packed only: positions < prefix lie from element prefix_at on, which may
     * be before k. */
    int64_t prefix, prefix_at;
};

static int64_t key_at(const struct keys *keys, int64_t p)
{
    int64_t row = p - keys->prefix;

    if (p < keys->prefix) {
        return keys->prefix_at + p * keys->stride;
    }
    if (keys->block != NULL) {
        row = keys->block[p / keys->block_size] * keys->block_size +
              p % keys->block_size;
    }
    return row * keys->stride;
}

static int64_t kv_head(const struct dyti_heads *heads, int64_t i)
{
    return (heads->q_lo + i) / heads->group - heads->kv_lo;
}

static double dot(const float *q, const void *k, enum dyti_dtype dtype,
                  int64_t at, int64_t dim)
{
    double sum = 0.0;

    for (int64_t d = 0; d < dim; d++) {
        sum += (double)q[d] * ref_load(k, dtype, at + d);
    }
    return sum;
}

#define HEAD_DIM_MAX 512

/* One row of one head over positions < seen; returns lse. */
static double attend(const float *q, const struct keys *keys, int64_t seen,
                     int64_t dim, double scale, float *out)
{
    double y[HEAD_DIM_MAX] = {0.0}, max = -INFINITY, sum = 0.0;

    dyti_require(dim <= HEAD_DIM_MAX);
    for (int64_t p = 0; p < seen; p++) {
        max = fmax(max,
                   scale * dot(q, keys->k, keys->dtype, key_at(keys, p), dim));
    }
    for (int64_t p = 0; p < seen; p++) {
        int64_t at = key_at(keys, p);
        double e = exp(scale * dot(q, keys->k, keys->dtype, at, dim) - max);

        sum += e;
        for (int64_t d = 0; d < dim; d++) {
            y[d] += e * ref_load(keys->v, keys->dtype, at + d);
        }
    }
    for (int64_t d = 0; d < dim; d++) {
        out[d] = (float)(y[d] / sum);
    }
    return max + log(sum);
}

/* Where the keys of local query head h of sequence s lie. */
static struct keys packed_keys(const float *qkv, int64_t ld,
                               const struct dyti_heads *heads,
                               const struct dyti_packed *packed, int64_t s,
                               int64_t h)
{
    int64_t dim = heads->head_dim, first = packed->first[s], prefix_first;
    const float *k = qkv + first * ld + (heads->q + kv_head(heads, h)) * dim;
    struct keys keys = {
        .k = k, .v = k + heads->kv * dim, .dtype = DYTI_F32, .stride = ld};

    keys.prefix = dyti_packed_prefix(packed, s, &prefix_first);
    keys.prefix_at = (prefix_first - first) * ld;
    return keys;
}

enum dyt_status dyti_reference_attention(void *self, const float *qkv,
                                         int64_t ld,
                                         const struct dyti_heads *heads,
                                         const struct dyti_packed *packed,
                                         float scale, float *out, float *lse)
{
    int64_t dim = heads->head_dim;

    (void)self;
    for (int64_t s = 0; s < packed->sequence_count; s++) {
        for (int64_t r = packed->first[s]; r < packed->first[s + 1]; r++) {
            for (int64_t h = 0; h < heads->q; h++) {
                struct keys keys = packed_keys(qkv, ld, heads, packed, s, h);
                double l = attend(qkv + r * ld + h * dim, &keys,
                                  keys.prefix + r - packed->first[s] + 1, dim,
                                  scale, out + (r * heads->q + h) * dim);

                if (lse != NULL) {
                    lse[r * heads->q + h] = (float)l;
                }
            }
        }
    }
    return DYT_OK;
}

static void store_row(const float *k, const struct dyti_heads *heads,
                      const struct dyti_kv_layer *cache, int64_t row)
{
    int64_t width = heads->kv * heads->head_dim;

    for (int64_t i = 0; i < width; i++) {
        ref_store(cache->k, cache->dtype, row * width + i, k[i]);
        ref_store(cache->v, cache->dtype, row * width + i, k[width + i]);
    }
}

enum dyt_status dyti_reference_attention_paged(
    void *self, const float *qkv, int64_t ld, const struct dyti_heads *heads,
    const struct dyti_kv_layer *cache, const struct dyti_paged_batch *batch,
    float scale, float *out)
{
    int64_t dim = heads->head_dim, size = cache->block_size;
    struct keys keys = {
        .dtype = cache->dtype, .stride = heads->kv * dim, .block_size = size};

    (void)self;
    for (int64_t s = 0; s < batch->sequence_count; s++) {
        int64_t lo = batch->row_first[s], hi = batch->row_first[s + 1];
        int64_t before = batch->context[s] - (hi - lo);

        keys.block = batch->block_table + batch->table_first[s];
        for (int64_t r = lo; r < hi; r++) {
            int64_t p = before + r - lo;

            store_row(qkv + r * ld + heads->q * dim, heads, cache,
                      keys.block[p / size] * size + p % size);
        }
        for (int64_t r = lo; r < hi; r++) {
            for (int64_t h = 0; h < heads->q; h++) {
                int64_t at = kv_head(heads, h) * dim *
                             (int64_t)dyti_dtype_bytes(cache->dtype);

                keys.k = (const char *)cache->k + at;
                keys.v = (const char *)cache->v + at;
                attend(qkv + r * ld + h * dim, &keys, before + r - lo + 1, dim,
                       scale, out + (r * heads->q + h) * dim);
            }
        }
    }
    return DYT_OK;
}

/* One query row of one head adds its part to dq, dk, dv. */
static void attend_back(const float *dout, const float *out, const float *q,
                        const struct keys *keys, int64_t seen, int64_t dim,
                        double scale, double lse, float *dq, float *dk,
                        float *dv)
{
    double delta = dot(dout, out, DYTI_F32, 0, dim);
    const float *k = keys->k;

    for (int64_t j = 0; j < seen; j++) {
        int64_t at = key_at(keys, j);
        double p = exp(scale * dot(q, k, DYTI_F32, at, dim) - lse);
        double dp = dot(dout, keys->v, DYTI_F32, at, dim);
        double ds = scale * p * (dp - delta);

        for (int64_t d = 0; d < dim; d++) {
            dv[at + d] += (float)(p * dout[d]);
            dk[at + d] += (float)(ds * q[d]);
            dq[d] += (float)(ds * k[at + d]);
        }
    }
}

enum dyt_status dyti_reference_attention_back(void *self, const float *dout,
                                              const float *qkv, int64_t ld,
                                              const struct dyti_heads *heads,
                                              const struct dyti_packed *packed,
                                              float scale, const float *out,
                                              const float *lse, float *dqkv)
{
    int64_t dim = heads->head_dim, q = heads->q;
    size_t row_bytes = (size_t)((q + 2 * heads->kv) * dim) * sizeof(float);

    (void)self;
    for (int64_t r = 0; r < packed->row_count; r++) {
        memset(dqkv + r * ld, 0, row_bytes);
    }
    for (int64_t s = 0; s < packed->sequence_count; s++) {
        for (int64_t r = packed->first[s]; r < packed->first[s + 1]; r++) {
            for (int64_t h = 0; h < q; h++) {
                struct keys keys = packed_keys(qkv, ld, heads, packed, s, h);
                float *dk = dqkv + ((const float *)keys.k - qkv);

                attend_back(dout + (r * q + h) * dim, out + (r * q + h) * dim,
                            qkv + r * ld + h * dim, &keys,
                            keys.prefix + r - packed->first[s] + 1, dim, scale,
                            lse[r * q + h], dqkv + r * ld + h * dim, dk,
                            dk + heads->kv * dim);
            }
        }
    }
    return DYT_OK;
}
