/* Scenes of sessions on a device: a trainer's ranks and a replica, with a
 * tensor of each shape that lies differently as a row. */
#ifndef DYT_SESSION_SCENE_H
#define DYT_SESSION_SCENE_H

#include "session_device.h"

#include "lib/session_device.h"

#include <dynatrain/layout.h>

#define LATEST 3u /* versions of a scene */

/* ---- a scene ------------------------------------------------------------- */

struct scene {
    const char *folder;
    struct party trainer[2], receiver[2];
    uint32_t trainers, receivers;
};

/* One tensor of each shape that lies as rows of rank `rank` of `size`. */
static inline struct member *with_shapes(const char *folder, uint32_t role,
                                         uint32_t rank, uint32_t size, bool odd)
{
    struct member *m = member_new(folder, role, 0, rank, size);
    int64_t lo = 96 / size * rank, hi = 96 / size * (rank + 1);
    enum dyt_dtype narrow = role == DYT_ROLE_RECEIVER ? DYT_BF16 : DYT_F32;
    uint32_t r;

    member_cut(m, "dense", DYT_F32, 2, SHAPE(96, 20), 0, lo, hi);
    member_cut(m, "narrow", narrow, 2, SHAPE(96, 12), 0, lo, hi);
    member_cut(m, "whole numbers", DYT_I32, 1, SHAPE(96), 0, lo, hi);
    /* a view of something larger */
    r = member_row(m, "pitched", DYT_F32, 2, SHAPE(hi - lo, 10), odd ? 13 : 0);
    memcpy(m->row[r].global_shape, SHAPE(96, 10), 2 * sizeof(int64_t));
    member_piece(m, "pitched", 2, SHAPE(96, 10), 0, lo, hi, 0);
    /* column by column */
    r = member_row(m, "columns", DYT_BF16, 2, SHAPE(hi - lo, 8), 0);
    memcpy(m->row[r].global_shape, SHAPE(96, 8), 2 * sizeof(int64_t));
    if (odd) {
        m->row[r].stride[0] = 1;
        m->row[r].stride[1] = hi - lo;
    }
    member_piece(m, "columns", 2, SHAPE(96, 8), 0, lo, hi, 0);
    /* the tensor's dimensions exchanged, in a row with room besides */
    if (odd) {
        r = member_row(m, "turned", DYT_F32, 2, SHAPE(24, hi - lo + 3), 0);
        member_piece(m, "turned", 2, SHAPE(96, 24), 0, lo, hi, 0);
        m->piece[m->pieces - 1].transposed = 1;
    } else {
        member_cut(m, "turned", DYT_F32, 2, SHAPE(96, 24), 0, lo, hi);
    }
    (void)member_view(m);
    return m;
}

static inline struct scene with_members(uint32_t trainers, uint32_t receivers)
{
    static const char *folder; /* one for all: jobs come one after the other */
    struct scene s = {.folder = folder =
                          folder != NULL ? folder : session_folder(),
                      .trainers = trainers,
                      .receivers = receivers};

    for (uint32_t i = 0; i < trainers; i++) {
        s.trainer[i].m =
            with_shapes(s.folder, DYT_ROLE_TRAINER, i, trainers, i % 2 == 0);
    }
    for (uint32_t i = 0; i < receivers; i++) {
        s.receiver[i].m =
            with_shapes(s.folder, DYT_ROLE_RECEIVER, i, receivers, i % 2 == 0);
    }
    return s;
}

/* One more replica of one rank. */
static inline struct member *replica_of(const struct scene *s)
{
    struct member *m = with_shapes(s->folder, DYT_ROLE_RECEIVER, 0, 1, true);

    m->join.replica = 1;
    return m;
}

static inline uint32_t list(struct scene *s, struct member *m[4], bool trainers)
{
    uint32_t n = trainers ? s->trainers : s->receivers;

    for (uint32_t i = 0; i < n; i++) {
        m[i] = trainers ? s->trainer[i].m : s->receiver[i].m;
    }
    return n;
}

static inline void all_enter(struct scene *s)
{
    struct member *m[4];
    uint32_t n = list(s, m, true);

    n += list(s, m + n, false);
    /* who hosts the manager is first */
    all_call(m, n, enter);
    all_are(m, n, DYT_OK);
}

