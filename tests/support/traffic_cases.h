/* Traffic of switches between layouts of a Megatron-like model, element-exact,
 * without a planner: 48 layers, tensors cut by TP along rows or columns, layers
 * by PP, and the fp32 state of each (tp, pp) by DP as one flat buffer (ZeRO 1,
 * one bucket).  Rank = (pp * DP + dp) * TP + tp.  And random traffic. */
#ifndef DYT_TRAFFIC_CASES_H
#define DYT_TRAFFIC_CASES_H

#include "base/rng.h"
#include "sched/strategy.h"

#include <stdlib.h>
#include <string.h>

#define DYT_TRAFFIC_LAYERS  48
#define DYT_TRAFFIC_TENSORS 8  /* of a layer */
#define DYT_TRAFFIC_BYTES   12 /* of an element: master and two moments */

struct dyt_degrees {
    uint32_t tp, pp, dp;
};

struct dyt_traffic {
    uint32_t ranks;
    uint32_t *host;
    struct dyti_cluster cluster;
    uint64_t *bytes; /* [ranks][ranks] while it is made */
    struct dyti_flow *flow;
    size_t flow_count;
    /* The funnel as it is built: the first replica that has a part of a tensor
     * gathers it (wave 0), sends it to the first one that wants a part (1),
     * which scatters it (2). [3][ranks][ranks] while it is made. */
    uint64_t *hop;
    struct dyti_flow *funnel;
    size_t funnel_count;
    double kept, inside, total; /* bytes: on the rank, in the host, all */
};

/* h = 4096: embedding and head first and last; axis 0 rows, 1 columns, -1 not
 * cut. */
struct dyt_traffic_tensor {
    uint64_t rows, cols;
    int axis;
};

static const struct dyt_traffic_tensor dyt_traffic_layer[DYT_TRAFFIC_TENSORS] =
    {{1, 4096, -1}, {12288, 4096, 0}, {12288, 1, 0},    {4096, 4096, 1},
     {1, 4096, -1}, {16384, 4096, 0}, {4096, 16384, 1}, {1, 4096, -1}};
static const struct dyt_traffic_tensor dyt_traffic_vocab = {50688, 4096, 0};

/* Where the flat buffers of one layout are cut. */
struct dyt_flat {
    struct dyt_degrees d;
    /* [pp][tensors + 1]: where the tensor begins in the buffers of this stage
     * (UINT64_MAX: not here); the last is the length */
    uint64_t *begin;
    uint32_t tensors;
};

static inline struct dyt_traffic_tensor dyt_traffic_tensor(uint32_t i)
{
    return i == 0 || i == DYT_TRAFFIC_LAYERS * DYT_TRAFFIC_TENSORS + 1
               ? dyt_traffic_vocab
               : dyt_traffic_layer[(i - 1) % DYT_TRAFFIC_TENSORS];
}

static inline uint32_t dyt_flat_stage(const struct dyt_flat *f, uint32_t i)
{
    uint32_t layer;

    if (i == 0) {
        return 0;
    }
    if (i + 1 == f->tensors) {
        return f->d.pp - 1;
    }
    layer = (i - 1) / DYT_TRAFFIC_TENSORS;
    return layer * f->d.pp / DYT_TRAFFIC_LAYERS;
}

static inline uint64_t dyt_flat_local(const struct dyt_traffic_tensor *t,
                                      uint32_t tp)
{
    return t->rows * t->cols / (t->axis < 0 ? 1 : tp);
}

static inline void dyt_flat_open(struct dyt_degrees d, struct dyt_flat *out)
{
    struct dyt_flat f = {
        .d = d, .tensors = DYT_TRAFFIC_LAYERS * DYT_TRAFFIC_TENSORS + 2};

    f.begin = calloc((size_t)d.pp * (f.tensors + 1), sizeof(*f.begin));
    for (uint32_t i = 0; f.begin != NULL && i < f.tensors; i++) {
        struct dyt_traffic_tensor t = dyt_traffic_tensor(i);
        uint64_t *row =
            f.begin + (size_t)dyt_flat_stage(&f, i) * (f.tensors + 1);

        row[i] = row[f.tensors];
        row[f.tensors] += dyt_flat_local(&t, d.tp);
    }
    *out = f;
}

/* DP cuts inside one tensor's local shard, as positions in one block of it that
 * both layouts see in the same order.  out[0] = 0 … out[dp] = length. */
static inline void dyt_flat_cuts(const struct dyt_flat *f, uint32_t tensor,
                                 uint64_t col_first, uint64_t width,
                                 uint64_t block_first, uint64_t length,
                                 uint64_t *out)
{
    struct dyt_traffic_tensor t = dyt_traffic_tensor(tensor);
    const uint64_t *row =
        f->begin + (size_t)dyt_flat_stage(f, tensor) * (f->tensors + 1);
    uint64_t cols = t.axis == 1 ? t.cols / f->d.tp : t.cols;
    uint64_t total = row[f->tensors];

    for (uint32_t k = 0; k <= f->d.dp; k++) {
        uint64_t cut = total / f->d.dp * k + total % f->d.dp * k / f->d.dp;
        uint64_t local = cut > row[tensor] ? cut - row[tensor] : 0, c, at;

        c = local % cols;
        c = c < col_first ? 0 : c - col_first;
        at = local / cols * width + (c < width ? c : width);
        at = at > block_first ? at - block_first : 0;
        out[k] = at < length ? at : length;
    }
    out[f->d.dp] = length;
}

