/* Any layout to any layout: every family, dialect, degree, kind, expert map and
 * extra, on random hosts.  The plan, carried out on arrays of unique ids with
 * plain loops, gives the destination; the compact matrix is the sum of its
 * transfers; each rank alone finds its part; no link carries less than its
 * bound, none of it depends on how holders were found; nothing is worse than
 * the first replica sending everything. */
#include "plan_cases.h"

#include "pattern_cases.h"
#include "plan/expand.h"
#include "plan/place.h"
#include "plan/traffic.h"
#include "shrink.h"

#define SEED 60117u

enum value {
    TRIAL,
    WORLD,
    LAYERS,
    VOCAB,
    EXPERTS,
    EXTRAS,
    HOSTS,
    FAN_OUT,
    FROM,
    TO,
    VALUES
};

static const char *const names[VALUES] = {
    "trial",  "world", "layers at most", "vocab at most", "experts at most",
    "extras", "hosts", "fan-out",        "dialect from",  "dialect to"};
static const int64_t least[VALUES] = {0, 1, 1, 12, 2, 0, 1, 0, 0, 0};

#define TEXT_2(x) #x
#define TEXT(x)   TEXT_2(x)
#define HOLD(x)                                                                \
    do {                                                                       \
        if (!(x)) {                                                            \
            return "line " TEXT(__LINE__) ": " #x;                             \
        }                                                                      \
    } while (0)

struct any {
    const int64_t *value;
    struct dyti_model *model;
    struct dyti_layout *src, *dst;
    struct dyti_plan_inputs inputs;
    struct dyti_cluster cluster;
    struct dyti_traffic_options options;
    uint32_t host[DYT_CASE_RANKS];
    struct dyti_traffic *traffic;
    struct dyti_transfer *transfer;
    size_t count;
};

