/* A random case of a link for tests: rows of sources and receivers, and what
 * each element must be. */
#ifndef DYT_LINK_ROWS_H
#define DYT_LINK_ROWS_H

#include "dyt_ranks.h"

#include "base/num.h"
#include "base/rng.h"
#include "layout_cases.h"
#include "lib/link.h"

#define LW_EXTENTS 1024u
#define LW_SHARDS  2048u
#define LW_ROWS    512u
#define LW_PIECES  2048u
#define LW_MEMBERS 8u
#define LW_GUARD   0xA5

/* ---- the case ------------------------------------------------------------ */

enum lw_memory { LW_PRIVATE, LW_SHARED };

struct lw_case {
    uint64_t seed, trial;
    uint32_t members, sources;
    enum dyt_commit_mode commit;
    enum dyt_verify verify;
    enum lw_memory source_memory, target_memory;
    bool snapshot; /* sources that are private hand in snapshots */
    bool plain;    /* f32 on both sides */
    bool master;   /* sources hold masters, which are read as param */
    uint64_t cap_bytes;
    struct dyti_model *model;
    int control;      /* memfd */
    void *control_at; /* mapped here */
    bool threads;     /* members are threads: they use that */
    struct lw_board *board;
};

struct lw_slot {
    _Atomic uint32_t ready;
    struct dyti_memory_view view[2];
    struct dyti_extent extent[2][LW_EXTENTS];
    struct dyti_shard shard[2][LW_SHARDS];
};

struct lw_board {
    _Atomic uint32_t met[16];
    _Atomic uint32_t decision[LW_MEMBERS]; /* enum dyti_decision + 1 */
    _Atomic uint64_t word[LW_MEMBERS];
    struct lw_slot slot[LW_MEMBERS];
};

/* One member, in its own process or thread. */
struct lw_member {
    const struct lw_case *c;
    uint32_t rank;
    bool is_source;
    struct dyt_row row[LW_ROWS];
    char name[LW_ROWS][48];
    uint32_t row_count;
    struct dyti_row_piece piece[LW_PIECES];
    uint32_t piece_count;
    unsigned char *arena; /* rows, with guards between them */
    uint64_t arena_bytes;
    int arena_fd;
    unsigned char *mask; /* [arena_bytes] 1: belongs to a piece */
    struct dyti_mapped *mapped;
    struct dyti_memory_view memory, second;
    struct dyti_snapshot *snapshot;
    struct dyti_memory_view all[LW_MEMBERS], other[LW_MEMBERS];
    struct dyti_link *link;
};

/* Random tensors of one to four dims that nobody says a use of. */
static inline struct dyti_model *lw_listed(uint64_t seed)
{
    struct dyti_listed_desc desc[40];
    char name[40][16];
    struct dyti_model *model = NULL;
    size_t count = 5 + dyti_rng_u64(seed, 1, 1, 1) % 35;

    for (size_t i = 0; i < count; i++) {
        desc[i] = (struct dyti_listed_desc){
            .name = name[i],
            .ndim = 1 + (uint32_t)(dyti_rng_u64(seed, i, 0, 0) % 4),
            .kinds = 1u << DYTI_PARAM | 1u << DYTI_MASTER,
            .layer = -1,
            .expert = -1};
        (void)snprintf(name[i], sizeof(name[i]), "tensor.%zu", i);
        for (uint32_t d = 0; d < desc[i].ndim; d++) {
            desc[i].shape[d] = 1 + (int64_t)(dyti_rng_u64(seed, i / 3, d, 2) %
                                             (desc[i].ndim > 2 ? 6 : 20));
        }
    }
    assert_ok(dyti_model_build_listed(desc, count, &model));
    return model;
}

static inline uint64_t lw_pick(const struct lw_case *c, uint64_t a, uint64_t b,
                               uint64_t count)
{
    return dyti_rng_u64(c->seed + c->trial, a, b, 0x11) % count;
}

/* ---- values -------------------------------------------------------------- */

static inline uint8_t lw_dtype(const struct lw_case *c, bool is_source,
                               uint32_t tensor)
{
    uint64_t what = lw_pick(c, 100, tensor, 8);

    if (c->plain) {
        return DYTI_F32;
    }
    if (what == 0) {
        return DYTI_I32;
    }
    if (what == 1) {
        return DYTI_I64;
    }
    return (uint8_t)lw_pick(c, is_source ? 101 : 102, tensor, 3);
}

static inline float lw_float(uint64_t bits)
{
    return (float)(dyti_rng_unit(bits) * 8.0 - 4.0);
}

static inline void lw_store(uint8_t dtype, float x, unsigned char *at)
{
    uint16_t narrow =
        dtype == DYTI_BF16 ? dyti_f32_to_bf16(x) : dyti_f32_to_f16(x);

    if (dtype == DYTI_F32) {
        memcpy(at, &x, sizeof(x));
    } else {
        memcpy(at, &narrow, sizeof(narrow));
    }
}

