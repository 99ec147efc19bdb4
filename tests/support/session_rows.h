/* Rows of a session's member, for tests: of any shape, with the truth about
 * what each element is, and versions written and checked element by element.
 *
 * The truth of a row is its pieces.  A member `by_rules` publishes its rows
 * without them, so that a table of rules must come to the same. */
#ifndef SESSION_ROWS_H
#define SESSION_ROWS_H

#include "dyt_test.h"

#include <dynatrain/session.h>

#define MEMBER_ROWS  64u
#define MEMBER_PARTS 192u
#define NAME_BYTES   72u
#define UNTOUCHED    (-7.0f) /* what elements hold that are of no tensor */
#define SECOND       1000000000ll

struct member {
    dyt_session *session;
    struct dyt_session_params join;
    struct dyt_session_hooks hooks;
    const struct dyt_rules *rules;
    bool by_rules, hooked;
    void *heap; /* itself, where it was allocated */
    struct dyt_row row[MEMBER_ROWS];
    void *own[MEMBER_ROWS]; /* where it was allocated */
    char name[MEMBER_ROWS][NAME_BYTES];
    uint32_t rows;
    struct dyt_piece piece[MEMBER_PARTS];
    char tensor[MEMBER_PARTS][NAME_BYTES];
    uint32_t first_piece[MEMBER_ROWS + 1], pieces; /* of row r: from [r] on */
    bool padded[MEMBER_ROWS]; /* by rule: what is of no tensor is zero */
    char address[160];
    /* Of the last call. */
    enum dyt_status status;
    char text[4096];
    struct dyt_switch_report report;
    dyt_ticket *ticket;
    /* Arguments of the next. */
    uint64_t version;
    int64_t deadline_ns;
};

/* ---- rows ---------------------------------------------------------------- */

/* Without rows, and not joined. */
static inline void member_init(struct member *m, const char *folder,
                               uint32_t role, uint32_t replica, uint32_t rank,
                               uint32_t size)
{
    memset(m, 0, sizeof(*m));
    snprintf(m->address, sizeof(m->address), "unix:%s/s.sock", folder);
    m->join = (struct dyt_session_params){.struct_size = sizeof(m->join),
                                          .role = role,
                                          .address = m->address,
                                          .job = "job",
                                          .replica = replica,
                                          .rank = rank,
                                          .size = size,
                                          .tp_rank = rank,
                                          .tp_size = size,
                                          .verify = DYT_VERIFY_FULL,
                                          .timeout_ns = 20 * SECOND};
    m->deadline_ns = -1;
}

static inline struct member *member_new(const char *folder, uint32_t role,
                                        uint32_t replica, uint32_t rank,
                                        uint32_t size)
{
    struct member *m = malloc(sizeof(*m));

    assert_non_null(m);
    member_init(m, folder, role, replica, rank, size);
    m->heap = m;
    return m;
}

static inline size_t row_elements(const struct dyt_row *row)
{
    size_t n = 1, most = 1;

    for (uint32_t d = 0; d < row->ndim; d++) {
        n *= (size_t)row->shape[d];
        most += (size_t)((row->shape[d] - 1) * row->stride[d]);
    }
    return row->stride[row->ndim - 1] != 0 && n > 0 ? most : n;
}

static inline size_t element_bytes(const struct dyt_row *row)
{
    return row->dtype == DYT_F32 || row->dtype == DYT_I32 ? 4u
           : row->dtype == DYT_I64                        ? 8u
                                                          : 2u;
}

static inline void put(const struct dyt_row *row, size_t at, float value)
{
    if (row->dtype == DYT_F32) {
        ((float *)row->data)[at] = value;
    } else if (row->dtype == DYT_I32) {
        ((int32_t *)row->data)[at] = (int32_t)value;
    } else if (row->dtype == DYT_I64) {
        ((int64_t *)row->data)[at] = (int64_t)value;
    } else { /* bf16: all values of these tests are exact in it */
        uint32_t bits;

        memcpy(&bits, &value, sizeof(bits));
        ((uint16_t *)row->data)[at] = (uint16_t)(bits >> 16);
    }
}

