/* Members of a session in one process (session_members.h) whose job is the same
 * two small tensors, cut by rows between their ranks. */
#ifndef SESSION_WORLD_H
#define SESSION_WORLD_H

#include "dyt_ranks.h"
#include "session_members.h"

#define ROWS 96
#define COLS 64

static const char *const names[2] = {"a.weight", "b.weight"};

/* Rank `rank` of `size`, not joined yet. */
static inline void describe(struct member *m, const char *folder, uint32_t role,
                            uint32_t replica, uint32_t rank, uint32_t size)
{
    member_init(m, folder, role, replica, rank, size);
    for (int t = 0; t < 2; t++) {
        member_cut(m, names[t], DYT_F32, 2, SHAPE(ROWS, COLS), 0,
                   ROWS / size * rank, ROWS / size * (rank + 1));
    }
    (void)member_view(m); /* tests change pieces before they join */
}

/* The version that all elements are of; 0: mixed, or not readable. */
static inline uint64_t version_of(struct member *m)
{
    for (uint64_t version = 1; version < VERSIONS; version++) {
        if (row_not_of(m, version) == m->rows) {
            return version;
        }
    }
    return 0;
}

static inline enum dyt_status offer_version(struct member *m, uint64_t version,
                                            bool snapshot, dyt_ticket **out)
{
    struct dyt_offer_params p = {
        .struct_size = sizeof(p), .version = version, .snapshot = snapshot};

    return dyt_session_offer(m->session, &p, out);
}

static inline enum dyt_status receive_version(struct member *m,
                                              uint64_t version)
{
    m->version = version;
    return receive(m);
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
    assert_ok(offer_version(t, version, false, &ticket));
    assert_ok(receive_version(r, version));
    assert_ok(dyt_ticket_wait(ticket, -1));
    dyt_ticket_destroy(ticket);
    assert_int_equal(version, version_of(r));
}

#endif /* SESSION_WORLD_H */
