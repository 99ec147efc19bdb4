/* Every strategy: each byte once, matchings, the same whatever order flows come
 * in; `optimal` ends near the load. */
#include "dyt_test.h"

#include "greedy_oracle.h"
#include "sched/certificate.h"
#include "sched/order.h"
#include "sched/replay.h"
#include "traffic_cases.h"

#define GOAL 1.05

static const uint32_t ranks_of[] = {3, 5, 6, 7, 12, 24, 48, 96, 120, 128};

static struct dyti_order order_of(const struct dyt_traffic *t)
{
    return (struct dyti_order){
        .cluster = &t->cluster, .flow = t->flow, .flow_count = t->flow_count};
}

/* A cluster whose hosts have 3 … 8 ranks. */
static void random_case(uint64_t seed, struct dyt_traffic *t)
{
    uint32_t n = ranks_of[seed % DYT_TEST_COUNT(ranks_of)];
    uint32_t per_host = 3 + (uint32_t)(dyti_mix64(seed) % 6);

    assert_true(dyt_traffic_random(
        t, seed, n, per_host, (uint32_t)(seed / DYT_TEST_COUNT(ranks_of) % 6)));
}

static void ends_near_the_load(struct dyt_traffic *t, const char *name)
{
    struct dyti_order in = order_of(t);
    struct dyti_pieces p = {0};

    assert_ok(dyti_strategy_optimal.order(&in, &p));
    assert_ok(dyti_pieces_check(&in, &p));
    if (dyti_pieces_ratio(&p) > GOAL || p.makespan_s < p.load_s * 0.999999) {
        fail_msg("%s, %u ranks: %.4f of the load", name, t->ranks,
                 dyti_pieces_ratio(&p));
    }
    dyti_pieces_fini(&p);
}

static void published_transitions_end_near_the_load(void **state)
{
    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(dyt_transitions); i++) {
        struct dyt_traffic t;

        assert_true(dyt_traffic_layouts(&t, dyt_transitions[i].src,
                                        dyt_transitions[i].dst, 8));
        assert_true(t.flow_count > 0);
        ends_near_the_load(&t, dyt_transitions[i].name);
        dyt_traffic_close(&t);
    }
}

static void random_traffic_ends_near_the_load(void **state)
{
    uint64_t rounds = dyt_test_rounds(60, 200);

    (void)state;
    for (uint64_t seed = 0; seed < rounds; seed++) {
        struct dyt_traffic t;

        random_case(seed, &t);
        if (t.flow_count > 0) {
            ends_near_the_load(&t, "random");
        }
        dyt_traffic_close(&t);
    }
}

static bool same_piece(const struct dyti_piece *a, const struct dyti_piece *b)
{
    return a->src == b->src && a->dst == b->dst && a->wave == b->wave &&
           a->from == b->from && a->to == b->to && a->round == b->round &&
           a->hop == b->hop && a->lo == b->lo && a->hi == b->hi;
}

/* Flows in another order, and once more: the same pieces. */
static void equal_inputs_give_equal_pieces(void **state)
{
    uint64_t rounds = dyt_test_rounds(30, 200);

    (void)state;
    for (uint64_t seed = 0; seed < rounds; seed++) {
        struct dyt_traffic t;

        random_case(seed * 7, &t);
        for (size_t k = 0; dyti_strategy_at(k) != NULL; k++) {
            const struct dyti_strategy_ops *ops = dyti_strategy_at(k);
            struct dyti_order in = order_of(&t);
            struct dyti_pieces a = {0}, b = {0};

            assert_ok(ops->order(&in, &a));
            assert_ok(dyti_pieces_check(&in, &a));
            for (size_t i = t.flow_count; i > 1; i--) {
                size_t j = dyti_rng_u64(seed, i, k, 9) % i;
                struct dyti_flow f = t.flow[i - 1];

                t.flow[i - 1] = t.flow[j];
                t.flow[j] = f;
            }
            assert_ok(ops->order(&in, &b));
            assert_int_equal(a.count, b.count);
            for (size_t i = 0; i < a.count; i++) {
                assert_true(same_piece(&a.piece[i], &b.piece[i]));
            }
            dyti_pieces_fini(&a);
            dyti_pieces_fini(&b);
        }
        dyt_traffic_close(&t);
    }
}