static inline float get(const struct dyt_row *row, const void *data, size_t at)
{
    uint32_t bits;
    float value;

    if (row->dtype == DYT_F32) {
        return ((const float *)data)[at];
    }
    if (row->dtype == DYT_I32) {
        return (float)((const int32_t *)data)[at];
    }
    if (row->dtype == DYT_I64) {
        return (float)((const int64_t *)data)[at];
    }
    bits = (uint32_t)((const uint16_t *)data)[at] << 16;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* A row with memory of its own; `pitch` > 0: elements from one index of axis 0
 * to the next, a view of something larger. */
static inline uint32_t member_row(struct member *m, const char *name,
                                  enum dyt_dtype dtype, uint32_t ndim,
                                  const int64_t *shape, int64_t pitch)
{
    uint32_t r = m->rows++;
    struct dyt_row *row = &m->row[r];

    assert_true(r < MEMBER_ROWS);
    snprintf(m->name[r], NAME_BYTES, "%s", name);
    *row = (struct dyt_row){.struct_size = sizeof(*row),
                            .kind = DYT_PARAM,
                            .dtype = dtype,
                            .name = m->name[r],
                            .ndim = ndim,
                            .fd = -1};
    memcpy(row->shape, shape, ndim * sizeof(*shape));
    if (pitch > 0) {
        row->stride[ndim - 1] = 1;
        row->stride[0] = ndim > 1 ? pitch : 1;
    }
    m->own[r] = calloc(row_elements(row) + (size_t)pitch + 1u, 8);
    assert_non_null(m->own[r]);
    row->data = m->own[r];
    for (size_t i = 0; i < row_elements(row); i++) {
        put(row, i, UNTOUCHED);
    }
    m->first_piece[r] = m->first_piece[r + 1] = m->pieces;
    return r;
}

#define SHAPE(...)                                                             \
    (int64_t[])                                                                \
    {                                                                          \
        __VA_ARGS__                                                            \
    }
#define NDIM(...)                                                              \
    ((uint32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))
#define ROW(m, name, dtype, ...)                                               \
    member_row((m), (name), (dtype), NDIM(__VA_ARGS__), SHAPE(__VA_ARGS__), 0)

/* The last row holds [lo, hi) of axis `axis` of a tensor (and all of the
 * others) from index `at` of the same axis on. */
static inline void member_piece(struct member *m, const char *tensor,
                                uint32_t ndim, const int64_t *shape,
                                uint32_t axis, int64_t lo, int64_t hi,
                                int64_t at)
{
    uint32_t p = m->pieces++, r = m->rows - 1;
    struct dyt_piece *piece = &m->piece[p];

    assert_true(p < MEMBER_PARTS);
    snprintf(m->tensor[p], NAME_BYTES, "%s", tensor);
    *piece = (struct dyt_piece){.struct_size = sizeof(*piece),
                                .tensor = m->tensor[p],
                                .box = {.ndim = ndim}};
    memcpy(piece->box.hi, shape, ndim * sizeof(*shape));
    piece->box.lo[axis] = lo;
    piece->box.hi[axis] = hi;
    piece->at[axis] = at;
    m->first_piece[r + 1] = m->pieces;
}

/* A row that is [lo, hi) of axis `axis` of the tensor of that name. */
static inline void member_cut(struct member *m, const char *tensor,
                              enum dyt_dtype dtype, uint32_t ndim,
                              const int64_t *shape, uint32_t axis, int64_t lo,
                              int64_t hi)
{
    int64_t own[DYT_MAX_DIMS];
    uint32_t r;

    memcpy(own, shape, ndim * sizeof(*shape));
    own[axis] = hi - lo;
    r = member_row(m, tensor, dtype, ndim, own, 0);
    memcpy(m->row[r].global_shape, shape, ndim * sizeof(*shape));
    member_piece(m, tensor, ndim, shape, axis, lo, hi, 0);
}

#define WHOLE(m, tensor, dtype, ...)                                           \
    member_cut((m), (tensor), (dtype), NDIM(__VA_ARGS__), SHAPE(__VA_ARGS__),  \
               0, 0, SHAPE(__VA_ARGS__)[0])

/* ---- versions ------------------------------------------------------------ */

#define VERSIONS 251u /* that differ */

/* Small whole numbers: exact in every dtype. */
static inline float value_of(uint64_t version, const char *tensor,
                             uint64_t index)
{
    uint64_t name = 0;

    for (const char *c = tensor; *c != '\0'; c++) {
        name = name * 31 + (uint64_t)*c;
    }
    return (float)((version * 37 + name * 11 + index * 7 + (index >> 8) * 3) %
                   VERSIONS);
}

/* Call `visit` with every element of the pieces of a row: where it lies, which
 * tensor's and which element. */
typedef bool (*member_visit_fn)(void *arg, const struct dyt_row *row, size_t at,
                                const char *tensor, uint64_t index);

static inline bool visit_piece(const struct member *m, uint32_t r, uint32_t p,
                               const int64_t *whole, member_visit_fn visit,
                               void *arg)
{
    const struct dyt_row *row = &m->row[r];
    const struct dyt_piece *piece = &m->piece[p];
    int64_t x[DYT_MAX_DIMS] = {0}, n = 1;

    for (uint32_t d = 0; d < piece->box.ndim; d++) {
        n *= piece->box.hi[d] - piece->box.lo[d];
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t at = 0, dense = 1;
        uint64_t index = 0;

        for (uint32_t d = row->ndim; d-- > 0;) {
            int64_t stride =
                row->stride[row->ndim - 1] != 0 ? row->stride[d] : dense;
            uint32_t lead = row->ndim - piece->box.ndim;
            uint32_t of = d - lead; /* dimension of the tensor */

            if (piece->transposed && d >= lead && of + 2 >= piece->box.ndim) {
                of = 2 * piece->box.ndim - 3 - of;
            }
            at += (piece->at[d] + (d >= lead ? x[of] : 0)) * stride;
            dense *= row->shape[d];
        }
        for (uint32_t d = 0; d < piece->box.ndim; d++) {
            index = index * (uint64_t)whole[d] +
                    (uint64_t)(piece->box.lo[d] + x[d]);
        }
        if (!visit(arg, row, (size_t)at, piece->tensor, index)) {
            return false;
        }
        for (uint32_t d = piece->box.ndim; d-- > 0;) {
            if (++x[d] < piece->box.hi[d] - piece->box.lo[d]) {
                break;
            }
            x[d] = 0;
        }
    }
    return true;
}

/* Tensors' shapes are known from what the caller counted with: axis extents
 * beyond the cut axis are whole, so an element's index needs only those.  The
 * first is never needed. */
static inline bool visit_row(const struct member *m, uint32_t r,
                             member_visit_fn visit, void *arg)
{
    for (uint32_t p = m->first_piece[r]; p < m->first_piece[r + 1]; p++) {
        int64_t whole[DYT_MAX_DIMS];

        for (uint32_t d = 0; d < DYT_MAX_DIMS; d++) {
            whole[d] = 4096; /* one numbering for whoever holds which cut */
        }
        if (!visit_piece(m, r, p, whole, visit, arg)) {
            return false;
        }
    }
    return true;
}

static inline bool write_element(void *arg, const struct dyt_row *row,
                                 size_t at, const char *tensor, uint64_t index)
{
    put(row, at, value_of(*(const uint64_t *)arg, tensor, index));
    return true;
}

static inline void write_version(struct member *m, uint64_t version)
{
    for (uint32_t r = 0; r < m->rows; r++) {
        visit_row(m, r, write_element, &version);
    }
}

struct version_check {
    uint64_t version;
    const void *data;
    bool *seen;
    const struct member *member;
};

static inline bool check_element(void *arg, const struct dyt_row *row,
                                 size_t at, const char *tensor, uint64_t index)
{
    struct version_check *c = arg;

    c->seen[at] = true;
    return get(row, c->data, at) == value_of(c->version, tensor, index);
}

static inline bool row_holds(struct member *m, uint32_t r, uint64_t version)
{
    size_t n = row_elements(&m->row[r]);
    float rest = m->padded[r] ? 0.0f : UNTOUCHED;
    struct version_check c = {.version = version,
                              .data = m->row[r].data,
                              .seen = calloc(n + 1u, 1),
                              .member = m};
    void *data = NULL;
    bool ok = c.seen != NULL;

    if (ok && m->join.role == DYT_ROLE_RECEIVER) {
        ok = ((m->row[r].flags & DYT_ROW_STAGED) != 0
                  ? dyt_session_staged(m->session, r, &data)
                  : dyt_session_row_data(m->session, r, &data)) == DYT_OK;
        c.data = data;
    }
    ok = ok && visit_row(m, r, check_element, &c);
    for (size_t i = 0; i < n && ok; i++) {
        ok = c.seen[i] || get(&m->row[r], c.data, i) == rest;
    }
    free(c.seen);
    return ok;
}

/* The first row that is not all of this version, or holds something else where
 * it was untouched; m->rows: none. */
static inline uint32_t row_not_of(struct member *m, uint64_t version)
{
    uint32_t r = 0;

    while (r < m->rows && row_holds(m, r, version)) {
        r++;
    }
    return r;
}

/* Are all elements of this version, and is all else as it was? */
static inline bool holds(struct member *m, uint64_t version)
{
    uint32_t r = row_not_of(m, version);

    if (r < m->rows) {
        print_error("rank %u: row %s is not version %" PRIu64 "\n",
                    m->join.rank, m->row[r].name, version);
    }
    return r == m->rows;
}

#endif /* SESSION_ROWS_H */