static inline void dyt_traffic_block(struct dyt_traffic *t,
                                     const struct dyt_flat *a,
                                     const struct dyt_flat *b, uint32_t tensor,
                                     uint32_t block, uint32_t blocks,
                                     uint64_t *cut_a, uint64_t *cut_b)
{
    struct dyt_traffic_tensor x = dyt_traffic_tensor(tensor);
    uint64_t length = x.rows * x.cols / blocks;
    uint32_t ta = block * a->d.tp / blocks, tb = block * b->d.tp / blocks;
    uint32_t ia = block - ta * (blocks / a->d.tp);
    uint32_t ib = block - tb * (blocks / b->d.tp);
    uint32_t i = 0, j = 0, lead_a = UINT32_MAX, lead_b = UINT32_MAX;
    size_t n = t->ranks;
    uint64_t at = 0;

    if (x.axis == 1) {
        uint64_t w = x.cols / blocks;

        dyt_flat_cuts(a, tensor, ia * w, w, 0, length, cut_a);
        dyt_flat_cuts(b, tensor, ib * w, w, 0, length, cut_b);
    } else {
        dyt_flat_cuts(a, tensor, 0, x.cols, ia * length, length, cut_a);
        dyt_flat_cuts(b, tensor, 0, x.cols, ib * length, length, cut_b);
    }
    while (i < a->d.dp && j < b->d.dp) {
        uint64_t end =
            cut_a[i + 1] < cut_b[j + 1] ? cut_a[i + 1] : cut_b[j + 1];
        uint32_t src = (dyt_flat_stage(a, tensor) * a->d.dp + i) * a->d.tp + ta;
        uint32_t dst = (dyt_flat_stage(b, tensor) * b->d.dp + j) * b->d.tp + tb;

        if (end > at) {
            uint64_t bytes = (end - at) * DYT_TRAFFIC_BYTES;

            lead_a = lead_a == UINT32_MAX ? src : lead_a;
            lead_b = lead_b == UINT32_MAX ? dst : lead_b;
            t->bytes[(size_t)src * n + dst] += bytes;
            t->hop[(size_t)src * n + lead_a] += bytes;
            t->hop[n * n + (size_t)lead_a * n + lead_b] += bytes;
            t->hop[2 * n * n + (size_t)lead_b * n + dst] += bytes;
            at = end;
        }
        i += cut_a[i + 1] == end ? 1u : 0u;
        j += j < b->d.dp && cut_b[j + 1] == end ? 1u : 0u;
    }
}

/* Hosts of `per_host` ranks, NVLink 400 GB/s, a NIC of 25 GB/s for each rank:
 * the paper's machine.  No message costs anything. */
static inline bool dyt_traffic_init(struct dyt_traffic *t, uint32_t ranks,
                                    uint32_t per_host)
{
    memset(t, 0, sizeof(*t));
    t->ranks = ranks;
    t->host = calloc(ranks, sizeof(*t->host));
    t->bytes = calloc((size_t)ranks * ranks, sizeof(*t->bytes));
    t->flow = NULL;
    if (t->host == NULL || t->bytes == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < ranks; i++) {
        t->host[i] = i / per_host;
    }
    t->cluster = (struct dyti_cluster){
        .name = "hosts of 8, NVLink 400 GB/s, NIC 25 GB/s",
        .rank_count = ranks,
        .host_count = (ranks + per_host - 1) / per_host,
        .host = t->host};
    t->cluster.link[DYTI_LINK_SELF].bytes_per_s = 1e12;
    t->cluster.link[DYTI_LINK_HOST].bytes_per_s = 400e9;
    t->cluster.link[DYTI_LINK_NIC].bytes_per_s = 25e9;
    return true;
}

/* Flows of the matrix, which is given back. */
static inline bool dyt_traffic_finish(struct dyt_traffic *t)
{
    size_t n = t->ranks, count = 0;

    t->flow = calloc(n * n + 1, sizeof(*t->flow));
    for (size_t i = 0; t->flow != NULL && i < n * n; i++) {
        uint32_t s = (uint32_t)(i / n), d = (uint32_t)(i % n);

        t->total += (double)t->bytes[i];
        if (s == d) {
            t->kept += (double)t->bytes[i];
        } else if (t->bytes[i] > 0) {
            t->inside += t->host[s] == t->host[d] ? (double)t->bytes[i] : 0.0;
            t->flow[count++] = (struct dyti_flow){
                s, d, t->bytes[i], (uint32_t)(t->bytes[i] / (24u << 20)) + 1,
                0};
        }
    }
    t->flow_count = count;
    if (t->hop != NULL) {
        t->funnel = calloc(3 * n * n + 1, sizeof(*t->funnel));
    }
    for (size_t i = 0; t->funnel != NULL && i < 3 * n * n; i++) {
        uint32_t s = (uint32_t)(i / n % n), d = (uint32_t)(i % n);

        if (s != d && t->hop[i] > 0) {
            t->funnel[t->funnel_count++] =
                (struct dyti_flow){s, d, t->hop[i], 1, (uint32_t)(i / (n * n))};
        }
    }
    free(t->hop);
    free(t->bytes);
    t->hop = t->bytes = NULL;
    return t->flow != NULL;
}