static inline float lw_load(uint8_t dtype, const unsigned char *at)
{
    uint16_t narrow;
    float x;

    if (dtype == DYTI_F32) {
        memcpy(&x, at, sizeof(x));
        return x;
    }
    memcpy(&narrow, at, sizeof(narrow));
    return dtype == DYTI_BF16 ? dyti_bf16_to_f32(narrow)
                              : dyti_f16_to_f32(narrow);
}

/* An element as a source stores it / as a receiver must. */
static inline void lw_value(const struct lw_case *c, uint64_t version,
                            uint32_t tensor, uint64_t index, bool is_source,
                            unsigned char *out)
{
    uint64_t bits = dyti_rng_u64(c->seed + version * 1000003, tensor, index, 7);
    uint8_t have = lw_dtype(c, true, tensor);

    if (have > DYTI_F16) {
        memcpy(out, &bits, dyti_dtype_bytes((enum dyti_dtype)have));
        return;
    }
    lw_store(have, lw_float(bits), out);
    if (!is_source) {
        uint8_t want = lw_dtype(c, false, tensor);

        /* The snapshot narrows first, and only as far as the receiver. */
        lw_store(want, lw_load(have, out), out);
    }
}

/* ---- rows ---------------------------------------------------------------- */

static inline void lw_cut(const struct lw_case *c, bool is_source,
                          uint32_t part, uint32_t parts, uint32_t tensor,
                          struct dyt_box *out)
{
    const struct dyti_tensor *t = &c->model->tensor[tensor];
    uint64_t side = is_source ? 200 : 300;
    uint32_t axis = (uint32_t)lw_pick(c, side, tensor, t->ndim);
    int64_t cut[LW_MEMBERS + 1] = {0};

    *out = (struct dyt_box){.ndim = t->ndim};
    memcpy(out->hi, t->shape, t->ndim * sizeof(t->shape[0]));
    if (lw_pick(c, side + 1, tensor, 4) == 0) {
        return; /* whole on all */
    }
    for (uint32_t i = 1; i < parts; i++) {
        int64_t at = (int64_t)lw_pick(c, side + 2, tensor * 16 + i,
                                      (uint64_t)t->shape[axis] + 1);
        uint32_t j = i;

        for (; j > 1 && cut[j - 1] > at; j--) {
            cut[j] = cut[j - 1];
        }
        cut[j] = at;
    }
    cut[parts] = t->shape[axis];
    out->lo[axis] = cut[part];
    out->hi[axis] = cut[part + 1];
}

static inline struct dyt_row *lw_add_row(struct lw_member *m, uint8_t dtype,
                                         uint32_t ndim, const int64_t *shape)
{
    struct dyt_row *row = &m->row[m->row_count];

    *row = (struct dyt_row){.struct_size = sizeof(*row),
                            .kind = m->is_source && m->c->master ? DYT_MASTER
                                                                 : DYT_PARAM,
                            .dtype = dtype,
                            .flags = m->is_source ? DYT_ROW_READ_ONLY : 0,
                            .name = m->name[m->row_count],
                            .ndim = ndim,
                            .fd = -1};
    (void)snprintf(m->name[m->row_count], sizeof(m->name[0]), "row%u",
                   m->row_count);
    memcpy(row->shape, shape, ndim * sizeof(shape[0]));
    m->row_count++;
    return row;
}

static inline void lw_dense(struct dyt_row *row, int64_t pad)
{
    int64_t step = 1;

    for (uint32_t d = row->ndim; d-- > 0;) {
        row->stride[d] = step;
        step *= row->shape[d] > 0 ? row->shape[d] : 1;
        step += d + 1 == row->ndim ? pad : 0;
    }
}

static inline struct dyti_row_piece *lw_add_piece(struct lw_member *m,
                                                  uint32_t tensor,
                                                  const struct dyt_box *box)
{
    struct dyti_row_piece *p = &m->piece[m->piece_count++];

    *p = (struct dyti_row_piece){
        .row = m->row_count - 1, .tensor = tensor, .box = *box};
    return p;
}

/* A source's row: a flat range of the box that it would hold along axis 0, or
 * the box; the last dim padded, or transposed. */
static inline void lw_flat_row(struct lw_member *m, uint32_t tensor)
{
    const struct lw_case *c = m->c;
    const struct dyti_tensor *t = &c->model->tensor[tensor];
    int64_t cols = t->ndim == 2 ? t->shape[1] : 1, rows = t->shape[0];
    int64_t all = rows * cols, element, at = 0;
    int64_t lo = all * m->rank / c->sources;
    int64_t hi = all * (m->rank + 1) / c->sources;
    uint8_t dtype = lw_dtype(c, true, tensor);
    struct dyt_row *row;

    at = hi - lo;
    row = lw_add_row(m, dtype, 1, &at);
    element = dyti_dtype_bytes((enum dyti_dtype)dtype);
    lw_dense(row, 0);
    for (at = lo; at < hi;) {
        struct dyt_box box = {.ndim = t->ndim};
        int64_t end = hi;
        struct dyti_row_piece *p;

        if (at % cols != 0 || hi - at < cols) { /* part of one row */
            end = at - at % cols + cols < hi ? at - at % cols + cols : hi;
            box.lo[0] = at / cols;
            box.hi[0] = at / cols + 1;
            box.lo[1] = at % cols;
            box.hi[1] = at % cols + (end - at);
        } else {
            end = hi - hi % cols;
            box.lo[0] = at / cols;
            box.hi[0] = end / cols;
            box.hi[1] = cols;
        }
        p = lw_add_piece(m, tensor, &box);
        p->offset = (uint64_t)((at - lo) * element);
        p->stride[0] = cols * element;
        p->stride[1] = element;
        at = end;
    }
}

