/* A world around a job's fleet, for tests: members that ask, links whose ends
 * are told in any order, and after each event a look at what must hold: nobody
 * is answered who did not ask or is dead, no ticket ends while its rows are
 * read, who is told a version holds it. */
#ifndef DYT_FLEET_WORLD_H
#define DYT_FLEET_WORLD_H

#include "dyt_test.h"

#include "base/rng.h"
#include "phase/fleet.h"

#define NONE    DYTI_FLEET_NONE
#define MEMBERS 64u
#define DUE     512u
#define SECOND  1000000000ll

enum ask { ASK_PUBLISH, ASK_OFFER, ASK_RECEIVE, ASK_RELEASE, ASK_COUNT };

/* What the world still owes the fleet. */
struct due {
    enum dyti_fleet_event_kind kind;
    uint32_t member, group, link;
    uint64_t epoch, version;
    bool receiver;
};

struct run {
    uint64_t epoch;
    bool commit, broken;
};

struct world {
    struct dyti_fleet fleet;
    int64_t now;
    uint64_t seed, step;
    bool faults; /* runs and openings may fail */
    bool asked[MEMBERS][ASK_COUNT], alive[MEMBERS], pinned[MEMBERS];
    uint64_t want[MEMBERS], held[MEMBERS], offered;
    enum dyt_status said[MEMBERS][ASK_COUNT]; /* the last answer */
    enum dyt_status done[MEMBERS];
    char text[MEMBERS][DYTI_FLEET_TEXT_BYTES];
    uint32_t source; /* group of the last run */
    uint32_t runs, opened, dropped;
    struct run run[8192];
    struct due due[DUE];
    uint32_t due_count;
};

static uint64_t draw(struct world *w, uint64_t below)
{
    return dyti_rng_u64(w->seed, w->step++, 0, 0) % below;
}

static void owe(struct world *w, struct due due)
{
    assert_true(w->due_count < DUE);
    w->due[w->due_count++] = due;
}

/* ---- what the fleet wants ------------------------------------------------ */

static void answered(struct world *w, const struct dyti_fleet_action *a,
                     enum ask ask)
{
    if (!w->alive[a->member] || !w->asked[a->member][ask]) {
        fail_msg("seed %" PRIu64 ": %s answers member %u, who %s", w->seed,
                 dyti_fleet_action_name(a->kind), a->member,
                 w->alive[a->member] ? "did not ask" : "is dead");
    }
    w->asked[a->member][ask] = false;
    w->said[a->member][ask] = a->status;
    memcpy(w->text[a->member], a->text, sizeof(a->text));
}

static void order(struct world *w, const struct dyti_fleet_action *a)
{
    const struct dyti_fleet_link *k = &w->fleet.link[a->link];
    uint32_t n = a->kind == DYTI_ACT_SNAP ? k->source_count : k->member_count;

    w->opened += a->kind == DYTI_ACT_OPEN;
    if (a->kind == DYTI_ACT_RUN) {
        struct run *r = &w->run[a->epoch % DYT_TEST_COUNT(w->run)];

        *r = (struct run){.epoch = a->epoch, .commit = true};
        if (w->faults && draw(w, 4) == 0) {
            r->commit = false;
            r->broken = draw(w, 2) == 0;
        }
        w->source = k->source;
        w->runs++;
    }
    for (uint32_t i = 0; i < n; i++) {
        owe(w, (struct due){.kind = a->kind == DYTI_ACT_RUN ? DYTI_FLEET_RAN
                                                            : DYTI_FLEET_READY,
                            .member = k->member[i],
                            .link = a->link,
                            .epoch = a->epoch,
                            .version = a->version,
                            .receiver = i >= k->source_count});
    }
}

/* A ticket ends only when nobody reads that rank's rows. */
static void ticket_done(struct world *w, const struct dyti_fleet_action *a)
{
    const struct dyti_fleet *f = &w->fleet;

    assert_true(w->alive[a->member]);
    for (uint32_t l = 0; l < f->link_count; l++) {
        const struct dyti_fleet_link *k = &f->link[l];

        for (uint32_t i = 0; k->source == 0 && k->awaited > 0 && !k->snapshot &&
                             i < k->source_count;
             i++) {
            if (k->member[i] == a->member && !k->answered[i] &&
                k->version == a->version) { /* not of the next offer */
                fail_msg("seed %" PRIu64 ": a ticket ends while link %u reads",
                         w->seed, l);
            }
        }
    }
    w->pinned[a->member] = false;
    w->done[a->member] = a->status;
}