/* Most parts at one end: what König needs as rounds, counted by hand. */
static uint32_t max_degree(const struct dyti_graph *g)
{
    uint32_t *degree = calloc(2 * (size_t)g->rank_count, sizeof(*degree));
    uint32_t most = 0;

    assert_non_null(degree);
    for (size_t i = 0; i < g->count; i++) {
        uint64_t left = g->edge[i].bytes;

        while (left > 0) {
            left -= left < g->chunk_bytes ? left : g->chunk_bytes;
            degree[g->edge[i].from]++;
            degree[g->rank_count + g->edge[i].to]++;
        }
    }
    for (uint32_t i = 0; i < 2 * g->rank_count; i++) {
        most = degree[i] > most ? degree[i] : most;
    }
    free(degree);
    return most;
}

static void colouring_has_as_many_rounds_as_the_busiest_has_parts(void **state)
{
    uint64_t rounds = dyt_test_rounds(60, 600);

    (void)state;
    for (uint64_t seed = 0; seed < rounds; seed++) {
        struct dyt_traffic t;
        struct dyti_takes takes = {0};
        struct dyti_edge *edge;
        struct dyti_graph g;
        unsigned char *seen;
        uint64_t total = 0;

        random_case(seed, &t);
        edge = calloc(t.flow_count + 1, sizeof(*edge));
        assert_non_null(edge);
        for (size_t i = 0; i < t.flow_count; i++) {
            edge[i] = (struct dyti_edge){t.flow[i].src, t.flow[i].dst,
                                         t.flow[i].bytes, (uint32_t)i};
            total += t.flow[i].bytes;
        }
        g = (struct dyti_graph){.rank_count = t.ranks,
                                .edge = edge,
                                .count = t.flow_count,
                                .chunk_bytes = (512u << 10) << seed % 7};
        assert_ok(dyti_takes_coloured(&g, &takes));
        assert_int_equal(max_degree(&g), takes.round_count);
        seen = calloc((size_t)takes.round_count * t.ranks * 2 + 1, 1);
        assert_non_null(seen);
        for (size_t i = 0; i < takes.count; i++) {
            const struct dyti_take *x = &takes.take[i];
            unsigned char *row = seen + (size_t)x->round * t.ranks * 2;

            assert_true(x->bytes > 0 && x->bytes <= g.chunk_bytes);
            assert_false(row[edge[x->edge].from]++);
            assert_false(row[t.ranks + edge[x->edge].to]++);
            total -= x->bytes;
        }
        assert_true(total == 0);
        free(seen);
        free(edge);
        free(takes.take);
        dyt_traffic_close(&t);
    }
}

/* One sends to thousands, or hears from them: as many rounds, and memory that
 * grows with the messages, not with ranks times rounds. */
static void a_rank_that_all_hear_takes_a_round_for_each(void **state)
{
    enum { RANKS = 20000 };
    struct dyti_edge *edge = calloc(RANKS, sizeof(*edge));

    (void)state;
    assert_non_null(edge);
    for (int hears = 0; hears < 2; hears++) {
        struct dyti_graph g = {.rank_count = RANKS,
                               .edge = edge,
                               .count = RANKS - 1,
                               .chunk_bytes = 64};
        struct dyti_takes takes = {0};
        unsigned char seen[RANKS] = {0};

        for (uint32_t i = 0; i + 1 < RANKS; i++) {
            edge[i] = (struct dyti_edge){.from = hears ? i + 1 : 0,
                                         .to = hears ? 0 : i + 1,
                                         .bytes = 64,
                                         .flow = i};
        }
        assert_ok(dyti_takes_coloured(&g, &takes));
        assert_int_equal(RANKS - 1, takes.round_count);
        assert_int_equal(RANKS - 1, takes.count);
        for (size_t i = 0; i < takes.count; i++) {
            assert_false(seen[takes.take[i].round]++);
        }
        free(takes.take);
    }
    free(edge);
}

/* Edges between up to so many ranks on some hosts, sparse or all to all, of
 * equal sizes or not. */
static void random_graph(uint64_t seed, uint32_t *host, struct dyti_edge *edge,
                         struct dyti_graph *out)
{
    uint32_t n = 2 + (uint32_t)(dyti_rng_u64(seed, 0, 0, 1) % 8);
    uint32_t dense = (uint32_t)(dyti_rng_u64(seed, 0, 0, 2) % 4);
    uint32_t sizes = (uint32_t)(dyti_rng_u64(seed, 0, 0, 3) % 3);