static inline void dyt_traffic_close(struct dyt_traffic *t)
{
    free(t->host);
    free(t->bytes);
    free(t->flow);
    free(t->hop);
    free(t->funnel);
    memset(t, 0, sizeof(*t));
}

/* TP degrees divide 64 or so: columns and rows of the tensors divide. */
static inline bool dyt_traffic_layouts(struct dyt_traffic *t,
                                       struct dyt_degrees src,
                                       struct dyt_degrees dst,
                                       uint32_t per_host)
{
    uint32_t n = src.tp * src.pp * src.dp, m = dst.tp * dst.pp * dst.dp;
    uint32_t blocks = src.tp > dst.tp ? src.tp : dst.tp;
    uint64_t *cut;
    struct dyt_flat a, b;
    bool ok = dyt_traffic_init(t, n > m ? n : m, per_host);

    dyt_flat_open(src, &a);
    dyt_flat_open(dst, &b);
    t->hop = calloc(3 * (size_t)t->ranks * t->ranks + 1, sizeof(*t->hop));
    ok = ok && t->hop != NULL;
    cut = calloc((size_t)src.dp + dst.dp + 2, sizeof(*cut));
    ok = ok && a.begin != NULL && b.begin != NULL && cut != NULL;
    for (uint32_t i = 0; ok && i < a.tensors; i++) {
        /* what TP does not cut is owned by every TP rank for itself */
        for (uint32_t k = 0; k < blocks; k++) {
            if (dyt_traffic_tensor(i).axis >= 0) {
                dyt_traffic_block(t, &a, &b, i, k, blocks, cut,
                                  cut + src.dp + 1);
            }
        }
    }
    free(a.begin);
    free(b.begin);
    free(cut);
    return ok && dyt_traffic_finish(t);
}

/* Random traffic: `shape` 0 dense and even, 1 dense and uneven, 2 sparse, 3 a
 * few ranks have most of it, 4 one way (growing), 5 permutations. */
static inline bool dyt_traffic_random(struct dyt_traffic *t, uint64_t seed,
                                      uint32_t ranks, uint32_t per_host,
                                      uint32_t shape)
{
    size_t n = ranks;

    if (!dyt_traffic_init(t, ranks, per_host)) {
        return false;
    }
    for (size_t i = 0; i < n * n; i++) {
        uint64_t a = dyti_rng_u64(seed, i, 0, 0);
        double u = dyti_rng_unit(dyti_rng_u64(seed, i, 1, 0));
        size_t s = i / n, d = i % n;
        uint64_t x = 1 + a % (64u << 20);

        switch (shape) {
        case 0:
            x = 16u << 20;
            break;
        case 1:
            break;
        case 2:
            x = u < 4.0 / (double)n ? x : 0;
            break;
        case 3:
            x = u < 0.3 ? x >> (4 * (dyti_rng_u64(seed, s, 2, 0) % 3 +
                                     dyti_rng_u64(seed, d, 3, 0) % 3))
                        : 0;
            break;
        case 4:
            x = 2 * s < n && 2 * d >= n && u < 0.5 ? x : 0;
            break;
        default:
            x = (d + n - s) % n == 1 + a % 3 * (n / 4) ? 32u << 20 : 0;
            break;
        }
        t->bytes[i] = s == d ? 0 : x;
    }
    return dyt_traffic_finish(t);
}

/* The rows of theory: degrees before and after. */
static const struct {
    const char *name;
    struct dyt_degrees src, dst;
    double xor_free, xor_barrier, inter; /* published shape, share over NICs */
} dyt_transitions[] = {
    {"8,2,8 -> 4,4,8", {8, 2, 8}, {4, 4, 8}, 1.8, 10.4, 0.07},
    {"4,4,8 -> 8,2,8", {4, 4, 8}, {8, 2, 8}, 3.1, 9.3, 0.07},
    {"2,8,8 -> 8,2,8", {2, 8, 8}, {8, 2, 8}, 2.9, 4.9, 0.10},
    {"8,2,8 -> 8,2,4", {8, 2, 8}, {8, 2, 4}, 3.7, 8.4, 0.94},
    {"8,2,8 -> 4,2,12", {8, 2, 8}, {4, 2, 12}, 5.0, 35.7, 0.87},
    {"4,4,6 -> 4,4,8", {4, 4, 6}, {4, 4, 8}, 2.8, 11.7, 0.87},
    {"8,1,12 -> 8,1,16", {8, 1, 12}, {8, 1, 16}, 2.4, 6.1, 0.88},
    {"8,2,6 -> 4,4,8", {8, 2, 6}, {4, 4, 8}, 3.7, 26.2, 0.86},
};

#endif /* DYT_TRAFFIC_CASES_H */
