/* Lists of boxes of one launch each: runs, rows, turned boxes, tiny pieces,
 * conversions; to and from dense memory. */
#include "gpu.h"

#include "contest.h"
#include "device/cuda/memory.h"
#include "device/cuda/table.h"

#include <stdio.h>
#include <stdlib.h>

#define PAYLOAD       (512u << 20) /* bytes of the wider side */
#define QUICK_PAYLOAD (16u << 10)
#define LAUNCHES      8u /* of a turn */
#define TINY_COUNT    100000u
#define TINY_APART    512u /* bytes between pieces */
#define GOAL          0.9

enum how { ROWS, TURNED, TINY };

struct shape {
    const char *name;
    enum how how;
    uint64_t row_bytes; /* of the wider side; 0: one run of all */
    uint8_t from, to;
    double goal;
};

static const struct shape shapes[] = {
    {"one run", ROWS, 0, DYTI_BF16, DYTI_BF16, GOAL},
    {"rows of 64 B", ROWS, 64, DYTI_BF16, DYTI_BF16, 0},
    {"rows of 256 B", ROWS, 256, DYTI_BF16, DYTI_BF16, 0},
    {"rows of 512 B", ROWS, 512, DYTI_BF16, DYTI_BF16, GOAL},
    {"rows of 1 KiB", ROWS, 1024, DYTI_BF16, DYTI_BF16, GOAL},
    {"rows of 4 KiB", ROWS, 4096, DYTI_BF16, DYTI_BF16, GOAL},
    {"rows of 64 KiB", ROWS, 65536, DYTI_BF16, DYTI_BF16, GOAL},
    {"rows of 4 KiB, f32", ROWS, 4096, DYTI_F32, DYTI_F32, GOAL},
    {"turned, f32", TURNED, 0, DYTI_F32, DYTI_F32, 0},
    {"turned, bf16", TURNED, 0, DYTI_BF16, DYTI_BF16, 0},
    {"tiny pieces", TINY, 0, DYTI_BF16, DYTI_BF16, 0},
    {"f32 to bf16, one run", ROWS, 0, DYTI_F32, DYTI_BF16, 0},
    {"f32 to bf16, rows of 4 KiB", ROWS, 4096, DYTI_F32, DYTI_BF16, 0},
    {"bf16 to f32, one run", ROWS, 0, DYTI_BF16, DYTI_F32, 0},
};

struct ground {
    struct dyti_kernels kernels;
    struct {
        const struct dyti_memory_ops *ops;
        struct dyti_segment_mem mem;
        int handle;
    } memory;
    unsigned char *strided, *dense;
    uint64_t payload, strided_bytes, dense_bytes;
    uint32_t launches;
};

/* One shape: the list, and what a memcpy has to move for it. */
struct match {
    const struct ground *ground;
    struct dyti_copy_list *list;
    uint64_t moved; /* (read + written) / 2 */
};

/* ---- memory -------------------------------------------------------------- */

static void ground_close(struct ground *g)
{
    g->memory.ops->unmap(&g->memory.mem);
    g->memory.ops->close(g->memory.handle);
    g->kernels.ops->close(g->kernels.self);
}

/* One segment: rows first. */
static enum dyt_status take_memory(struct ground *g)
{
    const struct dyti_memory_ops *ops = &dyti_memory_cuda;
    uint64_t bytes = g->strided_bytes + g->dense_bytes;
    enum dyti_page_kind pages = ops->probe(bytes);
    enum dyt_status st = ops->create("bench", pages, &g->memory.handle);

    if (st == DYT_OK) {
        st = ops->resize(g->memory.handle, pages, bytes, NULL, 0);
    }
    if (st == DYT_OK) {
        st = ops->map(g->memory.handle, pages, bytes, &g->memory.mem);
    }
    if (st == DYT_OK) {
        g->strided = g->memory.mem.base;
        g->dense = g->strided + g->strided_bytes;
        st = dyti_kernels_fill(&g->kernels, g->strided, bytes, 1);
    }
    return st == DYT_OK ? dyti_kernels_wait(&g->kernels) : st;
}

