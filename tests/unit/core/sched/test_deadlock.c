/* No order of completion makes the ranks wait for each other, even where each
 * has staging for one chunk in and one chunk out of each link class.  An
 * executor written for this test alone; what may go on is chosen by an
 * adversary. */
#include "dyt_test.h"

#include "sched/certificate.h"
#include "traffic_cases.h"

#define CLASSES ((size_t)DYTI_LINK_CLASS_COUNT)

enum stage { WAITING, PACKED, MOVED, DONE };
enum adversary { FIRST, LAST, RANDOM, UNFAIR, ADVERSARIES };

struct queue { /* pieces of one end, in order */
    uint32_t *piece;
    size_t count, next;
    bool full; /* its one chunk of staging */
};

struct machine {
    const struct dyti_order *in;
    const struct dyti_pieces *p;
    struct queue *send, *receive; /* [ranks * classes] */
    unsigned char *stage;
    uint32_t *enabled; /* pieces that can do their next stage */
};

static struct queue *queue_of(struct machine *m, struct queue *q,
                              uint32_t piece, bool sending)
{
    const struct dyti_piece *x = &m->p->piece[piece];

    return &q[(sending ? x->from : x->to) * CLASSES +
              (size_t)dyti_cluster_link(m->in->cluster, x->from, x->to)];
}

/* Slow and obvious: looks at all pieces. */
static bool inputs_there(const struct machine *m, uint32_t piece)
{
    const struct dyti_piece *x = &m->p->piece[piece];

    if (x->hop == 0 && x->wave == 0) {
        return true;
    }
    for (size_t i = 0; i < m->p->count; i++) {
        const struct dyti_piece *y = &m->p->piece[i];
        bool hop = y->src == x->src && y->dst == x->dst && y->wave == x->wave &&
                   y->lo == x->lo && y->hop + 1 == x->hop;

        if ((hop || (y->wave < x->wave && y->to == x->from)) &&
            m->stage[i] != DONE) {
            return false;
        }
    }
    return true;
}

static bool can_go_on(struct machine *m, uint32_t i)
{
    struct queue *s = queue_of(m, m->send, i, true);
    struct queue *r = queue_of(m, m->receive, i, false);

    switch (m->stage[i]) {
    case WAITING:
        return !s->full && s->piece[s->next] == i && inputs_there(m, i);
    case PACKED:
        return !r->full && r->piece[r->next] == i;
    default:
        return m->stage[i] == MOVED;
    }
}

static void go_on(struct machine *m, uint32_t i)
{
    struct queue *s = queue_of(m, m->send, i, true);
    struct queue *r = queue_of(m, m->receive, i, false);

    if (m->stage[i] == WAITING) {
        s->full = true;
        s->next++;
    } else if (m->stage[i] == PACKED) {
        s->full = false;
        r->full = true;
        r->next++;
    } else {
        r->full = false;
    }
    m->stage[i]++;
}

static size_t pick(enum adversary who, uint64_t seed, size_t turn, size_t count)
{
    if (who == FIRST) {
        return 0;
    }
    if (who == LAST) {
        return count - 1;
    }
    if (who == RANDOM) {
        return dyti_rng_u64(seed, turn, 0, 0) % count;
    }
    return turn % 7 == 0 ? dyti_rng_u64(seed, turn, 1, 0) % count : count / 2;
}

static void run(struct machine *m, enum adversary who, uint64_t seed,
                const char *name)
{
    size_t left = m->p->count * 3;

    memset(m->stage, WAITING, m->p->count);
    for (size_t i = 0; i < m->in->cluster->rank_count * CLASSES; i++) {
        m->send[i].next = m->receive[i].next = 0;
    }
    for (size_t turn = 0; left > 0; turn++) {
        size_t count = 0;

        for (uint32_t i = 0; i < m->p->count; i++) {
            if (m->stage[i] != DONE && can_go_on(m, i)) {
                m->enabled[count++] = i;
            }
        }
        if (count == 0) {
            fail_msg("%s: %zu stages are left and nothing can go on", name,
                     left);
        }
        go_on(m, m->enabled[pick(who, seed, turn, count)]);
        left--;
    }
}

static void open_queues(struct machine *m)
{
    size_t n = m->in->cluster->rank_count * CLASSES;

    m->send = calloc(n, sizeof(*m->send));
    m->receive = calloc(n, sizeof(*m->receive));
    m->stage = calloc(m->p->count + 1, 1);
    m->enabled = calloc(m->p->count + 1, sizeof(*m->enabled));
    assert_true(m->send != NULL && m->receive != NULL && m->stage != NULL &&
                m->enabled != NULL);
    for (size_t i = 0; i < n; i++) {
        m->send[i].piece = calloc(m->p->count + 1, sizeof(uint32_t));
        m->receive[i].piece = calloc(m->p->count + 1, sizeof(uint32_t));
        assert_true(m->send[i].piece != NULL && m->receive[i].piece != NULL);
    }
    for (uint32_t i = 0; i < m->p->count; i++) {
        struct queue *s = queue_of(m, m->send, i, true);
        struct queue *r = queue_of(m, m->receive, i, false);

        s->piece[s->count++] = i;
        r->piece[r->count++] = i;
    }
}

static void close_queues(struct machine *m)
{
    for (size_t i = 0; i < m->in->cluster->rank_count * CLASSES; i++) {
        free(m->send[i].piece);
        free(m->receive[i].piece);
    }
    free(m->send);
    free(m->receive);
    free(m->stage);
    free(m->enabled);
}

/* Some flows fan out: a second wave of what came from another host. */
static void add_second_wave(struct dyt_traffic *t, uint64_t seed)
{
    size_t count = t->flow_count;

    for (size_t i = 0; i < count; i++) {
        struct dyti_flow f = t->flow[i];

        if (t->host[f.src] == t->host[f.dst] &&
            dyti_rng_u64(seed, i, 0, 5) % 2 == 0) {
            t->flow[i].wave = 1;
        }
    }
}

static void no_order_of_completion_stops_them(void **state)
{
    uint64_t rounds = dyt_test_rounds(24, 240);

    (void)state;
    for (uint64_t seed = 0; seed < rounds; seed++) {
        static const uint32_t ranks_of[] = {2, 3, 5, 6, 7, 12};
        struct dyt_traffic t;

        assert_true(dyt_traffic_random(
            &t, seed, ranks_of[seed % DYT_TEST_COUNT(ranks_of)],
            2 + (uint32_t)seed % 4, (uint32_t)(seed / 3 % 6)));
        if (seed % 2 == 1) {
            add_second_wave(&t, seed);
        }
        for (size_t k = 0; dyti_strategy_at(k) != NULL; k++) {
            struct dyti_order in = {.cluster = &t.cluster,
                                    .flow = t.flow,
                                    .flow_count = t.flow_count,
                                    .chunk_bytes = 24u << 20};
            struct dyti_pieces p = {0};
            struct machine m = {.in = &in, .p = &p};

            assert_ok(dyti_strategy_at(k)->order(&in, &p));
            assert_ok(dyti_pieces_check(&in, &p));
            open_queues(&m);
            for (int who = 0; who < ADVERSARIES; who++) {
                run(&m, (enum adversary)who, seed, dyti_strategy_at(k)->name);
            }
            close_queues(&m);
            dyti_pieces_fini(&p);
        }
        dyt_traffic_close(&t);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(no_order_of_completion_stops_them),
};
DYT_TEST_MAIN(tests)