    if (seed % 10 == 9) { /* as many that a table of all pairs is worth it */
        n = 17;
        dense = 3;
    }
    *out = (struct dyti_graph){.rank_count = n,
                               .edge = edge,
                               .chunk_bytes = 64u << seed % 5,
                               .host = host,
                               .host_count = n,
                               .host_slots = (uint32_t)(seed % 3)};
    for (uint32_t r = 0; r < n; r++) {
        host[r] = r / (1 + (uint32_t)(seed % 4));
    }
    for (uint32_t i = 0; i < n * n; i++) {
        uint64_t x = dyti_rng_u64(seed, i, 0, 4);
        uint64_t bytes = sizes == 0   ? 128
                         : sizes == 1 ? 1 + x % 300
                                      : 64 * (1 + x % 3);

        if (i / n != i % n && (x >> 32) % 4 <= dense) {
            edge[out->count] =
                (struct dyti_edge){i / n, i % n, bytes, (uint32_t)out->count};
            out->count++;
        }
    }
}

/* Take by take what the definition gives, without a heap. */
static void greedy_is_what_its_definition_says(void **state)
{
    uint64_t rounds = dyt_test_rounds(60, 600);

    (void)state;
    for (uint64_t seed = 0; seed < rounds; seed++) {
        uint32_t host[DYT_GREEDY_RANKS];
        struct dyti_edge edge[DYT_GREEDY_RANKS * DYT_GREEDY_RANKS];
        struct dyti_graph g;
        struct dyti_takes takes = {0}, slow = {0};

        random_graph(seed, host, edge, &g);
        assert_ok(dyti_takes_greedy(&g, &takes));
        assert_ok(dyt_greedy_takes(&g, &slow));
        assert_int_equal(slow.count, takes.count);
        assert_int_equal(slow.round_count, takes.round_count);
        for (size_t i = 0; i < takes.count; i++) {
            if (takes.take[i].edge != slow.take[i].edge ||
                takes.take[i].round != slow.take[i].round ||
                takes.take[i].bytes != slow.take[i].bytes) {
                fail_msg("seed %llu, take %zu: edge %u, not %u",
                         (unsigned long long)seed, i, takes.take[i].edge,
                         slow.take[i].edge);
            }
        }
        free(takes.take);
        free(slow.take);
    }
}

/* All three ways carry each edge whole, whatever the sizes are. */
static void every_way_carries_all_bytes(void **state)
{
    enum dyt_status (*const ways[])(const struct dyti_graph *,
                                    struct dyti_takes *) = {
        dyti_takes_coloured, dyti_takes_greedy, dyti_takes_sliced};
    static const uint64_t bytes[] = {1, 63, 64, 65, 1000003, 4096, 7, 777777};

    (void)state;
    for (size_t k = 0; k < DYT_TEST_COUNT(ways); k++) {
        for (uint64_t chunk = 1; chunk < 2000000; chunk = chunk * 37 + 5) {
            struct dyti_edge edge[12];
            uint64_t sum[12] = {0};
            struct dyti_graph g = {
                .rank_count = 4, .edge = edge, .chunk_bytes = chunk * 64};
            struct dyti_takes takes = {0};

            for (uint32_t i = 0; i < 16; i++) {
                if (i / 4 != i % 4) {
                    edge[g.count] = (struct dyti_edge){
                        i / 4, i % 4, bytes[i % 8], (uint32_t)g.count};
                    g.count++;
                }
            }
            assert_ok(ways[k](&g, &takes));
            for (size_t i = 0; i < takes.count; i++) {
                assert_true(takes.take[i].bytes <= g.chunk_bytes);
                sum[takes.take[i].edge] += takes.take[i].bytes;
            }
            for (size_t i = 0; i < g.count; i++) {
                assert_true(sum[i] == edge[i].bytes);
            }
            free(takes.take);
        }
    }
}