static enum dyt_status ground_open(struct ground *g, bool quick)
{
    struct dyti_kernel_params params = {.struct_size = sizeof(params)};
    enum dyt_status st = dyti_memory_cuda.use(NULL);

    *g = (struct ground){.kernels = {.ops = &dyti_kernels_cuda},
                         .memory = {.ops = &dyti_memory_cuda, .handle = -1},
                         .payload = quick ? QUICK_PAYLOAD : PAYLOAD,
                         .launches = quick ? 1 : LAUNCHES};
    g->strided_bytes = 2 * g->payload; /* rows have as much between them */
    g->dense_bytes = g->payload;
    if (st == DYT_OK) {
        st = g->kernels.ops->open(&params, &g->kernels.self);
    }
    if (st != DYT_OK) {
        return st;
    }
    st = take_memory(g);
    if (st != DYT_OK) {
        ground_close(g);
    }
    return st;
}

/* ---- lists --------------------------------------------------------------- */

static uint64_t element(uint8_t dtype)
{
    return dtype == DYTI_F32 ? 4 : 2;
}

/* The box of rows, or the turned one, out of the strided memory. */
static struct dyti_copy box_of(const struct ground *g, const struct shape *s)
{
    uint64_t from = element(s->from), to = element(s->to);
    uint64_t wide = from > to ? from : to, count = g->payload / wide;
    uint64_t cols = s->row_bytes == 0 ? count : s->row_bytes / wide;
    struct dyti_copy copy = {.src = g->strided,
                             .dst = g->dense,
                             .src_dtype = s->from,
                             .dst_dtype = s->to};

    cols = cols < count ? cols : count; /* --quick */
    if (s->how == TURNED) {             /* a square, or half of one */
        for (cols = 1; cols * cols * 4 <= count; cols *= 2) {
        }
        copy.src_stride[2] = (int64_t)from;
        copy.src_stride[3] = (int64_t)(count / cols * from);
    } else {
        /* The same bytes again between two rows; nothing beside a run. */
        copy.src_stride[2] = (int64_t)(cols * from * (s->row_bytes ? 2 : 1));
        copy.src_stride[3] = (int64_t)from;
    }
    copy.size[0] = copy.size[1] = 1;
    copy.size[2] = (int64_t)(count / cols);
    copy.size[3] = (int64_t)cols;
    copy.dst_stride[2] = (int64_t)(cols * to);
    copy.dst_stride[3] = (int64_t)to;
    return copy;
}

/* The other way: dense boxes into rows. */
static void turn_round(const struct ground *g, struct dyti_copy *copy)
{
    for (uint32_t d = 0; d < DYTI_COPY_DIMS; d++) {
        int64_t kept = copy->src_stride[d];

        copy->src_stride[d] = copy->dst_stride[d];
        copy->dst_stride[d] = kept;
    }
    copy->dst = g->strided;
    copy->src = g->dense;
}

/* Pieces of 2 to 254 bytes. */
static size_t tiny_copies(const struct ground *g, struct dyti_copy *copy,
                          bool unpack)
{
    uint64_t most = g->strided_bytes / TINY_APART, dense = 0, random = 1;
    size_t count = most < TINY_COUNT ? (size_t)most : TINY_COUNT;

    for (size_t i = 0; i < count; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        copy[i] = (struct dyti_copy){
            .src = g->strided + i * TINY_APART,
            .dst = g->dense + dense,
            .size = {1, 1, 1, 1 + (int64_t)((random >> 33) % 127)},
            .src_stride = {0, 0, 0, 2},
            .dst_stride = {0, 0, 0, 2},
            .src_dtype = DYTI_BF16,
            .dst_dtype = DYTI_BF16};
        if (dense + 254 > g->dense_bytes) {
            return i;
        }
        dense += (uint64_t)copy[i].size[3] * 2;
        if (unpack) {
            void *to = g->strided + i * TINY_APART;

            copy[i].src = copy[i].dst;
            copy[i].dst = to;
        }
    }
    return count;
}