static inline void all_end(struct scene *s)
{
    for (uint32_t i = 0; i < s->receivers; i++) {
        end_party(&s->receiver[i]);
    }
    for (uint32_t i = s->trainers; i-- > 0;) {
        end_party(&s->trainer[i]);
    }
    assert_int_equal(0, gpusim_leaks());
}

static inline void write_all(struct scene *s, uint64_t version)
{
    for (uint32_t i = 0; i < s->trainers; i++) {
        write_there(&s->trainer[i], version);
    }
}

/* One version, from where it was queued to be written. */
static inline void pass_version(struct scene *s, uint64_t version)
{
    struct member *t[4], *r[4];
    uint32_t nt = list(s, t, true), nr = list(s, r, false);

    write_all(s, version);
    all_ask(t, nt, version, -1);
    all_ok(t, nt, offer_as_is);
    all_ask(r, nr, version, -1);
    all_ok(r, nr, receive);
    all_ok(t, nt, end_offer);
    for (uint32_t i = 0; i < nr; i++) {
        assert_int_equal(version, r[i]->report.version);
        assert_true(holds_there(&s->receiver[i], version));
    }
}

/* A device that is lost is of no use to this process any more. */
static inline void lose_device(struct scene *s)
{
    for (uint32_t i = 0; i < s->receivers; i++) {
        dyt_session_leave(s->receiver[i].m->session);
        s->receiver[i].m->session = NULL;
    }
    for (uint32_t i = s->trainers; i-- > 0;) {
        dyt_session_leave(s->trainer[i].m->session);
        s->trainer[i].m->session = NULL;
    }
    gpusim_reset();
    for (uint32_t i = 0; i < s->receivers; i++) {
        leave(s->receiver[i].m);
    }
    for (uint32_t i = s->trainers; i-- > 0;) {
        leave(s->trainer[i].m);
    }
}

static inline void end_ticket(struct member *t, enum dyt_status want)
{
    assert_status(want, dyt_ticket_wait(t->ticket, -1));
    dyt_ticket_destroy(t->ticket);
    t->ticket = NULL;
}

/* How versions come to one of the replicas, as the manager says. */
static inline bool is_way(const struct scene *s, const char *way)
{
    char *json = NULL, want[300];
    bool is;

    snprintf(want, sizeof(want), "\"way\": \"%s", way);
    assert_ok(dyt_job_status(s->trainer[0].m->address, NULL, NULL, 0, &json));
    is = strstr(json, want) != NULL;
    dyt_text_free(json);
    return is;
}

static inline void check_way(const struct scene *s, const char *way)
{
    if (!is_way(s, way)) {
        fail_msg("not %s", way);
    }
}

static inline uint64_t mirror_bytes(const struct scene *s)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < s->trainers; i++) {
        bytes += dyti_session_mirror_bytes(s->trainer[i].m->session);
    }
    for (uint32_t i = 0; i < s->receivers; i++) {
        bytes += dyti_session_mirror_bytes(s->receiver[i].m->session);
    }
    return bytes;
}

/* The content hash of a row is one, wherever the row lies. */
static inline void check_hashes(const struct scene *s)
{
    uint64_t there = 0, here = 0;

    for (uint64_t r = 0; r < 6; r++) {
        if (r == 1) {
            continue; /* of another dtype at the other side */
        }
        assert_ok(dyt_session_row_hash(s->trainer[0].m->session, r, &there));
        assert_ok(dyt_session_row_hash(s->receiver[0].m->session, r, &here));
        assert_int_equal(here, there);
    }
}

/* ---- order of work ------------------------------------------------------- */

/* Somebody who is still reading weights when others come. */
struct reader {
    cudaEvent_t event; /* when it has read them */
    void *copy;
    size_t bytes;
};

static inline struct reader reader_of(const struct party *p)
{
    struct reader reader = {.bytes = row_bytes(p->m, 0)};

    reader.copy = dyt_sim_filled(reader.bytes, 0);
    assert_cuda(
        cudaEventCreateWithFlags(&reader.event, cudaEventDisableTiming));
    return reader;
}

