/* Compact plans of random switches on random hosts: carried out element by
 * element they give the destination; every rank's list, the matrix and the sums
 * say the same; nothing is below its bound or worse than the first replica. */
#include "plan_cases.h"

#include "pattern_cases.h"
#include "plan/expand.h"
#include "plan/traffic.h"

#define TRIALS 160u
#define SEED   90210u

struct world {
    struct dyt_case_switch s;
    struct dyti_patterns *patterns[2];
    uint32_t host[DYT_CASE_RANKS];
    struct dyti_cluster cluster;
    struct dyti_traffic_options options;
    struct dyti_traffic *traffic;
};

static void open_world(uint64_t trial, struct world *w)
{
    uint32_t world = 1 + (uint32_t)dyt_case_pick(SEED, trial, 0, 16);
    uint32_t hosts = 1 + (uint32_t)dyt_case_pick(SEED, trial, 1, 4);
    const struct dyti_patterns *list[2];

    memset(w, 0, sizeof(*w));
    dyt_case_switch_open(
        SEED, trial, (enum dyt_case_way)(trial % DYT_CASE_WAYS), world, &w->s);
    for (uint32_t r = 0; r < world; r++) {
        w->host[r] = dyt_case_pick(SEED, trial, 2, 3) == 0
                         ? (uint32_t)dyt_case_pick(SEED, trial, 60 + r, hosts)
                         : r * hosts / world;
        w->host[r] = w->host[r] < world ? w->host[r] : 0;
    }
    w->cluster = (struct dyti_cluster){
        .name = "case",
        .rank_count = world,
        .host_count = hosts,
        .host = w->host,
        .link = {{.bytes_per_s = 800e9},
                 {.bytes_per_s =
                      dyt_case_pick(SEED, trial, 3, 4) == 0 ? 20e9 : 400e9},
                 {.bytes_per_s = 25e9}},
        .host_nic_bytes_per_s =
            dyt_case_pick(SEED, trial, 4, 3) == 0 ? 40e9 : 0};
    w->options = (struct dyti_traffic_options){
        .cluster = &w->cluster,
        .fan_out = dyt_case_pick(SEED, trial, 5, 3) != 0,
        .naive = dyt_case_pick(SEED, trial, 6, 8) == 0,
        .nearest = dyt_case_pick(SEED, trial, 7, 4) == 0};
    w->patterns[0] = dyt_case_patterns(w->s.src);
    w->patterns[1] = dyt_case_patterns(w->s.dst);
    list[0] = w->patterns[0];
    list[1] = w->patterns[1];
    assert_ok(dyti_traffic_build_from(&w->s.inputs, &w->options, list, 2,
                                      &w->traffic));
}

static void close_world(struct world *w)
{
    dyti_traffic_destroy(w->traffic);
    dyt_case_patterns_free(w->patterns[0]);
    dyt_case_patterns_free(w->patterns[1]);
    dyt_case_switch_close(&w->s);
}

/* One transfer, element by element; wave 1 reads what wave 0 wrote. */
static void move(const struct world *w, const struct dyti_transfer *t,
                 struct dyt_case_memory *m)
{
    const struct dyti_plan_inputs *in = &w->s.inputs;
    const struct dyti_layout *from =
        t->wave > 0 ? in->dst : in->want[t->want].source[t->source].layout;
    const struct dyti_shard *src = &from->view[t->src_rank].shard[t->src_shard];
    const struct dyti_shard *dst =
        &in->dst->view[t->dst_rank].shard[t->dst_shard];
    int64_t at[DYT_MAX_DIMS];

    assert_int_equal(t->wave > 0, t->source == DYTI_PLAN_SIBLING);
    memcpy(at, t->box.lo, sizeof(at));
    do {
        uint32_t *to = m->region[t->dst_slot][t->dst_kind][t->dst_rank] +
                       dyt_case_offset(dst, at) /
                           dyti_dtype_bytes((enum dyti_dtype)t->dst_dtype);
        uint32_t have =
            m->region[t->src_slot][t->src_kind][t->src_rank]
                     [dyt_case_offset(src, at) /
                      dyti_dtype_bytes((enum dyti_dtype)t->src_dtype)];

        assert_int_equal(DYT_CASE_NOTHING, *to); /* once only */
        assert_int_not_equal(DYT_CASE_NOTHING, have);
        *to = have;
    } while (dyt_case_next(&t->box, at));
}

struct row {
    uint64_t read, write, count;
};

