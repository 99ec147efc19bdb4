/* The flows of a funnel against a count of every element of every tensor, from
 * the views alone; and what a rank's routes carry against their transfers. */
#include "plan_cases.h"

#include "layout/dialect.h"
#include "plan/traffic.h"

#define TRIALS 120u
#define SEED   4242u
#define HOPS   3u

struct oracle {
    const struct dyti_plan_inputs *in;
    uint32_t world;
    uint64_t *bytes; /* [HOPS][world][world] */
};

static uint64_t elements_of(const struct dyt_box *box)
{
    uint64_t n = 0;

    assert_ok(dyt_box_count(box, &n));
    return n;
}

/* Equal numbers: each other's replicas. */
static uint32_t number_of(const struct dyti_layout *l, uint32_t rank,
                          bool expert)
{
    for (uint32_t m = 0;
         l->desc.dialect != DYTI_DIALECT_LIST && m < l->member_count; m++) {
        struct dyti_part p;

        if (l->desc.ranks[m] != rank) {
            continue;
        }
        dyti_layout_part(l, m, &p);
        return expert ? (p.pp_rank * p.ep_size + p.ep_rank) * p.etp_size +
                            p.etp_rank
                      : p.pp_rank * p.tp_size + p.tp_rank;
    }
    return rank;
}

/* [elements][world]: who holds what of a tensor.  Bytes of an element; 0:
 * nobody holds anything. */
static uint32_t mark(const struct dyti_layout *l, enum dyti_kind kind,
                     uint32_t tensor, unsigned char *held)
{
    const struct dyti_tensor *t = &l->model->tensor[tensor];
    uint32_t world = l->desc.world_size;
    uint32_t bytes = 0;

    for (uint32_t r = 0; r < world; r++) {
        const struct dyti_view *v = &l->view[r];

        for (uint32_t i = v->kind_first[kind]; i < v->kind_first[kind + 1];
             i++) {
            const struct dyti_shard *s = &v->shard[i];
            int64_t at[DYT_MAX_DIMS];

            if (s->tensor != tensor || elements_of(&s->box) == 0) {
                continue;
            }
            memcpy(at, s->box.lo, sizeof(at));
            do {
                held[dyt_case_index(t, at) * world + r] = 1;
            } while (dyt_case_next(&s->box, at));
            bytes = dyti_dtype_bytes((enum dyti_dtype)s->dtype);
        }
    }
    return bytes;
}

/* First holder of each number, over the elements that somebody wants. */
static void find_leads(const struct dyti_layout *l, bool expert,
                       uint64_t elements, const unsigned char *held,
                       const unsigned char *wanted, uint32_t *lead)
{
    uint32_t world = l->desc.world_size;

    memset(lead, 0xff, world * sizeof(*lead));
    for (uint64_t e = 0; e < elements; e++) {
        if (memchr(wanted + e * world, 1, world) == NULL) {
            continue;
        }
        for (uint32_t r = 0; r < world; r++) {
            uint32_t n = number_of(l, r, expert);

            if (held[e * world + r] != 0 && r < lead[n]) {
                lead[n] = r;
            }
        }
    }
}

static void send(const struct oracle *o, uint32_t hop, uint32_t from,
                 uint32_t to, uint64_t bytes)
{
    if (from != to) {
        o->bytes[((size_t)hop * o->world + from) * o->world + to] += bytes;
    }
}

static void count_tensor(const struct oracle *o,
                         const struct dyti_plan_want *want, uint32_t tensor)
{
    const struct dyti_layout *dst = o->in->dst, *src = NULL;
    const struct dyti_tensor *t = &dst->model->tensor[tensor];
    uint32_t world = o->world, lead[2][DYT_CASE_RANKS];
    uint64_t elements = dyti_tensor_elements(t);
    unsigned char *have = calloc(elements * world + 1, 1);
    unsigned char *wanted = calloc(elements * world + 1, 1);
    bool expert = t->expert >= 0;
    uint32_t size;

    assert_non_null(have);
    assert_non_null(wanted);
    size = mark(dst, want->kind, tensor, wanted);
    for (uint32_t i = 0; i < want->source_count && src == NULL; i++) {
        if (mark(want->source[i].layout, want->source[i].kind, tensor, have) !=
            0) {
            src = want->source[i].layout;
        }
    }
    if (src == NULL) {
        goto out;
    }
    find_leads(src, expert, elements, have, wanted, lead[0]);
    find_leads(dst, expert, elements, wanted, wanted, lead[1]);
    for (uint64_t e = 0; e < elements; e++) {
        const unsigned char *h = have + e * world, *w = wanted + e * world;
        uint32_t source = UINT32_MAX, from;
        bool sent[DYT_CASE_RANKS] = {false};

        if (memchr(w, 1, world) == NULL) {
            continue;
        }
        for (uint32_t r = world; r-- > 0;) {
            source = h[r] != 0 ? r : source;
        }
        for (uint32_t r = world; r-- > 0;) {
            source = h[r] != 0 && lead[0][number_of(src, r, expert)] == r
                         ? r
                         : source;
        }
        from = lead[0][number_of(src, source, expert)];
        send(o, 0, source, from, size);
        for (uint32_t r = 0; r < world; r++) {
            uint32_t n = number_of(dst, r, expert);

            if (w[r] == 0) {
                continue;
            }
            if (!sent[n]) {
                send(o, 1, from, lead[1][n], size);
            }
            sent[n] = true;
            send(o, 2, lead[1][n], r, size);
        }
    }
out:
    free(have);
    free(wanted);
}