static inline void lw_plain_row(struct lw_member *m, uint32_t tensor,
                                const struct dyt_box *box)
{
    const struct lw_case *c = m->c;
    uint8_t dtype = lw_dtype(c, m->is_source, tensor);
    int64_t element = dyti_dtype_bytes((enum dyti_dtype)dtype);
    uint64_t form = lw_pick(c, 400 + m->is_source, tensor, 4);
    int64_t shape[DYT_MAX_DIMS] = {0};
    struct dyti_row_piece *p;
    struct dyt_row *row;
    bool turned = form == 0 && box->ndim == 2;

    for (uint32_t d = 0; d < box->ndim; d++) {
        uint32_t from = turned ? 1 - d : d;

        shape[d] = box->hi[from] - box->lo[from];
    }
    row = lw_add_row(m, dtype, box->ndim, shape);
    lw_dense(row, form == 1 ? 3 : 0);
    p = lw_add_piece(m, tensor, box);
    for (uint32_t d = 0; d < box->ndim; d++) {
        p->stride[d] = row->stride[turned ? 1 - d : d] * element;
    }
}

static inline bool lw_same_tail(const struct dyt_box *a,
                                const struct dyt_box *b, uint32_t from)
{
    for (uint32_t d = from; d < a->ndim; d++) {
        if (a->hi[d] - a->lo[d] != b->hi[d] - b->lo[d]) {
            return false;
        }
    }
    return a->ndim == b->ndim;
}

/* A receiver's row of `count` tensors from `first` on: fused along axis 0, or
 * stacked on an axis of its own. */
static inline void lw_joined_row(struct lw_member *m, uint32_t first,
                                 const struct dyt_box *box, uint32_t count,
                                 bool stacked)
{
    uint8_t dtype = lw_dtype(m->c, false, first);
    int64_t element = dyti_dtype_bytes((enum dyti_dtype)dtype);
    uint32_t ndim = box->ndim + stacked, shift = stacked;
    int64_t shape[DYT_MAX_DIMS] = {0}, at = 0;
    struct dyt_row *row;

    for (uint32_t i = 0; i < count; i++) {
        shape[0] += stacked ? 1 : box[i].hi[0] - box[i].lo[0];
    }
    for (uint32_t d = stacked ? 0 : 1; d < box->ndim; d++) {
        shape[d + shift] = box->hi[d] - box->lo[d];
    }
    row = lw_add_row(m, dtype, ndim, shape);
    lw_dense(row, 0);
    for (uint32_t i = 0; i < count; i++) {
        struct dyti_row_piece *p = lw_add_piece(m, first + i, &box[i]);

        p->offset = (uint64_t)(at * row->stride[0] * element);
        for (uint32_t d = 0; d < box->ndim; d++) {
            p->stride[d] = row->stride[d + shift] * element;
        }
        at += stacked ? 1 : box[i].hi[0] - box[i].lo[0];
    }
}

static inline void lw_receiver_rows(struct lw_member *m)
{
    const struct lw_case *c = m->c;
    uint32_t parts = c->members - c->sources, part = m->rank - c->sources;

    for (uint32_t t = 0; t < c->model->tensor_count;) {
        struct dyt_box box[8];
        uint32_t count = 1;
        bool stacked = lw_pick(c, 500, t, 2) == 0;
        uint8_t dtype = lw_dtype(c, false, t);

        lw_cut(c, false, part, parts, t, &box[0]);
        while (count < 8 && t + count < c->model->tensor_count &&
               lw_pick(c, 501, t + count, 3) != 0) {
            lw_cut(c, false, part, parts, t + count, &box[count]);
            if (lw_dtype(c, false, t + count) != dtype ||
                !lw_same_tail(&box[0], &box[count], stacked ? 0 : 1)) {
                break;
            }
            count++;
        }
        if (count == 1) {
            lw_plain_row(m, t, &box[0]);
        } else {
            lw_joined_row(m, t, box, count, stacked);
        }
        t += count;
    }
}

static inline void lw_source_rows(struct lw_member *m)
{
    const struct lw_case *c = m->c;

    for (uint32_t t = 0; t < c->model->tensor_count; t++) {
        struct dyt_box box;

        if (c->model->tensor[t].ndim <= 2 && lw_pick(c, 210, t, 3) == 0) {
            lw_flat_row(m, t);
        } else {
            lw_cut(c, true, m->rank, c->sources, t, &box);
            lw_plain_row(m, t, &box);
        }
    }
}

#endif /* DYT_LINK_ROWS_H */