static void act(struct world *w, const struct dyti_fleet_action *a)
{
    switch (a->kind) {
    case DYTI_ACT_CATALOGUE:
        owe(w, (struct due){.kind = DYTI_FLEET_BUILT});
        break;
    case DYTI_ACT_SHARE:
        owe(w, (struct due){.kind = DYTI_FLEET_FITTED, .member = a->member});
        break;
    case DYTI_ACT_CHECK:
        owe(w, (struct due){.kind = DYTI_FLEET_CHECKED, .group = a->group});
        break;
    case DYTI_ACT_SNAP:
    case DYTI_ACT_OPEN:
    case DYTI_ACT_RUN:
        order(w, a);
        break;
    case DYTI_ACT_PUBLISHED:
        answered(w, a, ASK_PUBLISH);
        break;
    case DYTI_ACT_OFFERED:
        answered(w, a, ASK_OFFER);
        if (a->status == DYT_OK) {
            w->pinned[a->member] = true;
            w->offered = a->version;
        }
        break;
    case DYTI_ACT_DONE:
        ticket_done(w, a);
        break;
    case DYTI_ACT_RECEIVED:
        answered(w, a, ASK_RECEIVE);
        if (a->status == DYT_OK && (w->held[a->member] != a->version ||
                                    a->version < w->want[a->member])) {
            fail_msg("seed %" PRIu64 ": member %u asked for %" PRIu64
                     ", holds %" PRIu64 " and is told %" PRIu64,
                     w->seed, a->member, w->want[a->member], w->held[a->member],
                     a->version);
        }
        break;
    case DYTI_ACT_RELEASED:
        answered(w, a, ASK_RELEASE);
        break;
    case DYTI_ACT_DROP:
        w->dropped++;
        w->alive[a->member] = false;
        break;
    default:
        break;
    }
}

static void settle(struct world *w)
{
    const char *wrong = dyti_fleet_broken(&w->fleet);

    if (wrong != NULL) {
        fail_msg("seed %" PRIu64 ", step %" PRIu64 ": %s", w->seed, w->step,
                 wrong);
    }
    for (size_t i = 0; i < w->fleet.action_count; i++) {
        act(w, &w->fleet.action[i]);
    }
    w->fleet.action_count = 0;
    for (uint32_t i = 0; i < w->fleet.member_count; i++) {
        if (!w->alive[i]) {
            memset(w->asked[i], 0, sizeof(w->asked[i]));
        }
    }
}

static enum dyt_status take(struct world *w, struct dyti_fleet_event e)
{
    enum dyt_status st = dyti_fleet_take(&w->fleet, &e, w->now);

    settle(w);
    return st;
}

/* ---- what members do ----------------------------------------------------- */

static enum dyt_status ask(struct world *w, uint32_t member, enum ask what,
                           struct dyti_fleet_event e)
{
    bool before = w->asked[member][what];
    enum dyt_status st;

    e.member = member;
    w->asked[member][what] = true;
    if (what == ASK_RECEIVE && !before) {
        w->want[member] = e.version;
    }
    st = take(w, e);
    if (st != DYT_OK) { /* an error is the answer; an earlier one goes on */
        w->asked[member][what] = before && w->asked[member][what];
    }
    return st;
}

static struct dyti_fleet_place place(uint32_t replica, uint32_t rank,
                                     uint32_t size)
{
    struct dyti_fleet_place p = {.role = replica == NONE ? DYTI_FLEET_TRAINER
                                                         : DYTI_FLEET_RECEIVER,
                                 .replica = replica == NONE ? 0 : replica,
                                 .rank = rank,
                                 .size = size,
                                 .tp_rank = rank,
                                 .tp_size = size,
                                 .pp_size = 1,
                                 .dp_size = 1,
                                 .ep_size = 1,
                                 .host = 1,
                                 .host_name = "here",
                                 .timeout_ns = 10 * SECOND};

    memcpy(p.pool, replica == NONE ? "" : "rollout", replica == NONE ? 1 : 8);
    return p;
}

static enum dyt_status join_place(struct world *w,
                                  const struct dyti_fleet_place *p,
                                  uint32_t *out)
{
    enum dyt_status st = dyti_fleet_join(&w->fleet, p, w->now, out);

    if (st == DYT_OK) {
        assert_true(*out < MEMBERS);
        w->alive[*out] = true;
        w->pinned[*out] = false;
        w->held[*out] = 0;
    }
    settle(w);
    return st;
}

static uint32_t join(struct world *w, uint32_t replica, uint32_t rank,
                     uint32_t size)
{
    struct dyti_fleet_place p = place(replica, rank, size);
    uint32_t id = NONE;

    assert_ok(join_place(w, &p, &id));
    return id;
}

