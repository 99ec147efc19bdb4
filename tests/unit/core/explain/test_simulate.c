/* The simulator against times that can be worked out by hand, and against the
 * longest way through what pieces wait for. */
#include "dyt_test.h"

#include "explain/simulate.h"
#include "traffic_cases.h"

#include <math.h>

static const uint32_t host[] = {0, 0, 1, 1};

static struct dyti_cluster four(void)
{
    struct dyti_cluster c = {.rank_count = 4, .host_count = 2, .host = host};

    c.link[DYTI_LINK_SELF].bytes_per_s = 1000.0;
    c.link[DYTI_LINK_HOST] = (struct dyti_link_speed){
        .bytes_per_s = 100.0, .latency_s = 0.5, .message_s = 0.25};
    c.link[DYTI_LINK_NIC] = (struct dyti_link_speed){.bytes_per_s = 10.0};
    return c;
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b) + 1e-12;
}

static struct dyti_piece piece(uint32_t from, uint32_t to, uint32_t round,
                               uint64_t lo, uint64_t hi)
{
    return (struct dyti_piece){.src = from,
                               .dst = to,
                               .from = from,
                               .to = to,
                               .round = round,
                               .lo = lo,
                               .hi = hi};
}

/* Two messages one behind the other: 2 * (0.25 + 1), and 0.5 of latency for
 * the last; the NIC is slower: 5 s side by side. */
static void costs_and_classes(void **state)
{
    struct dyti_piece p[] = {piece(0, 1, 0, 0, 100), piece(0, 2, 0, 0, 50),
                             piece(0, 1, 1, 100, 200)};
    struct dyti_pieces pieces = {.piece = p, .count = 3, .round_count = 2};
    struct dyti_cluster c = four();
    struct dyti_simulate_inputs in = {
        .cluster = &c, .pieces = &pieces, .memory_buckets = 10, .gantt = true};
    struct dyti_simulation s = {0};

    (void)state;
    assert_ok(dyti_simulate(&in, &s));
    assert_true(near(s.seconds, 5.0));
    assert_true(near(s.done_s[1], 3.0));
    assert_int_equal(DYTI_BOTTLENECK_BYTES, s.bottleneck);
    assert_non_null(strstr(s.text, "NIC link of rank 0, sending"));
    assert_int_equal(200, s.bytes[DYTI_LINK_HOST]);
    assert_int_equal(2, s.messages[DYTI_LINK_HOST]);
    /* rank 0 packs for both links at once, rank 1 has two that overlap by
     * their latency */
    assert_int_equal(150, s.peak_staging[0]);
    assert_int_equal(200, s.peak_staging[1]);
    assert_int_equal(0, s.peak_staging[3]);
    /* bars: out of 0 on the host link (joined), on the NIC, into 1, into 2 */
    assert_int_equal(4, s.bar_count);
    assert_true(near(s.bar[0].end_s, 2.5));
    assert_int_equal(200, s.bar[0].bytes);
    assert_int_equal(DYTI_LINK_NIC, s.bar[1].link);
    assert_true(s.bar[2].receiving && s.bar[2].rank == 1);
    assert_int_equal(50, s.memory[9]); /* rank 0 at the end */
    assert_int_equal(150, s.memory[0]);
    dyti_simulation_fini(&s);
}

/* One direction at a time: both take twice as long. */
static void half_duplex_is_shared(void **state)
{
    struct dyti_piece p[] = {piece(0, 2, 0, 0, 100), piece(2, 0, 0, 0, 100)};
    struct dyti_pieces pieces = {.piece = p, .count = 2, .round_count = 1};
    struct dyti_cluster c = four();
    struct dyti_simulate_inputs in = {.cluster = &c, .pieces = &pieces};
    struct dyti_simulation s = {0};

    (void)state;
    assert_ok(dyti_simulate(&in, &s));
    assert_true(near(s.seconds, 10.0));
    dyti_simulation_fini(&s);
    c.link[DYTI_LINK_NIC].half_duplex = true;
    assert_ok(dyti_simulate(&in, &s));
    assert_true(near(s.seconds, 20.0));
    assert_true(near(s.busiest.seconds, 20.0));
    dyti_simulation_fini(&s);
}