static enum dyt_status match_open(const struct ground *g, const struct shape *s,
                                  bool unpack, struct match *out)
{
    struct dyti_copy *copy = calloc(TINY_COUNT, sizeof(*copy));
    size_t count = 1;
    uint64_t moved = 0;
    enum dyt_status st;

    if (copy == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a list of boxes");
    }
    if (s->how == TINY) {
        count = tiny_copies(g, copy, unpack);
    } else {
        copy[0] = box_of(g, s);
        if (unpack) {
            turn_round(g, copy);
        }
    }
    for (size_t i = 0; i < count; i++) {
        moved += (uint64_t)(copy[i].size[2] * copy[i].size[3]) *
                 (element(s->from) + element(s->to)) / 2;
    }
    *out = (struct match){.ground = g, .moved = moved};
    st = g->kernels.ops->list_make(g->kernels.self, copy, count, &out->list);
    free(copy);
    return st;
}

/* ---- turns ----------------------------------------------------------------
 * Both sides queue one thing and wait for it. */

static uint32_t finish(const struct match *m, enum dyt_status st, double start,
                       double *out_values)
{
    if (st != DYT_OK) {
        (void)fprintf(stderr, "gpu: %s\n", dyti_error_text());
        return 0;
    }
    out_values[0] = (double)m->moved * m->ground->launches /
                    (bench_seconds() - start) / 1e9;
    return 1;
}

static uint32_t turn_list(void *arg, double *out_values, uint32_t most)
{
    const struct match *m = arg;
    const struct dyti_kernels *k = &m->ground->kernels;
    double start = bench_seconds();
    enum dyt_status st = DYT_OK;

    (void)most;
    for (uint32_t i = 0; i < m->ground->launches && st == DYT_OK; i++) {
        st = k->ops->list_run(k->self, m->list);
        st = st == DYT_OK ? dyti_kernels_wait(k) : st;
    }
    return finish(m, st, start, out_values);
}

static uint32_t turn_memcpy(void *arg, double *out_values, uint32_t most)
{
    const struct match *m = arg;
    const struct ground *g = m->ground;
    double start = bench_seconds();
    enum dyt_status st = DYT_OK;

    (void)most;
    for (uint32_t i = 0; i < g->launches && st == DYT_OK; i++) {
        st = dyti_kernels_carry(&g->kernels, g->dense, g->strided, m->moved);
    }
    return finish(m, st, start, out_values);
}

static enum dyt_status play(struct bench *bench, const struct ground *g,
                            const struct shape *s, bool unpack)
{
    struct match m;
    struct player player[2] = {
        {.name = "list", .turn = turn_list, .arg = &m},
        {.name = "memcpy", .turn = turn_memcpy, .arg = &m}};
    enum dyt_status st;
    char name[96];

    (void)snprintf(name, sizeof(name), "%s %s", unpack ? "unpack" : "pack",
                   s->name);
    if (!bench_wants(bench, name)) {
        return DYT_OK;
    }
    st = match_open(g, s, unpack, &m);
    if (st != DYT_OK) {
        DYTI_NOTE("case %s", name);
        return st;
    }
    contest(player, 2, bench_rounds(bench, bench->quick ? 1 : 15));
    g->kernels.ops->list_free(g->kernels.self, m.list);
    if (player[0].out || player[1].out) {
        return DYTI_FAIL(DYT_ERR_DEVICE, "case %s ended early", name);
    }
    bench_record(bench, name, contest_median(&player[0]), "device memcpy",
                 contest_median(&player[1]), s->goal, "GB/s");
    return DYT_OK;
}

enum dyt_status gpu_bench_pack(struct bench *bench)
{
    struct ground g;
    enum dyt_status st = ground_open(&g, bench->quick);

    if (st != DYT_OK) {
        return st;
    }
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]) && st == DYT_OK;
         i++) {
        st = play(bench, &g, &shapes[i], false);
        if (st == DYT_OK && shapes[i].from == shapes[i].to) {
            st = play(bench, &g, &shapes[i], true);
        }
    }
    ground_close(&g);
    return st;
}
