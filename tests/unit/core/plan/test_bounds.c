/* Bounds against every way to route small random cases: whatever source each
 * rank takes each atom from, somebody who held it or somebody who got it
 * before, no term is below its bound; and rank in, host in and memory of single
 * atoms are met. */
#include "dyt_test.h"

#include "base/rng.h"
#include "plan/bounds.h"
#include "plan/common.h"

#define SEED     1906u
#define TRIALS   150u
#define RANKS    5u
#define ATOMS    3u
#define ROUTINGS 20000u

struct fixture {
    struct dyti_common common;
    struct dyti_want_group group;
    struct dyti_common_class class[ATOMS];
    struct dyti_cluster cluster;
    uint32_t host[RANKS];
    struct dyti_bounds bounds;
    /* The routing being looked at: who gives atom a to rank d. */
    uint32_t giver[ATOMS][RANKS];
    bool has[ATOMS][RANKS], wants[ATOMS][RANKS];
};

static uint64_t pick(uint64_t trial, uint64_t what, uint64_t count)
{
    return dyti_rng_u64(SEED, trial, what, 0xb0) % count;
}

static uint32_t make_set(struct fixture *f, uint64_t trial, uint64_t what,
                         bool *in)
{
    uint32_t rank[RANKS], count = 0, set = 0;

    for (uint32_t r = 0; r < f->common.world_size; r++) {
        in[r] = pick(trial, what + r, 3) == 0;
        if (in[r]) {
            rank[count++] = r;
        }
    }
    if (count == 0) {
        rank[count++] = (uint32_t)pick(trial, what, f->common.world_size);
        in[rank[0]] = true;
    }
    assert_ok(dyti_sets_intern(&f->common.sets, rank, count, &set));
    assert_ok(dyti_sets_split(&f->common.sets, set));
    return set;
}

/* bf16 parameters from the master; and `both`: the master as well, whose
 * elements a plan may read once for the two. */
static void set_wants(struct fixture *f, bool both)
{
    static const enum dyti_kind kind[] = {DYTI_PARAM, DYTI_MASTER};
    static const uint32_t write[] = {2, 4};
    uint32_t count = both ? 2 : 1;

    for (uint32_t w = 0; w < count; w++) {
        f->common.inputs.want[w] = (struct dyti_plan_want){
            .kind = kind[w],
            .source = {{.slot = DYTI_ARENA_TRAIN, .kind = DYTI_MASTER}},
            .source_count = 1};
        f->group.want[w] = w;
        f->group.read[w] = 4;
        f->group.write[w] = write[w];
        f->group.read_all += 4;
        f->group.write_all += write[w];
    }
    f->common.inputs.want_count = f->group.want_count = count;
}

static void open_case(uint64_t trial, struct fixture *f)
{
    uint32_t world = 2 + (uint32_t)pick(trial, 0, RANKS - 1);
    uint32_t hosts = 1 + (uint32_t)pick(trial, 1, world < 3 ? world : 3);

    memset(f, 0, sizeof(*f));
    for (uint32_t r = 0; r < world; r++) {
        f->host[r] = r * hosts / world;
    }
    f->common.world_size = world;
    f->common.host_count = hosts;
    f->common.host = f->host;
    assert_ok(dyti_sets_init(&f->common.sets, f->host, world));
    set_wants(f, pick(trial, 3, 2) == 0);
    f->common.group = &f->group;
    f->common.group_count = 1;
    f->common.class = f->class;
    f->common.class_count = 1 + pick(trial, 2, ATOMS);
    for (uint32_t a = 0; a < f->common.class_count; a++) {
        f->class[a].src_set = make_set(f, trial, 100 * a + 10, f->has[a]);
        f->class[a].dst_set = make_set(f, trial, 100 * a + 60, f->wants[a]);
        f->class[a].elements = 1 + pick(trial, 100 * a + 90, 1000);
    }
    f->cluster = (struct dyti_cluster){
        .link = {{.bytes_per_s = 8}, {.bytes_per_s = 4}, {.bytes_per_s = 1}},
        .core_bytes_per_s = 2};
    assert_ok(dyti_bounds_find(&f->common, &f->cluster, &f->bounds));
}

static void close_case(struct fixture *f)
{
    dyti_sets_fini(&f->common.sets);
}