/* A host's NICs share 15 bytes/s: 0 -> 2 of 50 and 1 -> 3 of 150 go at 7.5
 * until the first is done (6.67 s), then at 10: 6.67 + 100 / 10. */
static void hosts_share_their_nics(void **state)
{
    struct dyti_piece p[] = {piece(0, 2, 0, 0, 50), piece(1, 3, 0, 0, 150)};
    struct dyti_pieces pieces = {.piece = p, .count = 2, .round_count = 1};
    struct dyti_cluster c = four();
    struct dyti_simulate_inputs in = {.cluster = &c, .pieces = &pieces};
    struct dyti_simulation s = {0};

    (void)state;
    c.host_nic_bytes_per_s = 15.0;
    assert_ok(dyti_simulate(&in, &s));
    assert_true(near(s.seconds, 50.0 / 7.5 + 10.0));
    dyti_simulation_fini(&s);
    c.host_nic_bytes_per_s = 0.0;
    c.core_bytes_per_s = 10.0; /* both go up through the core */
    assert_ok(dyti_simulate(&in, &s));
    assert_true(near(s.seconds, 20.0));
    assert_int_equal(DYTI_PLACE_CORE, s.busiest.place);
    assert_non_null(strstr(s.text, "core of the fabric, upward"));
    dyti_simulation_fini(&s);
}

/* Two messages inside a host share 50 bytes/s; the other host has its own. */
static void ranks_of_a_host_share_its_memory(void **state)
{
    struct dyti_piece p[] = {piece(0, 1, 0, 0, 100), piece(1, 0, 0, 0, 100),
                             piece(2, 3, 0, 0, 100)};
    struct dyti_pieces pieces = {.piece = p, .count = 3, .round_count = 1};
    struct dyti_cluster c = four();
    struct dyti_simulate_inputs in = {.cluster = &c, .pieces = &pieces};
    struct dyti_simulation s = {0};

    (void)state;
    c.link[DYTI_LINK_HOST] = (struct dyti_link_speed){.bytes_per_s = 100.0};
    c.host_bytes_per_s = 50.0;
    assert_ok(dyti_simulate(&in, &s));
    assert_true(near(s.seconds, 4.0));
    assert_true(near(s.done_s[3], 2.0));
    assert_non_null(strstr(s.text, "memory of host 0"));
    dyti_simulation_fini(&s);
}

static void fences_hold_back(void **state)
{
    struct dyti_piece p[] = {piece(0, 2, 0, 0, 100), piece(1, 3, 1, 0, 100)};
    struct dyti_pieces pieces = {.piece = p, .count = 2, .round_count = 2};
    const size_t fence[] = {1};
    struct dyti_cluster c = four();
    struct dyti_simulate_inputs in = {.cluster = &c, .pieces = &pieces};
    struct dyti_simulation s = {0};

    (void)state;
    assert_ok(dyti_simulate(&in, &s));
    assert_true(near(s.seconds, 10.0));
    dyti_simulation_fini(&s);
    in.fence = fence;
    in.fence_count = 1;
    assert_ok(dyti_simulate(&in, &s));
    assert_true(near(s.seconds, 20.0));
    assert_int_equal(DYTI_BOTTLENECK_WAITING, s.bottleneck);
    dyti_simulation_fini(&s);
}

/* Posting is work that one link's messages wait for in turn; their latencies
 * hide behind each other, but for the last. */
static void messages_hold_up_no_longer_than_all_takes(void **state)
{
    struct dyti_piece p[] = {piece(0, 1, 0, 0, 1), piece(0, 1, 1, 1, 2)};
    struct dyti_pieces pieces = {.piece = p, .count = 2, .round_count = 2};
    struct dyti_cluster c = four();
    struct dyti_simulate_inputs in = {.cluster = &c, .pieces = &pieces};
    struct dyti_simulation s = {0};

    (void)state;
    assert_ok(dyti_simulate(&in, &s));
    assert_true(near(s.seconds, 1.02));
    assert_true(near(s.message_s, 1.0));
    assert_int_equal(DYTI_BOTTLENECK_MESSAGES, s.bottleneck);
    assert_string_equal("posting of rank 0's messages: 1.00 s of 1.02 s",
                        s.text);
    dyti_simulation_fini(&s);
}