static uint64_t pick(const struct any *a, uint64_t what, uint64_t count)
{
    return dyt_case_pick(SEED, (uint64_t)a->value[TRIAL], what, count);
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static struct dyti_model *make_model(const struct any *a)
{
    const int64_t *v = a->value;
    struct dyti_arch arch = dyt_case_any_arch(SEED, (uint64_t)v[TRIAL]);
    struct dyti_model *model = NULL;

    if (v[EXTRAS] != 0) {
        return dyt_case_any_model(SEED, (uint64_t)v[TRIAL]);
    }
    arch.layers = smaller(arch.layers, v[LAYERS]);
    arch.vocab = smaller(arch.vocab, v[VOCAB]);
    arch.moe.count = smaller(arch.moe.count, v[EXPERTS]);
    assert_ok(dyti_model_build(&arch, &model));
    return model;
}

static void make_hosts(struct any *a)
{
    uint32_t world = (uint32_t)a->value[WORLD];
    uint32_t hosts = (uint32_t)smaller(a->value[HOSTS], world);

    for (uint32_t r = 0; r < world; r++) {
        a->host[r] = pick(a, 2, 3) == 0 ? (uint32_t)pick(a, 60 + r, hosts)
                                        : r * hosts / world;
    }
    a->cluster = (struct dyti_cluster){
        .name = "case",
        .rank_count = world,
        .host_count = hosts,
        .host = a->host,
        .link = {{.bytes_per_s = 800e9},
                 {.bytes_per_s = pick(a, 3, 4) == 0 ? 20e9 : 400e9},
                 {.bytes_per_s = 25e9}},
        .host_nic_bytes_per_s = pick(a, 4, 3) == 0 ? 40e9 : 0,
        .core_bytes_per_s = pick(a, 5, 3) == 0 ? 60e9 : 0};
    a->options =
        (struct dyti_traffic_options){.cluster = &a->cluster,
                                      .fan_out = a->value[FAN_OUT] != 0,
                                      .naive = pick(a, 6, 12) == 0,
                                      .exact_cells = pick(a, 7, 6) == 0};
}

/* Kinds that the source can fill. */
static uint32_t kinds_of(const struct any *a)
{
    uint32_t kinds = DYTI_PLAN_KINDS_STATE;

    for (int kind = 0; kind < DYTI_KIND_COUNT; kind++) {
        if (!dyti_layout_holds(a->src, (enum dyti_kind)kind)) {
            kinds &= ~(1u << kind);
        }
    }
    if (dyti_layout_holds(a->src, DYTI_MASTER)) {
        kinds |= 1u << DYTI_PARAM;
    } else if (a->src->desc.dtype[DYTI_PARAM] !=
                   a->dst->desc.dtype[DYTI_PARAM] &&
               a->src->desc.dtype[DYTI_PARAM] != DYTI_F32) {
        kinds &= ~(1u << DYTI_PARAM);
    }
    return kinds;
}

/* The same shards, handed in as lists. */
static struct dyti_layout *as_list(const struct any *a,
                                   struct dyti_layout *layout)
{
    struct dyti_layout_desc desc = layout->desc;
    struct dyti_layout *list = NULL;
    struct dyti_view *view = layout->view;

    desc.dialect = DYTI_DIALECT_LIST;
    assert_ok(dyti_layout_from_views(a->model, &desc, view, &list));
    layout->view = NULL; /* what lay in it is taken over */
    free(view);
    dyti_layout_destroy(layout);
    return list;
}

/* Drawn until the dialect takes it; a model that it never takes is laid out
 * natively. */
static struct dyti_layout *lay_out(const struct any *a, uint64_t seed,
                                   enum dyti_dialect dialect)
{
    struct dyti_layout *layout = NULL;
    struct dyt_case_desc desc;

    if (dialect == DYTI_DIALECT_LIST) {
        dialect = (enum dyti_dialect)pick(a, 8, DYTI_DIALECT_LIST);
        return as_list(a, lay_out(a, seed, dialect));
    }
    for (uint64_t attempt = 0; attempt < 100; attempt++) {
        dyt_case_any_layout(seed + attempt * 7919, (uint64_t)a->value[TRIAL],
                            a->model, (uint32_t)a->value[WORLD], dialect,
                            "case", &desc);
        if (dyti_layout_build(a->model, &desc.desc, &layout) == DYT_OK) {
            return layout;
        }
    }
    return dyt_case_build(seed, (uint64_t)a->value[TRIAL], a->model,
                          (uint32_t)a->value[WORLD], DYTI_DIALECT_NATIVE, NULL);
}

/* The text of the last failure, kept while the next case is tried. */
static const char *last_failure(void)
{
    static char text[512];

    (void)snprintf(text, sizeof(text), "%s", dyti_error_text());
    return text;
}

static const char *open_case(const int64_t *value, struct any *a)
{
    memset(a, 0, sizeof(*a));
    a->value = value;
    a->model = make_model(a);
    a->src = lay_out(a, SEED, (enum dyti_dialect)value[FROM]);
    a->dst = lay_out(a, SEED + 1, (enum dyti_dialect)value[TO]);
    make_hosts(a);
    if (dyti_plan_inputs_init(a->src, DYTI_ARENA_TRAIN, a->dst,
                              DYTI_ARENA_ROLLOUT, kinds_of(a),
                              &a->inputs) != DYT_OK) {
        return last_failure();
    }
    if (dyti_traffic_build(&a->inputs, &a->options, &a->traffic) != DYT_OK ||
        dyti_expand(a->traffic, -1, &a->transfer, &a->count) != DYT_OK) {
        return last_failure();
    }
    return NULL;
}

static void close_case(struct any *a)
{
    free(a->transfer);
    dyti_traffic_destroy(a->traffic);
    dyti_layout_destroy(a->src);
    dyti_layout_destroy(a->dst);
    dyti_model_destroy(a->model);
}

static const struct dyti_layout *source_of(const struct any *a,
                                           const struct dyti_transfer *t)
{
    return t->wave > 0 ? a->inputs.dst
                       : a->inputs.want[t->want].source[t->source].layout;
}

static uint64_t place_of(const struct dyti_layout *layout, uint32_t kind,
                         const struct dyti_shard *shard, const int64_t *at)
{
    return dyt_case_offset(shard, at) /
           dyti_dtype_bytes(layout->desc.dtype[kind]);
}

static const char *move(const struct any *a, const struct dyti_transfer *t,
                        struct dyt_case_memory *m)
{
    const struct dyti_layout *from = source_of(a, t);
    const struct dyti_shard *src = &from->view[t->src_rank].shard[t->src_shard];
    const struct dyti_shard *dst =
        &a->dst->view[t->dst_rank].shard[t->dst_shard];
    int64_t at[DYT_MAX_DIMS];

    HOLD(src->dtype == t->src_dtype && dst->dtype == t->dst_dtype);
    HOLD(src->tensor == t->tensor && dst->tensor == t->tensor);
    memcpy(at, t->box.lo, sizeof(at));
    do {
        uint32_t *to = m->region[t->dst_slot][t->dst_kind][t->dst_rank] +
                       place_of(a->dst, t->dst_kind, dst, at);
        uint32_t have = m->region[t->src_slot][t->src_kind][t->src_rank]
                                 [place_of(from, t->src_kind, src, at)];

        HOLD(*to == DYT_CASE_NOTHING); /* once only */
        HOLD(have != DYT_CASE_NOTHING);
        *to = have;
    } while (dyt_case_next(&t->box, at));
    return NULL;
}

/* A rank that holds a box twice gets it twice; the matrix counts it once. */
static bool is_second_copy(const struct any *a, size_t i)
{
    const struct dyti_transfer *t = &a->transfer[i], *p = t - 1;

    return i > 0 && p->src_rank == t->src_rank && p->dst_rank == t->dst_rank &&
           p->want == t->want && p->tensor == t->tensor &&
           dyt_case_same_box(&p->box, &t->box);
}

static const char *check_ids(const struct any *a)
{
    struct dyt_case_memory m;
    const char *why = NULL;

    dyt_case_memory_open(&a->inputs, &m);
    for (uint32_t wave = 0; wave < 2; wave++) {
        for (size_t i = 0; i < a->count && why == NULL; i++) {
            why = a->transfer[i].wave == wave ? move(a, &a->transfer[i], &m)
                                              : NULL;
        }
    }
    for (uint32_t w = 0; w < a->inputs.want_count && why == NULL; w++) {
        enum dyti_kind kind = a->inputs.want[w].kind;

        for (uint32_t r = 0; r < a->dst->desc.world_size && why == NULL; r++) {
            const struct dyti_view *v = &a->dst->view[r];

            for (uint32_t i = v->kind_first[kind];
                 i < v->kind_first[kind + 1] && why == NULL; i++) {
                int64_t at[DYT_MAX_DIMS];
                uint32_t tag = kind == DYTI_PARAM || kind == DYTI_MASTER
                                   ? 0u
                                   : (uint32_t)kind << 28;

                memcpy(at, v->shard[i].box.lo, sizeof(at));
                do {
                    uint32_t id =
                        dyt_case_id(a->model, 0, v->shard[i].tensor, at) | tag;
                    uint32_t have =
                        m.region[a->inputs.dst_slot][kind][r]
                                [place_of(a->dst, kind, &v->shard[i], at)];

                    why = have == id ? why : "an element has another's value";
                } while (dyt_case_next(&v->shard[i].box, at));
            }
        }
    }
    dyt_case_memory_close(&m);
    return why;
}

struct row {
    uint64_t read, write, count;
};

static const char *check_matrix(const struct any *a)
{
    static struct row sum[DYT_CASE_RANKS * DYT_CASE_RANKS * 2];
    const struct dyti_traffic *t = a->traffic;
    uint32_t n = t->world_size;
    size_t pairs = 0;

    memset(sum, 0, sizeof(sum));
    for (size_t i = 0; i < a->count; i++) {
        const struct dyti_transfer *x = &a->transfer[i];
        struct row *row = &sum[(x->dst_rank * n + x->src_rank) * 2 + x->wave];
        uint64_t elements = 0;

        if (is_second_copy(a, i)) {
            continue;
        }
        assert_ok(dyt_box_count(&x->box, &elements));
        HOLD(elements > 0);
        pairs += row->count++ == 0;
        row->read += elements * dyti_dtype_bytes((enum dyti_dtype)x->src_dtype);
        row->write +=
            elements * dyti_dtype_bytes((enum dyti_dtype)x->dst_dtype);
        HOLD(x->wave == 0 || a->host[x->src_rank] == a->host[x->dst_rank]);
    }
    HOLD(pairs == t->pair_count);
    for (size_t i = 0; i < t->pair_count; i++) {
        const struct dyti_traffic_pair *p = &t->pair[i];
        const struct row *row =
            &sum[(p->dst_rank * n + p->src_rank) * 2 + p->wave];

        HOLD(row->count == p->transfers);
        HOLD(row->read == p->read_bytes);
        HOLD(row->write == p->write_bytes);
    }
    return NULL;
}

static const char *check_ranks(const struct any *a)
{
    uint64_t listed = 0, whole = 0;

    for (size_t i = 0; i < a->count; i++) {
        whole += a->transfer[i].src_rank == a->transfer[i].dst_rank ? 1 : 2;
    }
    for (uint32_t r = 0; r < a->traffic->world_size; r++) {
        struct dyti_transfer *own = NULL;
        size_t count = 0;

        HOLD(dyti_expand(a->traffic, r, &own, &count) == DYT_OK);
        listed += count;
        free(own);
    }
    HOLD(listed == whole);
    return NULL;
}

/* Bounds against the plan, and against those of slowly found holders. */
static const char *check_bounds(const struct any *a)
{
    struct dyti_patterns *slow[2] = {dyt_case_patterns(a->src),
                                     dyt_case_patterns(a->dst)};
    const struct dyti_patterns *list[2] = {slow[0], slow[1]};
    const struct dyti_bounds *b = &a->traffic->bounds;
    struct dyti_traffic *t = NULL;
    const char *why = NULL;

    if (dyti_traffic_build_from(&a->inputs, &a->options, list, 2, &t) !=
        DYT_OK) {
        return last_failure();
    }
    for (int k = 0; k < DYTI_TERM_COUNT; k++) {
        why = b->term[k].bound_bytes > b->term[k].moved_bytes
                  ? "a load is below its bound"
                  : why;
        why = b->term[k].bound_bytes != t->bounds.term[k].bound_bytes
                  ? "the bound depends on how holders were found"
                  : why;
    }
    for (uint32_t r = 0; r < t->world_size; r++) {
        why = t->rank[r].keep_bytes != a->traffic->rank[r].keep_bytes
                  ? "what is kept depends on how holders were found"
                  : why;
    }
    dyti_traffic_destroy(t);
    dyt_case_patterns_free(slow[0]);
    dyt_case_patterns_free(slow[1]);
    HOLD(why != NULL || dyti_traffic_gain(a->traffic) >= 1.0);
    return why;
}

/* Placed: a permutation, never worse, and as good as it says. */
static const char *check_place(const struct any *a)
{
    struct dyti_placement p = {0};
    uint64_t keep = 0;
    uint32_t seen = 0;

    HOLD(dyti_place(&a->inputs, &a->options, &p) == DYT_OK);
    for (uint32_t r = 0; r < p.world_size; r++) {
        seen |= 1u << p.rank_of[r];
        keep += a->traffic->rank[r].keep_bytes;
    }
    HOLD(seen == (uint32_t)((1ull << p.world_size) - 1));
    HOLD(p.keep_before == keep);
    HOLD(p.nic_after <= p.nic_before);
    HOLD(p.nic_after < p.nic_before || p.keep_after >= p.keep_before);
    HOLD(p.load_after_s <= p.load_before_s);
    dyti_placement_fini(&p);
    return NULL;
}

static const char *check(const int64_t *value)
{
    struct any a;
    const char *why = open_case(value, &a);

    why = why != NULL ? why : check_ids(&a);
    why = why != NULL ? why : check_matrix(&a);
    why = why != NULL ? why : check_ranks(&a);
    why = why != NULL ? why : check_bounds(&a);
    why = why != NULL ? why : check_place(&a);
    close_case(&a);
    return why;
}

static void any_layout_to_any_layout(void **state)
{
    uint64_t rounds = dyt_test_rounds(200, 2000);

    (void)state;
    for (uint64_t trial = 0; trial < rounds; trial++) {
        int64_t v[VALUES] = {
            (int64_t)trial, 0, 1000, 1000, 1000, 1, 0, 0, 0, 0};

        v[WORLD] = 1 + (int64_t)dyt_case_pick(SEED, trial, 500, 16);
        v[HOSTS] = 1 + (int64_t)dyt_case_pick(SEED, trial, 501, 4);
        v[FAN_OUT] = (int64_t)dyt_case_pick(SEED, trial, 502, 2);
        v[EXTRAS] = (int64_t)dyt_case_pick(SEED, trial, 503, 2);
        v[FROM] = (int64_t)dyt_case_pick(SEED, trial, 504, DYTI_DIALECT_COUNT);
        v[TO] = (int64_t)dyt_case_pick(SEED, trial, 505, DYTI_DIALECT_COUNT);
        dyt_shrink_hold(check, names, least, v, VALUES);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(any_layout_to_any_layout),
};
DYT_TEST_MAIN(tests)
