/* Members of a session in one process, through the public calls: a trainer and
 * servers with two small tensors, cut by rows between their ranks. */
#ifndef SESSION_WORLD_H
#define SESSION_WORLD_H

#include "dyt_ranks.h"

#include <dynatrain/session.h>
#include <sys/stat.h>

#define ROWS   64
#define COLS   32
#define SECOND 1000000000ll

static const char *const names[2] = {"a.weight", "b.weight"};

struct member {
    dyt_session *session;
    struct dyt_session_params join;
    struct dyt_row row[2];
    struct dyt_piece piece[2];
    float *own[2];
    int64_t lo, hi;
    char address[160];
};

static inline float value_of(uint64_t version, int tensor, int64_t row,
                             int64_t col)
{
    return (float)(version * 10000 + (uint64_t)(tensor * 5000) +
                   (uint64_t)(row * COLS + col));
}

static inline void write_version(struct member *m, uint64_t version)
{
    for (int t = 0; t < 2; t++) {
        for (int64_t i = 0; i < (m->hi - m->lo) * COLS; i++) {
            m->own[t][i] = value_of(version, t, m->lo + i / COLS, i % COLS);
        }
    }
}

/* The version that all elements are of; 0: mixed, or not readable. */
static inline uint64_t version_of(struct member *m)
{
    uint64_t version = 0;

    for (uint64_t t = 0; t < 2; t++) {
        void *data = NULL;
        const float *f;

        if ((m->row[t].flags & DYT_ROW_STAGED) != 0
                ? dyt_session_staged(m->session, t, &data) != DYT_OK
                : dyt_session_row_data(m->session, t, &data) != DYT_OK) {
            return 0;
        }
        f = data;
        version = t == 0 ? (uint64_t)f[0] / 10000 : version;
        for (int64_t i = 0; i < (m->hi - m->lo) * COLS; i++) {
            if (f[i] != value_of(version, (int)t, m->lo + i / COLS, i % COLS)) {
                return 0;
            }
        }
    }
    return version;
}

static inline struct dyt_view view_of(struct member *m)
{
    return (struct dyt_view){.struct_size = sizeof(struct dyt_view),
                             .row_struct_size = sizeof(m->row[0]),
                             .row = m->row,
                             .row_count = 2};
}

/* Rank `rank` of `size`, not joined yet. */
static inline void describe(struct member *m, const char *folder, uint32_t role,
                            uint32_t replica, uint32_t rank, uint32_t size)
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
    m->lo = ROWS / size * rank;
    m->hi = ROWS / size * (rank + 1);
    for (int t = 0; t < 2; t++) {
        m->own[t] = calloc((size_t)(m->hi - m->lo) * COLS, sizeof(float));
        m->piece[t] = (struct dyt_piece){.struct_size = sizeof(m->piece[t]),
                                         .tensor = names[t],
                                         .box = {2, {m->lo, 0}, {m->hi, COLS}}};
        m->row[t] = (struct dyt_row){.struct_size = sizeof(m->row[t]),
                                     .kind = DYT_PARAM,
                                     .dtype = DYT_F32,
                                     .name = names[t],
                                     .ndim = 2,
                                     .shape = {m->hi - m->lo, COLS},
                                     .global_shape = {ROWS, COLS},
                                     .data = m->own[t],
                                     .fd = -1,
                                     .piece = &m->piece[t],
                                     .piece_count = 1,
                                     .piece_struct_size = sizeof(m->piece[t])};
    }
}

static inline enum dyt_status enter(struct member *m)
{
    struct dyt_view view;
    enum dyt_status st = dyt_session_join(&m->join, &m->session);

    if (st == DYT_OK && m->join.memory == DYT_MEMORY_MAPPED) {
        st = dyt_session_map(m->session, m->row, 2);
    }
    view = view_of(m);
    return st != DYT_OK ? st : dyt_session_publish(m->session, &view, NULL);
}

static inline void leave(struct member *m)
{
    dyt_session_leave(m->session);
    free(m->own[0]);
    free(m->own[1]);
    memset(m, 0, sizeof(*m));
}

static inline enum dyt_status offer(struct member *m, uint64_t version,
                                    bool snapshot, dyt_ticket **out)
{
    struct dyt_offer_params p = {
        .struct_size = sizeof(p), .version = version, .snapshot = snapshot};

    return dyt_session_offer(m->session, &p, out);
}

static inline enum dyt_status receive(struct member *m, uint64_t version)
{
    struct dyt_switch_report r = {.struct_size = sizeof(r)};

    return dyt_session_receive(m->session, version, -1, &r);
}

/* A trainer of one rank (hosting), and one receiver. */
static inline void pair(struct member *t, struct member *r, const char *folder,
                        uint32_t commit, uint32_t memory)
{
    assert_int_equal(0, chmod(folder, 0700));
    describe(t, folder, DYT_ROLE_TRAINER, 0, 0, 1);
    describe(r, folder, DYT_ROLE_RECEIVER, 0, 0, 1);
    r->join.commit = commit;
    r->join.memory = memory;
    assert_ok(enter(t));
    assert_ok(enter(r));
}

static inline void send_version(struct member *t, struct member *r,
                                uint64_t version)
{
    dyt_ticket *ticket;

    write_version(t, version);
    assert_ok(offer(t, version, false, &ticket));
    assert_ok(receive(r, version));
    assert_ok(dyt_ticket_wait(ticket, -1));
    dyt_ticket_destroy(ticket);
    assert_int_equal(version, version_of(r));
}

#endif /* SESSION_WORLD_H */
