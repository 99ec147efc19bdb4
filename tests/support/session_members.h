/* Members of a session in this process, for tests: rows (session_rows.h), and
 * calls that all members make at once.  Through the public headers alone. */
#ifndef SESSION_MEMBERS_H
#define SESSION_MEMBERS_H

#include "dyt_zmq_tsan.h"
#include "session_rows.h"

#include <pthread.h>
#include <sys/stat.h>

#define MEMBERS 12u

/* Errors' texts are the thread's. */
static inline enum dyt_status keep_status(struct member *m, enum dyt_status st)
{
    m->status = st;
    snprintf(m->text, sizeof(m->text), "%s",
             st == DYT_OK ? "" : dyt_error_text());
    return st;
}

static inline struct dyt_view member_view(struct member *m)
{
    for (uint32_t r = 0; r < m->rows && !m->by_rules; r++) {
        m->row[r].piece = &m->piece[m->first_piece[r]];
        m->row[r].piece_count = m->first_piece[r + 1] - m->first_piece[r];
        m->row[r].piece_struct_size = sizeof(m->piece[0]);
    }
    return (struct dyt_view){.struct_size = sizeof(struct dyt_view),
                             .row_struct_size = sizeof(m->row[0]),
                             .row = m->row,
                             .row_count = m->rows};
}

/* It has joined: once, or again where that failed. */
static inline enum dyt_status member_publish(struct member *m)
{
    struct dyt_view view = member_view(m);

    return keep_status(m, dyt_session_publish(m->session, &view, m->rules));
}

static inline enum dyt_status enter(struct member *m)
{
    enum dyt_status st = dyt_session_join(&m->join, &m->session);

    if (st == DYT_OK && m->hooked) {
        m->hooks.struct_size = sizeof(m->hooks);
        st = dyt_session_set_hooks(m->session, &m->hooks);
    }
    if (st == DYT_OK && m->join.memory == DYT_MEMORY_MAPPED) {
        st = dyt_session_map(m->session, m->row, m->rows);
    }
    return st != DYT_OK ? keep_status(m, st) : member_publish(m);
}

static inline enum dyt_status receive(struct member *m)
{
    m->report = (struct dyt_switch_report){.struct_size = sizeof(m->report)};
    return keep_status(m, dyt_session_receive(m->session, m->version,
                                              m->deadline_ns, &m->report));
}

/* What the rows hold. */
static inline enum dyt_status offer_as_is(struct member *m)
{
    struct dyt_offer_params p = {.struct_size = sizeof(p),
                                 .version = m->version};

    return keep_status(m, dyt_session_offer(m->session, &p, &m->ticket));
}

static inline enum dyt_status offer(struct member *m)
{
    write_version(m, m->version);
    return offer_as_is(m);
}

static inline enum dyt_status end_offer(struct member *m)
{
    enum dyt_status st = dyt_ticket_wait(m->ticket, -1);

    keep_status(m, st);
    dyt_ticket_destroy(m->ticket);
    m->ticket = NULL;
    return st;
}

static inline void leave(struct member *m)
{
    void *heap;

    if (m == NULL) {
        return;
    }
    dyt_session_leave(m->session);
    for (uint32_t r = 0; r < m->rows; r++) {
        free(m->own[r]);
    }
    heap = m->heap;
    memset(m, 0, sizeof(*m));
    free(heap);
}

typedef enum dyt_status (*member_fn)(struct member *m);

struct member_call {
    struct member *m;
    member_fn fn;
    pthread_t thread;
};

static inline void *make_call(void *arg)
{
    struct member_call *c = arg;

    (void)c->fn(c->m);
    return NULL;
}

static inline void call_start(struct member_call *c, struct member *m,
                              member_fn fn)
{
    *c = (struct member_call){.m = m, .fn = fn};
    assert_int_equal(0, pthread_create(&c->thread, NULL, make_call, c));
}

static inline enum dyt_status call_end(struct member_call *c)
{
    pthread_join(c->thread, NULL);
    return c->m->status;
}

/* All at once; each keeps its status. */
static inline void all_call(struct member **m, uint32_t n, member_fn fn)
{
    struct member_call call[MEMBERS];

    assert_true(n <= MEMBERS);
    for (uint32_t i = 0; i < n; i++) {
        call_start(&call[i], m[i], fn);
    }
    for (uint32_t i = 0; i < n; i++) {
        call_end(&call[i]);
    }
}

static inline void all_are(struct member **m, uint32_t n, enum dyt_status want)
{
    for (uint32_t i = 0; i < n; i++) {
        if (m[i]->status != want) {
            fail_msg("rank %u of replica %u says %s, want %s: %s",
                     m[i]->join.rank, m[i]->join.replica,
                     dyt_status_name(m[i]->status), dyt_status_name(want),
                     m[i]->text);
        }
    }
}

static inline void all_ok(struct member **m, uint32_t n, member_fn fn)
{
    all_call(m, n, fn);
    all_are(m, n, DYT_OK);
}

static inline void all_ask(struct member **m, uint32_t n, uint64_t version,
                           int64_t deadline_ns)
{
    for (uint32_t i = 0; i < n; i++) {
        m[i]->version = version;
        m[i]->deadline_ns = deadline_ns;
    }
}

static inline void all_offer(struct member **m, uint32_t n, uint64_t version)
{
    all_ask(m, n, version, -1);
    all_ok(m, n, offer);
}

static inline void all_receive(struct member **m, uint32_t n, uint64_t version)
{
    all_ask(m, n, version, -1);
    all_ok(m, n, receive);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(version, m[i]->report.version);
        assert_true(holds(m[i], version));
    }
}

/* One version from all of the trainer to all of one replica. */
static inline void pass_on(struct member **t, uint32_t nt, struct member **r,
                           uint32_t nr, uint64_t version)
{
    all_offer(t, nt, version);
    all_receive(r, nr, version);
    all_ok(t, nt, end_offer);
}

/* Whoever hosts the manager is the first of the first list, and goes last. */
static inline void all_leave(struct member **t, uint32_t nt, struct member **r,
                             uint32_t nr)
{
    for (uint32_t i = 0; i < nr; i++) {
        leave(r[i]);
    }
    for (uint32_t i = nt; i-- > 0;) {
        leave(t[i]);
    }
}

/* The commit modes, each with its memory. */
static const struct session_mode {
    const char *name;
    uint32_t commit, memory;
} session_modes[] = {
    {"staged", DYT_COMMIT_STAGED, DYT_MEMORY_OWN},
    {"in_place", DYT_COMMIT_IN_PLACE, DYT_MEMORY_OWN},
    {"mapped", DYT_COMMIT_IN_PLACE, DYT_MEMORY_MAPPED},
    {"double", DYT_COMMIT_DOUBLE, DYT_MEMORY_MAPPED},
};

static inline const char *session_folder(void)
{
    const char *folder = dyt_test_dir();

    assert_int_equal(0, chmod(folder, 0700));
    return folder;
}

#endif /* SESSION_MEMBERS_H */