static void chunks_are_as_asked(void **state)
{
    struct dyt_traffic t;
    struct dyti_order in;
    struct dyti_pieces p = {0};
    struct dyti_busiest busiest;

    (void)state;
    assert_true(dyt_traffic_random(&t, 3, 12, 4, 1));
    in = order_of(&t);
    assert_ok(
        dyti_busiest_of_flows(in.cluster, in.flow, in.flow_count, &busiest));
    assert_ok(dyti_strategy_optimal.order(&in, &p));
    assert_true(p.chunk_bytes * 64 <= busiest.bytes * 16);
    for (size_t i = 0; i < p.count; i++) {
        uint64_t bytes = p.piece[i].hi - p.piece[i].lo;

        if (dyti_cluster_link(in.cluster, p.piece[i].from, p.piece[i].to) ==
            busiest.link) {
            assert_true(bytes <= busiest.bytes / 64);
        }
    }
    dyti_pieces_fini(&p);
    in.chunk_bytes = 1u << 20;
    for (size_t k = 0; k < 3; k++) { /* per-tensor does not cut messages */
        assert_ok(dyti_strategy_at(k)->order(&in, &p));
        assert_true(p.chunk_bytes <= 1u << 20);
        dyti_pieces_fini(&p);
    }
    dyt_traffic_close(&t);
}

/* One piece for each transfer, ending where it ends. */
static void per_tensor_sends_transfers(void **state)
{
    static const uint64_t a[] = {5, 5, 100}, b[] = {70};
    const uint64_t *end[] = {a, b};
    const uint32_t host[] = {0, 0, 0};
    const struct dyti_flow flow[] = {{0, 1, 100, 3, 0}, {2, 1, 70, 1, 0}};
    struct dyti_cluster c = {.rank_count = 3, .host_count = 1, .host = host};
    struct dyti_order in = {
        .cluster = &c, .flow = flow, .flow_count = 2, .end = end};
    struct dyti_pieces p = {0};

    (void)state;
    c.link[DYTI_LINK_HOST].bytes_per_s = 1.0;
    assert_ok(dyti_strategy_per_tensor.order(&in, &p));
    assert_int_equal(3, p.count); /* an empty transfer is no message */
    assert_int_equal(5, p.piece[0].hi - p.piece[0].lo);
    assert_int_equal(70, p.piece[1].hi - p.piece[1].lo);
    assert_int_equal(95, p.piece[2].hi - p.piece[2].lo);
    assert_true(p.makespan_s == 170.0);
    dyti_pieces_fini(&p);
}

/* 1 and 2 speak for all: three hops, and the exchange is between them. */
static void funnel_goes_by_the_speakers(void **state)
{
    static const uint32_t host[] = {0, 0, 1, 1}, lead[] = {1, 1, 2, 2};
    const struct dyti_flow flow[] = {{0, 3, 1000, 1, 0}};
    struct dyti_cluster c = {.rank_count = 4, .host_count = 2, .host = host};
    struct dyti_order in = {.cluster = &c,
                            .flow = flow,
                            .flow_count = 1,
                            .chunk_bytes = 1024,
                            .src_lead = lead,
                            .dst_lead = lead};
    struct dyti_pieces p = {0};

    (void)state;
    c.link[DYTI_LINK_HOST].bytes_per_s = 100.0;
    c.link[DYTI_LINK_NIC].bytes_per_s = 10.0;
    assert_ok(dyti_strategy_funnel.order(&in, &p));
    assert_int_equal(3, p.count);
    assert_int_equal(1, p.piece[0].to);
    assert_int_equal(1, p.piece[1].from);
    assert_int_equal(2, p.piece[1].to);
    assert_int_equal(2, p.piece[2].from);
    assert_true(p.makespan_s == 120.0);
    assert_true(p.load_s == 100.0);
    dyti_pieces_fini(&p);
}

/* What is on a host moves while NICs work. */
static void link_classes_overlap(void **state)
{
    static const uint32_t host[] = {0, 0, 1, 1};
    const struct dyti_flow flow[] = {
        {0, 1, 6400, 1, 0}, {0, 2, 6400, 1, 0}, {3, 2, 6400, 1, 0}};
    struct dyti_cluster c = {.rank_count = 4, .host_count = 2, .host = host};
    struct dyti_order in = {.cluster = &c, .flow = flow, .flow_count = 3};
    struct dyti_pieces p = {0};

    (void)state;
    c.link[DYTI_LINK_HOST].bytes_per_s = 64.0;
    c.link[DYTI_LINK_NIC].bytes_per_s = 64.0;
    assert_ok(dyti_strategy_optimal.order(&in, &p));
    assert_true(p.makespan_s == 100.0 && p.load_s == 100.0);
    dyti_pieces_fini(&p);
}

