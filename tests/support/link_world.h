/* Members of a link for tests: their rows (link_rows.h) in memory, and a board
 * where members that are processes or threads show each other their memory. */
#ifndef DYT_LINK_WORLD_H
#define DYT_LINK_WORLD_H

#include "link_rows.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>

/* ---- memory -------------------------------------------------------------- */

static inline uint64_t lw_row_bytes(const struct dyt_row *row)
{
    uint64_t bytes = dyti_dtype_bytes((enum dyti_dtype)row->dtype);
    uint64_t sum = bytes;

    for (uint32_t d = 0; d < row->ndim; d++) {
        if (row->shape[d] == 0) {
            return 0;
        }
        sum += (uint64_t)(row->shape[d] - 1) * (uint64_t)row->stride[d] * bytes;
    }
    return sum;
}

/* Rows one after the other, at odd places. */
static inline bool lw_place(struct lw_member *m, enum lw_memory kind)
{
    uint64_t at = 0, place[LW_ROWS];

    for (uint32_t i = 0; i < m->row_count; i++) {
        uint64_t e = dyti_dtype_bytes((enum dyti_dtype)m->row[i].dtype);

        at += lw_pick(m->c, 600 + m->rank, i, 3) * e;
        at = (at + e - 1) / e * e;
        place[i] = at;
        at += lw_row_bytes(&m->row[i]);
    }
    m->arena_bytes = (at + 4096 + 4095) / 4096 * 4096;
    m->arena_fd = -1;
    if (kind == LW_SHARED) {
        m->arena_fd = memfd_create("rows", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (m->arena_fd < 0 ||
            ftruncate(m->arena_fd, (off_t)m->arena_bytes) != 0 ||
            (lw_pick(m->c, 650 + m->rank, 0, 2) == 0 && /* or truncatable */
             fcntl(m->arena_fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0)) {
            return false;
        }
        m->arena = mmap(NULL, m->arena_bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED, m->arena_fd, 0);
    } else {
        m->arena = mmap(NULL, m->arena_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    m->mask = calloc(m->arena_bytes, 1);
    if (m->arena == MAP_FAILED || m->mask == NULL) {
        return false;
    }
    memset(m->arena, LW_GUARD, m->arena_bytes);
    for (uint32_t i = 0; i < m->row_count; i++) {
        m->row[i].data = m->arena + place[i];
        m->row[i].fd = m->arena_fd;
        m->row[i].fd_offset = m->arena_fd < 0 ? 0 : place[i];
    }
    return true;
}

/* Calls fn for each element of each piece. */
typedef void (*lw_element_fn)(struct lw_member *m, unsigned char *at,
                              uint32_t bytes, uint32_t tensor, uint64_t index,
                              void *arg);

static inline void lw_each(struct lw_member *m, uint32_t set, lw_element_fn fn,
                           void *arg)
{
    for (uint32_t i = 0; i < m->piece_count; i++) {
        const struct dyti_row_piece *p = &m->piece[i];
        const struct dyti_tensor *t = &m->c->model->tensor[p->tensor];
        const struct dyt_row *row = &m->row[p->row];
        unsigned char *base = m->mapped == NULL
                                  ? row->data
                                  : dyti_mapped_row(m->mapped, p->row, set);
        int64_t at[DYT_MAX_DIMS];
        bool empty = false;

        memcpy(at, p->box.lo, sizeof(at));
        for (uint32_t d = 0; d < t->ndim; d++) {
            empty |= p->box.lo[d] >= p->box.hi[d];
        }
        while (!empty) {
            uint64_t index = 0;
            int64_t place = (int64_t)p->offset;
            uint32_t d = t->ndim;

            for (uint32_t k = 0; k < t->ndim; k++) {
                index = index * (uint64_t)t->shape[k] + (uint64_t)at[k];
                place += (at[k] - p->box.lo[k]) * p->stride[k];
            }
            fn(m, base + place, dyti_dtype_bytes((enum dyti_dtype)row->dtype),
               p->tensor, index, arg);
            while (d > 0 && ++at[d - 1] == p->box.hi[d - 1]) {
                at[d - 1] = p->box.lo[d - 1];
                d--;
            }
            empty = d == 0;
        }
    }
}

static inline void lw_put(struct lw_member *m, unsigned char *at,
                          uint32_t bytes, uint32_t tensor, uint64_t index,
                          void *arg)
{
    unsigned char value[8];

    lw_value(m->c, *(const uint64_t *)arg, tensor, index, m->is_source, value);
    memcpy(at, value, bytes);
    if (m->mapped == NULL) {
        memset(m->mask + (at - m->arena), 1, bytes);
    }
}

/* All elements become those of a version. */
static inline void lw_fill(struct lw_member *m, uint64_t version)
{
    lw_each(m, 0, lw_put, &version);
}

struct lw_wrong {
    uint64_t version, count, tensor, index;
};

static inline void lw_compare(struct lw_member *m, unsigned char *at,
                              uint32_t bytes, uint32_t tensor, uint64_t index,
                              void *arg)
{
    struct lw_wrong *wrong = arg;
    unsigned char value[8];

    lw_value(m->c, wrong->version, tensor, index, m->is_source, value);
    if (memcmp(at, value, bytes) != 0 && wrong->count++ == 0) {
        wrong->tensor = tensor;
        wrong->index = index;
    }
}

/* Elements that are not those of a version. */
static inline struct lw_wrong lw_check(struct lw_member *m, uint32_t set,
                                       uint64_t version)
{
    struct lw_wrong wrong = {.version = version};

    lw_each(m, set, lw_compare, &wrong);
    return wrong;
}

/* Nothing between the rows was touched. */
static inline bool lw_guards(const struct lw_member *m)
{
    for (uint64_t i = 0; m->mapped == NULL && i < m->arena_bytes; i++) {
        if (m->mask[i] == 0 && m->arena[i] != LW_GUARD) {
            return false;
        }
    }
    return true;
}

/* ---- board --------------------------------------------------------------- */

static inline void lw_meet(const struct lw_case *c, uint32_t point)
{
    (void)atomic_fetch_add(&c->board->met[point], 1);
    while (atomic_load(&c->board->met[point]) < c->members) {
        (void)sched_yield();
    }
}

static inline bool lw_show(struct lw_slot *slot, uint32_t set,
                           const struct dyti_memory_view *memory)
{
    struct dyti_memory_view *out = &slot->view[set];

    if (memory->extent_count > LW_EXTENTS ||
        memory->view.shard_count > LW_SHARDS) {
        return false;
    }
    *out = *memory;
    out->extent = NULL;
    out->view.shard = NULL;
    out->shard_row = out->row_as = NULL;
    memcpy(slot->extent[set], memory->extent,
           memory->extent_count * sizeof(*memory->extent));
    memcpy(slot->shard[set], memory->view.shard,
           memory->view.shard_count * sizeof(*memory->view.shard));
    return true;
}

/* What the others have shown; the own one with what only the owner knows. */
static inline void lw_look(struct lw_member *m)
{
    for (uint32_t r = 0; r < m->c->members; r++) {
        struct lw_slot *slot = &m->c->board->slot[r];

        for (uint32_t set = 0; set < 2; set++) {
            struct dyti_memory_view *to = set == 0 ? &m->all[r] : &m->other[r];

            *to = slot->view[set];
            to->extent = slot->extent[set];
            to->view.shard = slot->shard[set];
        }
    }
    m->all[m->rank].shard_row = m->memory.shard_row;
    m->all[m->rank].row_as = m->memory.row_as;
    m->other[m->rank].shard_row = m->second.shard_row;
    m->other[m->rank].row_as = m->second.row_as;
}

/* ---- a member ------------------------------------------------------------ */

static inline enum dyt_status lw_describe(struct lw_member *m)
{
    struct dyt_view rows = {.struct_size = sizeof(rows),
                            .row_struct_size = sizeof(struct dyt_row),
                            .row = m->row,
                            .row_count = m->row_count};
    struct dyti_row_pieces pieces = {.piece = m->piece,
                                     .count = m->piece_count};
    struct dyt_row second[LW_ROWS];
    enum dyt_status st =
        dyti_memory_view_build(m->c->model, &rows, &pieces, &m->memory);

    if (st != DYT_OK || m->mapped == NULL ||
        m->c->commit != DYT_COMMIT_DOUBLE) {
        return st;
    }
    memcpy(second, m->row, m->row_count * sizeof(second[0]));
    for (uint32_t i = 0; i < m->row_count; i++) {
        second[i].data = dyti_mapped_row(m->mapped, i, 1);
        second[i].fd = dyti_mapped_fd(m->mapped, 1);
    }
    rows.row = second;
    return dyti_memory_view_build(m->c->model, &rows, &pieces, &m->second);
}

/* A mapped row is dense: pieces get its strides. */
static inline void lw_remap_pieces(struct lw_member *m,
                                   const struct dyt_row *before)
{
    for (uint32_t i = 0; i < m->piece_count; i++) {
        struct dyti_row_piece *p = &m->piece[i];
        const struct dyt_row *old = &before[p->row], *row = &m->row[p->row];
        int64_t e = dyti_dtype_bytes((enum dyti_dtype)row->dtype);

        for (uint32_t d = 0; d < p->box.ndim; d++) {
            for (uint32_t k = 0; k < row->ndim; k++) {
                if (row->shape[k] == p->box.hi[d] - p->box.lo[d] &&
                    old->stride[k] * e == p->stride[d]) {
                    p->stride[d] = row->stride[k] * e;
                    break;
                }
            }
        }
    }
}

/* What receivers have, of every kind. */
static inline uint8_t *lw_wishes(const struct lw_case *c)
{
    uint32_t tensors = c->model->tensor_count;
    uint8_t *dtype = malloc((size_t)DYTI_KIND_COUNT * tensors + 1);

    for (uint32_t i = 0; dtype != NULL && i < DYTI_KIND_COUNT * tensors; i++) {
        dtype[i] = lw_dtype(c, false, i % tensors);
    }
    return dtype;
}

/* Rows, memory, and version `version` in it. */
static inline enum dyt_status lw_member_init(struct lw_member *m,
                                             const struct lw_case *c,
                                             uint32_t rank, uint64_t version)
{
    enum dyt_status st = DYT_OK;

    memset(m, 0, sizeof(*m));
    m->c = c;
    m->rank = rank;
    m->is_source = rank < c->sources;
    if (m->is_source) {
        lw_source_rows(m);
    } else {
        lw_receiver_rows(m);
    }
    if (!lw_place(m, m->is_source ? c->source_memory : c->target_memory)) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "an arena");
    }
    lw_fill(m, version);
    if (!m->is_source && c->commit == DYT_COMMIT_DOUBLE) {
        struct dyt_row before[LW_ROWS];

        for (uint32_t i = 0; i < m->row_count; i++) {
            m->row[i].fd = -1;
            before[i] = m->row[i];
        }
        st = dyti_mapped_open(m->row, m->row_count, 2, &m->mapped);
        if (st == DYT_OK) {
            lw_remap_pieces(m, before);
        }
    }
    st = st != DYT_OK ? st : lw_describe(m);
    if (st == DYT_OK && m->is_source && c->snapshot) {
        uint8_t *dtype = lw_wishes(c);

        st = dyti_snapshot_open(c->model, &m->memory, dtype, 0, &m->snapshot);
        free(dtype);
    }
    return st;
}

static inline bool lw_share(struct lw_member *m)
{
    const struct dyti_memory_view *own =
        m->snapshot != NULL ? dyti_snapshot_view(m->snapshot) : &m->memory;

    return lw_show(&m->c->board->slot[m->rank], 0, own) &&
           (m->second.extent == NULL ||
            lw_show(&m->c->board->slot[m->rank], 1, &m->second));
}

static inline struct dyti_link_params lw_params(struct lw_member *m)
{
    return (struct dyti_link_params){
        .struct_size = sizeof(struct dyti_link_params),
        .rank = m->rank,
        .member_count = m->c->members,
        .source_count = m->c->sources,
        .catalogue = m->c->model,
        .memory = m->all,
        .second = m->c->commit == DYT_COMMIT_DOUBLE ? m->other : NULL,
        .control_fd = m->c->control,
        .control = m->c->threads ? m->c->control_at : NULL,
        .commit = m->c->commit,
        .verify = m->c->verify,
        .kinds = 1u << DYTI_PARAM,
        .cap_bytes = m->c->cap_bytes,
        .timeout_ns = 20000000000};
}

/* Version 1 has come over a link that is open, and the sources hold 2. */
static inline bool lw_start(struct dyt_rank *me, struct lw_member *m,
                            const struct lw_case *c)
{
    struct dyti_link_params params;
    struct dyti_switch_report report;
    enum dyt_status st = lw_member_init(m, c, me->rank, 1);

    if (st == DYT_OK && !lw_share(m)) {
        st = DYT_ERR_NOMEM;
    }
    lw_meet(c, 0);
    lw_look(m);
    params = lw_params(m);
    st = st != DYT_OK ? st : dyti_link_open(&params, &m->link);
    st = st != DYT_OK ? st : dyti_link_run(m->link, 1, 1, &report);
    if (st != DYT_OK) {
        rank_wrong(me, "starting: %s", dyti_error_text());
    }
    if (m->is_source) {
        lw_fill(m, 2);
    }
    lw_meet(c, 1);
    return st == DYT_OK;
}

static inline void lw_member_fini(struct lw_member *m)
{
    dyti_link_close(m->link);
    dyti_snapshot_close(m->snapshot);
    dyti_memory_view_fini(&m->memory);
    dyti_memory_view_fini(&m->second);
    dyti_mapped_close(m->mapped);
    if (m->arena != NULL && m->arena != MAP_FAILED) {
        (void)munmap(m->arena, m->arena_bytes);
    }
    if (m->arena_fd >= 0) {
        (void)close(m->arena_fd);
    }
    free(m->mask);
}

static inline void lw_case_init(struct lw_case *c)
{
    uint64_t bytes = dyti_link_control_bytes(c->members);

    if (c->model == NULL && lw_pick(c, 9, 0, 2) == 0) {
        c->model = lw_listed(c->seed + c->trial);
    }
    if (c->model == NULL) {
        struct dyti_arch arch = dyt_case_arch(c->seed, c->trial);

        assert_ok(dyti_model_build(&arch, &c->model));
    }
    assert_ok(dyti_link_control_make(c->members, &c->control));
    c->control_at =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, c->control, 0);
    assert_true(c->control_at != MAP_FAILED);
    c->board = dyt_ranks_shared(sizeof(*c->board));
}

static inline void lw_case_fini(struct lw_case *c)
{
    (void)munmap(c->board, sizeof(*c->board));
    (void)munmap(c->control_at, dyti_link_control_bytes(c->members));
    (void)close(c->control);
    dyti_model_destroy(c->model);
}

static inline void lw_add_hash(struct lw_member *m, unsigned char *at,
                               uint32_t bytes, uint32_t tensor, uint64_t index,
                               void *arg)
{
    uint64_t bits = 0;

    (void)m;
    memcpy(&bits, at, bytes);
    *(uint64_t *)arg +=
        dyti_content_mix(dyti_content_salt(tensor, DYTI_PARAM), index, bits);
}

/* Hashes of all rows are those of all their elements. */
static inline void lw_check_hashes(struct dyt_rank *me, struct lw_member *m)
{
    uint64_t want = 0, sum = 0;

    lw_each(m, dyti_link_live_set(m->link), lw_add_hash, &want);
    for (uint32_t i = 0; i < m->row_count; i++) {
        uint64_t hash = 0;

        rank_ok(me, dyti_link_row_hash(m->link, i, &hash));
        sum += hash;
    }
    rank_true(me, sum == want);
}

/* The live set is of this version, whole, and nothing besides was touched. */
static inline void lw_check_arrived(struct dyt_rank *me, struct lw_member *m,
                                    uint64_t version)
{
    struct lw_wrong wrong = lw_check(m, dyti_link_live_set(m->link), version);

    if (wrong.count > 0) {
        rank_wrong(me,
                   "trial %" PRIu64 ": %" PRIu64
                   " elements are not those of version %" PRIu64
                   ", the first of tensor %" PRIu64 " at %" PRIu64,
                   m->c->trial, wrong.count, version, wrong.tensor,
                   wrong.index);
        return;
    }
    rank_true(me, lw_guards(m));
    rank_ok(me, dyti_link_valid(m->link));
    lw_check_hashes(me, m);
}

#endif /* DYT_LINK_WORLD_H */