static enum dyt_status publish(struct world *w, uint32_t member)
{
    if (w->fleet.member[member].place.role == DYTI_FLEET_TRAINER) {
        take(w, (struct dyti_fleet_event){.kind = DYTI_FLEET_LISTED,
                                          .member = member});
    }
    return ask(w, member, ASK_PUBLISH,
               (struct dyti_fleet_event){.kind = DYTI_FLEET_PUBLISH});
}

static enum dyt_status offer(struct world *w, uint32_t member, uint64_t version,
                             bool snapshot)
{
    return ask(w, member, ASK_OFFER,
               (struct dyti_fleet_event){.kind = DYTI_FLEET_OFFER,
                                         .version = version,
                                         .snapshot = snapshot,
                                         .takes = snapshot});
}

static enum dyt_status receive(struct world *w, uint32_t member,
                               uint64_t version)
{
    return ask(w, member, ASK_RECEIVE,
               (struct dyti_fleet_event){.kind = DYTI_FLEET_RECEIVE,
                                         .version = version});
}

static void gone(struct world *w, uint32_t member, enum dyt_status how)
{
    w->alive[member] = false;
    take(w, (struct dyti_fleet_event){
                .kind = DYTI_FLEET_GONE, .member = member, .status = how});
}

/* One thing that the world owes happens. */
static void pay(struct world *w, uint32_t at)
{
    struct due d = w->due[at];
    struct dyti_fleet_event e = {.kind = d.kind,
                                 .member = d.member,
                                 .group = d.group,
                                 .link = d.link,
                                 .epoch = d.epoch,
                                 .version = d.version,
                                 .shared = true};

    w->due[at] = w->due[--w->due_count];
    if (d.kind == DYTI_FLEET_RAN) {
        const struct run *r = &w->run[d.epoch % DYT_TEST_COUNT(w->run)];

        e.committed = r->commit;
        e.broken = r->broken && d.receiver;
        e.status = r->commit ? DYT_OK : DYT_ERR_VERIFY;
        if (d.receiver && w->alive[d.member]) {
            w->held[d.member] = r->commit   ? d.version
                                : r->broken ? 0
                                            : w->held[d.member];
        }
    } else if (d.kind == DYTI_FLEET_BUILT && w->faults && draw(w, 4) == 0) {
        e.status = DYT_ERR_LAYOUT;
        e.text = "rows contradict each other";
    } else if (d.kind == DYTI_FLEET_READY && w->faults && draw(w, 8) == 0) {
        e.status = DYT_ERR_NOMEM;
        e.text = "no memory";
    }
    take(w, e);
}

static void pay_all(struct world *w)
{
    while (w->due_count > 0) {
        pay(w, 0);
    }
}

static struct world *new_world(void)
{
    struct world *w = calloc(1, sizeof(*w));

    assert_non_null(w);
    assert_ok(dyti_fleet_init(&w->fleet));
    return w;
}

static void end_world(struct world *w)
{
    dyti_fleet_fini(&w->fleet);
    free(w);
}

/* A trainer of two ranks (members 0, 1) and `replicas` of one, all published.
 */
static struct world *published(uint32_t replicas)
{
    struct world *w = new_world();

    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(r, join(w, NONE, r, 2));
    }
    for (uint32_t r = 0; r < replicas; r++) {
        assert_int_equal(2 + r, join(w, r, 0, 1));
    }
    for (uint32_t i = 0; i < 2 + replicas; i++) {
        assert_ok(publish(w, i));
    }
    pay_all(w);
    for (uint32_t i = 0; i < 2 + replicas; i++) {
        assert_false(w->asked[i][ASK_PUBLISH]);
        assert_int_equal(DYT_OK, w->said[i][ASK_PUBLISH]);
    }
    return w;
}

static inline void offer_both(struct world *w, uint64_t version)
{
    assert_ok(offer(w, 0, version, false));
    assert_true(w->asked[0][ASK_OFFER]); /* until all have */
    assert_ok(offer(w, 1, version, false));
    assert_false(w->asked[0][ASK_OFFER] || w->asked[1][ASK_OFFER]);
    assert_true(w->pinned[0] && w->pinned[1]);
}

static inline struct world *with_policy(uint32_t replicas, uint32_t policy,
                                        uint32_t quorum)
{
    struct world *w = published(replicas);

    w->fleet.policy = policy;
    w->fleet.quorum = quorum;
    return w;
}

/* It asks, and everything that comes of it happens. */
static inline void takes(struct world *w, uint32_t member, uint64_t version)
{
    assert_ok(receive(w, member, version));
    pay_all(w);
}

#endif /* DYT_FLEET_WORLD_H */