/* What passes through stays in staging until it has left again; wave 1 waits
 * for what wave 0 brings. */
static void hops_and_waves(void **state)
{
    struct dyti_piece p[] = {piece(0, 2, 0, 0, 100), piece(2, 3, 1, 0, 100),
                             piece(3, 2, 2, 0, 100)};
    struct dyti_pieces pieces = {.piece = p, .count = 3, .round_count = 3};
    struct dyti_cluster c = four();
    struct dyti_simulate_inputs in = {.cluster = &c, .pieces = &pieces};
    struct dyti_simulation s = {0};

    (void)state;
    p[0].dst = p[1].dst = 3; /* 0 -> 2 -> 3 */
    p[1].src = 0;
    p[1].hop = 1;
    p[2].wave = 1; /* 3 -> 2, of what came to 3 */
    c.link[DYTI_LINK_HOST] = (struct dyti_link_speed){.bytes_per_s = 100.0};
    assert_ok(dyti_simulate(&in, &s));
    assert_true(near(s.seconds, 12.0));
    assert_true(near(s.done_s[3], 12.0));
    assert_int_equal(100, s.peak_staging[2]);
    dyti_simulation_fini(&s);
}

/* A ring of 4 over 2 hosts in 16 chunks: the slow link carries all, the others
 * add a chunk each; an all-gather has 3 steps. */
static void collectives_are_rings(void **state)
{
    uint32_t member[] = {0, 1, 2, 3};
    struct dyti_collective one = {.kind = DYTI_COLLECTIVE_BROADCAST,
                                  .root = 0,
                                  .member_count = 4,
                                  .bytes = 1600};
    struct dyti_promotion promotion = {
        .collective = &one, .count = 1, .member = member, .member_total = 4};
    struct dyti_cluster c = four();
    struct dyti_simulate_inputs in = {
        .cluster = &c, .promotion = &promotion, .collective_chunk_bytes = 100};
    struct dyti_simulation s = {0};

    (void)state;
    c.link[DYTI_LINK_HOST] = (struct dyti_link_speed){.bytes_per_s = 100.0};
    assert_ok(dyti_simulate(&in, &s));
    assert_true(near(s.seconds, 1.0 + 160.0 + 1.0));
    assert_int_equal(1600, s.bytes[DYTI_LINK_NIC]);
    dyti_simulation_fini(&s);
    one.kind = DYTI_COLLECTIVE_ALL_GATHER;
    one.bytes = 100;
    assert_ok(dyti_simulate(&in, &s));
    assert_true(near(s.seconds, 30.0));
    assert_int_equal(600, s.bytes[DYTI_LINK_NIC]);
    dyti_simulation_fini(&s);
    one.kind = DYTI_COLLECTIVE_SCATTER;
    assert_ok(dyti_simulate(&in, &s));
    assert_true(near(s.seconds, 20.0));
    dyti_simulation_fini(&s);
    one.kind = DYTI_COLLECTIVE_GATHER;
    one.root = 3;
    assert_ok(dyti_simulate(&in, &s));
    assert_true(near(s.done_s[3], 20.0));
    dyti_simulation_fini(&s);
}

static void copies_and_nothing(void **state)
{
    const uint64_t keep[] = {0, 5000, 0, 0}, resident[] = {7, 0, 0, 0};
    struct dyti_piece p[] = {piece(0, 1, 0, 0, 100)};
    struct dyti_pieces pieces = {.piece = p, .count = 1, .round_count = 1};
    struct dyti_cluster c = four();
    struct dyti_simulate_inputs in = {
        .cluster = &c, .resident_bytes = resident, .memory_buckets = 1};
    struct dyti_simulation s = {0};

    (void)state;
    assert_ok(dyti_simulate(&in, &s));
    assert_int_equal(DYTI_BOTTLENECK_NONE, s.bottleneck);
    assert_true(s.seconds == 0.0);
    dyti_simulation_fini(&s);
    in.keep_bytes = keep;
    in.pieces = &pieces;
    assert_ok(dyti_simulate(&in, &s));
    assert_int_equal(DYTI_BOTTLENECK_COPIES, s.bottleneck);
    assert_true(near(s.seconds, 5.05)); /* and 100 bytes are written */
    assert_int_equal(107, s.memory[0]);
    dyti_simulation_fini(&s);
    p[0].to = 9;
    assert_status(DYT_ERR_INVALID, dyti_simulate(&in, &s));
    p[0].to = 1;
    c.link[DYTI_LINK_HOST].bytes_per_s = 0.0;
    assert_status(DYT_ERR_INVALID, dyti_simulate(&in, &s));
    assert_error_has("host link has no speed");
    assert_null(s.done_s);
}