static void compare(const struct oracle *o, const struct dyti_flow *flow,
                    size_t count, uint64_t trial)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t *cell =
            &o->bytes[((size_t)flow[i].wave * o->world + flow[i].src) *
                          o->world +
                      flow[i].dst];

        if (*cell != flow[i].bytes || flow[i].messages == 0) {
            fail_msg("trial %llu: %u -> %u in wave %u: %llu bytes, counted "
                     "%llu",
                     (unsigned long long)trial, flow[i].src, flow[i].dst,
                     flow[i].wave, (unsigned long long)flow[i].bytes,
                     (unsigned long long)*cell);
        }
        *cell = 0;
    }
    for (size_t i = 0; i < (size_t)HOPS * o->world * o->world; i++) {
        assert_true(o->bytes[i] == 0);
    }
}

static void the_detours_are_those_of_every_element(void **state)
{
    uint64_t trials = dyt_test_rounds(TRIALS / 2, 10 * TRIALS);
    size_t seen = 0;

    (void)state;
    /* never so few that nothing takes a detour */
    trials = trials < TRIALS / 2 ? TRIALS / 2 : trials;
    for (uint64_t trial = 0; trial < trials; trial++) {
        uint32_t world = 1 + (uint32_t)dyt_case_pick(SEED, trial, 0, 12);
        struct dyt_case_switch s = {0};
        struct dyti_traffic *traffic = NULL;
        struct dyti_flow *flow = NULL;
        size_t count = 0;
        struct oracle o = {.in = &s.inputs, .world = world};

        dyt_case_switch_open(
            SEED, trial, (enum dyt_case_way)(trial % DYT_CASE_WAYS), world, &s);
        assert_ok(dyti_traffic_build(&s.inputs, NULL, &traffic));
        assert_ok(dyti_traffic_funnel(traffic, &flow, &count));
        o.bytes = calloc((size_t)HOPS * world * world, sizeof(*o.bytes));
        assert_non_null(o.bytes);
        for (uint32_t w = 0; w < s.inputs.want_count; w++) {
            for (uint32_t t = 0; t < s.inputs.dst->model->tensor_count; t++) {
                count_tensor(&o, &s.inputs.want[w], t);
            }
        }
        compare(&o, flow, count, trial);
        seen += count;
        free(o.bytes);
        free(flow);
        dyti_traffic_destroy(traffic);
        dyt_case_switch_close(&s);
    }
    assert_true(seen > 100);
}

static void a_route_carries_what_its_transfers_do(void **state)
{
    (void)state;
    for (uint64_t trial = 0; trial < 40; trial++) {
        struct dyt_case_switch s = {0};
        struct dyti_traffic *traffic = NULL;
        const struct dyti_traffic_options options = {.fan_out = trial % 2 == 0};

        dyt_case_switch_open(SEED + 1, trial,
                             (enum dyt_case_way)(trial % DYT_CASE_WAYS), 8, &s);
        assert_ok(dyti_traffic_build(&s.inputs, &options, &traffic));
        for (uint32_t r = 0; r < 8; r++) {
            struct dyti_routes routes = {0};

            assert_ok(dyti_traffic_routes(traffic, r, &routes));
            for (size_t i = 0; i < routes.count; i++) {
                struct dyti_route_cursor cursor = {0};
                struct dyti_transfer t;
                uint64_t bytes = 0;

                while (
                    dyti_route_next(traffic, &routes.route[i], &cursor, &t)) {
                    bytes += elements_of(&t.box) *
                             dyti_dtype_bytes((enum dyti_dtype)t.dst_dtype);
                }
                assert_true(bytes ==
                            dyti_route_bytes(traffic, &routes.route[i]));
            }
            dyti_routes_fini(&routes);
        }
        dyti_traffic_destroy(traffic);
        dyt_case_switch_close(&s);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_detours_are_those_of_every_element),
    cmocka_unit_test(a_route_carries_what_its_transfers_do),
};
DYT_TEST_MAIN(tests)