static inline void reader_reads(const struct reader *reader, const void *from,
                                cudaStream_t stream)
{
    assert_cuda(cudaMemcpyAsync(reader->copy, from, reader->bytes,
                                cudaMemcpyDeviceToDevice, stream));
    assert_cuda(cudaEventRecord(reader->event, stream));
}

static inline void reader_end(const struct reader *reader)
{
    assert_cuda(cudaDeviceSynchronize());
    assert_cuda(cudaEventDestroy(reader->event));
    assert_cuda(cudaFree(reader->copy));
}

/* Its rows are not written where they say. */
static inline void forget_streams(struct party *p)
{
    for (uint32_t r = 0; r < p->m->rows; r++) {
        p->m->row[r].device.stream = NULL;
    }
}

static inline void end_with_missing_wait(struct scene *s)
{
    assert_cuda(cudaDeviceSynchronize());
    assert_true(gpusim_faults(GPUSIM_MISSING_WAIT) > 0);
    all_end(s);
}

/* ---- modes, where all rows lie on devices -------------------------------- */

static const struct mode {
    const char *name;
    uint32_t commit, memory;
} modes[] = {{"staged", DYT_COMMIT_STAGED, DYT_MEMORY_OWN},
             {"in place", DYT_COMMIT_IN_PLACE, DYT_MEMORY_OWN},
             {"in place, mapped", DYT_COMMIT_IN_PLACE, DYT_MEMORY_MAPPED},
             {"double", DYT_COMMIT_DOUBLE, DYT_MEMORY_MAPPED}};

static inline void set_mode(struct scene *s, const struct mode *mode,
                            uint32_t verify)
{
    for (uint32_t i = 0; i < s->receivers; i++) {
        s->receiver[i].m->join.commit = mode->commit;
        s->receiver[i].m->join.memory = mode->memory;
        s->receiver[i].m->join.verify = verify;
    }
    for (uint32_t i = 0; i < s->trainers; i++) {
        s->trainer[i].m->join.verify = verify;
    }
}

/* ---- ways ---------------------------------------------------------------- */

static const struct way {
    const char *name;
    bool from, to; /* on a device */
    uint32_t commit, memory;
} ways[] = {
    {"device to host, staged", true, false, DYT_COMMIT_STAGED, DYT_MEMORY_OWN},
    {"device to host, in place", true, false, DYT_COMMIT_IN_PLACE,
     DYT_MEMORY_OWN},
    {"device to host, double", true, false, DYT_COMMIT_DOUBLE,
     DYT_MEMORY_MAPPED},
    {"host to device, staged", false, true, DYT_COMMIT_STAGED, DYT_MEMORY_OWN},
    {"host to device, in place", false, true, DYT_COMMIT_IN_PLACE,
     DYT_MEMORY_OWN},
    {"device to device, staged", true, true, DYT_COMMIT_STAGED, DYT_MEMORY_OWN},
    {"device to device, in place", true, true, DYT_COMMIT_IN_PLACE,
     DYT_MEMORY_OWN},
    {"host to device, mapped", false, true, DYT_COMMIT_IN_PLACE,
     DYT_MEMORY_MAPPED},
    {"device to device, double", true, true, DYT_COMMIT_DOUBLE,
     DYT_MEMORY_MAPPED},
};

static inline struct scene of_way(const struct way *way, uint32_t trainers,
                                  uint32_t receivers)
{
    struct scene s = with_members(trainers, receivers);

    for (uint32_t i = 0; i < trainers && way->from; i++) {
        put_on_device(&s.trainer[i], 0);
    }
    for (uint32_t i = 0; i < receivers; i++) {
        s.receiver[i].m->join.commit = way->commit;
        s.receiver[i].m->join.memory = way->memory;
        if (way->to) {
            put_on_device(&s.receiver[i], 0);
        }
    }
    all_enter(&s);
    return s;
}

/* Members on devices: one after the other, round and round. */
static inline struct scene spread(uint32_t trainers, uint32_t receivers,
                                  int devices)
{
    struct scene s = with_members(trainers, receivers);

    for (uint32_t i = 0; i < trainers; i++) {
        put_on_device(&s.trainer[i], (int)i % devices);
    }
    for (uint32_t i = 0; i < receivers; i++) {
        put_on_device(&s.receiver[i], (int)(i + trainers) % devices);
    }
    return s;
}

#endif /* DYT_SESSION_SCENE_H */