/* Two ranks of a host send; its NICs together are as fast as one of them. */
static void host_nics_are_shared(void **state)
{
    static const uint32_t host[] = {0, 0, 1, 1};
    const struct dyti_flow flow[] = {{0, 2, 64000, 1, 0}, {1, 3, 64000, 1, 0}};
    struct dyti_cluster c = {.rank_count = 4,
                             .host_count = 2,
                             .host = host,
                             .host_nic_bytes_per_s = 64.0};
    struct dyti_order in = {.cluster = &c, .flow = flow, .flow_count = 2};
    struct dyti_pieces p = {0};

    (void)state;
    c.link[DYTI_LINK_NIC].bytes_per_s = 64.0;
    assert_ok(dyti_strategy_optimal.order(&in, &p));
    assert_true(p.load_s == 2000.0);
    assert_true(p.makespan_s > 1999.9 && p.makespan_s < 2000.1);
    dyti_pieces_fini(&p);
}

static void what_cannot_be_is_refused(void **state)
{
    static const uint32_t host[] = {0, 0, 1};
    struct dyti_flow flow[] = {{0, 1, 10, 1, 0}, {0, 2, 10, 1, 0}};
    struct dyti_cluster c = {.rank_count = 3, .host_count = 2, .host = host};
    struct dyti_order in = {.cluster = &c, .flow = flow, .flow_count = 2};
    const struct dyti_strategy_ops *ops = NULL;
    struct dyti_pieces p = {0};

    (void)state;
    c.link[DYTI_LINK_HOST].bytes_per_s = 1.0;
    for (size_t k = 0; (ops = dyti_strategy_at(k)) != NULL; k++) {
        assert_status(DYT_ERR_INVALID, ops->order(&in, &p));
        assert_error_has("NIC link has no speed");
        flow[1].dst = 1;
        assert_status(DYT_ERR_INVALID, ops->order(&in, &p));
        assert_error_has("0 -> 1 of wave 0 is given twice");
        flow[1].dst = 3;
        assert_status(DYT_ERR_INVALID, ops->order(&in, &p));
        flow[1] = (struct dyti_flow){1, 1, 10, 1, 0};
        assert_status(DYT_ERR_INVALID, ops->order(&in, &p));
        flow[1] = (struct dyti_flow){1, 0, 0, 1, 0};
        assert_status(DYT_ERR_INVALID, ops->order(&in, &p));
        assert_error_has("has no bytes");
        flow[1] = (struct dyti_flow){0, 2, 10, 1, 0};
        assert_null(p.piece);
        in.flow_count = 0; /* nothing is fine */
        assert_ok(ops->order(&in, &p));
        assert_int_equal(0, p.count);
        assert_true(dyti_pieces_ratio(&p) == 1.0);
        dyti_pieces_fini(&p);
        in.flow_count = 2;
        assert_ok(dyti_strategy_by_name(ops->name, &ops));
        assert_ptr_equal(dyti_strategy_at(k), ops);
    }
    assert_status(DYT_ERR_CONFIG, dyti_strategy_by_name("best", &ops));
    assert_error_has("optimal, xor, funnel, per-tensor");
}

/* A check that would find nothing would be none. */
static void the_check_finds_what_is_wrong(void **state)
{
    struct dyt_traffic t;
    struct dyti_order in;
    struct dyti_pieces p = {0};

    (void)state;
    assert_true(dyt_traffic_random(&t, 5, 6, 3, 1));
    in = order_of(&t);
    assert_ok(dyti_strategy_optimal.order(&in, &p));
    p.piece[3].hi--;
    assert_status(DYT_ERR_INVALID, dyti_pieces_check(&in, &p));
    p.piece[3].hi++;
    p.piece[3].to = (p.piece[3].to + 1) % 6;
    assert_status(DYT_ERR_INVALID, dyti_pieces_check(&in, &p));
    p.piece[3].to = p.piece[3].dst;
    assert_ok(dyti_pieces_check(&in, &p));
    p.piece[p.count - 1].round = 0;
    assert_status(DYT_ERR_INVALID, dyti_pieces_check(&in, &p));
    p.piece[p.count - 1].round = p.round_count - 1;
    p.count--;
    assert_status(DYT_ERR_INVALID, dyti_pieces_check(&in, &p));
    dyti_pieces_fini(&p);
    dyt_traffic_close(&t);
}