/* Two ranks on two cores, 300 bytes one way: 3 s of packing and of unpacking
 * side by side; what each keeps, its boxes and messages come on top.  On one
 * core all of it is one after the other. */
static void cores_do_the_work(void **state)
{
    static const uint64_t keep[] = {1000, 0};
    static const struct dyti_rank_boxes boxes[] = {
        {.sent = 10, .kept = 20, .converted_kept = 500, .source_bytes = 800},
        {.received = 10}};
    struct dyti_piece p[] = {piece(0, 1, 0, 0, 100), piece(0, 1, 1, 100, 300)};
    struct dyti_pieces pieces = {.piece = p, .count = 2, .round_count = 2};
    struct dyti_cluster c = four();
    struct dyti_simulate_inputs in = {
        .cluster = &c, .pieces = &pieces, .keep_bytes = keep, .boxes = boxes};
    struct dyti_simulation s = {0};
    double sender, receiver;

    (void)state;
    c.rank_count = 2;
    c.host_count = 1;
    c.link[DYTI_LINK_HOST].latency_s = 0;
    c.link[DYTI_LINK_HOST].box_s = 0.01;
    c.link[DYTI_LINK_SELF].box_s = 0.02;
    c.link[DYTI_LINK_SELF].convert_bytes_per_s = 250.0;
    c.host_cores = 2;
    c.source_bytes_per_s = 400.0;
    c.start_s = 7;
    p[1].messages = 3;
    sender = 3 + 4 * 0.25 + 10 * 0.01 + 1 + 20 * 0.02 + 500 * (0.004 - 0.001) +
             800 / 400.0;
    receiver = 3 + 4 * 0.25 + 10 * 0.01;
    assert_ok(dyti_simulate(&in, &s));
    assert_true(near(s.seconds, sender + 7));
    assert_int_equal(DYTI_BOTTLENECK_CORES, s.bottleneck);
    assert_non_null(strstr(s.text, "cores of host 0"));
    assert_int_equal(4, s.messages[DYTI_LINK_HOST]);
    dyti_simulation_fini(&s);
    c.host_cores = 1;
    assert_ok(dyti_simulate(&in, &s));
    assert_true(near(s.seconds, sender + receiver + 7));
    dyti_simulation_fini(&s);
}

/* ---- without events ------------------------------------------------------ */

struct times {
    double start, end, arrive;
};

/* Does piece b wait for the end, or the arrival, of a, which is before it? */
static bool waits_for_end(const struct dyti_cluster *c,
                          const struct dyti_piece *a,
                          const struct dyti_piece *b)
{
    return dyti_cluster_link(c, a->from, a->to) ==
               dyti_cluster_link(c, b->from, b->to) &&
           (a->from == b->from || a->to == b->to);
}

static bool waits_for_arrival(const struct dyti_piece *a,
                              const struct dyti_piece *b)
{
    bool same = a->src == b->src && a->dst == b->dst && a->wave == b->wave &&
                a->lo == b->lo;

    return (same && a->hop + 1 == b->hop) ||
           (a->wave < b->wave && a->to == b->from);
}

/* One piece after the other, each behind all that it waits for: no queue, no
 * speeds that change. */
static void play_slowly(const struct dyti_cluster *c,
                        const struct dyti_piece *p, size_t count,
                        struct times *out)
{
    for (size_t i = 0; i < count; i++) {
        const struct dyti_link_speed *l =
            &c->link[dyti_cluster_link(c, p[i].from, p[i].to)];
        double start = 0.0;

        for (size_t k = 0; k < count; k++) {
            if (waits_for_arrival(&p[k], &p[i])) {
                assert_true(k < i);
                start = fmax(start, out[k].arrive);
            }
            if (k < i && waits_for_end(c, &p[k], &p[i])) {
                start = fmax(start, out[k].end);
            }
        }
        out[i].start = start;
        out[i].end = start +
                     l->message_s * (p[i].messages > 0 ? p[i].messages : 1) +
                     (double)(p[i].hi - p[i].lo) / l->bytes_per_s;
        out[i].arrive = out[i].end + l->latency_s;
    }
}