static void check_matrix(const struct world *w, const struct dyti_transfer *t,
                         size_t count)
{
    uint32_t n = w->traffic->world_size;
    struct row *sum = calloc((size_t)n * n * 2, sizeof(*sum));
    struct dyti_traffic_sum kinds[DYTI_KIND_COUNT][DYTI_LINK_CLASS_COUNT];
    size_t pairs = 0;

    assert_non_null(sum);
    memset(kinds, 0, sizeof(kinds));
    for (size_t i = 0; i < count; i++) {
        struct row *row =
            &sum[((size_t)t[i].dst_rank * n + t[i].src_rank) * 2 + t[i].wave];
        struct dyti_traffic_sum *kind = &kinds[t[i].dst_kind][dyti_cluster_link(
            &w->cluster, t[i].src_rank, t[i].dst_rank)];
        uint64_t elements = 0, read, write;

        assert_ok(dyt_box_count(&t[i].box, &elements));
        read = elements * dyti_dtype_bytes((enum dyti_dtype)t[i].src_dtype);
        write = elements * dyti_dtype_bytes((enum dyti_dtype)t[i].dst_dtype);
        row->count++;
        row->read += read;
        row->write += write;
        kind->transfers++;
        kind->read_bytes += read;
        kind->write_bytes += write;
    }
    for (size_t i = 0; i < (size_t)n * n * 2; i++) {
        pairs += sum[i].count > 0;
    }
    assert_int_equal(pairs, w->traffic->pair_count);
    for (size_t i = 0; i < w->traffic->pair_count; i++) {
        const struct dyti_traffic_pair *p = &w->traffic->pair[i];
        const struct row *row =
            &sum[((size_t)p->dst_rank * n + p->src_rank) * 2 + p->wave];

        assert_int_equal(row->count, p->transfers);
        assert_int_equal(row->read, p->read_bytes);
        assert_int_equal(row->write, p->write_bytes);
        assert_true(i >= w->traffic->pair_first[p->dst_rank] &&
                    i < w->traffic->pair_first[p->dst_rank + 1]);
    }
    assert_memory_equal(kinds, w->traffic->sum, sizeof(kinds));
    free(sum);
}

/* The ranks' own lists are the parts of the whole. */
static void check_lists(const struct world *w, size_t count, uint64_t keeps)
{
    uint64_t listed = 0;

    for (uint32_t r = 0; r < w->traffic->world_size; r++) {
        struct dyti_routes routes = {0};
        struct dyti_transfer *own = NULL;
        size_t own_count = 0;

        assert_ok(dyti_traffic_routes(w->traffic, r, &routes));
        assert_ok(dyti_expand(w->traffic, r, &own, &own_count));
        assert_int_equal(routes.transfers, own_count);
        for (size_t i = 0; i < own_count; i++) {
            assert_true(own[i].src_rank == r || own[i].dst_rank == r);
        }
        listed += own_count;
        free(own);
        dyti_routes_fini(&routes);
    }
    assert_int_equal(count * 2 - keeps, listed); /* both ends list it */
}

static void check_bounds(const struct world *w)
{
    const struct dyti_bounds *b = &w->traffic->bounds;

    for (int t = 0; t < DYTI_TERM_COUNT; t++) {
        if (b->term[t].bound_bytes > b->term[t].moved_bytes) {
            fail_msg("%s: bound %llu, moved %llu",
                     dyti_term_name((enum dyti_term)t),
                     (unsigned long long)b->term[t].bound_bytes,
                     (unsigned long long)b->term[t].moved_bytes);
        }
    }
    assert_true(b->bound_s <= b->moved_s + 1e-12);
    assert_true(dyti_traffic_gain(w->traffic) >= 1.0);
}

/* With fan-out no element crosses into a host twice. */
static void check_one_copy(const struct world *w, const struct dyti_transfer *t,
                           size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const uint32_t *host = w->host;

        if (t[i].wave == 1) {
            assert_int_equal(host[t[i].src_rank], host[t[i].dst_rank]);
        }
        for (size_t k = 0; w->traffic->detail != NULL && k < i; k++) {
            struct dyt_box both;
            uint64_t elements = 0;

            if (t[k].tensor != t[i].tensor || t[k].dst_kind != t[i].dst_kind ||
                host[t[k].dst_rank] != host[t[i].dst_rank] ||
                host[t[k].src_rank] == host[t[k].dst_rank] ||
                host[t[i].src_rank] == host[t[i].dst_rank]) {
                continue;
            }
            assert_ok(dyt_box_intersect(&t[i].box, &t[k].box, &both));
            assert_ok(dyt_box_count(&both, &elements));
            assert_int_equal(0, elements);
        }
    }
}