/* Pieces that stand for several messages: as many messages and bytes as
 * without, in the same streams, and no more pieces than asked. */
static void few_pieces_stand_for_many_messages(void **state)
{
    static const struct dyti_replay_options costs = {.costs = true};
    struct dyt_traffic t;

    (void)state;
    for (uint32_t shape = 0; shape < 3; shape++) {
        struct dyti_order in;
        struct dyti_pieces all = {0}, few = {0};
        uint64_t messages = 0, want = 0;
        double exact = 0, near = 0;

        assert_true(dyt_traffic_random(&t, 31 + shape, 12, 4, shape));
        t.cluster.link[DYTI_LINK_HOST].message_s = 5e-6;
        t.cluster.link[DYTI_LINK_NIC].message_s = 8e-6;
        for (size_t i = 0; i < t.flow_count; i++) {
            t.flow[i].messages = 30 + (uint32_t)(i % 70);
            want += t.flow[i].messages;
        }
        in = order_of(&t);
        assert_ok(dyti_strategy_per_tensor.order(&in, &all));
        assert_int_equal(want, all.count);
        in.most_pieces = 9;
        assert_ok(dyti_strategy_per_tensor.order(&in, &few));
        assert_ok(dyti_pieces_check(&in, &few));
        assert_int_equal(9 * t.flow_count, few.count);
        for (size_t i = 0; i < few.count; i++) {
            messages += few.piece[i].messages;
        }
        assert_int_equal(want, messages);
        assert_ok(
            dyti_replay(&t.cluster, all.piece, all.count, &costs, &exact));
        assert_ok(dyti_replay(&t.cluster, few.piece, few.count, &costs, &near));
        assert_true(near > 0.7 * exact && near < 1.3 * exact);
        dyti_pieces_fini(&all);
        dyti_pieces_fini(&few);
        dyt_traffic_close(&t);
    }
}

/* Detours given as flows: all of their bytes, wave after wave; the load is that
 * of what has to go. */
static void funnel_goes_by_the_detours(void **state)
{
    struct dyt_traffic t;
    struct dyti_order in, detours;
    struct dyti_pieces p = {0}, optimal = {0};

    (void)state;
    assert_true(dyt_traffic_layouts(&t, dyt_transitions[0].src,
                                    dyt_transitions[0].dst, 8));
    in = order_of(&t);
    in.detour = t.funnel;
    in.detour_count = t.funnel_count;
    detours = in;
    detours.flow = t.funnel;
    detours.flow_count = t.funnel_count;
    assert_ok(dyti_strategy_funnel.order(&in, &p));
    assert_ok(dyti_pieces_check(&detours, &p));
    assert_ok(dyti_strategy_optimal.order(&in, &optimal));
    assert_true(p.load_s == optimal.load_s);
    assert_true(p.makespan_s > optimal.makespan_s);
    dyti_pieces_fini(&p);
    dyti_pieces_fini(&optimal);
    dyt_traffic_close(&t);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(few_pieces_stand_for_many_messages),
    cmocka_unit_test(funnel_goes_by_the_detours),
    cmocka_unit_test(published_transitions_end_near_the_load),
    cmocka_unit_test(random_traffic_ends_near_the_load),
    cmocka_unit_test(equal_inputs_give_equal_pieces),
    cmocka_unit_test(colouring_has_as_many_rounds_as_the_busiest_has_parts),
    cmocka_unit_test(greedy_is_what_its_definition_says),
    cmocka_unit_test(a_rank_that_all_hear_takes_a_round_for_each),
    cmocka_unit_test(every_way_carries_all_bytes),
    cmocka_unit_test(chunks_are_as_asked),
    cmocka_unit_test(per_tensor_sends_transfers),
    cmocka_unit_test(funnel_goes_by_the_speakers),
    cmocka_unit_test(link_classes_overlap),
    cmocka_unit_test(host_nics_are_shared),
    cmocka_unit_test(what_cannot_be_is_refused),
    cmocka_unit_test(the_check_finds_what_is_wrong),
};
DYT_TEST_MAIN(tests)