/* Nobody waits for what comes from himself. */
static bool is_sound(const struct fixture *f, uint32_t a, uint32_t rank)
{
    for (uint32_t steps = 0; !f->has[a][rank]; steps++) {
        if (steps > RANKS) {
            return false;
        }
        rank = f->giver[a][rank];
    }
    return true;
}

struct loads {
    uint64_t in[RANKS], out[RANKS], nic_in[RANKS], nic_out[RANKS];
    uint64_t host_in[RANKS], host_out[RANKS], memory[RANKS], cut[2];
};

static void add(const struct fixture *f, uint32_t a, uint32_t d,
                struct loads *l)
{
    uint64_t write = f->class[a].elements * f->group.write_all;
    uint64_t read = f->class[a].elements * 4; /* once, whatever it is for */
    uint32_t s = f->giver[a][d], half = f->common.host_count / 2;
    uint32_t from, to;

    l->memory[d] += write;
    if (f->has[a][d]) {
        l->memory[d] += read;
        return;
    }
    from = f->host[s];
    to = f->host[d];
    l->memory[s] += f->has[a][s] ? read : write;
    l->in[d] += write;
    l->out[s] += write;
    if (from != to) {
        l->nic_in[d] += write;
        l->nic_out[s] += write;
        l->host_in[to] += write;
        l->host_out[from] += write;
        if ((from < half) != (to < half)) {
            l->cut[from < half ? 0 : 1] += write;
        }
    }
}

static uint64_t largest(const uint64_t *value, uint32_t count)
{
    uint64_t most = 0;

    for (uint32_t i = 0; i < count; i++) {
        most = value[i] > most ? value[i] : most;
    }
    return most;
}

static void hold(const struct fixture *f, enum dyti_term term, uint64_t load,
                 uint64_t *best)
{
    if (load < f->bounds.term[term].bound_bytes) {
        fail_msg("%s: %llu bytes go, %llu must", dyti_term_name(term),
                 (unsigned long long)load,
                 (unsigned long long)f->bounds.term[term].bound_bytes);
    }
    best[term] = load < best[term] ? load : best[term];
}

static void look(const struct fixture *f, uint64_t *best)
{
    struct loads l;
    uint32_t n = f->common.world_size;

    memset(&l, 0, sizeof(l));
    for (uint32_t a = 0; a < f->common.class_count; a++) {
        for (uint32_t d = 0; d < n; d++) {
            if (!f->wants[a][d]) {
                continue;
            }
            if (!is_sound(f, a, d)) {
                return;
            }
            add(f, a, d, &l);
        }
    }
    hold(f, DYTI_TERM_RANK_IN, largest(l.in, n), best);
    hold(f, DYTI_TERM_RANK_OUT, largest(l.out, n), best);
    hold(f, DYTI_TERM_NIC_IN, largest(l.nic_in, n), best);
    hold(f, DYTI_TERM_NIC_OUT, largest(l.nic_out, n), best);
    hold(f, DYTI_TERM_HOST_IN, largest(l.host_in, n), best);
    hold(f, DYTI_TERM_HOST_OUT, largest(l.host_out, n), best);
    hold(f, DYTI_TERM_CUT, largest(l.cut, 2), best);
    hold(f, DYTI_TERM_MEMORY, largest(l.memory, n), best);
}

/* All routings of what is wanted, from (a, d) on; at most ROUTINGS. */
static void try_all(struct fixture *f, uint32_t a, uint32_t d, uint64_t *best,
                    uint32_t *left)
{
    uint32_t n = f->common.world_size;

    for (; a < f->common.class_count; a++, d = 0) {
        for (; d < n; d++) {
            if (!f->wants[a][d] || f->has[a][d]) {
                continue;
            }
            for (uint32_t s = 0; s<n && * left> 0; s++) {
                if (s != d && (f->has[a][s] || f->wants[a][s])) {
                    f->giver[a][d] = s;
                    try_all(f, a, d + 1, best, left);
                }
            }
            return;
        }
    }
    look(f, best);
    *left -= *left > 0;
}

static void no_routing_is_below(void **state)
{
    (void)state;
    for (uint64_t trial = 0; trial < TRIALS; trial++) {
        struct fixture f;
        uint64_t best[DYTI_TERM_COUNT];
        uint32_t left = ROUTINGS;

        memset(best, 0xff, sizeof(best));
        open_case(trial, &f);
        try_all(&f, 0, 0, best, &left);
        if (left > 0) { /* all were tried: these two are exact */
            assert_int_equal(f.bounds.term[DYTI_TERM_RANK_IN].bound_bytes,
                             best[DYTI_TERM_RANK_IN]);
            assert_int_equal(f.bounds.term[DYTI_TERM_HOST_IN].bound_bytes,
                             best[DYTI_TERM_HOST_IN]);
        }
        close_case(&f);
    }
}

