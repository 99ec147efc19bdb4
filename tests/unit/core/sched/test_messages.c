/* Random switches whose links go by messages, with staging of one message and
 * more, by every strategy, while somebody with bad intentions chooses what ends
 * next: nothing ever waits in a circle, slots have one user at a time, both
 * ends of a message mean the same bytes, and the destination is right. */
#include "message_machine.h"

#define TRIALS 160u

/* ---- a trial ------------------------------------------------------------- */

static void open_rank(struct world *w, uint32_t r)
{
    const struct dyti_schedule *s = w->s[r];
    size_t links = 2 * w->size;

    w->state[r] = calloc(s->step_count, 1);
    w->waits[r] = calloc(s->step_count, sizeof(uint32_t));
    w->link[r] = calloc(links, sizeof(uint32_t));
    w->head[r] = calloc(links, sizeof(uint32_t));
    w->parts[r] = calloc(s->step_count, sizeof(uint32_t));
    w->slot[r] = calloc(s->staging_bytes + 1, sizeof(uint32_t));
    assert_true(w->state[r] && w->waits[r] && w->link[r] && w->head[r] &&
                w->slot[r] && w->parts[r]);
    for (uint32_t i = 0; i < s->step_count; i++) {
        w->waits[r][i] = s->step[i].wait_count;
        w->state[r][i] = w->waits[r][i] == 0 ? READY : WAITS;
    }
    if (s->link_first != NULL) {
        memcpy(w->link[r], s->link_first, links * sizeof(uint32_t));
        memcpy(w->head[r], s->link_first, links * sizeof(uint32_t));
    }
    w->left += s->step_count;
    post_ready(w, r);
}

static void run_world(struct world *w, uint64_t trial)
{
    enum intent intent = (enum intent)(trial % INTENTS);
    struct choice c = {0};

    for (uint64_t n = 0; w->left > 0; n++) {
        if (!next_choice(w, intent, n, trial, &c)) {
            fail_msg("trial %" PRIu64 ": %u steps wait for ever", trial,
                     w->left);
        }
        if (c.to == UINT32_MAX) {
            do_step(w, c.rank, c.index);
        } else {
            do_message(w, c.rank, c.to);
        }
    }
}

/* With those that are promoted it takes no longer; with all it may. */
static void check_pays(struct world *w, const struct dyti_plan *whole,
                       const struct dyti_schedule_links *links,
                       const struct dyti_flow *flow,
                       const struct dyti_chains *chains)
{
    struct dyti_collectives some = {0}, all = {0};
    double without, with, most;
    size_t n = links->flow_count;

    assert_ok(dyti_collectives_find(whole, links, flow, n, chains, &some));
    assert_ok(dyti_collectives_all(whole, links, flow, n, chains, &all));
    assert_ok(dyti_collectives_seconds(whole, links, flow, n, chains, NULL,
                                       &without));
    assert_ok(
        dyti_collectives_seconds(whole, links, flow, n, chains, &some, &with));
    assert_ok(
        dyti_collectives_seconds(whole, links, flow, n, chains, &all, &most));
    assert_true(with <= without * (1 + 1e-9));
    assert_true(some.found.count <= all.found.count);
    w->slower += most > without * (1 + 1e-9);
    dyti_collectives_fini(&some);
    dyti_collectives_fini(&all);
}

static void build_rank(const struct dyt_case_switch *c, struct world *w,
                       uint32_t r, const struct dyti_plan *whole,
                       struct dyti_schedule_options options)
{
    struct dyti_plan *plan = NULL;
    struct dyti_flow *flow = NULL;
    uint64_t **end = NULL;
    struct dyti_chains chains = {0};
    struct dyti_collectives collectives = {0};

    assert_ok(dyti_plan_build_rank(&c->inputs, r, &plan));
    assert_ok(dyti_schedule_flows(whole, options.links.domain, &flow, &end,
                                  &options.links.flow_count,
                                  &options.links.wave_count));
    options.links.flow = flow;
    options.links.end = (const uint64_t *const *)end;
    assert_ok(dyti_chains_find(whole, &options.links, flow,
                               options.links.flow_count, &chains));
    check_pays(w, whole, &options.links, flow, &chains);
    assert_ok(dyti_collectives_all(whole, &options.links, flow,
                                   options.links.flow_count, &chains,
                                   &collectives));
    options.links.chains = &chains;
    options.links.collectives = &collectives;
    for (size_t i = 0; i < collectives.found.count; i++) {
        w->kinds |= 1u << collectives.found.collective[i].kind;
    }
    assert_ok(dyti_schedule_build(plan, r, &options, &w->s[r]));
    assert_ok(dyti_schedule_check(w->s[r]));
    assert_true(w->s[r]->staging_bytes <= options.links.staging_bytes ||
                options.links.staging_bytes == 0);
    free(flow);
    free(end);
    dyti_chains_fini(&chains);
    dyti_collectives_fini(&collectives);
    dyti_plan_destroy(plan);
}