static void compare_times(const struct dyti_cluster *c,
                          const struct dyti_pieces *pieces)
{
    struct dyti_simulate_inputs in = {.cluster = c, .pieces = pieces};
    struct times *times = calloc(pieces->count + 1, sizeof(*times));
    double *done = calloc(c->rank_count, sizeof(*done)), last = 0.0;
    struct dyti_simulation s = {0};

    assert_non_null(times);
    assert_non_null(done);
    assert_ok(dyti_simulate(&in, &s));
    play_slowly(c, pieces->piece, pieces->count, times);
    for (size_t i = 0; i < pieces->count; i++) {
        const struct dyti_piece *p = &pieces->piece[i];

        done[p->from] = fmax(done[p->from], times[i].end);
        done[p->to] = fmax(done[p->to], times[i].arrive);
        last = fmax(last, times[i].arrive);
    }
    assert_true(near(s.seconds, last));
    for (uint32_t r = 0; r < c->rank_count; r++) {
        assert_true(near(s.done_s[r], done[r]));
    }
    dyti_simulation_fini(&s);
    free(times);
    free(done);
}

static void times_are_the_longest_way_through_the_waits(void **state)
{
    uint64_t rounds = dyt_test_rounds(24, 240);

    (void)state;
    for (uint64_t seed = 0; seed < rounds; seed++) {
        uint32_t ranks = 2 + (uint32_t)(seed % 7), chunk = 0;
        struct dyt_traffic t;
        struct dyti_order order;

        assert_true(dyt_traffic_random(
            &t, seed, ranks, 1 + (uint32_t)(seed % 4), (uint32_t)(seed % 6)));
        for (size_t i = 0; i < t.flow_count; i++) {
            t.flow[i].wave = dyti_rng_u64(seed, i, 1, 7) % 4 == 0;
            t.flow[i].messages = 1 + (uint32_t)(i % 5);
        }
        t.cluster.link[DYTI_LINK_SELF].bytes_per_s = 0;
        t.cluster.host_nic_bytes_per_s = t.cluster.core_bytes_per_s = 0;
        t.cluster.link[DYTI_LINK_HOST].message_s = seed % 2 == 0 ? 0 : 3e-5;
        t.cluster.link[DYTI_LINK_HOST].latency_s = seed % 3 == 0 ? 0 : 2e-5;
        t.cluster.link[DYTI_LINK_NIC].message_s = seed % 5 == 0 ? 0 : 1e-4;
        t.cluster.link[DYTI_LINK_NIC].latency_s = seed % 7 == 0 ? 0 : 5e-4;
        chunk = seed % 4 == 0 ? 0 : 8u << 20;
        order = (struct dyti_order){.cluster = &t.cluster,
                                    .flow = t.flow,
                                    .flow_count = t.flow_count,
                                    .chunk_bytes = chunk};
        for (size_t k = 0; dyti_strategy_at(k) != NULL; k++) {
            struct dyti_pieces pieces = {0};

            assert_ok(dyti_strategy_at(k)->order(&order, &pieces));
            compare_times(&t.cluster, &pieces);
            dyti_pieces_fini(&pieces);
        }
        dyt_traffic_close(&t);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(times_are_the_longest_way_through_the_waits),
    cmocka_unit_test(cores_do_the_work),
    cmocka_unit_test(costs_and_classes),
    cmocka_unit_test(half_duplex_is_shared),
    cmocka_unit_test(hosts_share_their_nics),
    cmocka_unit_test(ranks_of_a_host_share_its_memory),
    cmocka_unit_test(fences_hold_back),
    cmocka_unit_test(messages_hold_up_no_longer_than_all_takes),
    cmocka_unit_test(hops_and_waves),
    cmocka_unit_test(collectives_are_rings),
    cmocka_unit_test(copies_and_nothing),
};
DYT_TEST_MAIN(tests)