/* Rank 0 alone has 100 elements that 1, 2 and 3 want; 2 and 3 on host 1. */
static void known_bounds(void **state)
{
    static const uint32_t zero[] = {0}, three[] = {1, 2, 3};
    struct fixture f;
    const struct dyti_bound *t = f.bounds.term;

    (void)state;
    memset(&f, 0, sizeof(f));
    f.host[2] = f.host[3] = 1;
    f.common = (struct dyti_common){.world_size = 4,
                                    .host_count = 2,
                                    .host = f.host,
                                    .group = &f.group,
                                    .group_count = 1,
                                    .class = f.class,
                                    .class_count = 1};
    set_wants(&f, false);
    f.class[0].elements = 100;
    assert_ok(dyti_sets_init(&f.common.sets, f.host, 4));
    assert_ok(dyti_sets_intern(&f.common.sets, zero, 1, &f.class[0].src_set));
    assert_ok(dyti_sets_intern(&f.common.sets, three, 3, &f.class[0].dst_set));
    assert_ok(dyti_sets_split(&f.common.sets, f.class[0].src_set));
    assert_ok(dyti_sets_split(&f.common.sets, f.class[0].dst_set));
    f.cluster.link[DYTI_LINK_SELF].bytes_per_s = 100;
    f.cluster.link[DYTI_LINK_HOST].bytes_per_s = 90;
    f.cluster.link[DYTI_LINK_NIC].bytes_per_s = 10;
    assert_ok(dyti_bounds_find(&f.common, &f.cluster, &f.bounds));
    assert_int_equal(200, t[DYTI_TERM_RANK_IN].bound_bytes);
    assert_int_equal(200, t[DYTI_TERM_RANK_OUT].bound_bytes);
    assert_int_equal(100, t[DYTI_TERM_NIC_IN].bound_bytes);
    assert_int_equal(100, t[DYTI_TERM_NIC_OUT].bound_bytes);
    assert_int_equal(200, t[DYTI_TERM_HOST_IN].bound_bytes);
    assert_int_equal(1, t[DYTI_TERM_HOST_IN].bound_at);
    assert_int_equal(200, t[DYTI_TERM_HOST_OUT].bound_bytes);
    assert_int_equal(200, t[DYTI_TERM_CUT].bound_bytes);
    assert_int_equal(400, t[DYTI_TERM_MEMORY].bound_bytes);
    assert_int_equal(0, t[DYTI_TERM_MEMORY].bound_at);
    assert_int_equal(DYTI_TERM_NIC_IN, f.bounds.bound_by);
    assert_true(f.bounds.bound_s == 10.0);
    dyti_sets_fini(&f.common.sets);
}

/* Rank 0 keeps 100 elements: parameters and master, both from the master. */
static void what_fills_two_is_read_once(void **state)
{
    static const uint32_t zero[] = {0};
    struct fixture f;

    (void)state;
    memset(&f, 0, sizeof(f));
    f.common = (struct dyti_common){.world_size = 1,
                                    .host_count = 1,
                                    .host = f.host,
                                    .group = &f.group,
                                    .group_count = 1,
                                    .class = f.class,
                                    .class_count = 1};
    set_wants(&f, true);
    f.class[0].elements = 100;
    assert_ok(dyti_sets_init(&f.common.sets, f.host, 1));
    assert_ok(dyti_sets_intern(&f.common.sets, zero, 1, &f.class[0].src_set));
    assert_ok(dyti_sets_split(&f.common.sets, f.class[0].src_set));
    f.class[0].dst_set = f.class[0].src_set;
    f.cluster.link[DYTI_LINK_SELF].bytes_per_s = 100;
    assert_ok(dyti_bounds_find(&f.common, &f.cluster, &f.bounds));
    assert_int_equal(600 + 400, f.bounds.term[DYTI_TERM_MEMORY].bound_bytes);
    assert_true(f.bounds.bound_s == 5.0);
    dyti_sets_fini(&f.common.sets);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(known_bounds),
    cmocka_unit_test(what_fills_two_is_read_once),
    cmocka_unit_test(no_routing_is_below),
};
DYT_TEST_MAIN(tests)