/* The same switch where links inside a host cost nothing. */
static enum dyti_sources sources_of_fast_hosts(const struct world *w)
{
    struct dyti_cluster fast = w->cluster;
    struct dyti_traffic_options options = w->options;
    struct dyti_traffic *traffic = NULL;
    enum dyti_sources sources;

    fast.link[DYTI_LINK_HOST].bytes_per_s = 1e18;
    options.cluster = &fast;
    assert_ok(dyti_traffic_build(&w->s.inputs, &options, &traffic));
    sources = traffic->sources;
    dyti_traffic_destroy(traffic);
    return sources;
}

/* Does a rank of that host hold an element that goes there? */
static bool has_holder(const struct world *w, const struct dyti_transfer *t)
{
    const struct dyti_plan_source *source =
        &w->s.inputs.want[t->want].source[t->source];

    for (uint32_t r = 0; r < w->traffic->world_size; r++) {
        const struct dyti_view *view = dyti_layout_view(source->layout, r);

        for (uint32_t s = view->kind_first[source->kind];
             w->host[r] == w->host[t->dst_rank] &&
             s < view->kind_first[source->kind + 1];
             s++) {
            struct dyt_box both;
            uint64_t elements = 0;

            if (view->shard[s].tensor == t->tensor) {
                assert_ok(
                    dyt_box_intersect(&t->box, &view->shard[s].box, &both));
                assert_ok(dyt_box_count(&both, &elements));
            }
            if (elements > 0) {
                return true;
            }
        }
    }
    return false;
}

/* A near holder is passed over only by a plan that is the first replica's, and
 * a plan is that only where links inside a host are what takes long. */
static void check_near(const struct world *w, const struct dyti_transfer *t,
                       size_t count, uint32_t *passed)
{
    bool first = w->traffic->sources == DYTI_SOURCES_FIRST;

    for (size_t i = 0; i < count; i++) {
        if (w->host[t[i].src_rank] != w->host[t[i].dst_rank] &&
            has_holder(w, &t[i])) {
            assert_true(first);
        }
    }
    if (!w->options.naive) {
        *passed += first;
        assert_true(sources_of_fast_hosts(w) != DYTI_SOURCES_FIRST);
    }
}

static bool uses_fan_out(const struct world *w)
{
    for (size_t i = 0; i < w->traffic->pair_count; i++) {
        if (w->traffic->pair[i].wave == 1) {
            return true;
        }
    }
    return false;
}

static void moving_ids_gives_the_destination(void **state)
{
    uint32_t sources[DYTI_SOURCES_COUNT] = {0}, passed = 0;

    (void)state;
    for (uint64_t trial = 0; trial < TRIALS; trial++) {
        struct world w;
        struct dyt_case_memory m;
        struct dyti_transfer *t = NULL;
        size_t count = 0;
        uint64_t keeps = 0;

        open_world(trial, &w);
        dyt_case_memory_open(&w.s.inputs, &m);
        assert_ok(dyti_expand(w.traffic, -1, &t, &count));
        for (uint32_t wave = 0; wave < 2; wave++) {
            for (size_t i = 0; i < count; i++) {
                if (t[i].wave == wave) {
                    move(&w, &t[i], &m);
                    keeps += t[i].src_rank == t[i].dst_rank;
                }
            }
        }
        dyt_case_memory_check(&w.s.inputs, &m, -1);
        check_matrix(&w, t, count);
        check_lists(&w, count, keeps);
        check_bounds(&w);
        check_near(&w, t, count, &passed);
        sources[w.traffic->sources] += !w.options.naive;
        if (uses_fan_out(&w)) {
            check_one_copy(&w, t, count);
        }
        free(t);
        dyt_case_memory_close(&m);
        close_world(&w);
    }
    for (uint32_t i = 0; i < DYTI_SOURCES_COUNT; i++) {
        print_message("way %u of choosing sources: %u plans\n", i, sources[i]);
    }
    assert_true(sources[DYTI_SOURCES_NEAREST] > 0);
    assert_in_range(passed, 0, TRIALS / 20);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(moving_ids_gives_the_destination),
};
DYT_TEST_MAIN(tests)