static void no_order_of_ends_makes_them_wait_for_ever(void **state)
{
    static const uint64_t staging[] = {128, 192, 512, 0};

    uint32_t collectives = 0, kinds = 0, slower = 0;

    (void)state;
    for (uint64_t trial = 0; trial < TRIALS; trial++) {
        struct world w = {.size =
                              2 + (uint32_t)dyt_case_pick(SEED, trial, 0, 6)};
        uint32_t domain[DYT_CASE_RANKS];
        struct dyti_schedule_options options = {
            .links = {
                .domain = domain,
                .strategy = dyti_strategy_at(dyt_case_pick(SEED, trial, 61, 4)),
                .message_bytes =
                    dyt_case_pick(SEED, trial, 60, 2) == 0 ? 64 : 0,
                .staging_bytes = staging[dyt_case_pick(SEED, trial, 62, 4)]}};
        struct dyti_plan *whole = NULL;
        struct dyt_case_switch c;

        for (uint32_t r = 0; r < w.size; r++) {
            domain[r] = trial % 3 == 0 ? r / 2 : r;
        }
        dyt_case_switch_open(SEED, trial,
                             (enum dyt_case_way)(trial % DYT_CASE_WAYS), w.size,
                             &c);
        dyt_case_memory_open(&c.inputs, &w.memory);
        assert_ok(dyti_plan_build(&c.inputs, &whole));
        for (uint32_t r = 0; r < w.size; r++) {
            build_rank(&c, &w, r, whole, options);
            assert_true(w.s[r]->fingerprint == w.s[0]->fingerprint);
            open_rank(&w, r);
        }
        run_world(&w, trial);
        dyt_case_memory_check(&c.inputs, &w.memory, -1);
        for (uint32_t r = 0; r < w.size; r++) {
            free(w.state[r]);
            free(w.waits[r]);
            free(w.link[r]);
            free(w.head[r]);
            free(w.parts[r]);
            free(w.slot[r]);
            dyti_schedule_destroy(w.s[r]);
        }
        dyti_plan_destroy(whole);
        dyt_case_memory_close(&w.memory);
        dyt_case_switch_close(&c);
        collectives += w.collectives;
        kinds |= w.kinds;
        slower += w.slower;
    }
    print_message("%u steps were collectives, kinds %x\n", collectives, kinds);
    assert_true(collectives > 0);
    assert_true(slower > 0); /* and are not promoted */
}

static void a_cap_too_small_is_refused_with_the_smallest(void **state)
{
    const uint32_t domain[] = {0, 1, 2};
    struct dyti_schedule_options options = {
        .links = {.domain = domain,
                  .strategy = dyti_strategy_at(0),
                  .staging_bytes = 127}};
    struct dyti_schedule *s = NULL;
    struct dyti_plan *plan = NULL;
    struct dyt_case_switch c;

    (void)state;
    dyt_case_switch_open(SEED, 1, (enum dyt_case_way)0, 3, &c);
    assert_ok(dyti_plan_build(&c.inputs, &plan));
    assert_status(DYT_ERR_UNSUPPORTED,
                  dyti_schedule_build(plan, 0, &options, &s));
    assert_null(s);
    assert_error_has("127");
    assert_error_has("128");
    options.links.staging_bytes = 128; /* and that works */
    assert_ok(dyti_schedule_build(plan, 0, &options, &s));
    dyti_schedule_destroy(s);
    options.links.strategy = NULL;
    assert_status(DYT_ERR_INVALID, dyti_schedule_build(plan, 0, &options, &s));
    dyti_plan_destroy(plan);
    dyt_case_switch_close(&c);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(no_order_of_ends_makes_them_wait_for_ever),
    cmocka_unit_test(a_cap_too_small_is_refused_with_the_smallest),
};
DYT_TEST_MAIN(tests)
